r"""Numba kernels: arrays in, arrays out, status instead of exceptions.

Packages, each importing only those below it, apart from ``windows.walk``, which ``polynomial.lift`` and ``samples`` use::

    windows    samples    validate
    pieces                fit
    polynomial
    rounding  double_double  instants  counting_sort  string_columns
    buffer_pool  status  _jit

Conventions shared by all kernels:

* A batch of polynomials is ``c`` of shape ``(n, k)``: row ``i`` is
  ``sum(c[i, j] * (t - ref_i)**j)``, lowest order first, padded with zeros.
* An instant is a pair (``ref``, ``offset``): int64 microseconds since the epoch and
  float64 seconds relative to it. No power of an absolute time is ever taken.
* A piece is valid on the half-open range ``[ref + lo, ref + hi)``.
* Ragged results are CSR style: ``offsets`` of length ``n + 1`` into flat arrays.
"""

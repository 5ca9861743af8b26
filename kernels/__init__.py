r"""Numba kernels: arrays in, arrays out, status instead of exceptions.

Layers, each importing strictly lower ones::

    fit  fit_polynomial    envelope  sliding    lift
      \      |               |        |         |
       reach  |             align   integral  signs  extrema
         |    |               |        |          \   /
        tube  |               |     window        roots
       /    \ |               |      /              |
    polygon  knots        timeline         polynomial
       |       |                               |
      hull   group         intervals         exact
                         status   _jit

    window_average  window_extremum  sample     near  around     validate
          (on window, extrema)    (on window)    (on align)    (on key_state, trend, knots)
    compare  summary  stretches  texts          sample by sample, on nothing but _jit

Conventions shared by all of them:

* A batch of polynomials is ``c`` of shape ``(n, k)``: row ``i`` is
  ``sum(c[i, j] * (t - ref_i)**j)``, lowest order first, padded with zeros.
* An instant is a pair (``ref``, ``offset``): int64 microseconds since the epoch and
  float64 seconds relative to it. No power of an absolute time is ever taken.
* A piece is valid on the half-open range ``[ref + lo, ref + hi)``.
* Ragged results are CSR style: ``offsets`` of length ``n + 1`` into flat arrays.
"""

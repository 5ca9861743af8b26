"""Compute error-free transforms and double-double sums (Dekker 1971, Knuth TAOCP 4.2.2).

A double-double is a pair ``(high, low)`` with ``|low| <= ulp(high) / 2``; it carries about 32 decimal digits.
Sums over long spans and shifts of polynomials use it, so that they remain accurate after cancellation.
Products overflow above 1e300; callers stay far below.
"""

from pulse.kernels._jit import step

_SPLITTER = 134217729.0  # 2**27 + 1


@step
def two_sum(a, b):
    """Return ``(s, e)`` with ``s = fl(a + b)`` and ``s + e == a + b`` exactly."""
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)


@step
def fast_two_sum(a, b):
    """Compute :func:`two_sum` for ``|a| >= |b|``."""
    s = a + b
    return s, b - (s - a)


@step
def two_product(a, b):
    """Return ``(p, e)`` with ``p = fl(a * b)`` and ``p + e == a * b`` exactly."""
    p = a * b
    x = _SPLITTER * a
    a_high = x - (x - a)
    a_low = a - a_high
    y = _SPLITTER * b
    b_high = y - (y - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


@step
def dd_add(ah, al, bh, bl):
    """Add two double-doubles."""
    s, e = two_sum(ah, bh)
    return fast_two_sum(s, e + (al + bl))


@step
def dd_add_float(ah, al, b):
    """Add a double-double and a float."""
    s, e = two_sum(ah, b)
    return fast_two_sum(s, e + al)


@step
def dd_multiply_float(ah, al, b):
    """Multiply a double-double by a float."""
    p, e = two_product(ah, b)
    return fast_two_sum(p, e + al * b)


@step
def dd_multiply(ah, al, bh, bl):
    """Multiply two double-doubles."""
    p, e = two_product(ah, bh)
    return fast_two_sum(p, e + (ah * bl + al * bh))


@step
def dd_quotient(a, b):
    """Divide floats ``a / b`` into a double-double: whole microseconds to seconds without loss."""
    q = a / b
    p, e = two_product(q, b)
    return q, ((a - p) - e) / b

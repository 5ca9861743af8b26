"""Bound what a map ``y -> a*y + b``, known to ``a ± da`` and ``b ± db``, adds to the error of a value, its rounding included."""

from __future__ import annotations

from pulse.kernels._jit import step
from pulse.kernels.double_double import two_product
from pulse.kernels.rounding import GROWN, UNIT, lost

_SMALLEST = 2.0**-1074
# Between them the rounding error of a product is a float, found exactly.
_NEAR_OVERFLOW, _NEAR_UNDERFLOW = 1e290, 1e-250


@step
def product_lost(a, v):
    """Bound the rounding error of ``a * v``: 0 where the product is exact."""
    p = abs(a * v)
    if a == 1.0 or v == 0.0:
        return 0.0
    if not (_NEAR_UNDERFLOW < p < _NEAR_OVERFLOW and abs(v) < _NEAR_OVERFLOW and a < _NEAR_OVERFLOW):
        return UNIT * p + _SMALLEST
    return abs(two_product(a, v)[1])


@step
def value_lost(v, a, b, da, db):
    """Bound the distance of the computed ``a * v + b`` from the image of ``v`` under a map within ``a ± da``, ``b ± db``."""
    off = product_lost(a, v) + lost(a * v, b) + db
    if da > 0.0:
        off += da * abs(v)
    return off * GROWN


@step
def scaled_bound(e, a, da):
    """Return the bound ``(a + da) e``, rounded up; exactly ``a e`` where that is a double."""
    scaled = a * e
    if da > 0.0 or product_lost(a, e) > 0.0:
        scaled = (a + da) * e * GROWN
    return scaled


@step
def mapped_bound(v, e, a, b, da, db):
    """Return the bound of ``a * v + b`` for a value within ``v ± e``, rounding included."""
    off, scaled = value_lost(v, a, b, da, db), scaled_bound(e, a, da)
    return (scaled + off) * GROWN if off > 0.0 else scaled

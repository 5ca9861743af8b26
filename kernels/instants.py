"""Compare instants given as (reference, offset) pairs: exact microseconds plus float64 seconds.

Two instants are compared by the difference of their references, which is exact in integers, plus the
difference of their offsets. Close instants are therefore compared accurately, whatever the epoch,
and no kernel ever holds an absolute time in a float.
"""

from pulse.kernels._jit import device

MICROSECONDS = 1e6

# Two instants count as the same within a thousandth of the timestamps' resolution, plus four units in the
# last place of the numbers that the gap is computed from.
GRAIN = 1e-9
_ULPS = 4 * 2.220446049250313e-16


@device
def seconds_between(ref_from, ref_to):
    """Return ``ref_to - ref_from`` in seconds: one correctly rounded division of an exact integer."""
    return (ref_to - ref_from) / MICROSECONDS


@device
def gap(ref_a, a, ref_b, b):
    """Return the seconds from instant (``ref_a``, ``a``) to instant (``ref_b``, ``b``)."""
    return (ref_b - ref_a) / MICROSECONDS + (b - a)


@device
def tolerance(ref_a, a, ref_b, b):
    """Return how many seconds apart two instants may lie and still count as the same."""
    return GRAIN + _ULPS * (abs((ref_b - ref_a) / MICROSECONDS) + max(abs(a), abs(b)))


@device
def meets(ref_a, a, ref_b, b):
    """Test whether the two instants count as the same: no hole between them."""
    return abs(gap(ref_a, a, ref_b, b)) <= tolerance(ref_a, a, ref_b, b)


@device
def later(ref_a, a, ref_b, b):
    """Test whether instant b lies after instant a by more than the tolerance."""
    return gap(ref_a, a, ref_b, b) > tolerance(ref_a, a, ref_b, b)

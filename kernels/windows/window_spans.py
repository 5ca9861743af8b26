"""Find the rows that windows touch, and how far the first and the last of them lie in the window.

A **span** is the rows ``first:stop``, the first from the offset ``begin`` on, the last up to ``end``; rows in between are whole.
The rows of a group ascend in time. Ends of rows are accurate to the tolerance of instants: a row that ends, or begins, that near
to an end of the window, but not within the rounding of both, may be in it or not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import BOOL, IN1, IN_INT1, OUT1, OUT_INT1, device, kernel
from pulse.kernels.instants import GRAIN, gap
from pulse.kernels.pieces.arguments import floats_of, integers_of, offsets_of

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_RANGES = types.Tuple((IN_INT1, IN1, IN1))
_WINDOWS = types.Tuple((IN_INT1, IN_INT1, IN1, IN_INT1, IN1))
_SPANS = types.Tuple((OUT_INT1, OUT_INT1, OUT1, OUT1))
_ULPS = 4.0 * 2.220446049250313e-16


class Spans(NamedTuple):
    """Rows ``first:stop``, at least one, the first from the offset ``begin`` on, the last up to ``end``."""

    first: Ints
    stop: Ints
    begin: Array
    end: Array

    def take(self, rows: Ints | Flags) -> Spans:
        """Return some of the spans."""
        return Spans._make(column[rows] for column in self)

    @property
    def last(self) -> Ints:
        """Return the last row of each."""
        return self.stop - 1


@device
def _count(table, a, b, at, by_end, slack):
    """Return the first of the rows ``a … b - 1`` that ends, or else starts, later than an instant by more than ``slack``."""
    ref, lo, hi = table
    while a < b:
        middle = (a + b) >> 1
        offset = hi[middle] if by_end else lo[middle]
        if gap(at[0], at[1], ref[middle], offset) > slack:
            b = middle
        else:
            a = middle + 1
    return a


@device
def _is_doubtful(table, row, a, b, at):
    """Test whether an end of a row is near an instant but not equal to it: either may come first."""
    ref, lo, hi = table
    if row < a or row >= b:
        return False
    dust = _ULPS * (abs(at[1]) + max(abs(lo[row]), abs(hi[row])))
    first = abs(gap(at[0], at[1], ref[row], lo[row]))
    last = abs(gap(at[0], at[1], ref[row], hi[row]))
    return dust < first <= GRAIN + dust or dust < last <= GRAIN + dust


@device
def _tolerance(table, a, b, at):
    """Return the rounding of an instant; where an end of a row is near it but not equal, the tolerance of instants, and True."""
    _, lo, hi = table
    row = _count(table, a, b, at, True, 0.0)
    near = min(max(row, a), b - 1)
    dust = _ULPS * (abs(at[1]) + max(abs(lo[near]), abs(hi[near])))
    for other in range(row - 1, row + 2):
        if _is_doubtful(table, other, a, b, at):
            return GRAIN + dust, True
    return dust, False


@kernel(_RANGES, IN_INT1, _WINDOWS, BOOL, _SPANS)
def _spans(table, offsets, windows, outward, out):
    ref, lo, hi = table
    group, begin_ref, begin, end_ref, end = windows
    first, stop, start, until = out
    sign = 1.0 if outward else -1.0
    for i in range(group.shape[0]):
        a, b = offsets[group[i]], offsets[group[i] + 1]
        opens, closes = (begin_ref[i], begin[i]), (end_ref[i], end[i])
        slack, doubted = _tolerance(table, a, b, opens)
        # Rows that end as the window opens are before it, points there are in it; rows that start as it closes are after it.
        p = _count(table, a, b, opens, True, -sign * slack if doubted else slack)
        least = slack if doubted and not outward else -slack
        while p > a and lo[p - 1] == hi[p - 1] and gap(opens[0], opens[1], ref[p - 1], lo[p - 1]) >= least:
            p -= 1
        start[i] = gap(0, 0.0, begin_ref[i] - ref[min(p, b - 1)], begin[i]) - (
            sign * slack if doubted else 0.0
        )
        slack, doubted = _tolerance(table, a, b, closes)
        q = _count(table, a, b, closes, False, sign * slack if doubted else -slack)
        until[i] = gap(0, 0.0, end_ref[i] - ref[max(q - 1, a)], end[i]) + (sign * slack if doubted else 0.0)
        first[i], stop[i] = p, p
        if q > p and gap(opens[0], opens[1], closes[0], closes[1]) > 0.0:
            stop[i] = q
            start[i] = min(max(start[i], lo[p]), hi[p])
            until[i] = max(min(until[i], hi[q - 1]), lo[q - 1])
            if q == p + 1:
                until[i] = max(until[i], start[i])


def spans_of(
    ranges: tuple[Ints, Array, Array],
    offsets: Ints,
    group: Ints,
    opens: tuple[Ints, Array],
    closes: tuple[Ints, Array],
    *,
    outward: bool = True,
) -> Spans:
    """Return the rows that windows ``[opens, closes)`` touch, an empty span where there are none.

    Parameters
    ----------
    ranges : ``(ref, lo, hi)`` of rows, by group in order of time
    offsets : group ``g`` has the rows ``offsets[g]:offsets[g + 1]``
    group : the group of each window
    opens, closes : instants ``(ref, offset)``
    outward : include what may be in the window, since ends of rows are accurate to the tolerance of instants; else leave it out

    >>> rows = np.array([0, 0]), np.array([0.0, 1.0]), np.array([1.0, 3.0])
    >>> at = np.array([500_000, 1_000_000]), np.zeros(2)
    >>> found = spans_of(rows, np.array([0, 2]), np.array([0, 0]), at, (at[0] + 1_000_000, np.zeros(2)))
    >>> found.first.tolist(), found.stop.tolist(), found.begin.tolist(), found.end.tolist()
    ([0, 1], [2, 2], [0.5, 1.0], [1.5, 2.0])
    """
    ref = integers_of(ranges[0], "ref")
    lo, hi = floats_of(len(ref), lo=ranges[1], hi=ranges[2])
    offsets, group = offsets_of(offsets, len(ref)), integers_of(group, "group")
    n = len(group)
    windows = (group, *(np.ascontiguousarray(one) for one in (*opens, *closes)))
    if any(one.shape != (n,) for one in windows):
        raise ValueError(f"opens, closes: expected {n} instants each, one per window")
    if n and not (np.diff(offsets)[group] > 0).all():
        raise ValueError("group: expected windows of groups that have rows")
    out = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n), np.empty(n)
    _spans((ref, lo, hi), offsets, windows, outward, out)
    return Spans(*out)

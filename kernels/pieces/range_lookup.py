"""Locate the rows that overlap time ranges, key by key, and merge ranges (semantics 7.4).

Rows of one key are contiguous, sorted in time and not overlapping, so that starts and ends both ascend. Times are whole
microseconds: starts are rounded down and ends up, so that no row is missed because of a fraction.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN_INT1, IN_INT2, OUT_INT1, OUT_INT2, device, kernel

Ints = npt.NDArray[np.int64]


@device
def _first_above(values, begin, stop, bound):
    """Return the first index in ``begin … stop`` whose value is larger than ``bound``."""
    while begin < stop:
        middle = (begin + stop) >> 1
        if values[middle] > bound:
            stop = middle
        else:
            begin = middle + 1
    return begin


@kernel(IN_INT1, IN_INT1, IN_INT2, IN_INT2, OUT_INT2)
def _locate(starts, ends, spans, ranges, out):
    for i in range(spans.shape[0]):
        first = _first_above(ends, spans[i, 0], spans[i, 1], ranges[i, 0])
        out[i, 0] = first
        out[i, 1] = _first_above(starts, first, spans[i, 1], ranges[i, 1] - 1)


@kernel(IN_INT1, IN_INT1, IN_INT1, OUT_INT1, OUT_INT1)
def _merge(code, start, end, first, stop):
    m = -1
    for i in range(code.shape[0]):
        if m >= 0 and code[i] == code[first[m]] and start[i] <= stop[m]:
            stop[m] = max(stop[m], end[i])
        else:
            m += 1
            first[m], stop[m] = i, end[i]
    return m + 1


def locate(starts: Ints, ends: Ints, spans: Ints, ranges: Ints) -> Ints:
    """Find the rows ``out[i, 0]:out[i, 1]`` among ``spans[i, 0]:spans[i, 1]`` that overlap ``[ranges[i, 0], ranges[i, 1])``.

    O(log n) for each range. A row that is empty after rounding must be given an end past its start. Degenerate: a range
    that no row overlaps gives an empty span at the insertion point.

    >>> rows = np.array([0, 10, 20]), np.array([10, 20, 30])
    >>> locate(*rows, np.array([[0, 3], [0, 3]]), np.array([[5, 15], [30, 40]])).tolist()
    [[0, 2], [3, 3]]
    """
    if spans.shape != ranges.shape or spans.shape[1:] != (2,):
        raise ValueError(
            f"spans, ranges: expected one shape (n, 2), got shapes {spans.shape} and {ranges.shape}"
        )
    if len(spans) and not (spans.min() >= 0 and spans.max() <= min(len(starts), len(ends))):
        raise ValueError(f"spans: expected places in 0..{len(starts)}")
    out = np.empty((len(spans), 2), np.int64)
    _locate(starts, ends, np.ascontiguousarray(spans), np.ascontiguousarray(ranges), out)
    return out


def merge_ranges(code: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Sort ranges ``[start, end)`` by code and time, merge those of one code that overlap or touch, and drop empty ones.

    >>> one = merge_ranges(np.array([1, 0, 1]), np.array([5, 0, 0]), np.array([9, 1, 5]))
    >>> [values.tolist() for values in one]
    [[0, 1], [0, 0], [1, 9]]
    """
    if len(code) == 1 and end[0] > start[0]:
        return code, start, end
    order = np.lexsort((start, code))
    order = order[end[order] > start[order]]
    code, start, end = code[order], start[order], end[order]
    first, stop = np.empty(len(code), np.int64), np.empty(len(code), np.int64)
    m = _merge(code, start, end, first, stop)
    return code[first[:m]], start[first[:m]], stop[:m]

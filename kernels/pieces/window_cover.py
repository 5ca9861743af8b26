"""Find the pieces that windows cover, and the largest of their values: two pointers and a deque, O(n + m).

Results are functions of the closing time, each from ``lo`` to ``hi``. With the window's size, a result depends on the pieces
from ``size`` before its start to its end::

    pieces     [--a--)[--b--)[--c--)[--d--)
    result                      [-----)          closing times of one result
    touched       [------------------)           from size before it: a, b, c and d

Instants are compared within the tolerance (:mod:`pulse.kernels.instants`): a piece that ends where the windows open is not
touched, nor one that starts where they close. A point is touched where they open, and not where they close.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import IN1, IN_INT1, INT, OUT1, OUT_INT1, kernel, step
from pulse.kernels.instants import gap, tolerance

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_PIECES = types.Tuple((IN_INT1, IN1, IN1, IN_INT1))
_FOUND = types.Tuple((OUT_INT1, OUT_INT1, OUT1))


@step
def _is_after(ref_a, a, ref_b, b, as_well):
    """Test whether instant b lies after a, or with ``as_well`` at it."""
    lead, least = gap(ref_a, a, ref_b, b), tolerance(ref_a, a, ref_b, b)
    return lead >= -least if as_well else lead > least


@kernel(_PIECES, IN1, _PIECES, INT, _FOUND)
def _touched(pieces, values, results, size, found):
    ref, lo, hi, offsets = pieces
    made_ref, made_lo, made_hi, made_offsets = results
    first, last, largest = found
    queue = np.empty(values.shape[0], np.int64)  # pieces of one group with descending values
    for g in range(made_offsets.shape[0] - 1):
        begin, end, stop = offsets[g], offsets[g], offsets[g + 1]
        front, back = 0, 0
        for j in range(made_offsets[g], made_offsets[g + 1]):
            opens, closes = made_ref[j] - size, made_ref[j]
            is_point = made_lo[j] == made_hi[j]
            while end < stop and _is_after(ref[end], lo[end], closes, made_hi[j], is_point):
                while back > front and values[queue[back - 1]] <= values[end]:
                    back -= 1
                queue[back] = end
                back += 1
                end += 1
            while begin < stop and not _is_after(
                opens, made_lo[j], ref[begin], hi[begin], lo[begin] == hi[begin]
            ):
                begin += 1
            while front < back and queue[front] < begin:
                front += 1
            first[j], last[j] = begin, end - 1
            largest[j] = values[queue[front]] if front < back else 0.0


def touched(
    pieces: tuple[Integers, Array, Array, Integers],
    values: Array,
    results: tuple[Integers, Array, Array, Integers],
    size_us: int,
) -> tuple[Integers, Integers, Array]:
    """Return ``(first, last, largest)``: the pieces that each result's windows touch, inclusive, and their largest value.

    Both tables are ``(ref, lo, hi, offsets)`` with the same number of groups, each sorted in time; neither the starts nor the
    ends of a group's results descend. A result that touches no piece has ``last < first`` and 0.

    >>> pieces = np.zeros(4, np.int64), np.arange(4.0), np.arange(4.0) + 1, np.array([0, 4])
    >>> results = np.array([2_500_000]), np.array([0.0]), np.array([0.5]), np.array([0, 1])
    >>> touched(pieces, np.array([7.0, 3.0, 5.0, 9.0]), results, 1_500_000)
    (array([1]), array([2]), array([5.]))
    """
    tables = []
    for ref, lo, hi, offsets in (pieces, results):
        ref, offsets = (np.ascontiguousarray(x, dtype=np.int64) for x in (ref, offsets))
        lo, hi = (np.ascontiguousarray(x, dtype=np.float64) for x in (lo, hi))
        if lo.shape != ref.shape or hi.shape != ref.shape or len(offsets) == 0 or offsets[-1] != len(ref):
            raise ValueError(
                f"expected {len(ref)} of lo and hi, one per ref, and offsets up to {len(ref)}, got {lo.shape}, {hi.shape}"
            )
        tables.append((ref, lo, hi, offsets))
    values = np.ascontiguousarray(values, dtype=np.float64)
    if len(tables[0][3]) != len(tables[1][3]) or values.shape != tables[0][0].shape:
        raise ValueError(
            "expected results and pieces to have the same number of groups, and a value per piece"
        )
    m = len(tables[1][0])
    found = np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m)
    _touched(tables[0], values, tables[1], int(size_us), found)
    return found


@kernel(IN1, IN_INT1, IN_INT1, OUT1)
def _largest_of_spans(values, first, last, out):
    queue = np.empty(values.shape[0] + 1, np.int64)  # entries with descending values
    front, back, end = 0, 0, 0
    for j in range(first.shape[0]):
        if first[j] >= end:
            front, back, end = 0, 0, first[j]
        while end <= last[j]:
            while back > front and values[queue[back - 1]] <= values[end]:
                back -= 1
            queue[back] = end
            back += 1
            end += 1
        while front < back and queue[front] < first[j]:
            front += 1
        out[j] = values[queue[front]] if front < back else 0.0


def largest_of_spans(values: Array, first: Integers, last: Integers) -> Array:
    """Return the largest of ``values[first[j]:last[j] + 1]``, for spans whose ends never descend; 0 for an empty span.

    >>> largest_of_spans(np.array([7.0, 3.0, 5.0]), np.array([0, 1]), np.array([1, 2])).tolist()
    [7.0, 5.0]
    """
    first, last = (np.ascontiguousarray(x, dtype=np.int64) for x in (first, last))
    out = np.empty(len(first))
    _largest_of_spans(np.ascontiguousarray(values, dtype=np.float64), first, last, out)
    return out

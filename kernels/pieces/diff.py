"""Diff two lists of pieces to find the runs that a revision changed (semantics 7.4).

Old and new pieces of a stretch are matched by position where their numbers are equal, else from both ends::

    old   a b c d e         old   a b c d            =  the same
    new   a x c y e         new   a x d              -  runs that changed: (b → x), (d → y) and (b c → x)
          = - = - =               = -   =
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import FLOAT, IN1, IN2, IN_INT1, IN_INT2, OUT_INT2, device, kernel
from pulse.kernels.instants import MICROSECONDS, meets

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_PIECES = types.Tuple((IN_INT1, IN1, IN1, IN_INT1))
_VALUES = types.Tuple((IN2, IN_INT1, IN2))


class Runs(NamedTuple):
    """A table of changed runs: in stretch ``of[r]``, pieces ``new[r, 0]:new[r, 1]`` replace ``old[r, 0]:old[r, 1]``.

    ``start`` and ``end`` are whole microseconds, rounded outward, that enclose both.
    """

    of: Ints
    old: Ints
    new: Ints
    start: Ints
    end: Ints


@device
def _same(pieces, values, a, b, least, scratch):
    """Test whether pieces ``a`` and ``b`` have the same range, mark, values and bounds."""
    ref, lo, hi, mark = pieces
    c, cuts, bounds = values
    if mark[a] != mark[b] or (lo[a] == hi[a]) != (lo[b] == hi[b]):
        return False
    if not meets(ref[a], lo[a], ref[b], lo[b]) or not meets(ref[a], hi[a], ref[b], hi[b]):
        return False
    for j in range(bounds.shape[1]):
        x, y = bounds[a, j], bounds[b, j]
        if x != y and not abs(x - y) <= least * (x + y):
            return False
        if math.isinf(x) != math.isinf(y):
            return False
    reach = max(abs(lo[a]), abs(hi[a]))
    by = (ref[a] - ref[b]) / MICROSECONDS
    for attribute in range(cuts.shape[0] - 1):
        first, stop = cuts[attribute], cuts[attribute + 1]
        k = stop - first
        for j in range(k):
            scratch[j] = c[b, first + j]
        if by != 0.0:
            for j in range(k - 1):
                for m in range(k - 2, j - 1, -1):
                    scratch[m] += by * scratch[m + 1]
        distance, size = 0.0, 0.0
        for j in range(k - 1, -1, -1):
            distance = distance * reach + abs(c[a, first + j] - scratch[j])
            size = size * reach + abs(c[a, first + j]) + abs(scratch[j])
        if not distance <= least * size:
            return False
    return True


@device
def _append_run(pieces, old_first, old_stop, new_first, new_stop, stretch, out, m):
    ref, lo, hi, _ = pieces
    start, end = np.int64(1) << 62, -(np.int64(1) << 62)
    for first, stop in ((old_first, old_stop), (new_first, new_stop)):
        if stop > first:
            begin = ref[first] + np.int64(math.floor(lo[first] * MICROSECONDS))
            close = ref[stop - 1] + np.int64(math.ceil(hi[stop - 1] * MICROSECONDS))
            if lo[stop - 1] == hi[stop - 1]:  # a point occupies its microsecond
                close = max(close, ref[stop - 1] + np.int64(math.floor(lo[stop - 1] * MICROSECONDS)) + 1)
            start, end = min(start, begin), max(end, close)
    out[m, 0], out[m, 1], out[m, 2], out[m, 3] = old_first, old_stop, new_first, new_stop
    out[m, 4], out[m, 5], out[m, 6] = start, max(end, start + 1), stretch


@kernel(_PIECES, _VALUES, IN_INT2, IN_INT2, FLOAT, OUT_INT2)
def _diff(pieces, values, old, new, least, out):
    scratch = np.empty(max(values[0].shape[1], 1))
    m = 0
    for s in range(old.shape[0]):
        a, a_stop, b, b_stop = old[s, 0], old[s, 1], new[s, 0], new[s, 1]
        if a_stop - a == b_stop - b:
            run_start = -1
            for i in range(a_stop - a):
                if _same(pieces, values, a + i, b + i, least, scratch):
                    if run_start >= 0:
                        _append_run(pieces, a + run_start, a + i, b + run_start, b + i, s, out, m)
                        m += 1
                    run_start = -1
                elif run_start < 0:
                    run_start = i
            if run_start >= 0:
                _append_run(pieces, a + run_start, a_stop, b + run_start, b_stop, s, out, m)
                m += 1
            continue
        while a < a_stop and b < b_stop and _same(pieces, values, a, b, least, scratch):
            a += 1
            b += 1
        while a < a_stop and b < b_stop and _same(pieces, values, a_stop - 1, b_stop - 1, least, scratch):
            a_stop -= 1
            b_stop -= 1
        _append_run(pieces, a, a_stop, b, b_stop, s, out, m)
        m += 1
    return m


def diff_runs(
    pieces: tuple[Ints, Array, Array, Ints],
    values: tuple[Array, Ints, Array],
    old: Ints,
    new: Ints,
    least: float,
) -> Runs:
    """Return the runs of pieces that differ between ``old[s, 0]:old[s, 1]`` and ``new[s, 0]:new[s, 1]``, for each stretch ``s``.

    ``pieces`` are ref, lo, hi and a mark that must be equal; ``values`` are the coefficients of all attributes side by side
    ``(n, w)``, the first column of each attribute (and ``w``), and bounds ``(n, b)``. Values that differ by less than ``least``,
    relative to the magnitudes they are computed from, are equal; so are bounds, relative to their size.

    >>> zero, c = np.zeros(4, np.int64), np.array([[1.0], [2.0], [1.0], [3.0]])
    >>> pieces = zero, np.array([0.0, 1.0, 0.0, 1.0]), np.array([1.0, 2.0, 1.0, 2.0]), zero
    >>> found = diff_runs(pieces, (c, np.array([0, 1]), np.zeros((4, 0))), np.array([[0, 2]]), np.array([[2, 4]]), 1e-9)
    >>> found.old.tolist(), found.new.tolist(), found.start.tolist()
    ([[1, 2]], [[3, 4]], [1000000])
    """
    if old.shape != new.shape or old.shape[1:] != (2,):
        raise ValueError(f"old, new: expected one shape (S, 2), got {old.shape} and {new.shape}")
    if len(old) and not (min(old.min(), new.min()) >= 0 and max(old.max(), new.max()) <= len(pieces[0])):
        raise ValueError(f"old, new: expected pieces in 0..{len(pieces[0])}")
    out = np.empty((int((old[:, 1] - old[:, 0]).sum()) + len(old), 7), np.int64)
    m = _diff(pieces, values, np.ascontiguousarray(old), np.ascontiguousarray(new), least, out)
    found = out[:m]
    return Runs(
        found[:, 6].copy(), found[:, 0:2].copy(), found[:, 2:4].copy(), found[:, 4].copy(), found[:, 5].copy()
    )

"""Add pairs of piecewise polynomials on their common cells, with bounds, in one pass.

On a cell both polynomials are shifted to the cell's reference, a missing one is zero, and coefficients are added. The bound of
the sum is the sum of both bounds and of the roundings of the two shifts and the addition (:mod:`pulse.kernels.rounding`)::

    (err_a + err_b) GROWN + TERM k (M_a if a was shifted) + TERM k (M_b if b was) + TERM k M_sum

For a shift, ``M`` is taken about the original reference. A rounding term is 0 for constants; a sum of constants adds the exact
error of the addition. A piece without a partner keeps its bound, plus the rounding of its shift.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import IN1, IN2, IN_INT1, IN_INT2, OUT1, OUT2, kernel, step
from pulse.kernels.instants import seconds_between
from pulse.kernels.pieces.align import Cells
from pulse.kernels.polynomial.arithmetic import shift_row
from pulse.kernels.rounding import GROWN, TERM, lost

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_CELLS = types.Tuple((IN_INT1, IN1, IN1, IN_INT2))
_PIECES = types.Tuple((IN_INT1, IN2, IN1))


@step
def _rounding(c, i, k, t):
    """Bound the rounding of forming and evaluating row ``i`` up to ``t`` from its reference; 0 for a constant."""
    value = 0.0
    for j in range(k - 1, 0, -1):
        value = (value + abs(c[i, j])) * t
    return TERM * k * (value + abs(c[i, 0])) if value > 0.0 else 0.0


@kernel(_CELLS, _PIECES, OUT2, OUT1)
def _add_pieces(cells, pieces, out, bound):
    cell_ref, lo, hi, index = cells
    ref, c, err = pieces
    k = c.shape[1]
    other = np.empty((1, k))
    for i in range(cell_ref.shape[0]):
        p, q = index[i, 0], index[i, 1]
        t = max(abs(lo[i]), abs(hi[i]))
        if p < 0 or q < 0:
            p = max(p, q)
            if p < 0:
                out[i, :] = 0.0
                bound[i] = 0.0
                continue
            d = seconds_between(ref[p], cell_ref[i])
            shift_row(c, p, k, d, out, i)
            bound[i] = err[p] + (_rounding(c, p, k, t + abs(d)) if d != 0.0 else 0.0)
            continue
        d, e = seconds_between(ref[p], cell_ref[i]), seconds_between(ref[q], cell_ref[i])
        shift_row(c, p, k, d, out, i)
        shift_row(c, q, k, e, other, 0)
        constant_error = lost(out[i, 0], other[0, 0])
        for j in range(k):
            out[i, j] += other[0, j]
        rounding = _rounding(out, i, k, t)
        if rounding == 0.0:
            rounding = constant_error
        if d != 0.0:
            rounding += _rounding(c, p, k, t + abs(d))
        if e != 0.0:
            rounding += _rounding(c, q, k, t + abs(e))
        bound[i] = (err[p] + err[q]) * GROWN + rounding


def add_pieces(cells: Cells, ref: Integers, c: Array, err: Array) -> tuple[Array, Array]:
    """Return the coefficients ``(m, k)`` of the sums on cells of two functions, and their bounds; zeros where both are missing.

    ``ref``, ``c`` and ``err`` are those of the piece table that ``cells.index`` points into.

    >>> pieces, of_both = np.array([[1.0, 2.0], [0.5, 0.0]]), np.array([[0, 1], [1, -1]])
    >>> cells = Cells(np.array([0, 2]), np.array([0, 0]), np.array([0.0, 1.0]), np.array([1.0, 2.0]), of_both)
    >>> sums, bounds = add_pieces(cells, np.array([0, 0]), pieces, np.array([0.25, 0.5]))
    >>> sums.tolist(), bounds.round(12).tolist()
    ([[1.5, 2.0], [0.5, 0.0]], [0.75, 0.5])
    """
    c = np.ascontiguousarray(c, dtype=np.float64)
    ref, err = np.ascontiguousarray(ref, dtype=np.int64), np.ascontiguousarray(err, dtype=np.float64)
    if ref.shape != (len(c),) or err.shape != (len(c),):
        raise ValueError(
            f"ref, err: expected one per row of coefficients ({len(c)}), got shapes {ref.shape} and {err.shape}"
        )
    index = np.ascontiguousarray(cells.index)
    if index.shape[1] != 2 or (len(index) and index.max() >= len(c)):
        raise ValueError(
            f"cells: expected two functions with piece numbers below {len(c)}, got {index.shape[1]}"
        )
    sums, bound = np.empty((len(index), c.shape[1])), np.empty(len(index))
    _add_pieces((cells.ref, cells.lo, cells.hi, index), (ref, c, err), sums, bound)
    return sums, bound

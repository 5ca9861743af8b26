"""Cut piecewise polynomials where they turn, and find where a monotone envelope follows them: the best value so far.

On a part that is monotone the envelope is the best of all parts before, or the part itself once that exceeds it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels.polynomial.extrema import critical_points
from pulse.kernels.polynomial.roots import real_roots
from pulse.kernels.windows.tuple_window import MAX, aggregate_spans

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def monotone_parts(c: Array, lo: Array, hi: Array) -> tuple[Ints, Array, Array]:
    """Cut rows where they turn; return the row, begin and end of each part.

    >>> monotone_parts(np.array([[0.0, -2.0, 1.0]]), np.zeros(1), np.full(1, 3.0))
    (array([0, 0]), array([0., 1.]), array([1., 3.]))
    """
    n = np.arange(len(c))
    if c.shape[1] < 3 or not len(c):
        return n, lo, hi
    turns = critical_points(c, lo, hi)
    row = np.repeat(n, np.diff(turns.offsets))
    inside = (turns.roots > lo[row]) & (turns.roots < hi[row])
    row, at = row[inside], turns.roots[inside]
    rows, begins = np.concatenate((n, row)), np.concatenate((lo, at))
    order = np.lexsort((begins, rows))
    rows, begins = rows[order], begins[order]
    ends = np.append(begins[1:], 0.0)
    is_last = np.append(rows[1:] != rows[:-1], True)
    return rows, begins, np.where(is_last, hi[rows], ends)


def best_before(values: Array, first: Ints) -> Array:
    """Return the largest of the values from ``first[i]`` up to before ``i``, negative infinity where there is none.

    >>> best_before(np.array([3.0, 1.0, 5.0, 2.0]), np.array([0, 0, 0, 3])).tolist()
    [-inf, 3.0, 3.0, -inf]
    """
    n = np.arange(len(values))
    some = np.flatnonzero(n > first)
    made = np.full(len(values), -np.inf)
    made[some] = aggregate_spans(values, first[some], n[some], MAX)
    return made


def where_reached(c: Array, lo: Array, hi: Array, level: Array, wanted: Flags) -> Array:
    """Return where the wanted rows, which increase, reach a level; the end where rounding hides it, and of all others."""
    rows = np.flatnonzero(wanted)
    made = hi.copy()
    if len(rows):
        shifted = c[rows].copy()
        shifted[:, 0] -= level[rows]
        roots = real_roots(shifted, lo[rows], hi[rows])
        some = np.flatnonzero(np.diff(roots.offsets))
        made[rows[some]] = np.clip(roots.roots[roots.offsets[some]], lo[rows[some]], hi[rows[some]])
    return made

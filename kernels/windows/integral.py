"""Integrate piecewise polynomials over sliding windows (semantics 3.5; Pulse paper, III-B).

A piecewise function is a sequence of pieces ``(ref, lo, hi, c)``, grouped by ``offsets`` (``int64[G + 1]``),
per group sorted in time and without overlaps. A **run** is a stretch of one group without a hole; a gap
within :func:`pulse.kernels.instants.tolerance` is none. The integral over ``[t - w, t)`` as a function of the
closing time ``t`` is one polynomial per cell of the walk in :mod:`pulse.kernels.windows.walk`; this module writes it
out.

Accuracy: every instant is held as whole microseconds and a rest, every polynomial is shifted to where its
part of the window begins, and the sum is a double-double; so the error is a few units in the last place of
``w`` times the largest ``sum(|c[j]| * |t|**j)`` of the pieces touched, whatever the epoch and however long or
short the pieces. Pieces with ``hi <= lo`` (points too) have measure zero and are skipped.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import (
    IN1,
    IN2,
    IN_INT1,
    INT,
    OUT2,
    OUT_INT1,
    OUT_INT2,
    kernel,
)
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.pieces.arguments import offsets_of, table_of
from pulse.kernels.windows.walk import (
    BEGIN,
    BEGIN_REST,
    BLOCK,
    END,
    END_REST,
    FLOATS,
    HEAD,
    RESTS,
    SLACK,
    STATES,
    TAIL,
    WHOLES,
    cell_polynomial,
    next_cells,
    start_walk,
)

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@kernel(IN_INT1, IN1, IN1, IN2, IN_INT1, INT, OUT_INT1, OUT_INT2, OUT2, OUT2)
def _window_integral(ref, lo, hi, c, offsets, size, out_offsets, out_at, out_span, out_c):
    at, x = np.zeros(STATES, np.int64), np.zeros(FLOATS)
    whole, rest = np.empty((BLOCK, WHOLES), np.int64), np.empty((BLOCK, RESTS))
    work = np.empty((4, c.shape[1]))
    m = 0
    out_offsets[0] = 0
    for g in range(offsets.shape[0] - 1):
        start_walk(offsets[g], offsets[g + 1], at)
        cells = next_cells(ref, lo, hi, c, size, at, x, whole, rest)
        while cells > 0:
            for i in range(cells):
                end = (whole[i, END] - whole[i, BEGIN]) + rest[i, END_REST]
                if end - rest[i, BEGIN_REST] > rest[i, SLACK]:
                    cell_polynomial(ref, lo, hi, c, size, whole, rest, i, work, out_c[m])
                    out_at[m, 0] = whole[i, BEGIN]
                    out_at[m, 1], out_at[m, 2] = whole[i, HEAD], whole[i, TAIL]
                    out_span[m, 0], out_span[m, 1] = rest[i, BEGIN_REST] / MICROSECONDS, end / MICROSECONDS
                    m += 1
            cells = next_cells(ref, lo, hi, c, size, at, x, whole, rest)
        out_offsets[g + 1] = m


def window_integral(
    ref: Ints, lo: Array, hi: Array, c: Array, offsets: Ints, size_us: int
) -> tuple[Ints, Ints, Array, Array, Array, Ints, Ints]:
    """Return ``W(t)``, the integral over ``[t - size, t)``, as pieces in the closing time ``t``.

    Returns ``(offsets, ref, lo, hi, c[m, k + 1], head, tail)``. Each piece is written about the whole microsecond
    nearest its own start, which keeps it well conditioned wherever the inputs' references lie. Its lineage is the
    input pieces ``tail … head``. There are pieces only where the whole window lies in one run. A coefficient that is
    not finite makes all pieces that depend on it not finite.

    >>> W = window_integral([0], [0.0], [5.0], [[0.0, 2.0]], [0, 1], 2_000_000)
    >>> W[1], W[3], W[4]
    (array([2000000]), array([3.]), array([[4., 4., 0.]]))
    """
    (ref, lo, hi, c), offsets = table_of(ref, lo, hi, c), offsets_of(offsets, len(ref))
    size = _duration(size_us, "size_us")
    most = 2 * len(ref)  # every cell ends where the head or the tail advances
    out_offsets = np.empty(len(offsets), np.int64)
    at, span, out = np.empty((most, 3), np.int64), np.empty((most, 2)), np.empty((most, c.shape[1] + 1))
    _window_integral(ref, lo, hi, c, offsets, size, out_offsets, at, span, out)
    m = out_offsets[-1]
    begin, head, tail = (at[:m, j].copy() for j in range(3))
    return out_offsets, begin, span[:m, 0].copy(), span[:m, 1].copy(), out[:m].copy(), head, tail


def _duration(microseconds: int, name: str) -> int:
    if int(microseconds) != microseconds or microseconds <= 0:
        raise ValueError(f"{name}: expected a positive whole number of microseconds, got {microseconds!r}")
    return int(microseconds)

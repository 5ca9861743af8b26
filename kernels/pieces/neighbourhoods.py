"""Clip piecewise functions to the neighbourhoods of chosen instants: the parts that a window needs (semantics 3.5).

A window of size ``w`` that contains an instant ``s`` lies in ``[s - w, s + w)``. Chosen ranges of a group grow by ``w`` on
both sides, those that meet are merged into one *run*, and the group's pieces are cut to the runs::

    pieces   [----a----)[----b----)   [----c----)[----d----)
    chosen        ==                                  =
    runs       [--  --)                            [- = -)
    parts      [-a----)                          [c)[-d--)

Instants are compared by their references (:mod:`pulse.kernels.instants`). A cut that would keep or remove less than the
tolerance of a piece is not made.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import FLOAT, IN1, IN2, IN_INT1, OUT1, OUT2, OUT_INT1, device, kernel
from pulse.kernels.instants import GRAIN, gap, seconds_between
from pulse.kernels.pieces.align import Pieces, pieces_of

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_PIECES = types.Tuple((IN_INT1, IN1, IN1))
_CHOSEN = types.Tuple((IN_INT1, IN2))
_RUNS = types.Tuple((OUT_INT1, OUT1, OUT_INT1, OUT1))
_PARTS = types.Tuple((OUT_INT1, OUT2))


class Neighbourhoods(NamedTuple):
    """A table of parts of pieces: ``piece`` ascends, and a part is ``bounds = (lo, hi)`` about its piece's reference."""

    piece: Integers
    bounds: Array


@device
def _runs_of(ref, first, last, chosen, size, runs):
    """Write the runs of pieces ``first:last`` to ``runs = (start's ref, start, stop's ref, stop)`` and return their number."""
    offsets, bounds = chosen
    start_ref, start, stop_ref, stop = runs
    count = 0
    for i in range(first, last):
        for j in range(offsets[i], offsets[i + 1]):
            low, high = bounds[j, 0] - size, bounds[j, 1] + size
            r = count - 1
            if count > 0 and gap(stop_ref[r], stop[r], ref[i], low) <= GRAIN:
                if gap(stop_ref[r], stop[r], ref[i], high) > 0.0:
                    stop_ref[r], stop[r] = ref[i], high
            else:
                start_ref[count], start[count], stop_ref[count], stop[count] = ref[i], low, ref[i], high
                count += 1
    return count


@kernel(_PIECES, IN_INT1, _CHOSEN, FLOAT, _RUNS, _PARTS)
def _around(pieces, offsets, chosen, size, runs, parts):
    ref, lo, hi = pieces
    start_ref, start, stop_ref, stop = runs
    piece, bounds = parts
    m = 0
    for g in range(len(offsets) - 1):
        count = _runs_of(ref, offsets[g], offsets[g + 1], chosen, size, runs)
        r = 0
        for i in range(offsets[g], offsets[g + 1]):
            while r < count and gap(ref[i], lo[i], stop_ref[r], stop[r]) < 0.0:
                r += 1
            at = r
            while at < count:
                low = seconds_between(ref[i], start_ref[at]) + start[at]
                high = seconds_between(ref[i], stop_ref[at]) + stop[at]
                low = lo[i] if low - lo[i] <= GRAIN else low
                high = hi[i] if hi[i] - high <= GRAIN else high
                if low > hi[i]:
                    break
                if high - low > GRAIN or (low == lo[i] and high == hi[i]):
                    piece[m], bounds[m, 0], bounds[m, 1] = i, low, high
                    m += 1
                at += 1
    return m


def around(pieces: Pieces, offsets: Integers, chosen: tuple[Integers, Array], size: float) -> Neighbourhoods:
    """Return the parts of pieces that lie within ``size`` seconds of a chosen range of their group.

    Group ``g`` has the pieces ``offsets[g]:offsets[g + 1]``, sorted in time and not overlapping. ``chosen = (o, b)``: piece ``i``
    has the chosen ranges ``b[o[i]:o[i + 1]]``, (lower, upper) about its reference, ascending; a single instant is allowed. A
    point is kept whole or not at all.

    >>> pieces = Pieces(np.zeros(2, np.int64), np.array([0.0, 5.0]), np.array([5.0, 9.0]))
    >>> around(pieces, np.array([0, 2]), (np.array([0, 1, 1]), np.array([[4.0, 4.5]])), 2.0)
    Neighbourhoods(piece=array([0, 1]), bounds=array([[2. , 5. ],
           [5. , 6.5]]))
    """
    if not 0.0 <= size < np.inf:
        raise ValueError(f"size: expected a finite number of seconds, 0 or more, got {size}")
    pieces = pieces_of(*pieces)
    offsets = np.ascontiguousarray(offsets, np.int64)
    of_piece, bounds = np.ascontiguousarray(chosen[0], np.int64), np.ascontiguousarray(chosen[1], np.float64)
    n, m = len(pieces.ref), len(bounds)
    if len(of_piece) != n + 1 or bounds.shape != (m, 2) or of_piece[0] != 0 or of_piece[-1] != m:
        raise ValueError(
            f"chosen: expected {n + 1} offsets from 0 to {m} and ranges of 2, got {of_piece.shape}, {bounds.shape}"
        )
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != n:
        raise ValueError(f"offsets: expected groups from 0 to {n}, got {offsets}")
    runs = (np.empty(m, np.int64), np.empty(m), np.empty(m, np.int64), np.empty(m))
    # At most one part starts at each piece and one at each run.
    piece, out = np.empty(n + m, np.int64), np.empty((n + m, 2))
    count = _around(tuple(pieces), offsets, (of_piece, bounds), float(size), runs, (piece, out))
    return Neighbourhoods(piece[:count].copy(), out[:count].copy())

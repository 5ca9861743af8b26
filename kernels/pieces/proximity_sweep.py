"""Find the tracks that come near each other: pairs of groups with pieces of a common instant whose boxes lie within reach.

A sweep in time. Each piece has a time range and a bounding box in the plane; at its start, the active pieces of the other side
near it are looked up, and it is active on its own side until it ends::

    time  ----[ a1 )[  a2   )----          at the start of b1, a1 is active; at the start of a2, b1 is
              --[   b1   )---

Active pieces are kept in hashed grids of squares, a few *levels* of different cell sizes. A box belongs to the finest
level whose cells are at least twice its own size, reach included, so that it lies in at most 2 by 2 of them; it is inserted
there, and as a *shadow* at all coarser levels. Two boxes within reach share a point once each has grown by half the reach,
hence a cell at every level. So a box finds larger ones at their own levels, and smaller ones as shadows at its own
level: no box is inserted into, or searched in, many cells, whatever the mixture of sizes.

The levels are quantiles of the boxes' sizes. A hash collision only costs a comparison of boxes. The result may contain
extra pairs: time ranges and boxes grow by the rounding of the numbers they are computed from.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import FLOAT, IN1, IN2, IN_INT1, INT, OUT_INT1, OUT_INT2, kernel, step
from pulse.kernels.instants import GRAIN

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_FARTHEST = 1e300  # positions are clamped to this, which separates no pair
_QUANTILES = (0.5, 0.9, 0.99, 1.0)
# A cell is at least this fraction of the farthest position: quotients of the two round to far less than a cell.
_FINEST = 2.0**-46
_PAD = 2.0**-50
_ROOM = 1 << 18  # pairs collected before duplicates are removed
_RECENT = 1 << 14

_PIECES = types.Tuple((IN2, IN_INT1, IN_INT1, IN_INT1))
_ACTIVE = types.Tuple((OUT_INT1, OUT_INT2, OUT_INT1, OUT_INT1, OUT_INT1))
_FOUND = types.Tuple((OUT_INT1, OUT_INT1))


class Tracks(NamedTuple):
    """A table of pieces on ``[ref + lo, ref + hi)`` in ``box = (x0, x1, y0, y1)``, grouped by ``offsets``."""

    ref: Integers
    lo: Array
    hi: Array
    offsets: Integers
    box: Array  # (n, 4)


@step
def _cell_range(low, high, grow, size):
    """Return the first and last cell of an interval grown by ``grow`` on both sides: one or two cells."""
    grow += _PAD * max(abs(low), abs(high))
    return math.floor((low - grow) / size), math.floor((high + grow) / size)


@step
def _bucket(level, ix, iy, buckets):
    h = (ix * 73856093) ^ (iy * 19349663) ^ (level * 83492791)
    h ^= h >> 17
    return (h ^ (h >> 7)) & (buckets - 1)


@step
def _within(box, a, b, reach):
    """Test whether the distance of two boxes is at most ``reach``, up to rounding."""
    dx = max(0.0, max(box[a, 0] - box[b, 1], box[b, 0] - box[a, 1]))
    dy = max(0.0, max(box[a, 2] - box[b, 3], box[b, 2] - box[a, 3]))
    if dx > reach or dy > reach:
        return False
    return dx * dx + dy * dy <= reach * reach * (1.0 + 8 * _PAD)


@step
def _seek_and_enter(p, pieces, sizes, reach, sides, slot, active, found, count, groups):
    """Add the pairs of ``p`` with active pieces of the other side, insert it into ``slot``, and return the new count.

    Cells' lists are doubly linked; the first entry's back link is ``-1 - head``. A recently found pair is skipped: two tracks
    that stay close produce the same pair repeatedly.
    """
    box, level, side, group = pieces
    heads, links, used, _, _ = active
    codes, recent = found
    buckets = len(heads) // 4
    own = side[p]
    other = 1 - own if sides == 2 else 0
    entry = first = slot * 4 * len(sizes)
    for at in range(level[p], len(sizes)):
        x0, x1 = _cell_range(box[p, 0], box[p, 1], 0.5 * reach, sizes[at])
        y0, y1 = _cell_range(box[p, 2], box[p, 3], 0.5 * reach, sizes[at])
        at_home = at == level[p]
        for ix in range(x0, x1 + 1):
            for iy in range(y0, y1 + 1):
                bucket = _bucket(at, ix, iy, buckets)
                for shadow in range(2 if at_home else 1):
                    met = heads[(2 * other + shadow) * buckets + bucket]
                    while met >= 0:
                        q, after = links[met, 2], links[met, 0]
                        # Without a second side `p` itself is active in the cells that already contain it.
                        if q != p and _within(box, p, q, reach):
                            a, b = (p, q) if own == 0 else (q, p)
                            code = group[a] * groups + group[b]
                            place = (code ^ (code >> 14)) & (_RECENT - 1)
                            if recent[place] != code:
                                recent[place] = code
                                codes[count] = code
                                count += 1
                        met = after
                head = (2 * own + (0 if at_home else 1)) * buckets + bucket
                links[entry, 0], links[entry, 1], links[entry, 2] = heads[head], -1 - head, p
                if heads[head] >= 0:
                    links[heads[head], 1] = entry
                heads[head] = entry
                entry += 1
    used[slot] = entry - first
    return count


@step
def _leave(slot, sizes, active):
    """Remove the piece in ``slot`` from its lists."""
    heads, links, used, _, _ = active
    first = slot * 4 * len(sizes)
    for entry in range(first, first + used[slot]):
        after, before = links[entry, 0], links[entry, 1]
        if before >= 0:
            links[before, 0] = after
        else:
            heads[-1 - before] = after
        if after >= 0:
            links[after, 1] = before


@kernel(_PIECES, IN_INT1, IN1, FLOAT, INT, INT, _ACTIVE, _FOUND, OUT_INT1)
def _sweep(pieces, events, sizes, reach, sides, groups, active, found, state):
    """Process events (``p``: piece ``p`` begins, ``~p``: it ends) until they or the room for pairs run out.

    ``state`` is (next event, pairs found, free slots), so that the next call resumes.
    """
    free, slot_of = active[3], active[4]
    at, count, idle = state[0], state[1], state[2]
    # Two pieces share at most four cells of a level, each as itself or as a shadow.
    most = 4 * (len(sizes) + 1) * len(free)
    while at < len(events) and count + most <= len(found[0]):
        p = events[at]
        at += 1
        if p >= 0:
            idle -= 1
            slot_of[p] = free[idle]
            count = _seek_and_enter(p, pieces, sizes, reach, sides, free[idle], active, found, count, groups)
        else:
            slot = slot_of[~p]
            _leave(slot, sizes, active)
            free[idle] = slot
            idle += 1
    state[0], state[1], state[2] = at, count, idle


def near_pairs(left: Tracks, right: Tracks | None, reach: float) -> Integers:
    """Return the pairs ``(i, j)`` of groups of ``left`` and ``right`` whose boxes at a common instant are within ``reach``.

    Shape ``(P, 2)``, distinct, ascending. With ``right`` None, ``left`` is paired with itself: both (i, j) and (j, i), and (i, i)
    for each group that has a piece. Boxes are closed, and so are time ranges here: later steps decide at the ends. Degenerate:
    points and boxes of zero extent are allowed; without pieces there are no pairs.

    >>> track = Tracks(np.zeros(2, np.int64), np.zeros(2), np.ones(2), np.arange(3), np.array([[0, 1, 0, 1], [3, 4, 0, 1.0]]))
    >>> near_pairs(track, None, 2.0).tolist(), near_pairs(track, None, 1.9).tolist()
    ([[0, 0], [0, 1], [1, 0], [1, 1]], [[0, 0], [1, 1]])
    """
    if not 0.0 <= reach < math.inf:
        raise ValueError(f"reach: expected a finite number, 0 or more, got {reach}")
    tracks = [_checked(left)] if right is None else [_checked(left), _checked(right)]
    if any(len(one.ref) == 0 for one in tracks):
        return np.empty((0, 2), np.int64)
    reach = min(float(reach), 4.0 * _FARTHEST)
    groups = len(tracks[-1].offsets) - 1
    events, most = _events(tracks)
    box = np.concatenate([one.box for one in tracks]).clip(-_FARTHEST, _FARTHEST)
    level, sizes = _levels(box, reach)
    side = np.repeat(np.arange(len(tracks)), [len(one.ref) for one in tracks])
    group = np.concatenate(
        [np.repeat(np.arange(len(one.offsets) - 1), np.diff(one.offsets)) for one in tracks]
    )
    active = _empty_lists(most, len(sizes), len(box))
    codes = np.empty(_ROOM + 4 * (len(sizes) + 1) * most, np.int64)
    recent = np.full(_RECENT, -1, np.int64)
    state = np.array([0, 0, most])
    while True:
        _sweep(
            (box, level, side, group),
            events,
            sizes,
            reach,
            len(tracks),
            groups,
            active,
            (codes, recent),
            state,
        )
        distinct = np.unique(codes[: state[1]])
        if state[0] == len(events):
            break
        if len(distinct) > _ROOM // 2:
            codes = np.concatenate((codes, np.empty_like(codes)))
        codes[: len(distinct)] = distinct
        state[1] = len(distinct)
    pairs = np.stack(np.divmod(distinct, groups), axis=1)
    return pairs if right is not None else _both_ways(pairs, groups, left)


def _both_ways(pairs: Integers, groups: int, track: Tracks) -> Integers:
    own = np.flatnonzero(np.diff(track.offsets))
    a, b = np.concatenate((pairs, pairs[:, ::-1], np.stack((own, own), axis=1))).T
    return np.stack(np.divmod(np.unique(a * groups + b), groups), axis=1)


def _events(tracks: list[Tracks]) -> tuple[Integers, int]:
    """Return starts and ends in order of time, starts first, and the largest number of active pieces."""
    base = min(int(one.ref.min()) for one in tracks)
    begin, end = [], []
    for one in tracks:
        since = (one.ref - base) / 1e6
        slack = GRAIN + 2.0**-48 * (since + np.maximum(np.abs(one.lo), np.abs(one.hi)))
        begin.append(since + one.lo - slack)
        end.append(since + one.hi + slack)
    order = np.argsort(np.concatenate(begin + end))  # slack separates a piece's start from its end
    n = len(order) // 2
    starts = order < n
    return np.where(starts, order, ~(order - n)), int(np.cumsum(np.where(starts, 1, -1)).max())


def _levels(box: Array, reach: float) -> tuple[Integers, Array]:
    """Return the level of each box, and the levels' cell sizes: powers of two."""
    extent = np.maximum(box[:, 1] - box[:, 0], box[:, 3] - box[:, 2])
    farthest = max(float(np.abs(box).max()), reach)
    least = np.maximum(2.0 * (extent + reach), max(_FINEST * farthest, 1e-300))
    exponent = np.frexp(least)[1]
    chosen = np.unique(np.quantile(exponent, _QUANTILES, method="higher"))
    return np.searchsorted(chosen, exponent).astype(np.int64), np.ldexp(1.0, chosen)


def _empty_lists(most: int, levels: int, pieces: int) -> tuple[Integers, ...]:
    """Allocate empty lists of active pieces: heads, links (next, before, piece), used, free, slot_of."""
    buckets = 1 << max(4, int(2 * most - 1).bit_length())
    return (
        np.full(4 * buckets, -1, np.int64),
        np.empty((most * 4 * levels, 3), np.int64),
        np.zeros(most, np.int64),
        np.arange(most),
        np.zeros(pieces, np.int64),
    )


def _checked(tracks: Tracks) -> Tracks:
    ref = np.ascontiguousarray(tracks.ref, np.int64)
    lo, hi = np.ascontiguousarray(tracks.lo, np.float64), np.ascontiguousarray(tracks.hi, np.float64)
    offsets, box = np.asarray(tracks.offsets, np.int64), np.ascontiguousarray(tracks.box, np.float64)
    n = len(ref)
    if lo.shape != (n,) or hi.shape != (n,) or box.shape != (n, 4):
        raise ValueError(
            f"tracks: expected {n} ranges and boxes of 4, got {lo.shape}, {hi.shape}, {box.shape}"
        )
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != n or (np.diff(offsets) < 0).any():
        raise ValueError(f"tracks: expected offsets from 0 to {n}, got {offsets}")
    if not (np.isfinite(lo).all() and np.isfinite(hi).all() and (lo <= hi).all()):
        raise ValueError("tracks: expected finite lo <= hi")
    good = np.isfinite(box).all(axis=1) & (box[:, 0] <= box[:, 1]) & (box[:, 2] <= box[:, 3])
    if not good.all():
        i = int((~good).argmax())
        raise ValueError(f"box: expected finite x0 <= x1, y0 <= y1, got {box[i].tolist()} in piece {i}")
    return Tracks(ref, lo, hi, offsets, box)

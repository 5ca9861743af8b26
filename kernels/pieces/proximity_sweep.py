"""Which tracks come near each other: pairs of groups with pieces of a common instant whose boxes lie within reach.

A sweep in time. Each piece has a time range and a bounding box in the plane; where it begins, the pieces of the other side
that are under way near it are looked up, and it joins those of its own side until it ends::

    time  ----[ a1 )[  a2   )----          at the start of b1: a1 is under way; at that of a2: b1 is
              --[   b1   )---

Those under way are kept in hashed grids of squares, a few *levels* of different cell sizes. A box belongs to the finest
level whose cells are twice its own size or more, reach included, so that it lies in at most 2 by 2 of them; it is entered
there, and as a *shadow* at all coarser levels. Two boxes within reach share a point once each has grown by half the reach,
hence a cell at every level. So a box finds larger ones where they belong, and smaller ones as shadows at its own
level: nothing is ever entered into, or sought in, many cells, whatever the mixture of sizes.

The levels are quantiles of the boxes' sizes. Hash collisions cost a comparison of boxes, nothing else. What is found
errs on the side of more: time ranges and boxes grow by the rounding of what they were computed from.
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

_FARTHEST = 1e300  # positions beyond count as this far, which brings none apart
_QUANTILES = (0.5, 0.9, 0.99, 1.0)
# A cell is no smaller than this part of the farthest position: quotients of the two round to far less than a cell.
_FINEST = 2.0**-46
_PAD = 2.0**-50
_ROOM = 1 << 18  # pairs that are gathered before duplicates are removed
_RECENT = 1 << 14

_PIECES = types.Tuple((IN2, IN_INT1, IN_INT1, IN_INT1))
_ACTIVE = types.Tuple((OUT_INT1, OUT_INT2, OUT_INT1, OUT_INT1, OUT_INT1))
_FOUND = types.Tuple((OUT_INT1, OUT_INT1))


class Tracks(NamedTuple):
    """Group ``g`` has the pieces ``offsets[g]:offsets[g + 1]``, on ``[ref + lo, ref + hi)``, in ``box = (x0, x1, y0, y1)``."""

    ref: Integers
    lo: Array
    hi: Array
    offsets: Integers
    box: Array  # (n, 4)


@step
def _cell_range(low, high, grow, size):
    """First and last cell of an interval that has grown on both sides: one or two cells."""
    grow += _PAD * max(abs(low), abs(high))
    return math.floor((low - grow) / size), math.floor((high + grow) / size)


@step
def _bucket(level, ix, iy, buckets):
    h = (ix * 73856093) ^ (iy * 19349663) ^ (level * 83492791)
    h ^= h >> 17
    return (h ^ (h >> 7)) & (buckets - 1)


@step
def _within(box, a, b, reach):
    """Whether the distance of two boxes is at most ``reach``, give or take rounding."""
    dx = max(0.0, max(box[a, 0] - box[b, 1], box[b, 0] - box[a, 1]))
    dy = max(0.0, max(box[a, 2] - box[b, 3], box[b, 2] - box[a, 3]))
    if dx > reach or dy > reach:
        return False
    return dx * dx + dy * dy <= reach * reach * (1.0 + 8 * _PAD)


@step
def _seek_and_enter(p, pieces, sizes, reach, sides, slot, active, found, count, groups):
    """Add the pairs of ``p`` with what is under way on the other side, and put it into ``slot``; returns the new count.

    Cells' lists are doubly linked, the first entry's link back is ``-1 - head``. A pair met lately is skipped: pieces of two
    tracks that stay together meet again and again.
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
                        # Without a second side `p` itself is under way in the cells that it has entered already.
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
    """Take the piece in ``slot`` out of its lists."""
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
    """Go through events (``p``: piece ``p`` begins, ``~p``: it ends) until they or the room for pairs run out.

    ``state`` is (next event, pairs found, free slots), so that the next call goes on.
    """
    free, slot_of = active[3], active[4]
    at, count, idle = state[0], state[1], state[2]
    # One piece meets each other at most in four cells of a level, as itself or as a shadow.
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
    """Pairs ``(i, j)`` of groups of ``left`` and ``right`` that at a common instant have boxes at most ``reach`` apart.

    Shape ``(P, 2)``, distinct, ascending. ``right`` None: of ``left`` with itself, both ways round and each group that has
    a piece with itself. Boxes are closed, and so are time ranges here: what follows decides at the ends. Degenerate: points
    and empty boxes' extents of 0 are as good as any; without pieces there are no pairs.

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
    active = _nobody(most, len(sizes), len(box))
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
    """Starts and ends in order of time, starts first, and how many pieces are under way at most."""
    base = min(int(one.ref.min()) for one in tracks)
    begin, end = [], []
    for one in tracks:
        since = (one.ref - base) / 1e6
        slack = GRAIN + 2.0**-48 * (since + np.maximum(np.abs(one.lo), np.abs(one.hi)))
        begin.append(since + one.lo - slack)
        end.append(since + one.hi + slack)
    order = np.argsort(np.concatenate(begin + end))  # none begins and ends at once: slack is between
    n = len(order) // 2
    starts = order < n
    return np.where(starts, order, ~(order - n)), int(np.cumsum(np.where(starts, 1, -1)).max())


def _levels(box: Array, reach: float) -> tuple[Integers, Array]:
    """The level of each box, and the levels' cell sizes: powers of two."""
    extent = np.maximum(box[:, 1] - box[:, 0], box[:, 3] - box[:, 2])
    farthest = max(float(np.abs(box).max()), reach)
    least = np.maximum(2.0 * (extent + reach), max(_FINEST * farthest, 1e-300))
    exponent = np.frexp(least)[1]
    chosen = np.unique(np.quantile(exponent, _QUANTILES, method="higher"))
    return np.searchsorted(chosen, exponent).astype(np.int64), np.ldexp(1.0, chosen)


def _nobody(most: int, levels: int, pieces: int) -> tuple[Integers, ...]:
    """The lists of those under way, empty: heads, links (next, before, piece), used, free, slot_of."""
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

"""Merge consecutive pieces of a track into hulls: a coarser track that rules out distant pairs early.

A hull spans the time from its first piece's start to its last piece's end, and its box encloses theirs. If two pieces come near
each other, so do their hulls; so a search for near pieces first searches the far fewer hulls, then only the pieces of near hulls.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN1, IN2, IN_INT1, IN_INT2, OUT1, OUT2, kernel
from pulse.kernels.instants import seconds_between
from pulse.kernels.pieces.proximity_sweep import Tracks

Integers = npt.NDArray[np.int64]


@kernel(IN_INT1, IN1, IN2, IN_INT2, OUT1, OUT2)
def _surround(ref, hi, box, spans, end, hulls):
    for s in range(spans.shape[0]):
        first = spans[s, 0]
        latest = hi[first]
        x0, x1, y0, y1 = box[first, 0], box[first, 1], box[first, 2], box[first, 3]
        for p in range(first + 1, spans[s, 1]):
            latest = max(latest, seconds_between(ref[first], ref[p]) + hi[p])
            x0, x1 = min(x0, box[p, 0]), max(x1, box[p, 1])
            y0, y1 = min(y0, box[p, 2]), max(y1, box[p, 3])
        end[s] = latest
        hulls[s, 0], hulls[s, 1], hulls[s, 2], hulls[s, 3] = x0, x1, y0, y1


def hulls(tracks: Tracks, size: int) -> tuple[Tracks, Integers, Integers]:
    """Return ``(hulls, spans, group)``: each run of ``size`` pieces of a group as one hull, every hull a group of its own.

    ``spans`` has shape ``(h, 2)``: hull ``i`` has the pieces ``spans[i, 0]:spans[i, 1]`` of ``group[i]``. The last hull of a
    group has the remaining pieces. Groups without pieces have no hulls.

    >>> box = np.array([[0.0, 1.0, 0.0, 0.0], [1.0, 2.0, 0.0, 0.0], [2.0, 3.0, 5.0, 5.0]])
    >>> made, spans, group = hulls(Tracks(np.zeros(3, np.int64), np.arange(3.0), np.arange(3.0) + 1, np.array([0, 3]), box), 2)
    >>> spans.tolist(), made.hi.tolist(), made.box.tolist()
    ([[0, 2], [2, 3]], [2.0, 3.0], [[0.0, 2.0, 0.0, 0.0], [2.0, 3.0, 5.0, 5.0]])
    """
    if size < 1:
        raise ValueError(f"size: expected a number of pieces, 1 or more, got {size}")
    ref = np.ascontiguousarray(tracks.ref, np.int64)
    lo, hi, box = (np.ascontiguousarray(x, np.float64) for x in (tracks.lo, tracks.hi, tracks.box))
    offsets = np.asarray(tracks.offsets, np.int64)
    if (
        lo.shape != ref.shape
        or hi.shape != ref.shape
        or box.shape != (len(ref), 4)
        or offsets[-1] != len(ref)
    ):
        raise ValueError(
            f"tracks: expected {len(ref)} ranges and boxes, got {lo.shape}, {hi.shape}, {box.shape}"
        )
    counts = -(-np.diff(offsets) // size)
    group = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = offsets[group] + size * place
    spans = np.stack((begin, np.minimum(begin + size, offsets[group + 1])), axis=1)
    end, boxes = np.empty(len(spans)), np.empty((len(spans), 4))
    _surround(ref, hi, box, spans, end, boxes)
    return Tracks(ref[begin], lo[begin], end, np.arange(len(spans) + 1), boxes), spans, group

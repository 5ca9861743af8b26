"""PyMEOS on the tuples: who is near whom, in continuous time, as MobilityDB's library finds it.

Reports become sequences of positions with straight lines between them, ``tdwithin`` of two gives the times at which they are
within reach, to the microsecond, and ``whenTrue`` those as ranges: the answer is exact, and of the same form as Pulse's segments.
What keeps pairs apart beforehand is a tree over the boxes of pieces, since boxes of whole voyages overlap everywhere: shapely's,
which PyMEOS brings along and which answers for all pieces at once; MEOS's own took ten times as long. Only true parts are
asked for (``tdwithin`` with ``atvalue``), which spares MEOS the others. It works in one thread: it keeps its state per process.

Of the other questions it can say none as they are meant: a distance over time is straight lines to it where it is a root, so
averages of it (following) have no known error, and there is nothing that slides a window over instants of many keys at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymeos_cffi as meos
import shapely

from pulse.benchmarks.peers.questions import SECOND, Near
from pulse.core.arrays import FloatArray, IntArray

_ITS_EPOCH = 946_684_800 * SECOND  # 2000-01-01, after ours
_PIECE = 16  # reports: the best found between 8 and all


class Meos:
    """``vessels`` is a Parquet file; its reports are made sequences beforehand, with a hole where one is silent too long."""

    def __init__(self, *, vessels: Path, max_gap: int = Near.max_gap, piece: int = _PIECE) -> None:
        meos.meos_initialize("UTC")
        x, y, t, ids, begin, end = _reports(vessels, max_gap * SECOND, piece)
        self._ids, self._pieces = ids[begin], _sequences(x, y, t, begin, end)
        self._from, self._to = t[begin], t[end - 1]
        (left, right), (below, above) = (_extremes(values, begin, end) for values in (x, y))
        self._box = left, below, right, above
        self._tree = shapely.STRtree(shapely.box(*self._box))

    def near(self, asked: Near) -> pa.Table:
        """Columns id1, id2, begin, end (microseconds): ranges within reach, both ways round."""
        found: list[tuple[int, int, int, int]] = []
        for i, j in self.candidates(asked.reach).tolist():
            within = meos.tdwithin_tgeo_tgeo(self._pieces[i], self._pieces[j], asked.reach, True, True)
            if within is None:
                continue
            spans = meos.tbool_when_true(within)
            ranges = meos.spanset_spanarr(spans)
            spans = [ranges[n] for n in range(meos.spanset_num_spans(spans))]
            found += [(i, j, meos.tstzspan_lower(one), meos.tstzspan_upper(one)) for one in spans]
        made = np.array(found, np.int64).reshape(-1, 4)
        return _joined(self._ids[made[:, :2]], made[:, 2], made[:, 3])

    def candidates(self, reach: float) -> IntArray:
        """Pieces of different vessels whose boxes and times come that near, ``(pairs, 2)``, each pair once."""
        left, below, right, above = self._box
        i, j = self._tree.query(shapely.box(left - reach, below - reach, right + reach, above + reach))
        kept = (i < j) & (self._ids[i] != self._ids[j])
        kept &= (self._from[i] < self._to[j]) & (self._from[j] < self._to[i])
        return np.stack((i[kept], j[kept]), axis=1)


def _reports(file: Path, gap: int, piece: int) -> tuple[Any, ...]:
    """Columns x, y, t, id by id and time, and the rows at which pieces of at most ``piece`` lines begin and end.

    A line longer than ``gap``, or of no length, is none; a piece begins with the report that the one before it ends with.
    """
    table = pq.read_table(file, columns=["id", "t", "x", "y"])
    order = np.argsort(table.column("id").to_numpy(), kind="stable")
    t = table.column("t").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()[order] - _ITS_EPOCH
    ids, x, y = (table.column(name).to_numpy()[order] for name in ("id", "x", "y"))
    ends = np.flatnonzero((np.diff(ids) != 0) | (np.diff(t) <= 0) | (np.diff(t) > gap))
    runs = zip(np.append(0, ends + 1).tolist(), np.append(ends, len(t) - 1).tolist(), strict=True)
    rows = [(a, min(a + piece, last) + 1) for begin, last in runs for a in range(begin, last, piece)]
    begin, end = np.array(rows, np.int64).reshape(-1, 2).T
    return x, y, t, ids, begin, end


def _sequences(x: FloatArray, y: FloatArray, t: IntArray, begin: IntArray, end: IntArray) -> list[Any]:
    linear, whole = meos.InterpolationType.LINEAR, (0, False, True, True)
    return [
        meos.tpointseq_make_coords(
            x[a:].ctypes.data, y[a:].ctypes.data, 0, t[a:].ctypes.data, b - a, *whole, linear, False
        )
        for a, b in zip(begin.tolist(), end.tolist(), strict=True)
    ]


def _extremes(values: FloatArray, begin: IntArray, end: IntArray) -> tuple[FloatArray, FloatArray]:
    """Least and greatest of each piece. Pieces share ends, so they are not simply one after the other."""
    rows = np.stack((begin, end), axis=1).ravel()
    padded = np.append(values, values[-1:])
    return np.minimum.reduceat(padded, rows)[::2], np.maximum.reduceat(padded, rows)[::2]


def _joined(pairs: IntArray, begin: IntArray, end: IntArray) -> pa.Table:
    """Ranges of a pair that meet, as they do where pieces end, are one."""
    pairs = np.sort(pairs, axis=1)
    order = np.lexsort((begin, pairs[:, 1], pairs[:, 0]))
    pairs, begin, end = pairs[order], begin[order], end[order]
    goes_on = (np.diff(pairs, axis=0) == 0).all(axis=1) & (begin[1:] <= end[:-1])
    first = np.flatnonzero(np.append(True, ~goes_on)[: len(pairs)])
    last = np.append(first[1:] - 1, len(pairs) - 1)[: len(first)]
    a, b = pairs[first].T
    begin, end = begin[first] + _ITS_EPOCH, end[last] + _ITS_EPOCH
    both = np.concatenate([a, b]), np.concatenate([b, a]), np.tile(begin, 2), np.tile(end, 2)
    return pa.table(dict(zip(("id1", "id2", "begin", "end"), both, strict=True)))

"""Cut the rows of a relation by the periods of a calendar."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.calendar import Periods
from pulse.core.instants import split, tolerances
from pulse.operators.data.relation import Relation


class Spans(NamedTuple):
    """Rows cut by periods, in the order of rows, and where those of each key and period begin, with the closing time."""

    row: IntArray
    lo: FloatArray
    hi: FloatArray
    start: IntArray
    group: IntArray
    close: IntArray

    def only(self, kept: BoolArray) -> Spans:
        """Return some of the cut rows, at least one of each key and period."""
        start: IntArray = (np.cumsum(kept) - kept)[self.start]
        return Spans(self.row[kept], self.lo[kept], self.hi[kept], start, self.group, self.close)

    @property
    def last(self) -> IntArray:
        """Return the last cut row of each key and period."""
        last: IntArray = np.append(self.start[1:], len(self.row))[: len(self.start)] - 1
        return last

    @property
    def first_of_row(self) -> IntArray:
        """Return for each cut row the first one of its key and period."""
        return np.repeat(self.start, self.last - self.start + 1)


def spans_by(rows: Relation, periods: Periods) -> Spans:
    """Cut rows by the periods.

    Args:
        rows: The rows, of any keys.
        periods: The periods; parts of rows outside of all of them are left out.
    """
    none = np.zeros(0, np.int64)
    if not len(rows):
        return Spans(none, np.zeros(0), np.zeros(0), none, none, none)
    begin, end = split(rows.ref, rows.lo)[0], split(rows.ref, rows.hi)[0]
    bounds = periods.whole(int(begin.min()), int(end.max()))
    # A row may end a fraction of a microsecond after it: only what has a length, or is a point in [open, close), stays. What is
    # cut to no more than the tolerance of instants belongs to the other side: ends that were computed meet openings within it.
    first = np.searchsorted(bounds[:, 1], begin, side="right")
    count = np.maximum(np.searchsorted(bounds[:, 0], end, side="right") - first, 0)
    offsets = np.concatenate(([0], np.cumsum(count)))
    row = np.repeat(np.arange(len(rows)), count)
    period = np.arange(offsets[-1]) - offsets[row] + first[row]
    opens, closes = ((bounds[period, i] - rows.ref[row]) / 1e6 for i in (0, 1))
    lo, hi = np.maximum(rows.lo[row], opens), np.minimum(rows.hi[row], closes)
    least = np.minimum(
        tolerances(rows.ref[row], rows.lo[row], rows.ref[row], rows.hi[row]), rows.hi[row] - rows.lo[row]
    )
    long = (hi - lo > least) | ((lo < hi) & (lo == rows.lo[row]) & (hi == rows.hi[row]))
    some = np.flatnonzero(long | (rows.is_point[row] & (lo == hi) & (lo < closes)))
    row, period, lo, hi = row[some], period[some], lo[some], hi[some]
    group = rows.group[row]
    starts = np.ones(len(row), bool)
    starts[1:] = (group[1:] != group[:-1]) | (period[1:] != period[:-1])
    start = np.flatnonzero(starts)
    return Spans(row, lo, hi, start, group[start], bounds[period[start], 1])

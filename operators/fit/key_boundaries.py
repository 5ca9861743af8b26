"""Record what a fitter observes at both ends of each key, so that neighbouring work units can be stitched.

Each observation is a point segment in a part of its own:

========== =======================================================================================
FIRST      the first tuple
LAST       the newest tuple if no hole follows; drift is the signed difference of the integrals, err their weight, of a
           flow how much its total errs
LAST_APART the newest instant observed, if a hole follows the newest tuple, which lies at its ``lo``
TOUCHING   as LAST_APART, where the hole has no length yet: the truth is known up to that instant; drift as for LAST
HOLE       the first instant before FIRST at which a non-finite value made a hole; the newest such instant at its ``lo``
SECOND     the start of the second hole-free run: integrals restart there (semantics 1.5)
========== =======================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.schema import Truth
from pulse.core.segment.batch import SegmentBatch
from pulse.kernels.fit.greedy_lines import POINT_SEGMENT, SEGMENT, Fitted
from pulse.kernels.fit.truth_intervals import (
    NO_TIME,
    NOT_A_NUMBER,
    OPEN_RUN,
    POINT,
    RUN,
    SUPERSEDED,
    USED,
    Intervals,
)
from pulse.operators.fit.spec import FitSpec

SEGMENTS, FIRST, LAST, LAST_APART, HOLE, SECOND, TOUCHING = range(7)
_TIMES = ("_first_time", "_last_time", "_hole_time", "_second_time", "_newest", "_until")
_VALUES = ("_first_value", "_last_value", "_delta", "_slack")


class KeyEnds:
    """The ends of all keys: arrays by key id, and one row per key with its key columns and newest unmodelled attributes."""

    _first_time: Any
    _last_time: Any
    _hole_time: Any
    _second_time: Any
    _newest: Any
    _until: Any
    _first_value: Any
    _last_value: Any
    _delta: Any
    _slack: Any

    def __init__(self, spec: FitSpec) -> None:
        self._spec = spec
        for name in _TIMES:
            setattr(self, name, np.empty(0, dtype=np.int64))
        for name in _VALUES:
            setattr(self, name, np.empty((0, len(spec.schema.modelled))))
        self._row = np.empty(0, dtype=np.int64)  # into _rows; -1: nothing observed
        self._seen = np.empty(0, dtype=bool)  # a tuple, not only holes
        self._open = np.empty(0, dtype=bool)  # no hole follows the newest tuple
        self._lines = any(truth is Truth.LINEAR for _, truth in spec.schema.modelled)
        self._runs = np.empty(0, dtype=np.int64)  # begun so far
        self._rows: pa.Table | None = None

    def observe(
        self,
        table: pa.Table,
        rows: Any,
        t: Any,
        v: Any,
        found: Intervals,
        offsets: Any,
        ids: Any,
        newest: Any,
        slack: Any = None,
    ) -> None:
        """Record a pass: ``t`` and ``v`` are grouped by key, ``rows`` are their row numbers in ``table``.

        ``newest[ids, 2]`` holds each key's newest instant before and after the pass, ``slack[A, n]`` what totals of flows err by.
        """
        self._grow(int(ids.max(initial=-1)) + 1)
        verdict = found.verdict
        first, _ = _first_and_last((verdict == USED) | (verdict == SUPERSEDED), offsets)
        _, last = _first_and_last(verdict == USED, offsets)
        seen = last >= 0
        hole_rows = (
            verdict == NOT_A_NUMBER if self._spec.nonfinite == "hole" else np.zeros(len(t), dtype=bool)
        )
        fresh = ~self._seen[ids]
        holes = bool(hole_rows.any())
        if holes:
            self._observe_first_holes(hole_rows, t, offsets, ids, first, fresh, newest[:, 0])
        begins = seen & fresh
        self._first_time[ids[begins]] = t[first[begins]]
        self._first_value[ids[begins]] = v[:, first[begins]].T
        known = ids[seen]
        self._last_time[known] = t[last[seen]]
        self._last_value[known] = v[:, last[seen]].T
        if slack is not None:
            self._slack[known] = slack[:, last[seen]].T
        self._newest[ids] = newest[:, 1]
        self._seen[known] = True
        self._open[known] = True
        if holes:
            # A hole counts unless it is late itself: no tuple follows it, and its time is not before the newest.
            places, widths = np.arange(len(t)), np.diff(offsets)
            counts = hole_rows & (t >= np.repeat(t[last], widths)) & (places > np.repeat(last, widths))
            hole, _ = _first_and_last(counts, offsets)
            self._open[known] = (hole < 0)[seen]
            self._until[known] = self._known_until(t[last], t[hole])[seen]
        self._observe_rows(table, rows, first, last, hole_rows, offsets, ids)

    def _known_until(self, newest: Any, hole: Any) -> Any:
        """Return until when the newest tuples hold if a hole follows: lines end with the tuple, steps at the hole."""
        gap = self._spec.max_gap
        holds = np.zeros(len(newest), dtype=bool) if self._lines else np.ones(len(newest), dtype=bool)
        return np.where(holds if gap is None else holds & (hole - newest <= gap), hole, newest)

    def _observe_first_holes(
        self, hole_rows: Any, t: Any, offsets: Any, ids: Any, first: Any, fresh: Any, newest: Any
    ) -> None:
        """Record holes before a key's first tuple."""
        before = np.arange(len(t)) < np.repeat(np.where(first < 0, len(t), first), np.diff(offsets))
        in_time = t >= np.repeat(newest, np.diff(offsets))
        hole, _ = _first_and_last(hole_rows & before & in_time, offsets)
        noted = fresh & (hole >= 0) & (self._hole_time[ids] == NO_TIME)
        self._hole_time[ids[noted]] = t[hole[noted]]

    def _observe_rows(
        self, table: pa.Table, rows: Any, first: Any, last: Any, hole_rows: Any, offsets: Any, ids: Any
    ) -> None:
        """Keep one row of columns per key: the newest tuple's, or a hole's while there is no tuple."""
        hole, _ = _first_and_last(hole_rows, offsets)
        use = np.where(last >= 0, last, np.where(self._row[ids] < 0, hole, -1))
        known = ids[use >= 0]
        schema = self._spec.schema
        newest = table.select([*schema.key_names, *schema.unmodelled_names]).take(
            pa.array(rows[use[use >= 0]])
        )
        if self._rows is None or not newest.num_columns:
            self._row[known] = np.arange(len(known)) if newest.num_columns else 0
            self._rows = newest
            return
        held = np.setdiff1d(np.flatnonzero(self._row >= 0), known)
        kept = self._rows.take(pa.array(self._row[held]))
        self._rows = pa.concat_tables([kept, newest], promote_options="permissive").unify_dictionaries()
        self._row[held] = np.arange(len(held))
        self._row[known] = len(held) + np.arange(len(known))

    def count_runs(self, found: Intervals, t: Any, ids: Any, kept: Any, resumed: Any) -> Any:
        """Record where each key's second run begins, and return which of the points found are runs of their own.

        ``kept`` and ``resumed`` are by key id, before this pass.
        """
        self._grow(int(ids.max(initial=-1)) + 1)
        index, flag = found.index, found.flag
        some = np.flatnonzero((flag == RUN) | (flag >= POINT))  # the others, nearly all, continue a run
        if not len(some):
            return np.zeros(0, dtype=bool)
        own, key = flag[some], index[some, 2]
        begins_key = (some == 0) | (key != index[some - 1, 2])
        # A lone tuple is a run unless an interval of its own run ends there.
        before = index[some - 1, 1]
        arrives = ~begins_key & (flag[some - 1] < POINT)
        arrives &= (t[before] == t[index[some, 0]]) & (found.verdict[before] != NOT_A_NUMBER)
        arrives |= begins_key & resumed[ids[key]]
        alone = (own == POINT) & ~arrives
        starts = (own == RUN) | (own == OPEN_RUN) | alone
        starts &= ~(begins_key & kept[ids[key]] & ~resumed[ids[key]])  # counted when it was opened
        total, fresh = np.cumsum(starts), np.append(True, key[1:] != key[:-1])
        nth = total - (total - starts)[np.flatnonzero(fresh)][np.cumsum(fresh) - 1] + self._runs[ids[key]]
        second = starts & (nth == 2)
        self._second_time[ids[key[second]]] = t[index[some[second], 0]]
        np.add.at(self._runs, ids[key[starts]], 1)
        return alone[own == POINT]

    def newest_tuples(self, ids: Any) -> Any:
        """Return the instant of each key's newest tuple so far, NO_TIME without one."""
        self._grow(int(ids.max(initial=-1)) + 1)
        return self._last_time[ids]

    def set_integrals(self, fitted: Fitted, ids: Any) -> None:
        """Store the difference of the integrals at each key's end, after the last pass."""
        closed = np.flatnonzero((fitted.kind == SEGMENT) | (fitted.kind == POINT_SEGMENT))
        self._delta[ids] = 0.0
        if not len(closed):
            return
        key = fitted.key[closed]
        final = np.append(key[1:] != key[:-1], True)
        self._delta[ids[key[final]]] = fitted.delta[closed[final]]

    def parts(self) -> Iterator[tuple[SegmentBatch, int]]:
        """Yield the observations as points with their part's code, without empty parts."""
        nothing = np.zeros_like(self._last_value)
        last = np.where(self._open, self._last_time, np.maximum(self._last_time, self._newest))
        touching = ~self._open & (self._until == last)
        for part, mask, time, value, delta in (
            (FIRST, self._seen, self._first_time, self._first_value, nothing),
            (LAST, self._seen & self._open, last, self._last_value, self._delta),
            (LAST_APART, self._seen & ~self._open & ~touching, last, self._last_value, nothing),
            (TOUCHING, self._seen & touching, last, self._last_value, self._delta),
            (HOLE, self._hole_time != NO_TIME, self._hole_time, nothing, nothing),
            (SECOND, self._second_time != NO_TIME, self._second_time, nothing, nothing),
        ):
            ids = np.flatnonzero(mask & (self._row >= 0))
            if len(ids):
                apart = np.zeros(len(ids))
                if part in (LAST_APART, TOUCHING):
                    apart = self._last_time[ids] - time[ids]
                elif part == HOLE:
                    apart = np.maximum(self._newest[ids] - time[ids], 0)
                yield self._points(ids, time[ids], apart / 1e6, value[ids], delta[ids]), part

    def _points(self, ids: Any, time: Any, lo: Any, value: Any, delta: Any) -> SegmentBatch:
        schema = self._spec.schema
        assert self._rows is not None
        rows = self._rows.take(pa.array(self._row[ids])) if self._rows.num_columns else self._rows
        columns: dict[str, Any] = {
            name: rows.column(name) for name in (*schema.key_names, *schema.unmodelled_names)
        }
        columns |= {
            "ref": pa.array(time).cast(pa.timestamp("us")),
            "lo": lo,
            "hi": lo,
        }
        for a, name in enumerate(schema.modelled_names):
            columns[name] = pa.array(value[:, a].reshape(-1, 1).tolist(), type=pa.list_(pa.float64()))
            columns[f"{name}_err"] = np.ascontiguousarray(self._slack[ids, a])
            columns[f"{name}_drift"] = np.ascontiguousarray(delta[:, a])
        return SegmentBatch.from_arrow(pa.table(columns), schema, check=False)

    def _grow(self, size: int) -> None:
        more = size - len(self._row)
        if more <= 0:
            return
        for name in _TIMES:
            setattr(self, name, np.append(getattr(self, name), np.full(more, NO_TIME)))
        for name in _VALUES:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((more, old.shape[1]))]))
        self._row = np.append(self._row, np.full(more, -1))
        self._seen = np.append(self._seen, np.zeros(more, dtype=bool))
        self._open = np.append(self._open, np.ones(more, dtype=bool))
        self._runs = np.append(self._runs, np.zeros(more, dtype=np.int64))


def _first_and_last(mask: Any, offsets: Any) -> tuple[Any, Any]:
    """Return per group the index of the first and last row where the mask holds, or -1."""
    groups = len(offsets) - 1
    if mask.all():
        some = offsets[1:] > offsets[:-1]
        return np.where(some, offsets[:-1], -1), np.where(some, offsets[1:] - 1, -1)
    first, last = np.full(groups, -1, dtype=np.int64), np.full(groups, -1, dtype=np.int64)
    where = np.flatnonzero(mask)
    begin, end = np.searchsorted(where, offsets[:-1]), np.searchsorted(where, offsets[1:])
    some = end > begin
    first[some] = where[begin[some]]
    last[some] = where[end[some] - 1]
    return first, last

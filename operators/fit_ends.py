"""Each key's first and newest tuple in what one fitter saw: what it takes to stitch neighbouring work units together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core import SegmentBatch
from pulse.kernels.fit import POINT_SEGMENT, SEGMENT, Fitted
from pulse.kernels.knots import NOT_A_NUMBER, USED
from pulse.operators.fit_spec import FitSpec


class KeyEnds:
    """Arrays by key id, plus one row per key with its key columns and newest unmodelled attributes."""

    def __init__(self, spec: FitSpec) -> None:
        self._spec = spec
        attributes = len(spec.schema.modelled)
        self._first_time = np.empty(0, dtype=np.int64)
        self._first_value = np.empty((0, attributes))
        self._last_time = np.empty(0, dtype=np.int64)
        self._last_value = np.empty((0, attributes))
        self._delta = np.empty((0, attributes))
        self._row = np.empty(0, dtype=np.int64)  # into _rows; -1: not seen
        self._begins = np.empty(0, dtype=bool)  # nothing unknown lies before the first tuple
        self._ends = np.empty(0, dtype=bool)  # nor after the newest
        self._rows: pa.Table | None = None

    def see(self, table: pa.Table, rows: Any, t: Any, v: Any, verdict: Any, offsets: Any, ids: Any) -> None:
        """Take note of a pass: ``t`` and ``v`` grouped by key, ``rows`` where they stand in ``table``."""
        self._grow(int(ids.max(initial=-1)) + 1)
        first, last = _first_and_last(verdict == USED, offsets)
        seen = first >= 0
        first_hole, last_hole = _first_and_last(verdict == NOT_A_NUMBER, offsets)
        if self._spec.nonfinite != "hole":
            first_hole, last_hole = np.full_like(first, -1), np.full_like(last, -1)
        fresh = seen & (self._row[ids] < 0)
        self._begins[ids[fresh]] &= ~((first_hole >= 0) & (first_hole < first))[fresh]
        self._first_time[ids[fresh]] = t[first[fresh]]
        self._first_value[ids[fresh]] = v[:, first[fresh]].T
        known = ids[seen]
        self._ends[ids] = np.where(seen | (last_hole >= 0), last_hole <= last, self._ends[ids])
        self._last_time[known] = t[last[seen]]
        self._last_value[known] = v[:, last[seen]].T
        schema = self._spec.schema
        newest = table.select([*schema.key_names, *schema.unmodelled_names]).take(pa.array(rows[last[seen]]))
        if self._rows is None or not newest.num_columns:
            self._row[known] = np.arange(len(known)) if newest.num_columns else 0
            self._rows = newest
            return
        held = np.setdiff1d(np.flatnonzero(self._row >= 0), known)
        kept = self._rows.take(pa.array(self._row[held]))
        self._rows = pa.concat_tables([kept, newest], promote_options="permissive").unify_dictionaries()
        self._row[held] = np.arange(len(held))
        self._row[known] = len(held) + np.arange(len(known))

    def settle(self, fitted: Fitted, t: Any, ids: Any) -> None:
        """After the last pass: how the integrals stand at each key's end."""
        closed = np.flatnonzero((fitted.kind == SEGMENT) | (fitted.kind == POINT_SEGMENT))
        self._delta[ids] = 0.0
        if not len(closed):
            return
        key = fitted.key[closed]
        final = np.flatnonzero(np.append(key[1:] != key[:-1], True))
        for i in final:  # an isolated last tuple began a run of its own
            row = closed[i]
            alone = fitted.kind[row] == POINT_SEGMENT and not (
                i > 0
                and key[i - 1] == key[i]
                and t[fitted.tuple[closed[i - 1]]] + round(fitted.hi[closed[i - 1]] * 1e6)
                == t[fitted.tuple[row]]
            )
            if not alone:
                self._delta[ids[key[i]]] = fitted.delta[row]

    def first(self) -> SegmentBatch:
        """The first tuples, as points; keys that begin in a hole are left out."""
        return self._points(self._begins, self._first_time, self._first_value, None)

    def last(self) -> SegmentBatch:
        """The newest tuples, as points whose drift is the integrals' signed difference; keys that end in a hole are left out."""
        return self._points(self._ends, self._last_time, self._last_value, self._delta)

    def _points(self, mask: Any, time: Any, value: Any, delta: Any) -> SegmentBatch:
        schema = self._spec.schema
        ids = np.flatnonzero((self._row >= 0) & mask)
        if not len(ids) or self._rows is None:
            return SegmentBatch.empty(schema)
        rows = self._rows.take(pa.array(self._row[ids])) if self._rows.num_columns else self._rows
        columns: dict[str, Any] = {
            name: rows.column(name) for name in (*schema.key_names, *schema.unmodelled_names)
        }
        columns |= {
            "ref": pa.array(time[ids]).cast(pa.timestamp("us")),
            "lo": np.zeros(len(ids)),
            "hi": np.zeros(len(ids)),
        }
        for a, name in enumerate(schema.modelled_names):
            columns[name] = pa.array(value[ids, a].reshape(-1, 1).tolist(), type=pa.list_(pa.float64()))
            columns[f"{name}_err"] = np.zeros(len(ids))
            columns[f"{name}_drift"] = np.zeros(len(ids)) if delta is None else delta[ids, a]
        return SegmentBatch.from_arrow(pa.table(columns), schema, check=False)

    def _grow(self, size: int) -> None:
        more = size - len(self._row)
        if more <= 0:
            return
        for name in ("_first_time", "_last_time"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more, dtype=np.int64)]))
        for name in ("_first_value", "_last_value", "_delta"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((more, old.shape[1]))]))
        self._row = np.concatenate([self._row, np.full(more, -1, dtype=np.int64)])
        self._begins = np.concatenate([self._begins, np.ones(more, dtype=bool)])
        self._ends = np.concatenate([self._ends, np.ones(more, dtype=bool)])


def _first_and_last(mask: Any, offsets: Any) -> tuple[Any, Any]:
    """Per group the index of the first and last row where the mask holds; -1 where it nowhere does."""
    groups = len(offsets) - 1
    first, last = np.full(groups, -1, dtype=np.int64), np.full(groups, -1, dtype=np.int64)
    where = np.flatnonzero(mask)
    begin, end = np.searchsorted(where, offsets[:-1]), np.searchsorted(where, offsets[1:])
    some = end > begin
    first[some] = where[begin[some]]
    last[some] = where[end[some] - 1]
    return first, last

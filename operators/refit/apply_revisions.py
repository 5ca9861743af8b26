"""Apply revisions to tuples: compute the corrected history and the revisions that do not apply (semantics 7.1, 7.3).

Key, time and all values identify a tuple; of several equal ones the last is removed. An insertion goes after the tuples of its
instant. A replacement at the same key and instant takes the place of the tuple it replaces; any other replacement is a deletion
and an insertion. Revisions apply in order of arrival, so they may revise tuples that revisions inserted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.arrow_types import REF, conform, one_chunk
from pulse.core.keys import key_ranks
from pulse.core.schema import StreamSchema
from pulse.core.time import format_instant
from pulse.operators.data.tuple_columns import changes, check_columns, needed_columns, times, values
from pulse.operators.units.key_ends import Drops
from pulse.stream.revisions import KIND, KNOWN, Revisions, not_recorded, with_reason

_ROOM = 1 << 62


class Corrected(NamedTuple):
    """The corrected ``tuples`` by key and time; ``applied[e]`` per element; ``aside``: rejected rows with reasons.

    ``both`` holds the tuples before, then the revisions' rows; ``before`` and ``after`` are its rows that form the histories, by
    key and time. Per row of ``both``: ``key``, ``time``, ``change`` (codes of the unmodelled attributes) and ``ends`` (when one
    of its attributes is dropped; None: never).
    """

    tuples: pa.Table
    aside: pa.Table
    applied: BoolArray
    both: pa.Table
    before: IntArray
    after: IntArray
    key: IntArray
    time: IntArray
    change: IntArray
    ends: IntArray | None = None


TupleFormatter = Callable[[pa.Table], pa.Table]


def correct(
    tuples: pa.Table,
    revisions: Revisions,
    *,
    nonfinite: str = "reject",
    as_recorded: TupleFormatter | None = None,
    drops: Drops | None = None,
) -> Corrected:
    """Apply revisions to tuples (by key and time, in order of arrival where both are equal).

    With ``nonfinite="hole"`` a new non-finite value is a tuple that ends the known truth, else it is set aside. ``as_recorded``
    restores the recorded form of tuples for reasons, such as their recorded units.
    """
    schema = revisions.schema
    rows = revisions.table.drop_columns([KIND, KNOWN])
    both = pa.concat_tables([as_tuples(tuples, schema), rows]).combine_chunks()
    n, total = tuples.num_rows, both.num_rows
    key = key_ranks([one_chunk(both.column(name)) for name in schema.key_names], total)
    time, _ = times(both, schema)
    instant = dense(key, time)
    ledger = _Ledger(both, n, instant, schema, as_recorded)
    finite = (
        np.logical_and.reduce(np.isfinite(values(rows, schema)), axis=0) if nonfinite == "reject" else None
    )
    applied, reasons = ledger.apply(revisions, finite)
    before = np.arange(n)
    before = before[np.argsort(instant[:n], kind="stable")]
    after = ledger.after()
    change = (
        changes(both.select(schema.unmodelled_names), schema) if schema.unmodelled else np.zeros(0, np.int64)
    )
    return Corrected(
        both.take(pa.array(after)),
        _aside(revisions, reasons),
        applied,
        both,
        before,
        after,
        key,
        time,
        change,
        None if drops is None else drops.after(both, np.arange(total), time),
    )


def as_tuples(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """Select the columns of tuples, in the order and types of revisions."""
    check_columns(table.schema, schema, "tuples")
    types = dict(schema.key) | dict(schema.unmodelled) | dict.fromkeys(schema.modelled_names, pa.float64())
    columns: dict[str, Any] = {}
    for name in needed_columns(schema):
        column = table.column(name)
        if name == schema.time:
            columns[name] = column if column.type == REF else pa.array(times(table, schema)[0]).cast(REF)
        elif column.type == types[name]:
            columns[name] = column
        elif name in schema.modelled_names:
            columns[name] = pa.array(values(table, schema)[schema.modelled_names.index(name)])
        else:
            columns[name] = conform(column, types[name], column=name)
    return pa.table(columns)


def dense(key: IntArray, time: IntArray) -> IntArray:
    """Rank rows by (key, time): equal pairs get equal numbers, from 0 without gaps.

    >>> dense(np.array([1, 0, 1, 1]), np.array([5, 9, 4, 5])).tolist()
    [2, 0, 1, 2]
    """
    if not len(key):
        return np.zeros(0, dtype=np.int64)
    low, high = int(time.min()), int(time.max())
    new = np.zeros(len(key), dtype=np.int64)
    out = np.empty(len(key), dtype=np.int64)
    # Sorting one number per row is several times faster than sorting two.
    if (int(key.max()) + 1) * (high - low + 1) < _ROOM:
        place = key * (high - low + 1) + (time - low)
        order = np.argsort(place)
        new[1:] = np.diff(place[order]) != 0
    else:
        order = np.lexsort((time, key))
        new[1:] = (np.diff(key[order]) != 0) | (np.diff(time[order]) != 0)
    out[order] = np.cumsum(new)
    return out


class _Ledger:
    """The recorded rows of ``both`` (``n`` tuples, then rows of revisions) and their order at each instant."""

    def __init__(
        self,
        both: pa.Table,
        n: int,
        instant: IntArray,
        schema: StreamSchema,
        as_recorded: TupleFormatter | None = None,
    ) -> None:
        self.both, self.n, self.instant, self.schema, self.as_recorded = both, n, instant, schema, as_recorded
        named = np.zeros(int(instant.max(initial=-1)) + 1, dtype=bool)
        named[instant[n:]] = True
        near = np.append(np.flatnonzero(named[instant[:n]]), np.arange(n, len(instant)))
        # Revisions refer only to rows at the instants they name: the others need no identity.
        self.identity = np.full(len(instant), -1, dtype=np.int64)
        values = both.select([*schema.modelled_names, *schema.unmodelled_names]).take(pa.array(near))
        self.identity[near] = row_codes(values, instant[near])
        self.place = np.arange(len(instant))
        self.alive = np.arange(len(instant)) < n
        self.recorded: dict[int, list[int]] = {}
        for row, who in zip(near.tolist(), instant[near].tolist(), strict=True):
            if row >= n:
                break
            self.recorded.setdefault(who, []).append(row)

    def apply(self, revisions: Revisions, finite: BoolArray | None) -> tuple[BoolArray, dict[int, str]]:
        """Apply the revisions; return which elements were applied, and the reasons for the others."""
        n, identity, instant = self.n, self.identity.tolist(), self.instant.tolist()
        applied = np.ones(len(revisions), dtype=bool)
        reasons: dict[int, str] = {}
        place = self.place.tolist()
        next_place = len(place)
        pairs = zip(revisions.old_rows.tolist(), revisions.new_rows.tolist(), strict=True)
        for element, (old, new) in enumerate(pairs):
            if new >= 0 and finite is not None and not finite[new]:
                reasons[element] = f"not finite: expected numbers, got {self._described(n + new)}"
                continue
            gone = -1
            if old >= 0:
                held = self.recorded.get(instant[n + old], [])
                same = [row for row in held if identity[row] == identity[n + old]]
                if not same:
                    reasons[element] = self._mismatch(n + old, held, new >= 0)
                    continue
                gone = max(same, key=place.__getitem__) if len(same) > 1 else same[0]
                held.remove(gone)
                self.alive[gone] = False
            if new >= 0:
                row = n + new
                stays = gone >= 0 and instant[row] == instant[n + old]
                place[row] = place[gone] if stays else next_place
                next_place += 1
                self.recorded.setdefault(instant[row], []).append(row)
                self.alive[row] = True
        self.place = np.array(place, dtype=np.int64)
        applied[list(reasons)] = False
        return applied, reasons

    def after(self) -> IntArray:
        """Return the rows recorded now, by key, time and place."""
        rows = np.flatnonzero(self.alive)
        return rows[np.lexsort((self.place[rows], self.instant[rows]))]

    def _described(self, row: int) -> str:
        names = [*self.schema.modelled_names, *self.schema.unmodelled_names]
        row_values = self.both.slice(row, 1)
        row_values = row_values if self.as_recorded is None else self.as_recorded(row_values)
        return ", ".join(f"{name} = {row_values.column(name)[0].as_py()!r}" for name in names)

    def _mismatch(self, row: int, held: list[int], replaces: bool) -> str:
        key = ", ".join(f"{name}={self.both.column(name)[row].as_py()!r}" for name in self.schema.key_names)
        at = f"at {format_instant(self.both.column(self.schema.time).cast(pa.int64())[row].as_py())}"
        return not_recorded(f"{key or 'the only key'}, {at}", row, held, self._described, replaces=replaces)


def row_codes(rows: pa.Table, within: IntArray | None = None) -> IntArray:
    """Number the rows so that equal rows of equal ``within`` get equal numbers; -0.0 equals 0.0, and all NaNs are equal.

    >>> row_codes(pa.table({"x": [0.0, 1.0, -0.0], "u": ["p", "p", "p"]})).tolist()
    [0, 1, 0]
    """
    code = np.zeros(rows.num_rows, np.int64) if within is None else np.unique(within, return_inverse=True)[1]
    for name in rows.column_names:
        column = one_chunk(rows.column(name))
        if pa.types.is_floating(column.type):
            column = pa.array(column.to_numpy(zero_copy_only=False) + 0.0)
        own = column.dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64) + 1
        code = np.unique(code * (own.max(initial=0) + 1) + own, return_inverse=True)[1]
    return code


def _aside(revisions: Revisions, reasons: dict[int, str]) -> pa.Table:
    """Return the rows of the elements that were not applied, each with its element's reason."""
    rows, texts = [], []
    for element, reason in reasons.items():
        for row in (int(revisions.old_rows[element]), int(revisions.new_rows[element])):
            if row >= 0:
                rows.append(row)
                texts.append(reason)
    return with_reason(revisions.table.take(pa.array(rows, pa.int64())), texts)

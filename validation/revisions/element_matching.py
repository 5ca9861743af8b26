"""Match revising elements of a stream with the logged tuples, and apply them (semantics 7.1).

Rows of a changelog come one by one. ``-U`` right before a ``+U`` of the same key is a replacement; without its other half ``-U``
is a deletion and ``+U`` an insertion, so that a change of key works wherever the two halves are routed. Key, time and all values
identify a tuple; of several equal ones the newest is removed. A replacement at the same instant takes the old tuple's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.elements import KIND_CODES
from pulse.core.keys import key_ranks
from pulse.core.schema import StreamSchema
from pulse.core.time import format_instant
from pulse.operators.data.tuple_columns import changes
from pulse.stream.revisions import DELETION, INSERTION, NEW, OLD, UNKNOWN_KIND, kind_codes, not_recorded
from pulse.validation.revisions.tuple_log import Chunk

PAIR = "_pulse_pair"
"""A column that marks rows whose other half was the next row, for rows that are partitioned."""


@dataclass(frozen=True, eq=False)
class Elements:
    """Revisions as rows of a table: ``old`` and ``new``, or -1, in order of arrival."""

    old: IntArray
    new: IntArray

    def __len__(self) -> int:
        return len(self.old)

    def take(self, which: IntArray) -> Elements:
        """Select elements."""
        return Elements(self.old[which], self.new[which])

    def rows(self, element: int) -> IntArray:
        """Return the rows of one element."""
        both = np.array([self.old[element], self.new[element]])
        return both[both >= 0]


class ClassifiedRows(NamedTuple):
    """The rows of a batch: plain insertions, revising elements, and invalid rows by reason."""

    insertions: IntArray
    elements: Elements
    aside: dict[str, list[int]]


def classify_rows(table: pa.Table, schema: StreamSchema, kind: str) -> ClassifiedRows:
    """Classify the rows of a changelog."""
    code = kind_codes(table.column(kind))
    old = np.flatnonzero((code == OLD) | (code == DELETION))
    new = np.full(len(old), -1, np.int64)
    inserted = (code == INSERTION) | (code == NEW)
    if len(old):
        halves = old[replacements(table, schema.key_names, kind)[old]]
        new[np.isin(old, halves)] = halves + 1
        inserted[halves + 1] = False
    aside: dict[str, list[int]] = {}
    for row in np.flatnonzero(code == UNKNOWN_KIND).tolist():
        what, known = table.column(kind)[row].as_py(), ", ".join(KIND_CODES)
        aside.setdefault(f"no kind of element: expected one of {known}, got {what!r}", []).append(row)
    return ClassifiedRows(np.flatnonzero(inserted), Elements(old, new), aside)


def replacements(table: pa.Table, keys: Sequence[str], kind: str) -> BoolArray:
    """Return the rows that are the old half of a replacement: ``-U`` right before a ``+U`` of the same key.

    Where partitioning removed rows in between (:data:`PAIR`), only those that were neighbours before.
    """
    n = table.num_rows
    found: BoolArray = np.zeros(n, bool)
    code = kind_codes(table.column(kind))
    at = np.flatnonzero((code[:-1] == OLD) & (code[1:] == NEW))
    if PAIR in table.column_names:
        at = at[table.column(PAIR).to_numpy()[at]]
    if len(at):
        both = table.select(list(keys)).take(pa.array(np.concatenate([at, at + 1])))
        ranks = key_ranks([_one(one) for one in both.columns], 2 * len(at))
        at = at[ranks[: len(at)] == ranks[len(at) :]]
    found[at] = True
    return found


@dataclass
class Pool:
    """The rows that revisions of some keys may match: the log's rows of these keys, then the revisions' own.

    ``code`` are the keys, in the order of their values; ``alive`` marks the log's content: at first all its rows.
    """

    schema: StreamSchema
    rows: Chunk
    logged: int
    code: IntArray
    values: FloatArray  # [A, n]
    other: IntArray  # a code of the unmodelled attributes

    @classmethod
    def of(cls, schema: StreamSchema, log: Chunk, own: Chunk) -> Pool:
        """Build a pool from the rows found in the log and those of the revisions."""
        rows = Chunk.concat([log, own])
        table = rows.table
        ranks = key_ranks([_one(table.column(name)) for name in schema.key_names], len(rows))
        # Without gaps: a dictionary may list keys that no row has.
        code = np.unique(ranks, return_inverse=True)[1]
        values = np.empty((len(schema.modelled), len(rows)))
        for a, name in enumerate(schema.modelled_names):
            values[a] = table.column(name).cast(pa.float64(), safe=False).to_numpy()
        other = changes(_unsigned(table), schema) if schema.unmodelled else np.zeros(len(rows), np.int64)
        return cls(schema, rows, len(log), code, values, other)

    def __post_init__(self) -> None:
        n = len(self.rows)
        self.alive: BoolArray = np.arange(n) < self.logged
        self.order = self.rows.order.copy()
        self._perm = np.lexsort((self.rows.t, self.code))
        key = np.stack([self.code[self._perm], self.rows.t[self._perm]])
        cuts = np.append(np.flatnonzero((np.diff(key) != 0).any(axis=0)) + 1, n)
        group = np.searchsorted(cuts, np.arange(n), side="right")
        self._begin, self._end = np.concatenate(([0], cuts[:-1])), cuts
        self._group = np.empty(n, np.int64)
        self._group[self._perm] = group

    def apply(self, elements: Elements, rounding: float = 0.0) -> dict[int, str]:
        """Apply revisions in order of arrival; return those without a match, with the reason.

        Elements refer to rows of the pool. If no tuple has exactly the old values, the nearest within ``rounding`` matches.
        """
        refused: dict[int, str] = {}
        arrived = self.rows.arrived
        for e, (old, new) in enumerate(zip(elements.old.tolist(), elements.new.tolist(), strict=True)):
            if old < 0:
                self.alive[new] = True
                continue
            group = self._group[old]
            there = [
                int(row)
                for row in self._perm[self._begin[group] : self._end[group]]
                if self.alive[row] and arrived[row] < arrived[old]
            ]
            same = [row for row in there if self._equal(row, old)] or self._nearest(old, there, rounding)
            if not same:
                refused[e] = self._reason(old, there, new >= 0)
                continue
            gone = max(same, key=lambda row: self.order[row])
            self.alive[gone] = False
            if new >= 0:
                self.alive[new] = True
                if self._group[new] == group:
                    self.order[new] = self.order[gone]
        return refused

    def left(self) -> IntArray:
        """Return the remaining rows, by key and time."""
        rows = np.flatnonzero(self.alive)
        found: IntArray = rows[np.lexsort((self.order[rows], self.rows.t[rows], self.code[rows]))]
        return found

    def _equal(self, a: int, b: int) -> bool:
        return bool(self.other[a] == self.other[b] and (self.values[:, a] == self.values[:, b]).all())

    def _nearest(self, old: int, there: Sequence[int], rounding: float) -> list[int]:
        """Return the row that equals the old one up to rounding, if there is one."""
        if not rounding or not np.isfinite(self.values[:, old]).all():
            return []
        own = self.values[:, self.code == self.code[old]]
        size = np.abs(np.where(np.isfinite(own), own, 0.0)).max(axis=1)
        off = {row: np.abs(self.values[:, row] - self.values[:, old]) for row in there}
        near = [
            row for row in there if self.other[row] == self.other[old] and (off[row] <= rounding * size).all()
        ]
        return [min(near, key=lambda row: (float(off[row].sum()), -self.order[row]))] if near else []

    def _reason(self, old: int, there: Sequence[int], replaces: bool) -> str:
        at = format_instant(int(self.rows.t[old]))
        return not_recorded(f"at {at}", old, there, self._described, replaces=replaces)

    def _described(self, row: int) -> str:
        names = [*self.schema.modelled_names, *self.schema.unmodelled_names]
        (one,) = self.rows.table.slice(row, 1).select(names).to_pylist()
        return ", ".join(f"{name} = {value!r}" for name, value in one.items())


def _unsigned(table: pa.Table) -> pa.Table:
    """Replace -0.0 by 0.0, as they are one value."""
    for i, column in enumerate(table.columns):
        if pa.types.is_floating(column.type):
            table = table.set_column(i, table.field(i).name, pc.add(column, pa.scalar(0.0, column.type)))
    return table


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

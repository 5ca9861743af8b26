"""Classify a batch of a revisable stream: which rows are tuples, which are revisions, and which are rejected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.schema import StreamSchema
from pulse.operators.data.tuple_columns import needed_columns, times
from pulse.operators.fit.predictive_spec import numbers
from pulse.validation.online.rejects import admit, concat_rejects, origin_columns
from pulse.validation.revisions.element_matching import PAIR, Elements, classify_rows

_ROW = "row of the batch"


@dataclass
class RevisionBatch:
    """The rows of a batch that have a key and a time, classified; ``reasons`` collects rejected rows."""

    table: pa.Table
    insertions: IntArray
    elements: Elements
    t: IntArray
    misplaced: int
    reasons: dict[int, str]
    left_out: list[pa.Table]

    @classmethod
    def of(cls, table: pa.Table, schema: StreamSchema, kind: str | None) -> RevisionBatch:
        """Classify the rows of a table by its column ``kind``; without one, all are insertions."""
        names = [*needed_columns(schema), *origin_columns(table)]
        if kind is None:
            good, left_out = admit(table.select(names), schema.key_names, schema.time)
            rows, none = np.arange(good.num_rows), np.zeros(0, np.int64)
            t = times(good, schema)[0]
            return cls(good, rows, Elements(none, none), t, table.num_rows - good.num_rows, {}, left_out)
        pair = [PAIR] if PAIR in table.column_names else []
        whole = table.select([*names, kind, *pair])
        numbered = whole.append_column(_ROW, pa.array(np.arange(table.num_rows)))
        found = classify_rows(numbered, schema, kind)
        good, left_out = admit(numbered, schema.key_names, schema.time)
        left_out = [one.drop_columns([_ROW, *pair]) for one in left_out]
        place = np.full(table.num_rows + 1, -1, np.int64)  # the last: of row -1
        place[good.column(_ROW).to_numpy()] = np.arange(good.num_rows)
        misplaced = table.num_rows - good.num_rows
        none = np.zeros(0, np.int64)
        batch = cls(
            good.drop_columns([_ROW, *pair]),
            none,
            found.elements,
            times(good, schema)[0],
            misplaced,
            {},
            left_out,
        )
        insertions = place[found.insertions]
        batch.insertions = insertions[insertions >= 0]
        old, new = place[found.elements.old], place[found.elements.new]
        halves = ((found.elements.old >= 0) & (old < 0)) | ((found.elements.new >= 0) & (new < 0))
        for row in np.concatenate([old[halves], new[halves]]):
            if row >= 0:
                batch.reasons[int(row)] = "the other half of the replacement has no key or no time"
        batch.elements = Elements(old[~halves], new[~halves])
        for reason, wrong in found.aside.items():
            batch.reasons |= {int(place[row]): reason for row in wrong if place[row] >= 0}
        return batch

    def set_aside(self, rows: IntArray, reason: str) -> None:
        """Reject rows with a reason."""
        self.reasons |= dict.fromkeys(rows.tolist(), reason)

    def aside(self) -> pa.Table | None:
        """Return all rejected rows with their reasons, None without any."""
        parts = list(self.left_out)
        if self.reasons:
            rows = sorted(self.reasons)
            reasons = pa.array([self.reasons[row] for row in rows], pa.string())
            parts.append(self.table.take(pa.array(rows)).append_column("reason", reasons))
        return concat_rejects(parts)


def in_order(elements: Elements, late: IntArray) -> Elements:
    """Merge revisions and late insertions in order of arrival."""
    old = np.concatenate([elements.old, np.full(len(late), -1, np.int64)])
    new = np.concatenate([elements.new, late])
    return Elements(old, new).take(np.argsort(np.where(old >= 0, old, new), kind="stable"))


def log_columns(schema: StreamSchema) -> pa.Schema:
    """Return the columns of a log: one type each for tuples of different files; keys are dictionary-encoded once."""
    types = {name: pa.dictionary(pa.int32(), type_) for name, type_ in schema.key}
    types |= {schema.time: pa.timestamp("us"), **dict(schema.unmodelled)}
    types |= dict.fromkeys(schema.modelled_names, pa.float64())
    return pa.schema([(name, types[name]) for name in needed_columns(schema)])


def plain(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """Convert tuples to the columns of a log."""
    mine = log_columns(schema)
    return pa.table([_plain(table, one, schema) for one in mine], schema=mine)


def _plain(table: pa.Table, wanted: pa.Field, schema: StreamSchema) -> pa.ChunkedArray:
    column = table.column(wanted.name)
    if wanted.name in schema.key_names:
        if not pa.types.is_dictionary(column.type):
            column = column.cast(wanted.type.value_type).dictionary_encode()
        column = column.unify_dictionaries()
    elif wanted.name == schema.time and column.type != wanted.type:
        return pa.chunked_array([pa.array(times(table, schema)[0]).view(wanted.type)])
    elif wanted.name in schema.modelled_names and column.type != wanted.type:
        return pa.chunked_array([pa.array(numbers(column, wanted.name))])
    return column if column.type == wanted.type else column.cast(wanted.type)

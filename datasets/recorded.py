"""The content of a file of corrections: tuples as first recorded, revisions, and rejected rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.schema import StreamSchema
from pulse.datasets.counts import Aside
from pulse.datasets.format import Format
from pulse.datasets.units import Paths
from pulse.stream.revisions import KIND, KNOWN, Revisions, revision_rows, revision_schema, with_reason


@dataclass(frozen=True, eq=False)
class Reports(Revisions):
    """Insertions that each report one observation: a repeated one is a duplicate, not a second tuple."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """Tuples, their revisions, and rejected rows of a file.

    ``tuples``: the stream before the revisions, in order of arrival; None where a file holds revisions only. ``aside``: rows of
    revisions that match nothing in the file or are malformed, with a column ``reason``.
    """

    revisions: Revisions
    aside: pa.Table
    tuples: pa.Table | None = None

    def summary(self) -> str:
        """Return a one-line summary."""
        tuples = "" if self.tuples is None else f"{self.tuples.num_rows:,} tuples as first recorded, "
        return f"{tuples}{len(self.revisions):,} revisions, {self.aside.num_rows:,} rows set aside"


def read_table(format: Format, paths: Paths, columns: Sequence[str], aside: Aside | None = None) -> pa.Table:
    """Read these columns of all files, in file order, each one chunk; ``aside`` receives the rows that the format's filters
    remove.
    """
    batches = [
        batch
        for unit in format.units(paths)
        for batch in format.batches(unit, list(dict.fromkeys(columns)), aside=aside)
    ]
    if not batches:
        first = format.files(paths)[0]
        fields = [format.schema(first).field(name) for name in dict.fromkeys(columns)]
        return pa.schema(fields).empty_table()
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()


def rows_aside(
    table: pa.Table, schema: StreamSchema, rows: IntArray, kinds: Sequence[str], reasons: Sequence[str]
) -> pa.Table:
    """Return these rows of a file as rejected rows of revisions."""
    if not len(rows):
        return with_reason(revision_schema(schema).empty_table(), [])
    taken = table.take(pa.array(rows)).select(list(schema.names))
    typed = revision_rows(taken.append_column(KIND, pa.array(list(kinds), pa.string())), schema)
    return with_reason(typed, list(reasons))


def revisions_of(
    table: pa.Table, schema: StreamSchema, rows: IntArray, kinds: Sequence[str], known: IntArray
) -> Revisions:
    """Return these rows of a file as revisions, known at these microseconds."""
    taken = table.take(pa.array(np.asarray(rows, dtype=np.int64))).select(list(schema.names))
    columns = {
        **{name: taken.column(name) for name in taken.column_names},
        KIND: pa.array(list(kinds), pa.string()),
        KNOWN: pa.array(np.asarray(known, dtype=np.int64)).cast(pa.timestamp("us")),
    }
    return Revisions.of(pa.table(columns), schema)

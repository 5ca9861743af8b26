"""Find late reports, which arrived after a later one of the same key, by comparing arrival with event time (semantics 2.5).

In order of arrival a report is late when one of the same vessel with a later time came before it. The others are the stream as
it arrived; each late one is an insertion, known since its arrival::

    arrival   vessel  t     in the stream        the same as revisions
    10:00:02  A       :01   t = :01
    10:00:05  A       :04   t = :04
    10:00:07  A       :03                        +I t = :03, known 10:00:07
    10:00:09  A       :04   t = :04 (not late)
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.arrow_types import decoded
from pulse.core.errors import unknown_column
from pulse.core.keys import key_ranks
from pulse.core.schema import StreamSchema
from pulse.datasets.ais.any import Ais
from pulse.datasets.ais.sentences import SENTENCE_SUFFIXES, AisSentences, are_sentences
from pulse.datasets.format import Format
from pulse.datasets.plain_parquet import PARQUET_SUFFIXES, PlainParquet
from pulse.datasets.projection import Projection
from pulse.datasets.recorded import Recorded, Reports, read_table, revisions_of, rows_aside
from pulse.datasets.units import Paths, expand
from pulse.stream.revisions import KIND, KNOWN, REASON

ARRIVAL = "t_recv"
LATE = "late"
"""The reason of tuples that a fit rejected because they came late."""


def read_arrivals(
    paths: Paths,
    schema: StreamSchema,
    *,
    arrival: str = ARRIVAL,
    projection: Projection | str | None = None,
) -> Recorded:
    """Read the reports in order of arrival, and the late ones as insertions.

    Where the stream has ``x`` and ``y`` and the files do not, positions are projected: by ``projection``, else by the first
    file's extent, as a fit of it does.
    """
    format = _format(paths, schema, arrival, projection)
    columns = format.schema(format.files(paths)[0]).names
    for name in (*schema.names, arrival):
        if name not in columns:
            raise unknown_column(name, columns, f"{format.files(paths)[0]} (reports with their arrival)")
    return split_arrivals(read_table(format, paths, [*schema.names, arrival]), schema, arrival)


def split_arrivals(table: pa.Table, schema: StreamSchema, arrival: str = ARRIVAL) -> Recorded:
    """Split a table with the stream's columns and one of arrivals, like :func:`read_arrivals`."""
    column = table.column(arrival).combine_chunks()
    unknown = column.is_null().to_numpy(zero_copy_only=False)
    arrived = column.cast(pa.timestamp("us"), safe=False).view(pa.int64()).fill_null(0).to_numpy()
    times = table.column(schema.time).combine_chunks().cast(pa.timestamp("us"), safe=False)
    order = np.argsort(arrived, kind="stable")
    order = order[~unknown[order]]
    ranks = key_ranks([_plain(table, name) for name in schema.key_names], table.num_rows)
    late = late_rows(ranks[order], times.view(pa.int64()).to_numpy()[order])
    rows, nowhere = order[late], np.flatnonzero(unknown)
    inserted = revisions_of(table, schema, rows, ["+I"] * len(rows), arrived[rows])
    return Recorded(
        Reports(schema, inserted.table),
        rows_aside(
            table,
            schema,
            nowhere,
            ["+I"] * len(nowhere),
            [f"malformed: expected the arrival ('{arrival}'), got none"] * len(nowhere),
        ),
        table.select(list(schema.names)).take(pa.array(order[~late])),
    )


def read_late(paths: Paths, schema: StreamSchema, *, known: str | None = None) -> Recorded:
    """Read late tuples, each as an insertion: such as those in a model's ``_aside`` folder that a fit rejected.

    Of files with a column ``reason`` only late tuples are taken; the others are set aside again. ``known`` names a column of
    timestamps; without it the tuples are known when they are inserted.
    """
    # Among rows that are not late some have no time, such as lines of a receiver that are no whole message.
    format = PlainParquet(key=schema.key_names, time=schema.time, missing_times=True)
    columns = format.schema(format.files(paths)[0]).names
    besides = [name for name in (known, REASON) if name is not None and (name == known or name in columns)]
    for name in (*schema.names, *besides):
        if name not in columns:
            raise unknown_column(name, columns, f"{format.files(paths)[0]} (late tuples)")
    table = read_table(format, paths, [*schema.names, *besides])
    late = np.ones(table.num_rows, dtype=bool)
    if REASON in besides:
        late = np.array([reason == LATE for reason in table.column(REASON).to_pylist()], dtype=bool)
    if known is not None:
        moments = table.column(known).cast(pa.timestamp("us"), safe=False)
        table = table.append_column(KNOWN, moments)
    changes = table.filter(pa.array(late)).append_column(
        KIND, pa.array(["+I"] * int(late.sum()), pa.string())
    )
    revisions, malformed = Reports.sift(changes, schema)
    rows = np.flatnonzero(~late)
    texts = [] if not len(rows) else table.column(REASON).take(pa.array(rows)).to_pylist()
    others = rows_aside(table, schema, rows, ["+I"] * len(rows), texts)
    return Recorded(revisions, pa.concat_tables([malformed, others]))


def late_rows(ranks: IntArray, times: IntArray) -> BoolArray:
    """Return which rows, in order of arrival, lie before an earlier row of the same key.

    >>> late_rows(np.array([0, 0, 1, 0, 0]), np.array([1, 4, 2, 3, 4])).tolist()
    [False, False, False, True, False]
    """
    late: BoolArray = np.zeros(len(ranks), dtype=bool)
    if not len(ranks):
        return late
    by_key = np.argsort(ranks, kind="stable")
    # The rank of each time among all: small numbers, so that those of a later key can all be made larger.
    place = np.unique(times, return_inverse=True)[1] + ranks * len(ranks)
    reached = np.maximum.accumulate(place[by_key])
    late[by_key[1:]] = place[by_key[1:]] < reached[:-1]
    return late


def _plain(table: pa.Table, name: str) -> pa.Array:
    return decoded(table.column(name)).combine_chunks()


def _format(paths: Paths, schema: StreamSchema, arrival: str, projection: Projection | str | None) -> Format:
    first = expand(paths, (*Ais.suffixes, *SENTENCE_SUFFIXES))[0]
    if first.lower().endswith(PARQUET_SUFFIXES):
        plain = PlainParquet(key=schema.key_names, time=schema.time)
        if {*schema.names, arrival} <= set(plain.schema(first).names):
            return plain
    kind = AisSentences if are_sentences(first) else Ais
    return kind(key=schema.key_names, time=schema.time, projection=projection).prepare(paths)

"""Run a worker's part of a fit: read and fit a unit; stitch some keys and write them.

Runs in Spark's workers and in this process alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.arrow_types import decoded
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import format_instant, to_microseconds
from pulse.datasets.counts import REASON, Aside, Counts
from pulse.datasets.filters.row_filter import RowFilter
from pulse.datasets.format import Format
from pulse.datasets.units import Unit
from pulse.kernels.fit.truth_intervals import LATE
from pulse.operators.data.arrival_order import sorted_by_key_and_time
from pulse.operators.data.flow_columns import computed_flows, recorded_schema, source_columns, with_flows
from pulse.operators.data.tuple_columns import times
from pulse.operators.fit.fitter import REASONS
from pulse.operators.fit.key_boundaries import SEGMENTS
from pulse.operators.fit.points import fitter_for
from pulse.operators.fit.spec import FitSpec
from pulse.operators.fit.stitch import UNIT, LateUnits, part_table, stitch
from pulse.operators.refit.apply_revisions import as_tuples
from pulse.operators.units.key_ends import Drops
from pulse.operators.units.to_base_units import RejectCallback, ToBaseUnits
from pulse.store.manifest import ASIDE
from pulse.store.model import CLOSING, ENDS, TUPLES
from pulse.store.tuples.source_files import read_unit
from pulse.store.tuples.tuple_units import TupleUnits
from pulse.store.writers import statistics_of, temporary_beside, write_segments, write_table, write_text
from pulse.stream.accents.log import AccentLog
from pulse.stream.revisions import with_reason

PROGRESS = "_progress"
ROW = "_row"  # the number of a row within its unit
BATCH_ROWS = 1 << 17  # of a fitted table
_ROW_GROUP = 1 << 13  # of tuples: small, since a revision reads only those around it
Watermarks = Mapping[int, Mapping[tuple[object, ...], int]]


@dataclass(frozen=True)
class FitJob:
    """The work order of a fit's workers.

    ``watermarks``: by unit and key, the newest time of earlier units; ``generation`` numbers the fits a model is made of;
    names of files end in the ``tag`` of the writer (:mod:`pulse.store.draft`);
    ``keep_tuples``: whether the tuples stay beside the model, for revisions; ``accents``: those of the stream;
    ``where``: the filter of rows.
    """

    spec: FitSpec
    staging: str
    generation: int = 0
    tag: str = ""
    watermarks: Watermarks = field(default_factory=dict)
    keep_tuples: bool = False
    accents: AccentLog | None = None
    where: RowFilter | None = None

    def path(self, stem: str, suffix: str = ".parquet") -> Path:
        """Return the path of a file to write."""
        return Path(self.staging) / f"{stem}{self.tag and f'-{self.tag}'}{suffix}"

    @property
    def progress(self) -> Path:
        """Return the folder of the notes that units write, each at its end."""
        return self.path(PROGRESS, "")

    @property
    def columns(self) -> list[str]:
        """Return the columns to read."""
        return source_columns(self.spec.schema) if self.undo is None else self.undo.columns

    @property
    def read_columns(self) -> list[str]:
        """Return the columns to read, with those of the filter."""
        return self.columns if self.where is None else self.where.with_columns(self.columns)

    def filtered(self, batches: Iterable[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        """Keep the rows that the filter keeps, and count the others."""
        for batch in batches:
            if self.where is not None:
                batch, filtered = self.where.split(batch, self.columns)
                counts.add(Counts(filtered=filtered))
            yield batch

    @property
    def moves_times(self) -> bool:
        """Return whether recorded times differ from those of the model."""
        return self.undo is not None and self.undo.units.clock is not None

    @property
    def moves_keys(self) -> bool:
        """Return whether recorded keys differ from those of the model."""
        return self.undo is not None and any(
            name in self.undo.units.steps for name in self.spec.schema.key_names
        )

    @cached_property
    def undo(self) -> ToBaseUnits | None:
        """Return the conversion of tuples to the units of the stream's start (semantics 8.1); None if there is nothing to
        convert.
        """
        return ToBaseUnits.of(self.accents, recorded_schema(self.spec.schema))

    @property
    def rounded_flows(self) -> frozenset[str]:
        """Return the flows whose values were recorded in other units, so that converting them rounds."""
        altered = frozenset[str]() if self.undo is None else frozenset(self.undo.units.steps)
        computed = computed_flows(self.spec.schema)
        of = {
            name: computed[name].columns if name in computed else (name,)
            for name in self.spec.schema.flow_names
        }
        return frozenset(name for name, columns in of.items() if altered & set(columns))

    @cached_property
    def drops(self) -> Drops | None:
        """Return where attributes are dropped; None if none is."""
        return Drops.of(self.accents, self.spec.schema)

    def undone(self, batches: Iterable[pa.RecordBatch], leave: RejectCallback) -> Iterator[pa.RecordBatch]:
        """Convert tuples to the units of the stream's start and compute their flows; ``leave`` receives those that cannot be
        modelled.
        """
        for batch in batches:
            if self.undo is not None:
                batch = self.undo.by_time(_coded(batch, self.spec.schema.key_names), leave)
            yield with_flows(batch, self.spec.schema)

    def as_recorded(self, tuples: pa.Table | None) -> pa.Table | None:
        """Convert tuples back to the units they were recorded in, as dead letters show them."""
        if tuples is None or not self._units.needs_tuples:
            return None if tuples is None else self._units.recorded(tuples)
        # Units known from the tuples only cannot be restored; the reason notes it, lest such rows be fed back as recorded.
        reasons = [f"{one}, in the units of the start" for one in tuples.column(REASON).to_pylist()]
        return with_reason(tuples.drop_columns([REASON]), reasons)

    @cached_property
    def _units(self) -> TupleUnits:
        return TupleUnits(self.spec.schema, self.accents)

    def reached(self, tuples: pa.Table, counts: Counts, ordinal: int, last: pa.Table | None) -> pa.Table:
        """Set aside the tuples, all of their keys and in order of arrival, that are not reachable from the last kept one."""
        if self.spec.speed_limit is None:
            return tuples
        return self.without(
            tuples, self.spec.speed_limit.removes(tuples, self.spec.schema, last), counts, ordinal
        )

    def without(self, tuples: pa.Table, removed: BoolArray, counts: Counts, ordinal: int) -> pa.Table:
        """Set aside unreachable tuples of a unit, and count them."""
        if not removed.any():
            return tuples
        assert self.spec.speed_limit is not None
        aside = tuples.filter(pa.array(removed))
        reason, n = self.spec.speed_limit.reason, aside.num_rows
        counts.add(Counts(kept=-n if counts.rows else 0, removed={reason: n}))
        file = _GrowingFile(self.path(f"{ASIDE}/reach-{self.generation:03d}-unit-{ordinal:06d}"))
        file.write(with_reason(aside, [reason] * n))
        file.close()
        return tuples.filter(pa.array(~removed))


@dataclass(frozen=True)
class FileJob(FitJob):
    """A fit of files: a unit is a row group or a byte range. ``unreachable``: by unit, the rows to set aside."""

    format: Format | None = None
    units: tuple[Unit, ...] = ()
    unreachable: Mapping[int, IntArray] = field(default_factory=dict)

    def positions(self, ordinal: int) -> Iterator[pa.RecordBatch]:
        """Read the keys, times and positions of a unit, with the numbers of its rows."""
        assert self.spec.speed_limit is not None
        rows = 0
        for batch in self._read(ordinal, Counts(), lambda _: None):
            n = batch.num_rows
            found = self.spec.speed_limit.positions(pa.Table.from_batches([batch]), self.spec.schema)
            found = found.append_column(UNIT, pa.repeat(pa.scalar(ordinal, pa.int64()), n))
            found = found.append_column(ROW, pa.array(np.arange(rows, rows + n, dtype=np.int64)))
            rows += n
            yield from found.combine_chunks().to_batches()

    def _without_unreachable(
        self, batches: Iterator[pa.RecordBatch], ordinal: int, counts: Counts
    ) -> Iterator[pa.RecordBatch]:
        """Set aside the rows that are not reachable."""
        removed = self.unreachable.get(ordinal)
        if removed is None or not len(removed):
            yield from batches
            return
        unit = pa.Table.from_batches(list(batches))
        mask = np.zeros(unit.num_rows, dtype=np.bool_)
        mask[removed] = True
        yield from self.without(unit, mask, counts, ordinal).to_batches()

    def _read(self, ordinal: int, counts: Counts, aside: Aside) -> Iterator[pa.RecordBatch]:
        assert self.format is not None
        added_or_dropped = frozenset[str]() if self.accents is None else self.accents.added_or_dropped
        return read_unit(
            self.format,
            self.units[ordinal],
            self.columns,
            self.spec.schema,
            added_or_dropped,
            where=self.where,
            counts=counts,
            aside=aside,
        )

    def tuples(self, ordinal: int, counts: Counts) -> Iterator[pa.RecordBatch]:
        """Read the tuples of a unit."""
        assert self.format is not None
        format = self.format
        file = _GrowingFile(self.path(f"{ASIDE}/read-{self.generation:03d}-unit-{ordinal:06d}"))

        def removed(rows: pa.RecordBatch) -> None:
            """Set aside the rows that a filter of the format removed for a reason in :attr:`Format.set_aside`."""
            why = rows.column(REASON).cast(pa.string())
            some = rows.filter(pc.is_in(why, value_set=pa.array(sorted(format.set_aside), pa.string())))
            if some.num_rows:
                file.write(pa.Table.from_batches([some]))

        try:
            yield from self._without_unreachable(self._read(ordinal, counts, removed), ordinal, counts)
        finally:
            file.close()


def fit_unit(
    job: FitJob,
    ordinal: int,
    batches: Iterable[pa.RecordBatch],
    counts: Counts,
    *,
    as_arrived: bool = True,
) -> Iterator[pa.Table]:
    """Fit one unit's tuples: yield parts as they close. Write rejected tuples and the counts to the staging folder.

    Without ``as_arrived`` the tuples have no order, and are sorted by key and time.
    """
    fitter = fitter_for(
        job.spec,
        watermarks=job.watermarks.get(ordinal),
        record=job.keep_tuples,
        drops=job.drops,
        rounded=job.rounded_flows,
    )
    aside = _GrowingFile(job.path(f"{ASIDE}/fit-{job.generation:03d}-unit-{ordinal:06d}"))
    tuples = _GrowingFile(job.path(f"{TUPLES}-{job.generation:03d}-{ordinal:06d}"))
    left = aside.beside("accents")
    first_late = None

    def leave(rows: pa.Table, reason: str, keep: bool) -> None:
        """Count tuples that accents leave without anything to model, and with ``keep`` set them aside."""
        n = rows.num_rows
        counts.add(Counts(kept=-n if counts.rows else 0, removed={reason: n}))
        if keep:
            left.write(with_reason(rows, [reason] * n))

    try:
        tuples_of_start = job.undone(batches, leave)
        for batch in chain(tuples_of_start if as_arrived else _in_order(tuples_of_start, job), [None]):
            segments = fitter.finish() if batch is None else fitter.push(batch)
            rows = job.as_recorded(fitter.take_aside())
            first_late = first_late or _first_late(rows, job)
            aside.write(rows)
            recorded = fitter.take_recorded()
            tuples.write(None if recorded is None else as_tuples(recorded, job.spec.schema))
            if segments is not None and len(segments):
                yield _part(segments, ordinal, SEGMENTS)
    finally:
        aside.close()
        tuples.close()
        left.close()
    for points, part in fitter.ends.parts():
        yield _part(points, ordinal, part)
    extra = {"first_late": first_late, "read": asdict(counts), "kept": tuples.facts(job.spec.schema.time)}
    note = {**asdict(fitter.counts), **extra}
    write_text(job.progress / f"unit-{ordinal:06d}.json", json.dumps(note))


def _first_late(aside: pa.Table | None, job: FitJob) -> str | None:
    """Describe the first late tuple among those set aside, for a message."""
    if aside is None:
        return None
    late = aside.filter(pc.starts_with(aside.column(REASON).cast(pa.string()), REASONS[LATE]))
    if not late.num_rows:
        return None
    schema, (row,) = job.spec.schema, late.slice(0, 1).to_pylist()
    whose = ", ".join(f"{name} {row[name]!r}" for name in schema.key_names)
    at = format_instant(int(times(late.slice(0, 1), schema)[0][0]))
    return f"a tuple{f' of {whose}' if whose else ''} at {at}"


def _in_order(batches: Iterable[pa.RecordBatch], job: FitJob) -> Iterator[pa.RecordBatch]:
    """Sort all tuples by key and time, and yield them in batches."""
    some = [_coded(batch, job.spec.schema.key_names) for batch in batches if batch.num_rows]
    if some:
        table = pa.Table.from_batches(some).unify_dictionaries()
        yield from sorted_by_key_and_time(table, job.spec.schema).to_batches(max_chunksize=BATCH_ROWS)


def _coded(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    """Dictionary-encode text keys once, for the unit conversion and the fit."""
    for name in names:
        column, place = batch.column(name), batch.schema.get_field_index(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            batch = batch.set_column(place, name, column.dictionary_encode())
    return batch


def _part(batch: SegmentBatch, ordinal: int, part: int) -> pa.Table:
    from pulse.runtime.spark.arrow_frames import fitted_to_spark  # not at the top: it loads Spark

    return part_table(SegmentBatch(fitted_to_spark(batch.to_arrow()), batch.schema), ordinal, part)


@dataclass(frozen=True)
class Written:
    """The files and counts of one partition of keys."""

    files: list[dict[str, Any]] = field(default_factory=list)
    statistics: dict[str, Any] = field(default_factory=dict)
    missed: int = 0
    superseded: int = 0


def summary_schema(schema: StreamSchema) -> pa.Schema:
    """Return the schema of a worker's result: a row per partition of keys, or per key and unit that must be fitted again."""
    keys = [field for field in schema.arrow_schema() if field.name in schema.key_names]
    return pa.schema([*keys, (UNIT, pa.int64()), ("_watermark", pa.int64()), ("_written", pa.string())])


def write_part(job: FitJob, number: int, parts: pa.Table) -> pa.RecordBatch:
    """Stitch the parts of some keys and write their segments and ends; return rows of :func:`summary_schema`."""
    stitched = stitch(parts, job.spec, job.drops)
    summary = summary_schema(job.spec.schema)
    if isinstance(stitched, LateUnits):
        more = {UNIT: stitched.unit, "_watermark": stitched.watermark}
        more["_written"] = pa.nulls(len(stitched.unit), pa.string())
        late = pa.table({name: stitched.keys.column(name) for name in stitched.keys.column_names} | more)
        return late.select(summary.names).cast(summary).combine_chunks().to_batches()[0]
    segments, closing = stitched.segments, stitched.closing
    label = f"{job.generation:03d}-{number:05d}"
    if stitched.ends.num_rows:
        write_table(job.path(f"{ENDS}-{label}"), stitched.ends)
    files = [
        write_segments(job.path(f"{kind}-{label}"), some)
        for kind, some in (("part", segments.filter(~closing)), (CLOSING, segments.filter(closing)))
        if len(some)
    ]
    statistics = statistics_of(segments) if len(segments) else {}
    written = Written(files, statistics, stitched.missed, stitched.superseded)
    row = {field.name: None for field in summary} | {"_written": json.dumps(asdict(written))}
    return pa.RecordBatch.from_pylist([row], schema=summary)


class _GrowingFile:
    """A Parquet file of tuples, written as they arrive; no file if there are none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = temporary_beside(path)
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0

    def beside(self, name: str) -> _GrowingFile:
        """Return another file next to it."""
        return _GrowingFile(self._path.with_name(f"{self._path.stem}-{name}{self._path.suffix}"))

    def write(self, table: pa.Table | None) -> None:
        if table is None:
            return
        table = pa.table({n: decoded(table.column(n)) for n in table.column_names})
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            self._writer = pq.ParquetWriter(self._temporary, table.schema, compression="zstd")
        self._writer.write_table(table, row_group_size=_ROW_GROUP)
        self._rows += table.num_rows

    def facts(self, time: str) -> dict[str, Any] | None:
        """Return the manifest's entry for the file, if there is one; ``time`` is its time column."""
        if not self._rows:
            return None
        with pq.ParquetFile(self._path) as file:
            at = file.schema_arrow.get_field_index(time)
            groups = [file.metadata.row_group(i).column(at).statistics for i in range(file.num_row_groups)]
        start, end = min(one.min for one in groups), max(one.max for one in groups)
        return {
            "name": self._path.name,
            "rows": self._rows,
            "start": int(to_microseconds(start)[0]),
            "end": int(to_microseconds(end)[0]),
        }

    def close(self) -> None:
        """Close the file and publish it under its name."""
        if self._writer is not None:
            self._writer.close()
            self._temporary.replace(self._path)
            self._writer = None

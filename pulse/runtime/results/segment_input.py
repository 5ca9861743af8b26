"""Take segments that were made elsewhere: tables, batches, DataFrames, files and splines, checked row by row.

Their bounds are those that their maker states; Pulse checks what can be checked without the truth: every row is a segment
(finite, ``lo <= hi``, bounds not negative), and no two segments of a key overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.errors import SegmentError, SessionError, unknown_column
from pulse.core.schema import BOOKKEEPING, StreamSchema, Truth, certificates
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import to_microseconds
from pulse.runtime.io.arrow_input import as_table, is_paths, is_spark
from pulse.runtime.results.saving import write_frame
from pulse.store.commits import is_model
from pulse.store.derived import Part, Target, store_derived, write_part
from pulse.store.model import Model
from pulse.store.parquet_io import files_as_dataset, readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LEFT_OUT = ("segment_id", "lineage", "point")  # computed anew, or of the segments' own past


def store_segments(
    data: Any,
    schema: StreamSchema | None,
    out: Path,
    *,
    origin: Any = None,
    err: Any = None,
    keys: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Model:
    """Check segments and store them as a model; the parameters are those of :meth:`pulse.Session.segments`."""
    splines = _splines(data, schema)
    if splines is None and (origin is not None or err is not None or keys is not None):
        raise SessionError("segments: origin, err and keys go with splines; tables have these as columns")
    if splines is not None:
        data = _from_splines(splines, schema, origin, err, keys)
    if is_spark(data):
        return _store_frame(data, schema, out, overwrite)
    table, schema = _table(data, schema)
    batch = checked_batch(table, schema)

    def write(target: Target) -> Iterator[Part]:
        yield write_part(target, 0, batch)

    return store_derived(out, batch.schema, {"from": "segments"}, write, overwrite=overwrite)


def checked_batch(table: pa.Table, schema: StreamSchema) -> SegmentBatch:
    """Return the rows of a table as segments after checking them; an error names the row."""
    kinds = table.column("kind") if "kind" in table.column_names else None
    if kinds is not None and not pc.all(pc.equal(kinds, "+I"), min_count=0).as_py():
        raise SegmentError(
            "segments: the table is a changelog (its 'kind' is not +I in every row); replay it and give the rows that hold"
        )
    table = _completed(
        table.drop_columns([name for name in (*_LEFT_OUT, "kind") if name in table.column_names]), schema
    )
    if "certainty" in table.column_names and not schema.certainty:
        table = table.drop_columns(["certainty"])
    batch = SegmentBatch.from_arrow(table, schema)
    if schema.points and not batch.is_point.all():
        row = int(batch.is_point.argmin())
        raise SegmentError(
            f"segments, row {row}: lo differs from hi, but the schema is of points; leave out points=True"
        )
    return batch


def schema_of_columns(columns: pa.Schema) -> StreamSchema:
    """Infer a schema from columns in the order that Pulse writes them: keys, ref, lo, hi, unmodelled, then models.

    >>> names = {"k": pa.string(), "ref": pa.timestamp("us"), "lo": pa.float64(), "hi": pa.float64()}
    >>> schema_of_columns(pa.schema({**names, "x": pa.list_(pa.float64()), "x_err": pa.float64()}))
    StreamSchema(key k: string; time t; modelled x: linear)
    """
    names = columns.names
    for name in ("ref", "lo", "hi"):
        if name not in names:
            raise unknown_column(name, names, "segments")
    modelled = [
        one.name
        for one in columns
        if (pa.types.is_list(one.type) or pa.types.is_large_list(one.type)) and one.name not in BOOKKEEPING
    ]
    own = {
        *modelled,
        *(column for name in modelled for column in certificates(name)),
        "ref",
        "lo",
        "hi",
        *BOOKKEEPING,
    }
    first = names.index("ref")
    taken = {one.lower() for one in names}
    return StreamSchema.of(
        key={one.name: _plain(one.type) for one in list(columns)[:first] if one.name not in own},
        time=next(name for name in ("t", "time", "at", "_t") if name not in taken),
        modelled=dict.fromkeys(modelled, str(Truth.LINEAR)),
        unmodelled={one.name: _plain(one.type) for one in list(columns)[first:] if one.name not in own},
    )


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _table(data: Any, schema: StreamSchema | None) -> tuple[pa.Table, StreamSchema]:
    """Return the rows and their schema, with a certainty where some row is not certain."""
    if isinstance(data, SegmentBatch):
        schema, table = schema or data.schema, pa.Table.from_batches([data.to_arrow()])
    elif is_paths(data):
        table = _read(data)
    else:
        asked = (
            data.segments() if hasattr(data, "segments") else data
        )  # an answer, which as a table may be of tuples
        if is_spark(asked):
            raise SessionError(
                "segments: the answer is on Spark; save it with answer.save(…), or give answer.segments()"
            )
        table = as_table(asked, what="segments")
    known = schema_of_columns(table.schema) if schema is None else schema
    graded = (
        "certainty" in table.column_names
        and not pc.all(pc.equal(table.column("certainty"), "certain"), min_count=0).as_py()
    )
    return table, replace(known, certainty=graded)


def _read(data: Any) -> pa.Table:
    """Read Parquet files, or folders of them as Spark writes them."""
    given = [data] if not isinstance(data, (list, tuple)) else data
    files: list[Path] = []
    for one in map(Path, given):
        if is_model(one):
            raise SessionError(
                f"segments: {one} is a stored model already; query it as it is, or give Model(…).read()"
            )
        inside = one.glob("*.parquet") if one.is_dir() else [one]
        files += sorted(path for path in inside if not path.name.startswith("_"))
    if not files:
        raise SessionError(
            f"segments: {', '.join(map(str, given))}: expected Parquet files of segments, found none"
        )
    missing = [str(one) for one in files if not one.is_file()]
    if missing:
        raise SessionError(
            f"segments: {', '.join(missing)}: there is no such file; give Parquet files of segments"
        )
    with readable(files[0]):
        return files_as_dataset(files).to_table()


def _completed(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """Add the columns that may be left out: a drift that is unknown."""
    for name in schema.modelled_names:
        if f"{name}_drift" not in table.column_names:
            table = table.append_column(f"{name}_drift", pa.nulls(table.num_rows, pa.float64()))
    return table


def _store_frame(frame: DataFrame, schema: StreamSchema | None, out: Path, overwrite: bool) -> Model:
    from pyspark.sql import functions as F

    from pulse.runtime.spark.arrow_frames import arrow_schema_of

    known = schema_of_columns(arrow_schema_of(frame)) if schema is None else schema
    known = replace(known, certainty="certainty" in frame.columns)
    for name in known.modelled_names:
        if f"{name}_drift" not in frame.columns:
            frame = frame.withColumn(f"{name}_drift", F.lit(None).cast("double"))
    final = known

    def write(target: Target) -> list[Part]:
        return write_frame(target, frame, final, convert=checked_batch)

    return store_derived(out, known, {"from": "segments"}, write, overwrite=overwrite)


def _splines(data: Any, schema: StreamSchema | None) -> Mapping[str, Any] | None:
    """Return splines by attribute, where that is what was given."""
    if isinstance(data, Mapping) and data and all(map(_is_spline, data.values())):
        return data
    if not _is_spline(data):
        return None
    if schema is None or len(schema.modelled_names) != 1:
        raise SessionError(
            "segments: a spline alone needs a schema with one modelled attribute; else give {attribute: spline}"
        )
    return {schema.modelled_names[0]: data}


def _is_spline(one: Any) -> bool:
    return type(one).__module__.startswith("scipy.interpolate")


def _from_splines(
    splines: Mapping[str, Any],
    schema: StreamSchema | None,
    origin: Any,
    err: Any,
    keys: Mapping[str, Any] | None,
) -> SegmentBatch:
    """Build the segments of one key from scipy's splines of seconds since ``origin``."""
    if schema is None or origin is None or err is None:
        raise SessionError(
            "segments: splines need schema, origin (the time of their argument 0) and err (the bound that their maker states)"
        )
    bounds = err if isinstance(err, Mapping) else dict.fromkeys(schema.modelled_names, err)
    pieces = {name: _as_ppoly(one) for name, one in splines.items()}
    at = int(to_microseconds(origin)[0])
    return SegmentBatch.from_ppoly(pieces, schema, origin=at, err=bounds, keys=keys)


def _as_ppoly(spline: Any) -> Any:
    """Return a spline as pieces between distinct knots; B-splines repeat theirs at the ends."""
    import numpy as np
    from scipy.interpolate import BSpline, PPoly

    poly = PPoly.from_spline(spline) if isinstance(spline, BSpline) else spline
    if not isinstance(poly, PPoly):
        raise SessionError(
            f"segments: expected a PPoly, CubicSpline or BSpline of scipy, got {type(spline).__name__}"
        )
    wide = np.diff(poly.x) > 0
    if isinstance(spline, BSpline):
        wide[: spline.k] = wide[len(wide) - spline.k :] = False  # outside the spline's domain
    kept = np.flatnonzero(wide)
    if len(kept) == 0:
        raise SegmentError("segments: the spline has no piece; its knots are all equal")
    return PPoly(poly.c[:, kept], np.append(poly.x[kept], poly.x[kept[-1] + 1]))

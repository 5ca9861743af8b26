"""Check the rules of semantics 1 in bulk; the first violation is reported by row, key and time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray
from pulse.core.certainty import NAMES
from pulse.core.elements import KIND_CODES
from pulse.core.errors import (
    ElementError,
    EmptyModelError,
    NegativeBoundError,
    NotFiniteError,
    NullKeyError,
    OverlapError,
    PointError,
    ReversedRangeError,
    SegmentError,
    TimestampError,
)
from pulse.core.keys import describe_key, key_ranks
from pulse.core.schema import BOOKKEEPING, StreamSchema, certificates
from pulse.core.segment.coefficients import flat, lengths
from pulse.core.segment.order import Ranges, find_overlap
from pulse.core.time import LIMIT, format_instant


def validate(batch: pa.RecordBatch, schema: StreamSchema, *, at_rest: bool) -> None:
    """Check that every row is a segment and, ``at_rest``, that no two of one key overlap.

    Types are already checked. A changelog (a ``kind`` that is not all insertions) is not a table at rest: old and
    new values cover the same instants, so overlaps are not checked.
    """
    _check_nulls(batch, schema)
    _check_ranges(batch, schema)
    for name in schema.modelled_names:
        _check_model(batch, schema, name)
        for certificate in certificates(name):
            _check_bound(batch, schema, certificate)
    _check_points(batch, schema)
    _check_certainty(batch, schema)
    if _check_kinds(batch, schema) and at_rest:
        check_overlaps(batch, schema)


def check_overlaps(batch: pa.RecordBatch, schema: StreamSchema) -> None:
    """Check that no two segments of one key cover the same instant."""
    rank = key_ranks([batch.column(name) for name in schema.key_names], batch.num_rows)
    ref = batch.column("ref").view(pa.int64()).to_numpy()
    pair = find_overlap(Ranges(rank, ref, batch.column("lo").to_numpy(), batch.column("hi").to_numpy()))
    if pair is not None:
        first, second = pair
        raise OverlapError(
            f"{locate(batch, schema, second)}: begins before row {first} of the same key ends "
            f"({format_instant(int(ref[first]), batch.column('hi')[first].as_py())}); a table at rest has no "
            "overlaps (semantics 1.4): if the later row is an update, build the batch with at_rest=False and "
            "call apply_updates()"
        )


def locate(batch: pa.RecordBatch, schema: StreamSchema, row: int) -> str:
    """Describe the location of a row for a message."""
    key = describe_key(batch, schema, row)
    ref, lo = batch.column("ref").view(pa.int64())[row].as_py(), batch.column("lo")[row].as_py()
    if ref is None or lo is None or not np.isfinite(lo):
        return f"segments, row {row} ({key})"
    return f"segments, row {row} ({key}, from {format_instant(ref, lo)})"


def _check_nulls(batch: pa.RecordBatch, schema: StreamSchema) -> None:
    numbers = ["ref", "lo", "hi", *(f"{name}_err" for name in schema.modelled_names)]
    required: dict[str, type[SegmentError]] = {
        **dict.fromkeys(schema.key_names, NullKeyError),
        **dict.fromkeys(numbers, NotFiniteError),
        **dict.fromkeys(schema.modelled_names, EmptyModelError),
        **dict.fromkeys((name for name in BOOKKEEPING if name in batch.schema.names), SegmentError),
    }
    for name, error in required.items():
        column = batch.column(name)
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise error(f"{locate(batch, schema, row)}: '{name}' is null; fill it or drop the row")


def _check_ranges(batch: pa.RecordBatch, schema: StreamSchema) -> None:
    lo, hi = batch.column("lo").to_numpy(), batch.column("hi").to_numpy()
    for name, offset in (("lo", lo), ("hi", hi)):
        if (row := _first(~np.isfinite(offset))) is not None:
            raise NotFiniteError(
                f"{locate(batch, schema, row)}: '{name}' is {offset[row]}; give a finite number of seconds"
            )
    if (row := _first(hi < lo)) is not None:
        raise ReversedRangeError(
            f"{locate(batch, schema, row)}: hi {hi[row]} is below lo {lo[row]}; a segment covers [ref + lo, ref + hi), "
            "swap them or drop the row"
        )
    ref = batch.column("ref").view(pa.int64()).to_numpy()
    beyond = (np.maximum(np.abs(lo), np.abs(hi)) > LIMIT / 1e6) | (ref > LIMIT) | (ref < -LIMIT)
    if (row := _first(beyond)) is not None:
        raise TimestampError(
            f"segments, row {row} ({describe_key(batch, schema, row)}): ref {ref[row]} us, lo {lo[row]} s, hi {hi[row]} s "
            "exceed ±10**18 microseconds (about 31,700 years); check the units"
        )


def _check_model(batch: pa.RecordBatch, schema: StreamSchema, name: str) -> None:
    lists = batch.column(name)
    counts = lengths(lists)
    if (row := _first(counts == 0)) is not None:
        raise EmptyModelError(
            f"{locate(batch, schema, row)}: '{name}' has no coefficient; a constant has one"
        )
    if (at := _first(~np.isfinite(flat(lists)))) is not None:
        row = int(np.searchsorted(np.cumsum(counts), at, side="right"))
        raise NotFiniteError(
            f"{locate(batch, schema, row)}: '{name}' has coefficients {lists[row].as_py()}; all must be finite, refit it"
        )


def _check_bound(batch: pa.RecordBatch, schema: StreamSchema, name: str) -> None:
    column = batch.column(name)
    bound = column.fill_null(0.0).to_numpy() if column.null_count else column.to_numpy()
    if (row := _first(~np.isfinite(bound))) is not None:
        raise NotFiniteError(
            f"{locate(batch, schema, row)}: '{name}' is {bound[row]}; a certified bound is finite"
            + (" (null when unknown)" if name.endswith(("_drift", "_err2")) else "")
        )
    if (row := _first(bound < 0.0)) is not None:
        raise NegativeBoundError(
            f"{locate(batch, schema, row)}: '{name}' is {bound[row]}; a bound is not negative"
        )


def _check_points(batch: pa.RecordBatch, schema: StreamSchema) -> None:
    if "point" not in batch.schema.names:
        return
    flagged = batch.column("point").to_numpy(zero_copy_only=False)
    is_point = batch.column("lo").to_numpy() == batch.column("hi").to_numpy()
    if (row := _first(flagged != is_point)) is not None:
        what = (
            "lo equals hi, but it is not flagged as a point"
            if is_point[row]
            else "flagged as a point, but lo differs from hi"
        )
        raise PointError(
            f"{locate(batch, schema, row)}: {what}; set 'point' to lo == hi, or drop empty ranges"
        )


def _check_certainty(batch: pa.RecordBatch, schema: StreamSchema) -> None:
    if "certainty" not in batch.schema.names:
        return
    given = batch.column("certainty")
    known = pc.is_in(given, value_set=pa.array(NAMES[1:])).to_numpy(zero_copy_only=False)
    if (row := _first(~known)) is not None:
        raise ElementError(
            f"{locate(batch, schema, row)}: 'certainty' is {given[row].as_py()!r}; expected {', '.join(NAMES[1:])}"
        )


def _check_kinds(batch: pa.RecordBatch, schema: StreamSchema) -> bool:
    """Test whether all rows are insertions; an unknown code is an error."""
    if "kind" not in batch.schema.names:
        return True
    kinds = batch.column("kind")
    known = pc.is_in(kinds, value_set=pa.array(KIND_CODES)).to_numpy(zero_copy_only=False)
    if (row := _first(~known)) is not None:
        raise ElementError(
            f"{locate(batch, schema, row)}: 'kind' is {kinds[row].as_py()!r}; expected one of {', '.join(KIND_CODES)}"
        )
    return bool(pc.all(pc.equal(kinds, "+I"), min_count=0).as_py())


def _first(mask: BoolArray) -> int | None:
    """Return the first row where the mask holds; None where none does."""
    return int(mask.argmax()) if mask.any() else None

"""Hold batches of segments over Arrow (semantics 1).

Row ``i`` states: for its key, over ``[ref + lo, ref + hi)``, each modelled attribute ``a`` is
``sum(a[j] * (t - ref)**j)``, within ``a_err`` of the truth. The columns are listed in :mod:`pulse.core.schema`:

=============  ==========================================================================================
key columns    any plain Arrow type but floats, no nulls; there may be none
``ref``        ``timestamp[us]`` without a zone: by definition microseconds since the epoch in UTC
``lo``, ``hi`` float64 seconds relative to ``ref``, half open; ``lo == hi`` is a point segment
unmodelled     any plain Arrow type, constant over the segment; may be null
``a``          list of float64, lowest order first
``a_err``      float64, certified at every instant
``a_drift``    float64, certified for integrals from the start of the key's model; null when unknown
``a_err2``     float64, certified for the integral of the squared error over the segment; null when unknown
``segment_id`` optional int64; see :mod:`pulse.core.segment.ids`
``lineage``    optional list of (segment_id, key, ref, lo, hi) of the segments that caused this one
``kind``       optional changelog code, see :mod:`pulse.core.elements`; without it all rows are insertions
``point``      optional bool: ``lo == hi`` is meant; without it ``lo == hi`` alone decides
``certainty``  optional ``certain``, ``likely`` or ``possible`` (semantics 3.9); without it all are certain
=============  ==========================================================================================

Batches are immutable and share memory with the Arrow data they come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core import html
from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.elements import KIND_CODES, ElementKind
from pulse.core.errors import (
    ReversedRangeError,
    SchemaMismatchError,
    SegmentError,
    TimestampError,
    unknown_column,
)
from pulse.core.keys import key_mask, key_ranks
from pulse.core.schema import BOOKKEEPING, StreamSchema
from pulse.core.segment.coefficients import lengths, to_padded
from pulse.core.segment.columns import column, from_columns, from_table
from pulse.core.segment.ids import own_lineage, segment_ids
from pulse.core.segment.order import Ranges, covering, is_in_order, narrow, time_order
from pulse.core.segment.rules import check_overlaps, validate
from pulse.core.segment.updates import truncate_overlaps
from pulse.core.time import format_instant, to_microseconds
from pulse.kernels.polynomial.arithmetic import evaluate

if TYPE_CHECKING:
    from scipy.interpolate import PPoly

    from pulse.core.segment.ppoly import PolynomialRuns


class SegmentBatch:
    """A batch of segments of one stream over Arrow.

    Built by :meth:`from_arrays`, :meth:`from_arrow`, :meth:`from_pandas`, :meth:`from_ppoly`; the constructor itself is
    unchecked, for code whose columns are known to be valid.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, batch: pa.RecordBatch, schema: StreamSchema) -> None:
        self._batch = batch
        self.schema = schema

    # -- made from ------------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        schema: StreamSchema,
        *,
        keys: Mapping[str, Any] | None = None,
        ref: Any,
        lo: Any,
        hi: Any,
        models: Mapping[str, Any],
        err: Mapping[str, Any],
        drift: Mapping[str, Any] | None = None,
        err2: Mapping[str, Any] | None = None,
        unmodelled: Mapping[str, Any] | None = None,
        at_rest: bool = True,
        **bookkeeping: Any,
    ) -> SegmentBatch:
        """Build segments from arrays; a scalar is repeated for all rows.

        ``ref`` is anything :func:`~pulse.core.time.to_microseconds` reads. A model is an array ``(n, k)``, a pair
        ``(flat, offsets)``, or an Arrow list column. ``bookkeeping`` may name ``segment_id``, ``lineage``, ``kind``,
        ``point`` and ``certainty``. With ``at_rest=False`` segments of a key may overlap (:meth:`apply_updates`).

        >>> trades = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
        >>> batch = SegmentBatch.from_arrays(trades, keys={"symbol": ["A", "B"]}, ref=[0, 0], lo=0.0, hi=[5.0, 6.0],
        ...                                  models={"price": [[10.0, 0.5], [7.0, 0.0]]}, err={"price": 0.01})
        >>> batch.coefficients("price")
        array([[10. ,  0.5],
               [ 7. ,  0. ]])
        """
        batch = from_columns(
            schema,
            keys=keys or {},
            ref=ref,
            lo=lo,
            hi=hi,
            models=models,
            err=err,
            drift=drift or {},
            err2=err2 or {},
            unmodelled=unmodelled or {},
            bookkeeping={name: values for name, values in bookkeeping.items() if values is not None},
        )
        validate(batch, schema, at_rest=at_rest)
        return cls(batch, schema)

    @classmethod
    def from_arrow(
        cls,
        table: pa.Table | pa.RecordBatch,
        schema: StreamSchema,
        *,
        check: bool = True,
        at_rest: bool = True,
    ) -> SegmentBatch:
        """Build segments from an Arrow table that has exactly the columns of the schema, in any order.

        Encodings are converted, never values. ``check=False`` trusts the rows (not the columns).
        """
        batch = from_table(table, schema)
        if check:
            validate(batch, schema, at_rest=at_rest)
        return cls(batch, schema)

    @classmethod
    def from_pandas(cls, frame: Any, schema: StreamSchema, *, at_rest: bool = True) -> SegmentBatch:
        """Build segments from a pandas frame; its index is ignored. NaN is read as null, so an unknown drift may be NaN."""
        return cls.from_arrow(pa.Table.from_pandas(frame, preserve_index=False), schema, at_rest=at_rest)

    @classmethod
    def from_ppoly(
        cls,
        runs: Mapping[str, PPoly | Sequence[PPoly]],
        schema: StreamSchema,
        *,
        origin: int,
        err: Mapping[str, Any],
        keys: Mapping[str, Any] | None = None,
        drift: Mapping[str, Any] | None = None,
        unmodelled: Mapping[str, Any] | None = None,
    ) -> SegmentBatch:
        """Build segments of one key from scipy's piecewise polynomials of seconds since ``origin`` (microseconds).

        All modelled attributes are given, cut at the same breakpoints: a ``PPoly`` or one per hole-free run.
        """
        from pulse.core.segment.ppoly import from_ppoly

        pieces = from_ppoly(runs, origin)
        return cls.from_arrays(
            schema, keys=keys, **pieces._asdict(), err=err, drift=drift, unmodelled=unmodelled
        )

    @classmethod
    def empty(cls, schema: StreamSchema, bookkeeping: Iterable[str] = ()) -> SegmentBatch:
        """Build a batch without segments."""
        return cls(pa.RecordBatch.from_pylist([], schema=schema.arrow_schema(bookkeeping)), schema)

    @classmethod
    def concat(cls, batches: Sequence[SegmentBatch], *, at_rest: bool = True) -> SegmentBatch:
        """Concatenate batches of one stream; bookkeeping columns must be the same in all."""
        if not batches:
            raise SegmentError("concat: expected at least one batch; SegmentBatch.empty(schema) has no rows")
        for other in batches[1:]:
            batches[0].schema.check_same(other.schema)
            if other._batch.schema != batches[0]._batch.schema:
                raise SchemaMismatchError(
                    f"concat: bookkeeping columns differ: {batches[0].bookkeeping} and {other.bookkeeping}; "
                    "set or drop them with with_bookkeeping()"
                )
        batch = pa.concat_batches([other._batch for other in batches])
        result = cls(batch, batches[0].schema)
        if at_rest and result.is_insertions:
            check_overlaps(batch, result.schema)
        return result

    # -- views ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    @cached_property
    def ref(self) -> IntArray:
        """Return the references, microseconds since the epoch: a view."""
        array: IntArray = self._batch.column("ref").view(pa.int64()).to_numpy()
        return array

    @cached_property
    def lo(self) -> FloatArray:
        """Return the starts, seconds relative to ``ref``: a view."""
        return self._floats("lo")

    @cached_property
    def hi(self) -> FloatArray:
        """Return the ends, seconds relative to ``ref``: a view."""
        return self._floats("hi")

    @cached_property
    def is_point(self) -> BoolArray:
        """Return the mask of segments that are a single instant."""
        return np.equal(self.lo, self.hi)

    @cached_property
    def key_ranks(self) -> IntArray:
        """Return per row the rank of its key within the batch: equal for equal keys, ordered as the keys are."""
        return key_ranks([self._batch.column(name) for name in self.schema.key_names], len(self))

    @cached_property
    def ranges(self) -> Ranges:
        """Return key ranks and time ranges, as the functions of :mod:`pulse.core.segment.order` take them."""
        return Ranges(self.key_ranks, self.ref, self.lo, self.hi)

    def coefficients(self, attribute: str) -> FloatArray:
        """Return coefficients of shape ``(n, k)``: a view when all degrees are equal, else a copy padded with zeros."""
        return to_padded(self._modelled(attribute))

    def degrees(self, attribute: str) -> IntArray:
        """Return the number of coefficients less one, per segment."""
        return lengths(self._modelled(attribute)) - 1

    def err(self, attribute: str) -> FloatArray:
        """Return the certified bound per segment: a view."""
        self._modelled(attribute)
        return self._floats(f"{attribute}_err")

    def drift(self, attribute: str) -> np.ma.MaskedArray[Any, Any]:
        """Return the certified drift per segment, masked where unknown."""
        return self._maybe(attribute, "drift")

    def err2(self, attribute: str) -> np.ma.MaskedArray[Any, Any]:
        """Return the certified integral of the squared error per segment (value² seconds), masked where unknown."""
        return self._maybe(attribute, "err2")

    def rms(self, attribute: str) -> FloatArray:
        """Return the certified root mean square error per segment: at most its bound at every instant."""
        length, square = self.hi - self.lo, self.err2(attribute).filled(np.inf)
        mean = np.divide(square, length, out=np.full(len(self), np.inf), where=length > 0.0)
        return np.asarray(np.minimum(np.sqrt(mean) * (1.0 + 2.0**-50), self.err(attribute)))

    def column(self, name: str) -> pa.Array:
        """Return a column as an Arrow array."""
        if name not in self._batch.schema.names:
            raise unknown_column(name, self._batch.schema.names, "segments")
        return self._batch.column(name)

    def has(self, name: str) -> bool:
        """Test whether the batch has this column."""
        return name in self._batch.schema.names

    @property
    def bookkeeping(self) -> tuple[str, ...]:
        """Return those of ``segment_id``, ``lineage``, ``kind``, ``point``, ``certainty`` that the batch has."""
        return tuple(name for name in BOOKKEEPING if self.has(name))

    @property
    def is_insertions(self) -> bool:
        """Test whether every row is an insertion."""
        return not self.has("kind") or bool(pc.all(pc.equal(self.column("kind"), "+I"), min_count=0).as_py())

    @property
    def weights(self) -> IntArray:
        """Return +1 for rows that add a segment to the stream, -1 for rows that retract one."""
        if not self.has("kind"):
            return np.ones(len(self), dtype=np.int64)
        codes = pc.index_in(self.column("kind"), value_set=pa.array(KIND_CODES)).to_numpy()
        weights: IntArray = np.array([kind.weight for kind in ElementKind], dtype=np.int64)[codes]
        return weights

    # -- converted to ---------------------------------------------------------------------------------------

    def to_arrow(self) -> pa.RecordBatch:
        """Return the Arrow data itself."""
        return self._batch

    def to_pandas(self) -> Any:
        """Return a pandas frame; ``ref`` is ``datetime64[us]``, coefficients are numpy arrays, unknown drifts are NaN."""
        return self._batch.to_pandas(integer_object_nulls=True)

    def to_polars(self) -> Any:
        """Return a Polars frame. Needs Polars."""
        from pulse.core.polars_frame import polars_frame

        return polars_frame(self._batch)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the batch through the Arrow PyCapsule interface."""
        return self._batch.__arrow_c_stream__(requested_schema)

    def to_ppoly(self, attribute: str, *, key: Any = None, origin: int | None = None) -> PolynomialRuns:
        """Return the model of one key as ``(origin, runs)``: one scipy ``PPoly`` per hole-free run.

        Its argument is seconds since ``origin`` (microseconds; by default the ``ref`` of the key's first segment). Points are
        omitted.
        """
        from pulse.core.segment.ppoly import to_ppoly

        one = self._at_rest(self.of_key(key)).sort()
        one = one.filter(~one.is_point)
        return to_ppoly(one.ranges, one.coefficients(attribute), origin)

    # -- selected -------------------------------------------------------------------------------------------

    def slice(self, offset: int, length: int | None = None) -> SegmentBatch:
        """Return rows ``offset`` to ``offset + length``, without a copy."""
        return SegmentBatch(self._batch.slice(offset, length), self.schema)

    def take(self, rows: Any) -> SegmentBatch:
        """Return these rows, in this order."""
        return SegmentBatch(self._batch.take(pa.array(np.asarray(rows, dtype=np.int64))), self.schema)

    def filter(self, mask: Any) -> SegmentBatch:
        """Return the rows where the mask is true."""
        mask = np.asarray(mask, dtype=bool)
        if mask.shape != (len(self),):
            raise SegmentError(
                f"filter: expected a mask of one per segment ({len(self)}), got shape {mask.shape}"
            )
        return self if mask.all() else SegmentBatch(self._batch.filter(pa.array(mask)), self.schema)

    def of_key(self, key: Any = None) -> SegmentBatch:
        """Return the segments of one key: a mapping of key columns to values, or the value of the only key column.

        ``None`` means the only key of the batch; it is an error if there are several.
        """
        if key is not None:
            return self.filter(key_mask(self._batch, self.schema, key))
        if len(self) and self.key_ranks.min() != self.key_ranks.max():
            raise SegmentError(
                f"segments of {len(np.unique(self.key_ranks))} keys: select one by {list(self.schema.key_names)}"
            )
        return self

    def sort(self) -> SegmentBatch:
        """Sort by key, then start."""
        order = time_order(self.ranges)
        return self if order is None else self.take(order)

    @cached_property
    def is_sorted(self) -> bool:
        """Test whether rows are sorted by key, then start."""
        return is_in_order(self.ranges)

    def restrict(self, start: Any = None, end: Any = None) -> SegmentBatch:
        """Restrict the segments to ``[start, end)``; None is no limit. Coefficients do not change (1.1).

        Start and end are timestamps or microseconds. A remainder shorter than the tolerance of instants is dropped.
        """
        begin, stop = _instant(start), _instant(end)
        if begin is not None and stop is not None and stop < begin:
            raise ReversedRangeError(f"restrict: the end {end} lies before the start {start}; swap them")
        keep, lo, hi = narrow(self.ranges, begin, stop)
        return self.with_columns(lo=lo, hi=hi).filter(keep)

    def apply_updates(self) -> SegmentBatch:
        """Apply the rows as updates in order of arrival and return the table at rest (semantics 1.4)."""
        if not self.is_insertions:
            raise SegmentError(
                "apply_updates: revisions are not updates (semantics 7.1); apply the changelog first"
            )
        keep, hi = truncate_overlaps(self.ranges)
        return self.with_columns(hi=hi).filter(keep)

    # -- used -----------------------------------------------------------------------------------------------

    def evaluate(self, attribute: str, times: Any, *, key: Any = None) -> np.ma.MaskedArray[Any, Any]:
        """Evaluate the model of one key at these times (microseconds or timestamps), masked where no segment covers one."""
        one = self._at_rest(self.of_key(key)).sort()
        at = to_microseconds(times)
        rows, covered = covering(one.ranges, at)
        values = np.zeros(len(at))
        rows = rows[covered]
        values[covered] = evaluate(one.coefficients(attribute)[rows], (at[covered] - one.ref[rows]) / 1e6)
        return np.ma.MaskedArray(values, mask=~covered)

    def with_ids(self) -> SegmentBatch:
        """Return the batch with a ``segment_id`` computed from key, start and content (:mod:`pulse.core.segment.ids`)."""
        return self.with_bookkeeping(segment_id=pa.array(segment_ids(self._batch, self.schema)))

    def own_lineage(self) -> pa.ListArray:
        """Return each segment as a lineage of one entry, as operators record their inputs."""
        return own_lineage(self._batch, self.schema)

    def with_bookkeeping(self, **columns: Any) -> SegmentBatch:
        """Return the batch with these of ``segment_id``, ``lineage``, ``kind``, ``point``, ``certainty`` set; None removes it."""
        kept = [name for name in self.bookkeeping if name not in columns]
        wanted = self.schema.arrow_schema([*kept, *(name for name in columns if columns[name] is not None)])
        given = {
            name: columns[name] if name in columns else self._batch.column(name) for name in wanted.names
        }
        arrays = [column(given[field.name], field, len(self)) for field in wanted]
        batch = pa.RecordBatch.from_arrays(arrays, schema=wanted)
        validate(batch, self.schema, at_rest=False)
        return SegmentBatch(batch, self.schema)

    def with_columns(self, **columns: Any) -> SegmentBatch:
        """Return the batch with these of its columns replaced, unchecked."""
        batch = self._batch
        for name, values in columns.items():
            at = batch.schema.get_field_index(name)
            column = values if isinstance(values, pa.Array) else pa.array(values)
            batch = batch.set_column(at, batch.schema.field(at), column)
        return SegmentBatch(batch, self.schema)

    # -- plumbing -------------------------------------------------------------------------------------------

    def equals(self, other: SegmentBatch) -> bool:
        """Test whether schema, columns and rows are the same."""
        return self.schema == other.schema and bool(self._batch.equals(other._batch))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SegmentBatch) and self.equals(other)

    def __reduce__(self) -> Any:
        # Arrow's own pickle contains the whole buffers of a slice; its stream format only the rows.
        return _unpickle, (self._batch.serialize().to_pybytes(), self._batch.schema, self.schema)

    def __repr__(self) -> str:
        if not len(self):
            return f"SegmentBatch(no segments; {self.schema!r})"
        begin, end = np.argmin(self.ref + self.lo * 1e6), np.argmax(self.ref + self.hi * 1e6)
        keys = len(np.unique(self.key_ranks))
        span = f"{format_instant(self.ref[begin], self.lo[begin])} to {format_instant(self.ref[end], self.hi[end])}"
        return f"SegmentBatch({len(self)} segments of {keys} key{'s' * (keys != 1)}, {span}; {self.schema!r})"

    def _repr_html_(self) -> str:
        shown = pa.Table.from_batches([self._batch.slice(0, 10)])
        return html.paragraph(repr(self)) + html.arrow_table(shown)

    def _floats(self, name: str) -> FloatArray:
        array: FloatArray = self._batch.column(name).to_numpy()
        return array

    def _maybe(self, attribute: str, certificate: str) -> np.ma.MaskedArray[Any, Any]:
        self._modelled(attribute)
        column = self._batch.column(f"{attribute}_{certificate}")
        unknown = column.is_null().to_numpy(zero_copy_only=False)
        return np.ma.MaskedArray(column.fill_null(0.0).to_numpy(), mask=unknown)

    def _modelled(self, attribute: str) -> pa.ListArray:
        self.schema.truth(attribute)  # raises an error that lists the modelled attributes
        return self._batch.column(attribute)

    @staticmethod
    def _at_rest(batch: SegmentBatch) -> SegmentBatch:
        check_overlaps(batch._batch, batch.schema)
        return batch


def _unpickle(data: bytes, columns: pa.Schema, schema: StreamSchema) -> SegmentBatch:
    return SegmentBatch(pa.ipc.read_record_batch(pa.py_buffer(data), columns), schema)


def _instant(time: Any) -> int | None:
    if time is None:
        return None
    at = to_microseconds(time)
    if len(at) != 1:
        raise TimestampError(f"expected one timestamp, got {len(at)}")
    return int(at[0])

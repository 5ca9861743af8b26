"""Revisions of a stream's tuples: insertions (also late ones), deletions and replacements, as a table (semantics 7.1).

Rows are those of a changelog (:mod:`pulse.core.elements`), in order of arrival, a replacement's old row right before its new::

    kind  known                symbol  t                    price
    -U    2018-01-02 16:00:00  IBM     2018-01-02 14:00:00  25.0      the old value: identifies the tuple
    +U    2018-01-02 16:00:00  IBM     2018-01-02 14:00:00  22.0      the value that should have been recorded
    -D    null                 IBM     2018-01-02 15:10:00  24.5

``known`` is the instant at which the correction became known; null means the time of its application. The key, the time and all
values of an old row identify its tuple. Values that are not finite pass: the code that applies a revision rejects it to the
dead letters, like all others that match no tuple, with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.arrow_types import REF, conform, one_chunk
from pulse.core.decimals import as_doubles
from pulse.core.elements import KIND_CODES
from pulse.core.errors import ElementError, SchemaError, unknown_column
from pulse.core.regions import Regions
from pulse.core.schema import StreamSchema
from pulse.core.time import split_timestamps

KIND, KNOWN, REASON = "kind", "known", "reason"
NO_KNOWN = -(1 << 63)
"""The value of :attr:`Revisions.known` where a revision has no known time."""

INSERTION, DELETION, OLD, NEW, UNKNOWN_KIND = range(5)
"""The codes of kinds (:func:`kind_codes`)."""

_MOST_NAMED = 3  # tuples that a reason lists
_MALFORMED = "malformed: "


def revision_schema(schema: StreamSchema) -> pa.Schema:
    """Return the columns of revisions of this stream: kind, known, then key, time, modelled, unmodelled.

    >>> revision_schema(StreamSchema.of(time="t", modelled={"price": "step"})).names
    ['kind', 'known', 't', 'price']
    """
    if KNOWN in schema.names:
        raise SchemaError(
            f"revisions: the stream has an attribute '{KNOWN}', which revisions use for their known time; rename it"
        )
    modelled = [(name, pa.float64()) for name in schema.modelled_names]
    return pa.schema(
        [(KIND, pa.string()), (KNOWN, REF), *schema.key, (schema.time, REF), *modelled, *schema.unmodelled]
    )


@dataclass(frozen=True, eq=False)
class Revisions:
    """Revisions in order of arrival; built by :meth:`of` or :meth:`sift`. ``len()`` counts elements, not rows."""

    schema: StreamSchema
    table: pa.Table

    @classmethod
    def of(cls, table: Any, schema: StreamSchema, *, known: str | None = None) -> Revisions:
        """Build revisions from a table with a column ``kind`` and the stream's attributes; other columns are dropped.

        ``known`` names the column of known times (default ``known``, if present). A table that is no changelog raises an
        :class:`ElementError` that names the row, what was expected and what came.

        >>> schema = StreamSchema.of(time="t", modelled={"price": "step"})
        >>> rows = {"kind": ["-U", "+U"], "t": np.array([5, 5], "datetime64[s]"), "price": [25.0, 22.0]}
        >>> revisions = Revisions.of(pa.table(rows), schema)
        >>> len(revisions), revisions.old_rows.tolist(), revisions.new_rows.tolist()
        (1, [0], [1])
        """
        typed = revision_rows(table, schema, known=known)
        for row, reason in enumerate(_wrong(typed, schema)):
            if reason:
                raise ElementError(f"revisions, row {row}: {reason}")
        return cls(schema, _known_of_pairs(typed))

    @classmethod
    def sift(
        cls,
        table: Any,
        schema: StreamSchema,
        *,
        wrong: Sequence[str] = (),
        unread: Sequence[tuple[int, str]] = (),
    ) -> tuple[Revisions, pa.Table]:
        """Build revisions like :meth:`of`, but return rows that form no element separately, with a column ``reason``.

        ``wrong``: per row, the error that a reader found, or an empty text. ``unread``: what a reader could not turn into a
        row, and the number of rows before it. Neither makes rows neighbours that were not: a replacement is two neighbouring
        rows, accepted or rejected as a whole. Missing columns and columns of the wrong type remain an error: then no row can be
        read.
        """
        typed = revision_rows(table, schema)
        reasons = _wrong(typed, schema, wrong, unread)
        bad = np.array([reason != "" for reason in reasons], dtype=bool)
        if not bad.any():
            return cls(schema, _known_of_pairs(typed)), with_reason(typed.slice(0, 0), [])
        aside = with_reason(typed.filter(pa.array(bad)), [reason for reason in reasons if reason])
        return cls(schema, _known_of_pairs(typed.filter(pa.array(~bad)))), aside

    @classmethod
    def empty(cls, schema: StreamSchema) -> Revisions:
        """Return no revisions."""
        return cls(schema, revision_schema(schema).empty_table())

    @classmethod
    def concat(cls, parts: Sequence[Revisions]) -> Revisions:
        """Concatenate revisions of the same stream."""
        for part in parts[1:]:
            if part.schema != parts[0].schema:
                raise SchemaError(f"revisions of different streams: {parts[0].schema} and {part.schema}")
        return cls(parts[0].schema, pa.concat_tables([part.table for part in parts]).combine_chunks())

    def __len__(self) -> int:
        return len(self._starts)

    @cached_property
    def _codes(self) -> IntArray:
        return kind_codes(self.table.column(KIND))

    @cached_property
    def _starts(self) -> IntArray:
        return np.flatnonzero(self._codes != NEW)

    @cached_property
    def old_rows(self) -> IntArray:
        """Return per element the row of the table that holds the old value, or -1."""
        return np.where(self._codes[self._starts] == INSERTION, -1, self._starts)

    @cached_property
    def new_rows(self) -> IntArray:
        """Return per element the row of the table that holds the new value, or -1."""
        code = self._codes[self._starts]
        return np.where(code == DELETION, -1, np.where(code == OLD, self._starts + 1, self._starts))

    @cached_property
    def times(self) -> IntArray:
        """Return per row the microseconds since the epoch."""
        return _microseconds(self.table.column(self.schema.time))

    @cached_property
    def known(self) -> IntArray:
        """Return per element the instant it became known, or :data:`NO_KNOWN`."""
        return _known(self.table)[self._starts]

    @property
    def keys(self) -> tuple[pa.Array, ...]:
        """Return the key columns, per row."""
        return tuple(one_chunk(self.table.column(name)) for name in self.schema.key_names)

    def take(self, elements: IntArray) -> Revisions:
        """Return these elements, in this order."""
        elements = np.asarray(elements, dtype=np.int64)
        old, new = self.old_rows[elements], self.new_rows[elements]
        rows = np.stack([old, new], axis=1).ravel()
        return Revisions(self.schema, self.table.take(pa.array(rows[rows >= 0])))

    def regions(self) -> Regions:
        """Return a region of one microsecond at each row, for old and new values alike."""
        return Regions.of_instants(self.keys, self.times)


def with_reason(rows: pa.Table, reasons: Sequence[str] | pa.Array) -> pa.Table:
    """Append a column with the reason to rejected rows."""
    return rows.append_column(REASON, pa.array(reasons, pa.string()))


def revision_rows(table: Any, schema: StreamSchema, *, known: str | None = None) -> pa.Table:
    """Convert a table to the columns and types of revisions, whether or not rows form elements; see :meth:`Revisions.of`."""
    wanted = revision_schema(schema)
    table = table if isinstance(table, pa.Table) else pa.table(table)
    given = KNOWN if known is None and KNOWN in table.column_names else known
    for name in [*wanted.names, *([known] if known is not None else [])]:
        if name not in table.column_names and name != KNOWN:
            error = unknown_column(name, table.column_names, "revisions")
            raise ElementError(str(error))
    columns = [_typed(table, given if field.name == KNOWN else field.name, field) for field in wanted]
    return pa.table(columns, schema=wanted)


def _typed(table: pa.Table, source: str | None, field: pa.Field) -> pa.Array:
    if source is None:
        return pa.nulls(table.num_rows, field.type)
    column = one_chunk(table.column(source))
    if field.type == REF and not pa.types.is_null(column.type):
        return _timestamps(column, source)
    if field.type == pa.float64() and pa.types.is_decimal(column.type):
        return as_doubles(column)
    try:
        return conform(column, field.type, column=source)
    except SchemaError as e:
        raise ElementError(f"revisions, {e}") from None


def _timestamps(column: pa.Array, name: str) -> pa.Array:
    """Convert to microseconds, rounding down as a fit does; nulls stay."""
    if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        raise ElementError(
            f"revisions, column '{name}': expected timestamps, got {column.type}; parse it first"
        )
    missing = column.is_null().to_numpy(zero_copy_only=False)
    filled = column.fill_null(pa.scalar(0, pa.int64()).cast(column.type)) if missing.any() else column
    whole, _ = split_timestamps(filled)
    return pa.array(whole, mask=missing if missing.any() else None).cast(REF)


def kind_codes(column: pa.ChunkedArray) -> IntArray:
    """Encode the kinds of rows; any other text is UNKNOWN_KIND.

    >>> kind_codes(pa.chunked_array([["+I", "-U", "?", None]])).tolist() == [INSERTION, OLD, UNKNOWN_KIND, UNKNOWN_KIND]
    True
    """
    texts = column if pa.types.is_string(column.type) else column.cast(pa.string())
    found = pc.index_in(texts, value_set=pa.array(KIND_CODES)).fill_null(UNKNOWN_KIND)
    return np.asarray(found.to_numpy(), dtype=np.int64)


def not_recorded(
    where: str, row: int, held: Sequence[int], format_row: Callable[[int], str], *, replaces: bool
) -> str:
    """Explain why a revision matches nothing: its old ``row`` is not recorded; ``held`` are the recorded rows,
    ``format_row`` formats one.

    >>> not_recorded("at noon", 0, [1], lambda row: f"x = {row}", replaces=False)
    'deletion of a tuple that is not recorded: at noon: expected x = 0; recorded there: x = 1'
    """
    what = (
        "replacement of a tuple that is not recorded"
        if replaces
        else "deletion of a tuple that is not recorded"
    )
    there = "; ".join(format_row(one) for one in held[:_MOST_NAMED])
    more = f"; and {len(held) - _MOST_NAMED} more" if len(held) > _MOST_NAMED else ""
    recorded = f"recorded there: {there}{more}" if held else "nothing is recorded there"
    return f"{what}: {where}: expected {format_row(row)}; {recorded}"


def _wrong(
    table: pa.Table, schema: StreamSchema, given: Sequence[str] = (), unread: Sequence[tuple[int, str]] = ()
) -> list[str]:
    """Return per row why it is part of no element; empty where it is. See :meth:`Revisions.sift`."""
    kinds, codes = table.column(KIND), kind_codes(table.column(KIND))
    n = len(codes)
    reasons = list(given) or [""] * n
    is_led = np.append(False, codes[:-1] == OLD)[:n] & (codes == NEW)  # its other half is right before it
    is_led[[row for row, _ in unread if row < n]] = False
    leads = np.append(is_led[1:], False)[:n]
    last, first = dict(unread), dict(reversed(unread))  # unread input right before a row

    def report(mask: BoolArray, what: str, got: Callable[[int], str]) -> None:
        for row in np.flatnonzero(mask).tolist():
            reasons[row] = reasons[row] or f"{_MALFORMED}{what}{got(row).removeprefix(_MALFORMED)}"

    def before(row: int) -> str:
        return last.get(row) or (str(kinds[row - 1]) if row else "the beginning")

    def after(row: int) -> str:
        return first.get(row + 1) or (str(kinds[row + 1]) if row + 1 < n else "the end")

    codes_are = f"expected a kind of {', '.join(KIND_CODES)}, got "
    report(codes == UNKNOWN_KIND, codes_are, lambda row: repr(kinds[row].as_py()))
    report((codes == OLD) & ~leads, "expected the new value (+U) of this -U in the row after it, got ", after)
    report(
        (codes == NEW) & ~is_led, "expected the old value (-U) of this +U in the row before it, got ", before
    )
    for name in (*schema.key_names, schema.time):
        report(_mask(table.column(name).is_null()), f"expected a value of '{name}', got ", lambda _: "none")
    bad = np.array([reason != "" for reason in reasons], dtype=bool)
    report(leads & np.append(bad[1:], False)[:n], "its +U: ", lambda row: reasons[row + 1])
    report(is_led & np.append(False, bad[:-1])[:n], "its -U: ", lambda row: reasons[row - 1])
    return reasons


def _known_of_pairs(table: pa.Table) -> pa.Table:
    """Give both rows of a replacement one known time: that of the new row, or of the old one if the new has none."""
    known = _known(table)
    codes = kind_codes(table.column(KIND))
    old = np.flatnonzero((codes[:-1] == OLD) & (codes[1:] == NEW))
    if not len(old) or (known == NO_KNOWN).all():
        return table
    moment = np.where(known[old + 1] == NO_KNOWN, known[old], known[old + 1])
    known[old], known[old + 1] = moment, moment
    values = pa.array(known, mask=known == NO_KNOWN).cast(REF)
    return table.set_column(table.column_names.index(KNOWN), KNOWN, values)


def _known(table: pa.Table) -> IntArray:
    column = one_chunk(table.column(KNOWN))
    filled: IntArray = column.view(pa.int64()).fill_null(NO_KNOWN).to_numpy(zero_copy_only=False).copy()
    return filled


def _microseconds(column: pa.ChunkedArray) -> IntArray:
    times: IntArray = one_chunk(column).view(pa.int64()).to_numpy(zero_copy_only=False)
    return times


def _mask(column: pa.ChunkedArray) -> BoolArray:
    mask: BoolArray = column.to_numpy().astype(bool)
    return mask

"""Read delimited text with any columns, types inferred from the beginning of the first file unless given."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.errors import UnknownColumnError, unknown_column
from pulse.datasets.counts import Sieve
from pulse.datasets.csv_parse import KEY_TEXT, arrow_csv, layout_names, parse_block
from pulse.datasets.errors import EmptyInputError, UnknownFormatError, readable
from pulse.datasets.folders.hive import (
    Partitions,
    check_partitions,
    find_partitions,
    partition_fields,
    values_of,
    with_partitions,
)
from pulse.datasets.format import Format, TextFormat
from pulse.datasets.text_blocks import Block, Layout, line_number, open_bytes, read_blocks, to_utf8
from pulse.datasets.time_columns import TIME, Place, check_time_unit, to_time, to_time_or_null
from pulse.datasets.units import Paths, Unit

SAMPLE_BYTES = 1 << 20
TYPES = {"double": pa.float64(), "int64": pa.int64(), "string": KEY_TEXT, "bool": pa.bool_()}


_SHARE_BYTES = 1 << 16  # sample for estimating the columns' share of a file


@dataclass(frozen=True, kw_only=True)
class PlainCsv(TextFormat):
    """Comma (or otherwise) separated values with a header.

    Types are inferred from the first megabyte: numbers are doubles, except in key columns, where whole numbers are int64 unless
    some begin with zeros, as codes do; all else is text, stored as a dictionary. ``types`` overrides the inference:
    ``{"id": "string"}``. Empty fields, NaN, NA, null and the like, and the texts in ``missing``, are null numbers; an empty
    field is a null key.

    Times are ISO 8601 text, or written as ``time_format`` (``%d.%m.%Y %H:%M``), or numbers since 1970 of ``time_unit``; with
    ``missing_times`` they may be empty. ``partitions``: columns in the names of folders (``symbol=SPY``), which :meth:`prepare`
    finds; None for none.
    """

    name = "csv"

    separated_by: str = ","
    types: tuple[tuple[str, str], ...] = ()
    time_unit: str | None = None
    time_format: str | None = None
    missing_times: bool = False
    missing: tuple[str, ...] = ()
    partitions: Partitions | None = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_time_unit(self.time_unit)
        object.__setattr__(self, "partitions", check_partitions(self.partitions))
        given: Any = self.types
        pairs = tuple(sorted(given.items())) if isinstance(given, Mapping) else tuple(given)
        for name, type_ in pairs:
            if type_ not in TYPES:
                raise UnknownFormatError(
                    f"types: column '{name}': expected one of {', '.join(TYPES)}, got {type_!r}"
                )
        object.__setattr__(self, "types", pairs)
        none: Any = self.missing
        texts = (none,) if isinstance(none, str) else tuple(none)
        if not all(isinstance(text, str) for text in texts):
            raise UnknownFormatError(f"missing: expected texts such as '-', got {none!r}")
        object.__setattr__(self, "missing", texts)
        one: Any = self.separated_by
        if not (isinstance(one, str) and len(one) == 1 and one.isascii() and one not in '\n\r"\0'):
            raise UnknownFormatError(f"separated_by: expected one character, such as ',' or ';', got {one!r}")

    @property
    def separator(self) -> str:
        return self.separated_by

    def layout(self, path: str) -> Layout:
        """Read the header of a file, with the texts that stand for no value."""
        return replace(super().layout(path), missing=self.missing)

    def statements(self) -> list[str]:
        return [f"{self.time}: zone-less UTC, digits below the microsecond floored"] if self.time else []

    def after(self, earlier: Format) -> Format:
        """Return this with the types of the columns in the names of folders that an earlier fit has found."""
        return replace(self, partitions=getattr(earlier, "partitions", ())) if self.partitions == () else self

    def prepare(self, paths: Paths) -> PlainCsv:
        """Find the columns of folders, and infer types from the first file with rows: every unit of every file has the same."""
        files = self.files(paths)
        if self.partitions is not None:
            text = self.time if self.time_unit is None else None
            found = find_partitions(files, self.key, text, self.partitions)
            if found != self.partitions:
                return replace(self, partitions=found).prepare(paths)
        first = next((path for path in files if _has_rows(self.layout(path))), files[0])
        names = self.layout(first).names
        if not self.key and not self.time and (advice := _separator_advice(self.layout(first))):
            raise UnknownColumnError(
                f"{first}, line 1: expected names of columns, got one: '{names[0]}'. {advice}"
            )
        for name, _ in self.types:
            if name not in names:
                raise unknown_column(name, names, f"types of {first}")
        kinds = {type_: name for name, type_ in TYPES.items()}
        guessed = {name: kinds[type_] for name, type_ in self._types(self.layout(first)).items()}
        return replace(self, types=tuple(sorted({**guessed, **dict(self.types)}.items())))

    def schema(self, path: str) -> pa.Schema:
        types = self._types(self.layout(path))
        fields = [
            *(pa.field(name, type_) for name, type_ in types.items()),
            *partition_fields(self.partitions or (), list(types)),
        ]
        return pa.schema([field.with_type(TIME) if field.name == self.time else field for field in fields])

    def constants(self, path: str) -> pa.Table:
        if not self.partitions:
            return super().constants(path)
        own, values = self.layout(path).names, values_of(path, self.partitions)
        names = [name for name in values if name not in own]
        return with_partitions(pa.table({"": [0]}), names, values, self.partitions, path)

    def bytes_of(self, path: str, columns: Sequence[str]) -> int | None:
        return bytes_of_columns(self.layout(path), columns)

    def sifted(self, unit: Unit, names: list[str]) -> Iterator[tuple[pa.Table, Sieve]]:
        layout = self.layout(unit.path)
        types = self._types(layout)
        partitions = self.partitions or ()
        values = values_of(unit.path, partitions)
        own = [name for name in names if name in types] or list(types)[:1]
        wanted = {name: self._stored_type(name, types[name]) for name in own}
        for block in self.blocks(unit, layout):
            table = _without_empty_keys(parse_block(block, layout, wanted), self.key)
            if partitions:
                table = with_partitions(table, names, values, partitions, str(unit))
            if self.time in names and table.num_rows:
                at = names.index(self.time)
                column = table.column(at).combine_chunks()
                read = to_time_or_null if self.missing_times else to_time
                times = read(column, place_in(block, unit.path, self.time), self.time_unit, self.time_format)
                table = table.set_column(at, self.time, times)
            yield table, Sieve(table.num_rows)

    def _stored_type(self, name: str, type_: pa.DataType) -> pa.DataType:
        """Return the type to read a column as: times as text, unless they are numbers. A fractional time is a double."""
        if name != self.time:
            return type_
        return pa.string() if self.time_unit is None else type_ if type_ == pa.int64() else pa.float64()

    def _types(self, layout: Layout) -> dict[str, pa.DataType]:
        given = {name: TYPES[type_] for name, type_ in self.types}
        names = layout_names(layout)
        for name in (*self.key, *([self.time] if self.time else [])):
            if name not in layout.names and name not in dict(self.partitions or ()):
                raise _missing(name, layout)
        if all(name in given for name in names):
            return {name: given[name] for name in names}
        guessed = _guess(layout, self.key)
        types = {}
        for name in names:
            type_ = guessed.get(name, pa.null())
            whole = pa.types.is_integer(type_) and name in (*self.key, self.time)
            number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
            types[name] = given.get(name, pa.int64() if whole else pa.float64() if number else KEY_TEXT)
        return types


def _without_empty_keys(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """Replace empty texts among keys by nulls: an empty field is no key, as it is no number and no time."""
    for name in set(key) & set(table.column_names):
        column = table.column(name).combine_chunks()
        if not pa.types.is_dictionary(column.type) or not len(column):
            continue
        at = pc.index(column.dictionary, "").as_py()
        if at >= 0:
            indices = pc.if_else(pc.equal(column.indices, at), None, column.indices)
            column = pa.DictionaryArray.from_arrays(indices, column.dictionary)
            table = table.set_column(table.column_names.index(name), name, column)
    return table


def bytes_of_columns(layout: Layout, columns: Iterable[str]) -> int:
    """Estimate how many bytes of a file these of its columns take, from the characters of the first lines, with separators."""
    path = layout.path
    places = [layout.names.index(name) for name in columns if name in layout.names]
    with readable(path), open_bytes(path) as file:
        file.read(layout.header_bytes)
        lines = file.read(_SHARE_BYTES).decode(layout.encoding, errors="replace").splitlines()
    rows = list(csv.reader(lines[:-1] or lines, delimiter=layout.delimiter))
    whole = sum(len(field) + 1 for row in rows for field in row)
    own = sum(len(row[i]) + 1 for row in rows for i in places if i < len(row))
    return round(Path(path).stat().st_size * own / whole) if whole else 0


def place_in(block: Block, path: str, column: str | None) -> Place:
    """Return a function that names the line of a row of a block; it reads the file, so only errors call it."""
    what = f", column '{column}'" if column else ""
    return lambda row: f"{path}, line {line_number(path, block.offset, row)}{what}"


def _has_rows(layout: Layout) -> bool:
    return next(read_blocks(Unit(layout.path, 0), layout, 1), None) is not None


def _missing(name: str, layout: Layout) -> UnknownColumnError:
    """Return the error of a missing column; for a header with a single name, with advice about the separator."""
    error = unknown_column(name, layout.names, layout.path)
    advice = _separator_advice(layout)
    return UnknownColumnError(f"{error}. {advice}") if advice else error


def _separator_advice(layout: Layout) -> str:
    """Return advice for a header of one name that contains another separator; else an empty text."""
    other = next((one for one in ";\t|," if one in layout.names[0]), None) if len(layout.names) == 1 else None
    shown = "tab" if other == "\t" else f"'{other}'"
    return f"Say what separates them with separated_by= (--read separated_by={shown})" if other else ""


def _guess(layout: Layout, key: Sequence[str]) -> dict[str, pa.DataType]:
    """Return Arrow's inferred types of the first megabyte of the file; keys that begin with zeros are text."""
    whole = Unit(layout.path, 0)
    head = next(read_blocks(whole, layout, SAMPLE_BYTES), None)
    if head is None:
        return {}
    data = to_utf8(head.data, layout.encoding, layout.path)
    # Check that every line is a row.
    parse_block(head, layout, dict.fromkeys(layout_names(layout)[:1], pa.binary()))
    with readable(layout.path):
        table = arrow_csv(data, layout, check_utf8=False)
    if table.num_rows == 0:
        raise EmptyInputError(f"{layout.path}: the file holds no rows; there is nothing to read")
    types = {name: table.schema.field(layout.names.index(name)).type for name in layout_names(layout)}
    for name in dict.fromkeys(key):
        if pa.types.is_integer(types.get(name, pa.null())):
            texts = parse_block(head, layout, {name: pa.string()}).column(name)
            if pc.any(pc.match_substring_regex(texts, r"^\s*-?0[0-9]")).as_py():
                types[name] = pa.string()
    return types

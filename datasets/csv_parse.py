"""Parse blocks of delimited text to Arrow tables, with errors that name file, line, column and text.

Arrow parses and converts, but does not report the position in the file, or whether a quoted field contains a line break (which
cutting the file would split). Both are determined here. A row of empty fields is appended to each block: an open quote swallows
it, so the number of rows reveals it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.csv

from pulse.core.errors import unknown_column
from pulse.datasets.errors import EncodingError, MalformedRowError, ValueParseError
from pulse.datasets.text_blocks import Block, Layout, line_number, to_utf8

KEY_TEXT = pa.dictionary(pa.int32(), pa.string())
_TORN = (
    "{where}: a quote is left open, or a carriage return stands within the line: {shown}. Line breaks inside quotes "
    "cannot be read, because files are cut at line breaks: remove them, or store the data as Parquet"
)
_EXPECTED = ((pa.types.is_timestamp, "a date and time"), (pa.types.is_integer, "a whole number"))


def parse_block(
    block: Block, layout: Layout, types: Mapping[str, pa.DataType], time_formats: tuple[str, ...] = ()
) -> pa.Table:
    """Parse the columns of ``types``; empty fields of numbers and times are null, empty texts are empty.

    Common notations for no value (NaN, NA, null …) and the layout's own ``missing`` are null, too. Every column is one chunk.
    Empty lines are skipped.
    """
    for name in types:
        if name not in layout.names:
            raise unknown_column(name, layout.names, layout.path)
        layout.index(name)
    try:
        data = to_utf8(block.data, layout.encoding, layout.path)
        table = _convert(data, layout, types, time_formats)
    except EncodingError:
        raise EncodingError(_encoding_trouble(block, layout)) from None
    except (pa.ArrowException, OverflowError) as e:
        _raise_located(block, layout, types, time_formats, e)
    if table is None:
        _raise_located(block, layout, types, time_formats, None)
    return table


def _convert(
    data: bytes, layout: Layout, types: Mapping[str, pa.DataType], time_formats: tuple[str, ...]
) -> pa.Table | None:
    """Return the rows of ``data``, or None when they are not one per line."""
    sentinel = layout.delimiter * (len(layout.names) - 1) or '""'
    lines = _count_lines(data)
    data += (b"" if data.endswith(b"\n") else b"\n") + sentinel.encode() + b"\n"
    positions = {name: f"c{layout.index(name)}" for name in types}
    table = arrow_csv(
        data,
        layout,
        column_types={positions[name]: type_ for name, type_ in types.items()},
        include_columns=list(positions.values()),
        timestamp_parsers=list(time_formats) or None,
        auto_dict_encode=False,
    )
    if table.num_rows != lines + 1:
        return None
    return table.rename_columns(list(positions)).slice(0, lines).combine_chunks()


def arrow_csv(data: bytes, layout: Layout, **convert: Any) -> pa.Table:
    """Parse lines with Arrow, columns named ``c0, c1, …``; with Arrow's and the layout's texts for no value."""
    return pyarrow.csv.read_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(
            column_names=[f"c{i}" for i in range(len(layout.names))],
            use_threads=False,
            block_size=len(data) + 1,
        ),
        parse_options=pyarrow.csv.ParseOptions(delimiter=layout.delimiter),
        convert_options=pyarrow.csv.ConvertOptions(
            null_values=[*pyarrow.csv.ConvertOptions().null_values, *layout.missing], **convert
        ),
    )


def _count_lines(data: bytes) -> int:
    """Count lines that are not empty: Arrow skips empty ones."""
    if b"\n\n" in data or b"\n\r" in data or data.startswith((b"\n", b"\r")):
        return sum(1 for line in data.split(b"\n") if line.strip(b"\r"))
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def _raise_located(
    block: Block,
    layout: Layout,
    types: Mapping[str, pa.DataType],
    time_formats: tuple[str, ...],
    cause: Exception | None,
) -> NoReturn:
    """Halve the block until one line is left that fails by itself, and raise its error."""
    lines = [line for line in block.data.split(b"\n") if line.strip(b"\r")]

    def fails(low: int, high: int) -> bool:
        try:
            data = to_utf8(b"\n".join(lines[low:high]) + b"\n", layout.encoding, layout.path)
            return _convert(data, layout, types, time_formats) is None
        except (pa.ArrowException, EncodingError, OverflowError):
            return True

    low, high = 0, len(lines)
    if not fails(low, high):  # impossible unless reading is not repeatable
        raise MalformedRowError(f"{layout.path}: {cause}") from cause
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(low, middle) else (middle, high)
    where = f"{layout.path}, line {line_number(layout.path, block.offset, low)}"
    raise _trouble(where, lines[low] if lines else b"", layout, types, time_formats) from cause


def _trouble(
    where: str, line: bytes, layout: Layout, types: Mapping[str, pa.DataType], time_formats: tuple[str, ...]
) -> EncodingError | MalformedRowError | ValueParseError:
    """Return the error of this one line."""
    shown = repr(line.rstrip(b"\r").decode("utf-8", "backslashreplace")[:120])
    try:
        data = to_utf8(line + b"\n", layout.encoding, where)
        texts = _convert(data, layout, dict.fromkeys(layout_names(layout), pa.binary()), ())
    except EncodingError as e:
        return e
    except (pa.ArrowException, OverflowError) as e:
        if _open_quote(line, layout.delimiter):
            return MalformedRowError(_TORN.format(where=where, shown=shown))
        needed = str(e).partition("Expected ")[2].partition(":")[0]
        expected = f"expected {needed}" if needed else f"cannot be split into fields ({e})"
        return MalformedRowError(f"{where}: {expected}; the line is {shown}")
    if texts is None:
        return MalformedRowError(_TORN.format(where=where, shown=shown))
    for name, type_ in types.items():
        try:
            _convert(data, layout, {name: type_}, time_formats)
        except (pa.ArrowException, OverflowError):
            got = texts.column(name)[0].as_py()
            if pa.types.is_dictionary(type_) or pa.types.is_string(type_):
                return EncodingError(
                    f"{where}, column '{name}': not {layout.encoding} text: {got!r}; say which encoding it is, "
                    "such as encoding='latin-1'"
                )
            kind = next((words for test, words in _EXPECTED if test(type_)), "a number")
            pattern = (
                f" such as {' or '.join(time_formats)}" if time_formats and kind == "a date and time" else ""
            )
            return ValueParseError(
                f"{where}, column '{name}': expected {kind}{pattern}, got {got.decode('utf-8', 'backslashreplace')!r}; "
                "correct the line, or read the column as another type"
            )
    return MalformedRowError(f"{where}: cannot be read: {shown}")


def _open_quote(line: bytes, delimiter: str) -> bool:
    """Check whether a quoted field begins in this line and does not end in it."""
    try:
        list(csv.reader([line.decode("latin-1").rstrip("\r")], delimiter=delimiter, strict=True))
    except csv.Error as e:
        return "unexpected end" in str(e)
    return False


def layout_names(layout: Layout) -> tuple[str, ...]:
    """Return the names that occur once: others cannot be requested."""
    return tuple(name for name in layout.names if layout.names.count(name) == 1)


def _encoding_trouble(block: Block, layout: Layout) -> str:
    """Return the error of the first line of the block that is not in the layout's encoding."""
    row = 0
    for line in block.data.split(b"\n"):
        try:
            line.decode(layout.encoding)
        except UnicodeError as e:
            where = f"{layout.path}, line {line_number(layout.path, block.offset, row)}"
            return f"{where}: not {layout.encoding} text ({str(e)[:120]}); say which encoding it is, such as encoding='latin-1'"
        row += bool(line.strip(b"\r"))
    return f"{layout.path}: not {layout.encoding} text; say which encoding it is, such as encoding='latin-1'"

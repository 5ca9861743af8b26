from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from pulse.core.errors import UnknownColumnError
from pulse.datasets.csv_parse import KEY_TEXT, parse_block
from pulse.datasets.errors import EncodingError, MalformedRowError, ValueParseError
from pulse.datasets.text_blocks import Layout, read_blocks, read_layout
from pulse.datasets.units import Unit

Write = Callable[[str, str | bytes], str]
TYPES = {"n": pa.float64(), "s": KEY_TEXT}


def parse(
    path: str, types: dict[str, pa.DataType] = TYPES, encoding: str = "utf-8"
) -> list[dict[str, object]]:
    layout = read_layout(path, ",", encoding)
    (block,) = read_blocks(Unit(path, 0), layout)
    return parse_block(block, layout, types).to_pylist()


def test_values_quotes_and_empty_lines(write: Write) -> None:
    path = write("a.csv", 's,skip,n\r\n"a, ""b""",1,2\r\n\r\nNA,,\r\nc"d,5,-1e3')
    assert parse(path) == [
        {"n": 2.0, "s": 'a, "b"'},
        {"n": None, "s": "NA"},  # a symbol may be called NA
        {"n": -1000.0, "s": 'c"d'},
    ]


def test_another_encoding(write: Write) -> None:
    assert parse(write("a.csv", "s,n\nÆrø,1\n".encode("latin-1")), encoding="iso8859-1")[0]["s"] == "Ærø"


@pytest.mark.parametrize(
    ("body", "error", "match"),
    [
        ("a,1\n\nb,x1\n", ValueParseError, r"a\.csv, line 4, column 'n': expected a number, got 'x1'"),
        ("a,1\nb\n", MalformedRowError, r"line 3: expected 2 columns, got 1; the line is 'b'"),
        ("a,1\nb,1,2\n", MalformedRowError, r"line 3: expected 2 columns, got 3"),
        ('a,1\n"b\nc",1\n', MalformedRowError, r"line 3: a quote is left open"),
        ('a,1\nb,"2\n', MalformedRowError, r"line 3: a quote is left open"),
        ('a"b,1\nx","open\n', MalformedRowError, r"line 3: a quote is left open"),
        ("a,1\rb,2\n", MalformedRowError, r"line 2: a quote is left open, or a carriage return"),
        (b"a,1\nb\xff,2\n", EncodingError, r"line 3, column 's': not utf-8 text"),
    ],
)
def test_bad_lines_are_named(write: Write, body: str | bytes, error: type[Exception], match: str) -> None:
    text = body if isinstance(body, bytes) else body.encode()
    with pytest.raises(error, match=match):
        parse(write("a.csv", b"s,n\n" + text))


def test_a_bad_byte_in_another_encoding_is_named(write: Write) -> None:
    with pytest.raises(EncodingError, match="line 3: not ascii text"):
        parse(write("a.csv", b"s,n\na,1\nb\xff,2\n"), encoding="ascii")


def test_the_line_is_found_in_a_long_block(write: Write) -> None:
    rows = [f"k{i},{i}" for i in range(20_000)]
    rows[12_345] = "k,1e"
    with pytest.raises(ValueParseError, match=r"line 12347, column 'n'.*'1e'"):
        parse(write("a.csv", "s,n\n" + "\n".join(rows)))


def test_missing_and_repeated_columns(write: Write) -> None:
    path = write("a.csv", "s,n,n\na,1,2\n")
    with pytest.raises(MalformedRowError, match="names the column 'n' 2 times"):
        parse(path)
    assert parse(path, {"s": KEY_TEXT}) == [{"s": "a"}]
    with pytest.raises(UnknownColumnError, match=r"no column 'price'.*There are: 's', 'n', 'n'"):
        parse(path, {"price": pa.float64()})
    assert isinstance(read_layout(path, ",", "utf-8"), Layout)


def test_a_single_column(write: Write) -> None:
    assert parse(write("a.csv", "n\n1\n2\n"), {"n": pa.float64()}) == [{"n": 1.0}, {"n": 2.0}]
    with pytest.raises(MalformedRowError, match="a quote is left open"):
        parse(write("b.csv", 's\na\n"b\n'), {"s": KEY_TEXT})

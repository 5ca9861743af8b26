"""Lines belong to exactly one unit, wherever the file is cut; headers and encodings."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.datasets import text_blocks
from pulse.datasets.errors import (
    EmptyInputError,
    EncodingError,
    MalformedRowError,
    UnknownFormatError,
    UnreadableError,
)
from pulse.datasets.text_blocks import check_encoding, line_number, read_blocks, read_layout
from pulse.datasets.units import Unit, byte_ranges

Write = Callable[[str, str | bytes], str]
lines = st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b"")), max_size=12)


@given(body=lines, cut=st.integers(1, 40), block=st.integers(1, 30), ends=st.booleans())
def test_every_line_once_and_in_order(
    body: list[bytes], cut: int, block: int, ends: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.csv"
    text = b"\n".join(body) + (b"\n" if ends else b"")
    path.write_bytes(b"a,b\n" + text)
    layout = read_layout(str(path), ",", "utf-8")
    units = byte_ranges(str(path), layout.header_bytes, 0, cut)
    blocks = [b for unit in units for b in read_blocks(unit, layout, block)]
    assert b"".join(b.data for b in blocks) == text
    assert all(b.data.endswith(b"\n") for b in blocks[:-1])
    at = layout.header_bytes
    for b in blocks:
        assert b.offset == at
        at += len(b.data)
    whole = [b.data for b in read_blocks(Unit(str(path), 0), layout, block)]
    assert b"".join(whole) == text


def test_a_compressed_file_reads_as_what_it_holds(tmp_path: Path) -> None:
    text = b"".join(b"%d,x\n" % i for i in range(5000))
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"n,s\n" + text))
    layout = read_layout(str(path), ",", "utf-8")
    (unit,) = byte_ranges(str(path), layout.header_bytes, 0)
    blocks = list(read_blocks(unit, layout, 1000))
    assert len(blocks) > 10
    assert b"".join(b.data for b in blocks) == text
    assert line_number(str(path), blocks[1].offset, 0) == 2 + blocks[0].data.count(b"\n")


def test_a_damaged_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(bytes(range(48, 122)) * 30000 + b"\n")[:-200])
    with pytest.raises(UnreadableError, match=r"a\.csv\.gz"):
        list(read_blocks(Unit(str(path), 0), read_layout(str(path), ",", "latin-1")))


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (b"", EmptyInputError, "the file is empty"),
        (b"\n1,2\n", MalformedRowError, "got an empty line"),
        ("a,b\n".encode("utf-16"), EncodingError, "UTF-16 or not text"),
        (b"a\0,b\n", EncodingError, "not text at all"),
        (b"a,\xff\n", EncodingError, "line 1: not utf-8"),
        (b'a,"b\n', MalformedRowError, "not a row of names"),
        (b"a\rb\r", MalformedRowError, "not a row of names"),
        (b"x" * (text_blocks.LINE_LIMIT + 5), UnreadableError, "no line break within"),
    ],
)
def test_headers_that_are_none(write: Write, data: bytes, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        read_layout(write("a.csv", data), ",", "utf-8")


def test_a_byte_order_mark_and_blanks_are_not_part_of_names(write: Write) -> None:
    layout = read_layout(write("a.csv", b'\xef\xbb\xbfid, "the time" ,x\r\n1,2,3\r\n'), ",", "utf-8")
    assert layout.names == ("id", '"the time"', "x")
    assert layout.header_bytes == 22


def test_archives_and_missing_files(write: Write, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="unpack it first"):
        read_layout(write("a.zip", b"PK"), ",", "utf-8")
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        read_layout(str(tmp_path / "gone.csv"), ",", "utf-8")


def test_encodings() -> None:
    assert check_encoding("UTF8") == "utf-8"
    assert check_encoding("latin-1") == "iso8859-1"
    for bad in ("utf-16", "utf-32", "cp037"):
        with pytest.raises(UnknownFormatError, match="as one byte"):
            check_encoding(bad)
    for bad in ("klingon", "rot13", "base64", "a\0b"):
        with pytest.raises(UnknownFormatError):
            check_encoding(bad)

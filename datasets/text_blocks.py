"""Read text files as blocks of whole lines, from any byte range with bounded memory.

A unit owns the lines that *begin* in its range ``[start, end)``::

    header\\n a,1\\n b,2\\n c,3\\n          the cut falls into line b: the left unit reads on to the
             |------|-------|            end of b, the right one skips to the beginning of c

so wherever a file is cut, every line belongs to exactly one unit.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import pyarrow as pa

from pulse.datasets.errors import (
    EmptyInputError,
    EncodingError,
    MalformedRowError,
    UnknownFormatError,
    UnreadableError,
    readable,
)
from pulse.datasets.units import COMPRESSED, Unit

BLOCK_BYTES = 4 << 20
LINE_LIMIT = 1 << 20  # no row of a table is a megabyte long: such a file is not line-based
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # those of UTF-32 begin with one of these, or zeros


class Block(NamedTuple):
    """Whole lines, and the byte of the (uncompressed) file that they begin at."""

    data: bytes
    offset: int


@dataclass(frozen=True)
class Layout:
    """The layout of one text file, from its header line."""

    path: str
    names: tuple[str, ...]
    delimiter: str
    encoding: str
    header_bytes: int
    missing: tuple[str, ...] = ()  # texts for no value, in addition to the usual ones

    def index(self, name: str) -> int:
        """Return the position of a column, which must occur exactly once."""
        if self.names.count(name) > 1:
            raise MalformedRowError(
                f"{self.path}, line 1: the header names the column '{name}' {self.names.count(name)} times; rename one"
            )
        return self.names.index(name)


def check_encoding(encoding: str) -> str:
    """Check for an encoding in which a line break is one byte, so that a file can be cut anywhere; utf-8, latin-1, cp1252 …"""
    try:
        known = codecs.lookup(encoding).name
        ends = "a\n,".encode(known) == b"a\n," and isinstance(b"a".decode(known), str)
    except (LookupError, UnicodeError, ValueError, TypeError, AttributeError):
        raise UnknownFormatError(f"encoding: {encoding!r} is not one; try utf-8 or latin-1") from None
    if not ends:
        raise UnknownFormatError(
            f"encoding: {encoding!r} does not write a line break as one byte; convert the file to utf-8 first"
        )
    return known


def open_bytes(path: str) -> IO[bytes]:
    """Open the bytes of a file, decompressed if its name has such an ending."""
    if path.lower().endswith(".zip"):
        raise UnreadableError(
            f"{path}: an archive may hold several files; unpack it first, or recompress as .gz"
        )
    if not path.lower().endswith(COMPRESSED):
        return Path(path).open("rb")
    stream = pa.input_stream(path, compression="detect", buffer_size=1 << 20)
    return io.BufferedReader(stream, buffer_size=1 << 20)  # type: ignore[arg-type, unused-ignore]


def read_layout(path: str, delimiter: str, encoding: str) -> Layout:
    """Read the header line, skipping a byte order mark and blanks around names."""
    with readable(path), open_bytes(path) as file:
        line = _whole_line(file, path, 0)
    if not line:
        raise EmptyInputError(f"{path}: the file is empty; expected a header line that names the columns")
    if line.startswith(_WIDE_MARKS) or b"\0" in line:
        raise EncodingError(f"{path}, line 1: this is UTF-16 or not text at all; convert it to utf-8 first")
    text = _decode(line.removeprefix(codecs.BOM_UTF8), encoding, f"{path}, line 1").rstrip("\r\n")
    try:
        names = next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error as e:
        raise MalformedRowError(
            f"{path}, line 1: the header is not a row of names ({e}): {text[:80]!r}"
        ) from None
    if not any(name.strip() for name in names):
        raise MalformedRowError(
            f"{path}, line 1: expected a header that names the columns, got an empty line"
        )
    return Layout(path, tuple(name.strip() for name in names), delimiter, encoding, len(line))


def read_blocks(unit: Unit, layout: Layout, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Read the unit's lines, in order, in blocks of about ``block_bytes``."""
    with readable(str(unit)), open_bytes(unit.path) as file:
        if unit.length is None:
            at, end = len(file.readline(layout.header_bytes)), None
        else:
            at, end = _first_line(file, unit), unit.start + unit.length
        while end is None or at < end:
            data = file.read(block_bytes if end is None else min(block_bytes, end - at))
            if not data:
                return
            if not data.endswith(b"\n"):
                data += _whole_line(file, unit.path, at + len(data))
            yield Block(data, at)
            at += len(data)


def _first_line(file: IO[bytes], unit: Unit) -> int:
    """Skip the rest of the line that began before the unit; return the byte at which its first own line begins."""
    if unit.start == 0:
        return 0
    file.seek(unit.start - 1)
    return unit.start - 1 + len(_whole_line(file, unit.path, unit.start))


def _whole_line(file: IO[bytes], path: str, at: int) -> bytes:
    line = file.readline(LINE_LIMIT)
    if len(line) == LINE_LIMIT and not line.endswith(b"\n"):
        raise UnreadableError(
            f"{path}: no line break within {LINE_LIMIT:,} bytes after byte {at}; is this a text file?"
        )
    return line


def to_utf8(data: bytes, encoding: str, where: str) -> bytes:
    """Convert text to UTF-8, which Arrow reads."""
    return data if encoding == "utf-8" else _decode(data, encoding, where).encode("utf-8")


def _decode(data: bytes, encoding: str, where: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeError as e:
        raise EncodingError(
            f"{where}: not {encoding} text ({str(e)[:120]}); say which encoding it is, such as encoding='latin-1'"
        ) from None


def line_number(path: str, offset: int, rows_after: int) -> int:
    """Return the 1-based number of the line that is ``rows_after`` non-empty lines after byte ``offset``; reads the file."""
    number, at = 1, 0
    with readable(path), open_bytes(path) as file:
        while at < offset:
            data = file.read(min(BLOCK_BYTES, offset - at))
            if not data:
                break
            number += data.count(b"\n")
            at += len(data)
        for line in file:
            if line.strip(b"\r\n"):
                if rows_after == 0:
                    break
                rows_after -= 1
            number += 1
    return number

"""Checksums of a model's files: computed once before a commit names them, verified whenever a process opens one.

A whole file is verified by ``pulse vacuum --verify``. A reader verifies what it reads: the length and the footer of a Parquet
file when it is opened (the footer says where each page is, and the statistics of it), each page by its own checksum when it is
read (:mod:`pulse.store.parquet_io`), and small files of other kinds as a whole.
"""

from __future__ import annotations

import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from pulse.store.errors import DamagedModelError, LinkedFileError, MissingFileError
from pulse.store.manifest_schema import Count, Folder

_PIECE = 1 << 20
_TAIL = 8  # bytes at the end of a Parquet file: the footer's length, and the magic number
_MAGIC = b"PAR1"
_SAFELY = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)  # neither hang nor stray
_VERIFIED_KEPT = 1 << 14

Crc = Annotated[str, Meta(pattern=r"\Acrc32:[0-9a-f]{8}\Z", description="a checksum such as crc32:0badcafe")]


@dataclass(frozen=True)
class DataFile:
    """A file of a model: its length and checksums (``footer``: of a Parquet file's), and its folder if it is another."""

    bytes: Count
    checksum: Crc
    footer: Crc | None = None
    at: Folder | None = None


def checksum(path: str | Path, size: int | None = None) -> str:
    """Return the CRC-32 of a file, or of its first ``size`` bytes: with the size it identifies a file, as fast as reading."""
    found, piece = 0, bytearray(_PIECE)
    view = memoryview(piece)
    left = Path(path).stat().st_size if size is None else size
    with Path(path).open("rb", buffering=0) as file:
        while left > 0 and (n := file.readinto(view[: min(left, _PIECE)])):
            found, left = zlib.crc32(view[:n], found), left - n
    return _text(found)


def seal(path: Path, at: str | None = None) -> DataFile:
    """Write a file through to the disk, and return what a commit records of it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
        footer = _footer(file.fileno(), size) if path.suffix == ".parquet" else None
    return DataFile(size, checksum(path), footer, at)


def checksum_of(data: bytes) -> str:
    """Return the CRC-32 of bytes, as a checksum is written.

    >>> checksum_of(b"a commit")
    'crc32:49c8c9de'
    """
    return _text(zlib.crc32(data))


def _text(crc: int) -> str:
    return f"crc32:{crc:08x}"


def _footer(handle: int, size: int) -> str | None:
    """Return the checksum of a Parquet file's footer; None if it has none, as it is cut short."""
    tail = os.pread(handle, _TAIL, max(size - _TAIL, 0))
    length = int.from_bytes(tail[:4], "little") + _TAIL
    if tail[4:] != _MAGIC or length > size:
        return None
    return _text(zlib.crc32(os.pread(handle, length, size - length)))


_VERIFIED: dict[tuple[str, int, int, int], DataFile] = {}


def verify(path: Path, known: DataFile) -> None:
    """Check that a file is the one that a commit names; once in a process, as long as the file stays the same."""
    try:
        handle = os.open(path, _SAFELY)
    except FileNotFoundError as e:
        raise MissingFileError(
            f"{path}: this file of the model is missing; restore it, or fit the model anew"
        ) from e
    except OSError as e:
        if path.is_symlink():
            raise LinkedFileError(
                f"{path}: expected a file of the model's own, got a symbolic link; links are not followed"
            ) from e
        raise _damaged(path, e.strerror or str(e)) from e
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise LinkedFileError(
                f"{path}: expected a file of the model's own, got neither a file nor a folder"
            )
        key = str(path), found.st_ino, found.st_mtime_ns, found.st_size
        if _VERIFIED.get(key) == known:
            return
        _compare(path, handle, found.st_size, known)
    finally:
        os.close(handle)
    if len(_VERIFIED) >= _VERIFIED_KEPT:
        _VERIFIED.clear()
    _VERIFIED[key] = known


def _compare(path: Path, handle: int, size: int, known: DataFile) -> None:
    if size != known.bytes:
        raise _damaged(path, f"it has {size:,} bytes, its commit says {known.bytes:,}")
    if known.footer is None:
        _expect(path, "its checksum", checksum(path), known.checksum)
    else:
        _expect(path, "the checksum of its footer", _footer(handle, size), known.footer)


def verify_whole(path: Path, known: DataFile) -> None:
    """Check all bytes of a file."""
    verify(path, known)
    _expect(path, "its checksum", checksum(path), known.checksum)


def _expect(path: Path, what: str, found: str | None, wanted: str) -> None:
    if found != wanted:
        raise _damaged(path, f"{what} is {found or 'missing'}, its commit says {wanted}")


def _damaged(path: Path, why: str) -> DamagedModelError:
    return DamagedModelError(
        f"{path}: {why}; the file of the model is damaged: restore it, or fit the model anew"
    )

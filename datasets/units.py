"""Units of work: a Parquet row group or a byte range of a text file, read by one worker at once."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pulse.datasets.errors import DatasetError, EmptyInputError, MissingInputError

Paths: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

RANGE_BYTES = 64 << 20
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")  # endings that Arrow decompresses as a stream


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of one file, and its position among all parts of the data set.

    ``row_group`` numbers a Parquet row group; when it is None the unit is the lines that *begin* within bytes
    ``[start, start + length)``, and ``length`` None means to the end (compressed files, which have no ranges). ``rows`` is
    known for Parquet only; ``size`` is bytes on disk, for progress.
    """

    path: str
    ordinal: int
    start: int = 0
    length: int | None = None
    row_group: int | None = None
    rows: int | None = None
    size: int = 0

    def __str__(self) -> str:
        if self.row_group is not None:
            return f"{self.path}, row group {self.row_group}"
        if self.length is None:
            return self.path
        return f"{self.path}, bytes {self.start} to {self.start + self.length}"


def expand(paths: Paths, suffixes: tuple[str, ...]) -> list[str]:
    """Return the files that paths name, in order: files as given, folders and patterns sorted.

    Of a folder, all files below it whose names end in one of ``suffixes``, except hidden ones and those that begin with ``_``.
    A pattern is one of :mod:`glob`, ``**`` included. A file named twice, also by another path or a link, is an error: its rows
    would be read twice.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise MissingInputError(
            "input: no path was given; name files, folders or patterns such as 'data/*.parquet'"
        )
    found: list[str] = []
    for one in given:
        found += _expand_one(os.fspath(one), suffixes)
    _check_once(found)
    return found


def _check_once(paths: list[str]) -> None:
    seen: dict[tuple[int, int], str] = {}
    for path in paths:
        status = Path(path).stat()
        first = seen.setdefault((status.st_dev, status.st_ino), path)
        if first is not path:
            other = "" if first == path else f" (also as {first})"
            raise DatasetError(
                f"input: {path} is named twice{other}; its rows would be counted twice: name it once"
            )


def _expand_one(path: str, suffixes: tuple[str, ...]) -> list[str]:
    if "\0" in path:
        raise MissingInputError(f"input: {path!r} is not a path")
    if Path(path).is_file():
        return [path]
    if Path(path).is_dir():
        files = [str(p) for p in sorted(Path(path).rglob("*")) if p.is_file() and _visible(p, Path(path))]
        matching = [p for p in files if p.lower().endswith(suffixes)]
        if not matching:
            raise EmptyInputError(
                f"{path}: the folder holds no file that ends in {' or '.join(suffixes)}"
                + (f" (but {len(files)} others, such as {files[0]})" if files else "")
            )
        return matching
    matches = sorted(p for p in glob.glob(path, recursive=True) if Path(p).is_file())  # noqa: PTH207 - absolute patterns, too
    if not matches:
        kind = "no file matches this pattern" if glob.has_magic(path) else "there is no such file or folder"
        raise MissingInputError(f"{path}: {kind}; the current folder is {Path.cwd()}")
    return matches


def _visible(path: Path, root: Path) -> bool:
    return not any(part.startswith((".", "_")) for part in path.relative_to(root).parts)


def byte_ranges(path: str, first: int, ordinal: int, range_bytes: int = RANGE_BYTES) -> list[Unit]:
    """Cut the bytes of a text file from ``first`` (after its header) on into ranges of about equal length."""
    size = Path(path).stat().st_size
    if path.lower().endswith(COMPRESSED):
        return [Unit(path, ordinal, size=size)]
    body = size - first
    count = max(1, round(body / range_bytes)) if body > 0 else 0
    cuts = [first + body * i // count for i in range(count)] + [size]
    return [
        Unit(path, ordinal + i, start=cuts[i], length=cuts[i + 1] - cuts[i], size=cuts[i + 1] - cuts[i])
        for i in range(count)
        if cuts[i + 1] > cuts[i]
    ]

"""Errors of a data set's files; each message names the place, what was expected, what came, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pyarrow as pa

from pulse.core.errors import PulseError


class DatasetError(PulseError, ValueError):
    """A data set that cannot be read, or not as asked."""


class MissingInputError(DatasetError, FileNotFoundError):
    """A file, folder or pattern that matches nothing."""


class EmptyInputError(DatasetError):
    """Input without any rows."""


class UnreadableError(DatasetError):
    """A file that cannot be opened, is damaged, cut short, or not of the format it claims."""


class EncodingError(DatasetError):
    """Text in an unexpected encoding."""


class MalformedRowError(DatasetError):
    """A line of text that is not a row."""


class ValueParseError(DatasetError):
    """A field that does not parse as its column's type: a number, a date, a time."""


class UnknownFormatError(DatasetError):
    """A format, generator or option that does not exist."""


class ProjectionError(DatasetError):
    """Positions that cannot be projected to metres: not prepared, or pyproj is missing."""


class OutputError(DatasetError, OSError):
    """Generated rows cannot be written."""


def unknown_name(what: str, name: str, available: Collection[str]) -> UnknownFormatError:
    """Build the error for a format, reader or option that does not exist; suggest the nearest name."""
    near = difflib.get_close_matches(name, available, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return UnknownFormatError(f"{what}: there is no '{name}'; {hint}There are: {', '.join(available)}")


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Convert errors of pyarrow and the system about a file to an :class:`UnreadableError` that names ``where``."""
    try:
        yield
    except PulseError:
        raise
    except FileNotFoundError:
        raise MissingInputError(
            f"{where}: there is no such file; was it moved after the input was listed?"
        ) from None
    except (pa.ArrowException, OSError, EOFError, OverflowError, UnicodeDecodeError) as e:
        reason = " ".join(str(e).split())[:300] or type(e).__name__
        raise UnreadableError(
            f"{where}: cannot be read ({reason}); the file may be damaged, cut short, or of another format"
        ) from e


class AreaError(PulseError, ValueError):
    """An area cannot be read, or not be placed among a model's positions."""

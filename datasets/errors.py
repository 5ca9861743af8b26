"""What can go wrong with a data set's files; each message names the place, what was expected, what came, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from pulse.core.errors import PulseError


class DatasetError(PulseError, ValueError):
    """A data set that cannot be read, or not as asked."""


class MissingInputError(DatasetError, FileNotFoundError):
    """A file, folder or pattern was named that matches nothing."""


class EmptyInputError(DatasetError):
    """The input holds no rows at all."""


class UnreadableError(DatasetError):
    """A file that cannot be opened, is damaged, cut short, or not of the format it claims."""


class EncodingError(DatasetError):
    """Text in another encoding than the one expected."""


class MalformedRowError(DatasetError):
    """A line of text that does not have the shape of a row."""


class ValueParseError(DatasetError):
    """A field that does not read as what its column holds: a number, a date, a time."""


class UnknownFormatError(DatasetError):
    """A format, generator or option of either was named that does not exist."""


class ProjectionError(DatasetError):
    """Positions cannot be projected to metres: not prepared, or pyproj is not there."""


class OutputError(DatasetError, OSError):
    """Generated rows cannot be written."""


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Turn what pyarrow and the system raise about a file into an :class:`UnreadableError` that names ``where``."""
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

"""Parse accents and punctuation from lines of a growing log and from texts in a stream's rows (semantics 8.1, 8.7)."""

from __future__ import annotations

from pulse.stream.accents.accents import AccentError, Control, Punctuation, control_from_json
from pulse.stream.accents.log import control_of_line, json_object


def parse_line(line: str, time: str, last: int) -> Control | None:
    """Parse a line of a log; None for comments and empty lines.

    ``last`` is the instant of the previous control, which punctuation without an instant takes.
    """
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    return _punctuation(text, last, time) if text.startswith("[") else control_of_line(text, [time])


def parse_row(text: str, at: int | None, time: str, last: int) -> Control:
    """Parse the text of a row whose time is ``at``; only punctuation may lack a time."""
    if at is None:
        if text.strip().startswith("["):
            return _punctuation(text, last, time)
        raise _missing_time(text)
    if text.lstrip().startswith("{"):
        return control_from_json({"position": at, **json_object(text)}, times=[time])
    return control_from_json(text, position=at, times=[time])


def _punctuation(text: str, at: int, time: str) -> Punctuation:
    found = control_from_json(text, position=at, times=[time])
    if isinstance(found, Punctuation):
        return found
    raise _missing_time(text)


def _missing_time(text: str) -> AccentError:
    return AccentError(
        f"accent {text!r}: expected the time from which results are in the new units, got a row without one"
    )

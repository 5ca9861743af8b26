"""Parse accents and punctuation from lines of a log and texts in a stream's rows (semantics 8.1, 8.7).

Most accents of a feed have one form: they name a key and one of a few maps. A regular expression reads these; all others go to
:mod:`pulse.stream.accents.text`, which gives the same result for both.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import lru_cache
from typing import Any

from pulse.core.errors import PulseError, TimestampError
from pulse.core.time import parse_instant
from pulse.runtime.accents.compacted_maps import rows_with_values
from pulse.stream.accents.accents import (
    Accent,
    AccentError,
    Control,
    Primitive,
    Punctuation,
    control_from_json,
)
from pulse.stream.accents.log import AccentLog
from pulse.stream.descriptions.description import Description

_NAMED = re.compile(r"\s*\[\[\s*([A-Za-z_]\w*)\s*=\s*'([^'\\]*)'\s*,([^\[\]]*)\]\]\s*")
_WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}|\.\d{6})?Z?", re.ASCII)
_EPOCH = datetime(1970, 1, 1)
_WORDS = ("true", "false", "null", "not", "and", "or", "in", "is", "between", "timestamp")


def parse_line(line: str, time: str, last: int) -> Control | None:
    """Parse a line of a log; None for comments and empty lines.

    ``last`` is the instant of the previous control, which punctuation without an instant takes.
    """
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    if text.startswith("["):
        return _punctuation(text, last, time)
    instant, bracket, rest = text.partition("[")
    if bracket and not text.startswith("{"):
        found, at = _keyed_accent(bracket + rest, time), _instant_or_none(instant.strip())
        if found is not None and at is not None:
            return Accent(position=at, description=found[0], primitive=found[1])
    try:
        (control,) = AccentLog.parse([text], where="log", times=[time]).controls
    except AccentError as e:  # the line number in the log is unknown here
        raise AccentError(str(e).removeprefix("log, line 1: ")) from None
    return control


def parse_row(text: str, at: int | None, time: str, last: int) -> Control:
    """Parse the text of a row whose time is ``at``; only punctuation may lack a time."""
    if at is None:
        if text.strip().startswith("["):
            return _punctuation(text, last, time)
        raise _missing_time(text)
    found = _keyed_accent(text, time)
    if found is not None:
        return Accent(position=at, description=found[0], primitive=found[1])
    value: Any = text
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as e:  # no JSON, nested too deep, or a number of too many digits
            raise AccentError(f"accent: expected an object of JSON, got {text!r} ({e})") from None
        value.setdefault("position", at)
    return control_from_json(value, position=at, times=[time])


def _punctuation(text: str, at: int, time: str) -> Punctuation:
    found = control_from_json(text, position=at, times=[time])
    if isinstance(found, Punctuation):
        return found
    raise _missing_time(text)


def _missing_time(text: str) -> AccentError:
    return AccentError(
        f"accent {text!r}: expected the time from which results are in the new units, got a row without one"
    )


def _keyed_accent(text: str, time: str) -> tuple[Description, Primitive] | None:
    """Fast path: parse a valid accent on the rows of one key; None for any other text."""
    match = _NAMED.fullmatch(text)
    if match is None or match[1] == time or match[1].lower() in _WORDS:
        return None
    primitive = _primitive(match[3])
    if primitive is None or primitive.attribute == match[1]:
        return None
    return rows_with_values(match[1], (match[2],)), primitive


def _instant_or_none(text: str) -> int | None:
    """Parse an instant, with a fast path for ISO texts; None if invalid: the full parser then reports the error."""
    try:
        if _WRITTEN.fullmatch(text) is None:
            return parse_instant(text)
        since = datetime.fromisoformat(text.removesuffix("Z")) - _EPOCH
    except (TimestampError, TypeError, ValueError):
        return None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


@lru_cache(maxsize=1024)
def _primitive(text: str) -> Primitive | None:
    """Parse the primitive of an accent; None if it is invalid."""
    try:
        return Accent.parse(f"[[true, {text}]]").primitive
    except PulseError:
        return None

"""What lines of a log and texts in a stream's rows say: accents and punctuation (semantics 8.1, 8.7).

A feed's accents are alike: they name a key, and a map that many have. Such texts are read without a parser; all others by
:mod:`pulse.stream.accents.text`, which says the same of both.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import lru_cache
from typing import Any

from pulse.core.errors import PulseError, TimestampError
from pulse.core.time import parse_instant
from pulse.runtime.accents.compacted_maps import listing
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


def of_line(line: str, time: str, last: int) -> Control | None:
    """What a line of a log says; remarks and empty lines say nothing. ``last``: the instant of the control before it, which
    punctuation has that names none."""
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    if text.startswith("["):
        return _punctuation(text, last, time)
    instant, bracket, rest = text.partition("[")
    if bracket and not text.startswith("{"):
        found, at = _named(bracket + rest, time), _instant_or_none(instant.strip())
        if found is not None and at is not None:
            return Accent(position=at, description=found[0], primitive=found[1])
    try:
        (control,) = AccentLog.parse([text], where="log", times=[time]).controls
    except AccentError as e:  # which line of the log it is nobody knows here
        raise AccentError(str(e).removeprefix("log, line 1: ")) from None
    return control


def of_row(text: str, at: int | None, time: str, last: int) -> Control:
    """What the text of a row says, whose time is ``at``; punctuation needs none."""
    if at is None:
        if text.strip().startswith("["):
            return _punctuation(text, last, time)
        raise _timeless(text)
    found = _named(text, time)
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
    raise _timeless(text)


def _timeless(text: str) -> AccentError:
    return AccentError(
        f"accent {text!r}: expected the time from which results are in the new units, got a row without one"
    )


def _named(text: str, time: str) -> tuple[Description, Primitive] | None:
    """An accent of the rows of one key, if that is what the text is and nothing is wrong with it."""
    match = _NAMED.fullmatch(text)
    if match is None or match[1] == time or match[1].lower() in _WORDS:
        return None
    primitive = _primitive(match[3])
    if primitive is None or primitive.attribute == match[1]:
        return None
    return listing(match[1], (match[2],)), primitive


def _instant_or_none(text: str) -> int | None:
    """An instant, read at once where a program wrote it; None where it is none: why, whoever reads the line in full says."""
    try:
        if _WRITTEN.fullmatch(text) is None:
            return parse_instant(text)
        since = datetime.fromisoformat(text.removesuffix("Z")) - _EPOCH
    except (TimestampError, TypeError, ValueError):
        return None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


@lru_cache(maxsize=1024)
def _primitive(text: str) -> Primitive | None:
    """A primitive that is read as it would be in any accent; None where it is not one."""
    try:
        return Accent.parse(f"[[true, {text}]]").primitive
    except PulseError:
        return None

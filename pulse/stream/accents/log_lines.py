"""Parse lines of an accent log: an instant and an accent, or an equivalent JSON object."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pulse.core.errors import PulseError, TimestampError
from pulse.core.time import parse_instant
from pulse.stream.accents.accents import AccentError, Control, control_from_json


def control_of_line(line: str, where: str, times: Collection[str]) -> Control:
    """Parse a line; ``where`` prefixes errors, ``times`` are the columns whose texts are instants."""
    if line.startswith("{"):
        try:
            given = json.loads(line)
        except (
            ValueError,
            RecursionError,
        ) as e:  # not JSON, nested too deep, or a number with too many digits
            raise AccentError(f"{where}: expected an object of JSON, got {line!r} ({e})") from None
        return control_of_object(given, where, times)
    instant, bracket, rest = line.partition("[")
    if not bracket or not instant.strip():
        raise AccentError(
            f"{where}: expected an instant and an accent, 2013-10-08 [[symbol = 'AIG', alter(price, y / 4)]], got {line!r}"
        )
    at = _instant(instant.strip(), where)
    try:
        return control_from_json(bracket + rest, position=at, times=times)
    except PulseError as e:
        raise AccentError(f"{where}: {e}") from None


def control_of_object(given: Any, where: str, times: Collection[str]) -> Control:
    """Read a JSON object; its instant is ``at`` or ``position``."""
    if not isinstance(given, dict) or ("at" not in given and "position" not in given):
        raise AccentError(f"{where}: expected an object with the instant 'at', got {given!r}")
    rest = {name: value for name, value in given.items() if name != "at"}
    at = _instant(given["at"], where) if "at" in given else given["position"]
    try:
        return control_from_json({**rest, "position": at}, times=times)
    except PulseError as e:
        raise AccentError(f"{where}: {e}") from None


def _instant(given: Any, where: str) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    try:
        return parse_instant(given)
    except (TimestampError, TypeError, ValueError):
        raise AccentError(
            f"{where}: expected an instant such as 2013-10-08T09:30:00, got {given!r}"
        ) from None

"""Validate the tables of a job file: known keys only, with values of the expected kind.

Errors name the file, the table, the key and the expected value.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from pulse.core.errors import PulseError
from pulse.core.time import parse_duration
from pulse.runtime.jobs.secrets import check_secrets


class JobError(PulseError, ValueError):
    """A job that cannot be run as it is written."""


class JobTable:
    """A table of the file whose keys are all among ``known``. A mistyped key is reported as unknown, before any missing key."""

    def __init__(self, where: str, name: str, values: Any, known: tuple[str, ...]) -> None:
        self.where, self.name, self.known = where, name, known
        if not isinstance(values, Mapping):
            raise JobError(f"{where}: expected a table [{name}], got {values!r}")
        self.values = dict(values)
        place = f"[{name}]" if name else "the job"
        for key in self.values:
            if key not in known:
                near = _near(key, known) or f"; there are {', '.join(known)}"
                raise JobError(f"{where}: unknown '{key}' in {place}{near}")

    def wrong(self, key: str, expected: str, got: object) -> JobError:
        """Make the error for a value of the wrong kind."""
        table = f", [{self.name}]" if self.name else ""
        return JobError(f"{self.where}{table}, '{key}': expected {expected}, got {got}")

    def any(self, key: str, default: Any = None) -> Any:
        """Return a value of any kind."""
        assert key in self.known
        return self.values.get(key, default)

    def text(self, key: str, default: Any = ...) -> Any:
        """Return a text; raise where it is missing and there is no default."""
        value = self.any(key, default)
        if value is ...:
            raise self.wrong(key, "a text", "nothing")
        if value is not default and (not isinstance(value, str) or not value.strip()):
            raise self.wrong(key, "a text", repr(value))
        return value

    def one_of(self, key: str, choices: Iterable[str], default: Any = ...) -> str:
        """Return one of ``choices``."""
        value = self.any(key, default)
        if value not in choices:
            raise self.wrong(
                key,
                f"one of {', '.join(choices)}",
                "nothing" if value is ... else f"{value!r}{_near(value, choices)}",
            )
        return str(value)

    def names(self, key: str) -> tuple[str, ...]:
        """Return one name or a list of them; empty where the key is missing."""
        value = self.any(key, [])
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(one, str) and one for one in listed):
            raise self.wrong(key, "a name or a list of names", repr(value))
        return tuple(listed)

    def whole(self, key: str, default: int) -> int:
        """Return a whole number above 0."""
        value = self.any(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(key, "a whole number above 0", repr(value))
        return value

    def size(self, key: str) -> float | None:
        """Return a finite number above 0; None where the key is missing."""
        value = self.any(key)
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0.0 < value < math.inf:
            raise self.wrong(key, "a number above 0", repr(value))
        return float(value)

    def duration(self, key: str, default: Any, *, write: str = "10 s") -> Any:
        """Return a duration in microseconds."""
        value = self.any(key, None)
        if value is None:
            return default
        try:
            return parse_duration(value)
        except PulseError as e:
            raise self.wrong(key, f"a duration such as '{write}'", f"{value!r} ({e})") from None

    def duration_text(self, key: str) -> Any:
        """Return a duration as written, checked."""
        if self.duration(key, None) is None:
            raise self.wrong(key, "a duration such as '60 s': how far models reach ahead", "nothing")
        return self.values[key]

    def options(self, key: str) -> dict[str, str]:
        """Return a table of texts, for Spark and its connectors."""
        found = {name: option(value) for name, value in self.table(key).items()}
        return checked(found, f"{self.where}, [{self.name}.{key}]")

    def table(self, key: str, *, required: bool = False) -> dict[str, Any]:
        """Return a nested table; empty where the key is missing."""
        value = self.any(key, {})
        if not isinstance(value, Mapping) or (required and not value):
            raise self.wrong(key, "a table", repr(value) if value else "nothing")
        return dict(value)


def _near(value: object, choices: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(value), list(choices), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def checked(options: dict[str, str], where: str) -> dict[str, str]:
    """Check that options contain no written-out secret, and return them."""
    check_secrets(options, where)
    return options


def option(value: Any) -> str:
    """Format a value as Spark's options expect it."""
    return str(value).lower() if isinstance(value, bool) else str(value)

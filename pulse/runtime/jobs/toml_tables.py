"""Validate the tables of a job file: known keys only, with values of the types of the job's fields.

Errors name the file, the table, the key and the expected value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from pulse.core.errors import PulseError
from pulse.core.time import parse_duration
from pulse.core.typed_data import MismatchError, did_you_mean, typed
from pulse.runtime.jobs.secrets import check_secrets

T = TypeVar("T")


class JobError(PulseError, ValueError):
    """A job that cannot be run as it is written."""


class JobTable:
    """A table of the file: its keys are the fields of ``kind`` except ``but``, and those of ``more``.

    A mistyped key is reported as unknown, before any missing key.
    """

    def __init__(
        self, where: str, name: str, values: Any, kind: Any, *, but: str = "", more: tuple[str, ...] = ()
    ) -> None:
        self.where, self.name = where, name
        if not isinstance(values, Mapping):
            raise JobError(f"{where}: expected a table [{name}], got {values!r}")
        self.values = dict(values)
        known = (*(one.name for one in fields(kind) if one.name != but), *more)
        for key in self.values:
            if key not in known:
                near = did_you_mean(key, known) or f"; there are {', '.join(known)}"
                raise JobError(f"{where}: unknown '{key}' in {f'[{name}]' if name else 'the job'}{near}")

    def wrong(self, key: str, expected: str, got: object) -> JobError:
        """Make the error for a value of the wrong kind."""
        table = f", [{self.name}]" if self.name else ""
        return JobError(f"{self.where}{table}, '{key}': expected {expected}, got {got}")

    def typed(self, kind: type[T], **changed: Any) -> T:
        """Build the job's part from the table, with some values changed."""
        try:
            return typed({**self.values, **changed}, kind)
        except MismatchError as e:
            raise self.wrong(e.place, e.expected, e.got) from None

    def listed(self, *keys: str) -> dict[str, Any]:
        """Return the values of these keys, a name alone as a list of one."""
        found = {key: self.values[key] for key in keys if key in self.values}
        return {key: [value] if isinstance(value, str) else value for key, value in found.items()}

    def duration(self, key: str, default: int | None = None, *, write: str = "10 s") -> int | None:
        """Return a duration in microseconds."""
        value = self.values.get(key)
        if value is None:
            return default
        try:
            return parse_duration(value)
        except PulseError as e:
            raise self.wrong(key, f"a duration such as '{write}'", f"{value!r} ({e})") from None

    def options(self, key: str) -> dict[str, str]:
        """Return a table of texts, for Spark and its connectors."""
        found = {name: option(value) for name, value in self.table(key).items()}
        check_secrets(found, f"{self.where}, [{self.name}.{key}]")
        return found

    def table(self, key: str) -> dict[str, Any]:
        """Return a nested table; empty where the key is missing."""
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            raise self.wrong(key, "a table", repr(value))
        return dict(value)


def option(value: Any) -> str:
    """Format a value as Spark's options expect it."""
    return str(value).lower() if isinstance(value, bool) else str(value)

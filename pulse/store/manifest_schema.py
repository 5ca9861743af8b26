"""Validate a manifest's JSON before it is used: kinds of values, and names that stay in their folder.

A manifest may be damaged, or come from somebody else. Its names are opened, linked and, with old versions, deleted; its counts
size arrays. So all of it is checked once, when it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulse.core.time import LIMIT

Check = Callable[[Any, str], None]


class ShapeError(ValueError):
    """A manifest field that is malformed; the reader of manifests adds the file's name."""


def check_manifest(fields: Any) -> None:
    """Check that the fields of a manifest have the right kinds, and that names stay in its folder."""
    _MANIFEST(fields, "")


def is_plain_name(name: Any) -> bool:
    """Check whether a name is that of a file in a folder, and not a path out of it.

    >>> is_plain_name("part-000-00000.parquet"), is_plain_name("../x"), is_plain_name("/etc/passwd"), is_plain_name("..")
    (True, False, False, False)
    """
    if not isinstance(name, str) or not name or name in (".", ".."):
        return False
    return not any(sign in name for sign in "/\\\0") and len(name.encode("utf-8", "replace")) < 256


def _expected(what: str, value: Any, at: str) -> ShapeError:
    shown = repr(value)
    return ShapeError(f"'{at}': expected {what}, got {shown if len(shown) < 80 else shown[:80] + '…'}")


def _name(value: Any, at: str) -> None:
    if not is_plain_name(value):
        raise _expected("the name of a file in the model's folder", value, at)


def _whole(value: Any, at: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LIMIT:
        raise _expected("a whole number", value, at)


def _count(value: Any, at: str) -> None:
    _whole(value, at)
    if value < 0:
        raise _expected("a number from 0 on", value, at)


def _of(kind: type, what: str) -> Check:
    def check(value: Any, at: str) -> None:
        if not isinstance(value, kind):
            raise _expected(what, value, at)

    return check


_text, _flag, _object = _of(str, "a text"), _of(bool, "true or false"), _of(dict, "an object")


def _or_null(check: Check) -> Check:
    def checked(value: Any, at: str) -> None:
        if value is not None:
            check(value, at)

    return checked


def _list(check: Check) -> Check:
    def checked(value: Any, at: str) -> None:
        if not isinstance(value, list):
            raise _expected("a list", value, at)
        for i, one in enumerate(value):
            check(one, f"{at}[{i}]")

    return checked


def _by_name(check: Check) -> Check:
    """Check an object with any keys."""

    def checked(value: Any, at: str) -> None:
        _object(value, at)
        for key, one in value.items():
            check(one, f"{at}.{key}")

    return checked


def _record(needed: dict[str, Check], others: dict[str, Check] | None = None) -> Check:
    """Check an object with these keys; those of ``others`` are optional."""

    def checked(value: Any, at: str) -> None:
        _object(value, at)
        for key, check in needed.items():
            if key not in value:
                raise ShapeError(f"'{at}.{key}'".replace("'.", "'") + " is missing")
            check(value[key], f"{at}.{key}" if at else key)
        for key, check in (others or {}).items():
            if key in value:
                check(value[key], f"{at}.{key}" if at else key)

    return checked


def _number(value: Any, at: str) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _expected("a number", value, at)


def _counted(value: Any, at: str) -> None:
    """Check a count, counts by name, or names of files that hold the counted rows."""
    if isinstance(value, dict):
        _by_name(_counted)(value, at)
    elif isinstance(value, list):
        _list(_name)(value, at)
    elif isinstance(value, (int, float)) or value is None or isinstance(value, str):
        return
    else:
        raise _expected("a count", value, at)


def _keep(value: Any, at: str) -> None:
    if value is not None and not isinstance(value, (str, bool)):
        _whole(value, at)


_COUNTED = ("tuples", "late", "not_finite", "superseded", "missed", "truncated", "rows_read")


def _counts(value: Any, at: str) -> None:
    _by_name(_counted)(value, at)
    _record({}, dict.fromkeys(_COUNTED, _or_null(_whole)))(value, at)


_FIGURES = {"keys": _count, "bytes": _count, "start": _or_null(_whole), "end": _or_null(_whole)}
_LAYER = _record(
    {
        "name": _name,
        "version": _count,
        "withdrawn": _count,
        "put": _count,
        "points": _whole,
        "known": _or_null(_whole),
    }
    | _FIGURES
)
_FILE = _record({"name": _name, "segments": _count, "points": _count, **_FIGURES}, {"layers": _list(_LAYER)})
_TUPLES = _record({"name": _name, "start": _whole, "end": _whole}, {"rows": _count})
_SOURCE = _record(
    {},
    {
        "format": _or_null(_record({"name": _text, "options": _object})),
        "files": _list(
            _record({"path": _text, "bytes": _count, "modified": _number}, {"checksum": _or_null(_text)})
        ),
    },
)
_HISTORY = _record(
    {},
    {
        "keep": _keep,
        "since": _or_null(_whole),
        "fits": _list(_record({"tuples": _or_null(_list(_TUPLES)), "source": _or_null(_SOURCE)})),
    },
)
_WORST = _record({}, {"worst_err": _or_null(_number), "worst_drift": _or_null(_number)})
_MANIFEST = _record(
    {
        "format": _text,
        "format_version": _count,
        "pulse_version": _text,
        "created": _text,
        "schema": _object,
        "fit": _record({}, {"error": _or_null(_object), "drift": _or_null(_object)}),
        "sources": _list(
            _record({"path": _text, "bytes": _count, "rows": _count}, {"modelled": _or_null(_count)})
        ),
        "counts": _counts,
        "statistics": _record({}, {"attributes": _by_name(_WORST), "longest_microseconds": _or_null(_count)}),
        "files": _list(_FILE),
    },
    {
        "statements": _list(_text),
        "fits": _count,
        "version": _count,
        "kept": _list(_count),
        "since": _or_null(_whole),
        "changes": _list(_record({"version": _count, "at": _text, "what": _text}, {"counts": _counts})),
        "log": _list(_name),
        "history": _HISTORY,
        "stale": _flag,
        "accents": _or_null(_name),
    },
)

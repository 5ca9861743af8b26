"""Types of a manifest's JSON: kinds of values, and names that stay in their folder.

A manifest may be damaged, or come from somebody else. Its names are opened, linked and, with old versions, deleted; its counts
size arrays. So all of it is checked once, when it is read.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from pulse.core.time import LIMIT

_PLAIN_NAME = r"\A(?!\.\.?\Z)([^/\\\x00\x80-\U0010ffff]{1,255}|[^/\\\x00]{1,63})\Z"  # at most 255 bytes

Name = Annotated[
    str,
    Meta(pattern=_PLAIN_NAME, description="the name of a file in the model's folder, not a path out of it"),
]
_SUB = r"\A(?:(?:_aside|_old|_pulse)/)?(?!\.\.?\Z)([^/\\\x00\x80-\U0010ffff]{1,255}|[^/\\\x00]{1,63})\Z"
DataName = Annotated[
    str,
    Meta(
        pattern=_SUB,
        description="the name of a file in the model's folder, or of one in a folder of it, not a path out of it",
    ),
]
Folder = Annotated[str, Meta(pattern=r"\A_old\Z", description="_old, the folder of files of older versions")]
Whole = Annotated[int, Meta(ge=-LIMIT, le=LIMIT, description="a whole number")]
Count = Annotated[int, Meta(ge=0, le=LIMIT, description="a number from 0 on")]
_Counted = Annotated[
    float | bool | str | list[Name] | None,
    Meta(description="a count, or names of files with the counted rows"),
]


class _Tuples(TypedDict):
    name: Name
    start: Whole
    end: Whole
    rows: NotRequired[Count]


class _Format(TypedDict):
    name: str
    options: dict[str, Any]


class _SourceFile(TypedDict):
    path: str
    bytes: Count
    modified: float
    checksum: NotRequired[str | None]


class _Source(TypedDict, total=False):
    format: _Format | None
    files: list[_SourceFile]


class _Fit(TypedDict):
    tuples: list[_Tuples] | None
    source: _Source | None


class _History(TypedDict, total=False):
    keep: str | bool | Whole | None
    since: Whole | None
    fits: list[_Fit]


class _Worst(TypedDict, total=False):
    worst_err: float | None
    worst_drift: float | None


class _Statistics(TypedDict, total=False):
    attributes: dict[str, _Worst]
    longest_microseconds: Count | None


class _Bounds(TypedDict, total=False):
    error: dict[str, Any] | None
    drift: dict[str, Any] | None


class _Figures(TypedDict, total=False):
    tuples: Whole | None
    late: Whole | None
    not_finite: Whole | None
    superseded: Whole | None
    missed: Whole | None
    truncated: Whole | None
    rows_read: Whole | None


class _FiguresOfChange(TypedDict, total=False):
    counts: _Figures


class _Change(TypedDict):
    version: Count
    at: str
    what: str
    counts: NotRequired[dict[str, _Counted | dict[str, _Counted]]]


class OpenFields(TypedDict):
    """The fields of a manifest that keep what later versions add to them, and the format's version."""

    format_version: Count
    fit: _Bounds
    counts: dict[str, _Counted | dict[str, _Counted]]
    statistics: _Statistics
    changes: NotRequired[list[_Change]]
    history: NotRequired[_History]


class FigureFields(TypedDict):
    """The counts among a manifest's fields that are used in arithmetic."""

    counts: _Figures
    changes: NotRequired[list[_FiguresOfChange]]

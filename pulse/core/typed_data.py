"""Check data from files against annotated types with msgspec: errors name the place, what was expected and what came.

A type says what it expects in words with ``Annotated[..., Meta(description=...)]``::

    Count = Annotated[int, Meta(ge=0, description="a number from 0 on")]
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

T = TypeVar("T")

_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_PLACE = re.compile(r" - at `(?:key in )?\$(.*)`$")
_MISSING = re.compile(r"missing required field `(\w+)`")
_WORDS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


class MismatchError(ValueError):
    """Data of another type than expected: at ``place``, ``expected`` in words, ``got`` as text."""

    def __init__(self, place: str, expected: str, got: str) -> None:
        super().__init__(
            f"'{place}': expected {expected}, got {got}" if place else f"expected {expected}, got {got}"
        )
        self.place, self.expected, self.got = place, expected, got


def typed(value: Any, kind: type[T]) -> T:
    """Build a value of a type from plain data; fields that the type does not have are ignored."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as e:
        raise _explained(str(e), value, kind) from None


def _explained(message: str, value: Any, kind: Any) -> MismatchError:
    """Find the place that msgspec's message names, and put into words what is expected there."""
    found = _PLACE.search(message)
    missing = _MISSING.search(message)
    steps = _STEP.findall(found[1]) if found else []
    if missing:
        steps.append((missing[1], ""))
    place, expected = "", _words(kind)
    for name, index in steps:
        kind, value, step = _part(_bare(kind, value), value, name, index)
        place += step if place or not step.startswith(".") else step[1:]
        expected = _words(kind) or expected
    shown = "nothing" if missing or value == {} else repr(value)
    shown = shown if len(shown) < 80 else shown[:80] + "…"
    near = did_you_mean(value, get_args(kind)) if get_origin(kind) is Literal else ""
    return MismatchError(place, expected or message, shown + near)


def did_you_mean(value: object, choices: Iterable[str]) -> str:
    """Suggest the choice that is spelled like a value; empty if none is.

    >>> did_you_mean("colour", ["color", "size"])
    "; did you mean 'color'?"
    """
    near = difflib.get_close_matches(str(value), list(choices), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _part(kind: Any, value: Any, name: str, index: str) -> tuple[Any, Any, str]:
    """Return the type and the value of a part, and the part's name."""
    if name:
        found = get_type_hints(kind, include_extras=True)[name]
        if get_origin(found) is NotRequired:
            found = get_args(found)[0]
        return found, value.get(name), f".{name}"
    if index != "...":
        return get_args(kind)[0], value[int(index)], f"[{index}]"
    of = get_args(kind)[1]
    for key, one in value.items():
        try:
            msgspec.convert(one, of)
        except msgspec.ValidationError:
            return of, one, f".{key}"
    return get_args(kind)[0], [*value], ""


def _bare(kind: Any, value: Any) -> Any:
    """Return the type without annotations; of a union, the member for a value of this shape."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0], value)
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    members = [_bare(one, value) for one in get_args(kind)]
    if isinstance(value, Mapping):
        fits = [one for one in members if _is_record(one) or get_origin(one) in (dict, Mapping)]
    else:
        fits = [one for one in members if get_origin(one) in (list, tuple)]
    return fits[0] if fits else members[0]


def _is_record(kind: Any) -> bool:
    return is_typeddict(kind) or is_dataclass(kind)


def _words(kind: Any) -> str:
    """Put into words what a type expects; empty if it has none."""
    if get_origin(kind) is Annotated:
        described = (one.description for one in kind.__metadata__ if isinstance(one, msgspec.Meta))
        return next((one for one in described if one), _words(get_args(kind)[0]))
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(filter(None, map(_words, get_args(kind)))))
    if _is_record(kind) or get_origin(kind) in (dict, Mapping):
        return "an object"
    if get_origin(kind) in (list, tuple):
        return "a list"
    return _WORDS.get(kind, "")

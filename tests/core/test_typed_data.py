"""Data of a file against its types: what fits is built, and what does not is named with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from msgspec import Meta

from pulse.core.typed_data import MismatchError, typed

Count = Annotated[int, Meta(ge=0, description="a number from 0 on")]


class Notes(TypedDict):
    author: str
    pages: NotRequired[list[Count]]


@dataclass(frozen=True)
class Part:
    name: str
    size: Count
    kind: Literal["red", "green"] = "red"


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    sizes: dict[str, Count | list[Count]]
    notes: Notes | None = None


def values(**changed: Any) -> dict[str, Any]:
    return {"parts": [{"name": "a", "size": 1}], "sizes": {"x": 1, "y": [2, 3]}, **changed}


def test_what_fits_is_built_and_other_fields_are_ignored() -> None:
    found = typed({**values(), "colour": "blue"}, Whole)
    assert found == Whole((Part("a", 1),), {"x": 1, "y": [2, 3]})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, r"^expected an object, got 7$"),
        (values(parts=3), r"^'parts': expected a list, got 3$"),
        (values(parts=[{"name": "a"}]), r"^'parts\[0\]\.size': expected a number from 0 on, got nothing$"),
        (values(parts=[{"name": 5, "size": 1}]), r"^'parts\[0\]\.name': expected a text, got 5$"),
        (
            values(parts=[{"name": "a", "size": 1, "kind": "gren"}]),
            r"^'parts\[0\]\.kind': expected one of red, green, got 'gren'; did you mean 'green'\?$",
        ),
        (values(sizes={"x": 1, "y": -1}), r"^'sizes\.y': expected a number from 0 on or a list, got -1$"),
        (values(sizes={"x": 1, "y": [0, True]}), r"^'sizes\.y\[1\]': expected a number from 0 on, got True$"),
        (values(notes={"author": "b", "pages": [1, None]}), r"^'notes\.pages\[1\]': expected a number"),
        (values(notes={"pages": []}), r"^'notes\.author': expected a text, got nothing$"),
        ({}, r"^'parts': expected a list, got nothing$"),
    ],
)
def test_what_does_not_fit_is_named(given: Any, message: str) -> None:
    with pytest.raises(MismatchError, match=message):
        typed(given, Whole)

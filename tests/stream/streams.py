"""Random valid accented streams, small enough to be looked at and crowded enough that accents meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from pulse.stream.accents import (
    Accent,
    AccentError,
    AddAttribute,
    AlterData,
    DropAttribute,
    Primitive,
    Row,
)
from pulse.stream.affine import Affine
from pulse.stream.description import TRUE, Description
from pulse.stream.validity import Existence
from pulse.stream.values import ValueSet

# Few maps, some of them inverse to each other, one the composition of two: so that they meet, annihilate and compose.
MAPS = [Affine(2), Affine("1/2"), Affine(1, 1), Affine(1, -1), Affine(2, 2), Affine("5/9", "-160/9")]


@dataclass(frozen=True)
class World:
    """What a stream may speak of: attributes of its first schema, others that may come, and which are of numbers."""

    first: tuple[str, ...] = ("s", "t", "x")
    later: tuple[str, ...] = ("p",)
    strings: tuple[str, ...] = ("s",)
    alterable: tuple[str, ...] = ("t", "x", "p")
    fixed: tuple[str, ...] = ("s",)  # neither added nor dropped
    described: tuple[str, ...] = ("s", "t", "x", "p")

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.first, *self.later)


def values(world: World, name: str) -> list[Any]:
    return ["a", "b"] if name in world.strings else [0, 1, 2, 3]


@st.composite
def descriptions(draw: st.DrawFn, world: World, without: str, most: int = 2) -> Description:
    names = [name for name in world.described if name != without]
    found = TRUE
    for name in draw(st.lists(st.sampled_from(names), max_size=most, unique=True)) if names else []:
        comparators = ["=", "!="] if name in world.strings else ["=", "<", ">="]
        values_of = ValueSet.compare(
            draw(st.sampled_from(comparators)), draw(st.sampled_from(values(world, name)))
        )
        found = found & Description.where(**{name: values_of})
    return found


@st.composite
def primitives(draw: st.DrawFn, world: World) -> Primitive:
    changing = [name for name in world.names if name not in world.fixed]
    kinds = (["alter"] * 3 if world.alterable else []) + (["add", "drop"] if changing else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "alter":
        return AlterData(draw(st.sampled_from(world.alterable)), draw(st.sampled_from(MAPS)))
    name = draw(st.sampled_from(changing))
    return AddAttribute(name) if kind == "add" else DropAttribute(name)


def fitted(here: Existence, primitive: Primitive, description: Description) -> Accent | None:
    """The accent, its description cut to the rows for which it is valid; None if there are none."""
    exists = here[primitive.attribute]
    cut = description - exists if isinstance(primitive, AddAttribute) else description & exists
    for name in cut.attributes:
        cut = cut & here[name]
    if cut.is_empty or primitive.attribute in cut.simplified().attributes:
        return None
    accent = Accent(position=0, description=cut.simplified(), primitive=primitive)
    try:
        here.check(accent)
    except AccentError:
        return None
    return accent


def placed(row: Row, accents: Sequence[Accent], here: Existence) -> dict[str, Any]:
    """A row in first units as it is after these accents: altered, without what does not exist for it."""
    now = dict(row)
    for accent in accents:
        now = accent.altered(now)
    while gone := [name for name in now if not here[name].matches(now)]:
        del now[gone[0]]
    return now


@st.composite
def rows(draw: st.DrawFn, world: World) -> dict[str, Any]:
    return {name: draw(st.sampled_from(values(world, name))) for name in world.names}


@st.composite
def streams(draw: st.DrawFn, world: World, *, most: int = 8) -> list[Accent | dict[str, Any]]:
    """A valid stream of rows and accents."""
    here = Existence.of(world.first)
    found: list[Accent | dict[str, Any]] = []
    accents: list[Accent] = []
    for _ in range(draw(st.integers(0, most))):
        if draw(st.booleans()):
            found.append(placed(draw(rows(world)), accents, here))
            continue
        primitive = draw(primitives(world))
        accent = fitted(here, primitive, draw(descriptions(world, primitive.attribute)))
        if accent is not None:
            here = here.after(accent)
            accents.append(accent)
            found.append(accent)
    return found

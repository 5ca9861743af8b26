"""Random valid accented streams, small enough to be looked at and crowded enough that accents meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from pulse.stream.accents.accents import (
    Accent,
    AccentError,
    AddAttribute,
    AlterData,
    DropAttribute,
    Primitive,
)
from pulse.stream.accents.validity import Existence
from pulse.stream.descriptions.description import TRUE, Description
from pulse.stream.descriptions.value_sets import ValueSet
from pulse.stream.units.affine import Affine
from tests.oracles.rows import Row, altered

# Few maps, some of them inverse to each other, one the composition of two: so that they meet, annihilate and compose.
MAPS = [Affine(2), Affine("1/2"), Affine(1, 1), Affine(2, 1)]


@dataclass(frozen=True)
class World:
    """What a stream may speak of: attributes of its first schema, others that may come, and which are of numbers."""

    first: tuple[str, ...] = ("s", "t", "x")
    later: tuple[str, ...] = ("p",)
    strings: tuple[str, ...] = ("s",)
    alterable: tuple[str, ...] = ("t", "x", "p")
    fixed: tuple[str, ...] = ("s",)  # neither added nor dropped
    described: tuple[str, ...] = ("s", "t", "x", "p")
    ordered: bool = False  # an attribute is changed only by accents on those before it
    pairing: tuple[str, ...] = ()  # attributes of two values: rows of two streams often have the same
    rows: int = 1  # as many to an accent

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.first, *self.later)


def values(world: World, name: str) -> list[Any]:
    if name in world.strings:
        return ["a", "b"]
    return [0, 1] if name in world.pairing else [0, 1, 2, 3]


class Picks:
    """Choices out of one number: drawing a number for each element is many times faster than drawing each choice."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, options: Sequence[Any]) -> Any:
        self.number, at = divmod(self.number, len(options))
        return options[at]


PICKS = st.integers(0, 2**48 - 1).map(Picks)


def described(pick: Picks, world: World, without: str) -> Description:
    names = [name for name in world.described if name != without]
    if world.ordered and without:
        names = [name for name in names if world.names.index(name) < world.names.index(without)]
    found = TRUE
    for _ in range(pick([0, 1, 1, 2]) if names else 0):
        name = pick(names)
        comparator = pick(["=", "!="] if name in world.strings else ["=", "<", ">="])
        found = found & Description.where(**{name: ValueSet.compare(comparator, pick(values(world, name)))})
    return found


def primitive_of(pick: Picks, world: World) -> Primitive:
    changing = [name for name in world.names if name not in world.fixed]
    kind = pick((["alter"] * 3 if world.alterable else []) + (["add", "drop"] if changing else []))
    if kind == "alter":
        return AlterData(pick(world.alterable), pick(MAPS))
    name = pick(changing)
    return AddAttribute(name) if kind == "add" else DropAttribute(name)


def row_of(pick: Picks, world: World) -> dict[str, Any]:
    return {name: pick(values(world, name)) for name in world.names}


def descriptions(world: World, without: str = "") -> st.SearchStrategy[Description]:
    return PICKS.map(lambda pick: described(pick, world, without))


def rows(world: World) -> st.SearchStrategy[dict[str, Any]]:
    return PICKS.map(lambda pick: row_of(pick, world))


def fitted(here: Existence, primitive: Primitive, description: Description) -> Accent | None:
    """The accent, its description cut to the rows for which it is valid; None if there are none."""
    exists = here[primitive.attribute]
    cut = description - exists if isinstance(primitive, AddAttribute) else description & exists
    for name in cut.attributes:
        cut = cut & here[name]
    if cut.is_empty:
        return None
    try:
        accent = Accent(position=0, description=cut.simplified(), primitive=primitive)
        here.check(accent)
    except AccentError:
        return None
    return accent


def placed(row: Row, accents: Sequence[Accent], here: Existence) -> dict[str, Any]:
    """A row in first units as it is after these accents: altered, without what does not exist for it."""
    now = dict(row)
    for accent in accents:
        now = altered(accent, now)
    while gone := [name for name in now if not here[name].matches(now)]:
        del now[gone[0]]
    return now


class Drawn:
    """A stream as it grows: its elements, its accents, and what exists at its end."""

    def __init__(self, world: World) -> None:
        self.world, self.here = world, Existence.of(world.first)
        self.elements: list[Accent | dict[str, Any]] = []
        self.accents: list[Accent] = []

    def grow(self, pick: Picks, seen: Sequence[Accent] = ()) -> Accent | dict[str, Any] | None:
        """One more element: a row, an accent, or one that was ``seen`` elsewhere, as far as it fits."""
        kind = pick(["row"] * self.world.rows + (["accent", "seen"] if seen else ["accent"]))
        element: Accent | dict[str, Any] | None
        if kind == "row":
            element = placed(row_of(pick, self.world), self.accents, self.here)
        elif kind == "seen":
            copied = pick(seen)
            element = fitted(self.here, copied.primitive, copied.description)
        else:
            primitive = primitive_of(pick, self.world)
            element = fitted(self.here, primitive, described(pick, self.world, primitive.attribute))
        if isinstance(element, Accent):
            self.here = self.here.after(element)
            self.accents.append(element)
        if element is not None:
            self.elements.append(element)
        return element


def streams(world: World, *, most: int = 8) -> st.SearchStrategy[list[Accent | dict[str, Any]]]:
    """A valid stream of rows and accents."""
    return st.lists(PICKS, max_size=most).map(lambda picks: _stream(picks, world))


def _stream(picks: Sequence[Picks], world: World) -> list[Accent | dict[str, Any]]:
    drawn = Drawn(world)
    for pick in picks:
        drawn.grow(pick)
    return drawn.elements

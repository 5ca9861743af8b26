"""Signatures of the paper's operators on rows (semantics 8.2, 8.4), and what their state means for rows that come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pulse.stream.accents.accents import Accent, AlterData, DropAttribute, Primitive
from pulse.stream.descriptions.description import Description
from pulse.stream.descriptions.value_sets import DescriptionError
from pulse.stream.propagation.frame import NO_NAMES, Names, Tumbling
from pulse.stream.propagation.signature import FUNCTIONS, Function, Signature
from pulse.stream.propagation.state import State
from pulse.stream.units.affine import Affine, exact
from tests.oracles.rows import Row, forward


def project(*attributes: str) -> Signature:
    """Return the signature of a projection; it may name attributes that are added later."""
    lost = Names.all_but(*attributes)
    return Signature(f"project to {_listed(attributes)}", accumulator=lost, ignored=lost)


def join(*on: str, sides: int = 2) -> Signature:
    """Return the signature of a join on attributes of these names; all others belong to one side."""
    names = Names.of(*on)
    return Signature(f"join on {_listed(on)}", foundation=names, merge=names, sides=sides, exclusive=True)


def windowed(attribute: str, wid: str, size: Any, origin: Any = 0) -> Signature:
    """Return the signature of tumbling windows on an attribute, identified by ``wid``."""
    width = exact(size, "size of a window")
    if width <= 0:
        raise DescriptionError(f"window on {attribute}: expected a size above zero, got {size!r}")
    window = Tumbling(attribute, wid, width, Fraction(exact(origin, "origin of windows")))
    names = Names.of(attribute)
    return Signature(f"window on {attribute}", foundation=names, absorbed=names, window=window)


def aggregate(function: Function, by: Iterable[str], *, excluding: Iterable[str] = ()) -> Signature:
    """Return the signature of an aggregate of all attributes but ``excluding``, grouped ``by`` attributes."""
    if function not in FUNCTIONS:
        raise DescriptionError(f"aggregate: expected one of {', '.join(FUNCTIONS)}, got {function!r}")
    group = tuple(by)
    others = Names.all_but(*group)
    return Signature(
        f"{function} by {_listed(group)}",
        foundation=Names.of(*group),
        accumulator=others,
        ignored=Names.of(*excluding),
        absorbed=others if function == "count" else NO_NAMES,  # a count has no units
        function=function,
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


@dataclass(frozen=True)
class Rule:
    """A map of one attribute for the input rows of a side that match, in the side's present units.

    All rules of a side apply at once; of one attribute at most one matches a row.
    """

    attribute: str
    description: Description
    map: Affine
    weight: str = ""

    def applied(self, row: Row) -> object:
        """Return the attribute's value after the rule, for a matching row."""
        return forward(AlterData(self.attribute, self.map, weight=self.weight), row).get(self.attribute)


def rules(state: State, side: int = 0) -> tuple[Rule, ...]:
    """Return the rules that bring rows of a side to the output's units."""
    own = state.sides[side]
    return tuple(
        Rule(
            name,
            own.units.forward(where),
            path[0].after(path[-1].inverse()),
            own.units.weights.get(name, ""),
        )
        for name, cells in own.paths.items()
        for path, where in cells.items()
    )


def thresholds(
    state: State, attribute: str, value: Any, side: int = 0
) -> tuple[tuple[Description, Fraction], ...]:
    """Return a selection's constant in a side's present units: alpha(V) for the matching rows; V itself for all others."""
    units = state.sides[side].units
    cells = units.cells.get(attribute, {}).items()
    return tuple((units.forward(where), map(value)) for map, where in cells)


def held(state: State, side: int = 0) -> tuple[Accent, ...]:
    """Return the held accents, in the side's present units; alterations as the part that is undone."""
    own = state.sides[side]
    drops = [(where, DropAttribute(name)) for name, where in own.dropped.items()]
    alters = [
        (where, AlterData(name, path[-1].after(path[0].inverse())))
        for name, cells in own.paths.items()
        for path, where in cells.items()
    ]
    pairs: list[tuple[Description, Primitive]] = [*drops, *alters]
    return tuple(
        Accent(position=0, description=own.units.forward(where).simplified(state.domain), primitive=primitive)
        for where, primitive in pairs
        if not where.is_empty
    )

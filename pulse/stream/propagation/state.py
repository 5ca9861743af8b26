"""What an operator knows about the accents it has met: picklable and immutable (semantics 8.2, paper §6.1).

See :mod:`pulse.stream.propagation.receive` for what it does with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, TypeAlias, TypeVar

from pulse.stream.accents.accents import Accent, AlterData, Control, DropAttribute, Primitive, Row
from pulse.stream.descriptions.description import FALSE, NO_PROMISES, TRUE, Description, Domain
from pulse.stream.propagation.frame import Frame
from pulse.stream.propagation.signature import Signature
from pulse.stream.units.affine import Affine
from pulse.stream.units.unit_map import Units

Mode: TypeAlias = Literal["accumulate", "abort"]
MODES: tuple[Mode, ...] = ("accumulate", "abort")
Path: TypeAlias = tuple[Affine, ...]
Where: TypeAlias = Mapping[str, Description]
K = TypeVar("K")


@dataclass(frozen=True)
class Rule:
    """What is done to input rows of a side that match (in the side's present units): ``attribute`` becomes ``map`` of it.

    All rules of a side apply at once; of one attribute at most one matches a row.
    """

    attribute: str
    description: Description
    map: Affine
    weight: str = ""

    def applied(self, row: Row) -> object:
        """The attribute's value after the rule, for a row that matches."""
        return AlterData(self.attribute, self.map, weight=self.weight).forward(row).get(self.attribute)


@dataclass(frozen=True)
class Side:
    """What is known of one input; descriptions in first units."""

    units: Units = field(default_factory=Units)
    exists: Where = field(default_factory=dict)
    dropped: Where = field(default_factory=dict)  # drops that are held
    # Only where longer than one.
    paths: Mapping[str, Mapping[Path, Description]] = field(default_factory=dict)
    closed: Description = FALSE

    def rules(self) -> tuple[Rule, ...]:
        """What brings its rows from their units to the output's."""
        return tuple(
            Rule(
                name,
                self.units.forward(where),
                path[0].after(path[-1].inverse()),
                self.units.weights.get(name, ""),
            )
            for name, cells in self.paths.items()
            for path, where in cells.items()
        )


@dataclass(frozen=True)
class Step:
    """What to do at an accent: pass these on, in order, or abort with a reason.

    Where an alteration is passed, alpha acts on what the operator keeps for rows that match it; where a drop is passed, results
    for that attribute are purged. The rules of the sides (:meth:`State.rules`) are those after the step.
    """

    passed: tuple[Control, ...] = ()
    abort: str = ""


@dataclass(frozen=True)
class State:
    """An operator's state about accents: immutable, picklable. Begin with :meth:`start`; :func:`receive` gives the next."""

    signature: Signature
    sides: tuple[Side, ...]
    units: Units = field(default_factory=Units)  # of the output
    exists: Where = field(default_factory=dict)  # in the output
    domain: Domain = NO_PROMISES  # in first units
    mode: Mode = "accumulate"

    @classmethod
    def start(
        cls,
        signature: Signature,
        *schemas: Collection[str],
        domain: Domain = NO_PROMISES,
        mode: Mode = "accumulate",
    ) -> State:
        """Before the first element: each side has the attributes of its schema for all rows."""
        if len(schemas) != signature.sides:
            raise ValueError(f"{signature.operator}: expected {signature.sides} schemas, got {len(schemas)}")
        if mode not in MODES:
            raise ValueError(f"accents: expected one of {', '.join(MODES)}, got {mode!r}")
        sides = tuple(Side(exists=dict.fromkeys(names, TRUE)) for names in schemas)
        exists = dict.fromkeys(signature.attributes(*schemas), TRUE)
        return cls(signature, sides, Units(), exists, domain, mode)

    @property
    def frame(self) -> Frame:
        """What the output can say."""
        return self.signature.frame

    def rules(self, side: int = 0) -> tuple[Rule, ...]:
        """What brings rows of a side to the output's units."""
        return self.sides[side].rules()

    def thresholds(
        self, attribute: str, value: Any, side: int = 0
    ) -> tuple[tuple[Description, Fraction], ...]:
        """What a selection's constant is in a side's present units: alpha(V) for the rows that match; V itself for all others.

        >>> state = State.start(Signature.select("t"), ["s", "t"])
        >>> own = replace(state.sides[0], units=Units().then(Accent.parse("[[s = 2, alter(t, (y - 32) * 5/9)]]")))
        >>> [(str(d), int(v)) for d, v in replace(state, sides=(own,)).thresholds("t", 212)]
        [('s = 2', 100)]
        """
        units = self.sides[side].units
        cells = units.cells.get(attribute, {}).items()
        return tuple((units.forward(where), map(value)) for map, where in cells)

    def held(self, side: int = 0) -> tuple[Accent, ...]:
        """The accents that are held, in the side's present units; alterations as what is undone."""
        own = self.sides[side]
        drops = [(where, DropAttribute(name)) for name, where in own.dropped.items()]
        alters = [
            (where, AlterData(name, path[-1].after(path[0].inverse())))
            for name, cells in own.paths.items()
            for path, where in cells.items()
        ]
        pairs: list[tuple[Description, Primitive]] = [*drops, *alters]
        return tuple(
            Accent(
                position=0, description=own.units.forward(where).simplified(self.domain), primitive=primitive
            )
            for where, primitive in pairs
            if not where.is_empty
        )


def unsayable(state: State, accent: Accent) -> str:
    """Why an accent cannot be passed where operators may not accumulate; empty where it can be."""
    if state.mode == "accumulate":
        return ""
    shown = accent.description.simplified(state.domain).attributes
    lost = state.signature.accumulator.among(shown)
    return f"its description speaks of {', '.join(lost)}, which the output lacks" if lost else ""


def aborted(state: State, accent: Accent, reason: str) -> tuple[State, Step]:
    """A step that ends the query (8.5): names operator, accent, attribute and reason."""
    said = f"{state.signature.operator}: cannot go on after {accent} on '{accent.attribute}': {reason}"
    return state, Step(abort=said)


def passing(
    state: State, position: int, parts: Iterable[tuple[Description, Primitive]]
) -> tuple[State, Step]:
    """A step that passes these; their descriptions are in the output's units."""
    domain, found = output_domain(state), list[Control]()
    for where, primitive in parts:
        description = where.simplified(domain)
        if description.is_empty:
            continue
        found.append(Accent(position=position, description=description, primitive=primitive))
    return state, Step(tuple(found))


def freed(state: State, name: str, first: Description) -> Description:
    """The part of a description, in the output's units, that holds whatever the value of the attribute itself."""
    return state.units.forward(first).throughout(name)


def output_domain(state: State) -> Domain:
    """What is promised of output rows in present units."""
    domain = state.frame.domain(state.domain)
    for name in state.units.cells:
        domain = domain.altered(name)
    return domain


def any_of(descriptions: Iterable[Description]) -> Description:
    """What matches one of them."""
    found = FALSE
    for description in descriptions:
        found = found | description
    return found


def with_side(state: State, index: int, side: Side) -> State:
    """The state with one side replaced."""
    sides = (*state.sides[:index], side, *state.sides[index + 1 :])
    return replace(state, sides=sides)


def with_where(where: Where, name: str, description: Description) -> Where:
    """The mapping with one description replaced; without it where it is empty."""
    rest = {other: own for other, own in where.items() if other != name}
    return rest if description.is_empty else {**rest, name: description}


def with_cells(
    paths: Mapping[str, Mapping[Path, Description]], name: str, cells: Mapping[Path, Description]
) -> Mapping[str, Mapping[Path, Description]]:
    """The paths with those of one attribute replaced; without it where there are none."""
    rest = {other: own for other, own in paths.items() if other != name}
    return {**rest, name: cells} if cells else rest


def left_of(cells: Mapping[K, Description], closed: Description) -> dict[K, Description]:
    """What is held of rows that may still come."""
    if closed.is_empty:
        return dict(cells)
    return {key: left for key, where in cells.items() if not (left := where - closed).is_empty}


def closed_output(state: State) -> Description:
    """Of which output rows none will come any more."""
    common = state.sides[0].closed
    for side in state.sides[1:]:
        common = common & side.closed
    return FALSE if common.is_empty else state.frame.every(common, state.domain)

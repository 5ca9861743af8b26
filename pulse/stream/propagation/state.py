"""State of an operator about the accents it has met: picklable and immutable (semantics 8.2, paper §6.1).

:mod:`pulse.stream.propagation.receive` computes the transitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

from pulse.stream.accents.accents import Accent, Control, Primitive
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
class Side:
    """The accent state of one input; descriptions in first units."""

    units: Units = field(default_factory=Units)
    exists: Where = field(default_factory=dict)
    dropped: Where = field(default_factory=dict)  # drops that are held
    # Only paths longer than one.
    paths: Mapping[str, Mapping[Path, Description]] = field(default_factory=dict)
    closed: Description = FALSE


@dataclass(frozen=True)
class Step:
    """The reaction to an accent: controls to pass on, in order, or a reason to abort.

    Where an alteration is passed, alpha acts on the operator's state for matching rows; where a drop is passed, results for
    that attribute are purged.
    """

    passed: tuple[Control, ...] = ()
    abort: str = ""


@dataclass(frozen=True)
class State:
    """An operator's accent state: immutable, picklable. Begin with :meth:`start`; :func:`receive` returns the next."""

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
        """Return the state before the first element: each side has the attributes of its schema for all rows."""
        if len(schemas) != signature.sides:
            raise ValueError(f"{signature.operator}: expected {signature.sides} schemas, got {len(schemas)}")
        if mode not in MODES:
            raise ValueError(f"accents: expected one of {', '.join(MODES)}, got {mode!r}")
        sides = tuple(Side(exists=dict.fromkeys(names, TRUE)) for names in schemas)
        exists = dict.fromkeys(signature.attributes(*schemas), TRUE)
        return cls(signature, sides, Units(), exists, domain, mode)

    @property
    def frame(self) -> Frame:
        """Return the translation of descriptions to the output."""
        return self.signature.frame


def inexpressible(state: State, accent: Accent) -> str:
    """Return why an accent cannot be passed where operators may not accumulate; empty where it can be."""
    if state.mode == "accumulate":
        return ""
    shown = accent.description.simplified(state.domain).attributes
    lost = state.signature.accumulator.among(shown)
    return f"its description refers to {', '.join(lost)}, which the output lacks" if lost else ""


def aborted(state: State, accent: Accent, reason: str) -> tuple[State, Step]:
    """Return a step that ends the query (8.5): it names operator, accent, attribute and reason."""
    message = f"{state.signature.operator}: cannot go on after {accent} on '{accent.attribute}': {reason}"
    return state, Step(abort=message)


def passing(
    state: State, position: int, parts: Iterable[tuple[Description, Primitive]]
) -> tuple[State, Step]:
    """Return a step that passes these primitives; their descriptions are in the output's units."""
    domain, found = output_domain(state), list[Control]()
    for where, primitive in parts:
        description = where.simplified(domain)
        if description.is_empty:
            continue
        found.append(Accent(position=position, description=description, primitive=primitive))
    return state, Step(tuple(found))


def freed(state: State, name: str, first: Description) -> Description:
    """Return the part of a description, in the output's units, that holds for every value of the attribute itself."""
    return state.units.forward(first).throughout(name)


def output_domain(state: State) -> Domain:
    """Return the promises about output rows in present units."""
    domain = state.frame.domain(state.domain)
    for name in state.units.cells:
        domain = domain.altered(name)
    return domain


def with_side(state: State, index: int, side: Side) -> State:
    """Return the state with one side replaced."""
    sides = (*state.sides[:index], side, *state.sides[index + 1 :])
    return replace(state, sides=sides)


def with_rows(where: Where, name: str, rows: Description) -> Where:
    """Return the mapping with rows added to the description of an attribute."""
    added = where.get(name, FALSE) | rows
    return where if added.is_empty else {**where, name: added}


def less_rows(where: Where, name: str, rows: Description) -> Where:
    """Return the mapping with rows removed from the description of an attribute; it goes where none is left."""
    left = where.get(name, FALSE) - rows
    rest = {other: own for other, own in where.items() if other != name}
    return rest if left.is_empty else {**rest, name: left}


def with_cells(
    paths: Mapping[str, Mapping[Path, Description]], name: str, cells: Mapping[Path, Description]
) -> Mapping[str, Mapping[Path, Description]]:
    """Return the paths with those of one attribute replaced, or removed where there are none."""
    rest = {other: own for other, own in paths.items() if other != name}
    return {**rest, name: cells} if cells else rest


def left_of(cells: Mapping[K, Description], closed: Description) -> dict[K, Description]:
    """Return the held state of rows that may still come."""
    if closed.is_empty:
        return dict(cells)
    return {key: left for key, where in cells.items() if not (left := where - closed).is_empty}


def closed_output(state: State) -> Description:
    """Return the output rows that punctuation has closed."""
    common = state.sides[0].closed
    for side in state.sides[1:]:
        common = common & side.closed
    return FALSE if common.is_empty else state.frame.every(common, state.domain)

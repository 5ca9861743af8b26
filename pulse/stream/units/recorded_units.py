"""Map recorded tuples to the units of the stream's start, tuple by tuple and exactly (8.1).

A fit and a job have the tuples, so descriptions may use any of their attributes, even altered ones, and any attribute may be
altered. A description is in the units in force at its accent; a tuple is in those in force at its time. So a description that
uses altered attributes is translated to recorded units, epoch by epoch, with exact fractions
(:mod:`pulse.stream.units.unit_map`), and compared with the recorded values: nothing is rounded before the comparison. All other
descriptions hold regardless of alterations, and are compiled once for all epochs (:mod:`pulse.stream.units.step_maps`).

**The time.** Instants of a log are in the units of the start. Altered times are undone first: recorded times of an epoch
``[T, T')`` lie in ``[alpha(T), alpha(T'))``. A log cannot distinguish two epochs that recorded the same times. Where accents
are among the rows, positions (``by``) distinguish them: then the time is an attribute like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from pulse.core.instants import EARLIEST
from pulse.core.schema import StreamSchema
from pulse.stream.accents.accents import AccentError, AddAttribute, AlterData
from pulse.stream.accents.admissibility import UnsupportedAccentError
from pulse.stream.accents.log import AccentLog, added_first
from pulse.stream.descriptions.description import FALSE, TRUE, Description
from pulse.stream.descriptions.value_sets import DEFINED, ValueSet
from pulse.stream.units.affine import IDENTITY, Affine
from pulse.stream.units.step_maps import Alteration, Steps
from pulse.stream.units.unit_map import Units

_ABSENT = Affine(2)  # the existence of an attribute is scaled up where it is absent
_MISSING = "no "  # prefix of the absence of an attribute, which no description can name


class Move(NamedTuple):
    """An alteration of an attribute, or of its absence (:func:`absence`), from an instant or a position on."""

    at: int
    attribute: str
    map: Affine
    description: Description


@dataclass(frozen=True)
class RawUnits:
    """Maps from the units of the start to the recorded ones, by attribute.

    ``absent`` is by attribute, scaled above 1 where it is absent. ``clock`` maps recorded times; ``uncovered`` marks those of no
    epoch. Descriptions are in recorded units; times are of the start, except in the clock.
    """

    steps: Mapping[str, Steps] = field(default_factory=dict)
    absent: Mapping[str, Steps] = field(default_factory=dict)
    clock: Steps | None = None
    uncovered: Steps | None = None

    @property
    def is_empty(self) -> bool:
        """Check whether tuples are as they were recorded."""
        return not self.steps and not self.absent and self.clock is None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that descriptions compare."""
        clocks = [one for one in (self.clock, self.uncovered) if one is not None]
        every = (*self.steps.values(), *self.absent.values(), *clocks)
        return tuple(sorted({name for steps in every for name in steps.columns}))


def raw_units(log: AccentLog, schema: StreamSchema) -> RawUnits:
    """Return the maps that undo the accents of a log in tuples of a stream.

    >>> schema = StreamSchema.of(key={"s": "int64"}, time="t", modelled={"price": "step", "size": "step"})
    >>> log = AccentLog.parse(["2013-10-08 [[price < 5, alter(size, y * 4)]]"]).checked(schema, raw=True)
    >>> raw_units(log, schema).columns
    ('price',)
    """
    return recorded_units(list(_moves(log, schema)), schema.time)


def recorded_units(
    moves: list[Move], time: str, *, before: Units | None = None, by: str | None = None
) -> RawUnits:
    """Return the maps that undo moves, each at an instant of the start, or ``by`` the position of its row.

    ``before``: the units in force before all of them, with descriptions in units of the start.
    """
    units_before = before or Units()
    clock: tuple[Steps | None, Steps | None] = None, None
    if by is None:
        clock, moves, units_before = _clock(moves, time, units_before)
    units = _steps_of(moves, units_before, by or time)
    return RawUnits(
        {name: steps for name, steps in units.items() if not name.startswith(_MISSING)},
        {name.removeprefix(_MISSING): steps for name, steps in units.items() if name.startswith(_MISSING)},
        *clock,
    )


def absence(name: str) -> str:
    """Return the name under which the absence of an attribute is altered."""
    return _MISSING + name


def coming(name: str, at: int, where: Description, *, added: bool) -> Move:
    """Return the move that adds or drops an attribute, as an alteration of its absence."""
    return Move(at, absence(name), _ABSENT.inverse() if added else _ABSENT, where)


def _moves(log: AccentLog, schema: StreamSchema) -> Iterator[Move]:
    """Yield the moves in order; adding and dropping an attribute that a model needs alters its absence."""
    needed = (*schema.key_names, schema.time, *schema.modelled_names)
    for name in sorted(added_first(log.accents)):
        if name in needed:
            yield coming(name, EARLIEST, TRUE, added=False)
    for one in log.accents:
        primitive, described = one.primitive, one.description
        if isinstance(primitive, AlterData):
            yield Move(one.position, one.attribute, primitive.alpha, described)
        elif one.attribute in needed:
            yield coming(one.attribute, one.position, described, added=isinstance(primitive, AddAttribute))


def _clock(
    moves: list[Move], time: str, before: Units
) -> tuple[tuple[Steps | None, Steps | None], list[Move], Units]:
    """Return the maps that undo recorded times, and all other moves in terms of times of the start."""
    altered = {one.attribute for one in moves} | before.cells.keys()
    if time not in altered:
        return (None, None), moves, before
    units, rest = Units({name: own for name, own in before.cells.items() if name == time}), list[Move]()
    epochs: list[tuple[int | None, Units]] = [(None, units)]
    for one in moves:
        if one.attribute != time:
            rest.append(one._replace(description=units.back(one.description)))
            continue
        if found := sorted(altered & one.description.attributes):
            raise UnsupportedAccentError(
                f"[[{one.description}, alter({time}, …)]]: its description refers to '{found[0]}', which is altered as well; "
                f"expected attributes that keep their units, so that times can be mapped first"
            )
        units = units.altered(time, one.map, one.description)
        epochs.append((one.at, units))
    found_ranges = list(_recorded(epochs, time))
    for early, late in combinations(found_ranges, 2):
        if early.description.overlaps(late.description):
            both = (early.description & late.description).simplified()
            raise AccentError(
                f"alter({time}): tuples recorded where {both} may be of before and after it, and a log, which orders them by "
                "their times, cannot decide; expected times that continue where they were, or later"
            )
    covered = FALSE
    for some in found_ranges:
        covered = covered | some.description
    uncovered = Alteration(EARLIEST, Description.where(**{time: DEFINED}) - covered, _ABSENT)
    left = Units({name: own for name, own in before.cells.items() if name != time})
    return (Steps.of(found_ranges, time=time), Steps.of([uncovered], time=time)), rest, left


def _recorded(epochs: list[tuple[int | None, Units]], time: str) -> Iterator[Alteration]:
    """Yield the recorded times of each epoch, by their map."""
    ends = [*(at for at, _ in epochs[1:]), None]
    for (start, units), end in zip(epochs, ends, strict=True):
        if start is not None and start == end:
            continue
        cells = dict(units.cells.get(time, {}))
        left = TRUE
        for where in cells.values():
            left = left - where
        cells[IDENTITY] = left
        for map, where in cells.items():
            low, high = (None if one is None else map(one) for one in (start, end))
            described = where & Description.where(**{time: ValueSet.between(low, high)})
            if not described.is_empty:
                yield Alteration(EARLIEST, described, map)


def _steps_of(moves: list[Move], before: Units, by: str) -> dict[str, Steps]:
    """Return the steps of each attribute, all descriptions in recorded units."""
    altered = {one.attribute for one in moves} | before.cells.keys()
    carried = {one.attribute for one in moves if altered & one.description.attributes}
    carried |= {
        name
        for name, own in before.cells.items()
        if any(altered & where.attributes for where in own.values())
    }
    plain: dict[str, list[Alteration]] = {
        name: [Alteration(EARLIEST, where, map) for map, where in own.items()]
        for name, own in before.cells.items()
        if name not in carried
    }
    for one in moves:
        if one.attribute not in carried:
            plain.setdefault(one.attribute, []).append(Alteration(one.at, one.description, one.map))
    for name in carried:
        plain[name] = []
    if carried:
        _carry(moves, before, plain, carried, by)
    return {name: steps for name, own in plain.items() if not (steps := Steps.of(own, time=by)).is_empty}


def _carry(
    moves: list[Move], before: Units, out: dict[str, list[Alteration]], names: set[str], by: str
) -> None:
    """Add the cells of attributes in the units in force, epoch by epoch."""
    units = before
    instants = sorted({one.at for one in moves} | ({EARLIEST} if before.cells else set()))
    last: dict[str, tuple[int, dict[Affine, Description]]] = {}

    def close(name: str, end: int | None) -> None:
        start, cells = last.pop(name, (0, {}))
        when = Description.where(**{by: ValueSet.between(start, end)})
        out[name] += [Alteration(start, where & when, map) for map, where in cells.items()]

    for at in instants:
        for one in moves:
            if one.at == at:
                units = units.altered(one.attribute, one.map, units.back(one.description))
        for name in names:
            cells = {map: units.forward(where) for map, where in units.cells.get(name, {}).items()}
            if name not in last or last[name][1] != cells:
                close(name, at)
                last[name] = at, cells
    for name in names:
        close(name, None)

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from pulse.core.schema import StreamSchema
from pulse.core.time import EARLIEST
from pulse.stream.accents.accents import Accent, AccentError, is_alteration
from pulse.stream.accents.admissibility import UnsupportedAccentError
from pulse.stream.accents.log import AccentLog, added_first
from pulse.stream.descriptions.description import TRUE, Description
from pulse.stream.descriptions.value_sets import DEFINED, ValueSet
from pulse.stream.units.affine import Affine
from pulse.stream.units.step_maps import Absences, Alteration, Steps, effect_of
from pulse.stream.units.unit_map import Units

WHOLE_ROW = ""
"""In place of an attribute that is absent: punctuation excludes the row."""

_Target = tuple[str, bool]  # an attribute, and whether its absence is meant rather than its units


@dataclass(frozen=True)
class RecordedUnits:
    """Maps from the units of the start to the recorded ones, and where attributes are absent.

    ``clock`` maps recorded times; ``uncovered`` marks those of no epoch. Descriptions are in recorded units; times are of
    the start, except in the clock.
    """

    steps: Mapping[str, Steps] = field(default_factory=dict)
    absent: Mapping[str, Absences] = field(default_factory=dict)
    clock: Steps | None = None
    uncovered: Absences | None = None

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


def needed_attributes(schema: StreamSchema) -> tuple[str, ...]:
    """Return the attributes that a tuple needs to be modelled."""
    return (*schema.key_names, schema.time, *schema.modelled_names)


def units_of_log(log: AccentLog, schema: StreamSchema) -> RecordedUnits:
    """Return the units in which a stream's tuples are recorded, by its log.

    >>> schema = StreamSchema.of(key={"s": "int64"}, time="t", modelled={"price": "step", "size": "step"})
    >>> log = AccentLog.parse(["2013-10-08 [[price < 5, alter(size, y * 4)]]"]).checked(schema, raw=True)
    >>> units_of_log(log, schema).columns
    ('price',)
    """
    needed = needed_attributes(schema)
    start = Units(absent={name: TRUE for name in added_first(log.accents) if name in needed})
    accents = [one for one in log.accents if is_alteration(one) or one.attribute in needed]
    return recorded_units(accents, schema.time, before=start)


def recorded_units(
    accents: Sequence[Accent], time: str, *, before: Units | None = None, by: str | None = None
) -> RecordedUnits:
    """Return the units that accents, in order, give to tuples; positions are instants of the start, or ``by`` rows.

    ``before``: the units in force before all of them.
    """
    units = before or Units()
    clock: tuple[Steps | None, Absences | None] = None, None
    if by is None and (time in units.cells or any(_target(one) == (time, False) for one in accents)):
        clock, accents, units = _clock(accents, time, units)
    return RecordedUnits(*_steps_of(accents, units, by or time), *clock)


def _target(accent: Accent) -> _Target:
    return accent.attribute, not is_alteration(accent)


def _cells(units: Units, target: _Target) -> Mapping[Any, Description]:
    """Return the effects on a target, with the rows of each in first units."""
    name, absence = target
    if not absence:
        return units.cells.get(name, {})
    return {True: units.absent[name]} if name in units.absent else {}


def _clock(
    accents: Sequence[Accent], time: str, before: Units
) -> tuple[tuple[Steps, Absences], list[Accent], Units]:
    """Return the maps that undo recorded times, with the times of no epoch, and all else in terms of times of the start."""
    altered = {one.attribute for one in accents if is_alteration(one)} | before.cells.keys()
    units = Units({name: own for name, own in before.cells.items() if name == time})
    epochs, rest = list[tuple[int | None, Units]]([(None, units)]), list[Accent]()
    for one in accents:
        if _target(one) != (time, False):
            rest.append(replace(one, description=units.back(one.description)))
            continue
        if found := sorted(altered & one.description.attributes):
            raise UnsupportedAccentError(
                f"[[{one.description}, alter({time}, …)]]: its description refers to '{found[0]}', which is altered as well; "
                f"expected attributes that keep their units, so that times can be mapped first"
            )
        units = units.then(one)
        epochs.append((one.position, units))
    ranges = list(_recorded_times(epochs, time))
    for early, late in combinations(ranges, 2):
        if early.description.overlaps(late.description):
            both = (early.description & late.description).simplified()
            raise AccentError(
                f"alter({time}): tuples recorded where {both} may be of before and after it, and a log, which orders them by "
                "their times, cannot decide; expected times that continue where they were, or later"
            )
    uncovered = Description.where(**{time: DEFINED})
    for some in ranges:
        uncovered = uncovered - some.description
    left = Units({name: own for name, own in before.cells.items() if name != time}, absent=before.absent)
    clock = Steps.of(ranges, time=time), Absences.of([Alteration(EARLIEST, uncovered, True)], time=time)
    return clock, rest, left


def _recorded_times(epochs: list[tuple[int | None, Units]], time: str) -> Iterator[Alteration[Affine]]:
    """Yield the recorded times of each epoch, by their map."""
    ends = [*(at for at, _ in epochs[1:]), None]
    for (start, units), end in zip(epochs, ends, strict=True):
        if start is not None and start == end:
            continue
        for map, where in units.parts(time, TRUE):
            low, high = (None if one is None else map(one) for one in (start, end))
            described = where & Description.where(**{time: ValueSet.between(low, high)})
            if not described.is_empty:
                yield Alteration(EARLIEST, described, map)


def _steps_of(
    accents: Sequence[Accent], before: Units, by: str
) -> tuple[dict[str, Steps], dict[str, Absences]]:
    """Return the steps and absences of each attribute, all descriptions in recorded units."""
    altered = {one.attribute for one in accents if is_alteration(one)} | before.cells.keys()
    found: dict[_Target, list[Alteration[Any]]] = {
        **{(name, False): [] for name in before.cells},
        **{(name, True): [] for name in before.absent},
        **{_target(one): [] for one in accents},
    }
    carried = {_target(one) for one in accents if altered & one.description.attributes}
    for target in found:
        cells = _cells(before, target)
        if any(altered & where.attributes for where in cells.values()):
            carried.add(target)
        if target not in carried:
            found[target] = [Alteration(EARLIEST, where, effect) for effect, where in cells.items()]
    for one in accents:
        if (target := _target(one)) not in carried:
            found[target].append(Alteration(one.position, one.description, effect_of(one)))
    if carried:
        for target, own in _carried(accents, before, carried, by):
            found[target].append(own)
    steps = {name: Steps.of(own, time=by) for (name, absence), own in found.items() if not absence}
    absent = {name: Absences.of(own, time=by) for (name, absence), own in found.items() if absence}
    return (
        {name: own for name, own in steps.items() if not own.is_empty},
        {name: own for name, own in absent.items() if any(one.effect for one in own.alterations)},
    )


def _carried(
    accents: Sequence[Accent], before: Units, targets: set[_Target], by: str
) -> Iterator[tuple[_Target, Alteration[Any]]]:
    """Yield the effects on targets in the units in force, epoch by epoch."""
    units = before
    instants = sorted({one.position for one in accents} | (set() if before.is_empty else {EARLIEST}))
    last: dict[_Target, tuple[int, dict[Any, Description]]] = {}

    def close(target: _Target, end: int | None) -> Iterator[tuple[_Target, Alteration[Any]]]:
        start, cells = last.pop(target, (0, {}))
        when = Description.where(**{by: ValueSet.between(start, end)})
        for effect, where in cells.items():
            yield target, Alteration(start, where & when, effect)

    for at in instants:
        for one in accents:
            if one.position == at:
                units = units.then(one)
        for target in targets:
            cells = {effect: units.forward(where) for effect, where in _cells(units, target).items()}
            if target not in last or last[target][1] != cells:
                yield from close(target, at)
                last[target] = at, cells
    for target in targets:
        yield from close(target, None)

"""Compile accents to step functions of time, for many rows at once (semantics 8.1, 8.8).

An accent at an instant covers the elements from there on that match its description. Descriptions compare keys, unmodelled
attributes and the time. So the rows fall into **cells**, distinguished by the values that some description compares with, and
in each cell the effect changes at few instants. The effect is a composed map of an attribute's values (:class:`Steps`), or
whether the attribute is absent (:class:`Absences`). Compiling costs per accent and cell, applying
(:mod:`pulse.kernels.pieces.step_maps`) one lookup per row: nothing is evaluated per epoch.

Times are whole microseconds: a condition that holds *after* an instant begins a microsecond later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.time import EARLIEST, LATEST
from pulse.kernels.pieces.step_maps import apply_steps, apply_steps_by_code, steps_in_force
from pulse.stream.accents.accents import Accent, AccentError, AlterData, DropAttribute, is_alteration
from pulse.stream.descriptions.description import Description
from pulse.stream.descriptions.value_classes import Classes, bounded, check_kind, first_whole
from pulse.stream.descriptions.value_sets import EVERYTHING, ValueSet
from pulse.stream.units.affine import IDENTITY, Affine
from pulse.stream.units.composition import Chains

EXACT = -1.0
"""In place of the size of a shift: values are scaled by a power of two, without rounding."""
_GROWN = 1.0 + 2.0**-48
_ONLY = np.zeros(1, np.int64)  # the single cell, where no column distinguishes rows
_LAST_SEEN = "_last_seen"  # a cache that is not pickled

V = TypeVar("V", Affine, bool)
_StepsOfCells = tuple[IntArray, IntArray]
"""The steps of cells: offsets and instants."""


class Alteration(NamedTuple, Generic[V]):
    """``effect``, from ``at`` on (microseconds), for rows that match: a map of values, or whether they are absent."""

    at: int
    description: Description
    effect: V


class Located(NamedTuple):
    """Rows by cell, and the steps of the cells: see :mod:`pulse.kernels.pieces.step_maps`.

    ``maps`` are the scales and shifts as doubles, ``off`` how far these may be from the exact ones.
    """

    cell: IntArray
    steps: _StepsOfCells
    maps: tuple[FloatArray, FloatArray]
    off: tuple[FloatArray, FloatArray]

    @property
    def shifts(self) -> FloatArray:
        """Return the size of the shift of each step, which bounds its rounding; :data:`EXACT` where it rounds nothing."""
        return _shifts(self.maps, self.off)


class LocatedAbsences(NamedTuple):
    """Rows by cell, the steps of the cells, and whether the attribute is absent from each step on."""

    cell: IntArray
    steps: _StepsOfCells
    absent: BoolArray


@dataclass(frozen=True)
class StepFunction(Generic[V]):
    """The effects on one attribute. ``columns`` are those that descriptions compare; ``time`` is the time's name."""

    alterations: tuple[Alteration[V], ...]
    time: str
    columns: tuple[str, ...] = field(init=False)
    classes: tuple[Classes, ...] = field(init=False)

    def __post_init__(self) -> None:
        sets: dict[str, list[ValueSet]] = {}
        for one in self.alterations:
            for box in one.description.boxes:
                for name, values in box:
                    if name != self.time:
                        sets.setdefault(name, []).append(values)
        object.__setattr__(self, "columns", tuple(sorted(sets)))
        object.__setattr__(self, "classes", tuple(Classes.of(sets[name]) for name in self.columns))

    @property
    def is_empty(self) -> bool:
        """Check whether nothing ever changes."""
        return not self.alterations

    def _chains(self) -> Chains[V]:
        raise NotImplementedError

    def _effects(self, effects: list[V], states: IntArray) -> Any:
        """Return the effects of steps, given by their places in a list, as arrays."""
        raise NotImplementedError

    def _compiled(self, columns: Mapping[str, Any], rows: int) -> tuple[IntArray, _StepsOfCells, Any]:
        """Return the cells of rows by their columns, the steps of these cells, and the effects of the steps."""
        if len(self.columns) < 2:
            steps, effects = self._all
            return self._codes(columns, rows), steps, effects
        cells, cell = np.unique(self._codes(columns, rows), return_inverse=True)
        steps, effects = self._compile([self._events_of(int(one)) for one in cells])
        return cell.astype(np.int64), steps, effects

    def _codes(self, columns: Mapping[str, Any], rows: int) -> IntArray:
        """Return a number per row for the classes of all columns together."""
        code: IntArray | None = None
        for name, kind in zip(self.columns, self.classes, strict=True):
            check_kind(name, kind, columns[name].type)
            own = kind.codes(columns[name])
            code = own if code is None else code * len(kind) + own
        return np.zeros(rows, np.int64) if code is None else code

    @cached_property
    def _events(self) -> list[tuple[list[IntArray], list[tuple[int, int]], int]]:
        """Return per box of each alteration its classes by column, its ranges of time, and the number of the alteration."""
        found = []
        for k, one in enumerate(self.alterations):
            for box in one.description.boxes:
                values = dict(box)
                when = _ranges(values.get(self.time, EVERYTHING), one.at)
                every = zip(self.columns, self.classes, strict=True)
                found.append(([kind.matching(values.get(name, EVERYTHING)) for name, kind in every], when, k))
        return found

    @cached_property
    def _all(self) -> tuple[_StepsOfCells, Any]:
        """Return the steps of every cell, where at most one column distinguishes them."""
        cells: list[list[tuple[int, int, int]]] = [
            [] for _ in range(len(self.classes[0]) if self.classes else 1)
        ]
        for matching, when, k in self._events:
            for cell in matching[0] if matching else (0,):
                cells[cell] += [(start, stop, k) for start, stop in when]
        return self._compile(cells)

    @cached_property
    def _sets(self) -> list[list[set[int]]]:
        return [[set(one.tolist()) for one in matching] for matching, _, _ in self._events]

    def _events_of(self, code: int) -> list[tuple[int, int, int]]:
        """Return the alterations of one cell."""
        place: list[int] = []
        for kind in reversed(self.classes):
            code, part = divmod(code, len(kind))
            place.insert(0, part)
        return [
            (start, stop, k)
            for (_, when, k), own in zip(self._events, self._sets, strict=True)
            if all(part in allowed for part, allowed in zip(place, own, strict=True))
            for start, stop in when
        ]

    def _compile(self, cells: Sequence[list[tuple[int, int, int]]]) -> tuple[_StepsOfCells, Any]:
        offsets, instants, states = [0], list[int](), list[int]()
        chains = self._chains()
        for events in cells:
            for at, state in chains.steps(events):
                instants.append(at)
                states.append(state)
            offsets.append(len(instants))
        steps = np.array(offsets, np.int64), np.array(instants, np.int64)
        return steps, self._effects(chains.effects, np.array(states, np.int64))


@dataclass(frozen=True)
class Absences(StepFunction[bool]):
    """The rows and times at which an attribute is absent.

    >>> drop = Alteration(10, Description.parse("symbol = 'A'"), True)
    >>> Absences.of([drop], time="t").mask({"symbol": pa.array(["A", "A", "B"])}, np.array([9, 10, 10])).tolist()
    [False, True, False]
    """

    @classmethod
    def of(cls, alterations: Iterable[Alteration[bool]], *, time: str) -> Absences:
        """Build absences, by instant: the last one in force decides."""
        some = (one for one in alterations if not one.description.is_empty)
        return cls(tuple(sorted(some, key=lambda one: one.at)), time)

    def _chains(self) -> Chains[bool]:
        return Chains((one.effect for one in self.alterations), False, lambda later, _: later)

    def _effects(self, effects: list[bool], states: IntArray) -> BoolArray:
        return np.array(effects, np.bool_)[states]

    def located(self, columns: Mapping[str, Any], rows: int) -> LocatedAbsences:
        """Return the cells of rows by their columns, and the steps of these cells."""
        return LocatedAbsences(*self._compiled(columns, rows))

    def mask(self, columns: Mapping[str, Any], at: IntArray) -> BoolArray:
        """Return which rows with these columns and times lack the attribute."""
        if self.is_empty or not len(at):
            return np.zeros(len(at), np.bool_)
        found = self.located(columns, len(at))
        return np.append(found.absent, False)[steps_in_force(found.cell, at, found.steps)]


def matching(columns: Mapping[str, Any], where: Description, rows: int) -> BoolArray:
    """Return which rows match a description.

    >>> matching({"s": pa.array([1, 2])}, Description.parse("s > 1"), 2).tolist()
    [False, True]
    """
    return Absences.of([Alteration(EARLIEST, where, True)], time="").mask(columns, np.zeros(rows, np.int64))


@dataclass(frozen=True)
class Steps(StepFunction[Affine]):
    """The composed maps of one attribute.

    >>> quarter = Alteration(10, Description.parse("symbol = 'AIG'"), Affine.parse("y / 4"))
    >>> found = Steps.of([quarter], time="t").located({"symbol": pa.array(["AIG", "IBM"])}, 2)
    >>> found.cell.tolist(), [part.tolist() for part in found.steps], found.maps[0].tolist()
    ([2, 1], [[0, 0, 0, 1], [10]], [0.25])
    """

    backward: bool = False

    @classmethod
    def of(cls, alterations: Iterable[Alteration[Affine]], *, time: str) -> Steps:
        """Build the steps of these alterations, by instant; those of one instant keep their order."""
        some = (one for one in alterations if not one.effect.is_identity and not one.description.is_empty)
        return cls(tuple(sorted(some, key=lambda one: one.at)), time)

    def inverse(self) -> Steps:
        """Return the steps that undo these."""
        return Steps(self.alterations, self.time, not self.backward)

    def _chains(self) -> Chains[Affine]:
        return Chains((one.effect for one in self.alterations), IDENTITY, Affine.after)

    def _effects(self, effects: list[Affine], states: IntArray) -> Any:
        maps = np.array([self._floats(one) for one in effects])
        a, b, a_off, b_off = np.ascontiguousarray(maps[states].T)
        return (a, b), (a_off, b_off)

    def located(self, columns: Mapping[str, Any], rows: int) -> Located:
        """Return the cells of rows by their columns, and the steps of these cells."""
        cell, steps, (maps, off) = self._compiled(columns, rows)
        return Located(cell, steps, maps, off)

    @cached_property
    def largest_shift(self) -> float:
        """Return an upper bound of the shift of any of its maps; :data:`EXACT` where none rounds anything.

        Where several columns distinguish rows, descriptions alone decide which alterations may be in force together. To the
        newest of them, ``a v + b``, those before it are added: undone they come after it, ``P(a v + b)`` shifts by
        ``a_P b + b_P``.
        """
        if self.is_exact:
            return EXACT
        if len(self.columns) < 2:
            return float(_shifts(*self._all[1]).max(initial=EXACT))
        sizes: list[tuple[float, float]] = []
        for k, one in enumerate(self.alterations):
            a, b = map(abs, self._floats(one.effect)[:2])
            before = [sizes[j] for j in range(k) if self.alterations[j].description.overlaps(one.description)]
            scale = max([1.0, *(own for own, _ in before)])
            shift = max([0.0, *(own for _, own in before)])
            # Undone, earlier maps scale the newest shift; applied, the newest map scales earlier shifts.
            moved = scale * b + shift if self.backward else a * shift + b
            sizes.append((scale * a * _GROWN, moved * _GROWN))
        return max(shift for _, shift in sizes)

    @property
    def is_exact(self) -> bool:
        """Check whether no map rounds a double."""
        return all(one.effect.is_exact for one in self.alterations)

    def applied(self, values: FloatArray, columns: Mapping[str, Any], at: IntArray) -> FloatArray:
        """Apply the maps in force to values of rows with these columns and times; return the array itself where none changes.

        >>> double = Alteration(10, Description.parse("symbol = 'A'"), Affine(2))
        >>> Steps.of([double], time="t").applied(np.ones(2), {"symbol": pa.array(["A", "A"])}, np.array([9, 10])).tolist()
        [1.0, 2.0]
        """
        if self.is_empty or not len(at):
            return values
        if not self.columns:
            steps, (maps, _) = self._all
            return apply_steps_by_code(values, (np.zeros(len(at), np.int32), at), _ONLY, steps, maps)
        if len(self.columns) == 1:
            name = self.columns[0]
            check_kind(name, self.classes[0], columns[name].type)
            if (coded := _codes_of(columns[name])) is not None:
                indices, entries = coded
                steps, (maps, _) = self._all
                return apply_steps_by_code(values, (indices, at), self._cells(entries), steps, maps)
        found = self.located(columns, len(at))
        return apply_steps(values, found.cell, at, found.steps, found.maps)

    def _cells(self, entries: pa.Array) -> IntArray:
        """Return the cells of a dictionary's entries; consecutive batches of one file mostly share them."""
        known = self.__dict__.get(_LAST_SEEN)
        if known is None or not (known[0] is entries or known[0].equals(entries)):
            known = self.__dict__[_LAST_SEEN] = entries, self.classes[0].codes(entries)
        return known[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != _LAST_SEEN}

    def exactly(self, columns: Mapping[str, Any], at: IntArray) -> tuple[IntArray, list[Affine]]:
        """Return which exact map is in force for each row at its time, in microseconds; the first is the identity."""
        codes = self._codes(columns, len(at))
        chains, which = self._chains(), np.zeros(len(at), np.int64)
        for code in np.unique(codes):
            steps = chains.steps(self._events_of(int(code)))
            rows = np.flatnonzero(codes == code)
            step = np.searchsorted(np.array([when for when, _ in steps], np.int64), at[rows], "right")
            which[rows] = np.array([0, *(state for _, state in steps)], np.int64)[step]
        return which, [map.inverse() if self.backward else map for map in chains.effects]

    def _floats(self, map: Affine) -> tuple[float, float, float, float]:
        """Return scale and shift as doubles, and how far these are from the exact ones."""
        map = map.inverse() if self.backward else map
        try:
            a, b = map.floats
        except OverflowError:
            a, b = math.inf, math.inf
        if not (0.0 < a < math.inf and math.isfinite(b)):
            raise AccentError(
                f"alter data: the composed maps overflow a double ({len(self.alterations)} accents)"
            )
        return a, b, *map.float_errors


def effect_of(accent: Accent) -> Affine | bool:
    """Return the effect of an accent: its map, or whether the attribute is absent from then on."""
    primitive = accent.primitive
    return primitive.alpha if isinstance(primitive, AlterData) else isinstance(primitive, DropAttribute)


def steps_of(accents: Iterable[Accent], time: str) -> dict[str, Steps]:
    """Return the unit map of each altered attribute: from the units of the start to those in force."""
    found = _by_attribute(one for one in accents if is_alteration(one))
    return {name: Steps.of(own, time=time) for name, own in found.items()}


def absences_of(accents: Iterable[Accent], time: str) -> dict[str, Absences]:
    """Return where attributes that are added and dropped are absent; before their first accent they are not."""
    found = _by_attribute(one for one in accents if not is_alteration(one))
    return {name: Absences.of(own, time=time) for name, own in found.items()}


def _by_attribute(accents: Iterable[Accent]) -> dict[str, list[Alteration[Any]]]:
    found: dict[str, list[Alteration[Any]]] = {}
    for one in accents:
        change: Alteration[Any] = Alteration(one.position, one.description, effect_of(one))
        found.setdefault(one.attribute, []).append(change)
    return found


def _shifts(maps: tuple[FloatArray, FloatArray], off: tuple[FloatArray, FloatArray]) -> FloatArray:
    exact = (np.frexp(maps[0])[0] == 0.5) & (maps[1] == 0.0) & (off[0] == 0.0) & (off[1] == 0.0)
    return np.where(exact, EXACT, np.abs(maps[1]) + off[1])


def _codes_of(column: Any) -> tuple[npt.NDArray[np.int32], pa.Array] | None:
    """Return the codes and entries of a dictionary column; None for other columns, and where rows have no entry."""
    if not pa.types.is_dictionary(column.type) or column.null_count or not len(column):
        return None
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # chunks with different dictionaries
            return None
    indices = column.indices.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(indices, np.int32), column.dictionary


def _ranges(times: ValueSet, since: int) -> list[tuple[int, int]]:
    """Return a set of times, from ``since`` on, as ranges ``[start, stop)`` of microseconds."""
    found = []
    for low, high in times.intervals():
        start = max(since, EARLIEST if low is None else bounded(first_whole(low)))
        stop = LATEST if high is None else bounded(first_whole(high))
        if start < stop:
            found.append((start, stop))
    return found

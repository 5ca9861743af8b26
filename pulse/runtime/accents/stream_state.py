"""The accent state of a running stream, and its effect on tuples (semantics 8.1, 8.7).

Alterations are kept as compacted maps (:mod:`pulse.runtime.accents.compacted_maps`), punctuation as a description of closed rows.
An attribute that the feed does not have yet counts as dropped at the start. Once a description uses an altered attribute, or a
key, the time or an unmodelled attribute is altered, all alterations are kept in one sequence
(:mod:`pulse.runtime.accents.tuple_maps`), and punctuation in base units.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.instants import EARLIEST, LATEST
from pulse.core.schema import StreamSchema
from pulse.operators.units.to_base_units import RawUndo, lacks
from pulse.runtime.accents.admission import admit
from pulse.runtime.accents.compacted_maps import CompactedMaps, compact_all, steps_of, union_of
from pulse.runtime.accents.stream_options import AccentOptions
from pulse.runtime.accents.to_base_units import ROW, TuplesToBaseUnits, blank_unread, matching
from pulse.runtime.accents.tuple_maps import CONTRADICTS, TupleMaps, raw_undo, rebase_tuples
from pulse.stream.accents.accents import (
    Accent,
    AccentError,
    AddAttribute,
    AlterData,
    Control,
    Punctuation,
    is_alteration,
)
from pulse.stream.accents.validity import Existence
from pulse.stream.descriptions.description import FALSE, TRUE, Description
from pulse.stream.descriptions.value_classes import first_whole
from pulse.stream.units.affine import Affine
from pulse.stream.units.recorded_units import Move, coming
from pulse.stream.units.step_maps import EXACT, Alteration, Steps
from pulse.validation.online.rejects import add_reason
from pulse.validation.online.validator import Validator

UNDECLARED = "not among the keys that the job declares"


@dataclass
class AccentState:
    """The state of one stream's accents. Picklable.

    Accents among the stream's rows are in force from their place in the current batch; those of earlier batches, for all rows.
    """

    alterations: dict[str, CompactedMaps] = field(default_factory=dict)
    absences: dict[str, CompactedMaps] = field(default_factory=dict)
    exists: Existence | None = None  # None: no attribute was added or dropped
    moved: frozenset[str] = frozenset()  # attributes added or dropped, or not added yet
    recent_accents: list[Accent] = field(default_factory=list)  # alter data, to detect duplicates
    last: int | None = None  # instant of the newest accent
    closed: Description = FALSE
    # Punctuation of the current batch, by place.
    closing: list[tuple[int, Description]] = field(default_factory=list)
    freed: Description = FALSE  # closed keys whose validator state is freed
    to_base: TuplesToBaseUnits | RawUndo | None = None
    # Replaces alterations and absences once maps depend on tuples' values.
    tuple_maps: TupleMaps | None = None
    described: frozenset[str] = frozenset()  # attributes that descriptions use
    # By instant, of modelled attributes that the query reads.
    drops: dict[str, CompactedMaps] = field(default_factory=dict)
    # By attribute, the largest shift to base units so far: models may be of earlier tuples.
    shifts: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, options: AccentOptions) -> AccentState:
        """The state before any accent."""
        absences = {
            name: CompactedMaps(recent=[Alteration(EARLIEST, TRUE, Affine(2))]) for name in options.absent
        }
        return cls(absences=absences, moved=frozenset(options.absent))

    # -- accents --------------------------------------------------------------------------------------------

    def take(
        self,
        controls: Sequence[Control],
        places: Sequence[int] | None,
        options: AccentOptions,
        schema: StreamSchema,
    ) -> list[Control]:
        """Admit controls, at their ``places`` in the stream or, if None, by time; if one is invalid, raise and change nothing."""
        last = self.last
        for one in controls:
            if isinstance(one, Accent):
                if places is not None and last is not None and one.position < last:
                    raise AccentError(f"{one}: its time is before that of the previous accent")
                last = one.position if last is None else max(last, one.position)
        altered = [schema.time] if self.tuple_maps is not None and self.tuple_maps.alters(schema.time) else []
        taken = admit(
            controls, options, schema, recent=self.recent_accents, moved=self.moved, altered=altered
        )
        exists, moved = self.exists, self.moved
        for one in taken:
            if not isinstance(one, Accent):
                continue
            alters = isinstance(one.primitive, AlterData)
            if alters and not moved & {
                one.attribute,
                *one.description.attributes,
                *_existing_by(exists, one),
            }:
                continue
            exists = _existence_after(exists, one, moved, options, schema)
            moved |= set() if alters else {one.attribute}
        self._switch_to_tuple_maps(taken, places, options, schema)
        self.exists, self.moved, self.last = exists, moved, last
        for i, one in enumerate(taken):
            self._record(one, one.position if places is None else places[i], options, schema, places is None)
        return taken

    def _switch_to_tuple_maps(
        self,
        controls: Sequence[Control],
        places: Sequence[int] | None,
        options: AccentOptions,
        schema: StreamSchema,
    ) -> None:
        """Switch to maps that depend on tuples' values if controls require it; raise and change nothing if they are ambiguous."""
        evolving = [
            (i, one)
            for i, one in enumerate(controls)
            if isinstance(one, Punctuation) or options.policy.choice(one) != "ignore"
        ]
        described = self.described.union(*(one.description.attributes for _, one in evolving))
        if self.tuple_maps is None and not self._interdependent([one for _, one in evolving], schema):
            self.described, self.to_base = described, None
            return
        moves, needed = [], _needed(schema)
        for i, one in evolving:
            at = one.position if places is None else places[i]
            if isinstance(one, Punctuation):
                continue
            if isinstance(one.primitive, AlterData):
                moves.append(Move(at, one.attribute, one.primitive.alpha, one.description))
            elif one.attribute in needed:
                added = isinstance(one.primitive, AddAttribute)
                moves.append(coming(one.attribute, at, one.description, added=added))
        tuple_maps = (
            TupleMaps.of(self.alterations, self.absences) if self.tuple_maps is None else self.tuple_maps
        ).with_(moves)
        by = schema.time if places is None else ROW
        to_base = raw_undo(self._closed(tuple_maps, by), schema, by, options.unread)
        self.tuple_maps, self.to_base, self.described, self.alterations, self.absences = (
            tuple_maps,
            to_base,
            described,
            {},
            {},
        )

    def _interdependent(self, controls: Sequence[Control], schema: StreamSchema) -> bool:
        """Whether a description uses an altered attribute, or an attribute that is not modelled is altered."""
        altered, described = set(self.alterations), set(self.described)
        unmodelled = {*schema.key_names, schema.time, *schema.unmodelled_names}
        for one in controls:
            if not altered.isdisjoint(one.description.attributes):
                return True
            described |= one.description.attributes
            if is_alteration(one):
                if one.attribute in unmodelled or one.attribute in described:
                    return True
                altered.add(one.attribute)
        return False

    def _record(
        self, control: Control, at: int, options: AccentOptions, schema: StreamSchema, by_time: bool
    ) -> None:
        if isinstance(control, Punctuation):
            rows = (
                control.description
                if self.tuple_maps is None
                else self.tuple_maps.back(control.description, at)
            )
            self.closing.append((-1 if by_time else at, rows))
            self.to_base = None if self.tuple_maps is not None else self.to_base
            return
        if isinstance(control.primitive, AlterData):
            self.recent_accents.append(control)
        if options.policy.choice(control) == "ignore":
            return
        self._record_drop(control, at, options, schema)
        if self.tuple_maps is not None:
            return
        if isinstance(control.primitive, AlterData):
            maps, map = self.alterations, control.primitive.alpha
        elif control.attribute not in _needed(schema):
            return  # tuples do not need the attribute
        else:
            added = isinstance(control.primitive, AddAttribute)
            maps, map = self.absences, Affine("1/2") if added else Affine(2)
        maps.setdefault(control.attribute, CompactedMaps()).add([Alteration(at, control.description, map)])

    def _record_drop(self, accent: Accent, at: int, options: AccentOptions, schema: StreamSchema) -> None:
        """Record additions and drops of modelled attributes for whole keys; drops that depend on tuples' values end no model."""
        if accent.attribute not in schema.modelled_names or accent.attribute in options.unread:
            return
        if isinstance(accent.primitive, AlterData):
            return
        rows = accent.description if self.tuple_maps is None else self.tuple_maps.back(accent.description, at)
        if rows.attributes <= {*schema.key_names, schema.time}:
            map = Affine("1/2") if isinstance(accent.primitive, AddAttribute) else Affine(2)
            maps = self.drops.setdefault(accent.attribute, CompactedMaps())
            maps.add([Alteration(accent.position, rows, map)])

    def gaps(self, time: str) -> dict[str, Steps]:
        """By attribute, steps whose scale is above 1 where it is dropped."""
        return steps_of(self.drops, time)

    # -- tuples ---------------------------------------------------------------------------------------------

    def rebase(
        self, table: pa.Table, rows: IntArray, by: str, options: AccentOptions, schema: StreamSchema
    ) -> Rebased:
        """Convert a batch to base units; ``rows`` are tuples' instants (``by`` is the time) or places (:data:`ROW`)."""
        if self.tuple_maps is not None:
            return self._rebase_by_tuples(table, rows, by, options, schema)
        rejected = list(self._rejected(table, rows, by, options))
        table, rows, aside = _without(table, rows, rejected)
        if self.to_base is None:
            self.to_base = TuplesToBaseUnits.of(self.alterations, self.absences, by)
        assert isinstance(self.to_base, TuplesToBaseUnits)
        self._record_shifts(self.to_base.shifts)
        if not table.num_rows or self.to_base.is_empty:
            return Rebased(table, blank_unread(table, options.unread), aside)
        lost = [(lacks(name), bad) for name, bad in self.to_base.lacking(table, rows, options.unread)]
        there, rows, lacking = _without(table, rows, lost)
        rebased = self.to_base.tuples(there, rows, options.unread)
        return Rebased(table, blank_unread(rebased, options.unread), aside + lacking)

    def _rebase_by_tuples(
        self, table: pa.Table, rows: IntArray, by: str, options: AccentOptions, schema: StreamSchema
    ) -> Rebased:
        """Convert a batch by maps that depend on tuples' values: descriptions are matched after conversion."""
        assert self.tuple_maps is not None
        if self.to_base is None:
            self.to_base = raw_undo(self._closed(self.tuple_maps, by), schema, by, options.unread)
        assert isinstance(self.to_base, RawUndo)
        self._record_shifts(self.to_base.shifts)
        found = rebase_tuples(self.to_base, table, rows)
        at, aside = rows[found.number], found.aside
        bad = np.zeros(len(at), np.bool_)
        for reason, more in self._undeclared(found.table, options):
            aside += _with_reason(table, found.number[more & ~bad], reason)
            bad |= more
        gone = bad.copy()
        for name, more in found.lacking:
            aside += _with_reason(table, found.number[more & ~gone], lacks(name))
            gone |= more
        came = found.table.filter(pa.array(~bad)) if bad.any() else found.table
        there = found.table.filter(pa.array(~gone)) if gone.any() else found.table
        return Rebased(came, blank_unread(there, options.unread), aside)

    def _record_shifts(self, shifts: Mapping[str, float]) -> None:
        for name, shift in shifts.items():
            if shift > self.shifts.get(name, EXACT):
                self.shifts[name] = shift

    def _closed(self, tuple_maps: TupleMaps, by: str) -> TupleMaps:
        """Add rows closed by punctuation: in the stream from its place on, in a log for all times."""
        if by == ROW:
            return tuple_maps.closed(self.closed, self.closing)
        return tuple_maps.closed(union_of([self.closed, *(where for _, where in self.closing)]), [])

    def _rejected(
        self, table: pa.Table, rows: IntArray, by: str, options: AccentOptions
    ) -> Iterator[tuple[str, BoolArray]]:
        """Yield masks of tuples that punctuation excludes or whose keys are not declared, each with its reason."""
        places = rows if by == ROW else np.zeros(len(rows), np.int64)
        closed = [(-1, self.closed)] if not self.closed.is_empty else []
        closed += self.closing
        if closed and table.num_rows:
            yield CONTRADICTS, matching(table, closed, places)
        yield from self._undeclared(table, options)

    def _undeclared(self, table: pa.Table, options: AccentOptions) -> Iterator[tuple[str, BoolArray]]:
        if table.num_rows and not options.undeclared.is_empty:
            yield UNDECLARED, matching(table, [(-1, options.undeclared)], np.zeros(table.num_rows, np.int64))

    # -- freeing state --------------------------------------------------------------------------------------

    def carry_over(self, inside: bool, keys: Collection[str]) -> None:
        """Put the current batch's controls in force for all rows of later batches."""
        if inside and any(one.recent for one in (*self.alterations.values(), *self.absences.values())):
            for one in (*self.alterations.values(), *self.absences.values()):
                if any(at != EARLIEST for at, _, _ in one.recent):
                    one.carry_over()
                    one.compact(EARLIEST, ROW)  # few maps, since every batch compiles them again
                    self.to_base = None
        if inside and self.tuple_maps is not None and self.tuple_maps.recent:
            self.tuple_maps.carry_over()
            self.to_base = None
        if self.closing:
            self.closed = union_of([self.closed, *(where for _, where in self.closing)])
            self.closing = []
            for one in self.alterations.values():
                one.forget(of_keys(self.closed, keys))
            if self.tuple_maps is not None:
                self.tuple_maps.forget(of_keys(self.closed, keys))
            self.to_base = None

    def compact(self, horizon: int, time: str, inside: bool) -> None:
        """Compact the state up to the horizon, before which no tuple is expected."""
        count = len(self)
        compact_all(self.alterations, *((LATEST - 1, ROW) if inside else (horizon, time)))
        compact_all(self.drops, horizon, time)
        compact_all(self.absences, *((LATEST - 1, ROW) if inside else (horizon, time)))
        if self.tuple_maps is not None and not inside:
            self.tuple_maps.compact(horizon, time)
        self.recent_accents = [one for one in self.recent_accents if one.position > horizon]
        self.alterations = {name: one for name, one in self.alterations.items() if not one.is_empty}
        if len(self) != count:
            self.to_base = None

    def __len__(self) -> int:
        count = 0 if self.tuple_maps is None else len(self.tuple_maps)
        return count + sum(map(len, (*self.alterations.values(), *self.absences.values())))

    def closed_until(self, time: str) -> int:
        """The instant before which punctuation excludes all tuples."""
        found = EARLIEST
        closed = (self.closed, *(where for _, where in self.closing))
        for box in (box for where in closed for box in where.boxes):
            if len(box) == 1 and box[0][0] == time:
                low, high = box[0][1].intervals()[0]
                if low is None:
                    found = max(found, LATEST if high is None else first_whole(high))
            found = LATEST if not box else found
        return found

    def ends(self, keys: Collection[str], time: str) -> tuple[tuple[int, Description], ...]:
        """Instants, each with keys for which punctuation excludes all later tuples. Keys closed at all times are included only
        until they are freed."""
        rows = self.closed
        if self.closing:
            rows = union_of([rows, *(where for _, where in self.closing)])
        closed = of_keys(rows, keys)
        found = [] if closed == self.freed or closed.is_empty else [(EARLIEST, closed)]
        for box in rows.boxes:
            of_time = [values for name, values in box if name == time]
            rest = tuple((name, values) for name, values in box if name != time)
            if not of_time or any(name not in keys for name, _ in rest):
                continue
            for low, high in of_time[0].intervals()[-1:]:
                if high is None:
                    found.append((EARLIEST if low is None else first_whole(low), Description((rest,))))
        return tuple(found)

    def free(self, validator: Validator, keys: Collection[str], *, keep: bool = False) -> int:
        """Free a validator's state of newly closed keys, unless it is to ``keep`` them; return their number."""
        closed = of_keys(self.closed, keys)
        if closed == self.freed:
            return 0
        self.freed = closed
        if keep:
            return 0
        known = dict(zip(validator.spec.schema.key_names, validator.keys, strict=True))
        count = len(validator.state.ints)
        return validator.close(matching(known, [(-1, closed)], np.zeros(count, np.int64)))


class Rebased(NamedTuple):
    """A batch's tuples: ``came``, those not excluded, with times in base units; ``rebased``, those that can be modelled, in base
    units; and rejects as recorded, with a reason."""

    came: pa.Table
    rebased: pa.Table
    aside: list[pa.Table]


def _without(
    table: pa.Table, rows: IntArray, rejected: Sequence[tuple[str, BoolArray]]
) -> tuple[pa.Table, IntArray, list[pa.Table]]:
    """Split off rejected tuples, each with the first of its reasons."""
    if not rejected:
        return table, rows, []
    bad, aside = np.zeros(table.num_rows, np.bool_), list[pa.Table]()
    for reason, more in rejected:
        aside += _with_reason(table, np.flatnonzero(more & ~bad), reason)
        bad |= more
    if not bad.any():
        return table, rows, aside
    return table.filter(pa.array(~bad)), rows[~bad], aside


def _with_reason(table: pa.Table, rows: IntArray, reason: str) -> list[pa.Table]:
    return [add_reason(table.take(pa.array(rows)), reason)] if len(rows) else []


def of_keys(where: Description, keys: Collection[str]) -> Description:
    """The part of a description that covers whole keys."""
    return Description(tuple(box for box in where.boxes if all(name in keys for name, _ in box)))


def _needed(schema: StreamSchema) -> tuple[str, ...]:
    """The attributes that a tuple needs to be modelled."""
    return (*schema.key_names, schema.time, *schema.modelled_names)


def _existing_by(exists: Existence | None, one: Accent) -> set[str]:
    """The attributes whose existence depends on the attribute that an accent alters."""
    where = {} if exists is None else exists.where
    return {name for name, rows in where.items() if one.attribute in rows.attributes}


def _existence_after(
    exists: Existence | None,
    one: Accent,
    moved: Collection[str],
    options: AccentOptions,
    schema: StreamSchema,
) -> Existence:
    if exists is None:
        known = dict.fromkeys((*schema.names, *options.attributes))
        exists = Existence.of([name for name in known if name not in options.absent])
    if isinstance(one.primitive, AddAttribute) and one.attribute not in moved:
        here: Mapping[str, Description] = {**exists.where, one.attribute: FALSE}  # absent before
        exists = replace(exists, where=here)
    return exists.after(one)

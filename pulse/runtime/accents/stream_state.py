"""The accent state of a running stream, and its effect on tuples (semantics 8.1, 8.7).

Unit changes are kept as a history (:mod:`pulse.runtime.accents.unit_history`), punctuation as a description of closed rows in
base units. An attribute that the feed does not have yet counts as dropped at the start. A batch is converted by the same means
as the tuples of a fit (:mod:`pulse.operators.units.to_base_units`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.schema import StreamSchema
from pulse.core.time import EARLIEST, LATEST
from pulse.operators.units.to_base_units import ToBaseUnits, lacks
from pulse.runtime.accents.admission import admit
from pulse.runtime.accents.stream_options import AccentOptions
from pulse.runtime.accents.tuple_columns import blank_unread
from pulse.runtime.accents.unit_history import COMPACT_AT, UnitHistory
from pulse.stream.accents.accents import (
    Accent,
    AccentError,
    AddAttribute,
    Control,
    Punctuation,
    is_alteration,
)
from pulse.stream.accents.validity import Existence
from pulse.stream.descriptions.description import FALSE, TRUE, Description, any_of
from pulse.stream.descriptions.value_classes import first_whole
from pulse.stream.units.recorded_units import needed_attributes
from pulse.stream.units.step_maps import EXACT, Absences, matching
from pulse.stream.units.unit_map import Units
from pulse.validation.online.rejects import PLACE, add_reason
from pulse.validation.online.validator import Validator

UNDECLARED = "not among the keys that the job declares"
ROW = "\0row"  # column of row places; no attribute has such a name


@dataclass
class AccentState:
    """The state of one stream's accents. Picklable.

    Accents among the stream's rows are in force from their place in the current batch; those of earlier batches, for all rows.
    """

    history: UnitHistory = field(default_factory=UnitHistory)
    exists: Existence | None = None  # None: no attribute was added or dropped
    moved: frozenset[str] = frozenset()  # attributes added or dropped, or not added yet
    recent_accents: list[Accent] = field(default_factory=list)  # alter data, to detect duplicates
    last: int | None = None  # instant of the newest accent
    closed: Description = FALSE
    # Punctuation of the current batch, by place.
    closing: list[tuple[int, Description]] = field(default_factory=list)
    freed: Description = FALSE  # closed keys whose validator state is freed
    to_base: ToBaseUnits | None = None
    # By instant, of modelled attributes that the query reads.
    drops: UnitHistory = field(default_factory=UnitHistory)
    # By attribute, the largest shift to base units so far: models may be of earlier tuples.
    shifts: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, options: AccentOptions) -> AccentState:
        """The state before any accent."""
        absent = dict.fromkeys(options.absent, TRUE)
        return cls(UnitHistory(Units(absent=absent)), moved=frozenset(options.absent))

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
        altered = [schema.time] if schema.time in self.history.altered else []
        taken = admit(
            controls, options, schema, recent=self.recent_accents, moved=self.moved, altered=altered
        )
        exists, moved = self.exists, self.moved
        for one in taken:
            if not isinstance(one, Accent):
                continue
            alters = is_alteration(one)
            if alters and not moved & {
                one.attribute,
                *one.description.attributes,
                *_existing_by(exists, one),
            }:
                continue
            exists = _existence_after(exists, one, moved, options, schema)
            moved |= set() if alters else {one.attribute}
        at = [one.position for one in taken] if places is None else places
        history = self._with(list(zip(at, taken, strict=True)), options, schema)
        if places is None and schema.time in history.altered:
            history.units(schema.time)  # raises if times are ambiguous
        self.history, self.to_base = history, None
        self.exists, self.moved, self.last = exists, moved, last
        for place, one in zip(at, taken, strict=True):
            if isinstance(one, Punctuation):
                rows = history.back(one.description, place)
                self.closing.append((-1 if places is None else place, rows))
                continue
            self.recent_accents += [one] if is_alteration(one) else []
            self._record_drop(one, place, options, schema)
        return taken

    def _with(
        self, controls: Sequence[tuple[int, Control]], options: AccentOptions, schema: StreamSchema
    ) -> UnitHistory:
        """The history with more accents, each at its instant or place, that tuples need and the policy does not ignore."""
        needed = needed_attributes(schema)
        history = UnitHistory(self.history.compacted, self.history.recent)
        history.add(
            one if one.position == at else replace(one, position=at)
            for at, one in controls
            if isinstance(one, Accent)
            and options.policy.choice(one) != "ignore"
            and (is_alteration(one) or one.attribute in needed)
        )
        return history

    def _record_drop(self, accent: Accent, at: int, options: AccentOptions, schema: StreamSchema) -> None:
        """Record additions and drops of modelled attributes for whole keys; drops that depend on tuples' values end no model."""
        read = accent.attribute in schema.modelled_names and accent.attribute not in options.unread
        if not read or is_alteration(accent) or options.policy.choice(accent) == "ignore":
            return
        rows = self.history.back(accent.description, at)
        if rows.attributes <= {*schema.key_names, schema.time}:
            self.drops.add([replace(accent, description=rows)])

    def gaps(self, time: str) -> Mapping[str, Absences]:
        """By attribute, where it is dropped."""
        return self.drops.units(time, by=time).absent

    # -- tuples ---------------------------------------------------------------------------------------------

    def is_idle(self, options: AccentOptions) -> bool:
        """Whether tuples are as recorded, and none is excluded."""
        excludes = self.closing or not self.closed.is_empty or not options.undeclared.is_empty
        return self.history.is_empty and not excludes

    def rebase(
        self, table: pa.Table, at: IntArray, by: str, options: AccentOptions, schema: StreamSchema
    ) -> Rebased:
        """Convert a batch, with its rows' places, to base units by tuples' instants (``by`` is the time) or places (:data:`ROW`).

        Tuples that lack an attribute are converted as well, since they have a time. Tuples that punctuation excludes
        are rejected for that reason first.
        """
        to_base = self._to_base(by, options, schema)
        aside: list[pa.Table] = []

        def leave(rows: pa.Table, reason: str, _: bool) -> None:
            aside.append(add_reason(table.take(rows.column(PLACE)), reason))

        (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        found = to_base.tuples(batch, at, leave, keep=needed_attributes(schema))
        rebased, lacking = pa.Table.from_batches([found.batch]), found.lacking
        undeclared = matching(rebased, options.undeclared, rebased.num_rows)
        bad = np.zeros(rebased.num_rows, np.bool_)
        for reason, rows in (
            (UNDECLARED, undeclared),
            *((lacks(name), own) for name, own in lacking.items()),
        ):
            if (new := rows & ~bad).any():
                leave(rebased.filter(pa.array(new)), reason, True)
            bad |= rows
        came = rebased.filter(pa.array(~undeclared)) if undeclared.any() else rebased
        there = rebased.filter(pa.array(~bad)) if bad.any() else rebased
        return Rebased(came, blank_unread(there, options.unread), aside)

    def _to_base(self, by: str, options: AccentOptions, schema: StreamSchema) -> ToBaseUnits:
        """The conversion to base units, with rows closed by punctuation: in rows from its place on, in a log at all times."""
        if self.to_base is None:
            if by == ROW:
                units = self.history.excluding(self.closed, self.closing).units(schema.time, ROW)
            else:
                units = self.history.excluding(self._all_closed).units(schema.time)
            steps = {name: one for name, one in units.steps.items() if name not in options.unread}
            absent = {name: one for name, one in units.absent.items() if name not in options.unread}
            self.to_base = ToBaseUnits(replace(units, steps=steps, absent=absent), schema)
        for name, shift in self.to_base.shifts.items():
            if shift > self.shifts.get(name, EXACT):
                self.shifts[name] = shift
        return self.to_base

    @property
    def _all_closed(self) -> Description:
        return any_of([self.closed, *(where for _, where in self.closing)]) if self.closing else self.closed

    # -- freeing state --------------------------------------------------------------------------------------

    def carry_over(self, inside: bool, keys: Collection[str]) -> None:
        """Put the current batch's controls in force for all rows of later batches."""
        if inside and self.history.recent:
            self.history.carry_over()
            self.to_base = None
        if self.closing:
            self.closed, self.closing = self._all_closed, []
            self.history.forget(of_keys(self.closed, keys))
            self.to_base = None

    def compact(self, horizon: int, time: str, inside: bool) -> None:
        """Compact the state up to the horizon, before which no tuple is expected."""
        if len(self.drops.recent) >= COMPACT_AT:
            self.drops.compact(horizon, time)
        if not inside and (len(self.history.recent) >= COMPACT_AT or self.history.is_interdependent):
            count = len(self.history)
            self.history.compact(horizon, time)
            self.to_base = self.to_base if len(self.history) == count else None
        self.recent_accents = [one for one in self.recent_accents if one.position > horizon]

    def closed_until(self, time: str) -> int:
        """The instant before which punctuation excludes all tuples."""
        found = EARLIEST
        for box in self._all_closed.boxes:
            if len(box) == 1 and box[0][0] == time:
                low, high = box[0][1].intervals()[0]
                if low is None:
                    found = max(found, LATEST if high is None else first_whole(high))
            found = LATEST if not box else found
        return found

    def ends(self, keys: Collection[str], time: str) -> tuple[tuple[int, Description], ...]:
        """Instants, each with keys for which punctuation excludes all later tuples. Keys closed at all times are included only
        until they are freed."""
        rows = self._all_closed
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
        return validator.close(matching(known, closed, len(validator.state.ints)))


class Rebased(NamedTuple):
    """A batch's tuples: ``came``, those not excluded, with times in base units; ``rebased``, those that can be modelled, in base
    units; and rejects as recorded, with a reason."""

    came: pa.Table
    rebased: pa.Table
    aside: list[pa.Table]


def of_keys(where: Description, keys: Collection[str]) -> Description:
    """The part of a description that covers whole keys."""
    return Description(tuple(box for box in where.boxes if all(name in keys for name, _ in box)))


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

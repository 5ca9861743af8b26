"""What accents and punctuation of a running stream have said so far, and what that means for its tuples (semantics 8.1, 8.7).

Of alterations what they come to is kept (:mod:`pulse.runtime.accents.compacted_maps`), of punctuation which rows come no more. An
attribute that the feed does not have yet is one that was dropped before all. Once a description speaks of what is altered, or a
key, the time or an unmodelled attribute is, alterations are kept together (:mod:`pulse.runtime.accents.tuple_maps`), and
punctuation in the units of the start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.schema import StreamSchema
from pulse.operators.units.to_base_units import RawUndo, lacks
from pulse.runtime.accents.admission import checked
from pulse.runtime.accents.compacted_maps import BEFORE_ALL, CompactedMaps, settle_all, steps_of, together
from pulse.runtime.accents.stream_options import AccentOptions
from pulse.runtime.accents.to_base_units import ROW, TuplesToBaseUnits, blank, matching
from pulse.runtime.accents.tuple_maps import CONTRADICTS, TupleMaps, raw_undo, undone_tuples
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
from pulse.validation.online.rejects import reasoned
from pulse.validation.online.validator import Validator

UNDECLARED = "not among the keys that the job declares"
_END = 1 << 62


@dataclass
class AccentState:
    """All that is known of one stream's accents. Picklable.

    ``since`` of what is said in the stream itself is a place among the rows of the batch at hand; before that batch, all.
    """

    undo: dict[str, CompactedMaps] = field(default_factory=dict)
    gone: dict[str, CompactedMaps] = field(default_factory=dict)
    exists: Existence | None = None  # None: nothing has come or gone
    moved: frozenset[str] = frozenset()  # what has come or gone, or is yet to come
    near: list[Accent] = field(default_factory=list)  # recent alter data, to tell what is said twice
    last: int | None = None  # the instant of the newest one
    closed: Description = FALSE
    # Punctuation of the batch at hand, by place.
    closing: list[tuple[int, Description]] = field(default_factory=list)
    freed: Description = FALSE  # of keys, of which validators know nothing any more
    undoing: TuplesToBaseUnits | RawUndo | None = None
    raw: TupleMaps | None = None  # instead of undo and gone, once only tuples tell
    spoken: frozenset[str] = frozenset()  # what descriptions speak of
    drops: dict[str, CompactedMaps] = field(default_factory=dict)  # by instants, of what is modelled and read
    # By attribute, the largest shift that undid tuples so far: models may be of tuples from before.
    shifts: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, hears: AccentOptions) -> AccentState:
        """Before anything was said."""
        gone = {
            name: CompactedMaps(recent=[Alteration(BEFORE_ALL, TRUE, Affine(2))]) for name in hears.absent
        }
        return cls(gone=gone, moved=frozenset(hears.absent))

    # -- accents --------------------------------------------------------------------------------------------

    def take(
        self,
        controls: Sequence[Control],
        places: Sequence[int] | None,
        hears: AccentOptions,
        schema: StreamSchema,
    ) -> list[Control]:
        """Add controls, at their ``places`` in the stream or in a log, or raise what is wrong with one and leave all as it is."""
        last = self.last
        for one in controls:
            if isinstance(one, Accent):
                if places is not None and last is not None and one.position < last:
                    raise AccentError(f"{one}: its time is before that of the accent before it")
                last = one.position if last is None else max(last, one.position)
        altered = [schema.time] if self.raw is not None and self.raw.alters(schema.time) else []
        taken = checked(controls, hears, schema, near=self.near, moved=self.moved, altered=altered)
        exists, moved = self.exists, self.moved
        for one in taken:
            if not isinstance(one, Accent):
                continue
            alters = isinstance(one.primitive, AlterData)
            if alters and not moved & {one.attribute, *one.description.attributes, *_told_by(exists, one)}:
                continue
            exists = _after(exists, one, moved, hears, schema)
            moved |= set() if alters else {one.attribute}
        self._tell_raw(taken, places, hears, schema)
        self.exists, self.moved, self.last = exists, moved, last
        for i, one in enumerate(taken):
            self._note(one, one.position if places is None else places[i], hears, schema, places is None)
        return taken

    def _tell_raw(
        self,
        controls: Sequence[Control],
        places: Sequence[int] | None,
        hears: AccentOptions,
        schema: StreamSchema,
    ) -> None:
        """Go over to what only tuples tell where controls ask for it; an error, and nothing done, where none can follow."""
        evolving = [
            (i, one)
            for i, one in enumerate(controls)
            if isinstance(one, Punctuation) or hears.policy.choice(one) != "ignore"
        ]
        spoken = self.spoken.union(*(one.description.attributes for _, one in evolving))
        if self.raw is None and not self._entangled([one for _, one in evolving], schema):
            self.spoken, self.undoing = spoken, None
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
        raw = (TupleMaps.of(self.undo, self.gone) if self.raw is None else self.raw).with_(moves)
        by = schema.time if places is None else ROW
        undoing = raw_undo(self._closed(raw, by), schema, by, hears.unread)
        self.raw, self.undoing, self.spoken, self.undo, self.gone = raw, undoing, spoken, {}, {}

    def _entangled(self, controls: Sequence[Control], schema: StreamSchema) -> bool:
        """Whether some description speaks of what is altered, or what is not modelled is altered."""
        altered, spoken = set(self.undo), set(self.spoken)
        told = {*schema.key_names, schema.time, *schema.unmodelled_names}
        for one in controls:
            if not altered.isdisjoint(one.description.attributes):
                return True
            spoken |= one.description.attributes
            if is_alteration(one):
                if one.attribute in told or one.attribute in spoken:
                    return True
                altered.add(one.attribute)
        return False

    def _note(
        self, control: Control, at: int, hears: AccentOptions, schema: StreamSchema, by_time: bool
    ) -> None:
        if isinstance(control, Punctuation):
            said = control.description if self.raw is None else self.raw.back(control.description, at)
            self.closing.append((-1 if by_time else at, said))
            self.undoing = None if self.raw is not None else self.undoing
            return
        if isinstance(control.primitive, AlterData):
            self.near.append(control)
        if hears.policy.choice(control) == "ignore":
            return
        self._note_drop(control, at, hears, schema)
        if self.raw is not None:
            return
        if isinstance(control.primitive, AlterData):
            turns, map = self.undo, control.primitive.alpha
        elif control.attribute not in _needed(schema):
            return  # no tuple is without what it needs
        else:
            added = isinstance(control.primitive, AddAttribute)
            turns, map = self.gone, Affine("1/2") if added else Affine(2)
        turns.setdefault(control.attribute, CompactedMaps()).add([Alteration(at, control.description, map)])

    def _note_drop(self, accent: Accent, at: int, hears: AccentOptions, schema: StreamSchema) -> None:
        """Note when what is modelled comes and goes for whole keys; what only values of tuples tell ends no model."""
        if accent.attribute not in schema.modelled_names or accent.attribute in hears.unread:
            return
        if isinstance(accent.primitive, AlterData):
            return
        said = accent.description if self.raw is None else self.raw.back(accent.description, at)
        if said.attributes <= {*schema.key_names, schema.time}:
            map = Affine("1/2") if isinstance(accent.primitive, AddAttribute) else Affine(2)
            turns = self.drops.setdefault(accent.attribute, CompactedMaps())
            turns.add([Alteration(accent.position, said, map)])

    def gaps(self, time: str) -> dict[str, Steps]:
        """By attribute, where it is not after it was: the scale is above 1 there."""
        return steps_of(self.drops, time)

    # -- tuples ---------------------------------------------------------------------------------------------

    def fitting(
        self, table: pa.Table, rows: IntArray, by: str, hears: AccentOptions, schema: StreamSchema
    ) -> Rebased:
        """A batch in first units. ``rows``: the instants of tuples (``by`` is the time) or their places (:data:`ROW`)."""
        if self.raw is not None:
            return self._raw_fitting(table, rows, by, hears, schema)
        unfit = list(self._unfit(table, rows, by, hears))
        table, rows, aside = _parted(table, rows, unfit)
        if self.undoing is None:
            self.undoing = TuplesToBaseUnits.of(self.undo, self.gone, by)
        assert isinstance(self.undoing, TuplesToBaseUnits)
        self._note_shifts(self.undoing.shifts)
        if not table.num_rows or self.undoing.is_empty:
            return Rebased(table, blank(table, hears.unread), aside)
        lost = [(lacks(name), bad) for name, bad in self.undoing.lacking(table, rows, hears.unread)]
        there, rows, lacking = _parted(table, rows, lost)
        undone = self.undoing.tuples(there, rows, hears.unread)
        return Rebased(table, blank(undone, hears.unread), aside + lacking)

    def _raw_fitting(
        self, table: pa.Table, rows: IntArray, by: str, hears: AccentOptions, schema: StreamSchema
    ) -> Rebased:
        """The same, where only the tuples tell: what is said of rows is compared with them once they are undone."""
        assert self.raw is not None
        if self.undoing is None:
            self.undoing = raw_undo(self._closed(self.raw, by), schema, by, hears.unread)
        assert isinstance(self.undoing, RawUndo)
        self._note_shifts(self.undoing.shifts)
        found = undone_tuples(self.undoing, table, rows)
        at, aside = rows[found.number], found.aside
        bad = np.zeros(len(at), np.bool_)
        for reason, more in self._undeclared(found.table, hears):
            aside += _told(table, found.number[more & ~bad], reason)
            bad |= more
        gone = bad.copy()
        for name, more in found.lacking:
            aside += _told(table, found.number[more & ~gone], lacks(name))
            gone |= more
        came = found.table.filter(pa.array(~bad)) if bad.any() else found.table
        there = found.table.filter(pa.array(~gone)) if gone.any() else found.table
        return Rebased(came, blank(there, hears.unread), aside)

    def _note_shifts(self, shifts: Mapping[str, float]) -> None:
        for name, shift in shifts.items():
            if shift > self.shifts.get(name, EXACT):
                self.shifts[name] = shift

    def _closed(self, raw: TupleMaps, by: str) -> TupleMaps:
        """With what punctuation closes: in the stream each from its place on, in a log whatever the time."""
        if by == ROW:
            return raw.closed(self.closed, self.closing)
        return raw.closed(together([self.closed, *(where for _, where in self.closing)]), [])

    def _unfit(
        self, table: pa.Table, rows: IntArray, by: str, hears: AccentOptions
    ) -> Iterator[tuple[str, BoolArray]]:
        """Which tuples punctuation excludes, and which have keys that are not declared; with the reason."""
        places = rows if by == ROW else np.zeros(len(rows), np.int64)
        said = [(-1, self.closed)] if not self.closed.is_empty else []
        said += self.closing
        if said and table.num_rows:
            yield CONTRADICTS, matching(table, said, places)
        yield from self._undeclared(table, hears)

    def _undeclared(self, table: pa.Table, hears: AccentOptions) -> Iterator[tuple[str, BoolArray]]:
        if table.num_rows and not hears.undeclared.is_empty:
            yield UNDECLARED, matching(table, [(-1, hears.undeclared)], np.zeros(table.num_rows, np.int64))

    # -- what is not needed any more ------------------------------------------------------------------------

    def pass_by(self, inside: bool, keys: Collection[str]) -> None:
        """The rows of the batch at hand have passed: all that was said is said of whatever comes."""
        if inside and any(one.recent for one in (*self.undo.values(), *self.gone.values())):
            for one in (*self.undo.values(), *self.gone.values()):
                if any(at != BEFORE_ALL for at, _, _ in one.recent):
                    one.pass_by()
                    one.settle(BEFORE_ALL, ROW)  # a few maps, which every batch compiles anew
                    self.undoing = None
        if inside and self.raw is not None and self.raw.recent:
            self.raw.pass_by()
            self.undoing = None
        if self.closing:
            self.closed = together([self.closed, *(where for _, where in self.closing)])
            self.closing = []
            for one in self.undo.values():
                one.forget(of_keys(self.closed, keys))
            if self.raw is not None:
                self.raw.forget(of_keys(self.closed, keys))
            self.undoing = None

    def settle(self, horizon: int, time: str, inside: bool) -> None:
        """No tuple before the horizon comes any more."""
        count = len(self)
        settle_all(self.undo, *((_END - 1, ROW) if inside else (horizon, time)))
        settle_all(self.drops, horizon, time)
        settle_all(self.gone, *((_END - 1, ROW) if inside else (horizon, time)))
        if self.raw is not None and not inside:
            self.raw.settle(horizon, time)
        self.near = [one for one in self.near if one.position > horizon]
        self.undo = {name: one for name, one in self.undo.items() if not one.is_empty}
        if len(self) != count:
            self.undoing = None

    def __len__(self) -> int:
        raw = 0 if self.raw is None else len(self.raw)
        return raw + sum(map(len, (*self.undo.values(), *self.gone.values())))

    def until(self, time: str) -> int:
        """The instant before which no tuple of any key comes any more, by punctuation."""
        found = -_END
        said = (self.closed, *(where for _, where in self.closing))
        for box in (box for where in said for box in where.boxes):
            if len(box) == 1 and box[0][0] == time:
                low, high = box[0][1].intervals()[0]
                if low is None:
                    found = max(found, _END if high is None else first_whole(high))
            found = _END if not box else found
        return found

    def ends(self, keys: Collection[str], time: str) -> tuple[tuple[int, Description], ...]:
        """Instants, each with keys of which no tuple from then on comes any more, by punctuation. Keys of which none comes at all
        are among them only until they are freed."""
        said = self.closed
        if self.closing:
            said = together([said, *(where for _, where in self.closing)])
        closed = of_keys(said, keys)
        found = [] if closed == self.freed or closed.is_empty else [(-_END, closed)]
        for box in said.boxes:
            of_time = [values for name, values in box if name == time]
            rest = tuple((name, values) for name, values in box if name != time)
            if not of_time or any(name not in keys for name, _ in rest):
                continue
            for low, high in of_time[0].intervals()[-1:]:
                if high is None:
                    found.append((-_END if low is None else first_whole(low), Description((rest,))))
        return tuple(found)

    def free(self, validator: Validator, keys: Collection[str], *, keep: bool = False) -> int:
        """Let a validator go of keys that punctuation has closed since the last time, unless it is to ``keep`` them; how many."""
        closed = of_keys(self.closed, keys)
        if closed == self.freed:
            return 0
        self.freed = closed
        if keep:
            return 0
        known = dict(zip(validator.spec.schema.key_names, validator.keys, strict=True))
        count = len(validator.state.whole)
        return validator.close(matching(known, [(-1, closed)], np.zeros(count, np.int64)))


class Rebased(NamedTuple):
    """A batch's tuples: those that may have come, with times of the start, those that can be modelled in first units, and the
    others as they came, with a reason."""

    came: pa.Table
    undone: pa.Table
    aside: list[pa.Table]


def _parted(
    table: pa.Table, rows: IntArray, unfit: Sequence[tuple[str, BoolArray]]
) -> tuple[pa.Table, IntArray, list[pa.Table]]:
    """Tuples without those that are unfit for a reason; of several the first counts."""
    if not unfit:
        return table, rows, []
    bad, aside = np.zeros(table.num_rows, np.bool_), list[pa.Table]()
    for reason, more in unfit:
        aside += _told(table, np.flatnonzero(more & ~bad), reason)
        bad |= more
    if not bad.any():
        return table, rows, aside
    return table.filter(pa.array(~bad)), rows[~bad], aside


def _told(table: pa.Table, rows: IntArray, reason: str) -> list[pa.Table]:
    return [reasoned(table.take(pa.array(rows)), reason)] if len(rows) else []


def of_keys(where: Description, keys: Collection[str]) -> Description:
    """Those of a description's rows of which no row of their key comes any more."""
    return Description(tuple(box for box in where.boxes if all(name in keys for name, _ in box)))


def _needed(schema: StreamSchema) -> tuple[str, ...]:
    """What a tuple cannot be modelled without."""
    return (*schema.key_names, schema.time, *schema.modelled_names)


def _told_by(exists: Existence | None, one: Accent) -> set[str]:
    """What exists only where the attribute that an accent alters says so."""
    where = {} if exists is None else exists.where
    return {name for name, said in where.items() if one.attribute in said.attributes}


def _after(
    exists: Existence | None, one: Accent, moved: Collection[str], hears: AccentOptions, schema: StreamSchema
) -> Existence:
    if exists is None:
        known = dict.fromkeys((*schema.names, *hears.attributes))
        exists = Existence.of([name for name in known if name not in hears.absent])
    if isinstance(one.primitive, AddAttribute) and one.attribute not in moved:
        here: Mapping[str, Description] = {**exists.where, one.attribute: FALSE}  # it was not there before
        exists = replace(exists, where=here)
    return exists.after(one)

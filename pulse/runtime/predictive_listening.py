"""What accents and punctuation of a running stream have said so far, and what that means for its tuples (semantics 8.1, 8.7).

Of alterations what they come to is kept (:mod:`pulse.runtime.predictive_turns`), of punctuation which rows come no more. An
attribute that the feed does not have yet is one that was dropped before all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.schema import StreamSchema
from pulse.runtime.predictive_turns import BEFORE_ALL, Turns, listed, settle_all, together
from pulse.runtime.predictive_undoing import ROW, TupleUndoing, blank, matching
from pulse.stream.accents import Accent, AccentError, AddAttribute, AlterData, Control, Punctuation
from pulse.stream.affine import Affine
from pulse.stream.description import FALSE, TRUE, Description
from pulse.stream.log import AccentLog
from pulse.stream.steps import Alteration, first_whole
from pulse.stream.validity import Existence
from pulse.validation.aside import reasoned
from pulse.validation.validator import Validator

if TYPE_CHECKING:
    from pulse.runtime.predictive_accents import Hears

CONTRADICTS = "punctuation before it said that no such tuple comes any more"
UNDECLARED = "not among the keys that the job declares"
_END = 1 << 62


@dataclass
class Listening:
    """All that is known of one stream's accents. Picklable.

    ``since`` of what is said in the stream itself is a place among the rows of the batch at hand; before that batch, all.
    """

    undo: dict[str, Turns] = field(default_factory=dict)
    gone: dict[str, Turns] = field(default_factory=dict)
    exists: Existence | None = None  # None: nothing has come or gone
    moved: frozenset[str] = frozenset()  # what has come or gone, or is yet to come
    near: list[Accent] = field(default_factory=list)  # recent alter data, to tell what is said twice
    last: int | None = None  # the instant of the newest one
    closed: Description = FALSE
    closing: list[tuple[int, Description]] = field(
        default_factory=list
    )  # punctuation of the batch at hand, by place
    freed: Description = FALSE  # of keys, of which validators know nothing any more
    undoing: TupleUndoing | None = None

    @classmethod
    def of(cls, hears: Hears) -> Listening:
        """Before anything was said."""
        gone = {name: Turns(recent=[Alteration(BEFORE_ALL, TRUE, Affine(2))]) for name in hears.absent}
        return cls(gone=gone, moved=frozenset(hears.absent))

    # -- accents --------------------------------------------------------------------------------------------

    def take(
        self, controls: Sequence[Control], places: Sequence[int] | None, hears: Hears, schema: StreamSchema
    ) -> list[Control]:
        """Add controls, at their ``places`` in the stream or in a log, or raise what is wrong with one and leave all as it is."""
        last = self.last
        for one in controls:
            if isinstance(one, Accent):
                if places is not None and last is not None and one.position < last:
                    raise AccentError(f"{one}: its time is before that of the accent before it")
                last = one.position if last is None else max(last, one.position)
        checked = self._checked(controls, hears, schema)
        exists, moved = self.exists, self.moved
        for one in checked:
            if not isinstance(one, Accent):
                continue
            added = isinstance(one.primitive, AddAttribute)
            if isinstance(one.primitive, AlterData) and not moved & {
                one.attribute,
                *one.description.attributes,
            }:
                continue
            exists = _after(exists, one, moved, hears, schema)
            if added or not isinstance(one.primitive, AlterData):
                moved |= {one.attribute}
        self.exists, self.moved, self.last = exists, moved, last
        for i, one in enumerate(checked):
            self._note(one, i if places is None else places[i], hears, places is None)
        self.undoing = None
        return checked

    def _checked(self, controls: Sequence[Control], hears: Hears, schema: StreamSchema) -> list[Control]:
        """The controls as they fit the stream, without what their instants say of the time already."""
        if self._plain(controls, schema):
            return list(controls)
        names = (*hears.attributes, *self.moved)
        if all(isinstance(one, Accent) and isinstance(one.primitive, AlterData) for one in controls):
            instants = {one.position for one in controls}
            before = [one for one in self.near if one.position in instants]
            every = [*before, *controls]
            log = AccentLog.of(every, lines=[f"stream {hears.stream}"] * len(every))
            found = log.checked(schema, names).controls
            order = sorted(range(len(every)), key=lambda i: every[i].position)
            back = dict(zip(order, found, strict=True))
            return [back[i] for i in range(len(before), len(every))]
        found_: list[Control] = []
        known = list(names)
        for one in controls:
            line = [f"stream {hears.stream}"]
            if isinstance(one, Punctuation):  # speaks of whatever comes after it, of all times
                AccentLog.of([replace(one, position=BEFORE_ALL)], lines=line).checked(schema, known)
                found_.append(one)
                continue
            before = [
                near for near in (*self.near, *found_) if isinstance(near, Accent) and _alike(near, one)
            ]
            every = [*before, one]
            found_.append(AccentLog.of(every, lines=line * len(every)).checked(schema, known).controls[-1])
            known.append(one.attribute)
        return found_

    def _plain(self, controls: Sequence[Control], schema: StreamSchema) -> bool:
        """Whether all are alter data of models, of rows that texts name, and none of an instant at which another is."""
        texts = {name for name, type_ in (*schema.key, *schema.unmodelled) if pa.types.is_string(type_)}
        models, instants = schema.modelled_names, {(one.position, one.attribute) for one in self.near}
        for one in controls:
            if not isinstance(one, Accent) or not isinstance(one.primitive, AlterData):
                return False
            said, at = listed(one.description), (one.position, one.attribute)
            if said is None or said[0] not in texts or one.attribute not in models or at in instants:
                return False
            instants.add(at)
        return True

    def _note(self, control: Control, place: int, hears: Hears, by_time: bool) -> None:
        if isinstance(control, Punctuation):
            self.closing.append((-1 if by_time else place, control.description))
            return
        if isinstance(control.primitive, AlterData):
            self.near.append(control)
        if hears.policy.choice(control) == "ignore":
            return
        at = control.position if by_time else place
        if isinstance(control.primitive, AlterData):
            turns, map = self.undo, control.primitive.alpha
        else:
            added = isinstance(control.primitive, AddAttribute)
            turns, map = self.gone, Affine("1/2") if added else Affine(2)
        turns.setdefault(control.attribute, Turns()).add([Alteration(at, control.description, map)])

    # -- tuples ---------------------------------------------------------------------------------------------

    def fitting(
        self, table: pa.Table, rows: IntArray, hears: Hears
    ) -> tuple[pa.Table, IntArray, list[pa.Table]]:
        """The tuples that no punctuation excludes and whose keys are declared, their places, and the others with a reason."""
        aside: list[pa.Table] = []
        said = [(-1, self.closed)] if not self.closed.is_empty else []
        for reason, described in (
            (CONTRADICTS, said + self.closing),
            (UNDECLARED, [(-1, hears.undeclared)] if not hears.undeclared.is_empty else []),
        ):
            if not described or not table.num_rows:
                continue
            bad = matching(table, described, rows)
            if bad.any():
                aside.append(reasoned(table.filter(pa.array(bad)), reason))
                table, rows = table.filter(pa.array(~bad)), rows[~bad]
        return table, rows, aside

    def undone(self, table: pa.Table, rows: IntArray, by: str, hears: Hears) -> pa.Table:
        """Tuples in first units, by their instants (``by`` is the time) or their places (:data:`ROW`)."""
        if self.undoing is None:
            self.undoing = TupleUndoing.of(self.undo, self.gone, by)
        if table.num_rows and not self.undoing.is_empty:
            table = self.undoing.tuples(table, rows, hears.unread)
        return blank(table, hears.unread)

    # -- what is not needed any more ------------------------------------------------------------------------

    def pass_by(self, inside: bool, keys: Collection[str]) -> None:
        """The rows of the batch at hand have passed: all that was said is said of whatever comes."""
        if inside and any(one.recent for one in (*self.undo.values(), *self.gone.values())):
            for one in (*self.undo.values(), *self.gone.values()):
                if any(at != BEFORE_ALL for at, _, _ in one.recent):
                    one.pass_by()
                    self.undoing = None
        if self.closing:
            self.closed = together([self.closed, *(where for _, where in self.closing)])
            self.closing = []
            for one in self.undo.values():
                one.forget(of_keys(self.closed, keys))
            self.undoing = None

    def settle(self, horizon: int, time: str, inside: bool) -> None:
        """No tuple before the horizon comes any more."""
        count = len(self)
        settle_all(self.undo, *((_END - 1, ROW) if inside else (horizon, time)))
        settle_all(self.gone, *((_END - 1, ROW) if inside else (horizon, time)))
        self.near = [one for one in self.near if one.position > horizon]
        self.undo = {name: one for name, one in self.undo.items() if not one.is_empty}
        if len(self) != count:
            self.undoing = None

    def __len__(self) -> int:
        return sum(map(len, (*self.undo.values(), *self.gone.values())))

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

    def free(self, validator: Validator, keys: Collection[str]) -> int:
        """Let a validator go of keys that punctuation has closed since the last time; how many."""
        closed = of_keys(self.closed, keys)
        if closed == self.freed:
            return 0
        self.freed = closed
        known = dict(zip(validator.spec.schema.key_names, validator.keys, strict=True))
        count = len(validator.state.whole)
        return validator.close(matching(known, [(-1, closed)], np.zeros(count, np.int64)))


def of_keys(where: Description, keys: Collection[str]) -> Description:
    """Those of a description's rows of which no row of their key comes any more."""
    return Description(tuple(box for box in where.boxes if all(name in keys for name, _ in box)))


def _alike(near: Accent, one: Accent) -> bool:
    same = near.position == one.position and near.attribute == one.attribute
    return same and isinstance(near.primitive, AlterData) and isinstance(one.primitive, AlterData)


def _after(
    exists: Existence | None, one: Accent, moved: Collection[str], hears: Hears, schema: StreamSchema
) -> Existence:
    if exists is None:
        known = dict.fromkeys((*schema.names, *hears.attributes))
        exists = Existence.of([name for name in known if name not in hears.absent])
    if isinstance(one.primitive, AddAttribute) and one.attribute not in moved:
        here: Mapping[str, Description] = {**exists.where, one.attribute: FALSE}  # it was not there before
        exists = replace(exists, where=here)
    return exists.after(one)

"""Apply the revisions of a batch: correct the log, absorb corrections, replay the other keys (semantics 7.2, 7.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.certainty import ABSENT
from pulse.core.schema import StreamSchema
from pulse.core.time import EARLIEST, LATEST
from pulse.kernels.validate import key_state
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import (
    apply_updates,
    begins,
    clip_groups,
    ends,
    group_keys,
    keys_in,
    replaced,
)
from pulse.operators.inversion.needs import positions
from pulse.operators.output.diff import difference
from pulse.operators.units.key_ends import Drops
from pulse.validation.online.ended_keys import ended_at, push_over, separated
from pulse.validation.online.tighten import loose, tighten
from pulse.validation.online.validator import Key, Validator
from pulse.validation.revisions.absorption import InForce, TupleColumns, absorbed
from pulse.validation.revisions.batch import RevisionBatch, plain
from pulse.validation.revisions.element_matching import Elements, Pool
from pulse.validation.revisions.tuple_log import Chunk, Found

if TYPE_CHECKING:
    from pulse.validation.revisions.history import History


@dataclass(frozen=True, eq=False)
class KeyRevision:
    """The keys whose segments changed; ``segments`` replaces all of theirs from ``start`` on.

    The segments in force differ at most from ``since`` until ``until``.
    """

    keys: tuple[pa.Array, ...]
    start: IntArray
    since: IntArray
    until: IntArray
    segments: Relation

    def __len__(self) -> int:
        return len(self.start)


class Replay:
    """The effect of one batch's revisions on a history."""

    def __init__(
        self,
        history: History,
        validator: Validator,
        batch: RevisionBatch,
        elements: Elements,
        positions: IntArray,
        drops: Drops | None = None,
    ) -> None:
        self.history, self.validator, self.batch, self.drops = history, validator, batch, drops
        self.applied = self.absorbed = 0
        schema = history.schema
        rows = np.unique(np.concatenate([elements.old, elements.new]))
        rows = rows[rows >= 0]
        own = Chunk.of(schema, plain(batch.table.take(pa.array(rows)), schema), positions[rows])
        found = history.log.of_keys(_keys_of(own.table, schema))
        self.pool = Pool.of(schema, found.rows, own)
        placed_at = found.rows.t.shape[0] + np.searchsorted(rows, np.maximum(elements.old, 0))
        placed_new = found.rows.t.shape[0] + np.searchsorted(rows, np.maximum(elements.new, 0))
        here = Elements(
            np.where(elements.old >= 0, placed_at, -1), np.where(elements.new >= 0, placed_new, -1)
        )
        refused = self.pool.apply(here, history.retention.rounding)
        for e, reason in refused.items():
            batch.set_aside(elements.rows(e), reason)
        done = np.setdiff1d(np.arange(len(elements)), list(refused))
        self.done = here.take(done)
        self.applied = len(done)
        self._log(found)

    def _log(self, found: Found) -> None:
        """Correct the log, before any other use of it."""
        pool, logged = self.pool, self.pool.logged
        added = logged + np.flatnonzero(pool.alive[logged:])
        if pool.alive[:logged].all() and not len(added):
            return
        chunk = replace(pool.rows.take(added), order=pool.order[added])
        self.history.log.correct(found, pool.alive[:logged], chunk)

    def revised(self, updates: Relation) -> KeyRevision | None:
        """Absorb what can be, replay the other keys, and return the changes; ``updates`` are those of the same batch."""
        if not self.applied:
            return None
        pool, done = self.pool, self.done
        code = pool.code[np.where(done.old >= 0, done.old, done.new)]
        keys = self._keys()
        segments, of_row = self._in_force(keys)
        instants = np.concatenate([done.old[done.old >= 0], done.new[done.new >= 0]])
        pairs = np.unique(np.stack([pool.code[instants], pool.rows.t[instants]]), axis=1)
        tuples = self._tuples(keys)
        fine = absorbed(
            self.history.spec, tuples, InForce(segments, of_row, self._own(keys)), pairs[0], pairs[1]
        )
        fine &= ~self._at_a_drop(keys, tuples, pairs[0], pairs[1])
        dirty = np.unique(pairs[0][~fine])
        made = self._replayed(dirty, keys, segments, of_row, updates) if len(dirty) else None
        moved = dirty[made[0]] if made is not None else dirty
        self.absorbed = int((~np.isin(code, moved)).sum())
        return made[1] if made is not None and len(moved) else None

    def _keys(self) -> list[Key]:
        """Return the keys by code."""
        _, first = np.unique(self.pool.code, return_index=True)
        return _keys_of(self.pool.rows.table.take(pa.array(first)), self.history.schema, distinct=False)

    def _in_force(self, keys: list[Key]) -> tuple[Relation, IntArray]:
        """Return the segments in force of these keys, and the code of each row's key."""
        whole = self.history.in_force()
        mine = whole.select_groups(np.flatnonzero(keys_in(whole.keys, self.validator.columns(keys))))
        code = {key: i for i, key in enumerate(keys)}
        of_group = np.array([code[key] for key in group_keys(mine)], np.int64)
        return mine, of_group[mine.group] if mine.groups else np.zeros(0, np.int64)

    def _tuples(self, keys: list[Key]) -> TupleColumns:
        """Return the corrected tuples, each key's anchor before its own."""
        pool, anchor = self.pool, self.history.anchor
        left = pool.left()
        known = [(c, anchor.state.ids[key]) for c, key in enumerate(keys) if key in anchor.state.ids]
        known = [(c, row) for c, row in known if anchor.state.ints[row, key_state.STARTED]]
        of, rows = (np.array([one[i] for one in known], np.int64) for i in range(2))
        code = np.concatenate([of, pool.code[left]])
        t = np.concatenate([anchor.state.ints[rows, key_state.LAST], pool.rows.t[left]])
        last = anchor.state.floats[rows, anchor.layout.last].T
        order = np.argsort(code, kind="stable")
        # An anchor's attributes are never read.
        source = np.concatenate([np.zeros(len(of), np.int64), left])[order]
        values = np.concatenate([last, pool.values[:, left]], axis=1)[:, order]
        watched = pool.rows.table.select(list(self.history.spec.watched)).take(pa.array(source))
        return TupleColumns(code[order], t[order], values, watched)

    def _at_a_drop(self, keys: list[Key], tuples: TupleColumns, code: IntArray, t: IntArray) -> BoolArray:
        """Return which corrected instants have a drop between them and a neighbouring tuple: the truth ends elsewhere now."""
        if self.drops is None or not len(tuples.t):
            return np.zeros(len(t), bool)
        instants = np.unique(np.concatenate([tuples.t, t]))
        places = tuples.code * len(instants) + np.searchsorted(instants, tuples.t)
        at = code * len(instants) + np.searchsorted(instants, t)
        before, after = np.searchsorted(places, at) - 1, np.searchsorted(places, at, side="right")
        inside = (before >= 0) & (after < len(places))
        before, after = np.maximum(before, 0), np.minimum(after, len(places) - 1)
        inside &= (tuples.code[before] == code) & (tuples.code[after] == code)
        columns = self.validator.columns([keys[one] for one in code])
        table = pa.table(
            [*columns, pa.array(t).cast(pa.timestamp("us"))],
            [*self.history.schema.key_names, self.history.schema.time],
        )
        return inside & separated(table, self.drops, tuples.t[before], tuples.t[after])

    def _own(self, keys: list[Key]) -> BoolArray:
        state, layout = self.validator.state, self.validator.layout
        rows = np.array([state.ids.get(key, -1) for key in keys], np.int64)
        own = np.ones((len(keys), layout.attributes), bool)
        own[rows >= 0] = state.floats[rows[rows >= 0], layout.own] != 0.0
        return own

    def _replayed(
        self, dirty: IntArray, keys: list[Key], segments: Relation, of_row: IntArray, updates: Relation
    ) -> tuple[BoolArray, KeyRevision]:
        """Validate the tuples of these keys again, from their anchors; return which keys moved, and their segments in force."""
        history, validator, pool = self.history, self.validator, self.pool
        some = [keys[c] for c in dirty]
        again = Validator(history.spec)
        mine, theirs = again.state, validator.state
        mine.allotted, mine.tightened = theirs.allotted, theirs.tightened
        mine.newest_forgotten = theirs.newest_forgotten
        again.adopt(history.anchor, some)
        anchored, start = _anchored(again, some, known=set(history.anchor.state.ids))
        left = pool.left()
        rows = left[np.isin(pool.code[left], dirty)]
        # An anchor's model may predate tighter bounds; results since were computed with the tighter ones.
        restated = tighten(again, loose(again))
        tuples = pool.rows.table.take(pa.array(rows))
        pushed = again.push(tuples) if self.drops is None else push_over(again, tuples, self.drops)
        emitted, _ = apply_updates(anchored, Relation.concat([restated, pushed.updates]), voids=True)
        new = emitted.take(np.flatnonzero(emitted.certainty != ABSENT)).without_empty_groups()
        before, now = _newest(validator, some), _newest(again, some)
        validator.adopt(again, some)
        place = np.full(len(keys), -1, np.int64)
        place[dirty] = np.arange(len(dirty))
        at = place[of_row[segments.offsets[:-1]]]
        old = clip_groups(segments, np.where(at >= 0, start[at], LATEST), np.full(segments.groups, LATEST))
        since, until = _changed(old, new, validator.columns(some))
        self._store_segments(some, start, new)
        first = _first(updates, validator.columns(some))
        # In a join the unknown time of a key matters as well, and that begins after its newest tuple.
        others = before != now
        since = np.where(others, np.minimum(since, self._first_end(before, now, dirty)), since)
        until, moved = np.where(others, LATEST, until), since < LATEST
        both = moved & (first < LATEST)  # includes the changes of this batch's own updates
        since, until = np.where(both, np.minimum(since, first), since), np.where(both, LATEST, until)
        at_moved = np.flatnonzero(moved)
        columns = validator.columns([some[i] for i in at_moved])
        theirs_now = (
            emitted.select_groups(np.flatnonzero(keys_in(emitted.keys, columns)))
            if emitted.groups
            else emitted
        )
        return moved, KeyRevision(columns, start[at_moved], since[at_moved], until[at_moved], theirs_now)

    def _first_end(self, before: IntArray, now: IntArray, dirty: IntArray) -> IntArray:
        """Return the earlier of two last known instants per key; its first tuple where it had, or has, none."""
        first = np.full(int(self.pool.code.max()) + 1, LATEST)
        np.minimum.at(first, self.pool.code, self.pool.rows.t)
        both = np.minimum(before, now)
        found: IntArray = np.where(both > EARLIEST, both, first[dirty])
        return found

    def _store_segments(self, keys: list[Key], start: IntArray, new: Relation) -> None:
        """Replace the segments in force of these keys from their start on."""
        history = self.history
        history.segments = replaced(history.in_force(), self.validator.columns(keys), start, new)


def _anchored(validator: Validator, keys: list[Key], known: set[Key]) -> tuple[Relation, IntArray]:
    """Return the current models of keys from each one's newest tuple to their end, and that tuple's instant, or EARLIEST.

    The time before is not emitted again, however long ago the model began. ``known`` keys without a model ended at a drop and are
    absent from there on.
    """
    state = validator.state
    rows = np.array([state.ids[key] for key in keys], np.int64)
    begun = state.ints[rows, key_state.STARTED] != 0
    start = np.where(begun, state.ints[rows, key_state.LAST], EARLIEST)
    ahead = begun & (state.ints[rows, key_state.EXPIRY] > state.ints[rows, key_state.LAST])
    ended = ~begun & np.array([key in known for key in keys], bool)
    start = np.where(ended, state.ints[rows, key_state.EXPIRY], start)
    over = ended_at(validator, rows[ended])
    return Relation.concat([validator.models(rows[ahead], start[ahead]), over]).merged(), start


def _newest(validator: Validator, keys: list[Key]) -> IntArray:
    """Return the instant of each key's newest tuple, or EARLIEST for keys without a model."""
    state = validator.state
    rows = np.array([state.ids.get(key, -1) for key in keys], np.int64)
    last = np.append(state.ints[:, key_state.LAST], EARLIEST)[rows]
    begun = np.append(state.ints[:, key_state.STARTED], 0)[rows] != 0
    return np.where(begun, last, EARLIEST)


def _changed(old: Relation, new: Relation, keys: tuple[pa.Array, ...]) -> tuple[IntArray, IntArray]:
    """Return per key the begin of the first and the end of the last difference; LATEST as begin without any."""
    n = len(keys[0]) if keys else 1
    since, until = np.full(n, LATEST), np.full(n, EARLIEST)
    table = difference(old, new).table
    if table.num_rows:
        rows = Relation.from_table(table.drop_columns(["kind"]), replace(old.columns))
        place = positions(rows.keys, keys, rows.groups, n)[rows.group]
        np.minimum.at(since, place, begins(rows))
        np.maximum.at(until, place, ends(rows))
    return since, until


def _first(updates: Relation, keys: tuple[pa.Array, ...]) -> IntArray:
    """Return per key the begin of its first update, or LATEST."""
    n = len(keys[0]) if keys else 1
    first = np.full(n, LATEST)
    if len(updates):
        place = positions(updates.keys, keys, updates.groups, n)[updates.group]
        np.minimum.at(first, place[place >= 0], begins(updates)[place >= 0])
    return first


def _keys_of(table: pa.Table, schema: StreamSchema, *, distinct: bool = True) -> list[Key]:
    if not schema.key:
        return [()]
    keys = zip(*(table.column(name).to_pylist() for name in schema.key_names), strict=True)
    return list(dict.fromkeys(keys)) if distinct else list(keys)

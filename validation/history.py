"""The history of a stream that may be revised while a prediction goes on: the connection point of its input (semantics 7.3).

::

    tuples ──> validator ──> updates                                       nothing is revised: as without a history
                  |
    revisions ──> log, corrected ──within the models in force then?──yes──> absorbed: nothing moves
                  |                            no
       anchor ────┴──> the key's tuples once more ──> what is in force now ──difference──> revised segments of that key

The log holds the tuples of a stretch of time behind the watermark. Those that leave it go through the **anchor**, a validator
that lags behind by that stretch: what it knows of a key is a true state to start from. A key is replayed as a whole, from its
anchor over its corrected tuples; other keys are not looked at. So, with bounds that do not change, what is in force after a
revision that was not absorbed is what would be if the corrected tuples had come in the order of their times.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.certainty import CERTAIN
from pulse.core.columns import Columns
from pulse.core.errors import unknown_column
from pulse.core.regions import EARLIEST, LATEST
from pulse.core.schema import StreamSchema
from pulse.core.time import format_instant
from pulse.kernels import key_state
from pulse.operators.at_rest import begins, ends, listed, settled
from pulse.operators.difference import difference
from pulse.operators.predict import PredictSpec, candidates, numbers
from pulse.operators.relation import Relation
from pulse.operators.tuples import check_columns, needed_columns, times
from pulse.validation.absorption import InForce, Tuples, absorbed
from pulse.validation.aside import placed, together
from pulse.validation.corrections import PAIR, Elements, Pool, sorted_out
from pulse.validation.tuple_log import Chunk, TupleLog
from pulse.validation.validator import Counts, Key, Validator

BY_RADIUS = "radius"
"""What a job writes for a history that reaches back as far as the query's windows."""

_ROW = "row of the batch"
_STEPS = 8  # parts of the retention by which the log's beginning moves on


@dataclass(frozen=True)
class Retention:
    """How much of a stream's history is kept: microseconds behind the watermark, None for the query's radius.

    ``kind`` is the column that tells revisions from tuples; without one, only late tuples are.
    """

    span: int | None
    kind: str | None = None


@dataclass(frozen=True, eq=False)
class Revised:
    """Keys whose segments are others now. ``segments``: all of theirs that begin at ``start`` or later, in place of those before.

    What is in force differs from ``since`` until ``until`` at most.
    """

    keys: tuple[pa.Array, ...]
    start: IntArray
    since: IntArray
    until: IntArray
    segments: Relation

    def __len__(self) -> int:
        return len(self.start)


class Taken(NamedTuple):
    """What a batch led to; ``updates`` are of keys that are not revised."""

    updates: Relation
    revised: Revised | None
    counts: Counts
    aside: pa.Table | None
    revisions: int = 0
    absorbed: int = 0


@dataclass
class History:
    """The history of one stream's tuples, beside the validator that takes them. Picklable at any time."""

    spec: PredictSpec
    retention: Retention
    log: TupleLog = field(init=False)
    anchor: Validator = field(init=False)
    segments: Relation = field(init=False)  # in force, at rest
    fresh: list[Relation] = field(
        init=False, default_factory=list
    )  # updates that are not settled into them yet
    start: int = field(init=False, default=EARLIEST)  # what is before can no longer be revised
    edge: int = field(init=False, default=EARLIEST)  # what was before has left the log
    arrived: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.log = TupleLog(self.schema, _log_columns(self.schema))
        self.anchor = Validator(self.spec)
        self.segments = Relation.empty(Columns.of(self.schema))

    @property
    def schema(self) -> StreamSchema:
        """What tuples are made of."""
        return self.spec.schema

    def copied(self) -> History:
        """A history that goes its own way until the next :meth:`advance`."""
        made = object.__new__(History)
        made.__dict__ |= {**self.__dict__, "log": self.log.copied(), "fresh": list(self.fresh)}
        return made

    # -- tuples and revisions -----------------------------------------------------------------------------

    def push(self, validator: Validator, table: pa.Table | pa.RecordBatch) -> Taken:
        """Take tuples and revisions in order of arrival; what they change."""
        table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        schema, kind = self.schema, self.retention.kind
        check_columns(table.schema, schema, "tuples")
        if kind is not None and kind not in table.column_names:
            raise unknown_column(kind, table.column_names, "tuples, the kind of element")
        batch = _Batch.of(table, schema, kind)
        insertions = _plain(batch.table.take(pa.array(batch.insertions)) if kind else batch.table, schema)
        pushed = validator.push(insertions)
        if len(pushed.not_finite):
            batch.set_aside(batch.insertions[pushed.not_finite], "not finite")
        rejected = np.concatenate([pushed.late, pushed.not_finite])
        in_order = np.setdiff1d(np.arange(insertions.num_rows), rejected, assume_unique=True)
        positions = self.arrived + np.arange(batch.table.num_rows)
        self.arrived += batch.table.num_rows
        kept = insertions.take(pa.array(in_order)) if len(rejected) else insertions
        self.log.append(Chunk.of(schema, kept, positions[batch.insertions[in_order]]))
        if len(pushed.updates):
            self.fresh.append(pushed.updates)
        late = batch.insertions[pushed.late]
        elements = self._placed(batch, _in_order(batch.elements, late))
        counts = replace(pushed.counts, tuples=table.num_rows, late=0, misplaced=batch.misplaced)
        if not len(elements):
            return Taken(pushed.updates, None, counts, batch.aside())
        work = _Work(self, validator, batch, elements, positions)
        revised = work.revised(pushed.updates)
        updates = pushed.updates
        if revised is not None and updates.groups:
            updates = updates.select_groups(np.flatnonzero(~listed(updates.keys, revised.keys)))
        return Taken(updates, revised, counts, batch.aside(), work.applied, work.absorbed)

    def _placed(self, batch: _Batch, elements: Elements) -> Elements:
        """Elements that are made of numbers and of a time that is still kept; the others are set aside."""
        if not len(elements):
            return elements
        t = batch.t
        first = np.minimum(
            np.where(elements.old >= 0, t[elements.old], LATEST),
            np.where(elements.new >= 0, t[elements.new], LATEST),
        )
        gone = first < self.start
        for e in np.flatnonzero(gone).tolist():
            batch.set_aside(elements.rows(e), self._too_old(int(first[e])))
        new = np.flatnonzero((elements.new >= 0) & ~gone)
        if len(new):
            wrong = new[~self._finite(_plain(batch.table.take(pa.array(elements.new[new])), self.schema))]
            for e in wrong.tolist():
                batch.set_aside(elements.rows(e), "not finite")
            gone[wrong] = True
        return elements.take(np.flatnonzero(~gone))

    def _too_old(self, t: int) -> str:
        return (
            f"older than the history kept, which begins at {format_instant(self.start)}: "
            f"{(self.start - t) / 1e6:.6g} s more were needed"
        )

    def _finite(self, table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        names = (*self.schema.modelled_names, *self.spec.coefficients)
        made = candidates(self.spec, {name: numbers(table.column(name), name) for name in names})
        return np.asarray(np.isfinite(made.columns).all(axis=0))

    def in_force(self) -> Relation:
        """All segments that revisions may still change, at rest."""
        if self.fresh:
            self.segments, _ = settled(self.segments, Relation.concat(self.fresh))
            self.fresh = []
        return self.segments

    # -- time ---------------------------------------------------------------------------------------------

    def advance(self, validator: Validator, watermark: int, forget: int) -> None:
        """Nothing before ``watermark`` less the retention can be revised any more; keys not seen since ``forget`` go.

        The log's beginning follows in steps, so that a tuple is moved a few times at most.
        """
        span = self.retention.span or 0
        self.start = max(self.start, watermark - span)
        if self.start <= self.edge or self.start - self.edge < span // _STEPS:
            return
        self.edge = self.start
        gone = self.log.leave(self.edge)
        mine, theirs = self.anchor.state, validator.state
        if mine.allotted is not theirs.allotted and theirs.allotted is not None:
            self.anchor.allot(theirs.allotted)
        if len(gone):
            self.anchor.push(gone.table)
        self.anchor.forget(forget)
        self._prune(forget)

    def _prune(self, forget: int) -> None:
        """Let go of segments that lie before their key's anchor."""
        segments, known = self.in_force(), self.anchor.state
        begin = known.whole[:, key_state.REF]
        keys = zip(*(column.to_pylist() for column in segments.keys), strict=True) if segments.keys else [()]
        rows = np.array([known.ids.get(key, -1) for key in keys], np.int64)
        reach = np.append(begin, forget)[rows]  # of row -1: the last
        stays = np.flatnonzero(ends(segments) > np.maximum(reach, forget)[segments.group])
        self.segments = segments.take(stays).without_empty_groups()


@dataclass
class _Batch:
    """The rows of a batch that have a key and a time, sorted out; ``reasons`` collects rows that have no place."""

    table: pa.Table
    insertions: IntArray
    elements: Elements
    t: IntArray
    misplaced: int
    reasons: dict[int, str]
    left_out: list[pa.Table]

    @classmethod
    def of(cls, table: pa.Table, schema: StreamSchema, kind: str | None) -> _Batch:
        names = needed_columns(schema)
        if kind is None:
            good, left_out = placed(table.select(names), schema.key_names, schema.time)
            rows, none = np.arange(good.num_rows), np.zeros(0, np.int64)
            t = times(good, schema)[0]
            return cls(good, rows, Elements(none, none), t, table.num_rows - good.num_rows, {}, left_out)
        pair = [PAIR] if PAIR in table.column_names else []
        whole = table.select([*names, kind, *pair])
        numbered = whole.append_column(_ROW, pa.array(np.arange(table.num_rows)))
        found = sorted_out(numbered, schema, kind)
        good, left_out = placed(numbered, schema.key_names, schema.time)
        left_out = [one.drop_columns([_ROW, *pair]) for one in left_out]
        place = np.full(table.num_rows + 1, -1, np.int64)  # the last: of row -1
        place[good.column(_ROW).to_numpy()] = np.arange(good.num_rows)
        misplaced = table.num_rows - good.num_rows
        none = np.zeros(0, np.int64)
        batch = cls(
            good.drop_columns([_ROW, *pair]),
            none,
            found.elements,
            times(good, schema)[0],
            misplaced,
            {},
            left_out,
        )
        insertions = place[found.insertions]
        batch.insertions = insertions[insertions >= 0]
        old, new = place[found.elements.old], place[found.elements.new]
        halves = ((found.elements.old >= 0) & (old < 0)) | ((found.elements.new >= 0) & (new < 0))
        for row in np.concatenate([old[halves], new[halves]]):
            if row >= 0:
                batch.reasons[int(row)] = "the other half of the replacement has no key or no time"
        batch.elements = Elements(old[~halves], new[~halves])
        for reason, rows in found.aside.items():
            batch.reasons |= {int(place[row]): reason for row in rows if place[row] >= 0}
        return batch

    def set_aside(self, rows: IntArray, reason: str) -> None:
        self.reasons |= dict.fromkeys(rows.tolist(), reason)

    def aside(self) -> pa.Table | None:
        parts = list(self.left_out)
        if self.reasons:
            rows = sorted(self.reasons)
            reasons = pa.array([self.reasons[row] for row in rows], pa.string())
            parts.append(self.table.take(pa.array(rows)).append_column("reason", reasons))
        return together(parts)


class _Work:
    """What the revisions of one batch do to a history."""

    def __init__(
        self, history: History, validator: Validator, batch: _Batch, elements: Elements, positions: IntArray
    ) -> None:
        self.history, self.validator, self.batch = history, validator, batch
        self.applied = self.absorbed = 0
        schema = history.schema
        rows = np.unique(np.concatenate([elements.old, elements.new]))
        rows = rows[rows >= 0]
        own = Chunk.of(schema, _plain(batch.table.take(pa.array(rows)), schema), positions[rows])
        found = history.log.of_keys(_keys_of(own.table, schema))
        self.pool = Pool.of(schema, found.rows, own)
        placed_at = found.rows.t.shape[0] + np.searchsorted(rows, np.maximum(elements.old, 0))
        placed_new = found.rows.t.shape[0] + np.searchsorted(rows, np.maximum(elements.new, 0))
        here = Elements(
            np.where(elements.old >= 0, placed_at, -1), np.where(elements.new >= 0, placed_new, -1)
        )
        refused = self.pool.apply(here)
        for e, reason in refused.items():
            batch.set_aside(elements.rows(e), reason)
        done = np.setdiff1d(np.arange(len(elements)), list(refused))
        self.done = here.take(done)
        self.applied = len(done)
        self._log(found)

    def _log(self, found: Any) -> None:
        """Correct the log, before anything else looks at it."""
        pool, logged = self.pool, self.pool.logged
        added = logged + np.flatnonzero(pool.alive[logged:])
        if pool.alive[:logged].all() and not len(added):
            return
        chunk = replace(pool.rows.take(added), order=pool.order[added])
        self.history.log.correct(found, pool.alive[:logged], chunk)

    def revised(self, updates: Relation) -> Revised | None:
        """Absorb what can be, replay the other keys; what is another now. ``updates`` are those of the same batch."""
        if not self.applied:
            return None
        pool, done = self.pool, self.done
        code = pool.code[np.where(done.old >= 0, done.old, done.new)]
        keys = self._keys()
        segments, of_row = self._in_force(keys)
        instants = np.concatenate([done.old[done.old >= 0], done.new[done.new >= 0]])
        pairs = np.unique(np.stack([pool.code[instants], pool.rows.t[instants]]), axis=1)
        fine = absorbed(
            self.history.spec,
            self._tuples(keys),
            InForce(segments, of_row, self._own(keys)),
            pairs[0],
            pairs[1],
        )
        dirty = np.unique(pairs[0][~fine])
        made = self._replayed(dirty, keys, segments, of_row, updates) if len(dirty) else None
        moved = dirty[made[0]] if made is not None else dirty
        self.absorbed = int((~np.isin(code, moved)).sum())
        return made[1] if made is not None and len(moved) else None

    def _keys(self) -> list[Key]:
        """The keys by code."""
        _, first = np.unique(self.pool.code, return_index=True)
        return _keys_of(self.pool.rows.table.take(pa.array(first)), self.history.schema, distinct=False)

    def _in_force(self, keys: list[Key]) -> tuple[Relation, IntArray]:
        """What is in force of these keys, and the code of each row's key."""
        whole = self.history.in_force()
        mine = whole.select_groups(np.flatnonzero(listed(whole.keys, self.validator.columns(keys))))
        code = {key: i for i, key in enumerate(keys)}
        of_group = np.array([code[key] for key in _group_keys(mine)], np.int64)
        return mine, of_group[mine.group] if mine.groups else np.zeros(0, np.int64)

    def _tuples(self, keys: list[Key]) -> Tuples:
        """The corrected tuples, each key's anchor before its own."""
        pool, anchor = self.pool, self.history.anchor
        left = pool.left()
        known = [(c, anchor.state.ids[key]) for c, key in enumerate(keys) if key in anchor.state.ids]
        known = [(c, row) for c, row in known if anchor.state.whole[row, key_state.STARTED]]
        of, rows = (np.array([one[i] for one in known], np.int64) for i in range(2))
        code = np.concatenate([of, pool.code[left]])
        t = np.concatenate([anchor.state.whole[rows, key_state.LAST], pool.rows.t[left]])
        last = anchor.state.real[rows, anchor.layout.last].T
        order = np.argsort(code, kind="stable")
        source = np.concatenate([np.zeros(len(of), np.int64), left])[
            order
        ]  # an anchor's attributes are never asked for
        values = np.concatenate([last, pool.values[:, left]], axis=1)[:, order]
        watched = pool.rows.table.select(list(self.history.spec.watched)).take(pa.array(source))
        return Tuples(code[order], t[order], values, watched)

    def _own(self, keys: list[Key]) -> Any:
        state, layout = self.validator.state, self.validator.layout
        rows = np.array([state.ids.get(key, -1) for key in keys], np.int64)
        own = np.ones((len(keys), layout.attributes), bool)
        own[rows >= 0] = state.real[rows[rows >= 0], layout.own] != 0.0
        return own

    def _replayed(
        self, dirty: IntArray, keys: list[Key], segments: Relation, of_row: IntArray, updates: Relation
    ) -> tuple[Any, Revised]:
        """Validate the tuples of these keys again, from their anchors; which keys moved, and what is in force of them."""
        history, validator, pool = self.history, self.validator, self.pool
        some = [keys[c] for c in dirty]
        again = Validator(history.spec)
        mine, theirs = again.state, validator.state
        mine.allotted, mine.tightened = theirs.allotted, theirs.tightened
        mine.newest_forgotten = theirs.newest_forgotten
        again.adopt(history.anchor, some)
        anchored, start = _anchored(again, some)
        left = pool.left()
        rows = left[np.isin(pool.code[left], dirty)]
        pushed = again.push(pool.rows.table.take(pa.array(rows)))
        new, _ = settled(anchored, pushed.updates)
        validator.adopt(again, some)
        place = np.full(len(keys), -1, np.int64)
        place[dirty] = np.arange(len(dirty))
        at = place[of_row]
        old = segments.take(np.flatnonzero((at >= 0) & (begins(segments) >= start[at])))
        since, until = _changed(old, new, validator.columns(some))
        self._hold(some, start, new)
        first = _first(updates, validator.columns(some))
        moved = since < LATEST
        both = moved & (first < LATEST)  # what this batch's own updates changed is part of it
        since, until = np.where(both, np.minimum(since, first), since), np.where(both, LATEST, until)
        at_moved = np.flatnonzero(moved)
        columns = validator.columns([some[i] for i in at_moved])
        theirs_now = new.select_groups(np.flatnonzero(listed(new.keys, columns))) if new.groups else new
        return moved, Revised(columns, start[at_moved], since[at_moved], until[at_moved], theirs_now)

    def _hold(self, keys: list[Key], start: IntArray, new: Relation) -> None:
        """What is in force of these keys from their start on is now this."""
        history = self.history
        history.segments = replaced(history.in_force(), self.validator.columns(keys), start, new)


def replaced(held: Relation, keys: tuple[pa.Array, ...], start: IntArray, new: Relation) -> Relation:
    """A stream at rest with rows of some keys, those that begin at ``start`` or later, replaced by others."""
    from_ = np.full(held.groups, LATEST)
    code = {
        key: i for i, key in enumerate(zip(*(one.to_pylist() for one in keys), strict=True) if keys else [()])
    }
    for group, key in enumerate(_group_keys(held)):
        if key in code:
            from_[group] = start[code[key]]
    stays = held.take(np.flatnonzero(begins(held) < from_[held.group]))
    rest, _ = settled(stays, new)
    return rest


def _anchored(validator: Validator, keys: list[Key]) -> tuple[Relation, IntArray]:
    """The current models of keys, as far as they reach, and when each began; the earliest of all where there is none."""
    state, layout, schema = validator.state, validator.layout, validator.spec.schema
    rows = np.array([state.ids[key] for key in keys], np.int64)
    begun = state.whole[rows, key_state.STARTED] != 0
    start = np.where(begun, state.whole[rows, key_state.REF], EARLIEST)
    rows, known = rows[begun], [key for key, one in zip(keys, begun, strict=True) if one]
    n, ref = len(rows), state.whole[rows, key_state.REF]
    c = state.real[rows, layout.model].reshape(n, layout.attributes, layout.width)
    err = state.real[rows, layout.err]
    carried = state.carried.take(pa.array(rows)).combine_chunks() if schema.unmodelled else None
    empty = Relation.empty(Columns.of(schema))
    if not n:
        return empty, start
    made = replace(
        empty,
        keys=validator.columns(known),
        offsets=np.arange(n + 1),
        ref=ref,
        lo=np.zeros(n),
        hi=(state.whole[rows, key_state.EXPIRY] - ref) / 1e6,
        models={name: np.ascontiguousarray(c[:, a]) for a, name in enumerate(schema.modelled_names)},
        err={name: np.ascontiguousarray(err[:, a]) for a, name in enumerate(schema.modelled_names)},
        drift={},
        certainty=np.full(n, CERTAIN, np.uint8),
        unmodelled={}
        if carried is None
        else {name: pa.concat_arrays(carried.column(name).chunks) for name in schema.unmodelled_names},
    )
    return made, start


def _changed(old: Relation, new: Relation, keys: tuple[pa.Array, ...]) -> tuple[IntArray, IntArray]:
    """Per key when the first difference begins and the last ends; the first is beyond all times where there is none."""
    n = len(keys[0]) if keys else 1
    since, until = np.full(n, LATEST), np.full(n, EARLIEST)
    table = difference(old, new).table
    if table.num_rows:
        rows = Relation.from_table(table.drop_columns(["kind"]), replace(old.columns))
        place = _place(rows.keys, keys)[rows.group]
        np.minimum.at(since, place, begins(rows))
        np.maximum.at(until, place, ends(rows))
    return since, until


def _first(updates: Relation, keys: tuple[pa.Array, ...]) -> IntArray:
    """Per key when its first update begins; beyond all times where there is none."""
    first = np.full(len(keys[0]) if keys else 1, LATEST)
    if len(updates):
        place = _place(updates.keys, keys)[updates.group]
        np.minimum.at(first, place[place >= 0], begins(updates)[place >= 0])
    return first


def _place(keys: tuple[pa.Array, ...], among: tuple[pa.Array, ...]) -> IntArray:
    """Where each key is among others; -1 where it is not."""
    if not keys:
        return np.zeros(1, np.int64)
    at = {key: i for i, key in enumerate(zip(*(one.to_pylist() for one in among), strict=True))}
    found = [at.get(key, -1) for key in zip(*(one.to_pylist() for one in keys), strict=True)]
    return np.array(found, np.int64)


def _group_keys(relation: Relation) -> list[Key]:
    if not relation.keys:
        return [()] * relation.groups
    return list(zip(*(column.to_pylist() for column in relation.keys), strict=True))


def _keys_of(table: pa.Table, schema: StreamSchema, *, distinct: bool = True) -> list[Key]:
    if not schema.key:
        return [()]
    keys = zip(*(table.column(name).to_pylist() for name in schema.key_names), strict=True)
    return list(dict.fromkeys(keys)) if distinct else list(keys)


def _in_order(elements: Elements, late: IntArray) -> Elements:
    """Revisions and late insertions in order of arrival."""
    old = np.concatenate([elements.old, np.full(len(late), -1, np.int64)])
    new = np.concatenate([elements.new, late])
    return Elements(old, new).take(np.argsort(np.where(old >= 0, old, new), kind="stable"))


def _log_columns(schema: StreamSchema) -> pa.Schema:
    """The columns of a log: plain types, so that tuples from different files are of one kind."""
    types = {**dict(schema.key), schema.time: pa.timestamp("us"), **dict(schema.unmodelled)}
    types |= dict.fromkeys(schema.modelled_names, pa.float64())
    return pa.schema([(name, types[name]) for name in needed_columns(schema)])


def _plain(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """Tuples with the columns of a log."""
    mine = _log_columns(schema)
    columns = []
    for one in mine:
        column = table.column(one.name)
        if one.name == schema.time:
            t = pa.array(times(table, schema)[0]).view(one.type)
            column = column if column.type == one.type else pa.chunked_array([t])
        elif one.name in schema.modelled_names and column.type != one.type:
            column = pa.chunked_array([pa.array(numbers(column, one.name))])
        columns.append(column if column.type == one.type else column.cast(one.type))
    return pa.table(columns, schema=mine)

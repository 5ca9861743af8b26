"""Validate the tuples of a stream: tuples in, update segments out; most tuples yield none (semantics 6.2; Pulse paper, IV).

::

    tuples --> by key: within the bound of the current model? --yes--> nothing
                                                              --no---> a segment [t, t + horizon), and before it, where the
                                                                       truth had already left the model, a repair
                                   and the model about to end? ------> the same model, up to t + horizon

After every tuple, the truth of the tuples lies within ``err`` of the model in force at every instant from a key's first tuple to
its newest: repairs ensure that. There is no model only where a silence lasts longer than ``max_gap``. Beyond the newest tuple the
model reaches at least half a horizon, and at most one. The models in force do not depend on how tuples are cut into batches.

A tuple that is late, has no key or no time, or has non-finite values is set aside with a reason; the stream continues.
Tuples of a key at one instant are checked one after the other: the last wins. A change of an unmodelled attribute that no
formula uses begins a model, since it is constant within a segment (semantics 1.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.arrow_types import one_chunk
from pulse.core.certainty import ABSENT, CERTAIN
from pulse.core.columns import Columns
from pulse.core.keys import key_ranks
from pulse.kernels.fit.truth_intervals import NO_TIME
from pulse.kernels.validate import key_state
from pulse.kernels.validate import validate as checks
from pulse.kernels.validate.key_state import StateLayout
from pulse.kernels.validate.validate import validate
from pulse.operators.data.relation import Relation
from pulse.operators.data.tuple_columns import changes, check_columns, encode_keys, needed_columns, times
from pulse.operators.data.updates import ENDLESS
from pulse.operators.fit.predictive_spec import PredictSpec, candidates, numbers
from pulse.operators.inversion.needs import TUPLE_RATE
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.online.counts import ValidationCounts
from pulse.validation.online.rejects import add_reason, admit, concat_rejects, origin_columns

REASONS = {checks.LATE: "late", checks.NOT_FINITE: "not finite"}
_CHUNK = 1 << 18  # rows validated at a time, so that temporary arrays stay in the cache
_NONE = np.zeros(0, np.int64)
PRIOR = 1.0 / 32.0
"""The prior in a key's volatility estimate: this part of the keys' mean observed time, spent at the median volatility."""

Key = tuple[object, ...]


class Pushed(NamedTuple):
    """The updates of a batch of tuples; ``kinds`` holds the cause of each row (codes of :mod:`pulse.kernels.validate.validate`).

    ``late`` and ``not_finite``: the rows rejected for it, among the tuples that have a key and a time.
    """

    updates: Relation
    kinds: IntArray
    counts: ValidationCounts
    aside: pa.Table | None
    late: IntArray = _NONE
    not_finite: IntArray = _NONE


@dataclass
class ValidatorState:
    """The validator's state: a row per key in each array (:mod:`pulse.kernels.validate.key_state`), by ``ids``."""

    ids: dict[Key, int]
    ints: IntArray
    floats: FloatArray
    carried: pa.Table  # unmodelled attributes of the keys' current models
    newest_forgotten: int = NO_TIME
    allotted: Allotment | None = None
    tightened: Allotment | None = None


@dataclass
class Validator:
    """A validator of one stream's tuples; picklable at any time, as ``state`` holds all of its state."""

    spec: PredictSpec
    state: ValidatorState = field(init=False)

    def __post_init__(self) -> None:
        ints, floats = key_state.fresh(0, self.layout)
        self.state = ValidatorState({}, ints, floats, self._unmodelled_schema.empty_table())

    @property
    def layout(self) -> StateLayout:
        """Return the column layout of the state arrays."""
        return StateLayout(len(self.spec.schema.modelled), self.spec.width)

    def restore(self, state: ValidatorState) -> None:
        """Restore a state; raise ``ValueError`` if it is inconsistent or belongs to another stream."""
        rows, schema = len(state.ids), self.spec.schema
        shapes = (rows, key_state.INTS), (rows, self.layout.size)
        if (state.ints.shape, state.floats.shape) != shapes or list(state.ids.values()) != list(range(rows)):
            raise ValueError(
                f"validator: expected arrays of {rows} keys with shapes {shapes}, got {state.ints.shape}, {state.floats.shape}"
            )
        unmodelled = self._unmodelled_schema
        if state.carried.schema != unmodelled or (len(unmodelled) and state.carried.num_rows != rows):
            raise ValueError(
                f"validator: expected {rows} rows of {unmodelled.names}, got {state.carried.schema}"
            )
        types = [type_ for _, type_ in schema.key]
        for one in (state.allotted, state.tightened):
            if one is not None and [column.type for column in one.keys] != types:
                raise ValueError(f"validator: expected bounds of keys of types {types}, got other types")
        if not set(map(len, state.ids)) <= {len(types)}:
            raise ValueError(f"validator: expected keys of {len(types)} values, got other numbers of values")
        self.columns(list(state.ids))  # raises for values of a wrong type
        own: dict[str, Any] = {
            name: one.copy()
            for name, one in vars(state).items()
            if isinstance(one, np.ndarray) and not one.flags.writeable
        }
        self.state = replace(state, **own)

    @property
    def _unmodelled_schema(self) -> pa.Schema:
        return pa.schema(self.spec.schema.unmodelled)

    @property
    def keys(self) -> tuple[pa.Array, ...]:
        """Return the known keys, a column per key attribute."""
        return self.columns(list(self.state.ids))

    # -- tuples -------------------------------------------------------------------------------------------

    def push(self, table: pa.Table | pa.RecordBatch) -> Pushed:
        """Validate tuples in order of arrival, and return the changes."""
        table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        schema, counts = self.spec.schema, ValidationCounts(tuples=table.num_rows)
        check_columns(table.schema, schema, "tuples")
        table, aside = admit(
            table.select([*needed_columns(schema), *origin_columns(table)]), schema.key_names, schema.time
        )
        counts.misplaced = counts.tuples - table.num_rows
        if not table.num_rows:
            return Pushed(
                Relation.empty(Columns.of(schema)), np.zeros(0, np.int64), counts, concat_rejects(aside)
            )
        encoded = encode_keys(table, schema)
        present = np.flatnonzero(np.bincount(encoded.codes, minlength=len(encoded.keys)))
        ids = np.full(len(encoded.keys), -1, np.int64)
        ids[present] = self._ids([encoded.keys[code] for code in present])
        unmodelled, place = self._unmodelled(table, ids[present])
        who = self._who(ids[encoded.codes], unmodelled, ids[present])
        event, c, err = self._validate(table, who, counts)
        misfits = {kind: np.sort(event[event[:, checks.KIND] == kind, checks.ROW]) for kind in REASONS}
        for kind, rows in misfits.items():
            if len(rows):
                aside.append(add_reason(table.take(pa.array(rows)), REASONS[kind]))
        updates, kinds = self._updates(event, c, err, unmodelled, place)
        self.state.ints[ids[present], key_state.CHANGE] = 0  # a code is valid within one push only
        return Pushed(
            updates, kinds, counts, concat_rejects(aside), misfits[checks.LATE], misfits[checks.NOT_FINITE]
        )

    def _validate(
        self, table: pa.Table, who: IntArray, counts: ValidationCounts
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the events of all rows, computed a chunk at a time."""
        spec, state = self.spec, self.state
        t, _ = times(table, spec.schema)
        names = (*spec.schema.modelled_names, *spec.coefficients)
        found = []
        for begin in range(0, len(t), _CHUNK):
            some = slice(begin, begin + _CHUNK)
            columns = {name: numbers(table.column(name).slice(begin, len(t[some])), name) for name in names}
            made = candidates(spec, columns)
            part = np.ascontiguousarray(who[:, some])
            numbers_of_keys = state.ints, state.floats
            gap = checks.NO_GAP if spec.max_gap is None else spec.max_gap
            events = validate(
                t[some], made.columns, part, made.rules, spec.limits, spec.horizon, numbers_of_keys, gap
            )
            by_kind = events.counts(len(t[some]))
            counts.add(ValidationCounts.of(by_kind))
            events.event[:, checks.ROW] += begin
            found.append(events)
        return (
            np.concatenate([one.event for one in found]),
            np.concatenate([one.c for one in found]),
            np.concatenate([one.err for one in found]),
        )

    def _unmodelled(self, table: pa.Table, ids: IntArray) -> tuple[pa.Table | None, IntArray]:
        """Return the unmodelled attributes of the current models of ``ids``, then of the tuples; and each key's row there."""
        place = np.full(len(self.state.ints), -1, np.int64)
        place[ids] = np.arange(len(ids))
        if not self.spec.schema.unmodelled:
            return None, place
        mine = self._unmodelled_schema
        tuples = pa.table([_plain(table.column(one.name), one.type) for one in mine], schema=mine)
        return pa.concat_tables([self.state.carried.take(pa.array(ids)), tuples]), place

    def _who(self, keys: IntArray, unmodelled: pa.Table | None, ids: IntArray) -> IntArray:
        """Return the kernel's ``who``: the tuples' keys and, where attributes are watched, codes of their values."""
        watched = self.spec.watched
        if not watched or unmodelled is None:
            return keys[None]
        schema = self.spec.schema
        pairs = tuple((name, type_) for name, type_ in schema.unmodelled if name in watched)
        code = changes(unmodelled, replace(schema, unmodelled=pairs))
        self.state.ints[ids, key_state.CHANGE] = code[: len(ids)]
        return np.stack([keys, code[len(ids) :]])

    def _updates(
        self, event: IntArray, c: FloatArray, err: FloatArray, unmodelled: pa.Table | None, place: IntArray
    ) -> tuple[Relation, IntArray]:
        """Return the resulting segments by key and time: of several that begin in one push each is cut at the next."""
        schema, state = self.spec.schema, self.state
        ruling = np.flatnonzero(event[:, checks.KIND] <= checks.VOID)
        columns = Columns.of(schema)
        if not len(ruling):
            return _no_updates(columns), np.zeros(0, np.int64)
        ids, of = np.unique(event[ruling, checks.KEY], return_inverse=True)
        known = list(state.ids)
        keys = self.columns([known[one] for one in ids])
        ranks = key_ranks(list(keys), len(ids))
        order = np.argsort(ranks[of], kind="stable")
        rows, rank = ruling[order], ranks[of][order]
        same = rank[1:] == rank[:-1]
        begin, end = event[rows, checks.BEGIN], event[rows, checks.END]
        end[:-1] = np.where(same, np.minimum(end[:-1], begin[1:]), end[:-1])
        # An extension begins ahead of its tuple; the next update may begin before that, but after the previous extension.
        end[:-2] = np.where(same[1:] & same[:-1], np.minimum(end[:-2], begin[2:]), end[:-2])
        # A repair or extension has the unmodelled attributes of the newest model: of this push, or of the state.
        kind = event[rows, checks.KIND]
        begun = kind < checks.EXTENDED
        place_of = np.maximum.accumulate(np.where(begun, np.arange(len(rows)), -1))
        first = np.concatenate(([0], np.flatnonzero(~same) + 1))[np.cumsum(np.concatenate(([0], ~same)))]
        source = np.where(
            place_of >= first,
            event[rows[place_of], checks.ROW] + len(place[place >= 0]),
            place[event[rows, checks.KEY]],
        )
        if unmodelled is not None:
            newest = np.append(np.flatnonzero(~same), len(rows) - 1)
            self._carry(unmodelled, event[rows[newest], checks.KEY], source[newest])
        left = np.flatnonzero(end > begin)
        rows, rank, begin, end, kind = rows[left], rank[left], begin[left], end[left], kind[left]
        about = event[rows, checks.ABOUT]
        taken = None if unmodelled is None else unmodelled.take(pa.array(source[left])).combine_chunks()
        sorted_keys = pa.array(np.argsort(ranks))
        made = Relation(
            columns=columns,
            keys=tuple(column.take(sorted_keys) for column in keys),
            offsets=np.searchsorted(rank, np.arange(len(ids) + 1)),
            ref=about,
            lo=(begin - about) / 1e6,
            hi=(end - about) / 1e6,
            models={name: np.ascontiguousarray(c[rows, a]) for a, name in enumerate(schema.modelled_names)},
            err={name: np.ascontiguousarray(err[rows, a]) for a, name in enumerate(schema.modelled_names)},
            drift={},
            certainty=np.where(kind == checks.VOID, ABSENT, CERTAIN).astype(np.uint8),
            unmodelled={}
            if taken is None
            else {name: one_chunk(taken.column(name)) for name in schema.unmodelled_names},
        )
        return made, kind

    def _carry(self, unmodelled: pa.Table, ids: IntArray, source: IntArray) -> None:
        """Store the unmodelled attributes of the current models of ``ids``."""
        state = self.state
        rows = np.arange(len(state.ints))
        rows[ids] = len(rows) + np.arange(len(ids))
        concat_rejects = pa.concat_tables([state.carried, unmodelled.take(pa.array(source))])
        state.carried = concat_rejects.take(pa.array(rows)).combine_chunks()

    # -- bounds -------------------------------------------------------------------------------------------

    def allot(self, allotment: Allotment) -> None:
        """Replace the allotted bounds from now on, also for keys yet to come.

        An infinite bound leaves the stream's own. A current model's ``err`` is not widened: until the next model the tighter
        of the two holds (semantics 6.2).
        """
        self.state.allotted, self.state.tightened = allotment, None
        self._bind(np.arange(len(self.state.ints)), self.keys)

    def tighten(self, allotment: Allotment) -> None:
        """Add bounds to those in force: the smaller of the two counts."""
        before = self.state.tightened
        self.state.tightened = allotment if before is None else before.tighter(allotment)
        self._bind(np.arange(len(self.state.ints)), self.keys)

    def _bind(self, rows: IntArray, keys: tuple[pa.Array, ...]) -> None:
        """Store the allotted bounds of the keys of these rows."""
        state, layout, n = self.state, self.layout, len(rows)
        names = self.spec.schema.modelled_names
        first = {} if state.allotted is None else state.allotted.of(keys, n)
        second = {} if state.tightened is None else state.tightened.of(keys, n)
        free = np.full(n, np.inf)
        for a, name in enumerate(names):
            allotted = first.get(name, free)
            state.floats[rows, layout.own.start + a] = np.isinf(allotted)
            state.floats[rows, layout.bound.start + a] = np.minimum(allotted, second.get(name, free))

    def volatility(self) -> dict[str, FloatArray]:
        """Return the recent volatility of each of :attr:`keys` per attribute, in units per root of a second.

        The squared steps of the residual, summed over about the last 64 tuples, per second, and the root of that: the parameter
        of a random walk. A walk of volatility ``r`` leaves a bound ``b`` about every ``(b / r)**2`` seconds. The estimate does
        not depend on the bound in force. For a key with little history it is drawn towards the median of all keys, as if the key
        had been like that for a while before (:data:`PRIOR`), by the weighted mean of logarithms.

        The entry :data:`TUPLE_RATE` holds tuples per second: no key can violate more often.
        """
        floats, layout = self.state.floats, self.layout
        squares, span = floats[:, layout.squares], floats[:, [layout.span]]
        rate = np.sqrt(squares / np.maximum(span, 1e-6))
        seen = span[:, 0] > 0.0
        if seen.any():
            own = span / (span + PRIOR * span[seen].mean())
            rate = rate**own * np.median(rate[seen], axis=0) ** (1.0 - own)
        pace = floats[:, layout.seen] / np.maximum(span[:, 0], 1e-6)
        return {name: rate[:, a] for a, name in enumerate(self.spec.schema.modelled_names)} | {
            TUPLE_RATE: pace
        }

    # -- keys ---------------------------------------------------------------------------------------------

    def lapse(self, before: int, forgotten: int = NO_TIME) -> Relation:
        """Retract the predictions of models that ended by ``before`` (microseconds) without a tuple to confirm them.

        Return absent segments from each key's newest tuple to the end of its model. The key stays known: the next tuple
        determines the truth since the newest. Segments of keys that :meth:`forget` of ``forgotten`` removes have no end.
        """
        ints = self.state.ints
        last, end = ints[:, key_state.LAST], ints[:, key_state.EXPIRY]
        over = self._over(forgotten)
        rows = np.flatnonzero((ints[:, key_state.STARTED] != 0) & ((last < end) & (end <= before) | over))
        made = self.models(rows, last[rows])
        ints[rows, key_state.EXPIRY] = last[rows]
        hi = np.where(over[rows], made.lo + 2.0 * ENDLESS, made.hi)
        return replace(made, hi=hi, certainty=np.full(len(rows), ABSENT, np.uint8))

    def _over(self, before: int) -> BoolArray:
        """Return which of :attr:`keys` have ended: their next tuple, after ``before``, would follow a hole."""
        gap = self.spec.max_gap
        if gap is None:
            return np.zeros(len(self.state.ints), bool)
        return self.silent(before) & (self.state.ints[:, key_state.LAST] + gap < before)

    def silent(self, before: int) -> BoolArray:
        """Return which of :attr:`keys` have neither a tuple since ``before`` (microseconds) nor a prediction from then on."""
        ints = self.state.ints
        found: BoolArray = (ints[:, key_state.LAST] < before) & (ints[:, key_state.EXPIRY] <= before)
        return found

    def forget(self, before: int) -> tuple[pa.Array, ...]:
        """Remove and return the keys whose next tuple, after ``before`` (microseconds), would follow a hole.

        Older tuples are late from now on, whatever their key. Without a ``max_gap`` all keys stay, since the next tuple
        determines the truth at all times since the newest.
        """
        state, old = self.state, self._over(before)
        state.newest_forgotten = max(state.newest_forgotten, before)
        if not old.any():
            return self.columns([])
        known = list(state.ids)
        gone = self.columns([known[row] for row in np.flatnonzero(old)])
        self.close(old)
        return gone

    def models(self, rows: IntArray, since: IntArray | None = None) -> Relation:
        """Return the current models of these state rows, from their start, or from ``since``, to their end: a segment a key."""
        state, layout, schema = self.state, self.layout, self.spec.schema
        empty, n = Relation.empty(Columns.of(schema)), len(rows)
        if not n:
            return empty
        known = list(state.ids)
        ref = state.ints[rows, key_state.REF]
        c = state.floats[rows, layout.model].reshape(n, layout.attributes, layout.width)
        err = state.floats[rows, layout.err]
        carried = state.carried.take(pa.array(rows)).combine_chunks() if schema.unmodelled else None
        return replace(
            empty,
            keys=self.columns([known[row] for row in rows]),
            offsets=np.arange(n + 1),
            ref=ref,
            lo=np.zeros(n) if since is None else (since - ref) / 1e6,
            hi=(state.ints[rows, key_state.EXPIRY] - ref) / 1e6,
            models={name: np.ascontiguousarray(c[:, a]) for a, name in enumerate(schema.modelled_names)},
            err={name: np.ascontiguousarray(err[:, a]) for a, name in enumerate(schema.modelled_names)},
            drift={},
            certainty=np.full(n, CERTAIN, np.uint8),
            unmodelled={}
            if carried is None
            else {name: one_chunk(carried.column(name)) for name in schema.unmodelled_names},
        )

    def lagging(self, behind: int, *, silent: bool = True) -> tuple[tuple[pa.Array, ...], IntArray]:
        """Return the keys whose newest tuple lies before an instant, and its time: the next tuple may affect all times since.

        Without ``silent``, omit keys that have no prediction from then on either.
        """
        last = self.state.ints[:, key_state.LAST]
        some = (last < behind) & (self.state.ints[:, key_state.STARTED] != 0)
        rows = np.flatnonzero(some if silent else some & ~self.silent(behind))
        known = list(self.state.ids)
        return self.columns([known[row] for row in rows]), last[rows]

    def close(self, gone: BoolArray) -> int:
        """Remove these of :attr:`keys`, which get no more tuples; return how many."""
        state, stay = self.state, np.flatnonzero(~gone)
        if len(stay) < len(gone):
            known = list(state.ids)
            state.ids = {known[row]: i for i, row in enumerate(stay)}
            state.ints, state.floats = state.ints[stay], state.floats[stay]
            if state.carried.num_columns:
                state.carried = state.carried.take(pa.array(stay))
        return len(gone) - len(stay)

    def adopt(self, other: Validator, keys: list[Key]) -> None:
        """Copy the state of these keys from another validator of the same stream; reset keys unknown to it.

        They get the bounds allotted here.
        """
        state, theirs = self.state, other.state
        rows = self._ids(keys)
        source = np.array([theirs.ids.get(key, -1) for key in keys], np.int64)
        known, unknown = source >= 0, rows[source < 0]
        state.ints[rows[known]] = theirs.ints[source[known]]
        state.floats[rows[known]] = theirs.floats[source[known]]
        if len(unknown):
            state.ints[unknown], state.floats[unknown] = key_state.fresh(len(unknown), self.layout)
            state.ints[unknown, key_state.LAST] = state.newest_forgotten
        if len(rows) and (state.allotted is not None or state.tightened is not None):
            self._bind(rows, self.columns(keys))
        if len(self._unmodelled_schema):
            self._carry(theirs.carried, rows[known], source[known])

    def _ids(self, keys: Iterable[Key]) -> IntArray:
        """Return the state rows of these keys, adding new ones."""
        state = self.state
        rows = np.array([state.ids.setdefault(key, len(state.ids)) for key in keys], np.int64)
        more = len(state.ids) - len(state.ints)
        if more:
            ints, floats = key_state.fresh(more, self.layout)
            ints[:, key_state.LAST] = state.newest_forgotten
            known = len(state.ints)
            state.ints, state.floats = (
                np.concatenate([state.ints, ints]),
                np.concatenate([state.floats, floats]),
            )
            if len(self._unmodelled_schema):
                nothing = pa.table(
                    [pa.nulls(more, one.type) for one in self._unmodelled_schema],
                    schema=self._unmodelled_schema,
                )
                state.carried = pa.concat_tables([state.carried, nothing])
            if state.allotted is not None or state.tightened is not None:
                added = list(state.ids)[known:]
                self._bind(np.arange(known, len(state.ints)), self.columns(added))
        return rows

    def columns(self, keys: list[Key]) -> tuple[pa.Array, ...]:
        """Convert keys to columns, one per key attribute."""
        return tuple(
            pa.array([key[i] for key in keys], type_) for i, (_, type_) in enumerate(self.spec.schema.key)
        )


@lru_cache(16)
def _no_updates(columns: Columns) -> Relation:
    """Return the empty result of most small batches, cached because building it takes longer than their validation."""
    return Relation.empty(columns)


def _plain(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == type_ else column.cast(type_)

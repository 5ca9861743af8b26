"""Keep the history of a revisable stream during a prediction: the connection point of its input (semantics 7.3).

::

    tuples ──> validator ──> updates                                       without revisions: as without a history
                  |
    revisions ──> log, corrected ──within the models in force then?──yes──> absorbed: nothing changes
                  |                            no
       anchor ────┴──> replay of the key's tuples ──> segments in force now ──difference──> revised segments of that key

The log holds the tuples of a time range behind the watermark. Those that leave it go through the **anchor**, a validator
that lags behind by that range: its state of a key is a valid starting point. A key is replayed as a whole, from its
anchor over its corrected tuples; other keys are untouched. So, with bounds that do not change, the segments in force after a
revision that was not absorbed are those that the corrected tuples would have given in the order of their times.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.columns import Columns
from pulse.core.errors import unknown_column
from pulse.core.schema import StreamSchema
from pulse.core.time import EARLIEST, LATEST, format_instant
from pulse.kernels.validate import key_state
from pulse.operators.data.relation import Relation
from pulse.operators.data.tuple_columns import check_columns
from pulse.operators.data.updates import apply_updates, ends, keys_in
from pulse.operators.fit.predictive_spec import PredictSpec, candidates, numbers
from pulse.operators.units.key_ends import Drops
from pulse.validation.online.counts import ValidationCounts
from pulse.validation.online.ended_keys import ceased, push_over, resumed
from pulse.validation.online.validator import Pushed, Validator, ValidatorState
from pulse.validation.revisions.batch import RevisionBatch, in_order, log_columns, plain
from pulse.validation.revisions.element_matching import Elements
from pulse.validation.revisions.replay import KeyRevision, Replay
from pulse.validation.revisions.tuple_log import Chunk, LogSnapshot, TupleLog

BY_RADIUS = "radius"
"""The value in a job for a history that reaches back as far as the query's windows."""

STEPS = 8
"""The number of steps per retention in which the log's beginning advances."""


@dataclass(frozen=True)
class Retention:
    """The retention of a stream's history: microseconds behind the watermark, None for the query's radius.

    ``kind`` is the column that distinguishes revisions from tuples; without it only late tuples are revisions. Old values match a
    tuple within ``rounding``, relative to the largest value of their key: a change of units in between rounds them differently.
    """

    span: int | None
    kind: str | None = None
    rounding: float = 0.0


class AcceptedTuples(NamedTuple):
    """The result of a batch; ``updates`` are of keys that are not revised."""

    updates: Relation
    revised: KeyRevision | None
    counts: ValidationCounts
    aside: pa.Table | None
    revisions: int = 0
    absorbed: int = 0


class HistorySnapshot(NamedTuple):
    """A history as data, without its job's settings."""

    log: LogSnapshot
    anchor: ValidatorState
    segments: Relation
    fresh: list[Relation]
    start: int
    edge: int
    arrived: int


@dataclass
class History:
    """The history of one stream's tuples, beside the validator that takes them; picklable at any time."""

    spec: PredictSpec
    retention: Retention
    log: TupleLog = field(init=False)
    anchor: Validator = field(init=False)
    segments: Relation = field(init=False)  # in force, at rest
    # Updates that are not merged into them yet.
    fresh: list[Relation] = field(init=False, default_factory=list)
    start: int = field(init=False, default=EARLIEST)  # earlier tuples can no longer be revised
    edge: int = field(init=False, default=EARLIEST)  # earlier tuples have left the log
    arrived: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.log = TupleLog(self.schema, log_columns(self.schema))
        self.anchor = Validator(self.spec)
        self.segments = Relation.empty(Columns.of(self.schema))

    @property
    def schema(self) -> StreamSchema:
        """Return the schema of the tuples."""
        return self.spec.schema

    @property
    def snapshot(self) -> HistorySnapshot:
        """Return the state as data."""
        return HistorySnapshot(
            self.log.snapshot,
            self.anchor.state,
            self.segments,
            self.fresh,
            self.start,
            self.edge,
            self.arrived,
        )

    def restore(self, snapshot: HistorySnapshot) -> None:
        """Restore a state; raise ``ValueError`` if it belongs to another stream."""
        columns = Columns.of(self.schema)
        for one in (snapshot.segments, *snapshot.fresh):
            if one.columns != columns:
                raise ValueError(f"history: expected segments of {columns}, got {one.columns}")
        self.log.restore(snapshot.log)
        self.anchor.restore(snapshot.anchor)
        self.segments, self.fresh = snapshot.segments, list(snapshot.fresh)
        self.start, self.edge, self.arrived = snapshot.start, snapshot.edge, snapshot.arrived

    def copied(self) -> History:
        """Return a copy that is independent until the next :meth:`advance`."""
        made = object.__new__(History)
        made.__dict__ |= {**self.__dict__, "log": self.log.copied(), "fresh": list(self.fresh)}
        return made

    # -- tuples and revisions -----------------------------------------------------------------------------

    def push(
        self, validator: Validator, table: pa.Table | pa.RecordBatch, drops: Drops | None = None
    ) -> AcceptedTuples:
        """Take tuples and revisions in order of arrival, and return the changes; models end at ``drops`` of attributes."""
        table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        schema, kind = self.schema, self.retention.kind
        check_columns(table.schema, schema, "tuples")
        if kind is not None and kind not in table.column_names:
            raise unknown_column(kind, table.column_names, "tuples, the kind of element")
        batch = RevisionBatch.of(table, schema, kind)
        whole = len(batch.insertions) == batch.table.num_rows
        insertions = plain(batch.table if whole else batch.table.take(pa.array(batch.insertions)), schema)
        pushed = self._pushed(validator, insertions, drops)
        if len(pushed.not_finite):
            batch.set_aside(batch.insertions[pushed.not_finite], "not finite")
        rejected = np.concatenate([pushed.late, pushed.not_finite])
        on_time = np.setdiff1d(np.arange(insertions.num_rows), rejected, assume_unique=True)
        positions = self.arrived + np.arange(batch.table.num_rows)
        self.arrived += batch.table.num_rows
        kept = insertions.take(pa.array(on_time)) if len(rejected) else insertions
        self.log.append(Chunk.of(schema, kept, positions[batch.insertions[on_time]]))
        if len(pushed.updates):
            self.fresh.append(pushed.updates)
        late = batch.insertions[pushed.late]
        elements = self._placed(batch, in_order(batch.elements, late))
        counts = replace(pushed.counts, tuples=table.num_rows, late=0, misplaced=batch.misplaced)
        if not len(elements):
            return AcceptedTuples(pushed.updates, None, counts, batch.aside())
        work = Replay(self, validator, batch, elements, positions, drops)
        revised = work.revised(pushed.updates)
        updates = pushed.updates
        if revised is not None and updates.groups:
            updates = updates.select_groups(np.flatnonzero(~keys_in(updates.keys, revised.keys)))
        return AcceptedTuples(updates, revised, counts, batch.aside(), work.applied, work.absorbed)

    def _pushed(self, validator: Validator, insertions: pa.Table, drops: Drops | None) -> Pushed:
        """Validate tuples; those before the drop that ended their key are late."""
        if drops is None:
            return validator.push(insertions)
        early = resumed(validator, insertions, drops)
        if not early.any():
            return push_over(validator, insertions, drops)
        rows = np.flatnonzero(~early)
        pushed = push_over(validator, insertions.take(pa.array(rows)), drops)
        late = np.sort(np.concatenate([rows[pushed.late], np.flatnonzero(early)]))
        counts = replace(pushed.counts, tuples=len(insertions))
        return pushed._replace(late=late, not_finite=rows[pushed.not_finite], counts=counts)

    def _placed(self, batch: RevisionBatch, elements: Elements) -> Elements:
        """Return the elements with finite values and a time still kept; set aside the others."""
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
            wrong = new[~self._finite(plain(batch.table.take(pa.array(elements.new[new])), self.schema))]
            for e in wrong.tolist():
                batch.set_aside(elements.rows(e), "not finite")
            gone[wrong] = True
        return elements.take(np.flatnonzero(~gone))

    def _too_old(self, t: int) -> str:
        return (
            f"older than the history kept: it begins at {format_instant(self.start)}, "
            f"{(self.start - t) / 1e6:.6g} s more were needed"
        )

    def _finite(self, table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        names = (*self.schema.modelled_names, *self.spec.coefficients)
        made = candidates(self.spec, {name: numbers(table.column(name), name) for name in names})
        return np.asarray(np.isfinite(made.columns).all(axis=0))

    def in_force(self) -> Relation:
        """Return all segments that revisions may still change, at rest."""
        if self.fresh:
            self.segments, _ = apply_updates(self.segments, Relation.concat(self.fresh))
            self.fresh = []
        return self.segments

    # -- time ---------------------------------------------------------------------------------------------

    def advance(self, validator: Validator, watermark: int, forget: int, drops: Drops | None = None) -> None:
        """Finalise the time before ``watermark`` less the retention, and remove keys not seen since ``forget``.

        The log's beginning advances in steps, so that a tuple is moved a few times at most. Models of the anchor end at ``drops``
        of attributes, which are kept until its keys have passed them.
        """
        span = self.retention.span or 0
        self.start = max(self.start, watermark - span)
        if self.start <= self.edge or self.start - self.edge < span // STEPS:
            return
        self.edge = self.start
        gone = self.log.leave(self.edge)
        mine, theirs = self.anchor.state, validator.state
        if mine.allotted is not theirs.allotted and theirs.allotted is not None:
            self.anchor.allot(theirs.allotted)
        if drops is not None:
            push_over(self.anchor, gone.table, drops)
            # Tuples of closed keys may still be in the log.
            ceased(self.anchor, replace(drops, closed=()), self.edge)
        elif len(gone):
            self.anchor.push(gone.table)
        self.anchor.forget(forget)
        self._prune(forget)

    def _prune(self, forget: int) -> None:
        """Remove segments before the newest tuple of their key's anchor, or before the drop that ended it."""
        segments, known = self.in_force(), self.anchor.state
        begun = known.ints[:, key_state.STARTED] != 0
        last = np.where(begun, known.ints[:, key_state.LAST], known.ints[:, key_state.EXPIRY])
        keys = zip(*(column.to_pylist() for column in segments.keys), strict=True) if segments.keys else [()]
        rows = np.array([known.ids.get(key, -1) for key in keys], np.int64)
        reach = np.append(last, forget)[rows]  # of row -1: the last
        stays = np.flatnonzero(ends(segments) > reach[segments.group])
        self.segments = segments.take(stays).without_empty_groups()

"""Run a prediction (semantics 6): validators, the continuous query over their models, and bounds fed back to them.

::

    tuples ──validator──> updates ──continuous query──> changes of results
                ^                        |
                └── allotted bounds <── inverter

The output depends only on the tuples and the order in which they are pushed, on no clock. The same object runs in this process
and inside Spark's workers; its state pickles at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa

from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import begins
from pulse.operators.node import Node
from pulse.operators.relational.scan import scans
from pulse.operators.units.key_ends import Drops
from pulse.runtime.accents.rounding import Shifts, rounded
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import as_scanned
from pulse.runtime.incremental.continuous_query import ContinuousQueryState, Solved
from pulse.runtime.predict.bound_feedback import (
    Parties,
    merge_parties,
    parties,
    prepend_segments,
    tighten_models,
)
from pulse.runtime.predict.bound_sharing import beyond, share_bounds, too_loose
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.tuple_history import (
    dropped,
    forget,
    histories_of,
    kept_behind,
    lapsed,
    solve,
    take,
    updates_of,
)
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.online.tighten import loose
from pulse.validation.online.validator import ValidationCounts, Validator, ValidatorState
from pulse.validation.revisions.history import AcceptedTuples, History

Tuples = Mapping[str, pa.Table | pa.RecordBatch]

ATTEMPTS = 3
"""Maximum number of validations of the same tuples while bounds are too loose for the query's own."""


@dataclass
class Tally:
    """Counters of a prediction's work."""

    tuples: int = 0
    validated: int = 0
    violations: int = 0
    updates: int = 0
    solves: int = 0
    results: int = 0
    changes: int = 0
    aside: int = 0
    beyond: int = 0  # results whose stated error is above the query's own bound
    revisions: int = 0  # of earlier tuples, including late insertions
    absorbed: int = 0  # revisions that changed no result
    accents: int = 0  # admitted ones
    changed: int = 0  # tuples that ended a model by changing a kept attribute

    def add(self, other: Tally) -> None:
        """Add the counters of another tally."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(frozen=True)
class Emission:
    """The outcome of a push: a changelog of result segments, rejected tuples by stream, and counters."""

    changes: pa.Table
    aside: Mapping[str, pa.Table]
    tally: Tally


@dataclass
class Prediction:
    """A running predictor. ``now`` is the newest event time so far."""

    predictor: Predictor
    validators: dict[str, Validator] = field(default_factory=dict)
    state: ContinuousQueryState | None = None
    allotted: dict[str, Allotment] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    now: int | None = None
    histories: dict[str, History] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.histories = self.histories or histories_of(self.predictor)
        if not self.validators:
            self.validators = {stream: Validator(spec) for stream, spec in self.predictor.specs.items()}
        if self.state is None:
            self.state = self.predictor.continuous.start()

    def push(
        self,
        tuples: Tuples,
        watermark: int | None = None,
        drops: Mapping[str, Drops] | None = None,
        shifts: Shifts | None = None,
    ) -> Emission:
        """Validate tuples and return the changes of results.

        If the bounds in force prove too loose for the query's own, because there were none yet or values have changed since,
        earlier models are tightened and the same tuples validated again.

        Parameters
        ----------
        tuples : by stream, in the order of their arrival
        watermark : instant before which no tuple is expected; unconfirmed predictions up to it are retracted
        drops : by stream, drops of attributes, at which models end
        shifts : by stream and attribute, the largest shift to base units, which bounds the rounding of tuples
        """
        pushed, solved = (
            self._validate_within_bounds(tuples, watermark, drops or {}, shifts or {})
            if self.predictor.bounds
            else self._validate_and_solve(tuples, watermark, drops or {}, shifts or {})
        )
        updates = updates_of(pushed)
        counts, aside = ValidationCounts(), {}
        for stream, one in pushed.items():
            counts.add(one.counts)
            if one.aside is not None and one.aside.num_rows:
                aside[stream] = one.aside
            if stream in tuples:
                self._note_time(tuples[stream], self.predictor.specs[stream].schema.time)
        tally = Tally(
            tuples=counts.tuples,
            validated=counts.validated,
            violations=counts.violated,
            changed=counts.changed,
            updates=sum(map(len, updates.values())),
            solves=solved.solved,
            results=solved.results,
            changes=len(solved.changes),
            aside=sum(one.num_rows for one in aside.values()),
            beyond=int(beyond(solved.fresh, self.predictor.bounds).sum()),
            revisions=sum(one.revisions for one in pushed.values()),
            absorbed=sum(one.absorbed for one in pushed.values()),
        )
        self.tally.add(tally)
        return Emission(solved.changes.table, aside, tally)

    def _validate_and_solve(
        self,
        tuples: Tuples,
        watermark: int | None,
        drops: Mapping[str, Drops],
        shifts: Shifts,
        state: ContinuousQueryState | None = None,
        first: Mapping[str, Relation] | None = None,
    ) -> tuple[dict[str, AcceptedTuples], Solved]:
        """Validate tuples and solve their changes, on this state of results and after these segments if given."""
        pushed = prepend_segments(first or {}, take(self.validators, self.histories, tuples, drops))
        pushed = dropped(self.validators, self.histories, pushed, drops, watermark)
        pushed = lapsed(self.predictor, self.validators, self.histories, pushed, watermark)
        pushed = rounded(pushed, shifts)
        before = self.state if state is None else state
        assert before is not None
        self.state, solved = solve(self.predictor.continuous, before, pushed)
        return pushed, solved

    def _validate_within_bounds(
        self, tuples: Tuples, watermark: int | None, drops: Mapping[str, Drops], shifts: Shifts
    ) -> tuple[dict[str, AcceptedTuples], Solved]:
        """Validate and solve, again with the allotted bounds as long as they are tighter than those validated against."""
        query, state = self.predictor.continuous, self.state
        states = {stream: _copied(one.state) for stream, one in self.validators.items()}
        past = {stream: one.copied() for stream, one in self.histories.items()}
        asked: Parties = {}
        segments: dict[str, Relation] = {}
        for attempt in range(ATTEMPTS):
            pushed, solved = self._validate_and_solve(tuples, watermark, drops, shifts, state, segments)
            updates = updates_of(pushed)
            if not any(map(len, updates.values())):
                break
            above = beyond(solved.fresh, self.predictor.bounds)
            if self.allotted and not above.any():
                self._allot_bounds(updates, solved.evaluation)
                break
            # Bounds of these tuples depend on all results since their start, those of later tuples on results from now on.
            self._allot_bounds(updates, solved.evaluation, _oldest(updates))
            asked = merge_parties(asked, parties(query, solved.fresh.take(np.flatnonzero(above))))
            again = {stream: self._validator_before(stream, one) for stream, one in states.items()}
            looser = any(too_loose(one, self.allotted.get(stream)) for stream, one in updates.items())
            looser |= any(len(loose(again[stream], keys)) > 0 for stream, keys in asked.items())
            if attempt == ATTEMPTS - 1 or not looser:
                self._allot_bounds(updates, solved.evaluation)
                break
            self.validators |= again
            self.histories |= {stream: one.copied() for stream, one in past.items()}
            segments = tighten_models(self.validators, self.histories, asked)
        return pushed, solved

    def advance(self, watermark: int, drops: Mapping[str, Drops] | None = None) -> None:
        """Free state that is only needed before the watermark. Models end at ``drops`` of attributes, by stream."""
        assert self.state is not None
        forget(self.predictor, self.validators, self.histories, watermark, drops)
        oldest = watermark - kept_behind(self.predictor)
        # In a query on one stream a silent key retains only its own newest segments; where keys meet, those of all keys.
        alone = self.predictor.continuous.alone
        lagging = {stream: one.lagging(oldest, silent=alone) for stream, one in self.validators.items()}
        self.state = self.predictor.continuous.advance(self.state, oldest, lagging)

    def results(self) -> pa.Table:
        """The current results, as far ahead as the models extend."""
        assert self.state is not None
        table = pa.Table.from_batches([self.state.results.to_segments()])
        return table.select(self.predictor.continuous.output.segment_schema().names)

    # -- bound feedback -------------------------------------------------------------------------------------

    def _allot_bounds(
        self,
        updates: Mapping[str, Relation],
        evaluation: FragmentEvaluation | None = None,
        since: int | None = None,
    ) -> None:
        """Invert the query's bounds and allot the shares to the validators.

        If the plan is one scan that processes keys separately, only the changed keys of ``evaluation`` are inverted; else all
        keys, from now or from ``since`` on.
        """
        if not self.predictor.bounds:
            return
        assert self.state is not None
        query = self.predictor.continuous
        leaves = tuple(dict.fromkeys(scans(query.plan)))
        alone = query.alone
        if evaluation is None or not alone:
            now = since
            if now is None:
                now = max((_newest(one) for one in self.state.streams.values() if len(one)), default=0)
            inputs: dict[Node, Relation] = {}
            for leaf in leaves:
                relation = self.state.streams[leaf.stream]
                chosen = query.of_keys(relation, updates[leaf.stream]) if alone else relation
                inputs[leaf] = as_scanned(query.recent(chosen, now), leaf)
            evaluation = FragmentEvaluation(inputs, possible=query.query.possible)
        found = share_bounds(self.predictor, evaluation, self._volatility(), alone=alone)
        for stream, allotment in found.items():
            before = self.allotted.get(stream)
            whole = allotment if before is None or not alone else before.renewed(allotment)
            self.allotted[stream] = whole
            self.validators[stream].allot(whole)

    def _validator_before(self, stream: str, state: ValidatorState) -> Validator:
        """A stream's validator as it was before a push, with the current allotment."""
        made = Validator(self.predictor.specs[stream])
        made.state = _copied(state)
        made.allot(self.allotted[stream])
        if state.allotted is not None:  # a share may grow only once the shrunk ones are in force
            made.tighten(state.allotted)
        return made

    def _volatility(self) -> dict[str, Allotment]:
        found = {}
        for stream, validator in self.validators.items():
            rates = validator.volatility()
            found[stream] = Allotment(stream, validator.keys, rates, dict.fromkeys(rates, 0.0))
        return found

    def _note_time(self, table: pa.Table | pa.RecordBatch, time: str) -> None:
        column = table.column(time)
        newest = pa.compute.max(column)
        if newest.is_valid:
            at = int(newest.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).as_py())
            self.now = at if self.now is None else max(self.now, at)


def _copied(state: ValidatorState) -> ValidatorState:
    """Copy a validator's state so that a push does not change it."""
    return replace(state, ids=dict(state.ids), ints=state.ints.copy(), floats=state.floats.copy())


def _newest(relation: Relation) -> int:
    """The start of a stream's newest segment, in microseconds."""
    return int((relation.ref + np.floor(relation.lo * 1e6).astype(np.int64)).max())


def _oldest(updates: Mapping[str, Relation]) -> int:
    """The start of the first update, in microseconds."""
    return min(int(begins(one).min()) for one in updates.values() if len(one))

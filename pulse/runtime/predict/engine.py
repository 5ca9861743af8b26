"""A prediction at work (semantics 6): validators, the standing query above them, and bounds that flow back.

::

    tuples ──validator──> updates ──standing query──> changes of results
                ^                        |
                └── allotted bounds <── inverter

Everything that happens depends on the tuples and the order in which they are pushed, on no clock. The same object runs in
this process and inside Spark's workers; its state pickles at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa

from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import begins
from pulse.operators.units.key_ends import Drops
from pulse.plan.nodes import Node, scans
from pulse.runtime.accents.rounding import Shifts, rounded
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import as_scanned
from pulse.runtime.incremental.continuous_query import ContinuousQueryState, Solved
from pulse.runtime.predict.bound_feedback import Parties, after, parties, restated, together
from pulse.runtime.predict.bound_sharing import beyond, shared_out, too_loose
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
"""How often the same tuples are validated at most, while bounds turn out to be too loose for what the query asks."""


@dataclass
class Tally:
    """What a prediction has done so far."""

    tuples: int = 0
    validated: int = 0
    violations: int = 0
    updates: int = 0
    solves: int = 0
    results: int = 0
    changes: int = 0
    aside: int = 0
    beyond: int = 0  # results whose stated error is above the query's own bound
    revisions: int = 0  # of tuples that had come before, late ones among them
    absorbed: int = 0  # of these, those that moved nothing
    accents: int = 0  # that were taken
    changed: int = 0  # tuples that ended a model because an attribute that is kept has changed

    def add(self, other: Tally) -> None:
        """Add another's."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(frozen=True)
class Emission:
    """What tuples led to: rows of a changelog of result segments, tuples set aside by stream, and figures."""

    changes: pa.Table
    aside: Mapping[str, pa.Table]
    tally: Tally


@dataclass
class Prediction:
    """A predictor at work. ``now`` is the newest time that was seen."""

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
            self.state = self.predictor.standing.start()

    def push(
        self,
        tuples: Tuples,
        watermark: int | None = None,
        drops: Mapping[str, Drops] | None = None,
        shifts: Shifts | None = None,
    ) -> Emission:
        """Take tuples in, by stream, in the order of their arrival; what they change.

        What was predicted up to the ``watermark``, before which nothing comes any more, and no tuple has confirmed is taken back.
        Models end at ``drops`` of attributes, by stream; tuples were undone by ``shifts``, and rounded then.

        Where it turns out that the bounds in force were too loose for the results to keep the query's own, because there
        were none yet or values have moved since, models from before are restated and the same tuples validated again,
        against the tighter ones.
        """
        pushed, solved = (
            self._bounded(tuples, watermark, drops or {}, shifts or {})
            if self.predictor.bounds
            else self._taken(tuples, watermark, drops or {}, shifts or {})
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

    def _taken(
        self,
        tuples: Tuples,
        watermark: int | None,
        drops: Mapping[str, Drops],
        shifts: Shifts,
        state: ContinuousQueryState | None = None,
        first: Mapping[str, Relation] | None = None,
    ) -> tuple[dict[str, AcceptedTuples], Solved]:
        """Validate tuples and solve what they change, in this state of results and after these segments if given."""
        pushed = after(first or {}, take(self.validators, self.histories, tuples, drops))
        pushed = dropped(self.validators, self.histories, pushed, drops, watermark)
        pushed = lapsed(self.predictor, self.validators, self.histories, pushed, watermark)
        pushed = rounded(pushed, shifts)
        before = self.state if state is None else state
        assert before is not None
        self.state, solved = solve(self.predictor.standing, before, pushed)
        return pushed, solved

    def _bounded(
        self, tuples: Tuples, watermark: int | None, drops: Mapping[str, Drops], shifts: Shifts
    ) -> tuple[dict[str, AcceptedTuples], Solved]:
        """The same, again with the bounds that flow back while these are tighter than what was validated against."""
        standing, state = self.predictor.standing, self.state
        kept = {stream: _copied(one.state) for stream, one in self.validators.items()}
        past = {stream: one.copied() for stream, one in self.histories.items()}
        asked: Parties = {}
        segments: dict[str, Relation] = {}
        for attempt in range(ATTEMPTS):
            pushed, solved = self._taken(tuples, watermark, drops, shifts, state, segments)
            updates = updates_of(pushed)
            if not any(map(len, updates.values())):
                break
            above = beyond(solved.fresh, self.predictor.bounds)
            if self.allotted and not above.any():
                self._flow_back(updates, solved.evaluation)
                break
            # What these tuples must keep depends on all results from the first of them on, what comes on those from now on.
            self._flow_back(updates, solved.evaluation, _oldest(updates))
            asked = together(asked, parties(standing, solved.fresh.take(np.flatnonzero(above))))
            again = {stream: self._as_before(stream, one) for stream, one in kept.items()}
            looser = any(too_loose(one, self.allotted.get(stream)) for stream, one in updates.items())
            looser |= any(len(loose(again[stream], keys)) > 0 for stream, keys in asked.items())
            if attempt == ATTEMPTS - 1 or not looser:
                self._flow_back(updates, solved.evaluation)
                break
            self.validators |= again
            self.histories |= {stream: one.copied() for stream, one in past.items()}
            segments = restated(self.validators, self.histories, asked)
        return pushed, solved

    def advance(self, watermark: int, drops: Mapping[str, Drops] | None = None) -> None:
        """Nothing before the watermark comes any more: free what it keeps. Models end at ``drops`` of attributes, by stream."""
        assert self.state is not None
        forget(self.predictor, self.validators, self.histories, watermark, drops)
        oldest = watermark - kept_behind(self.predictor)
        # Of one stream by itself a silent key holds on to its own newest segments only, where keys meet to those of all.
        alone = self.predictor.standing.alone
        lagging = {stream: one.lagging(oldest, silent=alone) for stream, one in self.validators.items()}
        self.state = self.predictor.standing.advance(self.state, oldest, lagging)

    def results(self) -> pa.Table:
        """What holds now, as far ahead as the models reach."""
        assert self.state is not None
        table = pa.Table.from_batches([self.state.results.to_segments()])
        return table.select(self.predictor.standing.output.segment_schema().names)

    # -- bounds flow back -----------------------------------------------------------------------------------

    def _flow_back(
        self,
        updates: Mapping[str, Relation],
        evaluation: FragmentEvaluation | None = None,
        since: int | None = None,
    ) -> None:
        """Allot what the query's bounds leave to the inputs, anew for what changed.

        Where keys are treated apart and one scan is all there is, only the keys that changed are looked at, if given as they
        were just evaluated; else all, from now or from ``since`` on.
        """
        if not self.predictor.bounds:
            return
        assert self.state is not None
        standing = self.predictor.standing
        leaves = tuple(dict.fromkeys(scans(standing.plan)))
        alone = standing.alone
        if evaluation is None or not alone:
            now = since
            if now is None:
                now = max((_newest(one) for one in self.state.streams.values() if len(one)), default=0)
            inputs: dict[Node, Relation] = {}
            for leaf in leaves:
                relation = self.state.streams[leaf.stream]
                chosen = standing.of_keys(relation, updates[leaf.stream]) if alone else relation
                inputs[leaf] = as_scanned(standing.recent(chosen, now), leaf)
            evaluation = FragmentEvaluation(inputs, possible=standing.query.possible)
        found = shared_out(self.predictor, evaluation, self._restlessness(), alone=alone)
        for stream, allotment in found.items():
            before = self.allotted.get(stream)
            whole = allotment if before is None or not alone else before.renewed(allotment)
            self.allotted[stream] = whole
            self.validators[stream].allot(whole)

    def _as_before(self, stream: str, state: ValidatorState) -> Validator:
        """A stream's validator as it was before a push, with what is allotted now."""
        made = Validator(self.predictor.specs[stream])
        made.state = _copied(state)
        made.allot(self.allotted[stream])
        if state.allotted is not None:  # a share that has grown may be used once those that shrank are kept
            made.tighten(state.allotted)
        return made

    def _restlessness(self) -> dict[str, Allotment]:
        found = {}
        for stream, validator in self.validators.items():
            rates = validator.restlessness()
            found[stream] = Allotment(stream, validator.keys, rates, dict.fromkeys(rates, 0.0))
        return found

    def _note_time(self, table: pa.Table | pa.RecordBatch, time: str) -> None:
        column = table.column(time)
        newest = pa.compute.max(column)
        if newest.is_valid:
            at = int(newest.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).as_py())
            self.now = at if self.now is None else max(self.now, at)


def _copied(state: ValidatorState) -> ValidatorState:
    """State that a push does not change."""
    return replace(state, ids=dict(state.ids), whole=state.whole.copy(), real=state.real.copy())


def _newest(relation: Relation) -> int:
    """When the newest segment of a stream began."""
    return int((relation.ref + np.floor(relation.lo * 1e6).astype(np.int64)).max())


def _oldest(updates: Mapping[str, Relation]) -> int:
    """When the first of some updates begins."""
    return min(int(begins(one).min()) for one in updates.values() if len(one))

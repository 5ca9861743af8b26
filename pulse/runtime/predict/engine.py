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
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import begins
from pulse.operators.units.key_ends import Drops
from pulse.runtime.accents.rounding import Shifts
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.incremental.continuous_view import ContinuousView, Solved
from pulse.runtime.predict.bound_feedback import Parties, merge_parties, parties, tighten_models
from pulse.runtime.predict.bound_sharing import allotments, beyond, too_loose
from pulse.runtime.predict.event_time import newest
from pulse.runtime.predict.micro_batch import Emission, MicroBatch, emission_of
from pulse.runtime.predict.state_schema import SingleState
from pulse.runtime.predict.status import Tally
from pulse.runtime.predict.tuple_history import kept_behind, solve, updates_of
from pulse.runtime.predict.validation import Tuples, Validation
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.online.tighten import loose
from pulse.validation.online.validator import Validator, ValidatorState
from pulse.validation.revisions.history import AcceptedTuples

ATTEMPTS = 3
"""Maximum number of validations of the same tuples while bounds are too loose for the query's own."""


@dataclass
class Prediction(Validation):
    """A running predictor. ``now`` is the newest event time so far."""

    saved_as = SingleState

    allotted: dict[str, Allotment] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.view = self.view or ContinuousView(self.predictor.continuous)

    def process(self, batch: MicroBatch, watermark: int | None) -> Emission:
        decoded = batch.decoded
        return self.push(decoded.tables, watermark, decoded.drops, decoded.shifts)

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
        run = self._validate_within_bounds if self.predictor.bounds else self._validate_and_solve
        accepted, solved = run(tuples, watermark, drops or {}, shifts or {})
        assert self.view is not None
        self.view.commit()
        self.now = newest(tuples, self.predictor, self.now)
        emission = emission_of(self.predictor, accepted, solved)
        self.tally.add(emission.tally)
        return emission

    def _validate_and_solve(
        self,
        tuples: Tuples,
        watermark: int | None,
        drops: Mapping[str, Drops],
        shifts: Shifts,
        first: Mapping[str, Relation] | None = None,
    ) -> tuple[dict[str, AcceptedTuples], Solved]:
        """Validate tuples and solve their changes, which are pending, after these segments if given."""
        accepted = self.validate(tuples, watermark, drops, shifts, first)
        assert self.view is not None
        return accepted, solve(self.view, accepted)

    def _validate_within_bounds(
        self, tuples: Tuples, watermark: int | None, drops: Mapping[str, Drops], shifts: Shifts
    ) -> tuple[dict[str, AcceptedTuples], Solved]:
        """Validate and solve, again with the allotted bounds as long as they are tighter than those validated against."""
        query = self.predictor.continuous
        states = {stream: _copied(one.state) for stream, one in self.validators.items()}
        past = {stream: one.copied() for stream, one in self.histories.items()}
        asked: Parties = {}
        segments: dict[str, Relation] = {}
        for attempt in range(ATTEMPTS):
            accepted, solved = self._validate_and_solve(tuples, watermark, drops, shifts, segments)
            updates = updates_of(accepted)
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
        return accepted, solved

    def advance(self, watermark: int, drops: Mapping[str, Drops] | None = None) -> None:
        assert self.view is not None
        super().advance(watermark, drops)
        oldest = watermark - kept_behind(self.predictor)
        # In a query on one stream a silent key retains only its own newest segments; where keys meet, those of all keys.
        alone = self.predictor.continuous.alone
        lagging = {stream: one.lagging(oldest, silent=alone) for stream, one in self.validators.items()}
        self.view.advance(oldest, lagging)

    def results(self) -> pa.Table:
        """The current results, as far ahead as the models extend."""
        assert self.view is not None
        table = pa.Table.from_batches([self.view.results.to_segments()])
        return table.select(self.predictor.continuous.output.segment_schema().names)

    # -- bound feedback -------------------------------------------------------------------------------------

    def _allot_bounds(
        self,
        updates: Mapping[str, Relation],
        evaluation: FragmentEvaluation | None = None,
        since: int | None = None,
    ) -> None:
        """Share the query's bounds and allot them to the validators."""
        assert self.view is not None
        rates = {}
        for stream, validator in self.validators.items():
            found = validator.volatility()
            rates[stream] = Allotment(stream, validator.keys, found, dict.fromkeys(found, 0.0))
        new = allotments(self.predictor, self.view, self.allotted, rates, updates, evaluation, since)
        self.allotted |= new
        for stream, one in new.items():
            self.validators[stream].allot(one)

    def _validator_before(self, stream: str, state: ValidatorState) -> Validator:
        """A stream's validator as it was before a push, with the current allotment."""
        made = Validator(self.predictor.specs[stream])
        made.state = _copied(state)
        made.allot(self.allotted[stream])
        if state.allotted is not None:  # a share may grow only once the shrunk ones are in force
            made.tighten(state.allotted)
        return made


def _copied(state: ValidatorState) -> ValidatorState:
    """Copy a validator's state so that a push does not change it."""
    return replace(state, ids=dict(state.ids), ints=state.ints.copy(), floats=state.floats.copy())


def _oldest(updates: Mapping[str, Relation]) -> int:
    """The start of the first update, in microseconds."""
    return min(int(begins(one).min()) for one in updates.values() if len(one))

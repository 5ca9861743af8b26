"""The second stage of a prediction in one place, inside Spark's workers: the standing query over the updates of all buckets.

Its validators are elsewhere (:class:`pulse.runtime.predict.stages.ValidateStage`). What it allots comes back to them with the
next micro-batch (:mod:`pulse.runtime.predict.batch_store`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pulse.operators.data.relation import Relation
from pulse.runtime.accents.follower import DecodedBatch, Follower
from pulse.runtime.execution.exchange import ExchangeBatch
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.bound_sharing import beyond
from pulse.runtime.predict.engine import Emission, Prediction, Tally
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import ACCENTS, BOUNDS, UPDATES, emitted, row
from pulse.runtime.predict.stages import Stage
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.tuple_history import reach_back, solve, unpacked, updates_of
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.inversion.needs import PACE
from pulse.validation.online.validator import ValidationCounts
from pulse.validation.revisions.history import AcceptedTuples

Told = tuple[str, int]
"""A stream and a bucket."""


def told_of_accents(
    predictor: Predictor, state: Any, rows: Iterable[Mapping[str, Any]]
) -> tuple[Follower, DecodedBatch]:
    """What a place of a second stage knows of accents, once the first has told it of new ones."""
    before = Follower(predictor, *(state or ()))
    for one in rows:
        if one["channel"] == ACCENTS:
            state = unpack_state(forms.ACCENTS, bytes(one["payload"]))
            forms.check_accents(predictor, state)
    return Follower(predictor, *(state or ())), DecodedBatch({}, {}, {}, before=before.restating)


def in_force(
    emission: Emission, follower: Follower, heard: DecodedBatch, results: tuple[Relation, Relation]
) -> Emission:
    """What a second stage emits, in the units in force; ``results``: those at rest before and after."""
    if not follower.predictor.hears:
        return emission
    changes = follower.said(heard, *results, emission.changes)
    return replace(emission, changes=changes, tally=replace(emission.tally, changes=changes.num_rows))


class Solver(Prediction):
    """A prediction whose validators are elsewhere: it is told their updates and how restless their keys are."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        self.rates: dict[Told, forms.Rates] = {}

    def take(self, told: Mapping[str, AcceptedTuples], rates: Mapping[Told, forms.Rates]) -> Emission:
        """What updates and revisions change."""
        assert self.state is not None
        self.rates.update(rates)
        columns = self.predictor.standing.columns
        taken = {
            name: told.get(
                name, AcceptedTuples(Relation.empty(columns[name]), None, ValidationCounts(), None)
            )
            for name in self.predictor.specs
        }
        updates = updates_of(taken)
        self.state, solved = solve(self.predictor.standing, self.state, taken)
        rows = sum(len(one) for one in updates.values())
        if rows:
            self._flow_back(updates)
        tally = Tally(
            updates=rows,
            solves=solved.solved,
            results=solved.results,
            changes=len(solved.changes),
            beyond=int(beyond(solved.fresh, self.predictor.bounds).sum())
            if rows and self.predictor.bounds
            else 0,
        )
        return Emission(solved.changes.table, {}, tally)

    def _restlessness(self) -> dict[str, Allotment]:
        found = {}
        for stream, spec in self.predictor.specs.items():
            told = [
                one for (name, _), one in sorted(self.rates.items(), key=lambda kv: kv[0]) if name == stream
            ]
            names = (*spec.schema.modelled_names, PACE)
            empty = tuple(pa.array([], type_) for _, type_ in spec.schema.key)
            keys = tuple(
                pa.concat_arrays([empty[i], *(one[0][i] for one in told)])
                for i in range(len(spec.schema.key))
            )
            rates = {name: np.concatenate([np.zeros(0), *(one[1][name] for one in told)]) for name in names}
            found[stream] = Allotment(stream, keys, rates, dict.fromkeys(names, 0.0))
        return found


class SolveStage(Stage):
    """The standing query of all keys, in one place; rows of other channels pass through."""

    form = forms.SOLVING

    def work(self, place: int, kept: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Solve what the validators' updates change."""
        told = [one for frame in rows for one in frame.to_dict("records")]
        out = [one for one in told if one["channel"] not in (UPDATES, ACCENTS)]
        mine = [one for one in told if one["channel"] == UPDATES]
        if len(out) == len(told):
            return kept, out
        solver, accents = Solver(self.predictor), None
        if kept is not None:
            solver.state, solver.allotted, solver.now, solver.rates, accents = kept
        follower, heard = told_of_accents(self.predictor, accents, told)
        assert solver.state is not None
        held = solver.state.results
        emission = solver.take(*self._received(mine))
        emission = in_force(emission, follower, heard, (held, solver.state.results))
        newest = max(one["now"] for one in told if one["channel"] in (UPDATES, ACCENTS))
        solver.now = newest if solver.now is None else max(solver.now, newest)
        out += emitted(0, emission, solver.now)
        if emission.tally.updates and solver.allotted:
            out.append(row(0, BOUNDS, now=solver.now, payload=pack_state(forms.BOUNDS, solver.allotted)))
        assert solver.state is not None
        watermark = follower.watermark(solver.now, self.lateness)
        oldest = watermark - reach_back(self.predictor)
        follower.settle(solver.now, watermark, {})
        solver.state = self.predictor.standing.advance(solver.state, oldest)
        return (solver.state, solver.allotted, solver.now, solver.rates, follower.kept), out

    def of_data(self, data: Any) -> Any:
        """Checked against the job."""
        forms.check_standing(self.predictor, data[0])
        forms.check_allotted(self.predictor, data[1])
        forms.check_rates(self.predictor, data[3])
        forms.check_accents(self.predictor, data[4])
        return data

    def _received(
        self, rows: list[dict[str, Any]]
    ) -> tuple[dict[str, AcceptedTuples], dict[Told, forms.Rates]]:
        """What was taken by stream, that of a bucket after the other, and what the buckets say of their keys."""
        parts = sorted(
            ((one["stream"], *unpack_state(forms.UPDATES, bytes(one["payload"]))) for one in rows),
            key=lambda one: one[:2],
        )
        taken: dict[str, AcceptedTuples] = {}
        for stream in dict.fromkeys(one[0] for one in parts):
            mine = [one for one in parts if one[0] == stream]
            columns = self.predictor.standing.columns[stream]
            updates = [ExchangeBatch.unpack(0, 0, payload, columns).relation for _, _, payload, _, _ in mine]
            revised = unpacked([one[4] for one in mine], self.predictor.standing, stream)
            taken[stream] = AcceptedTuples(Relation.concat(updates), revised, ValidationCounts(), None)
        rates = {(stream, place): said for stream, place, _, said, _ in parts if said is not None}
        return taken, rates

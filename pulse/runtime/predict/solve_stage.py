"""Run the second stage of a prediction in one place, inside Spark's workers: the continuous query over all buckets' updates.

The validators are in the first stage (:class:`pulse.runtime.predict.stages.ValidateStage`). Allotted bounds reach them with the
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
from pulse.operators.inversion.needs import TUPLE_RATE
from pulse.runtime.accents.follower import DecodedBatch, Follower
from pulse.runtime.execution.exchange import ExchangeBatch
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.bound_sharing import beyond
from pulse.runtime.predict.engine import Emission, Prediction, Tally
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import ACCENTS, BOUNDS, UPDATES, emission_rows, row
from pulse.runtime.predict.stages import Stage
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.tuple_history import reach_back, solve, unpacked, updates_of
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.online.validator import ValidationCounts
from pulse.validation.revisions.history import AcceptedTuples

StreamBucket = tuple[str, int]
"""A stream and a bucket."""


def receive_accents(
    predictor: Predictor, state: Any, rows: Iterable[Mapping[str, Any]]
) -> tuple[Follower, DecodedBatch]:
    """The follower of a second-stage place after the accents that the first stage sent, and the output units before them."""
    before = Follower(predictor, *(state or ()))
    for one in rows:
        if one["channel"] == ACCENTS:
            state = unpack_state(forms.ACCENTS, bytes(one["payload"]))
            forms.check_accents(predictor, state)
    return Follower(predictor, *(state or ())), DecodedBatch({}, {}, {}, before=before.output_units)


def in_output_units(
    emission: Emission, follower: Follower, decoded: DecodedBatch, results: tuple[Relation, Relation]
) -> Emission:
    """Convert the emission of a second stage to output units; ``results`` are those at rest before and after."""
    if not follower.predictor.accent_options:
        return emission
    changes = follower.emit(decoded, *results, emission.changes)
    return replace(emission, changes=changes, tally=replace(emission.tally, changes=changes.num_rows))


class Solver(Prediction):
    """A prediction whose validators run in another stage, which sends their updates and the volatility of their keys."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        self.rates: dict[StreamBucket, forms.Rates] = {}

    def take(
        self, accepted: Mapping[str, AcceptedTuples], rates: Mapping[StreamBucket, forms.Rates]
    ) -> Emission:
        """Solve the changes of updates and revisions."""
        assert self.state is not None
        self.rates.update(rates)
        columns = self.predictor.continuous.columns
        taken = {
            name: accepted.get(
                name, AcceptedTuples(Relation.empty(columns[name]), None, ValidationCounts(), None)
            )
            for name in self.predictor.specs
        }
        updates = updates_of(taken)
        self.state, solved = solve(self.predictor.continuous, self.state, taken)
        rows = sum(len(one) for one in updates.values())
        if rows:
            self._allot_bounds(updates)
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

    def _volatility(self) -> dict[str, Allotment]:
        found = {}
        for stream, spec in self.predictor.specs.items():
            known = [
                one for (name, _), one in sorted(self.rates.items(), key=lambda kv: kv[0]) if name == stream
            ]
            names = (*spec.schema.modelled_names, TUPLE_RATE)
            empty = tuple(pa.array([], type_) for _, type_ in spec.schema.key)
            keys = tuple(
                pa.concat_arrays([empty[i], *(one[0][i] for one in known)])
                for i in range(len(spec.schema.key))
            )
            rates = {name: np.concatenate([np.zeros(0), *(one[1][name] for one in known)]) for name in names}
            found[stream] = Allotment(stream, keys, rates, dict.fromkeys(names, 0.0))
        return found


class SolveStage(Stage):
    """Solves the continuous query of all keys, in one place; rows of other channels pass through."""

    form = forms.SOLVING

    def work(self, place: int, saved: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Solve the changes of the validators' updates."""
        records = [one for frame in rows for one in frame.to_dict("records")]
        out = [one for one in records if one["channel"] not in (UPDATES, ACCENTS)]
        mine = [one for one in records if one["channel"] == UPDATES]
        if len(out) == len(records):
            return saved, out
        solver, accents = Solver(self.predictor), None
        if saved is not None:
            solver.state, solver.allotted, solver.now, solver.rates, accents = saved
        follower, decoded = receive_accents(self.predictor, accents, records)
        assert solver.state is not None
        held = solver.state.results
        emission = solver.take(*self._received(mine))
        emission = in_output_units(emission, follower, decoded, (held, solver.state.results))
        newest = max(one["now"] for one in records if one["channel"] in (UPDATES, ACCENTS))
        solver.now = newest if solver.now is None else max(solver.now, newest)
        out += emission_rows(0, emission, solver.now)
        if emission.tally.updates and solver.allotted:
            out.append(row(0, BOUNDS, now=solver.now, payload=pack_state(forms.BOUNDS, solver.allotted)))
        assert solver.state is not None
        watermark = follower.watermark(solver.now, self.lateness)
        oldest = watermark - reach_back(self.predictor)
        follower.settle(solver.now, watermark, {})
        solver.state = self.predictor.continuous.advance(solver.state, oldest)
        return (solver.state, solver.allotted, solver.now, solver.rates, follower.snapshot), out

    def of_data(self, data: Any) -> Any:
        """Check the state against the job."""
        forms.check_query_state(self.predictor, data[0])
        forms.check_allotted(self.predictor, data[1])
        forms.check_rates(self.predictor, data[3])
        forms.check_accents(self.predictor, data[4])
        return data

    def _received(
        self, rows: list[dict[str, Any]]
    ) -> tuple[dict[str, AcceptedTuples], dict[StreamBucket, forms.Rates]]:
        """The accepted updates by stream, in the order of buckets, and the volatility of the buckets' keys."""
        parts = sorted(
            ((one["stream"], *unpack_state(forms.UPDATES, bytes(one["payload"]))) for one in rows),
            key=lambda one: one[:2],
        )
        taken: dict[str, AcceptedTuples] = {}
        for stream in dict.fromkeys(one[0] for one in parts):
            mine = [one for one in parts if one[0] == stream]
            columns = self.predictor.continuous.columns[stream]
            updates = [ExchangeBatch.unpack(0, 0, payload, columns).relation for _, _, payload, _, _ in mine]
            revised = unpacked([one[4] for one in mine], self.predictor.continuous, stream)
            taken[stream] = AcceptedTuples(Relation.concat(updates), revised, ValidationCounts(), None)
        rates = {(stream, place): own for stream, place, _, own, _ in parts if own is not None}
        return taken, rates

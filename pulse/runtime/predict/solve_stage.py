"""Run the second stage of a prediction in one place, inside Spark's workers: the continuous query over all buckets' updates.

The validators are in the first stage (:class:`pulse.runtime.predict.stages.ValidateStage`). Allotted bounds reach them with the
next micro-batch (:mod:`pulse.runtime.predict.batch_store`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.operators.data.relation import Relation
from pulse.operators.inversion.needs import TUPLE_RATE
from pulse.operators.units.key_ends import Drops
from pulse.runtime.execution.exchange import ExchangeBatch
from pulse.runtime.incremental.continuous_view import ContinuousView
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.bound_sharing import allotments
from pulse.runtime.predict.micro_batch import (
    Emission,
    MicroBatch,
    Part,
    Place,
    emission_of,
    new_segments,
)
from pulse.runtime.predict.stage_rows import BOUNDS, StageRow, row
from pulse.runtime.predict.stages import MessageStage
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.tuple_history import reach_back, solve, unpacked, updates_of
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.online.counts import ValidationCounts
from pulse.validation.revisions.history import AcceptedTuples

StreamBucket = tuple[str, int]
"""A stream and a bucket."""


@dataclass
class Solver(Part):
    """The continuous query of a prediction whose validators run in another stage, which sends their updates and the volatility
    of their keys."""

    saved_as = forms.SolveState

    allotted: dict[str, Allotment] = field(default_factory=dict)
    rates: dict[StreamBucket, forms.Rates] = field(default_factory=dict)
    updated: bool = False  # by the last batch

    def __post_init__(self) -> None:
        self.view = self.view or ContinuousView(self.predictor.continuous)

    def process(self, batch: MicroBatch, watermark: int | None) -> Emission:
        assert self.view is not None
        accepted = self._received(batch.messages)
        solved = solve(self.view, accepted)
        self.view.commit()
        self.updated = new_segments(accepted) > 0
        if self.updated:
            self.allotted |= allotments(
                self.predictor, self.view, self.allotted, self._volatility(), updates_of(accepted)
            )
        return emission_of(self.predictor, {}, solved)  # the first stage counts updates

    def advance(self, watermark: int, drops: Mapping[str, Drops] | None = None) -> None:
        assert self.view is not None
        self.view.advance(watermark - reach_back(self.predictor))

    def _received(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, AcceptedTuples]:
        """The accepted updates by stream, in the order of buckets; records the volatility of the buckets' keys."""
        parts = sorted(
            ((one["stream"], *unpack_state(forms.UPDATES, bytes(one["payload"]))) for one in messages),
            key=lambda one: one[:2],
        )
        self.rates.update({(stream, place): own for stream, place, _, own, _ in parts if own is not None})
        query, accepted = self.predictor.continuous, {}
        for stream in self.predictor.specs:
            mine = [one for one in parts if one[0] == stream]
            columns = query.columns[stream]
            updates = [ExchangeBatch.unpack(0, 0, payload, columns).relation for _, _, payload, _, _ in mine]
            accepted[stream] = AcceptedTuples(
                Relation.concat(updates) if updates else Relation.empty(columns),
                unpacked([one[4] for one in mine], query, stream),
                ValidationCounts(),
                None,
            )
        return accepted

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


class SolveStage(MessageStage):
    """Solves the continuous query of all keys, in one place."""

    form = forms.SOLVE

    def part(self, number: int) -> Part:
        return Solver(self.predictor)

    def emitted(self, number: int, place: Place, emission: Emission) -> list[StageRow]:
        """Emit changes, and the bounds for the next batch."""
        out, part = super().emitted(number, place, emission), place.part
        assert isinstance(part, Solver)
        if part.updated and part.allotted:
            out.append(row(0, BOUNDS, now=part.now, payload=pack_state(forms.BOUNDS, part.allotted)))
        return out

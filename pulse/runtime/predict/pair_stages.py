"""Run the two Spark stages of a prediction whose pairs are partitioned by grid cell.

See :mod:`pulse.runtime.predict.spatial_partitioning`.

::

    tuples ──> RouteStage (bucket) ──updates and ranges, by place──> PairStage (place) ──> changes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pulse.operators.data.relation import Relation
from pulse.operators.units.key_ends import Drops
from pulse.runtime.execution.exchange import ExchangeBatch
from pulse.runtime.incremental.continuous_view import ContinuousView
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.micro_batch import Emission, MicroBatch, Part, emission_of
from pulse.runtime.predict.spatial_partitioning import (
    CellRegistry,
    Key,
    KeyNotice,
    PlaceSolver,
    Range,
    SpatialPartitioning,
)
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import UPDATES, StageRow, row
from pulse.runtime.predict.stages import MessageStage, ValidateStage
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.tuple_history import reach_back
from pulse.runtime.predict.validation import Validation


def partitioning_of(
    predictor: Predictor, places: int, cell: float | None = None
) -> SpatialPartitioning | None:
    """The spatial partitioning of a prediction's second stage; None if it is one place.

    Bounds that the query states are shared among all keys at once, which needs one place.
    """
    return None if predictor.bounds else SpatialPartitioning.of(predictor.continuous, places, cell)


@dataclass(kw_only=True)
class RoutedValidation(Validation):
    """The validators of a bucket, and the cells of its keys; ``messages`` are the last batch's, by stream and place."""

    saved_as = forms.RouteState

    partitioning: SpatialPartitioning
    registry: CellRegistry = field(default_factory=CellRegistry)
    messages: dict[str, dict[int, tuple[Relation, tuple[KeyNotice, ...]]]] = field(default_factory=dict)

    def process(self, batch: MicroBatch, watermark: int | None) -> Emission:
        emission = super().process(batch, watermark)
        self.messages = {
            stream: self.registry.take(self.partitioning, stream, one.updates, one.revised)
            for stream, one in emission.accepted.items()
        }
        return emission

    def advance(self, watermark: int, drops: Mapping[str, Drops] | None = None) -> None:
        super().advance(watermark, drops)
        self.registry.forget(self.partitioning, watermark - reach_back(self.predictor))


class RouteStage(ValidateStage):
    """Validates the tuples of a bucket and routes each update to the places of its key's old and new cells."""

    form = forms.ROUTE

    def __init__(self, predictor: Predictor, lateness: int, partitioning: SpatialPartitioning) -> None:
        super().__init__(predictor, lateness, None)
        self.partitioning, self.next_places = partitioning, partitioning.places

    def part(self, number: int) -> Part:
        return RoutedValidation(self.predictor, partitioning=self.partitioning)

    def routed(self, number: int, part: Part, emission: Emission) -> list[StageRow]:
        assert isinstance(part, RoutedValidation)
        out = []
        for stream, messages in part.messages.items():
            for to, (relation, notices) in messages.items():
                message = pack_state(
                    forms.MOVES, (number, ExchangeBatch(0, number, relation).pack(), notices)
                )
                out.append(row(to, UPDATES, stream=stream, now=part.now, payload=message))
        return out


@dataclass(kw_only=True)
class PairSolver(Part):
    """The pairs whose home is in a place, and the cells of their keys."""

    saved_as = forms.PairState

    partitioning: SpatialPartitioning
    number: int
    ranges: dict[str, dict[Key, Range]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.view = self.view or ContinuousView(self.predictor.continuous)

    def process(self, batch: MicroBatch, watermark: int | None) -> Emission:
        solver, columns = self._solver(), self.predictor.continuous.columns
        parts = sorted(
            ((one["stream"], *unpack_state(forms.MOVES, bytes(one["payload"]))) for one in batch.messages),
            key=lambda one: one[:2],
        )
        solved = solver.take(
            (stream, ExchangeBatch.unpack(0, 0, payload, columns[stream]).relation, notices)
            for stream, _, payload, notices in parts
        )
        return emission_of(self.predictor, {}, solved)

    def advance(self, watermark: int, drops: Mapping[str, Drops] | None = None) -> None:
        self._solver().advance(watermark - reach_back(self.predictor))

    def _solver(self) -> PlaceSolver:
        assert self.view is not None
        return PlaceSolver(self.partitioning, self.number, self.view, self.ranges)


class PairStage(MessageStage):
    """Solves the pairs whose home is in a place."""

    form = forms.PAIR

    def __init__(self, predictor: Predictor, lateness: int, partitioning: SpatialPartitioning) -> None:
        super().__init__(predictor, lateness)
        self.partitioning = partitioning

    def part(self, number: int) -> Part:
        return PairSolver(self.predictor, partitioning=self.partitioning, number=number)

"""Run the two Spark stages of a prediction whose pairs are partitioned by grid cell.

See :mod:`pulse.runtime.predict.spatial_partitioning`.

::

    tuples ──> RouteStage (bucket) ──updates and ranges, by place──> PairStage (place) ──> changes
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from pulse.core.encoding.codec import refused
from pulse.runtime.execution.exchange import ExchangeBatch
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.engine import Emission, Tally
from pulse.runtime.predict.solve_stage import in_output_units, receive_accents
from pulse.runtime.predict.spatial_partitioning import CellRegistry, PlaceSolver, SpatialPartitioning
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import ACCENTS, TALLY, UPDATES, emission_rows, row
from pulse.runtime.predict.stages import Stage, ValidateStage
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.tuple_history import reach_back, updates_of
from pulse.validation.revisions.history import History


def partitioning_of(
    predictor: Predictor, places: int, cell: float | None = None
) -> SpatialPartitioning | None:
    """The spatial partitioning of a prediction's second stage; None if it is one place.

    Bounds that the query states are shared among all keys at once, which needs one place.
    """
    return None if predictor.bounds else SpatialPartitioning.of(predictor.continuous, places, cell)


class RouteStage(ValidateStage):
    """Validates the tuples of a bucket and routes each update to the places of its key's old and new cells."""

    form = forms.SCATTERING

    def __init__(self, predictor: Predictor, lateness: int, partitioning: SpatialPartitioning) -> None:
        super().__init__(predictor, lateness, None)
        self.partitioning = partitioning

    def work(self, place: int, saved: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Validate the bucket's tuples and route their updates."""
        before, registry = saved or (None, CellRegistry())
        validators, taken, out = self.validated(place, before, rows)
        now = validators[1]
        for stream, one in taken.items():
            for to, (relation, notices) in registry.take(
                self.partitioning, stream, one.updates, one.revised
            ).items():
                message = place, ExchangeBatch(0, place, relation).pack(), notices
                out.append(row(to, UPDATES, stream=stream, now=now, payload=pack_state(forms.MOVES, message)))
        if now is not None:
            registry.forget(self.partitioning, self.watermark(now) - reach_back(self.predictor))
        # Counted here: an update may go to several places.
        count = Tally(updates=sum(map(len, updates_of(taken).values())))
        out.append(row(1 + place, TALLY, now=now, tally=count))
        return (validators, registry), out

    @property
    def next_places(self) -> int:
        """The number of places that share the grid's cells."""
        return self.partitioning.places

    def histories(self, saved: Any) -> dict[str, History]:
        """The histories beside the validators."""
        return {} if saved is None else super().histories(saved[0])

    def to_data(self, saved: Any) -> Any:
        """The validators' state and the cell registry."""
        return super().to_data(saved[0]), saved[1]

    def of_data(self, data: Any) -> Any:
        """Restore the validators and the cell registry."""
        columns = self.predictor.continuous.columns
        for stream, one in data[1].held.items():
            if stream not in columns or one.columns != columns[stream]:
                raise refused(f"cell registry.{stream}", f"segments of {', '.join(columns)}", "other columns")
        return super().of_data(data[0]), data[1]


class PairStage(Stage):
    """Solves the pairs whose home is in a place; rows of other channels pass through."""

    form = forms.PAIRING

    def __init__(self, predictor: Predictor, lateness: int, partitioning: SpatialPartitioning) -> None:
        super().__init__(predictor, lateness)
        self.partitioning = partitioning

    def work(self, place: int, saved: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Solve the changes of the place's pairs."""
        records = [one for frame in rows for one in frame.to_dict("records")]
        out = [one for one in records if one["channel"] not in (UPDATES, ACCENTS)]
        updates = [one for one in records if one["channel"] == UPDATES]
        if len(out) == len(records):
            return saved, out
        state, ranges, now, accents = saved or (self.predictor.continuous.start(), {}, None, None)
        follower, decoded = receive_accents(self.predictor, accents, records)
        solver = PlaceSolver(self.partitioning, place, state, ranges)
        parts = sorted(
            ((one["stream"], *unpack_state(forms.MOVES, bytes(one["payload"]))) for one in updates),
            key=lambda one: one[:2],
        )
        columns = self.predictor.continuous.columns
        solved = solver.take(
            (stream, ExchangeBatch.unpack(0, 0, payload, columns[stream]).relation, notices)
            for stream, _, payload, notices in parts
        )
        seen = [one["now"] for one in records if one["channel"] in (UPDATES, ACCENTS)]
        now = max(seen + ([] if now is None else [now]))
        tally = Tally(solves=solved.solved, results=solved.results, changes=len(solved.changes))
        emission = Emission(solved.changes.table, {}, tally)
        out += emission_rows(
            place, in_output_units(emission, follower, decoded, (state.results, solver.state.results)), now
        )
        watermark = follower.watermark(now, self.lateness)
        solver.advance(watermark - reach_back(self.predictor))
        follower.settle(now, watermark, {})
        return (solver.state, solver.ranges, now, follower.snapshot), out

    def of_data(self, data: Any) -> Any:
        """Check the state against the job."""
        forms.check_query_state(self.predictor, data[0])
        forms.check_accents(self.predictor, data[3])
        return data

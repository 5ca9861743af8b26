"""Run the two Spark stages of a prediction whose pairs are partitioned by grid cell.

See :mod:`pulse.runtime.predict.spatial_partitioning`.

::

    tuples ──> Scattering (bucket) ──updates and ranges, by place──> Pairing (place) ──> changes
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from pulse.core.encoding.codec import refused
from pulse.runtime.execution.exchange import ExchangeBatch
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.engine import Emission, Tally
from pulse.runtime.predict.solve_stage import in_force, told_of_accents
from pulse.runtime.predict.spatial_partitioning import CellRegistry, PlaceSolver, SpatialPartitioning
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import ACCENTS, TALLY, UPDATES, emitted, row
from pulse.runtime.predict.stages import Stage, ValidateStage
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.tuple_history import reach_back, updates_of
from pulse.validation.revisions.history import History


def spread_of(predictor: Predictor, places: int, cell: float | None = None) -> SpatialPartitioning | None:
    """How a prediction's second stage is spread; None where it is one place.

    Bounds that the query states are shared out among all keys at once, which takes one place.
    """
    return None if predictor.bounds else SpatialPartitioning.of(predictor.standing, places, cell)


class RouteStage(ValidateStage):
    """The validators of a bucket: each update goes to the places of the cells that its key touches, or did before it."""

    form = forms.SCATTERING

    def __init__(self, predictor: Predictor, lateness: int, spread: SpatialPartitioning) -> None:
        super().__init__(predictor, lateness, None)
        self.spread = spread

    def work(self, place: int, kept: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Validate the bucket's tuples and say where their keys are."""
        before, whereabouts = kept or (None, CellRegistry())
        validators, taken, out = self.validated(place, before, rows)
        now = validators[1]
        for stream, one in taken.items():
            for to, (relation, told) in whereabouts.take(
                self.spread, stream, one.updates, one.revised
            ).items():
                said = place, ExchangeBatch(0, place, relation).pack(), told
                out.append(row(to, UPDATES, stream=stream, now=now, payload=pack_state(forms.MOVES, said)))
        if now is not None:
            whereabouts.forget(self.spread, self.watermark(now) - reach_back(self.predictor))
        # Counted here: an update may go to several places.
        count = Tally(updates=sum(map(len, updates_of(taken).values())))
        out.append(row(1 + place, TALLY, now=now, tally=count))
        return (validators, whereabouts), out

    @property
    def next_places(self) -> int:
        """As many as the grid's cells are dealt to."""
        return self.spread.places

    def histories(self, kept: Any) -> dict[str, History]:
        """With the validators."""
        return {} if kept is None else super().histories(kept[0])

    def to_data(self, kept: Any) -> Any:
        """The validators' and where their keys are."""
        return super().to_data(kept[0]), kept[1]

    def of_data(self, data: Any) -> Any:
        """The same back."""
        columns = self.predictor.standing.columns
        for stream, one in data[1].held.items():
            if stream not in columns or one.columns != columns[stream]:
                raise refused(f"whereabouts.{stream}", f"segments of {', '.join(columns)}", "of others")
        return super().of_data(data[0]), data[1]


class PairStage(Stage):
    """The pairs whose home is in a place; rows of other channels pass through."""

    form = forms.PAIRING

    def __init__(self, predictor: Predictor, lateness: int, spread: SpatialPartitioning) -> None:
        super().__init__(predictor, lateness)
        self.spread = spread

    def work(self, place: int, kept: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Solve what updates change of the place's pairs."""
        told = [one for frame in rows for one in frame.to_dict("records")]
        out = [one for one in told if one["channel"] not in (UPDATES, ACCENTS)]
        mine = [one for one in told if one["channel"] == UPDATES]
        if len(out) == len(told):
            return kept, out
        state, ranges, now, accents = kept or (self.predictor.standing.start(), {}, None, None)
        follower, heard = told_of_accents(self.predictor, accents, told)
        solver = PlaceSolver(self.spread, place, state, ranges)
        parts = sorted(
            ((one["stream"], *unpack_state(forms.MOVES, bytes(one["payload"]))) for one in mine),
            key=lambda one: one[:2],
        )
        columns = self.predictor.standing.columns
        solved = solver.take(
            (stream, ExchangeBatch.unpack(0, 0, payload, columns[stream]).relation, said)
            for stream, _, payload, said in parts
        )
        seen = [one["now"] for one in told if one["channel"] in (UPDATES, ACCENTS)]
        now = max(seen + ([] if now is None else [now]))
        tally = Tally(solves=solved.solved, results=solved.results, changes=len(solved.changes))
        emission = Emission(solved.changes.table, {}, tally)
        out += emitted(place, in_force(emission, follower, heard, (state.results, solver.state.results)), now)
        watermark = follower.watermark(now, self.lateness)
        solver.advance(watermark - reach_back(self.predictor))
        follower.settle(now, watermark, {})
        return (solver.state, solver.ranges, now, follower.kept), out

    def of_data(self, data: Any) -> Any:
        """Checked against the job."""
        forms.check_standing(self.predictor, data[0])
        forms.check_accents(self.predictor, data[3])
        return data

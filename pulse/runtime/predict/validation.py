"""Validate the tuples of a prediction's streams: a validator per stream, and a history beside it where tuples may be revised.

::

    tuples, revisions ──history and validator──> updates, revised segments ──> models that end: dropped, unconfirmed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import apply_updates
from pulse.operators.units.key_ends import Drops
from pulse.runtime.accents.rounding import Shifts, rounded
from pulse.runtime.incremental.continuous_query import RETENTION_MARGIN
from pulse.runtime.predict.bound_feedback import prepend_segments
from pulse.runtime.predict.micro_batch import Emission, MicroBatch, Part, emission_of
from pulse.runtime.predict.tuple_history import kept_behind
from pulse.validation.online.counts import ValidationCounts
from pulse.validation.online.ended_keys import ceased, push_over
from pulse.validation.online.validator import Validator
from pulse.validation.revisions.history import AcceptedTuples, History

Tuples = Mapping[str, pa.Table | pa.RecordBatch]


@dataclass
class Validation(Part):
    """The validators and histories of a prediction's streams."""

    def __post_init__(self) -> None:
        specs = self.predictor.specs
        self.validators = self.validators or {stream: Validator(spec) for stream, spec in specs.items()}
        self.histories = self.histories or {
            stream: History(specs[stream], retention)
            for stream, retention in self.predictor.retentions.items()
        }

    def process(self, batch: MicroBatch, watermark: int | None) -> Emission:
        decoded = batch.decoded
        return emission_of(
            self.predictor, self.validate(decoded.tables, watermark, decoded.drops, decoded.shifts)
        )

    def validate(
        self,
        tuples: Tuples,
        watermark: int | None,
        drops: Mapping[str, Drops],
        shifts: Shifts,
        first: Mapping[str, Relation] | None = None,
    ) -> dict[str, AcceptedTuples]:
        """Push tuples and revisions to validators and histories, after the segments ``first``; return the accepted ones.

        Updates include the ends of models: at ``drops`` of attributes, and where no tuple confirmed a prediction by the
        watermark.
        """
        accepted = {stream: self._push(stream, table, drops.get(stream)) for stream, table in tuples.items()}
        accepted = prepend_segments(first or {}, accepted)
        for stream, validator in self.validators.items():
            ends = [ceased(validator, drops[stream], watermark)] if stream in drops else []
            if watermark is not None:
                ends.append(validator.lapse(watermark, self._forgotten(stream, watermark)))
            for gone in ends:
                if not len(gone):
                    continue
                if stream in self.histories:
                    self.histories[stream].fresh.append(gone)
                one = accepted.get(stream, AcceptedTuples(gone, None, ValidationCounts(), None))
                accepted[stream] = one._replace(updates=apply_updates(one.updates, gone, voids=True)[0])
        return rounded(accepted, shifts)

    def _push(self, stream: str, table: pa.Table | pa.RecordBatch, drops: Drops | None) -> AcceptedTuples:
        validator = self.validators[stream]
        if stream in self.histories:
            return self.histories[stream].push(validator, table, drops)
        pushed = validator.push(table) if drops is None else push_over(validator, table, drops)
        return AcceptedTuples(pushed.updates, None, pushed.counts, pushed.aside)

    def advance(self, watermark: int, drops: Mapping[str, Drops] | None = None) -> None:
        for stream, validator in self.validators.items():
            oldest = self._forgotten(stream, watermark)
            if stream in self.histories:
                self.histories[stream].advance(validator, watermark, oldest, (drops or {}).get(stream))
            validator.forget(oldest)

    def _forgotten(self, stream: str, watermark: int) -> int:
        """The instant since which an ended key must be silent to be freed: no segment of it may be solved again."""
        oldest = watermark - self.predictor.continuous.radius
        return (
            oldest - kept_behind(self.predictor) - 2 * RETENTION_MARGIN
            if stream in self.histories
            else oldest
        )

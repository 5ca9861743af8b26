"""Run predictions inside Spark's workers: the state per bucket of keys, and the exchange between stages.

Tuples travel as parcels (Arrow's stream format, one binary for many tuples): Spark groups a few rows per bucket for the stateful
operators, and no tuple passes through pandas. A bucket holds many keys: validation works on arrays.

Plans whose rows meet within a bucket run completely in it (:class:`SingleStage`). For others the validators run in the buckets
(:class:`ValidateStage`) and their updates meet in one place (:class:`pulse.runtime.predict.solve_stage.SolveStage`), which allots
bounds; these reach the validators with the next micro-batch (:mod:`pulse.runtime.predict.batch_store`), and until then the
previous bounds hold::

    tuples ──> ValidateStage (bucket) ──updates──> SolveStage (one place) ──> changes
                   ^                                     |
                   └── bounds of the previous batch <────┘

Proximity pairs meet in several places instead: :mod:`pulse.runtime.predict.pair_stages`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pulse.core.encoding.codec import Form, refused
from pulse.runtime.execution.exchange import ExchangeBatch
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.batch_store import latest_before
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.ingest import EVENT_TIME, LINES, arrived
from pulse.runtime.predict.micro_batch import Emission, Part, Place
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import (
    ACCENTS,
    RECEIVED,
    UPDATES,
    StageRow,
    emission_rows,
    ending_rows,
    row,
    seen_rows,
)
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.tuple_history import packed
from pulse.runtime.predict.validation import Validation
from pulse.validation.online.validator import Validator
from pulse.validation.revisions.tuple_log import Chunk, TupleLog


class Stage(StatefulProcessor):
    """A stateful operator: one part of the prediction per place, whose state is stored as bytes of the layout ``form``."""

    form: ClassVar[Form]
    _logs: Any = None

    def __init__(self, predictor: Predictor, lateness: int) -> None:
        self.predictor, self.lateness = predictor, lateness

    @abstractmethod
    def part(self, number: int) -> Part:
        """The part of the prediction that a place runs, without state."""

    @abstractmethod
    def work(
        self, number: int, saved: bytes | None, rows: Iterator[pd.DataFrame]
    ) -> tuple[bytes | None, list[StageRow]]:
        """Run the batch of a place; return its state, None if it is unchanged, and the output rows."""

    # -- called by Spark ------------------------------------------------------------------------------------

    def init(self, handle: Any) -> None:
        """Open the state; retained tuples are in a separate map, so that a batch writes only new ones."""
        self._saved = handle.getValueState("kept", "payload binary")
        if self.predictor.retentions:
            self._logs = handle.getMapState("log", "stream string, number long", "payload binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Process the rows of one place in one micro-batch."""
        saved = bytes(self._saved.get()[0]) if self._saved.exists() else None
        kept, out = self.work(int(key[0]), saved, rows)
        if kept is not None:
            self._saved.update((kept,))
        if out:
            yield pd.DataFrame(out)

    def close(self) -> None:
        """Do nothing: no resource is open."""

    # -- state ----------------------------------------------------------------------------------------------

    def unpack(self, saved: bytes) -> forms.StageState:
        """Decode the state of a place."""
        found: forms.StageState = unpack_state(self.form, saved)
        return found

    def open(self, number: int, saved: bytes | None) -> Place:
        """Restore a place, checked against the job."""
        place = Place.of(self.part(number), self.lateness, None if saved is None else self.unpack(saved))
        if self._logs is not None:
            for stream, history in place.part.histories.items():
                history.log.shelf = self._shelf(stream, history.log)
        return place

    def pack(self, place: Place) -> bytes:
        """Encode the state of a place; new retained tuples go to their own map."""
        if self._logs is not None:
            for stream, history in place.part.histories.items():
                new, gone = history.log.put_away()
                for number, chunk in new.items():
                    self._logs.updateValue((stream, number), (pack_state(forms.CHUNK, chunk.snapshot),))
                for number in gone:
                    self._logs.removeKey((stream, number))
        return pack_state(self.form, place.state)

    def _shelf(self, stream: str, log: TupleLog) -> Callable[[int], Chunk]:
        def chunk(number: int) -> Chunk:
            found = unpack_state(forms.CHUNK, bytes(self._logs.getValue((stream, number))[0]))
            try:
                return Chunk.restored(log.schema, log.columns, found)
            except ValueError as e:
                raise refused(f"chunk {number} of stream {stream}", "tuples of this job", str(e)) from e

        return chunk


class TupleStage(Stage):
    """A first stage: its rows are parcels of tuples and lines of accent logs."""

    def work(
        self, number: int, saved: bytes | None, rows: Iterator[pd.DataFrame]
    ) -> tuple[bytes | None, list[StageRow]]:
        place = self.open(number, saved)
        came = arrived(rows, self._sort_keys)
        times = came.pop(EVENT_TIME).column("now").to_pylist() if EVENT_TIME in came else []
        logs = [name for name in came if name.startswith(LINES)]
        lines = {name.removeprefix(LINES): came.pop(name).column("line").to_pylist() for name in logs}
        batch = place.decode(came, lines, times=times, number=number)
        out = place.run(batch, lambda emission: self.emitted(number, place, emission))
        return self.pack(place), out

    @abstractmethod
    def emitted(self, number: int, place: Place, emission: Emission) -> list[StageRow]:
        """The output rows of a place's batch."""

    def reported(self, to: int, place: Place, emission: Emission) -> list[StageRow]:
        """The rows for the driver: changes, rejects, counters, the job's end, the tuples that confirm predictions."""
        return [
            *emission_rows(to, emission, place.part.now),
            *ending_rows(to, place.follower),
            *seen_rows(to, self.predictor, place.part.validators),
        ]

    @property
    def _sort_keys(self) -> dict[str, Any]:
        """The sort keys of streams whose source has no order: the time, with accents first at equal times; None for streams with
        revisions."""
        found: dict[str, Any] = {name: spec.schema.time for name, spec in self.predictor.specs.items()}
        for name, one in self.predictor.accent_options.items():
            found[LINES + name] = None
            if one.column is not None:
                found[name] = [(found[name], "ascending"), (one.column, "ascending")]
        found |= {name: None for name, one in self.predictor.retentions.items() if one.kind is not None}
        return found | {EVENT_TIME: None}


class MessageStage(Stage):
    """A second stage: its rows are messages of the first; all others are for the driver and pass through."""

    def work(
        self, number: int, saved: bytes | None, rows: Iterator[pd.DataFrame]
    ) -> tuple[bytes | None, list[StageRow]]:
        records = [one for frame in rows for one in frame.to_dict("records")]
        out = [one for one in records if one["channel"] not in RECEIVED]
        if len(out) == len(records):
            return None, out
        place = self.open(number, saved)
        accents = None
        for one in records:
            if one["channel"] == ACCENTS:
                accents = unpack_state(forms.ACCENTS, bytes(one["payload"]))
        batch = place.receive(
            [one for one in records if one["channel"] == UPDATES],
            accents,
            times=[one["now"] for one in records if one["channel"] in RECEIVED],
        )
        out += place.run(batch, lambda emission: self.emitted(number, place, emission))
        return self.pack(place), out

    def emitted(self, number: int, place: Place, emission: Emission) -> list[StageRow]:
        """The output rows of a place's batch."""
        return emission_rows(number, emission, place.part.now)


class SingleStage(TupleStage):
    """Runs a complete prediction for the keys of a bucket."""

    form = forms.SINGLE

    def part(self, number: int) -> Part:
        return Prediction(self.predictor)

    def emitted(self, number: int, place: Place, emission: Emission) -> list[StageRow]:
        return self.reported(number, place, emission)


@dataclass
class BoundedValidation(Validation):
    """The validators of a bucket; ``bounds_of`` is the batch whose bounds they have."""

    saved_as = forms.BoundedState

    bounds_of: int = -1


class ValidateStage(TupleStage):
    """Validates the tuples of a bucket; updates and accents go to the next stage, all other rows are output."""

    form = forms.VALIDATE
    next_places = 1

    def __init__(self, predictor: Predictor, lateness: int, bounds: str | None) -> None:
        super().__init__(predictor, lateness)
        self.bounds = bounds

    def part(self, number: int) -> Part:
        return BoundedValidation(self.predictor)

    def open(self, number: int, saved: bytes | None) -> Place:
        """Restore a place and give its validators the newest bounds."""
        place = super().open(number, saved)
        if self.bounds is not None and self.predictor.bounds:
            assert isinstance(place.part, BoundedValidation)
            found = latest_before(forms.BOUNDS, self.bounds, _batch())
            if found is not None and found[0] != place.part.bounds_of:
                place.part.bounds_of, allotted = found
                forms.check_allotted(self.predictor, allotted)
                for stream, allotment in allotted.items():
                    place.part.validators[stream].allot(allotment)
        return place

    def emitted(self, number: int, place: Place, emission: Emission) -> list[StageRow]:
        """Report to the driver, through the next stage; place 0 sends new accents to all places of that."""
        out = self.reported(1 + number, place, emission)
        if emission.tally.accents:
            accents = pack_state(forms.ACCENTS, place.follower.state)
            out += [row(to, ACCENTS, now=place.part.now, payload=accents) for to in range(self.next_places)]
        return out + self.routed(number, place.part, emission)

    def routed(self, number: int, part: Part, emission: Emission) -> list[StageRow]:
        """The messages to the next stage: a bucket's updates, revisions and the volatility of its keys, by stream."""
        out = []
        for stream, one in emission.accepted.items():
            updates = ExchangeBatch(0, number, one.updates).pack()
            message = (number, updates, self._rates(part.validators[stream]), packed(one.revised))
            out.append(
                row(0, UPDATES, stream=stream, now=part.now, payload=pack_state(forms.UPDATES, message))
            )
        return out

    def _rates(self, validator: Validator) -> forms.Rates | None:
        """The volatility of the bucket's keys, if the query states bounds."""
        return (validator.keys, validator.volatility()) if self.predictor.bounds else None


def _batch() -> int:
    context = TaskContext.get()
    return int(context.getLocalProperty("streaming.sql.batchId") or 0) if context else 0

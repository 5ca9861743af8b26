"""Predictions inside Spark's workers: what is kept per bucket of keys, and what crosses between stages.

Tuples cross as parcels (Arrow's stream format, one binary for many tuples): what Spark groups, and hands to the stateful
operators, is a few rows a bucket, and no tuple passes through pandas. A bucket holds many keys: validation works on arrays.

Plans whose rows all lie by their stream's key run whole within a bucket (:class:`SingleStage`). For others the validators stay
with the buckets (:class:`ValidateStage`) and their updates meet in one place
(:class:`pulse.runtime.predict.solve_stage.SolveStage`), which says what bounds it allots; those come back with the next
micro-batch (:mod:`pulse.runtime.predict.batch_store`), and until then the bounds before hold::

    tuples ──> Validating (bucket) ──updates──> Solving (one place) ──> changes
                   ^                                 |
                   └── bounds of the batch before <──┘

Pairs that come near meet in several places instead: :mod:`pulse.runtime.predict.pair_stages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pulse.core.encoding.codec import Form, refused
from pulse.runtime.accents.follower import DecodedBatch, Follower, follow
from pulse.runtime.accents.rounding import rounded
from pulse.runtime.execution.exchange import ExchangeBatch
from pulse.runtime.jobs.sources import newest
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.batch_store import kept_before
from pulse.runtime.predict.engine import Prediction, Tally
from pulse.runtime.predict.ingest import EVENT_TIME, LINES, arrived, packed_table
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import ACCENTS, ASIDE, TALLY, UPDATES, emitted, ending, row, seen
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.tuple_history import dropped, forget, histories_of, lapsed, packed, take
from pulse.validation.online.validator import ValidationCounts, Validator
from pulse.validation.revisions.history import AcceptedTuples, History
from pulse.validation.revisions.tuple_log import Chunk, TupleLog


class Stage(StatefulProcessor):
    """Keeps one object a place, as bytes; :meth:`work` takes it and the rows and gives it back with what comes out.

    ``form`` is what those bytes hold: :meth:`to_data` and :meth:`of_data` leave out, and put back, what the job itself says.
    """

    form: ClassVar[Form]

    def __init__(self, predictor: Predictor, lateness: int) -> None:
        self.predictor, self.lateness = predictor, lateness

    @property
    def times(self) -> dict[str, Any]:
        """What the tuples of streams are sorted by if nothing else orders them: the time, at one time accents first. None where
        revisions are among them."""
        found: dict[str, Any] = {name: spec.schema.time for name, spec in self.predictor.specs.items()}
        for name, one in self.predictor.hears.items():
            found[LINES + name] = None
            if one.column is not None:
                found[name] = [(found[name], "ascending"), (one.column, "ascending")]
        found |= {name: None for name, one in self.predictor.retentions.items() if one.kind is not None}
        return found | {EVENT_TIME: None}

    def hear(
        self, place: int, rows: Iterator[pd.DataFrame], state: Any, now: int | None
    ) -> tuple[Follower, DecodedBatch, int | None]:
        """The tuples that arrived, what is known of accents, and the newest event time, which was ``now``; ``state`` is what a
        follower kept."""
        follower = Follower(self.predictor, *(state or ()))
        came = arrived(rows, self.times)
        told = [] if now is None else [now]
        told += came.pop(EVENT_TIME).column("now").to_pylist() if EVENT_TIME in came else []
        tuples = {name: table for name, table in came.items() if not name.startswith(LINES)}
        lines = {
            name.removeprefix(LINES): table.column("line").to_pylist()
            for name, table in came.items()
            if name.startswith(LINES)
        }
        heard = follower.hear(tuples, lines).told_by(place)
        return follower, heard, newest(heard.came, self.predictor, max(told, default=None))

    def init(self, handle: Any) -> None:
        """Open the state; tuples that may be revised lie beside it, so that a batch writes only what is new of them."""
        self._kept = handle.getValueState("kept", "payload binary")
        if self.predictor.retentions:
            self._logs = handle.getMapState("log", "stream string, number long", "payload binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Spark's call: the rows of one place in one micro-batch."""
        kept = self.unpack(bytes(self._kept.get()[0])) if self._kept.exists() else None
        for stream, history in self.histories(kept).items():
            history.log.shelf = self._shelf(stream, history.log)
        kept, out = self.work(int(key[0]), kept, rows)
        for stream, history in self.histories(kept).items():
            new, gone = history.log.put_away()
            for number, chunk in new.items():
                self._logs.updateValue((stream, number), (pack_state(forms.CHUNK, chunk.kept),))
            for number in gone:
                self._logs.removeKey((stream, number))
        if kept is not None:
            self._kept.update((self.pack(kept),))
        if out:
            yield pd.DataFrame(out)

    def pack(self, kept: Any) -> bytes:
        """What is kept, as bytes."""
        return pack_state(self.form, self.to_data(kept))

    def unpack(self, data: bytes) -> Any:
        """What :meth:`pack` packed, checked against the job."""
        return self.of_data(unpack_state(self.form, data))

    def to_data(self, kept: Any) -> Any:
        """What is kept, without what the job says."""
        return kept

    def of_data(self, data: Any) -> Any:
        """What is kept, with what the job says."""
        return data

    def _shelf(self, stream: str, log: TupleLog) -> Callable[[int], Chunk]:
        def chunk(number: int) -> Chunk:
            found = unpack_state(forms.CHUNK, bytes(self._logs.getValue((stream, number))[0]))
            try:
                return Chunk.recalled(log.schema, log.columns, found)
            except ValueError as e:
                raise refused(f"chunk {number} of stream {stream}", "tuples of this job", str(e)) from e

        return chunk

    def histories(self, kept: Any) -> dict[str, History]:
        """The histories in what is kept, by stream."""
        return {}

    def close(self) -> None:
        """Nothing is open."""

    def work(self, place: int, kept: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """What becomes of the rows."""
        raise NotImplementedError

    def watermark(self, now: int) -> int:
        """Before which nothing is expected any more."""
        return now - self.lateness


class SingleStage(Stage):
    """All of a prediction, for the keys of a bucket."""

    form = forms.PREDICTING

    def work(self, place: int, kept: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Push the bucket's tuples."""
        prediction, accents = (Prediction(self.predictor), None) if kept is None else kept
        follower, heard, now = self.hear(place, rows, accents, prediction.now)
        watermark = None if now is None else follower.watermark(now, self.lateness)
        emission = follow(prediction, follower, heard, watermark)
        prediction.now = now
        if watermark is not None:
            prediction.advance(watermark, heard.drops)
        known = seen(place, self.predictor, prediction.validators)
        follower.settle(now, watermark, prediction.validators)
        out = emitted(place, emission, prediction.now) + ending(place, follower) + known
        return (prediction, follower.kept), out

    def histories(self, kept: Any) -> dict[str, History]:
        """The prediction's."""
        return {} if kept is None else dict(kept[0].histories)

    def to_data(self, kept: Any) -> Any:
        """The prediction's."""
        return forms.kept_prediction(kept[0]), kept[1]

    def of_data(self, data: Any) -> Any:
        """The same back."""
        forms.check_accents(self.predictor, data[1])
        return forms.recalled_prediction(self.predictor, data[0]), data[1]


class ValidateStage(Stage):
    """The validators of a bucket: updates go on to :class:`Solving`, all else comes out as it is."""

    form = forms.VALIDATING

    def __init__(self, predictor: Predictor, lateness: int, bounds: str | None) -> None:
        super().__init__(predictor, lateness)
        self.bounds = bounds

    def work(self, place: int, kept: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Validate the bucket's tuples."""
        kept, taken, out = self.validated(place, kept, rows)
        validators, now, *_ = kept
        for stream, one in taken.items():
            parcel = ExchangeBatch(0, place, one.updates).pack()
            said = (place, parcel, self._rates(validators[stream]), packed(one.revised))
            out.append(row(0, UPDATES, stream=stream, now=now, payload=pack_state(forms.UPDATES, said)))
        return kept, out

    def histories(self, kept: Any) -> dict[str, History]:
        """With the validators."""
        return {} if kept is None else dict(kept[3])

    def to_data(self, kept: Any) -> Any:
        """What the validators and histories know."""
        validators, now, bound, histories, accents = kept
        return forms.KeptValidators(
            forms.kept_validators(validators), now, bound, forms.kept_histories(histories), accents
        )

    def of_data(self, data: Any) -> Any:
        """The same back."""
        validators, now, bound, histories, accents = data
        forms.check_accents(self.predictor, accents)
        return (
            forms.recalled_validators(self.predictor, validators),
            now,
            bound,
            forms.recalled_histories(self.predictor, histories),
            accents,
        )

    def validated(
        self, place: int, kept: Any, rows: Iterator[pd.DataFrame]
    ) -> tuple[Any, dict[str, AcceptedTuples], list[dict[str, Any]]]:
        """What is kept of the bucket's validators, what they made of tuples, and rows with all else, the figures among them."""
        specs = self.predictor.specs
        validators, now, bound, histories, accents = kept or (
            {name: Validator(spec) for name, spec in specs.items()},
            None,
            -1,
            histories_of(self.predictor),
            None,
        )
        bound = self._take_bounds(validators, bound)
        follower, heard, now = self.hear(place, rows, accents, now)
        watermark = None if now is None else follower.watermark(now, self.lateness)
        taken = take(validators, histories, heard.tables, heard.drops)
        taken = dropped(validators, histories, taken, heard.drops, watermark)
        taken = lapsed(self.predictor, validators, histories, taken, watermark)
        taken = rounded(taken, heard.shifts)
        counts, tally = ValidationCounts(), Tally(accents=heard.count)
        out = self._told(place, follower, heard, now)
        tally.aside += sum(one.num_rows for one in heard.all_aside().values())
        refused = sum(one.num_rows for one in heard.refused.values())
        for stream, one in taken.items():
            counts.add(one.counts)
            tally.revisions, tally.absorbed = tally.revisions + one.revisions, tally.absorbed + one.absorbed
            if one.aside is not None and one.aside.num_rows:
                tally.aside += one.aside.num_rows
                told = packed_table(follower.told(stream, one.aside, heard))
                out.append(row(1 + place, ASIDE, stream=stream, now=now, payload=told))
        if watermark is not None:
            forget(self.predictor, validators, histories, watermark, heard.drops)
        known = seen(1 + place, self.predictor, validators)
        follower.settle(now, watermark, validators)
        tally.tuples, tally.validated, tally.violations = counts.tuples, counts.validated, counts.violated
        tally.tuples += refused
        tally.changed = counts.changed
        out.append(row(1 + place, TALLY, now=now, tally=tally))
        out += known
        return (validators, now, bound, histories, follower.kept), taken, out

    def _told(
        self, place: int, follower: Follower, heard: DecodedBatch, now: int | None
    ) -> list[dict[str, Any]]:
        """What this place says of accents, also to the places of the next stage if it is the first."""
        out = [
            row(1 + place, ASIDE, stream=stream, now=now, payload=packed_table(table))
            for stream, table in heard.all_aside().items()
        ]
        if heard.count:
            told = pack_state(forms.ACCENTS, follower.state)
            out += [row(to, ACCENTS, now=now, payload=told) for to in range(self.next_places)]
        return out + ending(1 + place, follower)

    @property
    def next_places(self) -> int:
        """How many places the next stage has."""
        return 1

    def _take_bounds(self, validators: Mapping[str, Validator], bound: int) -> int:
        if self.bounds is None or not self.predictor.bounds:
            return bound
        found = kept_before(forms.BOUNDS, self.bounds, _batch())
        if found is None or found[0] == bound:
            return bound
        forms.check_allotted(self.predictor, found[1])
        for stream, allotment in found[1].items():
            validators[stream].allot(allotment)
        return found[0]

    def _rates(self, validator: Validator) -> forms.Rates | None:
        """How restless the bucket's keys are, where anyone asks."""
        return (validator.keys, validator.restlessness()) if self.predictor.bounds else None


def _batch() -> int:
    context = TaskContext.get()
    return int(context.getLocalProperty("streaming.sql.batchId") or 0) if context else 0

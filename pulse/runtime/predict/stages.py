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
from pulse.runtime.predict.batch_store import latest_before
from pulse.runtime.predict.engine import Prediction, Tally
from pulse.runtime.predict.ingest import EVENT_TIME, LINES, arrived, packed_table
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import (
    ACCENTS,
    ASIDE,
    TALLY,
    UPDATES,
    emission_rows,
    ending_rows,
    row,
    seen_rows,
)
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.tuple_history import dropped, forget, histories_of, lapsed, packed, take
from pulse.validation.online.validator import ValidationCounts, Validator
from pulse.validation.revisions.history import AcceptedTuples, History
from pulse.validation.revisions.tuple_log import Chunk, TupleLog


class Stage(StatefulProcessor):
    """A stateful operator with one state object per place, stored as bytes; :meth:`work` maps state and rows to state and output.

    ``form`` is the layout of the bytes: :meth:`to_data` and :meth:`of_data` remove and restore the parts that the job defines.
    """

    form: ClassVar[Form]

    def __init__(self, predictor: Predictor, lateness: int) -> None:
        self.predictor, self.lateness = predictor, lateness

    @property
    def times(self) -> dict[str, Any]:
        """The sort keys of streams whose source has no order: the time, with accents first at equal times; None for streams with
        revisions."""
        found: dict[str, Any] = {name: spec.schema.time for name, spec in self.predictor.specs.items()}
        for name, one in self.predictor.accent_options.items():
            found[LINES + name] = None
            if one.column is not None:
                found[name] = [(found[name], "ascending"), (one.column, "ascending")]
        found |= {name: None for name, one in self.predictor.retentions.items() if one.kind is not None}
        return found | {EVENT_TIME: None}

    def decode(
        self, place: int, rows: Iterator[pd.DataFrame], state: Any, now: int | None
    ) -> tuple[Follower, DecodedBatch, int | None]:
        """Decode the rows of a batch: the follower, the decoded batch and the newest event time.

        ``state`` is the follower's snapshot and ``now`` the event time before the batch.
        """
        follower = Follower(self.predictor, *(state or ()))
        came = arrived(rows, self.times)
        times = [] if now is None else [now]
        times += came.pop(EVENT_TIME).column("now").to_pylist() if EVENT_TIME in came else []
        tuples = {name: table for name, table in came.items() if not name.startswith(LINES)}
        lines = {
            name.removeprefix(LINES): table.column("line").to_pylist()
            for name, table in came.items()
            if name.startswith(LINES)
        }
        decoded = follower.hear(tuples, lines).for_place(place)
        return follower, decoded, newest(decoded.came, self.predictor, max(times, default=None))

    def init(self, handle: Any) -> None:
        """Open the state; retained tuples are in a separate map, so that a batch writes only new ones."""
        self._saved = handle.getValueState("kept", "payload binary")
        if self.predictor.retentions:
            self._logs = handle.getMapState("log", "stream string, number long", "payload binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Process the rows of one place in one micro-batch; called by Spark."""
        saved = self.unpack(bytes(self._saved.get()[0])) if self._saved.exists() else None
        for stream, history in self.histories(saved).items():
            history.log.shelf = self._shelf(stream, history.log)
        saved, out = self.work(int(key[0]), saved, rows)
        for stream, history in self.histories(saved).items():
            new, gone = history.log.put_away()
            for number, chunk in new.items():
                self._logs.updateValue((stream, number), (pack_state(forms.CHUNK, chunk.snapshot),))
            for number in gone:
                self._logs.removeKey((stream, number))
        if saved is not None:
            self._saved.update((self.pack(saved),))
        if out:
            yield pd.DataFrame(out)

    def pack(self, saved: Any) -> bytes:
        """Encode the state as bytes."""
        return pack_state(self.form, self.to_data(saved))

    def unpack(self, data: bytes) -> Any:
        """Decode the bytes of :meth:`pack`, checked against the job."""
        return self.of_data(unpack_state(self.form, data))

    def to_data(self, saved: Any) -> Any:
        """The state without the parts that the job defines."""
        return saved

    def of_data(self, data: Any) -> Any:
        """The state completed by the job."""
        return data

    def _shelf(self, stream: str, log: TupleLog) -> Callable[[int], Chunk]:
        def chunk(number: int) -> Chunk:
            found = unpack_state(forms.CHUNK, bytes(self._logs.getValue((stream, number))[0]))
            try:
                return Chunk.restored(log.schema, log.columns, found)
            except ValueError as e:
                raise refused(f"chunk {number} of stream {stream}", "tuples of this job", str(e)) from e

        return chunk

    def histories(self, saved: Any) -> dict[str, History]:
        """The histories in the state, by stream."""
        return {}

    def close(self) -> None:
        """Do nothing: no resource is open."""

    def work(self, place: int, saved: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Process rows; return the new state and the output rows."""
        raise NotImplementedError

    def watermark(self, now: int) -> int:
        """The instant before which no tuple is expected."""
        return now - self.lateness


class SingleStage(Stage):
    """Runs a complete prediction for the keys of a bucket."""

    form = forms.PREDICTING

    def work(self, place: int, saved: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Push the bucket's tuples."""
        prediction, accents = (Prediction(self.predictor), None) if saved is None else saved
        follower, decoded, now = self.decode(place, rows, accents, prediction.now)
        watermark = None if now is None else follower.watermark(now, self.lateness)
        emission = follow(prediction, follower, decoded, watermark)
        prediction.now = now
        if watermark is not None:
            prediction.advance(watermark, decoded.drops)
        known = seen_rows(place, self.predictor, prediction.validators)
        follower.settle(now, watermark, prediction.validators)
        out = emission_rows(place, emission, prediction.now) + ending_rows(place, follower) + known
        return (prediction, follower.snapshot), out

    def histories(self, saved: Any) -> dict[str, History]:
        """The prediction's histories."""
        return {} if saved is None else dict(saved[0].histories)

    def to_data(self, saved: Any) -> Any:
        """The prediction's state and the accent snapshot."""
        return forms.snapshot_prediction(saved[0]), saved[1]

    def of_data(self, data: Any) -> Any:
        """Restore the prediction, checked against the job."""
        forms.check_accents(self.predictor, data[1])
        return forms.restore_prediction(self.predictor, data[0]), data[1]


class ValidateStage(Stage):
    """Validates the tuples of a bucket; updates go to the next stage, all other rows are output."""

    form = forms.VALIDATING

    def __init__(self, predictor: Predictor, lateness: int, bounds: str | None) -> None:
        super().__init__(predictor, lateness)
        self.bounds = bounds

    def work(self, place: int, saved: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Validate the bucket's tuples."""
        saved, taken, out = self.validated(place, saved, rows)
        validators, now, *_ = saved
        for stream, one in taken.items():
            parcel = ExchangeBatch(0, place, one.updates).pack()
            message = (place, parcel, self._rates(validators[stream]), packed(one.revised))
            out.append(row(0, UPDATES, stream=stream, now=now, payload=pack_state(forms.UPDATES, message)))
        return saved, out

    def histories(self, saved: Any) -> dict[str, History]:
        """The histories beside the validators."""
        return {} if saved is None else dict(saved[3])

    def to_data(self, saved: Any) -> Any:
        """The state of validators and histories."""
        validators, now, bound, histories, accents = saved
        return forms.KeptValidators(
            forms.kept_validators(validators), now, bound, forms.kept_histories(histories), accents
        )

    def of_data(self, data: Any) -> Any:
        """Restore validators and histories, checked against the job."""
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
        self, place: int, saved: Any, rows: Iterator[pd.DataFrame]
    ) -> tuple[Any, dict[str, AcceptedTuples], list[dict[str, Any]]]:
        """Validate the bucket's tuples; return the new state, the accepted tuples by stream, and all other output rows."""
        specs = self.predictor.specs
        validators, now, bound, histories, accents = saved or (
            {name: Validator(spec) for name, spec in specs.items()},
            None,
            -1,
            histories_of(self.predictor),
            None,
        )
        bound = self._take_bounds(validators, bound)
        follower, decoded, now = self.decode(place, rows, accents, now)
        watermark = None if now is None else follower.watermark(now, self.lateness)
        taken = take(validators, histories, decoded.tables, decoded.drops)
        taken = dropped(validators, histories, taken, decoded.drops, watermark)
        taken = lapsed(self.predictor, validators, histories, taken, watermark)
        taken = rounded(taken, decoded.shifts)
        counts, tally = ValidationCounts(), Tally(accents=decoded.count)
        out = self._accent_rows(place, follower, decoded, now)
        tally.aside += sum(one.num_rows for one in decoded.all_aside().values())
        refused = sum(one.num_rows for one in decoded.refused.values())
        for stream, one in taken.items():
            counts.add(one.counts)
            tally.revisions, tally.absorbed = tally.revisions + one.revisions, tally.absorbed + one.absorbed
            if one.aside is not None and one.aside.num_rows:
                tally.aside += one.aside.num_rows
                rejects = packed_table(follower.as_recorded(stream, one.aside, decoded))
                out.append(row(1 + place, ASIDE, stream=stream, now=now, payload=rejects))
        if watermark is not None:
            forget(self.predictor, validators, histories, watermark, decoded.drops)
        known = seen_rows(1 + place, self.predictor, validators)
        follower.settle(now, watermark, validators)
        tally.tuples, tally.validated, tally.violations = counts.tuples, counts.validated, counts.violated
        tally.tuples += refused
        tally.changed = counts.changed
        out.append(row(1 + place, TALLY, now=now, tally=tally))
        out += known
        return (validators, now, bound, histories, follower.snapshot), taken, out

    def _accent_rows(
        self, place: int, follower: Follower, decoded: DecodedBatch, now: int | None
    ) -> list[dict[str, Any]]:
        """Rows of rejected accents and the job's end; place 0 also sends new accents to all places of the next stage."""
        out = [
            row(1 + place, ASIDE, stream=stream, now=now, payload=packed_table(table))
            for stream, table in decoded.all_aside().items()
        ]
        if decoded.count:
            snapshot = pack_state(forms.ACCENTS, follower.state)
            out += [row(to, ACCENTS, now=now, payload=snapshot) for to in range(self.next_places)]
        return out + ending_rows(1 + place, follower)

    @property
    def next_places(self) -> int:
        """The number of places of the next stage."""
        return 1

    def _take_bounds(self, validators: Mapping[str, Validator], bound: int) -> int:
        if self.bounds is None or not self.predictor.bounds:
            return bound
        found = latest_before(forms.BOUNDS, self.bounds, _batch())
        if found is None or found[0] == bound:
            return bound
        forms.check_allotted(self.predictor, found[1])
        for stream, allotment in found[1].items():
            validators[stream].allot(allotment)
        return found[0]

    def _rates(self, validator: Validator) -> forms.Rates | None:
        """The volatility of the bucket's keys, if the query states bounds."""
        return (validator.keys, validator.volatility()) if self.predictor.bounds else None


def _batch() -> int:
    context = TaskContext.get()
    return int(context.getLocalProperty("streaming.sql.batchId") or 0) if context else 0

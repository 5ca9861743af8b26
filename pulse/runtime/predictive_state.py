"""Predictions inside Spark's workers: what is kept per bucket of keys, and what crosses between stages.

Tuples cross as parcels (Arrow's stream format, one binary for many tuples): what Spark groups, and hands to the stateful
operators, is a few rows a bucket, and no tuple passes through pandas. A bucket holds many keys: validation works on arrays.

Plans whose rows all lie by their stream's key run whole within a bucket (:class:`Predicting`). For others the validators stay
with the buckets (:class:`Validating`) and their updates meet in one place (:class:`pulse.runtime.predictive_solving.Solving`),
which says what bounds it allots; those come back with the next micro-batch (:mod:`pulse.runtime.predictive_kept`), and until
then the bounds before hold::

    tuples ──> Validating (bucket) ──updates──> Solving (one place) ──> changes
                   ^                                 |
                   └── bounds of the batch before <──┘

Pairs that come near meet in several places instead: :mod:`pulse.runtime.predictive_spread`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pulse.runtime.exchange import Parcel
from pulse.runtime.prediction import Prediction, Tally
from pulse.runtime.predictive_accents import Follower, Heard, follow
from pulse.runtime.predictive_kept import kept_before
from pulse.runtime.predictive_packing import pack_state, unpack_state
from pulse.runtime.predictive_parcels import LINES, arrived, packed_table
from pulse.runtime.predictive_revisions import forget, histories_of, packed, take
from pulse.runtime.predictive_rows import ACCENTS, ASIDE, TALLY, UPDATES, emitted, ending, row
from pulse.runtime.predictor import Predictor
from pulse.runtime.sources import newest
from pulse.validation.history import History, Taken
from pulse.validation.tuple_log import Chunk
from pulse.validation.validator import Counts, Validator

Rates = tuple[tuple[pa.Array, ...], Mapping[str, Any]]
"""Keys, and how restless each is, by attribute."""


class Keeping(StatefulProcessor):
    """Keeps one object a place, as bytes; :meth:`work` takes it and the rows and gives it back with what comes out."""

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
        return found | {name: None for name, one in self.predictor.retentions.items() if one.kind is not None}

    def hear(self, place: int, rows: Iterator[pd.DataFrame], state: Any) -> tuple[Follower, Heard]:
        """The tuples that arrived, and what is known of accents: ``state`` is what a follower kept."""
        follower = Follower(self.predictor, *(state or ()))
        came = arrived(rows, self.times)
        tuples = {name: table for name, table in came.items() if not name.startswith(LINES)}
        lines = {
            name.removeprefix(LINES): table.column("line").to_pylist()
            for name, table in came.items()
            if name.startswith(LINES)
        }
        return follower, follower.hear(tuples, lines).told_by(place)

    def init(self, handle: Any) -> None:
        """Open the state; tuples that may be revised lie beside it, so that a batch writes only what is new of them."""
        self._kept = handle.getValueState("kept", "payload binary")
        if self.predictor.retentions:
            self._logs = handle.getMapState("log", "stream string, number long", "payload binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Spark's call: the rows of one place in one micro-batch."""
        kept = unpack_state(bytes(self._kept.get()[0])) if self._kept.exists() else None
        for stream, history in self.histories(kept).items():
            history.log.shelf = self._shelf(stream)
        kept, out = self.work(int(key[0]), kept, rows)
        for stream, history in self.histories(kept).items():
            new, gone = history.log.put_away()
            for number, chunk in new.items():
                self._logs.updateValue((stream, number), (pack_state(chunk),))
            for number in gone:
                self._logs.removeKey((stream, number))
        if kept is not None:
            self._kept.update((pack_state(kept),))
        if out:
            yield pd.DataFrame(out)

    def _shelf(self, stream: str) -> Callable[[int], Chunk]:
        def chunk(number: int) -> Chunk:
            found = unpack_state(bytes(self._logs.getValue((stream, number))[0]))
            assert isinstance(found, Chunk)
            return found

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


def kept_beside(histories: Mapping[str, History], follower: Follower) -> tuple[Any, ...]:
    """What is kept beside a place's own state, where there is any: histories, then what is known of accents."""
    if follower.predictor.hears:
        return histories, follower.state
    return (histories,) if histories else ()


class Predicting(Keeping):
    """All of a prediction, for the keys of a bucket."""

    def work(self, place: int, kept: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Push the bucket's tuples."""
        prediction = Prediction(self.predictor)
        if kept is not None:
            prediction.validators, prediction.state, prediction.allotted, prediction.now, *more = kept
            prediction.histories = more[0] if more else prediction.histories
        else:
            more = []
        follower, heard = self.hear(place, rows, more[1] if len(more) > 1 else None)
        now = newest(heard.came, self.predictor, prediction.now)
        emission = follow(prediction, follower, heard)
        prediction.now = now
        watermark = None if now is None else follower.watermark(now, self.lateness)
        if watermark is not None:
            prediction.advance(watermark)
        follower.settle(now, watermark, prediction.validators)
        out = emitted(place, emission, prediction.now) + ending(place, follower)
        known = (prediction.validators, prediction.state, prediction.allotted, prediction.now)
        return known + kept_beside(prediction.histories, follower), out

    def histories(self, kept: Any) -> dict[str, History]:
        """They come last, where there are any."""
        return dict(kept[4]) if kept is not None and len(kept) > 4 else {}


class Validating(Keeping):
    """The validators of a bucket: updates go on to :class:`Solving`, all else comes out as it is."""

    def __init__(self, predictor: Predictor, lateness: int, bounds: str | None) -> None:
        super().__init__(predictor, lateness)
        self.bounds = bounds

    def work(self, place: int, kept: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Validate the bucket's tuples."""
        kept, taken, out = self.validated(place, kept, rows)
        validators, now, *_ = kept
        for stream, one in taken.items():
            parcel = Parcel(0, place, one.updates).pack()
            said = (place, parcel, self._rates(validators[stream]), packed(one.revised))
            out.append(row(0, UPDATES, stream=stream, now=now, payload=pack_state(said)))
        return kept, out

    def histories(self, kept: Any) -> dict[str, History]:
        """They come last, where there are any."""
        return dict(kept[3]) if kept is not None and len(kept) > 3 else {}

    def validated(
        self, place: int, kept: Any, rows: Iterator[pd.DataFrame]
    ) -> tuple[Any, dict[str, Taken], list[dict[str, Any]]]:
        """What is kept of the bucket's validators, what they made of tuples, and rows with all else, the figures among them."""
        specs = self.predictor.specs
        validators, now, bound, *more = kept or (
            {name: Validator(spec) for name, spec in specs.items()},
            None,
            -1,
        )
        histories = more[0] if more else histories_of(self.predictor)
        bound = self._take_bounds(validators, bound)
        follower, heard = self.hear(place, rows, more[1] if len(more) > 1 else None)
        now = newest(heard.came, self.predictor, now)
        taken = take(validators, histories, heard.tables)
        counts, tally = Counts(), Tally(accents=heard.count)
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
        watermark = None if now is None else follower.watermark(now, self.lateness)
        if watermark is not None:
            forget(self.predictor, validators, histories, watermark)
        follower.settle(now, watermark, validators)
        tally.tuples, tally.validated, tally.violations = counts.tuples, counts.validated, counts.violated
        tally.tuples += refused
        out.append(row(1 + place, TALLY, now=now, tally=tally))
        known = (validators, now, bound)
        return known + kept_beside(histories, follower), taken, out

    def _told(self, place: int, follower: Follower, heard: Heard, now: int | None) -> list[dict[str, Any]]:
        """What this place says of accents, also to the places of the next stage if it is the first."""
        out = [
            row(1 + place, ASIDE, stream=stream, now=now, payload=packed_table(table))
            for stream, table in heard.all_aside().items()
        ]
        if heard.count:
            told = pack_state(follower.state)
            out += [row(to, ACCENTS, now=now, payload=told) for to in range(self.next_places)]
        return out + ending(1 + place, follower)

    @property
    def next_places(self) -> int:
        """How many places the next stage has."""
        return 1

    def _take_bounds(self, validators: Mapping[str, Validator], bound: int) -> int:
        if self.bounds is None or not self.predictor.bounds:
            return bound
        found = kept_before(self.bounds, _batch())
        if found is None or found[0] == bound:
            return bound
        for stream, allotment in found[1].items():
            validators[stream].allot(allotment)
        return found[0]

    def _rates(self, validator: Validator) -> Rates | None:
        """How restless the bucket's keys are, where anyone asks."""
        return (validator.keys, validator.restlessness()) if self.predictor.bounds else None


def _batch() -> int:
    context = TaskContext.get()
    return int(context.getLocalProperty("streaming.sql.batchId") or 0) if context else 0

"""Predictions inside Spark's workers: what is kept per bucket of keys, and what crosses between stages.

Tuples cross as parcels (Arrow's stream format, one binary for many tuples): what Spark groups, and hands to the stateful
operators, is a few rows a bucket, and no tuple passes through pandas. A bucket holds many keys: validation works on arrays.

Plans whose rows all lie by their stream's key run whole within a bucket (:class:`Predicting`). For others the validators stay
with the buckets (:class:`Validating`) and their updates meet in one place (:class:`Solving`), which says what bounds it allots;
those come back through a folder of files with the next micro-batch, and until then the bounds before hold::

    tuples ──> Validating (bucket) ──updates──> Solving (one place) ──> changes
                   ^                                 |
                   └── bounds of the batch before <──┘

Pairs that come near meet in several places instead: :mod:`pulse.runtime.predictive_spread`.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pulse.core.errors import PulseError
from pulse.core.unpickling import unpickled
from pulse.operators.relation import Relation
from pulse.runtime.exchange import Parcel
from pulse.runtime.predictive_accents import Follower, Heard, follow
from pulse.runtime.predictive_parcels import LINES, arrived, packed_table
from pulse.runtime.predictive_revisions import (
    forget,
    histories_of,
    packed,
    reach_back,
    solve,
    take,
    unpacked,
    updates_of,
)
from pulse.runtime.predictor import Emission, Prediction, Predictor, Tally
from pulse.runtime.sources import newest
from pulse.validation.allotment import Allotment
from pulse.validation.history import History, Taken
from pulse.validation.needs import PACE
from pulse.validation.tuple_log import Chunk
from pulse.validation.validator import Counts, Validator

VERSION = 3
TALLIED = tuple(one.name for one in fields(Tally))
ROWS = "place int, channel string, stream string, now long, payload binary, " + ", ".join(
    f"{name} long" for name in TALLIED
)
"""What stateful operators give: ``channel`` says what the payload is."""

CHANGES, ASIDE, TALLY, UPDATES, BOUNDS = "changes", "aside", "tally", "updates", "bounds"
ACCENTS, ENDING = "accents", "ending"
_HEADER = struct.Struct("<IQI")
_KEPT_BOUNDS = 16


Told = tuple[str, int]
"""A stream and a bucket."""

Rates = tuple[tuple[pa.Array, ...], Mapping[str, Any]]
"""Keys, and how restless each is, by attribute."""


class StateError(PulseError, ValueError):
    """State that was kept by another version."""


# -- state as bytes -------------------------------------------------------------------------------------------


def pack_state(state: object) -> bytes:
    """State for the store: version, length and checksum, then compressed."""
    raw = pickle.dumps(state, protocol=5)
    packed = bytes(pa.compress(raw, codec="lz4", asbytes=True))
    return _HEADER.pack(VERSION, len(raw), checksum_of(len(raw), packed)) + packed


def checksum_of(length: int, packed: bytes) -> int:
    """Of the length too: more is asked of the memory than there is, if that is damaged."""
    return zlib.crc32(packed, zlib.crc32(length.to_bytes(8, "little")))


def unpack_state(data: bytes) -> Any:
    """What :func:`pack_state` packed; see :mod:`pulse.core.unpickling` for what it may hold."""
    version, length, checksum = _HEADER.unpack(data[: _HEADER.size].ljust(_HEADER.size, b"\0"))
    if version != VERSION:
        raise StateError(f"state of version {version}, expected {VERSION}: start the job on a new checkpoint")
    packed = data[_HEADER.size :]
    if checksum_of(length, packed) != checksum:
        raise StateError(
            "state that is damaged or cut short: its checksum is another; restore it, or start the job on a new checkpoint"
        )
    raw = pa.decompress(packed, length, codec="lz4", asbytes=True)
    try:
        return unpickled(raw)
    except (AttributeError, ImportError, TypeError, pickle.UnpicklingError) as e:
        raise StateError(
            f"state that another version of pulse kept ({e}): start the job on a new checkpoint, or go on with that version"
        ) from e


def row(
    place: int,
    channel: str,
    *,
    stream: str = "",
    now: int | None = None,
    payload: bytes = b"",
    tally: Tally | None = None,
) -> dict[str, Any]:
    """A row of :data:`ROWS`."""
    said = asdict(tally or Tally())
    return {"place": place, "channel": channel, "stream": stream, "now": now or 0, "payload": payload, **said}


def emitted(place: int, emission: Emission, now: int | None) -> list[dict[str, Any]]:
    """An emission as rows: changes, tuples set aside by stream, figures."""
    rows = []
    if emission.changes.num_rows:
        rows.append(row(place, CHANGES, now=now, payload=packed_table(emission.changes)))
    rows += [
        row(place, ASIDE, stream=stream, now=now, payload=packed_table(table))
        for stream, table in emission.aside.items()
    ]
    rows.append(row(place, TALLY, now=now, tally=emission.tally))
    return rows


def ending(place: int, follower: Follower) -> list[dict[str, Any]]:
    """Where the job ends, if it does: the driver sees whether all of it has come there."""
    found = follower.ending()
    return [] if found is None else [row(place, ENDING, payload=pack_state(tuple(found)))]


def kept_beside(histories: Mapping[str, History], follower: Follower) -> tuple[Any, ...]:
    """What is kept beside a place's own state, where there is any: histories, then what is known of accents."""
    if follower.predictor.hears:
        return histories, follower.state
    return (histories,) if histories else ()


# -- bounds that come back ------------------------------------------------------------------------------------


def write_bounds(folder: str | Path, batch: int, payload: bytes) -> None:
    """Keep what a batch allotted, for the batches after it; old files go."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{batch:012d}"
    draft.write_bytes(payload)
    draft.replace(folder / f"{batch:012d}")
    for old in sorted(folder.glob("[0-9]*"))[:-_KEPT_BOUNDS]:
        old.unlink(missing_ok=True)


def bounds_before(folder: str | Path, batch: int) -> tuple[int, dict[str, Allotment]] | None:
    """The newest bounds of a batch before this one: the same whenever this one is run."""
    known = [int(one.name) for one in Path(folder).glob("[0-9]*")]
    earlier = [one for one in known if one < batch]
    if not earlier:
        return None
    newest = max(earlier)
    return newest, unpack_state((Path(folder) / f"{newest:012d}").read_bytes())


def _batch() -> int:
    context = TaskContext.get()
    return int(context.getLocalProperty("streaming.sql.batchId") or 0) if context else 0


# -- the stateful operators -----------------------------------------------------------------------------------


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
                told = packed_table(follower.told(stream, one.aside))
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
        found = bounds_before(self.bounds, _batch())
        if found is None or found[0] == bound:
            return bound
        for stream, allotment in found[1].items():
            validators[stream].allot(allotment)
        return found[0]

    def _rates(self, validator: Validator) -> Rates | None:
        """How restless the bucket's keys are, where anyone asks."""
        return (validator.keys, validator.restlessness()) if self.predictor.bounds else None


def told_of_accents(
    predictor: Predictor, state: Any, rows: Iterable[Mapping[str, Any]]
) -> tuple[Follower, Heard]:
    """What a place of a second stage knows of accents, once the first has told it of new ones."""
    before = Follower(predictor, *(state or ()))
    for one in rows:
        if one["channel"] == ACCENTS:
            state = unpack_state(bytes(one["payload"]))
    return Follower(predictor, *(state or ())), Heard({}, {}, {}, before=before.restating)


def in_force(
    emission: Emission, follower: Follower, heard: Heard, results: tuple[Relation, Relation]
) -> Emission:
    """What a second stage emits, in the units in force; ``results``: those at rest before and after."""
    if not follower.predictor.hears:
        return emission
    changes = follower.said(heard, *results, emission.changes)
    return replace(emission, changes=changes, tally=replace(emission.tally, changes=changes.num_rows))


class Solver(Prediction):
    """A prediction whose validators are elsewhere: it is told their updates and how restless their keys are."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        self.rates: dict[Told, Rates] = {}

    def take(self, told: Mapping[str, Taken], rates: Mapping[Told, Rates]) -> Emission:
        """What updates and revisions change."""
        assert self.state is not None
        self.rates.update(rates)
        columns = self.predictor.standing.columns
        taken = {
            name: told.get(name, Taken(Relation.empty(columns[name]), None, Counts(), None))
            for name in self.predictor.specs
        }
        updates = updates_of(taken)
        self.state, solved = solve(self.predictor.standing, self.state, taken)
        rows = sum(len(one) for one in updates.values())
        if rows:
            self._flow_back(updates)
        tally = Tally(
            updates=rows,
            solves=solved.solved,
            results=solved.results,
            changes=len(solved.changes),
            beyond=int(self._beyond(solved.fresh).sum()) if rows and self.predictor.bounds else 0,
        )
        return Emission(solved.changes.table, {}, tally)

    def _restlessness(self) -> dict[str, Allotment]:
        found = {}
        for stream, spec in self.predictor.specs.items():
            told = [
                one for (name, _), one in sorted(self.rates.items(), key=lambda kv: kv[0]) if name == stream
            ]
            names = (*spec.schema.modelled_names, PACE)
            empty = tuple(pa.array([], type_) for _, type_ in spec.schema.key)
            keys = tuple(
                pa.concat_arrays([empty[i], *(one[0][i] for one in told)])
                for i in range(len(spec.schema.key))
            )
            rates = {name: np.concatenate([np.zeros(0), *(one[1][name] for one in told)]) for name in names}
            found[stream] = Allotment(stream, keys, rates, dict.fromkeys(names, 0.0))
        return found


class Solving(Keeping):
    """The standing query of all keys, in one place; rows of other channels pass through."""

    def work(self, place: int, kept: Any, rows: Iterator[pd.DataFrame]) -> tuple[Any, list[dict[str, Any]]]:
        """Solve what the validators' updates change."""
        told = [one for frame in rows for one in frame.to_dict("records")]
        out = [one for one in told if one["channel"] not in (UPDATES, ACCENTS)]
        mine = [one for one in told if one["channel"] == UPDATES]
        if len(out) == len(told):
            return kept, out
        solver, accents = Solver(self.predictor), None
        if kept is not None:
            solver.state, solver.allotted, solver.now, solver.rates, *more = kept
            accents = more[0] if more else None
        follower, heard = told_of_accents(self.predictor, accents, told)
        assert solver.state is not None
        held = solver.state.results
        emission = solver.take(*self._received(mine))
        emission = in_force(emission, follower, heard, (held, solver.state.results))
        newest = max(one["now"] for one in told if one["channel"] in (UPDATES, ACCENTS))
        solver.now = newest if solver.now is None else max(solver.now, newest)
        out += emitted(0, emission, solver.now)
        if emission.tally.updates and solver.allotted:
            out.append(row(0, BOUNDS, now=solver.now, payload=pack_state(solver.allotted)))
        assert solver.state is not None
        watermark = follower.watermark(solver.now, self.lateness)
        oldest = watermark - reach_back(self.predictor)
        follower.settle(solver.now, watermark, {})
        solver.state = self.predictor.standing.advance(solver.state, oldest)
        known = (solver.state, solver.allotted, solver.now, solver.rates)
        return (*known, follower.state) if self.predictor.hears else known, out

    def _received(self, rows: list[dict[str, Any]]) -> tuple[dict[str, Taken], dict[Told, Rates]]:
        """What was taken by stream, that of a bucket after the other, and what the buckets say of their keys."""
        parts = sorted(
            ((one["stream"], *unpack_state(bytes(one["payload"]))) for one in rows), key=lambda one: one[:2]
        )
        taken: dict[str, Taken] = {}
        for stream in dict.fromkeys(one[0] for one in parts):
            mine = [one for one in parts if one[0] == stream]
            columns = self.predictor.standing.columns[stream]
            updates = [Parcel.unpack(0, 0, payload, columns).relation for _, _, payload, _, _ in mine]
            revised = unpacked([one[4] for one in mine], self.predictor.standing, stream)
            taken[stream] = Taken(Relation.concat(updates), revised, Counts(), None)
        rates = {(stream, place): said for stream, place, _, said, _ in parts if said is not None}
        return taken, rates

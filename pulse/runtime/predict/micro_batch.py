"""Run the micro-batches of one place: the protocol that the in-process driver and every Spark stage share.

::

    decode ──> watermark ──> process ──> output units ──> advance ──> emit ──> settle
    (accents)                (part)                       (part)               (accents)

A **place** holds one :class:`Part` of a prediction (all of it, its validators, its continuous query or a share of that), the
accents that it follows, and the event time that it has reached. Its state between batches is one typed :class:`StageState`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from pulse.core.encoding.codec import refused
from pulse.operators.data.relation import Relation
from pulse.operators.units.key_ends import Drops
from pulse.runtime.accents.follower import AccentSnapshot, DecodedBatch, Follower
from pulse.runtime.incremental.continuous_view import ContinuousView, Solved
from pulse.runtime.predict.bound_sharing import beyond
from pulse.runtime.predict.event_time import newest
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.state_schema import StageState, check_accents, check_state
from pulse.runtime.predict.status import Tally
from pulse.validation.online.counts import ValidationCounts
from pulse.validation.online.validator import Validator
from pulse.validation.revisions.history import AcceptedTuples, History

Emitted = TypeVar("Emitted")


@dataclass(frozen=True)
class MicroBatch:
    """A decoded batch; ``now`` is the newest event time so far, ``messages`` are the rows of the stage before."""

    decoded: DecodedBatch
    now: int | None
    messages: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Emission:
    """The outcome of a batch: a changelog of result segments, rejected tuples by stream, counters, and accepted tuples by
    stream."""

    changes: pa.Table
    aside: Mapping[str, pa.Table]
    tally: Tally
    accepted: Mapping[str, AcceptedTuples] = field(default_factory=dict)


@dataclass
class Part(ABC):
    """The part of a prediction that one place runs: validators, a continuous query, or both.

    Its state is in the fields that ``saved_as`` names.
    """

    saved_as: ClassVar[type[StageState]]

    predictor: Predictor
    now: int | None = None
    validators: dict[str, Validator] = field(default_factory=dict)
    histories: dict[str, History] = field(default_factory=dict)
    view: ContinuousView | None = None

    @abstractmethod
    def process(self, batch: MicroBatch, watermark: int | None) -> Emission:
        """Process a batch; the emission is in base units."""

    @abstractmethod
    def advance(self, watermark: int, drops: Mapping[str, Drops] | None = None) -> None:
        """Free state that is only needed before the watermark. Models end at ``drops`` of attributes, by stream."""

    def snapshot(self, accents: AccentSnapshot | None = None) -> StageState:
        """The state as data."""
        names = {one.name for one in fields(self.saved_as)} - {"accents", "state"}
        kept = {name: getattr(self, name) for name in names}
        if self.view is not None:
            kept["state"] = self.view.state
        if "validators" in kept:
            kept["validators"] = {stream: one.state for stream, one in self.validators.items()}
            kept["histories"] = {stream: one.snapshot for stream, one in self.histories.items()}
        return self.saved_as(**kept, accents=accents)

    def restore(self, saved: StageState) -> None:
        """Continue from a snapshot, checked against the job."""
        check_state(self.predictor, saved)
        for one in fields(saved):
            value = getattr(saved, one.name)
            if one.name in ("validators", "histories"):
                self._restore_streams(one.name, value)
            elif one.name == "state":
                self.view = ContinuousView(self.predictor.continuous, value)
            elif one.name != "accents":
                setattr(self, one.name, value)

    def _restore_streams(self, name: str, saved: Mapping[str, Any]) -> None:
        for stream, one in getattr(self, name).items():
            try:
                one.restore(saved[stream])
            except (ValueError, TypeError, OverflowError, pa.ArrowException) as e:
                raise refused(f"{name}.{stream}", "state of this job's stream", str(e)) from e


@dataclass
class Place:
    """A part of a prediction, and the accents that it follows."""

    part: Part
    lateness: int
    follower: Follower

    @classmethod
    def of(cls, part: Part, lateness: int, saved: StageState | None = None) -> Place:
        """Build a place, from saved state if it has some."""
        if saved is not None:
            part.restore(saved)
        accents = None if saved is None else saved.accents
        return cls(part, lateness, Follower(part.predictor, *(accents or ())))

    @property
    def state(self) -> StageState:
        """The state to save between batches."""
        return self.part.snapshot(self.follower.snapshot)

    def decode(
        self,
        tables: Mapping[str, pa.Table],
        lines: Mapping[str, Sequence[str]] | None = None,
        *,
        times: Iterable[int] = (),
        number: int = 0,
    ) -> MicroBatch:
        """Decode tuples and lines of accent logs, by stream.

        ``times`` are event times that other places have reached; ``number`` is that of this place: all receive the same
        accents, and one reports those that it rejects.
        """
        decoded = self.follower.decode(tables, lines).for_place(number)
        return MicroBatch(decoded, newest(decoded.came, self.part.predictor, self._newest(times)))

    def receive(
        self, messages: Sequence[Mapping[str, Any]], accents: AccentSnapshot | None, times: Iterable[int]
    ) -> MicroBatch:
        """Take the messages of the stage before: updates, its accents if there are new ones, and its event times."""
        before = self.follower.output_units
        if accents is not None:
            check_accents(self.part.predictor, accents)
            self.follower = Follower(self.part.predictor, *accents)
        decoded = DecodedBatch({}, {}, {}, before=before)
        return MicroBatch(decoded, self._newest(one for one in times if one), messages)

    def _newest(self, times: Iterable[int]) -> int | None:
        return max((one for one in (self.part.now, *times) if one is not None), default=None)

    def run(self, batch: MicroBatch, emit: Callable[[Emission], Emitted]) -> Emitted:
        """Process a batch and emit its outcome; ``emit`` is called before the state of closed keys and old accents is freed."""
        part, follower = self.part, self.follower
        watermark = None if batch.now is None else follower.watermark(batch.now, self.lateness)
        held = part.view.results if part.view is not None and part.predictor.accent_options else None
        emission = self._in_output_units(part.process(batch, watermark), batch.decoded, held)
        part.now = batch.now
        if watermark is not None:
            part.advance(watermark, batch.decoded.drops)
        emitted = emit(emission)
        follower.settle(batch.now, watermark, part.validators)
        return emitted

    def _in_output_units(self, emission: Emission, decoded: DecodedBatch, held: Relation | None) -> Emission:
        """Convert changes to output units and rejected tuples to recorded ones; add the accents' own rejects and counts."""
        if not self.part.predictor.accent_options:
            return emission
        changes, aside = emission.changes, {}
        if held is not None and self.part.view is not None:
            changes = self.follower.emit(decoded, held, self.part.view.results, changes)
        for stream, one in emission.aside.items():
            aside[stream] = self.follower.as_recorded(stream, one, decoded)
        more = decoded.all_aside()
        for stream, table in more.items():
            both = [aside[stream], table] if stream in aside else [table]
            aside[stream] = pa.concat_tables(both, promote_options="permissive")
        tally = replace(
            emission.tally,
            tuples=emission.tally.tuples + sum(one.num_rows for one in decoded.refused.values()),
            changes=changes.num_rows,
            aside=emission.tally.aside + sum(one.num_rows for one in more.values()),
            accents=decoded.count,
        )
        return replace(emission, changes=changes, aside=aside, tally=tally)


def new_segments(accepted: Mapping[str, AcceptedTuples]) -> int:
    """The number of new segments, including those of revised keys."""
    return sum(
        len(one.updates) + (0 if one.revised is None else len(one.revised.segments))
        for one in accepted.values()
    )


def emission_of(
    predictor: Predictor, accepted: Mapping[str, AcceptedTuples], solved: Solved | None = None
) -> Emission:
    """The emission of accepted tuples, of solved changes, or of both, with their counters."""
    counts, aside = ValidationCounts(), {}
    for stream, one in accepted.items():
        counts.add(one.counts)
        if one.aside is not None and one.aside.num_rows:
            aside[stream] = one.aside
    tally = Tally(
        tuples=counts.tuples,
        validated=counts.validated,
        violations=counts.violated,
        changed=counts.changed,
        updates=new_segments(accepted),
        aside=sum(one.num_rows for one in aside.values()),
        revisions=sum(one.revisions for one in accepted.values()),
        absorbed=sum(one.absorbed for one in accepted.values()),
    )
    if solved is None:
        return Emission(pa.table({}), aside, tally, accepted)
    tally.solves, tally.results, tally.changes = solved.solved, solved.results, len(solved.changes)
    tally.beyond = int(beyond(solved.fresh, predictor.bounds).sum())
    return Emission(solved.changes.table, aside, tally, accepted)

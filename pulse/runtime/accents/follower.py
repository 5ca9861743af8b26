"""Accents in a prediction (semantics 8): schema and units change while a standing query runs.

::

    tuples, accents ──undone──> first units: validators, standing query ──changes──restated──> units in force at each instant
                         ^                                                            ^
                         └──── the accents heard so far, and what of them passes the plan

Models, bounds, state and results at rest are in the units of the stream's start, whatever comes; no accent touches any of them.
What is emitted is restated. When an accent comes, results that were said of its time and later are said again in the new units:
the difference between the results at rest, restated as before and as now. All is a function of the accents heard, in whatever
batches they came.

An accent in the stream's own rows describes the rows after it, and results from its own time on. One in a log beside the stream
describes the tuples from its instant on that come after it was heard (8.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.errors import PulseError
from pulse.operators.data.relation import Relation
from pulse.operators.units.key_ends import Drops
from pulse.plan.accents.derived import described
from pulse.plan.nodes import scans
from pulse.runtime.accents.compacted_maps import BEFORE_ALL, together
from pulse.runtime.accents.output_units import instants, restated_changes
from pulse.runtime.accents.parsing import of_line, of_row
from pulse.runtime.accents.propagation import AccentPropagation, Ending
from pulse.runtime.accents.query_units import OutputUnits, QueryAbortedError
from pulse.runtime.accents.rounding import Shifts
from pulse.runtime.accents.row_splitter import apart
from pulse.runtime.accents.stream_state import AccentState, of_keys
from pulse.runtime.accents.to_base_units import (
    ROW,
    as_came,
    decoded,
    encoded,
    numbered,
    unblanked,
)
from pulse.runtime.incremental.continuous_query import GRACE, followed
from pulse.runtime.predict.tuple_history import anchored_behind
from pulse.stream.accents.accents import Accent, Control
from pulse.stream.descriptions.description import Description
from pulse.validation.online.rejects import PLACE

if TYPE_CHECKING:
    from pulse.runtime.predict.engine import Emission, Prediction
    from pulse.runtime.predict.spec import Predictor
    from pulse.validation.online.validator import Validator


class AccentSnapshot(NamedTuple):
    """What is kept of accents between batches: what follows from it, as how tuples are undone, is made anew."""

    streams: dict[str, AccentState]
    through: AccentPropagation
    closing: list[tuple[int, Description]]


class JobAbortedError(QueryAbortedError):
    """A job met an accent that its query cannot go on after; what it said of earlier times stays."""


@dataclass(frozen=True)
class DecodedBatch:
    """A batch without its accents: as it came, and in first units; what was set aside by stream, how many of it were tuples, how
    many accents and punctuations were taken, and the restating before them."""

    came: Mapping[str, pa.Table]
    tables: Mapping[str, pa.Table]
    aside: Mapping[str, pa.Table]
    count: int = 0
    before: OutputUnits | None = None
    refused: Mapping[str, pa.Table] = field(default_factory=dict)  # tuples: each place has its own
    recorded: Mapping[str, pa.Table] = field(default_factory=dict)  # those that were undone, before they were
    drops: Mapping[str, Drops] = field(default_factory=dict)  # after which nothing is known of keys
    shifts: Shifts = field(default_factory=dict)  # by which tuples were undone, so far

    def told_by(self, place: int) -> DecodedBatch:
        """What one place of many says of accents: they all hear the same, and the first one tells."""
        return self if place == 0 else replace(self, aside={}, count=0)

    def all_aside(self) -> dict[str, pa.Table]:
        """Accents and tuples that were set aside, by stream."""
        found: dict[str, pa.Table] = dict(self.aside)
        for stream, table in self.refused.items():
            both = [found[stream], table] if stream in found else [table]
            found[stream] = pa.concat_tables(both, promote_options="permissive")
        return found


@dataclass
class Follower:
    """The accents heard so far by stream, and what they do to results. Picklable; the same accents give the same follower.

    Made anew of a predictor, or of one and what :attr:`state` was.
    """

    predictor: Predictor
    streams: dict[str, AccentState] = field(default_factory=dict)
    through: AccentPropagation = field(default_factory=AccentPropagation)
    closing: list[tuple[int, Description]] = field(
        default_factory=list
    )  # rows of the answer, and until when they matter
    restating: OutputUnits | None = field(init=False)

    def __post_init__(self) -> None:
        self.restating = self.through.restating(self._answer_time)
        for name, hears in self.predictor.hears.items():
            self.streams.setdefault(name, AccentState.of(hears))

    def hear(
        self, tables: Mapping[str, pa.Table], lines: Mapping[str, Sequence[str]] | None = None
    ) -> DecodedBatch:
        """Take a batch's rows, and lines that logs have gained: those are heard before the rows."""
        if not self.predictor.hears:
            return DecodedBatch(tables, tables, {})
        before, count, new = self.restating, 0, list[tuple[str, Control]]()
        came, found = dict(tables), dict(tables)
        aside: dict[str, pa.Table] = {}
        refused: dict[str, pa.Table] = {}
        recorded: dict[str, pa.Table] = {}
        for stream, hears in self.predictor.hears.items():
            self._pass_by(stream)
            rows: IntArray | None = None
            bad: list[pa.Table] = []
            taken: list[Control] = []
            if hears.column is None:
                said = [(i, None, line) for i, line in enumerate((lines or {}).get(stream, ()))]
                taken, bad = self._take(stream, said, None)
            elif stream in tables and hears.column in tables[stream].column_names:
                table = tables[stream]
                came[stream], rows, told = apart(table, hears.column, self._time(stream), self._keys(stream))
                taken, bad = self._take(stream, told, table)
            new += [(stream, one) for one in taken]
            count += len(taken)
            if bad:
                aside[stream] = decoded(pa.concat_tables(bad, promote_options="permissive"))
            if stream in came:
                recorded[stream] = came[stream]
                came[stream], found[stream], unfit = self._fitted(stream, came[stream], rows)
                if unfit:
                    refused[stream] = decoded(pa.concat_tables(unfit, promote_options="permissive"))
        evolving = [pair for pair in new if not self._ignores(*pair)]
        if evolving:
            self.through.add(self.predictor, evolving)
            self.restating = self.through.restating(self._answer_time)
        drops = {}
        for name, one in self.streams.items():
            time, keys = self._time(name), self.predictor.specs[name].schema.key_names
            ends = Drops(one.gaps(time), one.ends(keys, time))
            if ends.gaps or ends.closed:
                drops[name] = ends
        shifts = {name: one.shifts for name, one in self.streams.items() if one.shifts}
        return DecodedBatch(came, found, aside, count, before, refused, recorded, drops, shifts)

    def said(self, heard: DecodedBatch, held: Relation, after: Relation, changes: pa.Table) -> pa.Table:
        """Changes in the units in force; ``held`` and ``after`` are the results at rest before and after them."""
        return restated_changes(
            self.predictor.standing, (heard.before, self.restating), (held, after), changes
        )

    def told(self, stream: str, aside: pa.Table, heard: DecodedBatch) -> pa.Table:
        """Tuples that a validator set aside, as they came, and without values that it was not given."""
        hears = self.predictor.hears.get(stream)
        if hears is None:
            return decoded(aside)
        if stream in heard.recorded:
            aside = as_came(aside, heard.recorded[stream])
        return decoded(unblanked(aside, hears.unread))

    def ending(self) -> Ending | None:
        """Where and why the job ends, if it does."""
        return self.through.ending

    def ended(self, now: int | None) -> str:
        """Why the job has ended by now, if it has."""
        ending = self.ending()
        return ending.reason if ending is not None and ending.reached(now) else ""

    @property
    def state(self) -> AccentSnapshot:
        """What is kept between batches."""
        return AccentSnapshot(self.streams, self.through, self.closing)

    @property
    def kept(self) -> AccentSnapshot | None:
        """What is kept between batches, if the job follows any accents."""
        return self.state if self.predictor.hears else None

    # -- what is not needed any more ------------------------------------------------------------------------

    def watermark(self, now: int, lateness: int) -> int:
        """Before which nothing comes any more: by event time, or as punctuation of all streams says."""
        late = now - lateness
        said = [
            max(late, min(now, self.streams[name].until(self._time(name)))) if name in self.streams else late
            for name in self.predictor.specs
        ]
        return min(said, default=late)

    def settle(self, now: int | None, watermark: int | None, validators: Mapping[str, Validator]) -> None:
        """After a batch: let go of what no tuple and no result can need any more, of closed keys all that validators know."""
        if not self.predictor.hears:
            return
        for name, one in self.streams.items():
            keys = self.predictor.specs[name].schema.key_names
            new = of_keys(together([where for _, where in one.closing]), keys)
            if now is not None and not new.is_empty and (names := self._answer_names(name)) is not None:
                self.closing.append((now, described(new, names)))
            self._pass_by(name)
            if name in validators:
                one.free(validators[name], keys, keep=name in self.predictor.retentions)
        if watermark is None:
            return
        horizon = watermark - reach(self.predictor)
        for name, one in self.streams.items():
            one.settle(horizon, self._time(name), self.predictor.hears[name].column is not None)
        size = self.through.size
        self.through.settle(self.predictor, horizon)
        passed = [where for until, where in self.closing if until <= horizon]
        if passed:
            self.through.forget(together(passed))
            self.closing = [pair for pair in self.closing if pair[0] > horizon]
        if self.through.size != size or passed:
            self.restating = self.through.restating(self._answer_time)

    def _pass_by(self, stream: str) -> None:
        keys = self.predictor.specs[stream].schema.key_names
        self.streams[stream].pass_by(self.predictor.hears[stream].column is not None, keys)

    def _answer_names(self, stream: str) -> Mapping[str, str] | None:
        """What the answer calls a stream's keys; None where they are lost, or more than one key is behind a row."""
        standing = self.predictor.standing
        leaves = [leaf for leaf in scans(standing.query.plan) if leaf.stream == stream]
        found: dict[str, str] = {}
        for leaf in leaves:
            for name in self.predictor.specs[stream].schema.key_names:
                out = followed(standing.query.plan, f"{leaf.alias}.{name}")
                if out is None or found.setdefault(name, out) != out:
                    return None
        return found if standing.treats_keys_apart else None

    # -- accents --------------------------------------------------------------------------------------------

    def _take(
        self, stream: str, said: Sequence[tuple[int, int | None, str]], table: pa.Table | None
    ) -> tuple[list[Control], list[pa.Table]]:
        """What is said, each with its place, instant and text: what was taken, and the rest with reasons, as rows."""
        if not said:
            return [], []
        time, inside, one = self._time(stream), table is not None, self.streams[stream]
        parsed: list[tuple[int, Control]] = []
        bad: list[pa.Table] = []
        last = BEFORE_ALL if one.last is None else one.last
        for place, at, text in said:
            try:
                control = of_row(text, at, time, last) if inside else of_line(text, time, last)
            except PulseError as e:
                bad.append(_aside(table, place, text, str(e)))
                continue
            if control is not None:
                last = max(last, control.position)
                parsed.append((place, control))
        hears, schema = self.predictor.hears[stream], self.predictor.specs[stream].schema
        places = [place for place, _ in parsed] if inside else None
        try:
            return one.take([control for _, control in parsed], places, hears, schema), bad
        except PulseError:
            taken: list[Control] = []
        texts = {place: text for place, _, text in said}
        for place, control in parsed:
            try:
                taken += one.take([control], [place] if inside else None, hears, schema)
            except PulseError as e:
                bad.append(_aside(table, place, texts[place], str(e)))
        return taken, bad

    def _ignores(self, stream: str, control: Control) -> bool:
        policy = self.predictor.hears[stream].policy
        return isinstance(control, Accent) and policy.choice(control) == "ignore"

    def _keys(self, stream: str) -> tuple[str, ...]:
        """Key columns that are told by codes; a history keeps tuples as they came."""
        return () if stream in self.predictor.retentions else self.predictor.specs[stream].schema.key_names

    def _time(self, stream: str) -> str:
        return self.predictor.specs[stream].schema.time

    @property
    def _answer_time(self) -> str:
        return self.predictor.standing.query.plan.columns.time

    # -- tuples ---------------------------------------------------------------------------------------------

    def _fitted(
        self, stream: str, table: pa.Table, rows: IntArray | None
    ) -> tuple[pa.Table, pa.Table, list[pa.Table]]:
        """Tuples as they came and in first units, and those that contradict what was said. ``rows``: their places, if accents
        are among them."""
        one, hears, time = self.streams[stream], self.predictor.hears[stream], self._time(stream)
        by = time if hears.column is None else ROW
        if by == time and len(one):
            at = instants(table.column(time))
        else:
            at = np.zeros(table.num_rows, np.int64) if rows is None else rows
        place = [PLACE] if len(one) else []
        if place:
            table = numbered(encoded(table, self._keys(stream)))
        fitting = one.fitting(table, at, by, hears, self.predictor.specs[stream].schema)
        others = [name for name, _ in hears.others if name in table.column_names]
        if not others and not place:
            return fitting.came, fitting.undone, fitting.aside
        came, *aside = (part.drop_columns([*others, *place]) for part in (fitting.came, *fitting.aside))
        return came, fitting.undone.drop_columns(others), aside


def reach(predictor: Predictor) -> int:
    """How far behind the watermark a tuple or a result may lie that is still to come: a key that was not heard of for long is
    forgotten once its model has expired, and results reach back over windows and the history that is kept."""
    longest = max((one.horizon for one in predictor.specs.values()), default=0)
    return longest + predictor.standing.radius + anchored_behind(predictor) + 2 * GRACE


def follow(
    prediction: Prediction, follower: Follower, heard: DecodedBatch, watermark: int | None = None
) -> Emission:
    """Push a batch that was heard; what it changes, in the units in force."""
    assert prediction.state is not None
    held = prediction.state.results
    emission = prediction.push(heard.tables, watermark, heard.drops, heard.shifts)
    if not follower.predictor.hears:
        return emission
    changes = follower.said(heard, held, prediction.state.results, emission.changes)
    return replace(emission, changes=changes, **with_aside(emission, follower, heard, changes.num_rows))


def with_aside(emission: Emission, follower: Follower, heard: DecodedBatch, changes: int) -> dict[str, Any]:
    """Tuples and accents that were set aside, and the figures with them."""
    aside = {stream: follower.told(stream, one, heard) for stream, one in emission.aside.items()}
    more = 0
    for stream, table in heard.all_aside().items():
        both = [aside[stream], table] if stream in aside else [table]
        aside[stream] = pa.concat_tables(both, promote_options="permissive")
        more += table.num_rows
    tuples = emission.tally.tuples + sum(one.num_rows for one in heard.refused.values())
    tally = replace(
        emission.tally, changes=changes, aside=emission.tally.aside + more, accents=heard.count, tuples=tuples
    )
    return {"aside": aside, "tally": tally}


def _aside(table: pa.Table | None, place: int, text: str, reason: str) -> pa.Table:
    row = pa.table({"accent": [text]}) if table is None else table.slice(place, 1)
    return row.append_column("reason", pa.array([reason]))

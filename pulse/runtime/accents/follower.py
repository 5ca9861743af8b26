"""Follow accents in a prediction (semantics 8): schema and units change while a continuous query runs.

::

    tuples, accents ──rebased──> base units: validators, continuous query ──changes──> output units, in force at each instant
                         ^                                                       ^
                         └──── the accents so far, and their propagation through the plan

Models, bounds, state and results at rest stay in base units, those of the stream's start; no accent changes them. Emitted changes
are converted to output units. When an accent arrives, emitted results of its time and later are retracted and emitted in the new
units: the difference of the results at rest in the old and the new output units. The output depends only on the accents, not on
how they are split into batches.

An accent in the stream's own rows describes the rows after it, and results from its own time on. One in a log beside the stream
describes the tuples from its instant on that arrive after it was read (8.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.errors import PulseError
from pulse.core.time import EARLIEST
from pulse.operators.data.relation import Relation
from pulse.operators.data.tuple_columns import instants
from pulse.operators.relational.scan import scans
from pulse.operators.units.key_ends import Drops
from pulse.plan.accents.derived import described
from pulse.runtime.accents.admission import parse_line, parse_row
from pulse.runtime.accents.output_units import changes_in_output_units
from pulse.runtime.accents.propagation import AccentPropagation, Ending
from pulse.runtime.accents.query_units import OutputUnits, QueryAbortedError
from pulse.runtime.accents.rounding import Shifts
from pulse.runtime.accents.row_splitter import split_controls
from pulse.runtime.accents.stream_state import ROW, AccentState, of_keys
from pulse.runtime.accents.tuple_columns import (
    blank_unread,
    decode_keys,
    encode_keys,
    null_unread,
    restore_recorded,
    with_places,
)
from pulse.runtime.incremental.continuous_query import RETENTION_MARGIN, followed
from pulse.runtime.predict.tuple_history import anchored_behind
from pulse.stream.accents.accents import Accent, Control
from pulse.stream.descriptions.description import Description, any_of
from pulse.validation.online.rejects import PLACE

if TYPE_CHECKING:
    from pulse.runtime.predict.spec import Predictor
    from pulse.validation.online.validator import Validator


class AccentSnapshot(NamedTuple):
    """The accent state kept between batches; everything derived from it, such as the maps to base units, is rebuilt."""

    streams: dict[str, AccentState]
    propagation: AccentPropagation
    closing: list[tuple[int, Description]]


class JobAbortedError(QueryAbortedError):
    """A job met an accent after which its query cannot continue; its results of earlier times stay valid."""


@dataclass(frozen=True)
class DecodedBatch:
    """A batch without its accents: tuples that were not excluded, with times in base units (``came``), those that can be modelled
    in base units (``tables``), rejected accents by stream (``aside``), the ``count`` of admitted accents and punctuations, and
    the output units ``before`` them."""

    came: Mapping[str, pa.Table]
    tables: Mapping[str, pa.Table]
    aside: Mapping[str, pa.Table]
    count: int = 0
    before: OutputUnits | None = None
    refused: Mapping[str, pa.Table] = field(default_factory=dict)  # rejected tuples: each place has its own
    recorded: Mapping[str, pa.Table] = field(default_factory=dict)  # tuples before their conversion
    drops: Mapping[str, Drops] = field(default_factory=dict)  # after which keys have no model
    shifts: Shifts = field(default_factory=dict)  # the largest that converted tuples so far

    def for_place(self, place: int) -> DecodedBatch:
        """Keep the rejected accents and their count at place 0 only: all places receive the same accents."""
        return self if place == 0 else replace(self, aside={}, count=0)

    def all_aside(self) -> dict[str, pa.Table]:
        """Rejected accents and tuples, by stream."""
        found: dict[str, pa.Table] = dict(self.aside)
        for stream, table in self.refused.items():
            both = [found[stream], table] if stream in found else [table]
            found[stream] = pa.concat_tables(both, promote_options="permissive")
        return found


@dataclass
class Follower:
    """The accents so far by stream, and the output units they imply. Picklable; the same accents give the same follower.

    Built from a predictor, and from an earlier :attr:`state` after a restart.
    """

    predictor: Predictor
    streams: dict[str, AccentState] = field(default_factory=dict)
    propagation: AccentPropagation = field(default_factory=AccentPropagation)
    # Closed rows of the answer, and until when they are needed.
    closing: list[tuple[int, Description]] = field(default_factory=list)
    output_units: OutputUnits | None = field(init=False)

    def __post_init__(self) -> None:
        self.output_units = self.propagation.output_units(self._answer_time)
        for name, options in self.predictor.accent_options.items():
            self.streams.setdefault(name, AccentState.of(options))

    def decode(
        self, tables: Mapping[str, pa.Table], lines: Mapping[str, Sequence[str]] | None = None
    ) -> DecodedBatch:
        """Decode a batch: admit new lines of logs, then accents among the rows, and convert the tuples to base units."""
        if not self.predictor.accent_options:
            return DecodedBatch(tables, tables, {})
        before, count, new = self.output_units, 0, list[tuple[str, Control]]()
        came, found = dict(tables), dict(tables)
        aside: dict[str, pa.Table] = {}
        refused: dict[str, pa.Table] = {}
        recorded: dict[str, pa.Table] = {}
        for stream, options in self.predictor.accent_options.items():
            self._carry_over(stream)
            rows: IntArray | None = None
            bad: list[pa.Table] = []
            taken: list[Control] = []
            if options.column is None:
                logged = [(i, None, line) for i, line in enumerate((lines or {}).get(stream, ()))]
                taken, bad = self._admit(stream, logged, None)
            elif stream in tables and options.column in tables[stream].column_names:
                table = tables[stream]
                came[stream], rows, texts = split_controls(
                    table, options.column, self._time(stream), self._encoded_keys(stream)
                )
                taken, bad = self._admit(stream, texts, table)
            new += [(stream, one) for one in taken]
            count += len(taken)
            if bad:
                aside[stream] = decode_keys(pa.concat_tables(bad, promote_options="permissive"))
            if stream in came:
                recorded[stream] = came[stream]
                came[stream], found[stream], unfit = self._rebase(stream, came[stream], rows)
                if unfit:
                    refused[stream] = decode_keys(pa.concat_tables(unfit, promote_options="permissive"))
        evolving = [pair for pair in new if not self._ignores(*pair)]
        if evolving:
            self.propagation.add(self.predictor, evolving)
            self.output_units = self.propagation.output_units(self._answer_time)
        drops = {}
        for name, one in self.streams.items():
            time, keys = self._time(name), self.predictor.specs[name].schema.key_names
            ends = Drops(one.gaps(time), one.ends(keys, time))
            if ends.gaps or ends.closed:
                drops[name] = ends
        shifts = {name: one.shifts for name, one in self.streams.items() if one.shifts}
        return DecodedBatch(came, found, aside, count, before, refused, recorded, drops, shifts)

    def emit(self, decoded: DecodedBatch, held: Relation, after: Relation, changes: pa.Table) -> pa.Table:
        """Convert changes to output units; ``held`` and ``after`` are the results at rest before and after them."""
        return changes_in_output_units(
            self.predictor.continuous, (decoded.before, self.output_units), (held, after), changes
        )

    def as_recorded(self, stream: str, aside: pa.Table, decoded: DecodedBatch) -> pa.Table:
        """Restore a validator's rejects to their recorded values, with nulls for attributes that the query does not read."""
        options = self.predictor.accent_options.get(stream)
        if options is None:
            return decode_keys(aside)
        if stream in decoded.recorded:
            aside = restore_recorded(aside, decoded.recorded[stream])
        return decode_keys(null_unread(aside, options.unread))

    def ending(self) -> Ending | None:
        """The instant and reason of the job's end; None if it continues."""
        return self.propagation.ending

    def ended(self, now: int | None) -> str:
        """The reason if the job has ended by ``now``, else empty."""
        ending = self.ending()
        return ending.reason if ending is not None and ending.reached(now) else ""

    @property
    def state(self) -> AccentSnapshot:
        """The state kept between batches."""
        return AccentSnapshot(self.streams, self.propagation, self.closing)

    @property
    def snapshot(self) -> AccentSnapshot | None:
        """The state kept between batches; None if the job follows no accents."""
        return self.state if self.predictor.accent_options else None

    # -- freeing state --------------------------------------------------------------------------------------

    def watermark(self, now: int, lateness: int) -> int:
        """The instant before which no tuple is expected: by event time, or later if punctuation of all streams allows."""
        late = now - lateness
        found = [
            max(late, min(now, self.streams[name].closed_until(self._time(name))))
            if name in self.streams
            else late
            for name in self.predictor.specs
        ]
        return min(found, default=late)

    def settle(self, now: int | None, watermark: int | None, validators: Mapping[str, Validator]) -> None:
        """Free, after a batch, state that no later tuple or result needs, and the validators' state of closed keys."""
        if not self.predictor.accent_options:
            return
        for name, one in self.streams.items():
            keys = self.predictor.specs[name].schema.key_names
            new = of_keys(any_of([where for _, where in one.closing]), keys)
            if now is not None and not new.is_empty and (names := self._answer_names(name)) is not None:
                self.closing.append((now, described(new, names)))
            self._carry_over(name)
            if name in validators:
                one.free(validators[name], keys, keep=name in self.predictor.retentions)
        if watermark is None:
            return
        horizon = watermark - reach_behind(self.predictor)
        for name, one in self.streams.items():
            one.compact(horizon, self._time(name), self.predictor.accent_options[name].column is not None)
        size = self.propagation.size
        self.propagation.compact(self.predictor, horizon)
        passed = [where for until, where in self.closing if until <= horizon]
        if passed:
            self.propagation.output.forget(any_of(passed))
            self.closing = [pair for pair in self.closing if pair[0] > horizon]
        if self.propagation.size != size or passed:
            self.output_units = self.propagation.output_units(self._answer_time)

    def _carry_over(self, stream: str) -> None:
        keys = self.predictor.specs[stream].schema.key_names
        self.streams[stream].carry_over(self.predictor.accent_options[stream].column is not None, keys)

    def _answer_names(self, stream: str) -> Mapping[str, str] | None:
        """The answer's names of a stream's key columns; None if some are lost or a row depends on more than one key."""
        query = self.predictor.continuous
        leaves = [leaf for leaf in scans(query.query.plan) if leaf.stream == stream]
        found: dict[str, str] = {}
        for leaf in leaves:
            for name in self.predictor.specs[stream].schema.key_names:
                out = followed(query.query.plan, f"{leaf.alias}.{name}")
                if out is None or found.setdefault(name, out) != out:
                    return None
        return found if query.separates_keys else None

    # -- accents --------------------------------------------------------------------------------------------

    def _admit(
        self, stream: str, texts: Sequence[tuple[int, int | None, str]], table: pa.Table | None
    ) -> tuple[list[Control], list[pa.Table]]:
        """Parse and admit texts, each with its place and instant; return the controls, and the rejects as rows with reasons."""
        if not texts:
            return [], []
        time, inside, one = self._time(stream), table is not None, self.streams[stream]
        parsed: list[tuple[int, Control]] = []
        bad: list[pa.Table] = []
        last = EARLIEST if one.last is None else one.last
        for place, at, text in texts:
            try:
                control = parse_row(text, at, time, last) if inside else parse_line(text, time, last)
            except PulseError as e:
                bad.append(_aside(table, place, text, str(e)))
                continue
            if control is not None:
                last = max(last, control.position)
                parsed.append((place, control))
        options, schema = self.predictor.accent_options[stream], self.predictor.specs[stream].schema
        places = [place for place, _ in parsed] if inside else None
        try:
            return one.take([control for _, control in parsed], places, options, schema), bad
        except PulseError:
            taken: list[Control] = []
        text_at = {place: text for place, _, text in texts}
        for place, control in parsed:
            try:
                taken += one.take([control], [place] if inside else None, options, schema)
            except PulseError as e:
                bad.append(_aside(table, place, text_at[place], str(e)))
        return taken, bad

    def _ignores(self, stream: str, control: Control) -> bool:
        policy = self.predictor.accent_options[stream].policy
        return isinstance(control, Accent) and policy.choice(control) == "ignore"

    def _encoded_keys(self, stream: str) -> tuple[str, ...]:
        """Key columns to dictionary-encode; none for a stream with a history, which keeps tuples as recorded."""
        return () if stream in self.predictor.retentions else self.predictor.specs[stream].schema.key_names

    def _time(self, stream: str) -> str:
        return self.predictor.specs[stream].schema.time

    @property
    def _answer_time(self) -> str:
        return self.predictor.continuous.query.plan.columns.time

    # -- tuples ---------------------------------------------------------------------------------------------

    def _rebase(
        self, stream: str, table: pa.Table, rows: IntArray | None
    ) -> tuple[pa.Table, pa.Table, list[pa.Table]]:
        """The tuples as recorded and in base units, and rejects with reasons.

        ``rows`` are the tuples' places, if accents are among them.
        """
        one, options, time = self.streams[stream], self.predictor.accent_options[stream], self._time(stream)
        schema = self.predictor.specs[stream].schema
        others = [name for name, _ in options.others if name in table.column_names]
        if one.is_idle(options):
            table = table.drop_columns(others) if others else table
            return table, blank_unread(table, options.unread), []
        by, at = ROW, np.zeros(table.num_rows, np.int64) if rows is None else rows
        if options.column is None:
            by, at = time, instants(table.column(time))
        table = with_places(encode_keys(table, self._encoded_keys(stream)))
        found = one.rebase(table, at, by, options, schema)
        came, *aside = (part.drop_columns([*others, PLACE]) for part in (found.came, *found.aside))
        return came, found.rebased.drop_columns(others), aside


def reach_behind(predictor: Predictor) -> int:
    """The distance behind the watermark, in microseconds, at which a tuple or result may still occur.

    A silent key is freed once its model has expired; results extend back over windows and retained histories.
    """
    longest = max((one.horizon for one in predictor.specs.values()), default=0)
    return longest + predictor.continuous.radius + anchored_behind(predictor) + 2 * RETENTION_MARGIN


def _aside(table: pa.Table | None, place: int, text: str, reason: str) -> pa.Table:
    row = pa.table({"accent": [text]}) if table is None else table.slice(place, 1)
    return row.append_column("reason", pa.array([reason]))

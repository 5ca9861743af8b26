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

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import IntArray
from pulse.core.errors import PulseError
from pulse.core.expression import columns_of
from pulse.operators.alter import Alter, Cease
from pulse.operators.relation import Relation
from pulse.plan.accented import Accented, accented
from pulse.runtime.accents import QueryAbortedError, Restating
from pulse.runtime.predictive_restated import instants, restated_changes
from pulse.runtime.predictive_undoing import TupleUndoing, blank
from pulse.stream.accents import (
    Accent,
    AccentError,
    Control,
    DropAttribute,
    control_from_json,
)
from pulse.stream.description import TRUE
from pulse.stream.log import AccentLog
from pulse.stream.policy import Policy

if TYPE_CHECKING:
    from pulse.runtime.predictor import Emission, Prediction, Predictor


class JobAbortedError(QueryAbortedError):
    """A job met an accent that its query cannot go on after; what it said of earlier times stays."""


@dataclass(frozen=True)
class Hears:
    """How a stream's accents come: in a ``column`` of its rows, else from a log. ``attributes`` are all that its data has,
    ``unread`` those of its models that the query does not read."""

    column: str | None = None
    policy: Policy = field(default_factory=Policy)
    attributes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        predictor: Predictor,
        stream: str,
        column: str | None,
        policy: Policy,
        attributes: Collection[str],
    ) -> Hears:
        """With what the query does not read found out."""
        spec = predictor.specs[stream]
        formed = {name for _, formula in spec.models for name in columns_of(formula)}
        unread = tuple(
            name
            for name in spec.schema.modelled_names
            if name not in formed and not _reads(predictor, stream, name)
        )
        return cls(column, policy, tuple(attributes), unread)


@dataclass(frozen=True)
class Heard:
    """A batch without its accents: as it came, and in first units; accents set aside by stream, how many were taken, and the
    restating before them."""

    came: Mapping[str, pa.Table]
    tables: Mapping[str, pa.Table]
    aside: Mapping[str, pa.Table]
    count: int = 0
    before: Restating | None = None

    def told_by(self, place: int) -> Heard:
        """What one place of many says of accents: they all hear the same, and the first one tells."""
        return self if place == 0 else replace(self, aside={}, count=0)


class Ending(NamedTuple):
    """The instant at which a job ends, why, and whether the accent is in the stream itself: then it ends where that stands."""

    end: int
    reason: str
    inside: bool

    def reached(self, now: int | None) -> bool:
        """Whether event time has come there."""
        return self.inside or (now is not None and now >= self.end)


@dataclass
class Follower:
    """The accents heard so far by stream, and what they do to results. Picklable; the same accents give the same follower."""

    predictor: Predictor
    logs: dict[str, AccentLog] = field(default_factory=dict)
    restating: Restating | None = None
    undoing: dict[str, TupleUndoing] = field(default_factory=dict, repr=False)  # for rows after all accents

    def hear(self, tables: Mapping[str, pa.Table], lines: Mapping[str, Sequence[str]] | None = None) -> Heard:
        """Take a batch's rows, and lines that logs have gained: those are heard before the rows."""
        if not self.predictor.hears:
            return Heard(tables, tables, {})
        before, count = self.restating, 0
        came, found = dict(tables), dict(tables)
        aside: dict[str, pa.Table] = {}
        for stream, hears in self.predictor.hears.items():
            known = len(self.logs.get(stream, ()))
            places: list[int] = []
            bad: list[pa.Table] = []
            if hears.column is None:
                said = list((lines or {}).get(stream, ()))
                _, bad = self._take(stream, [(i, None, line) for i, line in enumerate(said)], None)
            elif stream in tables and hears.column in tables[stream].column_names:
                data, said_rows = _apart(tables[stream], hears.column, self._time(stream))
                places, bad = self._take(stream, said_rows, tables[stream])
                came[stream] = found[stream] = data.drop_columns([hears.column])
                rows = data_rows(tables[stream], hears.column)
            if bad:
                aside[stream] = pa.concat_tables(bad, promote_options="permissive")
            count += len(self.logs.get(stream, ())) - known
            if stream in found:
                at = None if hears.column is None else (rows, known, places)
                found[stream] = self._undone(stream, found[stream], at)
        return Heard(came, found, aside, count, before)

    def said(self, heard: Heard, held: Relation, after: Relation, changes: pa.Table) -> pa.Table:
        """Changes in the units in force; ``held`` and ``after`` are the results at rest before and after them."""
        return restated_changes(
            self.predictor.standing, (heard.before, self.restating), (held, after), changes
        )

    def ending(self) -> Ending | None:
        """Where and why the job ends, if it does."""
        if self.restating is None or self.restating.end is None:
            return None
        end = self.restating.end
        inside = any(
            one.position == end
            for stream, log in self.logs.items()
            if self.predictor.hears[stream].column is not None
            for one in log.controls
        )
        return Ending(end, self.restating.reason, inside)

    def ended(self, now: int | None) -> str:
        """Why the job has ended by now, if it has."""
        ending = self.ending()
        return ending.reason if ending is not None and ending.reached(now) else ""

    @property
    def state(self) -> tuple[dict[str, AccentLog], Restating | None, dict[str, TupleUndoing]]:
        """What is kept between batches."""
        return self.logs, self.restating, self.undoing

    # -- accents --------------------------------------------------------------------------------------------

    def _take(
        self, stream: str, said: list[tuple[int, int | None, str]], table: pa.Table | None
    ) -> tuple[list[int], list[pa.Table]]:
        """Add what is said, each with its place, instant and text, to the log. The places of what was taken, and the rest with
        reasons, as rows."""
        if not said:
            return [], []
        taken: list[tuple[int, Control]] = []
        bad: list[pa.Table] = []
        for place, at, text in said:
            try:
                taken += [(place, one) for one in _controls(text, at, table is not None, self._time(stream))]
            except PulseError as e:
                bad.append(_aside(table, place, text, str(e)))
        texts = {place: text for place, _, text in said}
        try:
            self._add(stream, [one for _, one in taken], table is not None)
            return [place for place, _ in taken], bad
        except PulseError:
            places = []
        for place, one in taken:
            try:
                self._add(stream, [one], table is not None)
                places.append(place)
            except PulseError as e:
                bad.append(_aside(table, place, texts[place], str(e)))
        return places, bad

    def _add(self, stream: str, controls: list[Control], inside: bool) -> None:
        """Add controls to the log, or raise what is wrong with one and leave all as it is."""
        if not controls:
            return
        log = self.logs.get(stream, AccentLog(()))
        last = log.controls[-1].position if log.controls else None
        for one in controls if inside else ():
            if last is not None and one.position < last:
                raise AccentError(f"{one}: its time is before that of the accent before it")
            last = one.position
        hears = self.predictor.hears[stream]
        schema = self.predictor.specs[stream].schema
        more = AccentLog.of(controls, lines=[f"stream {stream}"] * len(controls))
        logs = {**self.logs, stream: (log + more).checked(schema, hears.attributes)}
        found = _followed(self.predictor, logs)
        self.logs = logs
        self.restating = (
            None
            if found.is_empty
            else Restating(Alter(found.steps()), Cease(found.ends()), found.aborted_at, found.reason)
        )

    def _time(self, stream: str) -> str:
        return self.predictor.specs[stream].schema.time

    # -- tuples ---------------------------------------------------------------------------------------------

    def _undone(self, stream: str, table: pa.Table, at: tuple[IntArray, int, list[int]] | None) -> pa.Table:
        """Tuples in first units. ``at``: the places of the rows, how many accents came before, the places of the others."""
        log, hears = self.logs.get(stream), self.predictor.hears[stream]
        if log is not None and log.accents and table.num_rows:
            time = self._time(stream)
            rows = instants(table.column(time)) if at is None else at[0]
            new = [] if at is None else at[2]
            if new or stream not in self.undoing or self.undoing[stream].count != len(log):
                since = None if at is None else [-1] * at[1] + new
                self.undoing[stream] = TupleUndoing.of(log, hears.policy, time, since)
            table = self.undoing[stream].tuples(table, rows, hears.unread)
            if new:
                del self.undoing[stream]  # from now on they all come before
        return blank(table, hears.unread)


def follow(prediction: Prediction, follower: Follower, heard: Heard) -> Emission:
    """Push a batch that was heard; what it changes, in the units in force."""
    assert prediction.state is not None
    held = prediction.state.results
    emission = prediction.push(heard.tables)
    if not follower.predictor.hears:
        return emission
    changes = follower.said(heard, held, prediction.state.results, emission.changes)
    return replace(emission, changes=changes, **with_aside(emission, heard, changes.num_rows))


def with_aside(emission: Emission, heard: Heard, changes: int) -> dict[str, Any]:
    """Tuples and accents that were set aside, and the figures with them."""
    aside = dict(emission.aside)
    for stream, table in heard.aside.items():
        both = [aside[stream], table] if stream in aside else [table]
        aside[stream] = pa.concat_tables(both, promote_options="permissive")
    more = sum(one.num_rows for one in heard.aside.values())
    tally = replace(emission.tally, changes=changes, aside=emission.tally.aside + more, accents=heard.count)
    return {"aside": aside, "tally": tally}


def _followed(predictor: Predictor, logs: Mapping[str, AccentLog]) -> Accented:
    policies = {name: predictor.hears[name].policy for name in logs}
    return accented(predictor.standing.query.plan, logs, policies=policies)


def _reads(predictor: Predictor, stream: str, name: str) -> bool:
    """Whether the query's answer depends on an attribute: whether dropping it would come out, or end the query."""
    drop = Accent(position=0, description=TRUE, primitive=DropAttribute(name))
    found = accented(predictor.standing.query.plan, {stream: AccentLog.of([drop])}, told=True)
    return any(one.passed or one.aborts for one in found.fates)


def _controls(text: str, at: int | None, inside: bool, time: str) -> Collection[Control]:
    """What a line of a log, or the text of a row with its time, says; remarks and empty lines say nothing."""
    if not inside:
        return AccentLog.parse([text], where="log", times=[time]).controls
    if at is None:
        raise AccentError(
            f"accent {text!r}: expected the time from which results are in the new units, got a row without one"
        )
    value: Any = text
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except json.JSONDecodeError as e:
            raise AccentError(f"accent: expected an object of JSON, got {text!r} ({e.msg})") from None
        value.setdefault("position", at)
    return (control_from_json(value, position=at, times=[time]),)


def _apart(table: pa.Table, column: str, time: str) -> tuple[pa.Table, list[tuple[int, int | None, str]]]:
    """The data of a batch, and its accents with their places and times."""
    rows = data_rows(table, column)
    if len(rows) == table.num_rows:
        return table, []
    places = np.setdiff1d(np.arange(table.num_rows), rows)
    said = table.take(pa.array(places))
    at = instants(said.column(time))
    missing = said.column(time).is_null().to_pylist()
    return table.take(pa.array(rows)), [
        (int(place), None if null else int(t), str(text))
        for place, t, null, text in zip(places, at, missing, said.column(column).to_pylist(), strict=True)
    ]


def data_rows(table: pa.Table, column: str) -> IntArray:
    """The rows that are no accents."""
    found = table.column(column)
    if pa.types.is_null(found.type):
        return np.arange(table.num_rows)
    null = pc.or_(
        found.is_null(), pc.fill_null(pc.equal(pc.utf8_trim_whitespace(found.cast(pa.string())), ""), True)
    )
    return np.flatnonzero(null.to_numpy())


def _aside(table: pa.Table | None, place: int, text: str, reason: str) -> pa.Table:
    row = pa.table({"accent": [text]}) if table is None else table.slice(place, 1)
    return row.append_column("reason", pa.array([reason]))

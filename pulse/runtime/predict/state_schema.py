"""Layouts of a job's state and of the messages between its stages, and checks of state against the job.

The predictor (specs, plans, columns) is not stored: state is checked against it on reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import pyarrow as pa

from pulse.core.arrays import FloatArray
from pulse.core.encoding.codec import StateEncodingError, refused
from pulse.core.encoding.types import Registered, form_of
from pulse.operators.inversion.needs import TUPLE_RATE
from pulse.runtime.accents.follower import AccentSnapshot
from pulse.runtime.accents.propagation import Ending
from pulse.runtime.incremental.continuous_query import ContinuousQueryState
from pulse.runtime.jobs.alerts import Alerts
from pulse.runtime.predict.spatial_partitioning import CellRegistry, Key, KeyNotice, Range
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.state_registry import REGISTRY
from pulse.runtime.predict.status import Tally
from pulse.runtime.predict.tuple_history import Packed
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.online.validator import ValidatorState
from pulse.validation.revisions.history import HistorySnapshot
from pulse.validation.revisions.tuple_log import ChunkSnapshot

Rates = tuple[tuple[pa.Array, ...], Mapping[str, FloatArray]]
"""Keys, and the volatility of each by attribute."""


@dataclass(frozen=True, kw_only=True)
class StageState:
    """The state of one place between batches: the newest event time and the accents so far; a stage adds its own parts."""

    now: int | None
    accents: AccentSnapshot | None


@dataclass(frozen=True, kw_only=True)
class ValidateState(StageState):
    """The validators of a bucket, and the histories of streams that may be revised."""

    validators: dict[str, ValidatorState]
    histories: dict[str, HistorySnapshot]


@dataclass(frozen=True, kw_only=True)
class SingleState(ValidateState):
    """A whole prediction."""

    state: ContinuousQueryState
    allotted: dict[str, Allotment]
    tally: Tally


@dataclass(frozen=True, kw_only=True)
class BoundedState(ValidateState):
    """The validators of a bucket, and the batch whose bounds they have."""

    bounds_of: int


@dataclass(frozen=True, kw_only=True)
class RouteState(ValidateState):
    """The validators of a bucket, and the cells of its keys."""

    registry: CellRegistry


@dataclass(frozen=True, kw_only=True)
class SolveState(StageState):
    """The continuous query of all keys, the bounds allotted to them, and their volatility by stream and bucket."""

    state: ContinuousQueryState
    allotted: dict[str, Allotment]
    rates: dict[tuple[str, int], Rates]


@dataclass(frozen=True, kw_only=True)
class PairState(StageState):
    """The pairs of a place, and the cells of their keys."""

    state: ContinuousQueryState
    ranges: dict[str, dict[Key, Range]]


class Checkpoint(NamedTuple):
    """The state of a local job: the number of the next batch, the files of earlier ones, and the prediction."""

    batch: int
    seen: dict[str, list[str]]
    prediction: SingleState
    read: dict[str, int]  # positions reached in accent logs


_ALL = (
    *REGISTRY,
    Registered("single", SingleState),
    Registered("validate", BoundedState),
    Registered("route", RouteState),
    Registered("solve", SolveState),
    Registered("pair", PairState),
    Registered("checkpoint", Checkpoint),
)

CHECKPOINT = form_of("checkpoint", Checkpoint, _ALL)
SINGLE = form_of("single", SingleState, _ALL)
VALIDATE = form_of("validate", BoundedState, _ALL)
ROUTE = form_of("route", RouteState, _ALL)
SOLVE = form_of("solve", SolveState, _ALL)
PAIR = form_of("pair", PairState, _ALL)
CHUNK = form_of("chunk", ChunkSnapshot, _ALL)
UPDATES = form_of("updates", tuple[int, bytes, Rates | None, Packed | None], _ALL)
MOVES = form_of("moves", tuple[int, bytes, tuple[KeyNotice, ...]], _ALL)
ACCENTS = form_of("accents", AccentSnapshot, _ALL)
BOUNDS = form_of("bounds", dict[str, Allotment], _ALL)
ENDING = form_of("ending", Ending, _ALL)
ALERTS = form_of("alerts", Alerts, _ALL)


def check_state(predictor: Predictor, saved: StageState) -> None:
    """Check the parts of a state against the job; validators and histories check the rest when they are restored."""
    for one in fields(saved):
        if one.name in _CHECKS:
            _CHECKS[one.name](predictor, getattr(saved, one.name))


def check_registry(predictor: Predictor, registry: CellRegistry) -> None:
    """Check that segments have the columns of the job's streams."""
    columns = predictor.continuous.columns
    for stream, one in registry.held.items():
        if stream not in columns or one.columns != columns[stream]:
            raise refused(f"cell registry.{stream}", f"segments of {', '.join(columns)}", "other columns")


def check_query_state(predictor: Predictor, state: ContinuousQueryState) -> None:
    """Check that segments and results have the columns of the job's query."""
    query = predictor.continuous
    check_streams(state.streams, query.columns, "streams")
    every = [(name, state.streams[name], columns) for name, columns in query.columns.items()]
    for name, relation, columns in [*every, ("results", state.results, query.plan.columns)]:
        if relation.columns != columns:
            raise refused(name, f"segments of {', '.join(columns.names)}", ", ".join(relation.columns.names))


def check_allotted(predictor: Predictor, allotted: Mapping[str, Allotment]) -> None:
    """Check that bounds are of the job's streams and that keys have their types."""
    for stream, one in allotted.items():
        if stream not in predictor.specs or one.stream != stream:
            raise refused("bounds", f"bounds of {', '.join(predictor.specs)}", stream)
        if [key.type for key in one.keys] != [type_ for _, type_ in predictor.specs[stream].schema.key]:
            raise refused("bounds", f"bounds of keys of stream {stream}", "keys of other types")


def check_rates(predictor: Predictor, rates: Mapping[tuple[str, int], Rates]) -> None:
    """Check that volatilities are of the job's streams, one per key and attribute."""
    for (stream, _), (keys, found) in rates.items():
        if stream not in predictor.specs:
            raise refused("rates", f"those of {', '.join(predictor.specs)}", stream)
        schema = predictor.specs[stream].schema
        if [key.type for key in keys] != [type_ for _, type_ in schema.key]:
            raise refused("rates", f"those of keys of stream {stream}", "keys of other types")
        sizes = {len(one) for one in keys} | {one.size for one in found.values()}
        if set(found) != {*schema.modelled_names, TUPLE_RATE} or len(sizes) > 1:
            raise refused("rates", f"one of each key and attribute of stream {stream}", ", ".join(found))


def check_accents(predictor: Predictor, saved: AccentSnapshot | None) -> None:
    """Check that accent state exists for just the streams with accents."""
    if (saved is None) != (not predictor.accent_options):
        raise StateEncodingError(
            "kept state: expected accent state if and only if the job follows accents; start the job on a new checkpoint with "
            "a new sink"
        )
    if saved is not None:
        check_streams(saved.streams, predictor.accent_options, "accents")


def check_streams(saved: Mapping[str, object], expected: Mapping[str, object], at: str) -> None:
    """Check that state exists for just these streams."""
    if set(saved) != set(expected):
        raise refused(at, f"those of {', '.join(expected) or 'no stream'}", ", ".join(saved))


_CHECKS: dict[str, Callable[[Predictor, Any], None]] = {
    "accents": check_accents,
    "validators": lambda predictor, saved: check_streams(saved, predictor.specs, "validators"),
    "histories": lambda predictor, saved: check_streams(saved, predictor.retentions, "histories"),
    "state": check_query_state,
    "allotted": check_allotted,
    "rates": check_rates,
    "registry": check_registry,
}
"""Checks by the names of a state's fields."""

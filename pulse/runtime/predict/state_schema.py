"""Layouts of a job's state and of the messages between its stages; restores predictions, checked against their job.

The predictor (specs, plans, columns) is not stored: state is checked against it on reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from pulse.core.arrays import FloatArray
from pulse.core.encoding.codec import StateEncodingError, refused
from pulse.core.encoding.types import Registered, form_of
from pulse.operators.inversion.needs import TUPLE_RATE
from pulse.runtime.accents.follower import AccentSnapshot
from pulse.runtime.accents.propagation import Ending
from pulse.runtime.incremental.continuous_query import ContinuousQueryState
from pulse.runtime.jobs.alerts import Alerts
from pulse.runtime.predict.engine import Prediction, Tally
from pulse.runtime.predict.spatial_partitioning import CellRegistry, Key, KeyNotice, Range
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.state_registry import REGISTRY
from pulse.runtime.predict.tuple_history import Packed, histories_of
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.online.validator import Validator, ValidatorState
from pulse.validation.revisions.history import History, HistorySnapshot
from pulse.validation.revisions.tuple_log import ChunkSnapshot

Rates = tuple[tuple[pa.Array, ...], Mapping[str, FloatArray]]
"""Keys, and the volatility of each by attribute."""


class KeptPrediction(NamedTuple):
    """A prediction as data, without its predictor."""

    validators: dict[str, ValidatorState]
    state: ContinuousQueryState
    allotted: dict[str, Allotment]
    now: int | None
    histories: dict[str, HistorySnapshot]
    tally: Tally


class Checkpoint(NamedTuple):
    """The state of a local job: the number of the next batch, the files of earlier ones, the prediction and the accents."""

    batch: int
    seen: dict[str, list[str]]
    prediction: KeptPrediction
    accents: AccentSnapshot | None
    read: dict[str, int]  # positions reached in accent logs


class KeptValidators(NamedTuple):
    """The validators of a bucket as data; ``bound`` is the batch whose bounds they have."""

    validators: dict[str, ValidatorState]
    now: int | None
    bound: int
    histories: dict[str, HistorySnapshot]
    accents: AccentSnapshot | None


_ALL = (
    *REGISTRY,
    Registered("prediction", KeptPrediction),
    Registered("checkpoint", Checkpoint),
    Registered("validators", KeptValidators),
)
Ranges = dict[str, dict[Key, Range]]

CHECKPOINT = form_of("checkpoint", Checkpoint, _ALL)
PREDICTING = form_of("predicting", tuple[KeptPrediction, AccentSnapshot | None], _ALL)
VALIDATING = form_of("validating", KeptValidators, _ALL)
SCATTERING = form_of("scattering", tuple[KeptValidators, CellRegistry], _ALL)
PAIRING = form_of("pairing", tuple[ContinuousQueryState, Ranges, int | None, AccentSnapshot | None], _ALL)
SOLVING = form_of(
    "solving",
    tuple[
        ContinuousQueryState,
        dict[str, Allotment],
        int | None,
        dict[tuple[str, int], Rates],
        AccentSnapshot | None,
    ],
    _ALL,
)
CHUNK = form_of("chunk", ChunkSnapshot, _ALL)
UPDATES = form_of("updates", tuple[int, bytes, Rates | None, Packed | None], _ALL)
MOVES = form_of("moves", tuple[int, bytes, tuple[KeyNotice, ...]], _ALL)
ACCENTS = form_of("accents", AccentSnapshot, _ALL)
BOUNDS = form_of("bounds", dict[str, Allotment], _ALL)
ENDING = form_of("ending", Ending, _ALL)
ALERTS = form_of("alerts", Alerts, _ALL)


def kept_validators(validators: Mapping[str, Validator]) -> dict[str, ValidatorState]:
    """The state of validators, by stream."""
    return {stream: one.state for stream, one in validators.items()}


def kept_histories(histories: Mapping[str, History]) -> dict[str, HistorySnapshot]:
    """The state of histories, by stream."""
    return {stream: one.snapshot for stream, one in histories.items()}


def snapshot_prediction(prediction: Prediction) -> KeptPrediction:
    """The state of a prediction."""
    assert prediction.state is not None
    return KeptPrediction(
        kept_validators(prediction.validators),
        prediction.state,
        prediction.allotted,
        prediction.now,
        kept_histories(prediction.histories),
        prediction.tally,
    )


def recalled_validators(predictor: Predictor, saved: Mapping[str, ValidatorState]) -> dict[str, Validator]:
    """Restore validators from saved state."""
    check_streams(saved, predictor.specs, "validators")
    found = {stream: Validator(spec) for stream, spec in predictor.specs.items()}
    for stream, one in found.items():
        try:
            one.restore(saved[stream])
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as e:
            raise refused(f"validators.{stream}", "state of this job's validator", str(e)) from e
    return found


def recalled_histories(predictor: Predictor, saved: Mapping[str, HistorySnapshot]) -> dict[str, History]:
    """Restore histories from saved state."""
    check_streams(saved, predictor.retentions, "histories")
    found = histories_of(predictor)
    for stream, one in found.items():
        try:
            one.restore(saved[stream])
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as e:
            raise refused(f"histories.{stream}", "state of this job's history", str(e)) from e
    return found


def restore_prediction(predictor: Predictor, saved: KeptPrediction) -> Prediction:
    """Restore a prediction from saved state."""
    check_query_state(predictor, saved.state)
    check_allotted(predictor, saved.allotted)
    return Prediction(
        predictor,
        recalled_validators(predictor, saved.validators),
        saved.state,
        dict(saved.allotted),
        saved.tally,
        saved.now,
        recalled_histories(predictor, saved.histories),
    )


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

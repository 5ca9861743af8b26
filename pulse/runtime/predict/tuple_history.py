"""Revisions in a prediction (semantics 7): streams whose tuples may be corrected keep a history beside their validators.

::

    tuples, revisions ──history and validator──> updates, revised segments ──standing query──> changes of results

A history reaches back behind the watermark by what the job asks for, or by the query's radius. Results are held as far back as
the longest history, and inputs as far as these depend on; what is older stays as it was said. A stream without a history is
validated as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.errors import PulseError
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import apply_updates
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.operators.units.key_ends import Drops
from pulse.runtime.execution.exchange import ExchangeBatch
from pulse.runtime.incremental.continuous_query import GRACE, ContinuousQuery, ContinuousQueryState, Solved
from pulse.validation.online.ended_keys import ceased, push_over
from pulse.validation.online.validator import ValidationCounts, Validator
from pulse.validation.revisions.history import STEPS, AcceptedTuples, History, Retention
from pulse.validation.revisions.replay import KeyRevision

if TYPE_CHECKING:
    from pulse.runtime.predict.spec import Predictor


class RevisionsError(PulseError, ValueError):
    """A history that cannot be kept."""


def resolved(
    retentions: Mapping[str, Retention], specs: Mapping[str, PredictSpec], radius: int
) -> dict[str, Retention]:
    """Retentions of streams that the query reads; those that go by the radius are given it."""
    for stream in retentions:
        if stream not in specs:
            raise RevisionsError(
                f"revisions: the query reads no stream '{stream}'; it reads {', '.join(specs)}"
            )
    return {
        stream: replace(one, span=radius) if one.span is None else one for stream, one in retentions.items()
    }


def histories_of(predictor: Predictor) -> dict[str, History]:
    """A history for each stream that may be revised."""
    return {
        stream: History(predictor.specs[stream], retention)
        for stream, retention in predictor.retentions.items()
    }


def kept_behind(predictor: Predictor) -> int:
    """How far behind the watermark results may still be revised, in microseconds."""
    return max((one.span or 0 for one in predictor.retentions.values()), default=0)


def anchored_behind(predictor: Predictor) -> int:
    """How far behind the watermark tuples of a history may not have passed into its anchor yet, in microseconds."""
    return max((one.span + one.span // STEPS for one in predictor.retentions.values() if one.span), default=0)


def reach_back(predictor: Predictor) -> int:
    """How far behind the watermark updates may begin, where it is not known how far keys lag: the next tuple of a key may tell of
    all times since its newest, which a model that is still known was in force at."""
    longest = max((one.horizon for one in predictor.specs.values()), default=0)
    return kept_behind(predictor) + predictor.standing.radius + longest


def take(
    validators: Mapping[str, Validator],
    histories: Mapping[str, History],
    tuples: Mapping[str, pa.Table | pa.RecordBatch],
    drops: Mapping[str, Drops] | None = None,
) -> dict[str, AcceptedTuples]:
    """Push tuples and revisions, by stream; ``drops`` of streams whose attributes come and go."""
    taken = {}
    for stream, table in tuples.items():
        if stream in histories:
            taken[stream] = histories[stream].push(validators[stream], table, (drops or {}).get(stream))
        elif drops and stream in drops:
            pushed = push_over(validators[stream], table, drops[stream])
            taken[stream] = AcceptedTuples(pushed.updates, None, pushed.counts, pushed.aside)
        else:
            pushed = validators[stream].push(table)
            taken[stream] = AcceptedTuples(pushed.updates, None, pushed.counts, pushed.aside)
    return taken


def dropped(
    validators: Mapping[str, Validator],
    histories: Mapping[str, History],
    taken: Mapping[str, AcceptedTuples],
    drops: Mapping[str, Drops],
    watermark: int | None,
) -> dict[str, AcceptedTuples]:
    """What was taken, and models that end where accents drop an attribute."""
    found = dict(taken)
    for stream, one in drops.items():
        if len(gone := ceased(validators[stream], one, watermark)):
            if stream in histories:
                histories[stream].fresh.append(gone)
            before = found.get(stream, AcceptedTuples(gone, None, ValidationCounts(), None))
            found[stream] = before._replace(updates=apply_updates(before.updates, gone, voids=True)[0])
    return found


def lapsed(
    predictor: Predictor,
    validators: Mapping[str, Validator],
    histories: Mapping[str, History],
    taken: Mapping[str, AcceptedTuples],
    watermark: int | None,
) -> dict[str, AcceptedTuples]:
    """What was taken, and what no tuple has confirmed by the watermark taken back."""
    found = dict(taken)
    if watermark is None:
        return found
    for stream, validator in validators.items():
        gone = validator.lapse(watermark, _forgotten(predictor, stream in histories, watermark))
        if not len(gone):
            continue
        if stream in histories:
            histories[stream].fresh.append(gone)
        one = found.get(stream, AcceptedTuples(gone, None, ValidationCounts(), None))
        found[stream] = one._replace(updates=apply_updates(one.updates, gone, voids=True)[0])
    return found


def _forgotten(predictor: Predictor, revised: bool, watermark: int) -> int:
    """Since when a key that is over was not seen: it must have no segment left that could be solved again."""
    oldest = watermark - predictor.standing.radius
    return oldest - kept_behind(predictor) - 2 * GRACE if revised else oldest


def updates_of(taken: Mapping[str, AcceptedTuples]) -> dict[str, Relation]:
    """All segments that are new, by stream: those of revised keys as well."""
    return {
        stream: one.updates
        if one.revised is None
        else Relation.concat([one.updates, one.revised.segments]).merged()
        for stream, one in taken.items()
    }


def solve(
    standing: ContinuousQuery, state: ContinuousQueryState, taken: Mapping[str, AcceptedTuples]
) -> tuple[ContinuousQueryState, Solved]:
    """What the standing query makes of what was taken."""
    updates = {stream: one.updates for stream, one in taken.items()}
    revised = {stream: one.revised for stream, one in taken.items() if one.revised is not None}
    return standing.revise(state, revised, updates) if revised else standing.update(state, updates)


def forget(
    predictor: Predictor,
    validators: Mapping[str, Validator],
    histories: Mapping[str, History],
    watermark: int,
    drops: Mapping[str, Drops] | None = None,
) -> None:
    """Free what nothing depends on any more, now that nothing before the watermark comes but revisions; models of histories
    end at ``drops`` of attributes, by stream."""
    for stream, validator in validators.items():
        oldest = _forgotten(predictor, stream in histories, watermark)
        if stream in histories:
            histories[stream].advance(validator, watermark, oldest, (drops or {}).get(stream))
        validator.forget(oldest)


# -- between stages -------------------------------------------------------------------------------------------

Packed = tuple[bytes, tuple[pa.Array, ...], IntArray, IntArray, IntArray]
"""Revised segments as bytes, keys, and when they begin to be others and end."""


def packed(revised: KeyRevision | None) -> Packed | None:
    """Revised segments for another stage."""
    if revised is None:
        return None
    return (
        ExchangeBatch(0, 0, revised.segments).pack(),
        revised.keys,
        revised.start,
        revised.since,
        revised.until,
    )


def unpacked(parts: list[Packed | None], standing: ContinuousQuery, stream: str) -> KeyRevision | None:
    """What several buckets, each of its own keys, packed."""
    some = [one for one in parts if one is not None]
    if not some:
        return None
    columns = standing.columns[stream]
    return KeyRevision(
        keys=tuple(pa.concat_arrays([one[1][i] for one in some]) for i in range(len(some[0][1]))),
        start=np.concatenate([one[2] for one in some]),
        since=np.concatenate([one[3] for one in some]),
        until=np.concatenate([one[4] for one in some]),
        segments=Relation.concat([ExchangeBatch.unpack(0, 0, one[0], columns).relation for one in some]),
    )

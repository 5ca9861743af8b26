"""Handle revisions in a prediction (semantics 7): streams with revisions keep a history beside their validators.

::

    tuples, revisions ──history and validator──> updates, revised segments ──continuous query──> changes of results

A history extends behind the watermark by the job's retention, or by the query's radius. Results are held as far back as the
longest history, and inputs as far as these results depend on; older results are final. A stream without a history is validated
as usual.
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
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.runtime.execution.exchange import ExchangeBatch
from pulse.runtime.incremental.continuous_query import ContinuousQuery
from pulse.runtime.incremental.continuous_view import ContinuousView, Solved
from pulse.validation.revisions.history import STEPS, AcceptedTuples, Retention
from pulse.validation.revisions.replay import KeyRevision

if TYPE_CHECKING:
    from pulse.runtime.predict.spec import Predictor


class RevisionsError(PulseError, ValueError):
    """A retention for a stream that the query does not read."""


def resolved(
    retentions: Mapping[str, Retention], specs: Mapping[str, PredictSpec], radius: int
) -> dict[str, Retention]:
    """Check that the query reads the streams of retentions, and give those without a span the query's radius."""
    for stream in retentions:
        if stream not in specs:
            raise RevisionsError(
                f"revisions: the query reads no stream '{stream}'; it reads {', '.join(specs)}"
            )
    return {
        stream: replace(one, span=radius) if one.span is None else one for stream, one in retentions.items()
    }


def kept_behind(predictor: Predictor) -> int:
    """The distance behind the watermark at which results may still be revised, in microseconds."""
    return max((one.span or 0 for one in predictor.retentions.values()), default=0)


def anchored_behind(predictor: Predictor) -> int:
    """The distance behind the watermark at which tuples of a history may still be before its anchor, in microseconds."""
    return max((one.span + one.span // STEPS for one in predictor.retentions.values() if one.span), default=0)


def reach_back(predictor: Predictor) -> int:
    """The distance behind the watermark at which updates may start if the lag of keys is unknown, in microseconds.

    The next tuple of a key may change all times since its newest tuple, at which a model that is still held was in force.
    """
    longest = max((one.horizon for one in predictor.specs.values()), default=0)
    return kept_behind(predictor) + predictor.continuous.radius + longest


def updates_of(taken: Mapping[str, AcceptedTuples]) -> dict[str, Relation]:
    """All new segments by stream, including those of revised keys."""
    return {
        stream: one.updates
        if one.revised is None
        else Relation.concat([one.updates, one.revised.segments]).merged()
        for stream, one in taken.items()
    }


def solve(view: ContinuousView, taken: Mapping[str, AcceptedTuples]) -> Solved:
    """Solve a continuous query for accepted updates and revisions; the changes are pending."""
    updates = {stream: one.updates for stream, one in taken.items()}
    revised = {stream: one.revised for stream, one in taken.items() if one.revised is not None}
    return view.update(updates, revised)


# -- between stages -------------------------------------------------------------------------------------------

Packed = tuple[bytes, tuple[pa.Array, ...], IntArray, IntArray, IntArray]
"""Revised segments as bytes, keys, and per key the start of its segments and of its change, and the end of that."""


def packed(revised: KeyRevision | None) -> Packed | None:
    """Encode revised segments for another stage."""
    if revised is None:
        return None
    return (
        ExchangeBatch(0, 0, revised.segments).pack(),
        revised.keys,
        revised.start,
        revised.since,
        revised.until,
    )


def unpacked(parts: list[Packed | None], query: ContinuousQuery, stream: str) -> KeyRevision | None:
    """Decode the revised segments of several buckets, each with its own keys."""
    some = [one for one in parts if one is not None]
    if not some:
        return None
    columns = query.columns[stream]
    return KeyRevision(
        keys=tuple(pa.concat_arrays([one[1][i] for one in some]) for i in range(len(some[0][1]))),
        start=np.concatenate([one[2] for one in some]),
        since=np.concatenate([one[3] for one in some]),
        until=np.concatenate([one[4] for one in some]),
        segments=Relation.concat([ExchangeBatch.unpack(0, 0, one[0], columns).relation for one in some]),
    )

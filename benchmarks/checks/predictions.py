"""Predictions held against what came: models against their tuples, continuous answers against those over the tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.benchmarks.checks.comparisons import models
from pulse.benchmarks.peers.agreement import agreement
from pulse.benchmarks.recording import Accuracy
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.operators.data.relation import Relation
from pulse.operators.output.sampling import sample, to_tuples
from pulse.plan.query import Query
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.validation import Tuples

_KEY = np.int64(1) << 46


def held_at_tuples(updates: Sequence[Relation], tuples: pa.Table, schema: StreamSchema) -> Accuracy:
    """The models that were in force in the end, at every tuple that was not late: within what they certify there.

    Of several tuples of a key at one instant the last counts (semantics 2.5). Recall is the share of tuples with a model.
    """
    (key,) = schema.key_names
    made = pa.Table.from_batches([one.to_segments() for one in updates if len(one)]).drop(["certainty"])
    segments = SegmentBatch.from_arrow(made, schema, check=False).apply_updates()
    numbers, code = _codes(tuples[key])
    of_segment = np.array(
        [numbers.get(name, -1) for name in segments.column(key).cast(pa.string()).to_pylist()]
    )
    t = tuples[schema.time].cast(pa.int64()).to_numpy()
    origin = int(t.min())
    rows = _ruling(code, t - origin)
    starts = of_segment * _KEY + (segments.ref - origin) + np.round(segments.lo * 1e6).astype(np.int64)
    order = np.argsort(starts, kind="stable")
    at = order[
        np.maximum(
            np.searchsorted(starts[order], code[rows] * _KEY + (t[rows] - origin), side="right") - 1, 0
        )
    ]
    x = (t[rows] - segments.ref[at]) / 1e6
    modelled = (of_segment[at] == code[rows]) & (x <= segments.hi[at] + 1e-6)
    found = [
        models(
            np.abs(_value(segments.coefficients(name)[at], x) - tuples[name].to_numpy()[rows]),
            segments.err(name)[at],
            modelled,
            rounding=1e-9 * float(np.nanmax(np.abs(tuples[name].to_numpy()))),
        )
        for name in schema.modelled_names
    ]
    assert all(one.precision == 1.0 for one in found)
    return max(found, key=lambda one: one.observed)


def _codes(column: pa.ChunkedArray) -> tuple[dict[str, int], Any]:
    texts = column.cast(pa.string()).combine_chunks().dictionary_encode()
    names = {name: number for number, name in enumerate(texts.dictionary.to_pylist())}
    return names, texts.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _ruling(code: Any, t: Any) -> Any:
    """Rows that are not late, and the last of their instant."""
    order = np.argsort(code, kind="stable")
    place = code[order] * _KEY + t[order]
    newest = np.maximum.accumulate(place)  # a key's places lie beyond all of the one before
    kept = order[place == newest]
    place = place[place == newest]
    return kept[np.append(place[1:] != place[:-1], True)]


def _value(c: Any, x: Any) -> Any:
    value = np.zeros(len(x))
    for j in range(c.shape[1] - 1, -1, -1):
        value = value * x + c[:, j]
    return value


def held_as_answer(
    query: Query,
    predictor: Any,
    batches: Sequence[Tuples],
    truth: pa.Table,
    *,
    every: int,
    value: str,
    level: float,
    slack: float,
) -> Accuracy:
    """What a prediction came to over the time that tuples cover, at multiples of ``every`` (µs), against the truth.

    ``predictor`` makes one of the query, which is asked with its possible rows. The answer keeps what it certifies: every certain
    row is true, every true row is at least possible, values are within their bounds.
    """
    asked = replace(query, possible=True)
    made: Predictor = predictor(asked)
    running = Prediction(made)
    for batch in batches:
        running.push(batch)
    assert running.view is not None
    samples = sample(running.view.results.merged(), every)
    table = pa.Table.from_batches([to_tuples(samples, asked.select, possible=True)])
    found = agreement(
        _observed(table, batches), truth, keys=("symbol",), value=value, level=level, slack=slack
    )
    assert found.faults == {}, found.faults
    return Accuracy(found.precision, found.recall, float(found.certified), float(found.observed), slack)


def _observed(answer: pa.Table, batches: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows until the newest tuple of their key: of what comes then nothing is known yet."""
    tuples = pa.concat_tables([table for batch in batches for table in batch.values()])
    tuples = tuples.set_column(0, "symbol", tuples["symbol"].cast(pa.string()))
    last = tuples.group_by("symbol").aggregate([("t", "max")])
    joined = answer.set_column(
        answer.column_names.index("symbol"), "symbol", answer["symbol"].cast(pa.string())
    ).join(last, keys="symbol")
    newest = pc.cast(joined["t_max"], pa.int64())
    return joined.filter(pc.less_equal(pc.cast(joined["t"], pa.int64()), newest)).drop(["t_max"])

"""Answers of running queries held against the exact ones over all tuples, as rows of :mod:`.replay` need them.

A prediction covers times that no tuples have reached yet, and keys that have fallen silent. It is held to the truth where
there is one: at closing times up to its keys' newest tuples, without a longer silence in their windows than it allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.benchmarks.checks.comparisons import rows_of
from pulse.benchmarks.peers.agreement import agreement
from pulse.benchmarks.recording import Accuracy
from pulse.core.arrays import BoolArray, IntArray
from pulse.core.time import EARLIEST
from pulse.operators.data.updates import clip
from pulse.operators.output.sampling import sample, to_tuples
from pulse.plan.query import Query
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.spec import Predictor

_SPAN = np.int64(1) << 46  # microseconds, two years: of a key's times


class Known:
    """Where the truth is: of tuples with this key, what lies between two of them that are at most ``gap`` microseconds apart."""

    def __init__(self, keys: pa.ChunkedArray, t: IntArray, gap: int | None = None) -> None:
        self.names = pc.unique(keys.cast(pa.string()))
        code, self.origin = self._codes(keys), int(t.min())
        order = np.argsort(code * _SPAN + (t - self.origin), kind="stable")
        self.place = (code * _SPAN + (t - self.origin))[order]
        step = np.diff(self.place)
        breaks = np.flatnonzero((np.diff(code[order]) != 0) | (step > (_SPAN if gap is None else gap))) + 1
        first = np.concatenate([[0], breaks])
        last = np.append(breaks, len(order)) - 1
        run = np.repeat(np.arange(len(first)), last - first + 1)
        self.begin, self.end = self.place[first][run], self.place[last][run]

    def whole(self, keys: pa.ChunkedArray, t: IntArray, size: int) -> BoolArray:
        """Whether the window ``[t - size, t]`` of the key is known."""
        code = self._codes(keys)
        asked = code * _SPAN + (t - self.origin)
        at = np.searchsorted(self.place, asked, side="right") - 1
        found: BoolArray = (
            (code >= 0) & (at >= 0) & (self.end[at] >= asked) & (self.begin[at] <= asked - size)
        )
        return found

    def _codes(self, keys: pa.ChunkedArray) -> IntArray:
        found = pc.fill_null(pc.index_in(keys.cast(pa.string()), self.names), -1)
        codes: IntArray = found.to_numpy().astype(np.int64)
        return codes


def predicted(
    query: Query,
    predictor: Callable[[Query], Predictor],
    batches: Sequence[pa.Table],
    known: Known,
    *,
    size: int,
    settled: int,
) -> pa.Table:
    """All that a prediction over these batches comes to, with possible rows, where the truth is known.

    Results are taken when no tuple changes them any more, ``settled`` microseconds after their time: a report that comes later
    than that is of a key whose truth has a hole there.
    """
    assert query.rate is not None
    asked = replace(query, possible=True)
    running, found = Prediction(predictor(asked)), []
    (stream,) = running.predictor.specs
    upto = EARLIEST
    for i, batch in enumerate(batches):
        running.push({stream: batch})
        assert running.view is not None
        assert running.now is not None
        since, upto = upto, running.now - (settled if i < len(batches) - 1 else -1)
        results = clip(running.view.results, since, upto).merged()
        found.append(to_tuples(sample(results, query.rate), asked.select, possible=True))
        running.advance(upto)
    table = pa.Table.from_batches(found)
    keys = [name for name in query.select if name in running.predictor.continuous.output.key_names]
    t = table["t"].cast(pa.int64()).to_numpy()
    whole = np.logical_and.reduce([known.whole(table[name], t, size) for name in keys])
    return table.filter(pa.array(whole))


@dataclass(frozen=True)
class Judged:
    """How good an answer is, and how many rows it and the truth have: at a loose bound it may be good and empty."""

    accuracy: Accuracy
    rows: int
    true_rows: int

    @property
    def facts(self) -> dict[str, str | float]:
        """For the row."""
        return {"answer rows": self.rows, "true rows": self.true_rows}


def judged(
    ours: pa.Table, truth: pa.Table, *, keys: tuple[str, ...], value: str, level: float, slack: float
) -> Judged:
    """Of our answer with its possible rows: nothing certain is wrong, nothing true is impossible, no value is further off."""
    found = agreement(ours, truth, keys=keys, value=value, level=level, slack=slack)
    if found.faults:
        raise ValueError(f"the answer does not keep what it certifies: {found.faults}")
    certified, observed = float(found.certified), float(found.observed)
    accuracy = Accuracy(found.precision, found.recall, certified, observed, slack)
    return Judged(accuracy, found.ours, found.theirs)


def compared(
    emitted: pa.Table, truth: pa.Table, *, keys: tuple[str, ...], value: str, slack: float
) -> Judged:
    """Of a tuple engine's: the truth, but for closing times that the last tuples reach."""
    found = rows_of(emitted, truth, keys=keys, value=value, rounding=slack)
    if found.precision < 1.0 or found.recall < 0.99:
        raise ValueError(f"the tuple engine's answer is not the truth: {found}")
    return Judged(found, emitted.num_rows, truth.num_rows)


def in_batches(engine: Any, tuples: int, batches: int = 10) -> Any:
    """The engine, when all tuples have been pushed."""
    for begin, end in cuts(tuples, batches):
        engine.push(begin, end)
    return engine


def cuts(tuples: int, batches: int = 10) -> list[tuple[int, int]]:
    """So many batches of about the same size."""
    return list(pairwise(np.linspace(0, tuples, batches + 1).astype(int).tolist()))

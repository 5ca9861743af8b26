"""Queries that run on a stream, as :mod:`.replay` drives them: ours on predictions, on segments and on tuples being modelled;
tuple engines; each keeps what it emitted.

::

    Predicting   tuples ──validator──> what changes ──continuous query──> changes of results, ahead of time
    Historical   segments, made before ──window, query──> results up to the newest instant that all keys are known to
    Modelling    tuples ──fitter──> segments that closed ──the same──> results
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.certainty import ABSENT
from pulse.core.columns import Columns
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import EARLIEST
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import begins, clip, ending_after, ends
from pulse.operators.fit.fitter import Fitter
from pulse.operators.fit.spec import FitSpec
from pulse.operators.node import Node
from pulse.operators.output.sampling import to_tuples
from pulse.operators.relational.scan import scans
from pulse.plan.query import Query
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import as_scanned
from pulse.runtime.incremental.continuous_query import RETENTION_MARGIN, ContinuousQuery
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.spec import Predictor

LATENESS = 60_000_000
"""Microseconds that predictions are kept behind the newest tuple."""


class Predicting:
    """Tuples are validated; where one fails its key is solved again, and what that changes is emitted."""

    def __init__(self, predictor: Predictor, tuples: pa.Table) -> None:
        (self.stream,) = predictor.specs
        self.prediction, self.tuples = Prediction(predictor), tuples
        self.changes = 0

    def push(self, begin: int, end: int) -> None:
        """As :class:`.replay.Engine`."""
        emitted = self.prediction.push({self.stream: self.tuples.slice(begin, end - begin)})
        self.changes += emitted.changes.num_rows
        assert self.prediction.now is not None
        self.prediction.advance(self.prediction.now - LATENESS)

    @property
    def facts(self) -> dict[str, float]:
        """For the row: how often a tuple failed, and keys were solved."""
        tally = self.prediction.tally
        return {
            "violations": float(tally.violations),
            "solves": float(tally.solves),
            "no solving, %": 100.0 * tally.validated / tally.tuples,
        }


class Answering:
    """A query at its rate over segments that come in: closing times are emitted once, when all keys are known that far."""

    def __init__(self, query: Query, columns: Columns) -> None:
        self.query, (self.stream,) = query, {scan.stream for scan in scans(query.plan)}
        self.continuous = ContinuousQuery(query, {self.stream: columns})
        self.leaves = tuple(dict.fromkeys(scans(self.continuous.plan)))
        assert query.rate is not None
        self.rate = query.rate
        self.kept, self.upto = Relation.empty(columns), EARLIEST
        self.emitted: list[pa.RecordBatch] = []

    def take(self, segments: Relation, upto: int) -> None:
        """More segments; before ``upto`` nothing is missing any more. What closes by then is emitted, the rest kept."""
        if len(segments):
            self.kept = Relation.concat([self.kept, segments]).merged() if len(self.kept) else segments
        if upto // self.rate <= self.upto // self.rate:
            return
        since = max(self.upto, EARLIEST + self.continuous.radius + RETENTION_MARGIN)
        recent = clip(self.kept, since - self.continuous.radius - RETENTION_MARGIN, upto + 1)
        inputs: dict[Node, Relation] = {leaf: as_scanned(recent, leaf) for leaf in self.leaves}
        evaluation = FragmentEvaluation(inputs, possible=self.query.possible)
        evaluation.expect([self.continuous.plan])
        samples = evaluation.samples(self.continuous.plan, self.rate)
        before = (samples.times <= self.upto) | (samples.times > upto)
        samples = replace(samples, certainty=np.where(before, np.uint8(ABSENT), samples.certainty))
        self.emitted.append(to_tuples(samples, self.query.select, possible=self.query.possible))
        self.upto = upto
        self.kept = ending_after(
            self.kept, upto - self.continuous.radius - RETENTION_MARGIN
        ).without_empty_groups()

    @property
    def answer(self) -> pa.Table:
        """All that was emitted."""
        return pa.Table.from_batches(self.emitted)


class Historical(Answering):
    """Segments alone: they come when the first of their tuples does."""

    def __init__(self, query: Query, segments: Relation, times: IntArray) -> None:
        super().__init__(query, segments.columns)
        self.segments, self.times = segments, times
        self.order = np.argsort(begins(segments), kind="stable")
        self.starts = begins(segments)[self.order]

    def push(self, begin: int, end: int) -> None:
        """As :class:`.replay.Engine`: the segments that begin with these tuples."""
        first = 0 if begin == 0 else np.searchsorted(self.starts, self.times[begin - 1], side="right")
        last = np.searchsorted(self.starts, self.times[end - 1], side="right")
        rows = np.sort(self.order[first:last])
        self.take(self.segments.take(rows).without_empty_groups(), int(self.times[end - 1]))


class Modelling:
    """Tuples of so many ``keys`` are modelled online; with a query, the segments that close are answered from.

    The fitter works when as many tuples have come as its open segments hold: a tuple is looked at a bounded number of times.
    """

    def __init__(self, spec: FitSpec, tuples: pa.Table, query: Query | None, *, keys: int) -> None:
        self.fitter, self.tuples, self.keys = Fitter(spec, chunk_rows=1), tuples, keys
        self.columns = Columns.of(spec.schema)
        self.answering = None if query is None else Answering(query, self.columns)
        self.segments = 0
        self.last = tuples.num_rows
        self.known: dict[Any, int] = {}

    def push(self, begin: int, end: int) -> None:
        """As :class:`.replay.Engine`."""
        self._take(self.fitter.push(self.tuples.slice(begin, end - begin)))
        if end == self.last:
            self._take(self.fitter.finish())

    def _take(self, made: SegmentBatch | None) -> None:
        if made is None or not len(made):
            return
        self.segments += len(made)
        if self.answering is None:
            return
        relation = Relation.from_table(made.to_arrow(), self.columns)
        newest = np.maximum.reduceat(ends(relation), relation.offsets[:-1]).tolist()
        names = zip(*(key.to_pylist() for key in relation.keys), strict=True)
        self.known.update(zip(names, newest, strict=True))
        self.answering.take(relation, min(self.known.values()) if len(self.known) == self.keys else EARLIEST)


def segments_of(spec: FitSpec, tuples: pa.Table) -> Relation:
    """What a fit makes of all tuples, by key and time."""
    fitter = Fitter(spec)
    made = [fitter.push(tuples), fitter.finish()]
    whole = SegmentBatch.concat([one for one in made if one is not None])
    return Relation.from_table(whole.sort().to_arrow(), Columns.of(spec.schema))


class ByHand:
    """A hand-written operator over columns of numpy; keys are numbers already."""

    def __init__(self, operator: Any, columns: Sequence[Any]) -> None:
        self.operator, self.columns = operator, columns
        self.parts: list[Any] = []

    def push(self, begin: int, end: int) -> None:
        """As :class:`.replay.Engine`."""
        self.parts.append(self.operator.push(*(column[begin:end] for column in self.columns)))

    @property
    def emitted(self) -> Any:
        """All of it, column by column."""
        return type(self.parts[0])(*map(np.concatenate, zip(*self.parts, strict=True)))


class InDuckDB:
    """One of :mod:`.peers.duckdb_streams` over an Arrow table."""

    def __init__(self, make: Callable[[], Any], tuples: pa.Table) -> None:
        self.stream, self.tuples = make(), tuples

    def push(self, begin: int, end: int) -> None:
        """As :class:`.replay.Engine`."""
        self.stream.push(self.tuples.slice(begin, end - begin))

    @property
    def emitted(self) -> pa.Table:
        """All answers."""
        emitted: pa.Table = self.stream.emitted
        return emitted

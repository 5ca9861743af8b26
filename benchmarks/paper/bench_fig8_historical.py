"""Fig. 8: a sliding minimum where the stream is modelled first, against one over its tuples, as more is offered.

Fig. 6's parameters: min over 60 s every 2 s, 1 % bound, 3,000 to 30,000 tuples/s. A hundred objects move fast enough that a
segment of the fit holds some hundred tuples at 3,000 a second. ``pulse`` models the tuples online, as lines, and answers from
the segments that closed; beside it stand either half by itself: ``segments`` that were made before, and ``modelling`` alone. What
is asked of is what is modelled: ``x``. Beyond the paper's rates the stream of the highest is replayed faster.

How streams are offered: :mod:`pulse.benchmarks.replay`. Run with ``make bench ONLY=fig8``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pulse.benchmarks.allocation import keep_freed_memory
from pulse.benchmarks.checks.answers import judged_lows, row_at, values_at
from pulse.benchmarks.checks.comparisons import models
from pulse.benchmarks.checks.replays import in_batches
from pulse.benchmarks.engines import ByHand, Historical, InDuckDB, Modelling, segments_of
from pulse.benchmarks.peers import numba_peer
from pulse.benchmarks.peers.duckdb_streams import DuckMinimum
from pulse.benchmarks.peers.numba_streams import StreamMinimum
from pulse.benchmarks.recording import BY_HAND, OURS, Accuracy, exact, sizes
from pulse.benchmarks.replay import AT_ONCE, Engine, Replays, record_replay
from pulse.benchmarks.workloads.moving_objects import SECOND, Objects
from pulse.core.arrays import FloatArray, IntArray
from pulse.core.schema import StreamSchema
from pulse.language import parse
from pulse.operators.fit.spec import FitSpec

SIZE, ADVANCE = 60 * SECOND, 2 * SECOND
PRECISION = 0.01
PAPER_RATES = (3_000, 30_000)
RATES = sizes((3_000, 30_000), (3_000, 5_000, 10_000, 15_000, 20_000, 30_000, 300_000, 3_000_000))
WARM = 62.0  # seconds of the stream: the first window has closed
SECONDS = sizes(2.0, 10.0)
OBJECTS, SPEED, PER_KNOT = 100, 100.0, 10.0
QUERY = "select id, min(x) as low from S[size 60 advance 2] group by id"
SCHEMA = StreamSchema.of(key={"id": "int64"}, time="t", modelled={"x": "linear"})
SPEC = FitSpec.of(SCHEMA, error=f"{PRECISION:%}".rstrip("0"))
SEGMENTS, MODELS = f"{OURS}, segments", f"{OURS}, modelling alone"
OPEN, PANES, DUCK = f"{BY_HAND}, open windows", f"{BY_HAND}, panes", "DuckDB"
CONTENDERS = (OURS, SEGMENTS, MODELS, OPEN, PANES, DUCK)
FIGURE = "Fig. 8: historical min"
PAPER: dict[str, str | float] = {"paper: tuples, most/s": 15_000, "paper: modelling, most/s": 40_000}


class Race:
    """The contenders on a stream of one rate, each looked at on all of it."""

    def __init__(self, rate: float) -> None:
        keep_freed_memory()
        self.objects = objects = Objects(
            int(rate * (WARM + SECONDS)),
            PER_KNOT,
            objects=OBJECTS,
            rate=rate,
            speed=SPEED,
            precision=PRECISION,
        )
        tuples = objects.stream_tuples
        table = pa.table({"id": tuples.id, "t": pa.array(tuples.t).view(pa.timestamp("us")), "x": tuples.x})
        plain = pa.table({"key": tuples.id, "t": tuples.t, "x": tuples.x})
        columns = tuples.id, tuples.t, tuples.x
        query = parse(QUERY, {"S": SCHEMA}).bind({})
        self.segments = segments_of(SPEC, table)
        makers: dict[str, Callable[[], Engine]] = {
            OURS: partial(Modelling, SPEC, table, query, keys=OBJECTS),
            SEGMENTS: partial(Historical, query, self.segments, tuples.t),
            MODELS: partial(Modelling, SPEC, table, None, keys=OBJECTS),
            OPEN: lambda: ByHand(StreamMinimum(OBJECTS, way="open windows"), columns),
            PANES: lambda: ByHand(StreamMinimum(OBJECTS), columns),
            DUCK: lambda: InDuckDB(DuckMinimum, plain),
        }
        self.replays = Replays(
            makers, objects.tuples, warm=int(WARM * rate), seconds=SECONDS, least=sizes(1, 100_000)
        )
        expected = numba_peer.minimum(tuples, OBJECTS, SIZE, ADVANCE)
        order = np.lexsort((expected.t, expected.key))
        self.expected = [column[order] for column in expected]
        self.accuracy = {name: self._judged(name, maker) for name, maker in makers.items()}

    def _judged(self, contender: str, maker: Callable[[], Engine]) -> Accuracy:
        """What it emits for the whole stream, in batches that end anywhere."""
        if contender == MODELS:
            return self._fit()
        engine = in_batches(maker(), self.objects.tuples, 20)
        if contender in (OURS, SEGMENTS):
            answer = (engine.answering if contender == OURS else engine).answer
            key, t, low, err = (answer[name].to_numpy() for name in ("id", "t", "low", "low_err"))
            return self._lows(key, t.astype(np.int64), low, err)
        emitted = engine.emitted
        found = (
            list(emitted)
            if contender != DUCK
            else [emitted[name].to_numpy() for name in ("key", "t", "value")]
        )
        order = np.lexsort((found[1], found[0]))
        for mine, theirs in zip(self.expected, found, strict=True):
            np.testing.assert_array_equal(theirs[order], mine)
        return exact()

    def _lows(self, key: IntArray, t: IntArray, low: FloatArray, err: FloatArray) -> Accuracy:
        return judged_lows(key, t, low, err, self.objects, SIZE, len(self.expected[0]))

    def _fit(self) -> Accuracy:
        tuples = self.objects.stream_tuples
        row = row_at(self.segments, tuples.id, tuples.t)
        off = np.abs(values_at(self.segments, "x", row, tuples.t) - tuples.x)
        judged = models(off, self.segments.err["x"][row], row >= 0, rounding=1e-9 * float(tuples.x.max()))
        assert judged.precision == 1.0
        return judged

    @property
    def facts(self) -> dict[str, str | float]:
        return {"tuples a segment": self.objects.tuples / len(self.segments), **PAPER}


@lru_cache(maxsize=1)  # rates come in turn, and a workload is large
def race(rate: float) -> Race:
    return Race(rate)


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("rate", [*RATES, AT_ONCE])
def test_historical(benchmark: Any, rate: float, contender: str) -> None:
    one = race(min(rate, PAPER_RATES[1]))
    record_replay(
        benchmark,
        one.replays,
        contender,
        rate,
        figure=FIGURE,
        accuracy=one.accuracy[contender],
        rounds=sizes(1, 2),
        facts=one.facts,
    )

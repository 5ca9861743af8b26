"""Vessels for the paper's query of who follows whom, generated or recorded: their exact answer, and who answers.

Positions are metres, and the truth is straight lines between reports that are at most five minutes apart. The paper's 0.05 % is
of degrees, which makes kilometres; ours is 0.05 % of 200 km, half a day's sailing: 100 m on either axis. Predictions go where
speed and course say: ``x = x + vx t``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.benchmarks.checks.replays import Judged, Known, compared, cuts, in_batches, judged, predicted
from pulse.benchmarks.checks.violations import POSITIONS, RECORDED, recorded, with_velocity
from pulse.benchmarks.engines import ByHand, Historical, InDuckDB, Predicting, segments_of
from pulse.benchmarks.peers.agreement import largest_difference
from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.duckdb_streams import DuckFollowing
from pulse.benchmarks.peers.numba_streams import StreamFollowing
from pulse.benchmarks.peers.questions import SECOND, Following
from pulse.benchmarks.recording import BY_HAND, OURS, SEED
from pulse.benchmarks.replay import Engine
from pulse.benchmarks.workloads.load import Arrivals
from pulse.core.arrays import FloatArray, IntArray
from pulse.core.expression import Arithmetic, Column, Elapsed
from pulse.core.schema import StreamSchema
from pulse.datasets.generators.generate import frame
from pulse.language import parse
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.operators.fit.spec import FitSpec
from pulse.runtime.predict.spec import Predictor

BOUND = 0.0005 * 200_000.0  # metres
VESSELS, FOLLOWERS, AREA = 200, 40, 60_000.0
SIZE, GAP = Following().size * SECOND, Following().max_gap * SECOND
WARM = SIZE + 20 * SECOND  # of the reports' own time, before the clock starts
SEGMENTS, DUCK = f"{OURS}, segments", "DuckDB"
CONTENDERS = (OURS, SEGMENTS, BY_HAND, DUCK)
KINDS = ("generated", *(name for name in RECORDED if name in ("harbour", "channel")))
KEYS, VALUE = ("id1", "id2"), "mean"
PLACES = StreamSchema.of(key={"id": "int64"}, time="t", modelled={"x": "linear", "y": "linear"})


class Sea(Arrivals):
    """Reports in order of arrival: id, t, x, y, vx, vy."""

    warming = WARM

    def __init__(self, kind: str, rows: int) -> None:
        if kind == "generated":
            made = frame("vessels", rows, seed=SEED, vessels=VESSELS, followers=FOLLOWERS, area=AREA)
            table = with_velocity(made)
        else:
            table = recorded(kind, rows).tuples["objects"]
        self.table = table.select(["id", "t", "x", "y", "vx", "vy"]).combine_chunks()
        self.names, key = np.unique(table["id"].to_numpy(), return_inverse=True)
        self.key: IntArray = key.astype(np.int64)
        self.t: IntArray = table["t"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
        self.x: FloatArray = np.ascontiguousarray(table["x"].to_numpy())
        self.y: FloatArray = np.ascontiguousarray(table["y"].to_numpy())

    @cached_property
    def known(self) -> Known:
        """Where vessels report."""
        return Known(self.table["id"], self.t, GAP)

    @cached_property
    def truth(self) -> tuple[pa.Table, float]:
        """id1, id2, t, mean; and what it may be off by, since distances are averaged over places ten seconds apart."""
        peer = DuckDB(load=True)
        peer.connection.register("given", self.table)
        peer.connection.execute("""create table vessels as select id, epoch_us(t) as t, x, y, row_number() over () as r
            from given order by id, r""")
        coarse, fine = peer.following(Following()), peer.following(Following(every=2))
        peer.close()
        return coarse, 1.5 * largest_difference(coarse, fine, keys=KEYS, value=VALUE)

    # -- who answers ------------------------------------------------------------------------------------------

    def makers(self) -> dict[str, Callable[[], Engine]]:
        """Of all contenders."""
        spec = FitSpec.of(PLACES, error=BOUND, max_gap=GAP)
        query = parse(Following().text, {"S": PLACES}).bind({})
        columns = self.key, self.t, self.x, self.y
        return {
            OURS: lambda: Predicting(predictor(), self.table),
            SEGMENTS: partial(Historical, query, segments_of(spec, self.table), self.t),
            BY_HAND: lambda: ByHand(StreamFollowing(len(self.names)), columns),
            DUCK: lambda: InDuckDB(DuckFollowing, self.table),
        }

    def judge(self, contender: str, maker: Callable[[], Any]) -> Judged:
        """What one emits for all reports, against the truth."""
        truth, slack = self.truth
        reach = Following().reach
        if contender == OURS:
            batches = [self.table.slice(a, b - a) for a, b in cuts(self.tuples)]
            query = predictor().continuous.query
            ours = predicted(
                query,
                lambda asked: predictor(query=asked),
                batches,
                self.known,
                size=SIZE,
                settled=GAP + SECOND,
            )
            return judged(ours, truth, keys=KEYS, value=VALUE, level=reach, slack=slack)
        engine = maker()
        if isinstance(engine, Historical):
            wider = Historical(replace(engine.query, possible=True), engine.segments, engine.times)
            answer = in_batches(wider, self.tuples).answer
            return judged(answer, truth, keys=KEYS, value=VALUE, level=reach, slack=slack)
        emitted = in_batches(engine, self.tuples).emitted
        if not isinstance(emitted, pa.Table):
            emitted = pa.table(
                {
                    "id1": self.names[emitted.key],
                    "id2": self.names[emitted.other],
                    "t": pa.array(emitted.t).view(pa.timestamp("us")),
                    "mean": emitted.value,
                }
            )
        return compared(emitted, truth, keys=KEYS, value=VALUE, slack=1e-6)


def predictor(*, query: Any = None) -> Predictor:
    """Vessels that go on as they say, to :data:`BOUND` metres on either axis."""
    # No model expires: between then and its vessel's next report there would be no answer, nor for a window's length after.
    spec = PredictSpec.of(
        POSITIONS,
        horizon="240 h",
        error=BOUND,
        models={axis: _moving(axis, f"v{axis}") for axis in "xy"},
    )
    return Predictor.of(query or parse(Following().text, {"S": POSITIONS}).bind({}), {"S": spec})


def _moving(name: str, speed: str) -> Arithmetic:
    return Arithmetic("+", Column(name), Arithmetic("*", Column(speed), Elapsed()))

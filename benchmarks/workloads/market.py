"""Trades for the paper's MACD: generated, or recorded where there are any; their exact answer, and who answers.

Prices are steps, and bounds are of the trade's value, as in the paper. Generated trades are of 500 symbols, 100 a second, which
makes a symbol trade every few seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulse.benchmarks.checks.replays import Judged, Known, compared, cuts, in_batches, judged, predicted
from pulse.benchmarks.checks.violations import DATA, RECORDED, TRADES
from pulse.benchmarks.engines import ByHand, Historical, InDuckDB, Predicting, segments_of
from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.duckdb_streams import DuckMacd
from pulse.benchmarks.peers.numba_streams import EQUAL, StreamMacd
from pulse.benchmarks.peers.questions import SECOND, Macd
from pulse.benchmarks.recording import BY_HAND, OURS, SEED
from pulse.benchmarks.replay import Engine
from pulse.benchmarks.workloads.load import Arrivals
from pulse.core.arrays import FloatArray, IntArray
from pulse.datasets.generators.generate import frame
from pulse.language import parse
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.operators.fit.spec import FitSpec
from pulse.runtime.predict.spec import Predictor

FILE = DATA / f"{RECORDED['trades']}.parquet"
SYMBOLS, RATE = 500, 100.0  # of generated trades: a second, of all symbols
SIZE = Macd().long * SECOND
WARM = SIZE + 4 * SECOND  # of the trades' own time, before the clock starts
DAY = 24 * 3600 * SECOND  # no trade comes later than that after the one before
SLACK = 1e-6  # of running sums over all keys, in the peers
SEGMENTS, INTEGRALS = f"{OURS}, segments", f"{OURS}, segments, integral to 0.005 %"
BY_INTEGRALS, OPEN, DUCK = f"{BY_HAND}, integrals", f"{BY_HAND}, open windows", "DuckDB"
FINE = f"{OURS}, to 0.01 %"
PRECISIONS = {OURS: 1.0, FINE: 0.01}  # percent of the trade's value, of predictions
CONTENDERS = (OURS, FINE, SEGMENTS, INTEGRALS, BY_INTEGRALS, OPEN, DUCK)
KINDS = ("generated", "recorded")


class Market(Arrivals):
    """Trades in order of arrival."""

    warming = WARM

    def __init__(self, kind: str, rows: int) -> None:
        if kind == "generated":
            table = frame("ticks", rows, seed=SEED, symbols=SYMBOLS, rate=RATE, sessions=False)
        else:
            table = pq.read_table(FILE, columns=["symbol", "t", "price"])
            table = table.slice(table.num_rows // 3, rows)  # in the midst of a day
        table = table.select(["symbol", "t", "price"]).combine_chunks()
        symbol = table["symbol"].cast(pa.string()).combine_chunks().dictionary_encode()
        self.table = table.set_column(0, "symbol", symbol)
        self.names = symbol.dictionary
        self.key: IntArray = symbol.indices.to_numpy().astype(np.int64)
        self.t: IntArray = table["t"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
        self.price: FloatArray = table["price"].to_numpy()

    @cached_property
    def known(self) -> Known:
        """From a symbol's first trade to its last."""
        return Known(self.table["symbol"], self.t)

    @cached_property
    def truth(self) -> pa.Table:
        """Symbol, t, diff; without averages that are equal but for rounding."""
        peer = DuckDB(load=True)
        peer.connection.register("given", self.table)
        peer.connection.execute("""create table ticks as select symbol::varchar as symbol, epoch_us(t) as t, price,
            row_number() over () as r from given order by symbol, r""")
        found = _apart(peer.macd(Macd()))
        peer.close()
        return found

    # -- who answers ------------------------------------------------------------------------------------------

    def makers(self) -> dict[str, Callable[[], Engine]]:
        """Of all contenders at 1 %."""
        query, columns = (
            parse(Macd.text, {"S": TRADES}).bind(Macd().parameters),
            (self.key, self.t, self.price),
        )
        return {
            OURS: lambda: Predicting(predictor(PRECISIONS[OURS]), self.table),
            FINE: lambda: Predicting(predictor(PRECISIONS[FINE]), self.table),
            SEGMENTS: partial(
                Historical, query, segments_of(FitSpec.of(TRADES, error="1%"), self.table), self.t
            ),
            INTEGRALS: partial(
                Historical, query, segments_of(FitSpec.of(TRADES, drift="0.005%"), self.table), self.t
            ),
            BY_INTEGRALS: lambda: ByHand(StreamMacd(len(self.names)), columns),
            OPEN: lambda: ByHand(StreamMacd(len(self.names), way="open windows"), columns),
            DUCK: lambda: InDuckDB(DuckMacd, self.table),
        }

    def judge(self, contender: str, maker: Callable[[], Any]) -> Judged:
        """What one emits for all trades, against the truth."""
        row: dict[str, Any] = {"keys": ("symbol",), "value": "diff", "slack": SLACK}
        if contender in PRECISIONS:
            return self.judge_prediction(predictor, PRECISIONS[contender])
        engine = maker()
        if isinstance(engine, Historical):
            wider = Historical(replace(engine.query, possible=True), engine.segments, engine.times)
            return judged(in_batches(wider, self.tuples).answer, self.truth, level=0.0, **row)
        emitted = in_batches(engine, self.tuples).emitted
        if not isinstance(emitted, pa.Table):
            emitted = pa.table(
                {
                    "symbol": self.names.take(pa.array(emitted.key)),
                    "t": pa.array(emitted.t).view(pa.timestamp("us")),
                    "diff": emitted.value,
                }
            )
        return compared(_apart(emitted), self.truth, **row)

    def judge_prediction(self, make: Callable[..., Predictor], *arguments: Any, batches: int = 10) -> Judged:
        """Of a prediction: ``make(*arguments, query=...)``."""
        parts = [self.table.slice(a, b - a) for a, b in cuts(self.tuples, batches)]
        query = make(*arguments).continuous.query
        ours = predicted(
            query, lambda asked: make(*arguments, query=asked), parts, self.known, size=SIZE, settled=DAY
        )
        return judged(ours, self.truth, keys=("symbol",), value="diff", level=0.0, slack=SLACK)


def _apart(answer: pa.Table) -> pa.Table:
    return answer.filter(pc.greater(answer["diff"], EQUAL))


def predictor(percent: float = 1.0, *, query: Any = None) -> Predictor:
    """MACD on prices that hold to so many percent of themselves."""
    spec = PredictSpec.of(TRADES, horizon="240 h", error=f"{percent}%")
    return Predictor.of(query or parse(Macd.text, {"S": TRADES}).bind(Macd().parameters), {"S": spec})


def predictor_within(bound: float, *, query: Any = None) -> Predictor:
    """MACD whose difference of averages is to be within the bound: prices are held to what that leaves them."""
    spec = PredictSpec.of(TRADES, horizon="240 h")
    text = f"{Macd.text} error within {bound:.12g}"
    return Predictor.of(query or parse(text, {"S": TRADES}).bind(Macd().parameters), {"S": spec})


@cache
def market(kind: str, rows: int) -> Market:
    """One of :data:`KINDS`, made once."""
    return Market(kind, rows)

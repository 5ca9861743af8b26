"""Fig. 9 iii: MACD at 3,000 trades a second as the precision asked for goes from 20 % to 0.1 %: latency and violations.

Fig. 6's parameters: 3,000 tuples/s, 0.1 to 20 %. ``pulse`` holds each price to so much of itself, as the paper does; ``bound by
the query`` is asked for that much of the middle price on the difference of averages, and shares it out among its inputs. Below
the paper's range stand 0.03 and 0.01 %, at which most of the true answer is found; from 1 % on it is all but empty. The number of
violations is of the whole stream; it and latencies are drawn on logarithmic scales. Tuples know no precision: their row is the
same throughout.

How streams are offered: :mod:`pulse.benchmarks.replay`. Run with ``make bench ONLY=fig9_precision``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from pulse.benchmarks.allocation import keep_freed_memory
from pulse.benchmarks.checks.replays import Judged
from pulse.benchmarks.checks.violations import DATA
from pulse.benchmarks.engines import Predicting
from pulse.benchmarks.recording import OURS, Timing, record, sizes
from pulse.benchmarks.replay import EVERY, Replayed, Replays
from pulse.benchmarks.workloads.market import (
    BY_INTEGRALS,
    FILE,
    KINDS,
    Market,
    market,
    predictor,
    predictor_within,
)

RATE = 3_000.0
ROWS = sizes(12_000, 40_000)
PRECISIONS = sizes((0.01, 1.0, 20.0), (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 20.0))
BOUND = f"{OURS}, bound by the query"
CONTENDERS = (OURS, BOUND, BY_INTEGRALS)
PAPER: dict[str, str | float] = {"paper: latency rises below, %": 0.3}


class Race:
    """A contender at a precision: its answer was looked at, then trades come at the rate."""

    def __init__(self, trades: Market, contender: str, percent: float) -> None:
        keep_freed_memory()
        maker: Callable[[], Any]
        if contender == BY_INTEGRALS:
            maker = trades.makers()[contender]
            self.judged: Judged = trades.judge(contender, maker)
        else:
            bound = percent / 100.0 * float(np.median(trades.price))
            make, asked = (predictor, percent) if contender == OURS else (predictor_within, bound)
            maker = lambda: Predicting(make(asked), trades.table)  # noqa: E731
            # Bounds flow back with every batch, so that it matters which tuples come together.
            self.judged = trades.judge_prediction(make, asked, batches=round(trades.tuples / (RATE * EVERY)))
        replays = Replays({contender: maker}, trades.tuples, warm=trades.warm)
        run: tuple[Timing, Replayed] = replays.run(contender, RATE, rounds=sizes(1, 2))
        self.timing, self.queue = run

    @property
    def facts(self) -> dict[str, str | float]:
        found = self.queue.facts() | self.judged.facts
        engine = self.timing.result
        if isinstance(engine, Predicting):
            found |= engine.facts
        return found | PAPER


@cache
def race(kind: str, contender: str, percent: float) -> Race:
    return Race(market(kind, ROWS), contender, percent)


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("percent", PRECISIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_precision(benchmark: Any, kind: str, percent: float, contender: str) -> None:
    if kind == "recorded" and not FILE.exists():
        pytest.skip(f"no {FILE.name} in {DATA}; set PULSE_DATA to the folder of recorded data")
    one = race(kind, contender, 0.0 if contender == BY_INTEGRALS else percent)
    record(
        benchmark,
        one.timing,
        group=f"MACD, {kind} trades at 3,000/s to {percent:g} %",
        contender=contender,
        work=one.queue.tuples,
        accuracy=one.judged.accuracy,
        figure=f"Fig. 9 iii: precision, {kind} trades",
        x=percent,
        x_label="precision in %",
        facts=one.facts,
        drawn=("latency p99, ms", "violations"),
    )

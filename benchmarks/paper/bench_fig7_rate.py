"""Fig. 7 ii: the cost of a join of two streams by position as their rate grows from 100 to 900 tuples a second.

In nested loops a tuple costs as much as there are others in its window, so the cost of a second grows with the square of the
rate.

Run with ``make bench ONLY=fig7_rate``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from pulse.benchmarks.recording import record, sizes
from pulse.benchmarks.workloads.proximity import CONTENDERS, Proximity

SECONDS = sizes(60, 300)
PER_SEGMENT = 10.0
RATES = sizes((100, 300, 900), (100, 200, 300, 500, 700, 900))


@cache
def race(rate: int) -> Proximity:
    return Proximity(rate * SECONDS, PER_SEGMENT, rate=float(rate))


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("rate", RATES)
def test_rate(benchmark: Any, rate: int, contender: str) -> None:
    one = race(rate)
    record(
        benchmark,
        one.timings[contender],
        group=f"join, {rate} tuples/s",
        contender=contender,
        work=2 * rate * SECONDS,
        accuracy=one.accuracy[contender],
        figure="Fig. 7 ii: stream rate",
        x=rate,
        x_label="tuples a second",
        facts={"tuples per segment": PER_SEGMENT, "pairs of tuples": one.pairs},
    )

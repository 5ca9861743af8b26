"""Fig. 7 i: the cost of a sliding minimum as its window grows from 10 to 100 s, at 3,000 tuples a second.

The paper's operator on tuples pays for every open window; ours, and the other two on tuples, do not.

Run with ``make bench ONLY=fig7_window``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from pulse.benchmarks.recording import record, sizes
from pulse.benchmarks.workloads.moving_objects import Objects
from pulse.benchmarks.workloads.window_min import CONTENDERS, Minima

RATE = 3000.0
TUPLES = sizes(360_000, 1_200_000)
PER_SEGMENT = 20.0
WINDOWS = sizes((10, 30, 100), (10, 20, 30, 40, 50, 60, 80, 100))


@cache
def workload() -> Objects:
    return Objects(TUPLES, PER_SEGMENT, rate=RATE)


@cache
def race(window: int) -> Minima:
    return Minima(workload(), window)


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("window", WINDOWS)
def test_window(benchmark: Any, window: int, contender: str) -> None:
    one = race(window)
    record(
        benchmark,
        one.timings[contender],
        group=f"min over {window} s, 3,000 tuples/s",
        contender=contender,
        work=one.objects.tuples,
        accuracy=one.accuracy[contender],
        figure="Fig. 7 i: window size",
        x=window,
        x_label="window in seconds",
        facts={"segments": one.objects.segments, "tuples per segment": PER_SEGMENT},
    )

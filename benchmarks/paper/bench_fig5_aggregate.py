"""Fig. 5 ii: the smallest value of a sliding window over segments against that over tuples, at three sizes of the window.

A minimum per object every 2 s, over a stream of 100 s. Beside the paper's operator, which lowers every open window by every
tuple, stand two that do not pay for the size: a deque of candidates, and panes. Ours is asked at the closing times, as
tuples are; ``segments`` has the answer at all closing times there are.

Run with ``make bench ONLY=fig5_aggregate``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from pulse.benchmarks.recording import record, sizes
from pulse.benchmarks.workloads.moving_objects import Objects
from pulse.benchmarks.workloads.window_min import CONTENDERS, Minima

SECONDS = 100
TUPLES = sizes(300_000, 1_000_000)
PER_SEGMENT = sizes((1, 3, 10, 100), (1, 2, 3, 5, 10, 20, 50, 100, 300))
WINDOWS = (10, 30, 60)


@cache
def workload(per_segment: float) -> Objects:
    return Objects(TUPLES, per_segment, rate=TUPLES / SECONDS)


@cache
def race(per_segment: float, window: int) -> Minima:
    return Minima(workload(per_segment), window)


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("per_segment", PER_SEGMENT)
@pytest.mark.parametrize("window", WINDOWS)
def test_minimum(benchmark: Any, window: int, per_segment: float, contender: str) -> None:
    one = race(per_segment, window)
    record(
        benchmark,
        one.timings[contender],
        group=f"min over {window} s, {per_segment:g} tuples per segment",
        contender=contender,
        work=one.objects.tuples,
        accuracy=one.accuracy[contender],
        figure=f"Fig. 5 ii: min over {window} s",
        x=per_segment,
        x_label="tuples per segment",
        facts={"segments": one.objects.segments, "results": one.results},
    )

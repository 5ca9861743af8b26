"""Fig. 5 iii: a join of two streams by position, on segments against tuples, as a segment stands for more tuples.

3,000 tuples a second in each stream, windows of 0.1 s: every tuple meets 300 of the other stream in nested loops.

Run with ``make bench ONLY=fig5_join``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from pulse.benchmarks.recording import record, sizes
from pulse.benchmarks.workloads.proximity import CONTENDERS, VALIDATED, Proximity

RATE = 3000.0
TUPLES = sizes(30_000, 150_000)
PER_SEGMENT = sizes((1, 2, 10), (1, 1.2, 1.45, 2, 3, 5, 10, 30, 100))


@cache
def race(per_segment: float) -> Proximity:
    return Proximity(TUPLES, per_segment, rate=RATE)


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("per_segment", PER_SEGMENT)
def test_join(benchmark: Any, per_segment: float, contender: str) -> None:
    if contender == VALIDATED and per_segment != int(per_segment):
        pytest.skip("a model that expires after so many tuples has a whole number of them")
    one = race(per_segment)
    record(
        benchmark,
        one.timings[contender],
        group=f"join, {per_segment:g} tuples per segment",
        contender=contender,
        work=2 * TUPLES,
        accuracy=one.accuracy[contender],
        figure="Fig. 5 iii: join",
        x=per_segment,
        x_label="tuples per segment",
        facts={"segments": one.left.segments + one.right.segments, "pairs of tuples": one.pairs},
    )

"""Fig. 5 i: a filter on segments against one on tuples, as a segment stands for more tuples.

``x > level`` selects about half of the stream. Both sides give whole results: tuples with all their columns, segments with their
models, bounds and certainty. Segments are given (historical), or come of validating every tuple (predictive).

Run with ``make bench ONLY=fig5_filter``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from pulse.benchmarks.allocation import keep_freed_memory
from pulse.benchmarks.checks.answers import judged_above
from pulse.benchmarks.peers import numba_peer
from pulse.benchmarks.peers.duckdb_operators import DuckTuples
from pulse.benchmarks.recording import BY_HAND, OURS, Accuracy, Timing, alternating, exact, record, sizes
from pulse.benchmarks.workloads.moving_objects import Objects
from pulse.benchmarks.workloads.validated import Validation
from pulse.core.expression import Column, Comparison, Constant
from pulse.operators.data.relation import Relation
from pulse.operators.relational.filter import FilterOperator

SECONDS = 100
TUPLES = sizes(1_000_000, 2_000_000)  # below a million, fixed costs show
PER_SEGMENT = sizes((1, 3, 10, 100), (1, 2, 3, 5, 10, 20, 50, 100, 300, 1000))
LEVEL = 2000.0
PREDICATE = Comparison(">", Column("x"), Constant(LEVEL))
TO_ARROW, VALIDATED, DUCK = f"{OURS}, to Arrow", f"{OURS}, with validation", "DuckDB"


class Race:
    """The contenders on one workload: what each answers was looked at before they run by turns."""

    def __init__(self, per_segment: float) -> None:
        self.objects = Objects(TUPLES, per_segment, rate=TUPLES / SECONDS)
        tuples, relation = self.objects.stream_tuples, self.objects.relation
        validation, duck = Validation(self.objects), DuckTuples(tuples=tuples)
        asked = FilterOperator(PREDICATE)
        runs: dict[str, Callable[[], Any]] = {
            OURS: lambda: asked.segments(relation),
            TO_ARROW: lambda: asked.segments(relation).to_segments(),
            VALIDATED: lambda: asked.segments(validation.segments()),
            BY_HAND: lambda: numba_peer.above(tuples, LEVEL),
            DUCK: lambda: duck.above(LEVEL),
        }
        self.accuracy = {
            OURS: self._judged(relation),
            VALIDATED: self._judged(validation.segments()),
            BY_HAND: self._compared(runs[BY_HAND]()._asdict()),
            DUCK: self._compared(
                {name: c.to_numpy() for name, c in zip("itxyvw", runs[DUCK]().columns, strict=True)}
            ),
        }
        assert runs[TO_ARROW]().num_rows == len(runs[OURS]())
        self.accuracy[TO_ARROW] = self.accuracy[OURS]
        self.timings: dict[str, Timing] = alternating(runs, rounds=sizes(3, 9))
        duck.close()

    def _judged(self, relation: Relation) -> Accuracy:
        found, wider = (
            FilterOperator(PREDICATE, possible=possible).segments(relation) for possible in (False, True)
        )
        return judged_above(found, wider, self.objects.stream_tuples, LEVEL)

    def _compared(self, columns: dict[str, Any]) -> Accuracy:
        tuples = self.objects.stream_tuples
        for mine, theirs in zip(tuples, columns.values(), strict=True):
            np.testing.assert_array_equal(theirs, mine[tuples.x > LEVEL])
        return exact()


@cache
def race(per_segment: float) -> Race:
    keep_freed_memory()
    return Race(per_segment)


@pytest.mark.parametrize("contender", [OURS, TO_ARROW, VALIDATED, BY_HAND, DUCK])
@pytest.mark.parametrize("per_segment", PER_SEGMENT)
def test_filter(benchmark: Any, per_segment: float, contender: str) -> None:
    one = race(per_segment)
    record(
        benchmark,
        one.timings[contender],
        group=f"filter, {per_segment:g} tuples per segment",
        contender=contender,
        work=one.objects.tuples,
        accuracy=one.accuracy[contender],
        figure="Fig. 5 i: filter",
        x=per_segment,
        x_label="tuples per segment",
        facts={"segments": one.objects.segments},
    )

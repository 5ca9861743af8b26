"""The judges of the microbenchmarks pass what is right, and no other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pulse.benchmarks.checks.answers import judged_above, judged_minimum, judged_near, row_at, true_minimum
from pulse.benchmarks.workloads.moving_objects import SECOND, Objects
from pulse.benchmarks.workloads.proximity import REACH, near
from pulse.core.certainty import CERTAIN
from pulse.core.expression import Column, Comparison, Constant
from pulse.operators.data.relation import Relation
from pulse.operators.relational.filter import FilterOperator
from pulse.operators.windows.extremum import Extremum

OBJECTS = Objects(20_000, 8, rate=500.0)
LEVEL = float(np.median(OBJECTS.stream_tuples.x[OBJECTS.stream_tuples.id == 0]))  # one that an object passes
ABOVE = Comparison(">", Column("x"), Constant(LEVEL))


def answers(relation: Relation) -> tuple[Relation, Relation]:
    return FilterOperator(ABOVE).segments(relation), FilterOperator(ABOVE, possible=True).segments(relation)


def test_rows_by_instant() -> None:
    relation = OBJECTS.relation
    assert row_at(relation, relation.group, relation.ref).tolist() == list(range(len(relation)))
    ends = relation.ref + np.rint(relation.hi * SECOND).astype(np.int64)
    last = relation.offsets[1:] - 1
    assert (row_at(relation, relation.group[last], ends[last]) == -1).all()


def test_a_filter() -> None:
    found = judged_above(*answers(OBJECTS.relation), OBJECTS.stream_tuples, LEVEL)
    assert 0.9 < found.precision < 1.0
    assert 0.9 < found.recall < 1.0
    assert 0.0 < found.observed < found.certified


def test_a_filter_that_claims_too_much() -> None:
    relation = OBJECTS.relation
    sure = replace(relation, err={name: np.zeros(len(relation)) for name in relation.err})
    with pytest.raises(ValueError, match="certain and wrong"):
        judged_above(*answers(sure), OBJECTS.stream_tuples, LEVEL)


def test_a_filter_that_misses_what_is_possible() -> None:
    found, wider = answers(OBJECTS.relation)
    with pytest.raises(ValueError, match="not even possible"):
        judged_above(
            found, wider.take(np.flatnonzero(wider.certainty == CERTAIN)), OBJECTS.stream_tuples, LEVEL
        )


def test_a_minimum() -> None:
    size = 6 * SECOND
    relation = OBJECTS.relation
    made = Extremum("min", "x", "low", size).samples(relation, SECOND)
    found = judged_minimum(made, "low", OBJECTS, size, len(made))
    assert 0.9 < found.recall <= 1.0
    with pytest.raises(ValueError, match="more than it certifies"):
        judged_minimum(
            replace(made, values={"low": made.values["low"] + 100.0}), "low", OBJECTS, size, len(made)
        )


def test_the_true_minimum_reaches_between_tuples() -> None:
    tuples = OBJECTS.stream_tuples
    t, x = tuples.t[tuples.id == 1], tuples.x[tuples.id == 1]
    middle = (t[10] + t[11]) // 2
    low = true_minimum(OBJECTS, 4 * int(t[1] - t[0]), np.array([middle]), np.array([1]))
    inside = x[(t >= middle - 4 * (t[1] - t[0])) & (t < middle)]
    assert low[0] <= inside.min()


def test_a_join() -> None:
    left, right = (Objects(6_000, 8, rate=500.0, stream=stream) for stream in (0, 1))
    found, wider = (near(left.relation, right.relation, possible=possible) for possible in (False, True))
    judged = judged_near(found, wider, left, right, REACH)
    assert 0.9 < judged.precision <= 1.0
    assert 0.9 < judged.recall <= 1.0
    with pytest.raises(ValueError, match="not even possible"):
        judged_near(found.take(np.arange(0)), wider.take(np.arange(0)), left, right, REACH)
    moved = {"R.y": found.models["R.y"] + np.array([50.0, 0.0])}
    with pytest.raises(ValueError, match=r"R\.y is off"):
        judged_near(replace(found, models=found.models | moved), wider, left, right, REACH)

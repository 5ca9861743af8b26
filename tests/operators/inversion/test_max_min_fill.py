"""A second helping uses what smallest shares leave: no share shrinks, every limit is kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.bounds import Absolute
from pulse.core.expression import Arithmetic, Column, Comparison, Constant, Function
from pulse.operators.inversion.max_min_fill import Limits
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
from pulse.plan.optimise import optimise
from pulse.validation.inversion.inverter import invert
from tests.validation.streams import Stream, evaluation, scan

FREE = math.inf
SUM = [{0: 1.0, 1: 1.0}]


def sums(pairs: list[tuple[int, int]], limit: list[float], n: int) -> Limits:
    limits = Limits(n)
    limits.add(np.array(pairs), SUM, np.array(limit))
    return limits


def test_a_star_of_pairs_by_hand() -> None:
    """Equal halves of 2, 10 and 4; the hub keeps 1, its first partner has the other 1, the others what the hub leaves."""
    limits = sums([(0, 1), (0, 2), (0, 3)], [2.0, 10.0, 4.0], 4)
    found = limits.helped(np.array([1.0, 1.0, 5.0, 2.0]), np.full(4, FREE))
    assert found == pytest.approx([1.0, 1.0, 9.0, 3.0])


def test_a_ceiling_leaves_the_rest_to_the_partner() -> None:
    found = sums([(0, 1)], [10.0], 2).helped(np.array([1.0, 5.0]), np.array([1.5, FREE]))
    assert found == pytest.approx([1.5, 8.5], rel=1e-3)
    assert found[0] <= 1.5


def test_both_legs_of_a_distance() -> None:
    """hypot(0 + a, 0 + b) = 5 with a and b as 3 to 4."""
    limits = Limits(4)
    limits.add(np.array([[0, 1, 2, 3]]), [{0: 1.0, 2: 1.0}, {1: 1.0, 3: 1.0}], np.array([5.0]))
    found = limits.helped(np.array([0.3, 0.4, 0.0, 0.0]), np.full(4, FREE))
    assert found == pytest.approx([3.0, 4.0, 0.0, 0.0])


def test_what_cannot_be_helped_stays() -> None:
    """Unlimited, unknown, without a share, with no limit known, and what has results that are no sums."""
    share = np.array([FREE, np.nan, 0.0, 1.0, 1.0, 1.0])
    limits = sums([(2, 0), (3, 1), (4, 5), (4, 5)], [3.0, 3.0, np.nan, FREE], 6)
    assert np.array_equal(limits.helped(share, np.full(6, FREE)), share, equal_nan=True)
    limits = sums([(0, 1)], [10.0], 2)
    limits.fix(np.array([0]))
    assert limits.helped(np.array([1.0, 5.0]), np.full(2, FREE)) == pytest.approx([1.0, 9.0])
    nobody = np.array([1.0, 2.0])
    assert Limits(2).helped(nobody, np.full(2, FREE)).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="expected one or two sums, got 3"):
        Limits(2).add(np.zeros((1, 2), np.int64), SUM * 3, np.ones(1))


sizes = st.sampled_from([1e-12, 1e-3, 0.5, 1.0, 7.0, 1e6, 1e12])


@st.composite
def crowds(draw: Any) -> tuple[IntArray, list[dict[int, float]], FloatArray]:
    """Results of four inputs each out of six, as one sum or the hypotenuse of two."""
    rows = draw(st.lists(st.permutations(range(6)).map(lambda one: one[:4]), min_size=1, max_size=8))
    factor = [draw(st.sampled_from([0.0, 1e-3, 1.0, 10.0])) for _ in range(4)]
    one = [dict(enumerate(factor))]
    two = [{0: factor[0], 2: factor[2]}, {1: factor[1], 3: factor[3]}]
    limit = [draw(sizes | st.sampled_from([0.0, FREE])) for _ in rows]
    return np.array(rows), draw(st.sampled_from([one, two])), np.array(limit)


def error(inputs: list[int], legs: list[dict[int, float]], share: FloatArray) -> float:
    return math.hypot(*(math.fsum(f * share[inputs[i]] for i, f in leg.items() if f) for leg in legs))


@given(crowds(), st.lists(sizes, min_size=6, max_size=6), st.lists(sizes, min_size=6, max_size=6))
def test_no_share_shrinks_and_every_limit_is_kept(
    crowd: tuple[IntArray, list[dict[int, float]], FloatArray], weight: list[float], top: list[float]
) -> None:
    inputs, legs, limit = crowd
    each, ceiling = np.array(weight), np.array(top)
    share = ceiling.copy()  # what nothing limits may have all
    for row, most in zip(inputs.tolist(), limit, strict=True):
        own = error(row, legs, each)
        for i in row:
            if own > 0.0 and most < FREE:
                share[i] = min(share[i], each[i] * most / own * (1.0 - 1e-12))
    limits = Limits(6)
    limits.add(inputs, legs, limit)
    found = limits.helped(share, ceiling)
    assert (found >= share).all()
    assert (found <= ceiling * (1.0 + 1e-12)).all()
    for row, most in zip(inputs.tolist(), limit, strict=True):
        assert error(row, legs, found) <= most


def near(alias: str = "R") -> Node:
    """Who is within 3 of whom."""
    position = tuple(Column(name) for name in ("S.x", "S.y", f"{alias}.x", f"{alias}.y"))
    joined = Join(scan("S"), scan(alias), condition=Comparison("!=", Column("S.id"), Column(f"{alias}.id")))
    return optimise(Filter(joined, Comparison("<", Function("distance", position), Constant(3))))


def standing(places: dict[str, float]) -> Stream:
    return Stream({key: [(10, [x], [0.0])] for key, x in places.items()})


def test_a_key_far_from_all_gets_what_near_ones_leave() -> None:
    """a and b are 2 apart from a result, and share that by four; c is 20 from a: all of it but what a may move by."""
    one = standing({"a": 0.0, "b": 5.0, "c": -23.0})
    plan = near()
    found = invert(plan, {}, evaluation(plan, {"S": one}).segments)["S"]
    small = 2.0 / math.sqrt(8.0)
    for name in ("x", "y"):
        assert found.bounds[name] == pytest.approx([small, small, 20.0 / math.sqrt(2.0) - small])


@pytest.mark.parametrize("err", [0.1, 4.0, 349.0])
def test_the_slack_of_far_pairs_is_that_of_their_models(err: float) -> None:
    """However far the models may be off now: that is what earlier shares allowed, and would be counted twice."""
    one = standing({"a": 0.0, "b": 1000.0, "c": -700.0})
    plan = near()
    exact = invert(plan, {}, evaluation(plan, {"S": one}).segments)["S"]
    found = invert(plan, {}, evaluation(plan, {"S": one}, err).segments)["S"]
    for name in ("x", "y"):
        assert found.bounds[name] == pytest.approx(exact.bounds[name])


def test_allotments_do_not_swing() -> None:
    """Tracks that pass each other 80 apart: models that err by what was allotted are allotted as much again."""
    one = Stream(
        {"a": [(10, [0.0, 2.0], [0.0])], "b": [(10, [20.0, -2.0], [83.0])], "c": [(10, [900.0], [0.0])]}
    )
    plan, err, allotted = near(), 0.0, []
    for _ in range(4):
        found = invert(plan, {}, evaluation(plan, {"S": one}, err).segments)["S"]
        err = float(min(found.bounds["x"].min(), found.bounds["y"].min()))
        allotted.append(err)
    assert allotted == pytest.approx([80.0 / math.sqrt(8.0)] * 4)


@given(st.lists(st.integers(-40, 40), min_size=2, max_size=6, unique=True))
def test_every_pair_keeps_its_slack(places: list[int]) -> None:
    keys = dict(zip("abcdef", map(float, places), strict=False))
    plan = near()
    found = invert(plan, {}, evaluation(plan, {"S": standing(keys)}).segments)["S"]
    x, y = found.bounds["x"], found.bounds["y"]
    for i, p in enumerate(places):
        for j in range(i):
            apart = abs(p - places[j])
            if apart > 3:
                assert math.hypot(x[i] + x[j], y[i] + y[j]) <= apart - 3


def test_values_that_are_asked_for_are_a_ceiling() -> None:
    """Twice a is asked for to within 0.5: it may err by 0.25, and b, c and d by the rest of 4, 16 and 1."""
    one, other = standing({"a": 10.0}), standing({"b": 6.0, "c": -6.0, "d": 11.0})
    joined = Join(scan("S"), scan("R", "R"), condition=Comparison("<", Column("S.x"), Column("R.x")))
    double = Arithmetic("*", Constant(2), Column("S.x"))
    plan = optimise(Project(joined, (("R.id", Column("R.id")), ("d", double)), "t"))
    evaluate = evaluation(plan, {"S": one, "R": other}).segments
    found = invert(plan, {"d": Absolute(0.5)}, evaluate)
    assert found["S"].bounds["x"] == pytest.approx([0.25])
    assert found["R"].bounds["x"] == pytest.approx([3.75, 15.75, 0.75], rel=1e-3)

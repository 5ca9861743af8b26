"""Aggregates of the points of an instant across keys: bounds hold whatever takes part, rounding included."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE
from pulse.operators.across.tuple_total import PointTotal
from pulse.operators.data.relation import Relation
from tests.operators.relational.test_filter import one_row
from tests.strategies import EPOCH_US

VALUES = [10.0, 7.3, 0.1, -1e9 / 3, 1e15 + 0.125, 8.3, 1e-17, 5e-324, 3.0]
BOUNDS = [0.0, 1e-17, 0.3, 1e-9, 0.05]
MEMBERS = st.lists(
    st.tuples(st.sampled_from(VALUES), st.sampled_from(BOUNDS), st.sampled_from([CERTAIN, LIKELY, POSSIBLE])),
    min_size=1,
    max_size=4,
)


def points(members: list[tuple[float, float, int]], second: int = 0) -> list[Relation]:
    """Points of one instant, each of a key of its own."""
    rows = [one_row([x], err, 0.0, 0.0, EPOCH_US + 1_000_000 * second) for x, err, _ in members]
    return [
        replace(row, drift={}, certainty=np.array([code], np.uint8))
        for row, (_, _, code) in zip(rows, members, strict=True)
    ]


def truths(function: str, members: list[tuple[float, float, int]]) -> list[Fraction]:
    """The outermost results of every set of members that a truth may have."""
    sure = [one for one in members if one[2] == CERTAIN]
    others = [one for one in members if one[2] < CERTAIN]
    some = chain.from_iterable(combinations(others, n) for n in range(len(others) + 1))
    found = []
    for chosen in ([*sure, *more] for more in some):
        for sign in (-1, 0, 1):
            values = [Fraction(x) + sign * Fraction(e) for x, e, _ in chosen]
            if values and function in ("min", "max"):
                found.append(min(values) if function == "min" else max(values))
            elif values:
                found.append(sum(values) / (len(values) if function == "avg" else 1))
    return found


def check(function: str, members: list[tuple[float, float, int]], second: int, made: Relation) -> None:
    (row,) = np.flatnonzero(made.ref == EPOCH_US + 1_000_000 * second)
    value, err = Fraction(float(made.models["v"][row, 0])), Fraction(float(made.err["v"][row]))
    assert all(abs(truth - value) <= err for truth in truths(function, members))


@given(MEMBERS, MEMBERS, st.sampled_from(["min", "max", "sum", "avg"]))
def test_no_truth_is_outside(
    first: list[tuple[float, float, int]], second: list[tuple[float, float, int]], function: str
) -> None:
    made = PointTotal(function, "x", "v", ()).segments(Relation.concat([*points(first), *points(second, 1)]))
    assert len(made) == 2
    check(function, first, 0, made)
    check(function, second, 1, made)


@pytest.mark.parametrize("function", ["sum", "avg"])
def test_doubt_elsewhere_does_not_hide_the_rounding_of_a_sum(function: str) -> None:
    members = [(10.0, 0.0, CERTAIN), (7.3, 0.0, CERTAIN)]
    rows = [*points(members), *points([(5.0, 0.1, LIKELY)], 1)]
    made = PointTotal(function, "x", "v", ()).segments(Relation.concat(rows))
    check(function, members, 0, made)
    assert made.err["v"][0] < 1e-14

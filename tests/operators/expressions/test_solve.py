"""Solution sets: nesting, ends, nulls and negations. What they mean for truths is held by the filter's tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import pulse.core.expression as ex
from pulse.kernels.polynomial.interval_sets import LOWER, UPPER, IntervalSets, intersect, union
from pulse.operators.data.relation import Relation
from pulse.operators.errors import OperandError
from pulse.operators.expressions.solution_sets import whole
from pulse.operators.expressions.solve import solve
from tests.operators.contract import refusal
from tests.operators.relational.test_filter import one_row, predicates
from tests.strategies import relations

X, U = ex.Column("x"), ex.Column("u")


def same(a: IntervalSets, b: IntervalSets) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@given(relations(), predicates())
def test_the_sets_lie_one_inside_the_other_and_in_their_rows(
    relation: Relation, predicate: ex.Expression
) -> None:
    refined, truths = solve(relation, predicate, possible=True)
    assert same(intersect(truths.certain, truths.model), truths.certain)
    assert same(intersect(truths.model, truths.possible), truths.model)
    assert same(union(truths.possible, whole(refined)), whole(refined))


@given(relations(), predicates())
def test_twice_negated_is_the_same(relation: Relation, predicate: ex.Expression) -> None:
    once = solve(relation, predicate, possible=True)[1]
    twice = solve(relation, ex.Not(ex.Not(predicate)), possible=True)[1]
    assert all(same(a, b) for a, b in zip(once, twice, strict=True))


@pytest.mark.parametrize(
    ("relation", "bounds", "ends"),
    [
        ("<", [[0.0, 1.0]], [LOWER]),
        ("<=", [[0.0, 1.0]], [LOWER | UPPER]),
        ("=", [[1.0, 1.0]], [LOWER | UPPER]),
        ("!=", [[0.0, 1.0], [1.0, 4.0]], [LOWER, 0]),
        (">=", [[1.0, 4.0]], [LOWER]),
        (">", [[1.0, 4.0]], [0]),
    ],
)
def test_ends(relation: str, bounds: list[list[float]], ends: list[int]) -> None:
    found = solve(one_row([0.0, 1.0]), ex.Comparison(relation, X, ex.Constant(1)), possible=True)[1]
    assert found.model.bounds.tolist() == bounds
    assert found.model.ends.tolist() == ends
    assert found.certain is found.model is found.possible


@given(relations())
def test_a_null_is_neither_so_nor_not(relation: Relation) -> None:
    holds = ex.Comparison("=", U, ex.Constant(1))
    found = solve(relation, ex.Or((holds, ex.Not(holds))), possible=True)[1].possible
    null = relation.unmodelled["u"].is_null().to_numpy(zero_copy_only=False)
    assert np.array_equal(np.diff(found.offsets) == 0, null)


@given(relations())
def test_constants(relation: Relation) -> None:
    assert same(solve(relation, ex.And(()), possible=True)[1].certain, whole(relation))
    assert same(solve(relation, ex.Or((ex.FALSE, ex.TRUE)), possible=True)[1].certain, whole(relation))
    assert len(solve(relation, ex.Not(ex.TRUE), possible=True)[1].possible.bounds) == 0


def test_what_is_no_predicate() -> None:
    assert "expected a predicate" in refusal(
        lambda: solve(one_row([1.0]), ex.Constant(3), possible=False), OperandError
    )
    with pytest.raises(AssertionError):
        solve(one_row([1.0]), ex.Parameter("p"), possible=False)

"""Slack against dense samples, and its shares against truths at their very ends (semantics 4.5)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse.core.expression as ex
from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.split_heuristics import Split, equi, get
from pulse.operators.relational.filter import FilterOperator
from pulse.validation.inversion.slack import margins, shares_of_margin
from tests.plan.interpreting import value
from tests.validation.streams import START, Stream, streams

TIMES = 41
X, Y = ex.Column("x"), ex.Column("y")


def slack(relation: Relation, predicate: ex.Expression) -> Any:
    """Per row how far it is from a result: infinite where no motion of a model could give one, 0 where there is one already."""
    holds, amount = margins(relation, predicate).by_row(len(relation))
    return np.where(holds, 0.0, amount)


def instants(relation: Relation, row: int) -> list[tuple[int, dict[str, float]]]:
    """Microseconds, and the modelled values there, over a row's range."""
    out = []
    for s in np.linspace(relation.lo[row], relation.hi[row], TIMES, endpoint=False):
        models = {name: float(np.polyval(c[row][::-1], s)) for name, c in relation.models.items()}
        out.append((int(relation.ref[row] + round(s * 1e6)), models))
    return out


def distance_to_a_result(predicate: ex.Expression, row: dict[str, Any]) -> float:
    """By how much all comparisons must move for the predicate to hold at an instant, by the words of semantics 4.5."""
    match predicate:
        case ex.And(parts):
            return max((distance_to_a_result(one, row) for one in parts), default=0.0)
        case ex.Or(parts):
            return min((distance_to_a_result(one, row) for one in parts), default=math.inf)
        case ex.Constant(truth):
            return 0.0 if truth else math.inf
        case ex.Not(ex.And(parts)):
            return distance_to_a_result(ex.Or(tuple(ex.Not(one) for one in parts)), row)
        case ex.Not(ex.Or(parts)):
            return distance_to_a_result(ex.And(tuple(ex.Not(one) for one in parts)), row)
        case ex.Not(ex.Not(inner)):
            return distance_to_a_result(inner, row)
        case ex.Not(inner) | inner:
            if value(predicate, row):
                return 0.0
            assert isinstance(inner, ex.Comparison)
            if isinstance(inner.right, ex.Instant) or (
                isinstance(inner.right, ex.Constant) and inner.left == ex.Column("id")
            ):
                return math.inf
            if isinstance(inner.left, ex.Function) and inner.left.name == "distance2":
                level = float(value(inner.right, row))
                return abs(math.sqrt(value(inner.left, row)) - math.copysign(math.sqrt(abs(level)), level))
            return abs(value(inner.left, row) - value(inner.right, row))


small = st.integers(-3, 3)
sides = st.sampled_from(
    [
        X,
        Y,
        ex.Arithmetic("+", X, Y),
        ex.Arithmetic("*", ex.Constant(3), X),
        ex.Arithmetic("*", X, Y),
        ex.Function("abs", (X,)),
        ex.Arithmetic("^", Y, ex.Constant(2)),
    ]
)
relations = st.sampled_from(["<", "<=", ">", ">=", "!=", "="])
compared = st.builds(ex.Comparison, relations, sides, sides | small.map(ex.Constant))
distances = st.builds(
    lambda r, name, c: ex.Comparison(
        r, ex.Function(name, (X, Y, ex.Constant(1), ex.Constant(2))), ex.Constant(c)
    ),
    st.sampled_from(["<", "<=", ">", ">="]),
    st.sampled_from(["distance", "distance2"]),
    st.integers(0, 9),
)
fixed = st.builds(
    ex.Comparison,
    st.sampled_from(["<", ">="]),
    st.just(ex.Column("t")),
    st.just(ex.Instant(START + 4_500_000)),
) | st.builds(ex.Comparison, st.just("="), st.just(ex.Column("id")), st.sampled_from("ab").map(ex.Constant))
atoms = compared | distances | fixed
predicates = st.recursive(
    atoms,
    lambda inner: (
        st.builds(lambda a, b: ex.And((a, b)), inner, inner)
        | st.builds(lambda a, b: ex.Or((a, b)), inner, inner)
        | inner.map(ex.Not)
    ),
    max_leaves=3,
)


def rows_of(relation: Relation, row: int) -> list[dict[str, Any]]:
    key = relation.keys[0][int(relation.group[row])].as_py()
    return [values | {"t": t, "id": key} for t, values in instants(relation, row)]


@given(streams(keys="ab", degree=2, levels=(-20, 20)), predicates)
def test_slack_is_the_least_distance_to_a_result(one: Stream, predicate: ex.Expression) -> None:
    relation = one.relation()
    found = slack(relation, predicate)
    for row in range(len(relation)):
        dense = [distance_to_a_result(predicate, values) for values in rows_of(relation, row)]
        assert found[row] <= min(dense) + 1e-6
        if math.isinf(min(dense)):
            assert found[row] == math.inf or found[row] >= 0.0
        else:  # and no less than what steep models could gain between two samples
            steep = max(np.abs(np.diff([d for d in dense if math.isfinite(d)])), default=0.0)
            assert found[row] >= min(dense) - 3 * steep - 1e-6


opposed = st.builds(
    lambda a, b: ex.And((a, b)),
    st.builds(ex.Comparison, st.sampled_from("<>"), st.just(X), small.map(ex.Constant)) | distances,
    st.builds(ex.Comparison, st.sampled_from("<>"), st.just(Y), small.map(ex.Constant)) | distances,
)


@given(streams(keys="ab", degree=2, levels=(-20, 20)), opposed)
def test_the_least_may_lie_where_two_comparisons_meet(one: Stream, predicate: ex.Expression) -> None:
    test_slack_is_the_least_distance_to_a_result.hypothesis.inner_test(one, predicate)


def test_two_that_pass_each_other() -> None:
    one = Stream({"a": [(8, [10.0, -1.0], [2.0, 1.0])]})
    both = ex.And((ex.Comparison("<", X, ex.Constant(0)), ex.Comparison("<", Y, ex.Constant(0))))
    assert slack(one.relation(), both) == pytest.approx([6.0])
    near = ex.And(
        (
            ex.Comparison(
                "<",
                ex.Function("distance", (X, ex.Constant(0), ex.Constant(0), ex.Constant(0))),
                ex.Constant(0),
            ),
            both,
        )
    )
    assert slack(one.relation(), near) == pytest.approx([6.0])


def allot_slack(relation: Relation, predicate: ex.Expression, split: Split = equi) -> dict[str, Any]:
    """Per row the share of each modelled attribute of the slack; infinite where the row has a result."""
    found = margins(relation, predicate)
    holds, _ = found.by_row(len(relation))
    budget = np.where(holds[found.forward.row], np.inf, found.amount)
    return shares_of_margin(found, budget, len(relation), split, {})


@given(
    streams(keys="ab", degree=1, levels=(-20, 20)),
    predicates | opposed,
    st.sampled_from(["equi", "gradient", "restless"]),
)
def test_within_its_share_of_the_slack_nothing_comes_of_nothing(
    one: Stream, predicate: ex.Expression, split: str
) -> None:
    relation = one.relation()
    found = allot_slack(relation, predicate, get(split))
    empty = slack(relation, predicate) > 0.0
    for row in np.flatnonzero(empty):
        ends = {name: min(float(found[name][row]), 1e3) if name in found else 1e3 for name in ("x", "y")}
        for values in rows_of(relation, row):
            for signs in itertools.product((-1.0, 0.3, 1.0), repeat=2):
                moved = {n: values[n] + s * ends[n] for n, s in zip(("x", "y"), signs, strict=True)}
                assert not value(predicate, values | moved), (ends, values, signs)


@given(streams(keys="ab", degree=2, levels=(-20, 20)), predicates)
def test_there_is_slack_exactly_where_there_is_no_result(one: Stream, predicate: ex.Expression) -> None:
    relation = one.relation()
    kept = FilterOperator(predicate).segments(
        replace(relation, unmodelled={"n": pa.array(np.arange(len(relation)))}, columns=with_n(relation))
    )
    some = set(kept.unmodelled["n"].to_pylist())
    for row, amount in enumerate(slack(relation, predicate)):
        assert amount < 1e-6 if row in some else amount >= 0.0


def with_n(relation: Relation) -> Columns:
    return replace(relation.columns, unmodelled=(("n", pa.int64()),))


@given(
    streams(keys="ab", degree=1, levels=(-9, 9)),
    st.builds(ex.Comparison, st.sampled_from(["<", ">", "!="]), sides, small.map(ex.Constant)),
)
def test_a_result_keeps_its_depth(one: Stream, predicate: ex.Expression) -> None:
    """While every difference moves by less than the depth, some of the result remains."""
    relation = one.relation()
    found = margins(relation, predicate)
    holds, depth = found.by_row(len(relation))
    for row in np.flatnonzero(holds & (depth > 0.1)):
        by = [
            value(predicate.left, v) - value(predicate.right, v)  # type: ignore[attr-defined]
            for v in rows_of(relation, row)
        ]
        signed = {"<": [-d for d in by], ">": by, "!=": [abs(d) for d in by]}[predicate.relation]  # type: ignore[attr-defined]
        assert max(signed) <= depth[row] + 1e-6 + 0.2 * abs(depth[row])
        assert depth[row] >= max(signed) - 1e-6


def test_a_satisfied_comparison_does_not_hide_a_nearly_satisfied_one() -> None:
    """x = 10 satisfies x > 0 by 10, and misses x < 9 by 1: the slack is 1, not 10."""
    one = Stream({"a": [(4, [10.0], [0.0])]})
    both = ex.And((ex.Comparison(">", X, ex.Constant(0)), ex.Comparison("<", X, ex.Constant(9))))
    assert slack(one.relation(), both) == pytest.approx([1.0])
    assert allot_slack(one.relation(), both)["x"] == pytest.approx([1.0])


def test_a_comparison_that_is_never_the_obstacle_is_free() -> None:
    one = Stream({"a": [(4, [10.0], [5.0])]})
    both = ex.And((ex.Comparison("<", Y, ex.Constant(100)), ex.Comparison("<", X, ex.Constant(9))))
    found = allot_slack(one.relation(), both)
    assert found["x"] == pytest.approx([1.0])
    assert found["y"] == pytest.approx([math.inf])


def test_what_cannot_be_has_no_end_of_slack() -> None:
    one = Stream({"a": [(4, [10.0], [5.0])]})
    assert slack(one.relation(), ex.FALSE).tolist() == [math.inf]
    assert slack(one.relation(), ex.And((ex.FALSE, ex.Comparison("<", X, ex.Constant(9))))).tolist() == [
        math.inf
    ]
    assert len(slack(one.relation().take(np.zeros(0, np.int64)), ex.Comparison("<", X, ex.Constant(9)))) == 0


def test_an_equality_crosses_still_while_it_moves_by_less_than_either_side() -> None:
    one = Stream({"a": [(4, [-1.0, 1.0], [0.0])]})  # from -1 to 3
    holds, depth = margins(one.relation(), ex.Comparison("=", X, ex.Constant(0))).by_row(1)
    assert holds.tolist() == [True]
    assert depth == pytest.approx([1.0])

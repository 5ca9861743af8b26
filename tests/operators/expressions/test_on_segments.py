"""Expressions on relations: every truth within the inputs' bounds stays within the output's."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pulse.core.expression import (
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Elapsed,
    Expression,
    Function,
    Instant,
    Negative,
    Parameter,
)
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError, MissingValueError, OperandError, OperatorError
from pulse.operators.expressions.on_segments import Evaluation
from tests import naive
from tests.operators.computing import compute
from tests.operators.contract import causes, refusal, row_values, truths
from tests.operators.relational.test_filter import one_row
from tests.strategies import relations

X, Y, U, N = (Column(name) for name in "xyun")


def polynomials():
    leaves = st.sampled_from([X, Y, N, Constant(2), Constant(-0.5), Constant(0)])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Arithmetic, st.sampled_from("+-*"), inner, inner),
            st.builds(lambda e, n: Arithmetic("^", e, Constant(n)), inner, st.integers(0, 3)),
            st.builds(lambda e, c: Arithmetic("/", e, Constant(c)), inner, st.sampled_from([2, -4])),
            st.builds(Negative, inner),
            st.builds(lambda e: Function("abs", (e,)), inner),
        ),
        max_leaves=4,
    )


def squared(e: Expression) -> Expression:
    return Arithmetic("*", e, e)


def functions():
    """Functions of operands that are in their domain for every truth."""
    positive = Arithmetic("+", squared(X), Constant(100))
    return st.sampled_from(
        [
            Function("sqrt", (positive,)),
            Function("sqrt", (Function("abs", (Y,)),)),
            Function("log", (positive,)),
            Function("sin", (X,)),
            Function("cos", (Arithmetic("-", X, Y),)),
            Function("exp", (Negative(Arithmetic("/", squared(X), Constant(64))),)),
            Function("distance", (X, Y, Constant(1), N)),
            Function("distance2", (X, Y, N, Constant(1))),
            Arithmetic("/", Y, positive),
            Arithmetic("/", Constant(1), Negative(positive)),
        ]
    )


def check_bounds(relation: Relation, made: Relation, expression: Expression) -> None:
    sources = [ids[0] for ids in causes(made)]
    for row in range(0, len(made), 1 + len(made) // 20):  # pieces of one row are much alike
        cause = sources[row]
        for at in naive.instants_of(made, row)[1:]:
            got = naive.piece_value(made.ref[row], made.models["z"][row], at)
            sizes = [
                abs(v)
                for v in row_values(relation, cause, at, dict.fromkeys("xy", Fraction(1))).values()
                if isinstance(v, Fraction)
            ]
            for values in truths(relation, cause, at):
                want = naive.expression_value(expression, values)
                rounding = 1e-11 * (1.0 + abs(float(want)) + float(max(s for s in sizes if s < 10**12)) ** 3)
                # A time of 1e9 seconds is exact to 1e-7.
                far = 1e-6 if np.abs(relation.lo[cause]) > 1e6 else 0.0
                assert abs(float(got - Fraction(want))) <= made.err["z"][row] * (
                    1 + 1e-9
                ) + rounding + far * (1 + abs(float(want)))


@given(relations(max_keys=2, max_rows=3), polynomials())
def test_polynomials_keep_every_truth(relation: Relation, expression: Expression) -> None:
    made = compute(relation, [("z", expression)])
    assert made.columns.modelled == ("x", "y", "z")
    check_bounds(relation, made, expression)


@given(relations(max_keys=2, max_rows=2), functions())
def test_functions_keep_every_truth(relation: Relation, expression: Expression) -> None:
    check_bounds(relation, compute(relation, [("z", expression)]), expression)


@given(relations(bounds=(0.0,)), polynomials())
def test_what_has_no_error_gets_its_rounding_alone(relation: Relation, expression: Expression) -> None:
    made = compute(relation, [("z", expression)])
    reach = np.maximum(np.abs(made.lo), np.abs(made.hi))
    size = 1.0 + sum(np.abs(c) @ np.ones(c.shape[1]) for c in (made.models["x"], made.models["y"]))
    rounding = 1e-13 * (size * (1.0 + reach) ** 2) ** 4  # of products of up to four factors
    assert (made.err["z"] <= rounding).all()


def test_sums_of_constants_that_are_exact_have_no_error() -> None:
    assert compute(one_row([0.25]), [("z", Arithmetic("+", X, Constant(0.5)))]).err["z"].tolist() == [0.0]
    (rounded,) = compute(one_row([0.1]), [("z", Arithmetic("+", X, Constant(0.2)))]).err["z"]
    assert rounded == float(abs(Fraction(0.1) + Fraction(0.2) - Fraction(0.1 + 0.2)))


@given(relations())
def test_rows_that_are_cut_finer_keep_all_columns(relation: Relation) -> None:
    made = compute(relation, [("z", Function("abs", (Arithmetic("-", X, Y),)))])
    for row, (cause,) in enumerate(causes(made)):
        for at in naive.instants_of(made, row):
            for name in "xy":
                got, want = (
                    naive.piece_value(r.ref[i], r.models[name][i], at)
                    for r, i in ((made, row), (relation, cause))
                )
                assert got == want
        assert made.unmodelled["u"][row].as_py() == relation.unmodelled["u"][cause].as_py()


@pytest.mark.parametrize(
    ("expression", "factor"),
    [
        (Negative(X), 1.0),
        (Arithmetic("*", Constant(-3), X), 3.0),
        (Arithmetic("/", X, Constant(4)), 0.25),
        (Arithmetic("-", Constant(1), X), 1.0),
        (Arithmetic("+", X, X), 2.0),
    ],
)
def test_linear_expressions_scale_bound_and_drift(expression: Expression, factor: float) -> None:
    relation = replace(one_row([1.0, 2.0], 0.5), drift={"x": np.array([0.125])})
    made = compute(relation, [("z", expression)])
    assert made.err["z"] == pytest.approx([0.5 * factor])
    assert made.drift["z"] == pytest.approx([0.125 * factor])


def test_a_product_has_no_known_drift() -> None:
    assert "z" not in compute(one_row([1.0, 2.0], 0.5), [("z", squared(X))]).drift


def test_the_pieces_of_a_distance_stay_few() -> None:
    line = one_row([300.0, -2.0], 1.0, hi=200.0)
    passes = Function("distance", (X, Constant(50), Constant(0), Constant(0)))
    assert len(compute(line, [("z", passes)])) <= 16
    exact = replace(line, err={"x": np.zeros(1)})
    assert len(compute(exact, [("z", passes)])) <= 128


def test_the_root_of_what_is_below_zero_within_its_bound() -> None:
    relation = one_row([-0.25, 0.25], 0.5)
    made = compute(relation, [("z", Function("sqrt", (X,)))])
    for row in range(len(made)):
        for at in naive.instants_of(made, row):
            model = naive.piece_value(relation.ref[0], relation.models["x"][0], at)
            got = float(naive.piece_value(made.ref[row], made.models["z"][row], at))
            for share in (-0.5, -0.25, 0.0, 0.5):
                truth = float(model) + share
                if truth >= 0.0:
                    assert abs(got - math.sqrt(truth)) <= made.err["z"][row]


@pytest.mark.parametrize(
    ("expression", "reported"),
    [
        (Arithmetic("/", Constant(1), X), ["crosses zero", "(1 / x)", "± 0.5", "filter"]),
        (Function("sqrt", (Arithmetic("-", X, Constant(2)),)), ["sqrt", "below zero", "error bound 0.5"]),
        (Function("log", (X,)), ["log(x)", "above zero"]),
        (Function("exp", (Arithmetic("*", X, Constant(1000)),)), ["exp", "beyond the range"]),
        (Arithmetic("/", X, Constant(0)), ["divides by zero"]),
    ],
)
def test_outside_the_domain(expression: Expression, reported: list[str]) -> None:
    text = refusal(lambda: compute(one_row([-1.0, 1.0], 0.5), [("z", expression)]), DomainError)
    assert all(part in text for part in reported), text
    if "zero" not in reported[0]:
        assert "2023-11-14T22:13:20" in text


@pytest.mark.parametrize(
    "expression",
    [
        Constant("text"),
        Instant(0),
        Column("t"),
        Comparison("<", X, X),
        Arithmetic("^", X, Constant(0.5)),
        Arithmetic("^", X, X),
    ],
)
def test_what_is_no_number(expression: Expression) -> None:
    assert refusal(lambda: compute(one_row([1.0]), [("z", expression)]), OperandError)


def test_an_unknown_function_is_named() -> None:
    text = refusal(lambda: compute(one_row([1.0]), [("z", Function("tan", (X,)))]), OperatorError)
    assert "'tan'" in text
    assert "sqrt" in text


@given(relations())
def test_a_null_is_an_error_that_says_where(relation: Relation) -> None:
    assume(relation.unmodelled["u"].null_count > 0)
    text = refusal(lambda: compute(relation, [("z", Arithmetic("+", X, U))]), MissingValueError)
    assert "'u' is null" in text
    assert "k=" in text


def test_too_large_for_floats() -> None:
    relation = one_row([1e200, 1.0])
    text = refusal(lambda: compute(relation, [("z", squared(X))]), DomainError)
    assert "floating-point" in text


def test_a_parameter_that_nobody_bound_is_a_mistake_of_ours() -> None:
    for bad in (Parameter("p"), Elapsed()):
        with pytest.raises(AssertionError):
            Evaluation(one_row([1.0])).fold(bad)

"""Expressions on relations: every truth within the inputs' bounds stays within the output's."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import pulse.core.expression as ex
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError, MissingValueError, OperandError, OperatorError
from pulse.operators.expressions.on_segments import Evaluation
from tests import naive
from tests.operators.computing import compute
from tests.operators.contract import causes, refusal, row_values, truths
from tests.operators.relational.test_filter import one_row
from tests.strategies import relations

X, Y, U, N = (ex.Column(name) for name in "xyun")


def polynomials():
    leaves = st.sampled_from([X, Y, N, ex.Constant(2), ex.Constant(-0.5), ex.Constant(0)])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(ex.Arithmetic, st.sampled_from("+-*"), inner, inner),
            st.builds(lambda e, n: ex.Arithmetic("^", e, ex.Constant(n)), inner, st.integers(0, 3)),
            st.builds(lambda e, c: ex.Arithmetic("/", e, ex.Constant(c)), inner, st.sampled_from([2, -4])),
            st.builds(ex.Negative, inner),
            st.builds(lambda e: ex.Function("abs", (e,)), inner),
        ),
        max_leaves=4,
    )


def squared(e: ex.Expression) -> ex.Expression:
    return ex.Arithmetic("*", e, e)


def functions():
    """Functions of operands that are in their domain for every truth."""
    positive = ex.Arithmetic("+", squared(X), ex.Constant(100))
    return st.sampled_from(
        [
            ex.Function("sqrt", (positive,)),
            ex.Function("sqrt", (ex.Function("abs", (Y,)),)),
            ex.Function("log", (positive,)),
            ex.Function("sin", (X,)),
            ex.Function("cos", (ex.Arithmetic("-", X, Y),)),
            ex.Function("exp", (ex.Negative(ex.Arithmetic("/", squared(X), ex.Constant(64))),)),
            ex.Function("distance", (X, Y, ex.Constant(1), N)),
            ex.Function("distance2", (X, Y, N, ex.Constant(1))),
            ex.Arithmetic("/", Y, positive),
            ex.Arithmetic("/", ex.Constant(1), ex.Negative(positive)),
        ]
    )


def check_bounds(relation: Relation, made: Relation, expression: ex.Expression) -> None:
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
def test_polynomials_keep_every_truth(relation: Relation, expression: ex.Expression) -> None:
    made = compute(relation, [("z", expression)])
    assert made.columns.modelled == ("x", "y", "z")
    check_bounds(relation, made, expression)


@given(relations(max_keys=2, max_rows=2), functions())
def test_functions_keep_every_truth(relation: Relation, expression: ex.Expression) -> None:
    check_bounds(relation, compute(relation, [("z", expression)]), expression)


@given(relations(bounds=(0.0,)), polynomials())
def test_what_has_no_error_gets_its_rounding_alone(relation: Relation, expression: ex.Expression) -> None:
    made = compute(relation, [("z", expression)])
    reach = np.maximum(np.abs(made.lo), np.abs(made.hi))
    size = 1.0 + sum(np.abs(c) @ np.ones(c.shape[1]) for c in (made.models["x"], made.models["y"]))
    # A model about a far reference is moved to a near one first, which rounds by the size of its terms there.
    far = np.maximum(np.abs(relation.lo), np.abs(relation.hi))[:, None]
    terms = 1.0 + sum(
        (np.abs(c) * far ** np.arange(c.shape[1])).sum(axis=1)
        for c in (relation.models["x"], relation.models["y"])
    )
    moved = np.array([terms[relation.group == group].max() for group in made.group])
    rounding = 1e-13 * np.maximum(size * (1.0 + reach) ** 2, moved) ** 4  # of products of up to four factors
    assert (made.err["z"] <= rounding).all()


def test_sums_of_constants_that_are_exact_have_no_error() -> None:
    assert compute(one_row([0.25]), [("z", ex.Arithmetic("+", X, ex.Constant(0.5)))]).err["z"].tolist() == [
        0.0
    ]
    (rounded,) = compute(one_row([0.1]), [("z", ex.Arithmetic("+", X, ex.Constant(0.2)))]).err["z"]
    assert rounded == float(abs(Fraction(0.1) + Fraction(0.2) - Fraction(0.1 + 0.2)))


@given(relations())
def test_rows_that_are_cut_finer_keep_all_columns(relation: Relation) -> None:
    made = compute(relation, [("z", ex.Function("abs", (ex.Arithmetic("-", X, Y),)))])
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
        (ex.Negative(X), 1.0),
        (ex.Arithmetic("*", ex.Constant(-3), X), 3.0),
        (ex.Arithmetic("/", X, ex.Constant(4)), 0.25),
        (ex.Arithmetic("-", ex.Constant(1), X), 1.0),
        (ex.Arithmetic("+", X, X), 2.0),
    ],
)
def test_linear_expressions_scale_bound_and_drift(expression: ex.Expression, factor: float) -> None:
    relation = replace(one_row([1.0, 2.0], 0.5), drift={"x": np.array([0.125])})
    made = compute(relation, [("z", expression)])
    assert made.err["z"] == pytest.approx([0.5 * factor])
    assert made.drift["z"] == pytest.approx([0.125 * factor])


def test_a_product_has_no_known_drift() -> None:
    assert "z" not in compute(one_row([1.0, 2.0], 0.5), [("z", squared(X))]).drift


def test_the_pieces_of_a_distance_stay_few() -> None:
    line = one_row([300.0, -2.0], 1.0, hi=200.0)
    passes = ex.Function("distance", (X, ex.Constant(50), ex.Constant(0), ex.Constant(0)))
    assert len(compute(line, [("z", passes)])) <= 16
    exact = replace(line, err={"x": np.zeros(1)})
    assert len(compute(exact, [("z", passes)])) <= 128


def test_the_root_of_what_is_below_zero_within_its_bound() -> None:
    relation = one_row([-0.25, 0.25], 0.5)
    made = compute(relation, [("z", ex.Function("sqrt", (X,)))])
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
        (ex.Arithmetic("/", ex.Constant(1), X), ["crosses zero", "(1 / x)", "± 0.5", "filter"]),
        (
            ex.Function("sqrt", (ex.Arithmetic("-", X, ex.Constant(2)),)),
            ["sqrt", "below zero", "error bound 0.5"],
        ),
        (ex.Function("log", (X,)), ["log(x)", "above zero"]),
        (ex.Function("exp", (ex.Arithmetic("*", X, ex.Constant(1000)),)), ["exp", "beyond the range"]),
        (ex.Arithmetic("/", X, ex.Constant(0)), ["divides by zero"]),
    ],
)
def test_outside_the_domain(expression: ex.Expression, reported: list[str]) -> None:
    text = refusal(lambda: compute(one_row([-1.0, 1.0], 0.5), [("z", expression)]), DomainError)
    assert all(part in text for part in reported), text
    if "zero" not in reported[0]:
        assert "2023-11-14T22:13:20" in text


@pytest.mark.parametrize(
    "expression",
    [
        ex.Constant("text"),
        ex.Instant(0),
        ex.Column("t"),
        ex.Comparison("<", X, X),
        ex.Arithmetic("^", X, ex.Constant(0.5)),
        ex.Arithmetic("^", X, X),
    ],
)
def test_what_is_no_number(expression: ex.Expression) -> None:
    assert refusal(lambda: compute(one_row([1.0]), [("z", expression)]), OperandError)


def test_an_unknown_function_is_named() -> None:
    text = refusal(lambda: compute(one_row([1.0]), [("z", ex.Function("tan", (X,)))]), OperatorError)
    assert "'tan'" in text
    assert "sqrt" in text


@given(relations())
def test_a_null_is_an_error_that_says_where(relation: Relation) -> None:
    assume(relation.unmodelled["u"].null_count > 0)
    text = refusal(lambda: compute(relation, [("z", ex.Arithmetic("+", X, U))]), MissingValueError)
    assert "'u' is null" in text
    assert "k=" in text


def test_too_large_for_floats() -> None:
    relation = one_row([1e200, 1.0])
    text = refusal(lambda: compute(relation, [("z", squared(X))]), DomainError)
    assert "floating-point" in text


def test_a_parameter_that_nobody_bound_is_a_mistake_of_ours() -> None:
    for bad in (ex.Parameter("p"), ex.Elapsed()):
        with pytest.raises(AssertionError):
            Evaluation(one_row([1.0])).fold(bad)

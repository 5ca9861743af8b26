"""Derivatives of MODEL clauses against those of polynomials of fractions, and the refusal of all others."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.expression import Arithmetic, Column, Constant, Elapsed, Expression, Function, Negative
from pulse.language import LanguageError
from pulse.operators.errors import OperandError
from pulse.operators.expressions.derivative import derivative
from tests.runtime.execution.asking import START, local, prices

VALUES = {"a": Fraction(3, 2), "b": Fraction(-7, 3)}
leaves = st.one_of(
    st.just(Elapsed()), st.sampled_from([Column("a"), Column("b")]), st.integers(-4, 4).map(Constant)
)
formulas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Arithmetic, st.sampled_from("+-*"), inner, inner),
        st.builds(lambda e, n: Arithmetic("^", e, Constant(n)), inner, st.integers(0, 3)),
        st.builds(lambda e: Arithmetic("/", e, Column("b")), inner),
        st.builds(Negative, inner),
    ),
    max_leaves=6,
)


def polynomial(e: Expression) -> list[Fraction]:
    """The coefficients of a formula in the elapsed time."""
    if isinstance(e, Elapsed):
        return [Fraction(0), Fraction(1)]
    if isinstance(e, Column):
        return [VALUES[e.name]]
    if isinstance(e, Constant):
        return [Fraction(e.value)]
    if isinstance(e, Negative):
        return [-one for one in polynomial(e.operand)]
    assert isinstance(e, Arithmetic)
    a = polynomial(e.left)
    if e.op == "^":
        made = [Fraction(1)]
        for _ in range(int(e.right.value)):
            made = product(made, a)
        return made
    b = polynomial(e.right)
    if e.op == "*":
        return product(a, b)
    if e.op == "/":
        return [one / b[0] for one in a]
    sign = 1 if e.op == "+" else -1
    width = max(len(a), len(b))
    a, b = a + [Fraction(0)] * (width - len(a)), b + [Fraction(0)] * (width - len(b))
    return [x + sign * y for x, y in zip(a, b, strict=True)]


def product(a: list[Fraction], b: list[Fraction]) -> list[Fraction]:
    made = [Fraction(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            made[i + j] += x * y
    return made


@given(formulas)
def test_derivatives_of_polynomials(formula: Expression) -> None:
    expected = [j * one for j, one in enumerate(polynomial(formula))][1:]
    found = polynomial(derivative(formula))
    width = max(len(expected), len(found))
    pad = [[*one, *[Fraction(0)] * (width - len(one))] for one in (expected, found)]
    assert pad[0] == pad[1]


def test_a_function_of_t_is_refused() -> None:
    with pytest.raises(OperandError, match="expected a polynomial of t"):
        derivative(Function("sqrt", (Elapsed(),)))
    assert derivative(Function("sqrt", (Column("a"),))) == Constant(0)


def test_the_derivative_of_a_model_clause_is_that_of_its_formula() -> None:
    t = pd.to_datetime(START // 10**6 + np.arange(6) * 10, unit="s")
    data = pd.DataFrame(
        {"id": 1, "t": t, "x": np.arange(6.0), "v": [2.0, -1.0, 0.5, 3.0, 0.0, 1.0], "a": 0.25}
    )
    model = local().fit(data, key="id", time="t", model=dict.fromkeys("xva", "step"), error=0)
    text = "select id, {}(x) as s from S model x = x + v * t + a * t^2 / 2 {} sample every 1 s"
    found = local().sql(text.format("derivative", ""), streams={"S": model}).to_pandas()
    i = ((found["t"] - t[0]).dt.total_seconds() // 10).astype(int)
    since = (found["t"] - t[0]).dt.total_seconds() - 10 * i
    truth = data["v"].to_numpy()[i] + 0.25 * since
    assert len(found) == 51
    assert (np.abs(found["s"] - truth) <= found["s_err"] + 1e-12).all()
    assert found["s_err"].max() < 1e-12
    fast = local().sql(text.format("d", "where derivative(x) > 2"), streams={"S": model}).to_pandas()
    assert len(fast) == int((truth > 2).sum())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("derivative(price)", r"has no certificate.*rate\(price, 10 s\)"),
        ("d(price)", r"has no certificate.*rate\(price, 10 s\)"),
        ("derivative(2 * price)", "takes an attribute of a MODEL clause"),
        ("derivative(price, 2)", r"derivative takes one argument, derivative\(x\), got 2"),
        ("derivative(venue)", "expected a number"),
    ],
)
def test_the_derivative_of_a_fitted_model_is_refused(text: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        local().sql(f"select symbol, {text} as v from S", streams={"S": prices()}).segments()

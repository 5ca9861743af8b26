"""Equation systems in symbols: the paper's Fig. 1, and the same for every other node that solves or integrates."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulse.core.expression import Arithmetic, Column, Constant, Elapsed, Expression, Negative
from pulse.plan.equations import equation_systems
from pulse.plan.notation import formula
from pulse.plan.symbolic import Symbolic, symbolic
from tests.plan.interpreting import value
from tests.plan.reading import read_expression, read_plan


def lines(text: str, **degrees: int) -> list[tuple[str, ...]]:
    known = {("objects", name): degree for name, degree in degrees.items()}
    return [system.lines for system in equation_systems(read_plan(text), known)]


def test_fig_1() -> None:
    plan = """
    Join where A.x < B.y
      Scan A as A model x = (A.x + (A.v * t))
      Scan B as B model y = ((B.v * t) + (B.a * (t ^ 2)))
    """
    assert lines(plan) == [
        (
            "A.x < B.y",
            "A.x - B.y < 0",
            "A.x + A.v·t - (B.v·t + B.a·t²) < 0",
            "A.x + (A.v - B.v)·t - B.a·t² < 0",
        )
    ]


def test_models_of_unknown_degree_are_sums_over_powers() -> None:
    plan = """
    Filter (S.price - (2 * Q.price)) >= 5
      Join on S.symbol = Q.symbol
        Scan S as S
        Scan Q as Q
    """
    assert lines(plan)[0][-1] == "Σ (S.price[i] - 2·Q.price[i])·tⁱ - 5 >= 0"


def test_models_of_known_degree_are_spelled_out() -> None:
    plan = """
    Join where R.x > T.x
      Scan objects as R
      Scan objects as T
    """
    assert lines(plan, x=1)[0][2:] == (
        "R.x₀ + R.x₁·t - (T.x₀ + T.x₁·t) > 0",
        "R.x₀ - T.x₀ + (R.x₁ - T.x₁)·t > 0",
    )


def test_through_projections_and_filters() -> None:
    plan = """
    Filter twice = 0
      Project twice = (R.x * 2); time t
        Filter R.x > 0
          Scan objects as R
    """
    assert lines(plan, x=1)[-1] == ("twice = 0", "(R.x₀ + R.x₁·t)·2 = 0", "2·R.x₀ + 2·R.x₁·t = 0")


def test_two_windows_of_one_stream_are_distinguished() -> None:
    plan = """
    Join on S.symbol = L.symbol where S.ap > L.ap
      Project S.symbol, S.ap = a; time S.t
        Window a = avg(S.price) over 10 s every 2 s
          Scan S as S
      Project L.symbol = S.symbol, L.ap = a; time L.t
        Window a = avg(S.price) over :long every 2 s
          Scan S as S
    """
    short, long, comparison = lines(plan)
    assert short[0] == "avg: a(t) = 1/(10 s) ∫ S.price dt from t - 10 s to t"
    assert long[1] == "= 1/(:long) (tail + constant + head)"
    assert comparison[-1] == "Σ (S.ap[i] - L.ap[i])·tⁱ > 0"


@pytest.mark.parametrize(
    ("predicate", "last"),
    [
        ("R.id != T.id", "compares keys; no equation"),
        ("R.t < '2020-01-01T00:00:00.000000Z'", "cuts time ranges; no equation"),
        (
            "sqrt(R.x) < 3",
            "not a polynomial in t: replaced by polynomials with a certified error (semantics 3.3)",
        ),
        (
            "distance2(R.x, R.y, T.x, T.y) < 25",
            "a polynomial in t for each piece of common time, its coefficients from those of the models",
        ),
    ],
)
def test_what_is_no_plain_equation_is_reported(predicate: str, last: str) -> None:
    system = lines(f"Join where {predicate}\n  Scan objects as R\n  Scan objects as T")[0]
    assert system[-1] == last


def test_a_distance_from_a_parameter_is_compared_as_squares() -> None:
    system = lines("Filter distance(R.x, R.y, 0, 0) < :c\n  Scan objects as R", x=0, y=0)[0]
    assert system[2:4] == ("R.x² + R.y² - :c² < 0, if :c >= 0", "R.x₀² + R.y₀² - :c² < 0")


def test_long_formulas_are_summed_up() -> None:
    plan = "Join where distance2(R.x, R.y, T.x, T.y) < 25\n  Scan objects as R\n  Scan objects as T"
    assert lines(plan, x=2, y=1)[0][-1] == "a polynomial of degree 4 in t"


def test_aggregates_across_keys() -> None:
    plan = "Across m = {}(two.x) by two.id\n  Scan two as two"
    assert (
        lines(plan.format("min"))[0][0]
        == "min over keys with the same two.id: m(t) = lower envelope of two.x(t)"
    )
    assert lines(plan.format("sum")) == [
        ("sum over keys with the same two.id: m(t) = Σ two.x(t), coefficient by coefficient",)
    ]
    assert "count(t)" in lines(plan.format("avg"))[0][0]
    assert lines("Window m = max(two.x) over 10 s\n  Scan two as two")[0][0].startswith(
        "max: m(t) = max of two.x"
    )


numbers = st.integers(-3, 3)
leaf = st.builds(Constant, numbers) | st.sampled_from([Column("a"), Column("b"), Elapsed()])
polynomials = st.recursive(
    leaf,
    lambda inner: (
        st.builds(Arithmetic, st.sampled_from("+-*"), inner, inner)
        | st.builds(Negative, inner)
        | st.builds(lambda e, n: Arithmetic("^", e, Constant(n)), inner, st.integers(0, 2))
    ),
    max_leaves=6,
)


def elapsed(e: Expression) -> Expression:
    """With a column in the place of the elapsed time, which the interpreter does not know."""
    return Column("t") if isinstance(e, Elapsed) else e.with_parts(tuple(map(elapsed, e.parts)))


@given(polynomials, numbers, numbers, numbers)
def test_a_polynomial_in_symbols_has_the_same_values(e, a, b, t) -> None:
    made = symbolic(e, Symbolic.of)
    assert made is not None
    names = {"a": a, "b": b}
    total = 0
    for (power, factors), factor in made.terms.items():
        term = factor * t**power
        for name in factors:
            term *= names[name]
        total += term
    assert total == value(elapsed(e), names | {"t": t})


@example(read_expression("(a ^ 2) ^ 2"), 3, 0, 0)
@given(polynomials, numbers, numbers, numbers)
def test_formulas_mean_what_they_say(e, a, b, t) -> None:
    row = {"a": a, "b": b, "t": t}
    for text in (formula(e), str(symbolic(e, Symbolic.of))):
        assert value(read_expression(typed(text)), row) == value(elapsed(e), row)


def typed(text: str) -> str:
    """A formula as one would type it."""
    powers = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda found: f"^{int(found[0].translate(_DIGITS))}", text)
    return powers.replace("·", "*")


_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")

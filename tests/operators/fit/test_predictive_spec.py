"""Candidates: formulas expanded in the elapsed time, against values computed one by one."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse.core.expression as ex
from pulse.core.bounds import Absolute, Relative
from pulse.core.errors import ColumnTypeError, UnknownColumnError
from pulse.core.schema import StreamSchema
from pulse.kernels.fit.truth_intervals import LINEAR, STEP
from pulse.operators.fit.predictive_spec import (
    PredictSpec,
    PredictSpecError,
    candidates,
    expand,
    numbers,
)
from tests import naive

T, X, V, A = ex.Elapsed(), ex.Column("x"), ex.Column("v"), ex.Column("a")
SCHEMA = StreamSchema.of(
    key={"id": "int64"},
    time="t",
    modelled={"x": "linear", "y": "step"},
    unmodelled={"v": "float64", "a": "float64", "name": "string"},
)


def coefficients_of(made):
    """The candidates' coefficients as one array ``[n, A, K]``."""
    columns = np.vstack([made.columns, np.zeros(made.columns.shape[1])])  # row -1: zeros
    return np.moveaxis(columns[made.rules[:, 2:]], 2, 0)


def op(left: ex.Expression, sign: str, right: ex.Expression) -> ex.Arithmetic:
    return ex.Arithmetic(sign, left, right)


def spec(schema: StreamSchema = SCHEMA, **options) -> PredictSpec:
    return PredictSpec.of(schema, **{"horizon": "1 min", "error": 1.0, **options})


MOVING = op(X, "+", op(V, "*", T))


@st.composite
def polynomials(draw, degree: int = 5, depth: int = 3) -> ex.Expression:
    """Formulas that are polynomials in t of at most a degree."""
    leaves = [X, V, A, ex.Constant(2), ex.Constant(-0.5), ex.Constant(0)] + [T] * (degree > 0) * 3
    kind = draw(st.sampled_from(["leaf", "+", "-", "*", "/", "^", "neg", "abs"])) if depth else "leaf"
    if kind == "leaf":
        return draw(st.sampled_from(leaves))
    if kind in "+-":
        return op(draw(polynomials(degree, depth - 1)), kind, draw(polynomials(degree, depth - 1)))
    if kind == "*":
        first = draw(st.integers(0, degree))
        return op(draw(polynomials(first, depth - 1)), "*", draw(polynomials(degree - first, depth - 1)))
    if kind == "/":
        return op(draw(polynomials(degree, depth - 1)), "/", draw(st.sampled_from([ex.Constant(4), V])))
    if kind == "^":
        power = draw(st.integers(0, 3))
        return op(draw(polynomials(degree // max(power, 1), depth - 1)), "^", ex.Constant(power))
    if kind == "neg":
        return ex.Negative(draw(polynomials(degree, depth - 1)))
    return ex.Function("abs", (draw(polynomials(0, depth - 1)),))


values = st.integers(-8, 8).map(lambda n: n / 4)


@given(
    polynomials(),
    st.lists(st.tuples(values, values.filter(bool), values), min_size=1, max_size=4),
    st.integers(0, 4),
)
def test_a_formula_is_expanded_exactly(formula: ex.Expression, rows, elapsed: int) -> None:
    columns = {name: np.array([row[i] for row in rows]) for i, name in enumerate(("x", "v", "a"))}
    terms = expand(formula, columns, "x")
    for i, row in enumerate(rows):
        exact = {name: Fraction(value) for name, value in zip(("x", "v", "a"), row, strict=True)}
        expected = naive.expression_value(formula, {**exact, "elapsed": Fraction(elapsed)})
        parts = [float(np.broadcast_to(term, len(rows))[i]) * elapsed**power for power, term in terms.items()]
        scale = sum(map(abs, parts)) + 1.0
        assert sum(parts) == pytest.approx(float(expected), rel=1e-12, abs=1e-9 * scale)


def test_columns_are_used_as_they_are() -> None:
    columns = {"x": np.array([1.0, 2.0]), "y": np.array([3.0, 4.0]), "v": np.array([5.0, 6.0])}
    made = candidates(spec(models={"x": MOVING}), columns)
    assert made.columns.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert made.rules.tolist() == [[LINEAR, 0, 0, 2], [STEP, 0, 1, -1]]
    assert coefficients_of(made).tolist() == [[[1, 5], [3, 0]], [[2, 6], [4, 0]]]


def test_the_paper_moves_with_acceleration() -> None:
    formula = op(MOVING, "+", op(op(A, "*", op(T, "^", ex.Constant(2))), "/", ex.Constant(2)))
    mine = spec(models={"x": formula})
    assert mine.width == 3
    columns = {"x": np.array([1.0]), "y": np.array([0.0]), "v": np.array([2.0]), "a": np.array([3.0])}
    assert coefficients_of(candidates(mine, columns))[0, 0].tolist() == [1.0, 2.0, 1.5]


def test_numbers_and_nothing_at_all() -> None:
    columns = {"x": np.array([1.0, 2.0]), "y": np.zeros(2)}
    made = candidates(
        spec(models={"x": op(X, "+", op(ex.Constant(3), "*", T)), "y": ex.Constant(0)}), columns
    )
    assert coefficients_of(made)[:, 0].tolist() == [[1, 3], [2, 3]]
    assert coefficients_of(made)[:, 1].tolist() == [[0, 0], [0, 0]]


def test_what_a_function_cannot_take_is_not_finite() -> None:
    columns = {
        "x": np.array([4.0, 4.0]),
        "y": np.zeros(2),
        "v": np.array([1.0, -1.0]),
        "a": np.array([0.0, 2.0]),
    }
    root = candidates(spec(models={"x": op(X, "+", op(ex.Function("sqrt", (V,)), "*", T))}), columns)
    assert np.isfinite(root.columns).all(axis=0).tolist() == [True, False]
    ratio = candidates(spec(models={"x": op(X, "+", op(op(V, "/", A), "*", T))}), columns)
    assert np.isfinite(ratio.columns).all(axis=0).tolist() == [False, True]


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (op(X, "/", T), "divides by t"),
        (op(X, "/", op(X, "+", T)), "divides by t"),
        (op(X, "/", ex.Constant(0)), "divides by zero"),
        (op(T, "^", ex.Constant(6)), "degree 6"),
        (op(op(T, "^", ex.Constant(3)), "*", op(T, "^", ex.Constant(3))), "degree 6"),
        (op(X, "^", T), "not a polynomial"),
        (op(X, "^", ex.Constant(0.5)), "not a polynomial"),
        (op(X, "^", ex.Constant(-1)), "not a polynomial"),
        (ex.Function("sin", (T,)), "not a polynomial"),
        (ex.Function("abs", (op(X, "+", T),)), "not a polynomial"),
        (op(X, "+", ex.Parameter("p")), "not a polynomial"),
        (ex.Constant("text"), "not a polynomial"),
        (ex.Comparison("<", X, T), "not a polynomial"),
    ],
)
def test_what_is_no_polynomial_is_refused_at_once(formula: ex.Expression, words: str) -> None:
    with pytest.raises(PredictSpecError, match=words):
        spec(models={"x": formula})


def test_names_are_checked() -> None:
    with pytest.raises(UnknownColumnError, match="'w'"):
        spec(models={"x": op(X, "+", op(ex.Column("w"), "*", T))})
    with pytest.raises(UnknownColumnError, match="'t'"):
        spec(models={"x": ex.Column("t")})
    with pytest.raises(UnknownColumnError, match="MODEL: there is no column 'v'"):
        spec(models={"v": X})
    with pytest.raises(UnknownColumnError, match="'z'"):
        spec(error={"z": 1})
    with pytest.raises(PredictSpecError, match="twice"):
        PredictSpec(SCHEMA, 5, (None, None), (("x", X), ("x", X)))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"policy": "guess"}, "policy: expected one of hold, trend"),
        ({"memory": 1}, "at least 2 tuples"),
    ],
)
def test_settings_are_checked(wrong, words: str) -> None:
    with pytest.raises(PredictSpecError, match=words):
        spec(**wrong)
    with pytest.raises(PredictSpecError, match="horizon: expected 1 to"):
        PredictSpec(SCHEMA, 0, (None, None))
    with pytest.raises(PredictSpecError, match="bounds: expected one or None for each of x, y, got 1"):
        PredictSpec(SCHEMA, 5, (None,))


def test_bounds_as_the_kernel_knows_them() -> None:
    mine = spec(error={"x": "2% or 0.5"})
    assert mine.bounds[1] is None
    assert mine.limits.tolist() == [[0.02, 0.5], [0.0, np.inf]]
    assert spec(error="1%").bounds == (Relative(1.0), Relative(1.0))
    assert spec().bounds == (Absolute(1.0), Absolute(1.0))


def test_width_leaves_room_for_what_the_truth_may_do() -> None:
    steps = StreamSchema.of(time="t", modelled={"p": "step"})
    assert spec(steps).width == 1
    assert spec(steps, policy="trend").width == 2
    assert spec(StreamSchema.of(time="t", modelled={"p": "linear"})).width == 2


def test_attributes_by_what_they_do() -> None:
    mine = spec(models={"x": MOVING})
    assert mine.coefficients == ("v",)
    assert mine.watched == ("a", "name")
    assert spec().watched == ("v", "a", "name")


def test_a_trend_is_for_attributes_without_a_formula() -> None:
    made = candidates(spec(policy="trend", memory=5, models={"x": X}), {"x": np.zeros(1), "y": np.zeros(1)})
    assert made.rules[:, 1].tolist() == [0, 5]


def test_specs_pickle_and_compare() -> None:
    mine = spec(models={"x": MOVING})
    assert mine.width == 2
    again = pickle.loads(pickle.dumps(mine))
    assert again == mine
    assert again.width == 2


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None, 2**53, 2**53 + 2, -(2**60)], pa.int64()), [1, None, 2**53, None, None]),
        (pa.array([1.5, None, float("inf")]), [1.5, None, float("inf")]),
        (pa.array([3, None], pa.int8()), [3, None]),
        (pa.array(["1.25", None]).cast(pa.decimal128(10, 2)), [1.25, None]),
        (pa.array([], pa.float32()), []),
    ],
)
def test_numbers(column: pa.Array, expected) -> None:
    for given_ in (column, pa.chunked_array([column])):
        found = [None if np.isnan(x) else x for x in numbers(given_, "x").tolist()]
        assert found == expected


def test_text_is_no_number() -> None:
    with pytest.raises(ColumnTypeError, match="'name': expected numbers, got string"):
        numbers(pa.array(["a"]), "name")

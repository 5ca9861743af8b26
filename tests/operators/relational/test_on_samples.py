from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.core.expression import (
    FALSE,
    NEGATED,
    RELATIONS,
    TRUE,
    And,
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Function,
    Instant,
    Negative,
    Not,
    Or,
)
from pulse.operators.errors import DomainError, MissingValueError, OperandError, OperatorError
from pulse.operators.relational.on_samples import filter_samples, join_samples, project_samples
from tests import naive
from tests.operators.sampling import SECOND, line, samples

X, Y = Column("x"), Column("y")
eighths = st.integers(-32, 32).map(lambda v: v / 8)
sizes = st.integers(0, 16).map(lambda v: v / 8)
rows = st.lists(st.tuples(eighths, sizes, eighths, sizes, st.integers(0, 3)), max_size=6)


def two(drawn):
    x, ex, y, ey, code = (np.array([row[j] for row in drawn], float) for j in range(5))
    return line(x, ex, code.astype(np.uint8), y=(y, ey))


def project(given_, expression):
    made = project_samples(given_, (("r", expression),), Columns((("id", pa.string()),), ("r",)))
    return made.values["r"], made.err["r"]


def codes(given_, predicate, possible=True):
    return filter_samples(given_, predicate, possible=possible).certainty.tolist()


# -- expressions ----------------------------------------------------------------------------------------------

FORMS = {
    "sum": (Arithmetic("+", X, Y), lambda x, y: x + y),
    "difference": (Arithmetic("-", X, Y), lambda x, y: x - y),
    "product": (Arithmetic("*", X, Y), lambda x, y: x * y),
    "negative": (Negative(X), lambda x, _: -x),
    "scaled": (Arithmetic("*", Constant(-3), X), lambda x, _: -3 * x),
    "shared": (Arithmetic("/", X, Constant(-4)), lambda x, _: x / -4),
    "cube": (Arithmetic("^", X, Constant(3)), lambda x, _: x**3),
    "none": (Arithmetic("^", X, Constant(0)), lambda x, _: x * 0 + 1),
    "abs": (Function("abs", (X,)), lambda x, _: abs(x)),
    "exp": (Function("exp", (X,)), lambda x, _: math.exp(x)),
    "sin": (Function("sin", (X,)), lambda x, _: math.sin(x)),
    "cos": (Function("cos", (X,)), lambda x, _: math.cos(x)),
    "distance": (
        Function("distance", (X, Y, Constant(1), Constant(2))),
        lambda x, y: math.hypot(x - 1, y - 2),
    ),
    "distance2": (Function("distance2", (X, Y, Y, X)), lambda x, y: 2 * (x - y) ** 2),
}


@pytest.mark.parametrize("form", FORMS)
@given(rows)
def test_every_truth_within_the_bounds_is_within_the_result_s(form, drawn):
    expression, function = FORMS[form]
    value, err = project(two(drawn), expression)
    for i, (x, ex, y, ey, _) in enumerate(drawn):
        assert value[i] == pytest.approx(function(x, y), rel=1e-12, abs=1e-12)
        for a in (-1, -0.5, 0, 1):
            for b in (-1, 0, 0.25, 1):
                truth = function(x + a * ex, y + b * ey)
                assert abs(truth - value[i]) <= err[i] * (1 + 1e-12) + 1e-12 * (1 + abs(truth))


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 3)), max_size=6))
def test_roots_logarithms_and_quotients_where_they_are_defined(drawn):
    x, e = (np.array([row[j] for row in drawn], float) for j in range(2))
    value, err = project(line(x, e), Function("sqrt", (X,)))
    for i, (v, bound) in enumerate(drawn):
        for truth in (max(v - bound, 0.0), v, v + bound):
            assert abs(math.sqrt(truth) - value[i]) <= err[i] * (1 + 1e-9) + 1e-15
    moved = line(x + e + 0.5, e)
    for expression, function in (
        (Function("log", (X,)), math.log),
        (Arithmetic("/", Constant(2), X), lambda u: 2 / u),
    ):
        value, err = project(moved, expression)
        for i, (v, bound) in enumerate(drawn):
            for truth in (v + 0.5, v + bound + 0.5, v + 2 * bound + 0.5):
                assert abs(function(truth) - value[i]) <= err[i] * (1 + 1e-9) + 1e-12


@given(st.lists(st.tuples(st.floats(-3, 0), st.floats(0, 3)), max_size=6))
def test_the_root_of_what_is_below_zero_within_its_bound(drawn):
    x = np.array([row[0] for row in drawn], float)
    e = np.array([row[1] - row[0] for row in drawn], float)  # x + e is not below zero
    value, err = project(line(x, e), Function("sqrt", (X,)))
    for i, (v, bound) in enumerate(zip(x, e, strict=True)):
        for share in (0.0, 0.5, 1.0):
            assert abs(math.sqrt(share * max(v + bound, 0.0)) - value[i]) <= err[i] * (1 + 1e-9) + 1e-15


def test_a_variance_of_equal_values_is_zero_but_for_its_rounding():
    """mean of squares - square of the mean, both without error: -1.8e-12 is a rounding of 10000."""
    mean, squares = 100.1, np.nextafter(np.nextafter(100.1 * 100.1, 0.0), 0.0)
    variance = Arithmetic("-", Constant(squares), Arithmetic("*", X, X))
    value, err = project(line([mean], [0.0]), Function("sqrt", (variance,)))
    assert squares - mean * mean < 0.0
    assert value[0] == 0.0
    assert math.sqrt(mean * mean - squares) <= err[0] < 1e-4
    wrong = Arithmetic("-", Constant(squares - 0.001), Arithmetic("*", X, X))
    with pytest.raises(
        DomainError, match=r"below zero by more than its error bound.* for id='k' at 1970-01-01T00:00:00"
    ):
        project(line([mean], [0.0]), Function("sqrt", (wrong,)))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (Arithmetic("/", Constant(1), X), "divides by a value that may be zero"),
        (Function("log", (X,)), "logarithm of a value that may be zero"),
        (Arithmetic("/", X, Constant(0)), "divides by zero"),
        (Function("exp", (Arithmetic("*", X, Constant(-1000)),)), "beyond the range"),
    ],
)
def test_what_is_not_defined_is_refused_where_there_is_a_sample(expression, message):
    with pytest.raises(DomainError, match=message):
        project(line([1.0, 4.0, -2.0], [0.5, 0.5, 4.0]), expression)
    if "divides by zero" not in message:
        value, _ = project(line([1.0, 4.0, -2.0], [0.5, 0.5, 4.0], [3, 3, 0]), expression)
        assert np.isfinite(value).all()


def test_powers_texts_and_times_that_are_no_numbers():
    for expression in (
        Arithmetic("^", X, Constant(0.5)),
        Arithmetic("^", X, X),
        Arithmetic("+", X, Constant("a")),
        Arithmetic("+", X, Column("t")),
        Arithmetic("+", X, Column("id")),
        Arithmetic("+", X, Comparison("<", X, X)),
        Function("tan", (X,)),
    ):
        with pytest.raises(OperandError):
            project(line([1.0]), expression)
    with pytest.raises(OperatorError):
        filter_samples(line([1.0]), X, possible=False)


def with_size(size, x=(1.0, 2.0, 3.0), code=(3, 3, 3)):
    columns = Columns((("id", pa.string()), ("n", pa.int64())), ("x",), (("size", pa.int64()),))
    return samples(
        columns,
        (pa.array(["a", "b"]), pa.array([10, 20])),
        [(0, 0, 2), (1, 0, 1)],
        {"x": x},
        {"x": [0.5] * 3},
        code,
        unmodelled={"size": pa.array(size, pa.int64())},
    )


def test_keys_and_unmodelled_attributes_are_numbers_without_error():
    value, err = project(
        with_size([1, 2, 3]), Arithmetic("+", Column("n"), Arithmetic("*", X, Column("size")))
    )
    assert value.tolist() == [11.0, 14.0, 29.0]
    assert err.tolist() == pytest.approx([0.5, 1.0, 1.5], rel=1e-15)  # and the rounding of a product
    with pytest.raises(MissingValueError, match=r"'size' is null .* id='a', n=10 at 1970-01-01T00:00:01"):
        project(with_size([1, None, 3]), Arithmetic("*", X, Column("size")))
    project(with_size([1, None, 3], code=(3, 0, 3)), Arithmetic("*", X, Column("size")))


def test_names_cost_nothing_and_keys_are_carried():
    given_ = with_size([1, 2, 3])
    columns = Columns(
        (("who", pa.string()), ("what", pa.string()), ("n", pa.int64())), ("y", "c"), (("s", pa.int64()),)
    )
    outputs = (
        ("who", Column("id")),
        ("what", Constant("tick")),
        ("y", X),
        ("c", Constant(7)),
        ("s", Column("size")),
    )
    made = project_samples(given_, outputs, columns)
    assert made.values["y"] is given_.values["x"]
    assert made.values["c"].tolist() == [7.0] * 3
    assert [column.to_pylist() for column in made.keys] == [["a", "b"], ["tick", "tick"], [10, 20]]
    assert made.unmodelled["s"].to_pylist() == [1, 2, 3]
    assert made.columns == columns


# -- predicates -----------------------------------------------------------------------------------------------


@given(rows, st.sampled_from(RELATIONS), eighths)
def test_comparisons_hold_as_surely_as_brute_force_says(drawn, relation, constant):
    given_ = two(drawn)
    own = [row[4] for row in drawn]
    both = [naive.comparison_code(Fraction(x - y), Fraction(ex + ey), relation) for x, ex, y, ey, _ in drawn]
    one = [naive.comparison_code(Fraction(x - constant), Fraction(ex), relation) for x, ex, *_ in drawn]
    assert codes(given_, Comparison(relation, X, Y)) == [min(a, b) for a, b in zip(both, own, strict=True)]
    assert codes(given_, Comparison(relation, X, Constant(constant))) == [
        min(a, b) for a, b in zip(one, own, strict=True)
    ]
    flipped = Comparison(relation, Constant(constant), Negative(X))
    mirrored = [naive.comparison_code(Fraction(constant + x), Fraction(ex), relation) for x, ex, *_ in drawn]
    assert codes(given_, flipped) == [min(a, b) for a, b in zip(mirrored, own, strict=True)]
    kept = [c if c >= 2 else 0 for c in codes(given_, Comparison(relation, X, Y))]
    assert codes(given_, Comparison(relation, X, Y), possible=False) == kept


@given(rows, st.sampled_from(RELATIONS), st.sampled_from(RELATIONS))
def test_and_or_not_are_minimum_maximum_and_exchange(drawn, one, other):
    given_ = two([(*row[:4], 3) for row in drawn])
    a, b = Comparison(one, X, Constant(0.5)), Comparison(other, Y, X)
    first, second = codes(given_, a), codes(given_, b)
    assert codes(given_, And((a, b))) == [min(pair) for pair in zip(first, second, strict=True)]
    assert codes(given_, Or((a, b))) == [max(pair) for pair in zip(first, second, strict=True)]
    assert codes(given_, Not(a)) == [3 - code for code in first]
    assert codes(given_, Not(And((a, Not(b))))) == [max(3 - p, q) for p, q in zip(first, second, strict=True)]
    assert codes(given_, And((TRUE, Not(FALSE)))) == [3] * len(drawn)
    assert codes(given_, Or(())) == [0] * len(drawn)


@given(rows, sizes, st.sampled_from(RELATIONS), st.sampled_from(["distance", "distance2"]))
def test_distances_are_compared_exactly(drawn, c, relation, name):
    """Along an axis the distance is ``|x - y|``, with the error of the difference."""
    given_ = two([(*row[:4], 3) for row in drawn])
    distance = Function(name, (X, Constant(5), Y, Constant(5)))
    found = codes(given_, Comparison(relation, distance, Constant(c * c if name == "distance2" else c)))
    for code, (x, ex, y, ey, _) in zip(found, drawn, strict=True):
        d, e = Fraction(abs(x - y)), Fraction(ex + ey)
        low, high = max(d - e, Fraction(0)), d + e
        surely = naive.comparison_code((low + high) / 2 - Fraction(c), (high - low) / 2, relation)
        on_model = naive.comparison_code(d - Fraction(c), Fraction(0), relation) == 3
        assert code == (3 if surely == 3 else 2 if on_model else min(surely, 1))
    never = codes(given_, Comparison(relation, distance, Constant(-1)))
    assert never == [3 if relation in (">", ">=", "!=") else 0] * len(drawn)


def test_the_time_is_compared_with_instants():
    given_ = line([1.0, 2.0, 3.0], certainty=[3, 2, 1])
    at = Instant(SECOND)
    expected = {
        "<": [3, 0, 0],
        "<=": [3, 2, 0],
        "=": [0, 2, 0],
        "!=": [3, 0, 1],
        ">=": [0, 2, 1],
        ">": [0, 0, 1],
    }
    for relation, kept in expected.items():
        assert codes(given_, Comparison(relation, Column("t"), at)) == kept
        assert codes(given_, Not(Comparison(NEGATED[relation], Column("t"), at))) == kept
    assert codes(given_, Comparison("<", at, Column("t"))) == [0, 0, 1]
    with pytest.raises(OperandError, match="expected an instant beside a time"):
        codes(given_, Comparison("<", Column("t"), Constant(5)))


def test_keys_and_unmodelled_attributes_are_compared_by_value():
    given_ = with_size([5, None, 7], code=(3, 3, 2))
    assert codes(given_, Comparison("=", Column("id"), Constant("a"))) == [3, 3, 0]
    assert codes(given_, Comparison("<", Constant(10), Column("n"))) == [0, 0, 2]
    assert codes(given_, Comparison("!=", Column("id"), Constant("a"))) == [0, 0, 2]
    assert codes(given_, Comparison("<=", Column("size"), Constant(5.5))) == [3, 0, 0]
    assert codes(given_, Comparison(">", Column("n"), Column("size"))) == [3, 0, 2]
    assert codes(given_, Comparison("=", Constant("a"), Constant("a"))) == [3, 3, 2]
    with pytest.raises(OperandError, match="cannot be compared"):
        codes(given_, Comparison("=", Column("n"), Constant("abc")))


def test_a_comparison_with_a_null_is_false_and_so_is_its_negation():
    given_ = with_size([5, None, 7])
    low = Comparison("<", X, Arithmetic("-", Column("size"), Constant(2)))
    assert codes(given_, low) == [3, 0, 3]
    assert codes(given_, Not(low)) == [0, 0, 0]
    assert codes(given_, Not(Comparison("=", Column("size"), Constant(5)))) == [0, 0, 3]


def test_no_samples():
    nothing = line([])
    assert (
        codes(nothing, And((Comparison("<", X, Constant(1)), Comparison("=", Column("id"), Constant("a")))))
        == []
    )
    assert project(nothing, Arithmetic("/", Constant(1), X))[0].tolist() == []


# -- joins ----------------------------------------------------------------------------------------------------


@st.composite
def sides(draw, alias):
    """Samples of some keys with holes; values tell key and instant."""
    keys = draw(st.lists(st.sampled_from("abcd"), max_size=3, unique=True))
    stretches, at = [], 0
    for g in range(len(keys)):
        at = draw(st.integers(-4, 4))
        for gap, count in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=3)):
            stretches.append((g, (at + gap) * SECOND, count))
            at += gap + count
    n = sum(one[2] for one in stretches)
    values, err = np.arange(n) + 0.5, np.arange(n) / 4
    code = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    columns = Columns((("id", pa.string()),), ("x",), (("u", pa.int64()),)).prefixed(alias)
    return samples(
        columns, (pa.array(keys, pa.string()),), stretches, {f"{alias}.x": values}, {f"{alias}.x": err}, code,
        unmodelled={f"{alias}.u": pa.array(range(n), pa.int64())},
    )  # fmt: skip


def joined_columns(a, b):
    return Columns((*a.key, *b.key), (*a.modelled, *b.modelled), (*a.unmodelled, *b.unmodelled), a.time)


def table(side):
    """Samples by key and time."""
    keys = side.keys[0].to_pylist()
    return {(keys[g], int(t)): i for i, (g, t) in enumerate(zip(side.of_group, side.times, strict=True))}


@given(sides("R"), st.data())
def test_a_join_of_the_same_places_is_as_any_other(left, data):
    """Windows of one family share key columns and stretches, and are joined without a look at them."""
    columns = Columns((("S.id", pa.string()),), ("S.x",))
    codes = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(left), max_size=len(left))), np.uint8)
    numbers = {"S.x": -left.values["R.x"]}, {"S.x": left.err["R.x"]}
    shared = replace(left, columns=columns, values=numbers[0], err=numbers[1], certainty=codes, unmodelled={})
    apart = replace(
        shared,
        keys=(pa.array(left.keys[0].to_pylist(), pa.string()),),
        group=left.group.copy(),
        first=left.first.copy(),
        offsets=left.offsets.copy(),
    )
    made, wanted = (
        join_samples(left, one, (("R.id", "S.id"),), joined_columns(left.columns, columns))
        for one in (shared, apart)
    )
    assert [column.to_pylist() for column in made.keys] == [column.to_pylist() for column in wanted.keys]
    for name in ("group", "first", "offsets", "certainty"):
        assert getattr(made, name).tolist() == getattr(wanted, name).tolist()
    for name in ("R.x", "S.x"):
        assert made.values[name].tolist() == wanted.values[name].tolist()
        assert made.err[name].tolist() == wanted.err[name].tolist()
    assert made.unmodelled["R.u"].to_pylist() == wanted.unmodelled["R.u"].to_pylist()


@given(sides("R"), sides("S"), st.booleans())
def test_a_join_has_the_common_instants_of_equal_keys(left, right, on_keys):
    columns = joined_columns(left.columns, right.columns)
    made = join_samples(left, right, (("R.id", "S.id"),) if on_keys else (), columns)
    a, b = table(left), table(right)
    expected = {
        (k, m, t): (i, b[m, t])
        for (k, t), i in a.items()
        for m in right.keys[0].to_pylist()
        if (m, t) in b and (k == m or not on_keys)
    }
    firsts, seconds = (made.keys[j].to_pylist() for j in range(2))
    found = {
        (firsts[g], seconds[g], int(t)): p
        for p, (g, t) in enumerate(zip(made.of_group, made.times, strict=True))
    }
    assert set(found) == set(expected)
    for where, place in found.items():
        i, j = expected[where]
        assert made.values["R.x"][place] == left.values["R.x"][i]
        assert made.err["S.x"][place] == right.err["S.x"][j]
        assert made.certainty[place] == min(left.certainty[i], right.certainty[j])
        assert made.unmodelled["R.u"][place].as_py() == i
        assert made.unmodelled["S.u"][place].as_py() == j
    assert made.group.tolist() == sorted(made.group.tolist())


def test_what_lies_alike_is_not_copied():
    left = line([1.0, 2.0])
    columns = Columns((("a", pa.string()), ("b", pa.string())), ("p", "q"))
    made = join_samples(left, left, (("id", "id"),), columns)
    assert made.values["p"] is left.values["x"]
    assert made.err["q"] is left.err["x"]
    with pytest.raises(ValueError, match="at one rate"):
        join_samples(
            left, samples(left.columns, left.keys, [], {"x": []}, {"x": []}, [], every=7), (), columns
        )

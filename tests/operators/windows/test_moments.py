"""Deviations, covariances, correlations and regressions of windows, against truths within the bounds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation, Squares
from pulse.operators.errors import DomainError, OperatorError
from pulse.operators.windows.association import Association
from pulse.operators.windows.base import WindowFunction
from pulse.operators.windows.deviation import Deviation
from pulse.stream.units.affine import IDENTITY, Affine
from tests import naive
from tests.operators.contract import causes, check_contract
from tests.operators.relational.test_filter import one_row
from tests.strategies import relations

OF_ONE, OF_TWO = Deviation.known, Association.known
QUOTIENTS = ("corr", "regr_slope", "regr_intercept")


def window(function: str, size: int) -> WindowFunction:
    if function in OF_ONE:
        return Deviation(function, "x", "w", size)
    return Association(function, "x", "w", size, None, "y")


Shares = list[tuple[Fraction, Fraction]]


def shares(n: int) -> st.SearchStrategy[Shares]:
    """Where in its bounds the truth lies, in the first and the second half of each row."""
    share = st.sampled_from([Fraction(s, 4) for s in (-4, -1, 0, 3, 4)])
    return st.lists(st.tuples(share, share), min_size=n, max_size=n)


def truth(relation: Relation, name: str, group: int, chosen: Shares) -> list[tuple[Any, ...]]:
    """The pieces of a truth of one key: the model, moved by these shares of its bounds."""
    pieces = []
    for row in range(relation.offsets[group], relation.offsets[group + 1]):
        begin, end = (Fraction(round(one)) for one in naive.row_span(relation, row))
        middle = (begin + end) / 2
        c = [Fraction(float(one)) for one in relation.models[name][row]]
        for a, b, share in ((begin, middle, chosen[row][0]), (middle, end, chosen[row][1])):
            if b > a:
                moved = c[0] + share * Fraction(float(relation.err[name][row]))
                pieces.append((a, b, int(relation.ref[row]), [moved, *c[1:]]))
    return pieces


def check(
    function: str, got: Fraction, err: float, pieces: list[Any], begin: Fraction, end: Fraction
) -> None:
    want = naive.statistic(function, *naive.window_moments(pieces, begin, end))
    assert want is not None  # a result exists only where every truth has one
    # Decimals have 50 digits, of which a root of a difference may have lost half.
    assert abs(got - want) <= Fraction(err) * (1 + Fraction(1, 10**12)) + Fraction(1, 10**22)


@given(
    relations(codes=(1, 2, 3)),
    st.sampled_from((*OF_ONE, *OF_TWO)),
    st.sampled_from([500_000, 2_000_000]),
    st.data(),
)
def test_segments_keep_every_truth(relation: Relation, function: str, size: int, data: st.DataObject) -> None:
    columns = Columns(relation.columns.key, ("w",), (), "t")
    operator = window(function, size)
    made = check_contract(operator, relation, columns, per_key=function not in QUOTIENTS)
    ids = causes(made)
    chosen = {name: data.draw(shares(len(relation))) for name in operator.names}
    for g in range(relation.groups):
        pieces = [truth(relation, name, g, chosen[name]) for name in operator.names]
        for row in range(made.offsets[g], made.offsets[g + 1]):
            begin, end = naive.row_span(made, row)
            for at in {begin, begin + (end - begin) * Fraction(5, 7)}:
                inside = [one for one in pieces[0] if one[0] < at and one[1] > at - size]
                if inside[0][0] > at - size or inside[-1][1] < at:
                    continue  # the ends of rows far from their reference are off by their rounding
                got = naive.piece_value(made.ref[row], made.models["w"][row], at)
                check(function, got, made.err["w"][row], pieces, at - size, at)
            assert len(ids[row]) >= 1


@given(
    relations(codes=(1, 2, 3)),
    st.sampled_from((*OF_ONE, *OF_TWO)),
    st.sampled_from([500_000, 2_000_000]),
    st.data(),
)
def test_samples_keep_every_truth(relation: Relation, function: str, size: int, data: st.DataObject) -> None:
    operator = window(function, size)
    found = operator.samples(relation, 250_000)
    chosen = {name: data.draw(shares(len(relation))) for name in operator.names}
    for place in np.flatnonzero(found.certainty).tolist():
        group, t = int(found.of_group[place]), Fraction(int(found.times[place]))
        pieces = [truth(relation, name, group, chosen[name]) for name in operator.names]
        check(function, Fraction(found.values["w"][place]), found.err["w"][place], pieces, t - size, t)


@given(
    relations(codes=(2, 3)),
    st.sampled_from(("stddev", "variance", "covar")),
    st.sampled_from([500_000, 2_000_000]),
)
def test_samples_and_segments_exist_together(relation: Relation, function: str, size: int) -> None:
    operator = window(function, size)
    straight, through = operator.samples(relation, 250_000), operator.segments(relation)
    held = set(zip(straight.of_group.tolist(), straight.times.tolist(), strict=True))
    for row in range(len(through)):
        begin, end = (round(one) for one in naive.row_span(through, row))
        first = -(-begin // 250_000) * 250_000
        if first < end:
            assert (int(through.group[row]), first) in held


@given(
    relations(bounds=(0.0, 0.03, 0.25), points=False),
    st.sampled_from((*OF_ONE, *OF_TWO)),
    st.sampled_from([500_000, 2_000_000]),
    st.data(),
)
def test_drifts_keep_every_truth_that_returns_to_the_model(
    relation: Relation, function: str, size: int, data: st.DataObject
) -> None:
    """Truths as far above a row as below it: the integrals differ by half of the bound times the length at most."""
    chosen = {name: [(share, -share) for share, _ in data.draw(shares(len(relation)))] for name in ("x", "y")}
    half = {name: 0.5 * err * (relation.hi - relation.lo) * (1 + 1e-12) for name, err in relation.err.items()}
    operator, relation = window(function, size), replace(relation, drift=half)
    found, made = operator.samples(relation, 250_000), operator.segments(relation)
    for place in np.flatnonzero(found.certainty).tolist():
        group, t = int(found.of_group[place]), Fraction(int(found.times[place]))
        pieces = [truth(relation, name, group, chosen[name]) for name in operator.names]
        check(function, Fraction(found.values["w"][place]), found.err["w"][place], pieces, t - size, t)
    for row in range(len(made)):
        pieces = [truth(relation, name, int(made.group[row]), chosen[name]) for name in operator.names]
        begin, end = naive.row_span(made, row)
        at = begin + (end - begin) * Fraction(5, 7)
        if any(one[0] <= at - size for one in pieces[0]) and any(one[1] >= at for one in pieces[0]):
            got = naive.piece_value(made.ref[row], made.models["w"][row], at)
            check(function, got, made.err["w"][row], pieces, at - size, at)


def test_a_known_drift_bounds_to_second_order() -> None:
    relation = steps([1.0, 2.0] * 50, 0.1)
    tight = replace(relation, drift={name: np.full(100, 1e-4) for name in ("x", "y")})
    for function in ("stddev", "variance", "covar", "regr_slope"):
        loose, close = (
            window(function, 20_000_000).samples(one, 1_000_000).err["w"] for one in (relation, tight)
        )
        assert (close * 4.0 < loose).all()


def squared(relation: Relation, name: str, chosen: Shares, cuts: list[bool]) -> Squares:
    """The squared errors of that truth over segments of several rows, which begin where ``cuts`` says and with every key."""
    fresh = np.array(cuts, bool)
    fresh[relation.offsets[:-1][np.diff(relation.offsets) > 0]] = True
    source = np.cumsum(fresh) - 1
    total = [Fraction(0)] * len(relation)
    for row, number in enumerate(source.tolist()):
        begin, end = naive.row_span(relation, row)
        mean = sum(share * share for share in chosen[row]) / 2 * Fraction(float(relation.err[name][row])) ** 2
        total[number] += mean * (end - begin) / 10**6
    each = np.array([float(total[number]) * (1 + 1e-15) for number in source.tolist()])
    return Squares(each, 7 * source, np.zeros(len(relation)))


@given(
    relations(codes=(1, 2, 3)),
    st.sampled_from((*OF_ONE, *OF_TWO)),
    st.sampled_from([500_000, 2_000_000]),
    st.data(),
)
def test_squared_errors_keep_the_truth_that_they_are_of(
    relation: Relation, function: str, size: int, data: st.DataObject
) -> None:
    operator = window(function, size)
    n = len(relation)
    chosen = {name: data.draw(shares(n)) for name in operator.names}
    cuts = {name: data.draw(st.lists(st.booleans(), min_size=n, max_size=n)) for name in operator.names}
    known = relation.with_squares(
        {name: squared(relation, name, chosen[name], cuts[name]) for name in operator.names}
    )
    plain, found = (operator.samples(one, 250_000) for one in (relation, known))
    for place in np.flatnonzero(found.certainty).tolist():
        group, t = int(found.of_group[place]), Fraction(int(found.times[place]))
        pieces = [truth(relation, name, group, chosen[name]) for name in operator.names]
        check(function, Fraction(found.values["w"][place]), found.err["w"][place], pieces, t - size, t)
        if plain.certainty[place]:
            assert found.err["w"][place] <= plain.err["w"][place] * (1 + 1e-9)
    made = operator.segments(known)
    for g in range(relation.groups):
        pieces = [truth(relation, name, g, chosen[name]) for name in operator.names]
        for row in range(made.offsets[g], made.offsets[g + 1]):
            begin, end = naive.row_span(made, row)
            for at in {begin, begin + (end - begin) * Fraction(5, 7)}:
                inside = [one for one in pieces[0] if one[0] < at and one[1] > at - size]
                if not inside or inside[0][0] > at - size or inside[-1][1] < at:
                    continue
                got = naive.piece_value(made.ref[row], made.models["w"][row], at)
                check(function, got, made.err["w"][row], pieces, at - size, at)


def test_a_segment_cut_in_a_join_counts_its_squared_error_once() -> None:
    rows = steps([1.0, 5.0, 2.0, 7.0, 3.0, 8.0], err=0.5)
    source = np.array([0, 0, 0, 1, 1, 1])
    known = rows.with_squares({"x": Squares(np.full(6, 0.03), source, np.zeros(6))})
    found = Deviation("stddev", "x", "w", 4_000_000).samples(known, 1_000_000)
    assert len(found.err["w"])
    assert found.err["w"] == pytest.approx(np.sqrt(0.06 / 4), rel=1e-5)


def steps(values: list[float], err: float = 0.0, other: list[float] | None = None) -> Relation:
    """Steps of a second each, of two attributes."""
    parts = [one_row([x], err, lo=float(i), hi=i + 1.0) for i, x in enumerate(values)]
    made = replace(Relation.concat(parts), offsets=np.array([0, len(values)]))
    y = np.array(values if other is None else other)[:, None]
    return replace(
        made,
        columns=replace(made.columns, modelled=("x", "y")),
        models={**made.models, "y": y},
        err={**made.err, "y": np.full(len(values), err)},
        drift={},
    )


@pytest.mark.parametrize("level", [0.0, 100.0, 1.7e9])
def test_small_deviations_at_any_level_are_exact(level: float) -> None:
    relation = steps([level + 2.0**-7, level] * 10)
    found = Deviation("stddev", "x", "w", 4_000_000).samples(relation, 1_000_000)
    assert found.values["w"] == pytest.approx(2.0**-8, rel=1e-12)
    assert (found.err["w"] < 1e-12 * 2.0**-8).all()


def test_the_bound_of_a_deviation_is_that_of_the_model() -> None:
    relation = steps([1.0, 2.0, 3.0, 4.0, 5.0], 0.25)
    for made in (
        Deviation("stddev", "x", "w", 2_000_000).samples(relation, 500_000).err["w"],
        Deviation("stddev", "x", "w", 2_000_000).segments(relation).err["w"],
    ):
        assert (made >= 0.25).all()
        assert (made < 0.2501 * 1.125 + 1e-6).all()


@pytest.mark.parametrize("function", [*OF_ONE, *OF_TWO])
def test_a_flat_window_has_deviation_zero_and_no_quotient(function: str) -> None:
    relation = steps([0.1] * 5)
    made, found = (
        window(function, 2_000_000).segments(relation),
        window(function, 2_000_000).samples(relation, 500_000),
    )
    there = found.certainty > 0
    if function in QUOTIENTS:
        assert len(made) == 0
        assert not there.any()
    else:
        assert not made.models["w"].any()
        assert not made.err["w"].any()
        assert there.all()
        assert not found.values["w"].any()
        assert not found.err["w"].any()


def test_a_quotient_is_a_hole_where_its_divisor_may_be_zero() -> None:
    relation = steps([1.0, 1.0, 1.0, 1.1, 9.0, 1.0, 5.0], 0.2)
    found = Association("corr", "x", "w", 2_000_000, None, "y").samples(relation, 1_000_000)
    assert (found.certainty > 0).tolist() == [False, False, True, True, True, True][
        : len(found)
    ] or not found.certainty[0]
    assert found.values["w"][found.certainty > 0] == pytest.approx(1.0)
    assert (found.err["w"] <= 2.0).all()


def test_a_regression_of_a_line_is_the_line() -> None:
    x = [1.0, 4.0, 2.0, 8.0, 5.0]
    relation = steps([3.0 - 2.0 * one for one in x], other=x)
    for function, want in (("regr_slope", -2.0), ("regr_intercept", 3.0), ("corr", -1.0)):
        found = Association(function, "x", "w", 3_000_000, None, "y").samples(relation, 500_000)
        assert (found.certainty == 3).all()
        assert found.values["w"] == pytest.approx(want, abs=1e-12)
        assert (found.err["w"] < 1e-6).all()


def test_bounds_on_results_become_bounds_on_arguments() -> None:
    relation = steps([1.0, 4.0, 2.0, 8.0, 5.0, 1.0], other=[2.0, 1.0, 7.0, 3.0, 3.0, 9.0])
    for function in (*OF_ONE, *OF_TWO):
        operator = window(function, 3_000_000)
        need = np.array([0.01])
        (allowed,) = operator.allowed(need, relation).tolist()
        assert 0.0 < allowed <= 0.01
        within = replace(relation, err={name: np.full(6, allowed) for name in ("x", "y")})
        made, found = operator.segments(within), operator.samples(within, 500_000)
        assert len(made)
        assert (found.err["w"] <= 0.01 * (1 + 1e-9)).all()
        assert (made.err["w"] <= 0.01 * 1.3).all()  # the approximation adds its share
        assert operator.gain(relation) > 0.0


@pytest.mark.parametrize(
    ("function", "want"),
    [
        ("stddev", Affine(3)),
        ("variance", Affine(9)),
        ("covar", Affine(6)),
        ("corr", IDENTITY),
        ("regr_slope", Affine(Fraction(3, 2))),
        ("regr_intercept", Affine(3, 5)),
    ],
)
def test_results_follow_units(function: str, want: Affine) -> None:
    maps = {"x": Affine(3, 5), "y": Affine(2)}
    assert window(function, 1).derived_output().combine(maps) == want


def test_an_intercept_keeps_its_units_where_the_independent_attribute_is_shifted() -> None:
    maps = {"x": Affine(3, 5), "y": Affine(2, 1)}
    assert window("regr_intercept", 1).derived_output().combine(maps) is None


def test_equations() -> None:
    assert window("stddev", 1).equations("5 min") == (
        "stddev: w(t) = √(1/(5 min) ∫ (x - m)² dt from t - 5 min to t)",
        "m = 1/(5 min) ∫ x dt, the mean of the same window",
    )
    assert window("regr_slope", 1).equations("5 min")[0] == "regr_slope: w(t) = c / V(y)"


def test_huge_values_are_refused() -> None:
    relation = steps([1e200, -1e200, 1e200])
    with pytest.raises(DomainError, match="beyond the range of floating-point numbers"):
        Deviation("stddev", "x", "w", 2_000_000).samples(relation, 1_000_000)


def test_the_number_of_arguments_is_checked() -> None:
    with pytest.raises(OperatorError, match="corr takes 2 argument"):
        Association("corr", "x", "w", 1)
    with pytest.raises(OperatorError, match="stddev takes 1 argument"):
        Deviation("stddev", "x", "w", 1, None, "y")

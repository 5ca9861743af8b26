"""Instants of extrema over windows, against exact ones of truths within the bounds, over ranges and over tuples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.output.sampling import sample
from pulse.operators.windows.base import INSTANTS
from pulse.operators.windows.extremum import Extremum
from pulse.operators.windows.extremum_instant import ExtremumInstant, TupleExtremumInstant
from tests import naive
from tests.operators.contract import causes, check_contract, check_valid
from tests.operators.relational.test_filter import one_row
from tests.operators.windows.test_tuple_window import RESULT, Rows, at_closing, points, rows_of
from tests.strategies import relations

SIZES = [500_000, 2_000_000]
SHARES = st.sampled_from([-1.0, 0.0, 0.5, 1.0])


def turns(c: Any) -> list[Fraction]:
    """Where a polynomial of degree 2 turns, in seconds from its reference."""
    c = [Fraction(float(one)) for one in c]
    return [-c[1] / (2 * c[2])] if len(c) > 2 and c[2] != 0 else []


def reached(
    relation: Relation, truth: Any, rows: Iterable[int], begin: Fraction, end: Fraction, function: str
) -> tuple[Fraction, Fraction]:
    """The first and last instant (microseconds) at which the truth is least, or largest, over ``[begin, end)``, with limits."""
    sign = 1 if function == "min_at" else -1
    found: list[tuple[Fraction, Fraction]] = []
    for i in rows:
        own = naive.row_span(relation, i)
        lo, hi = max(own[0], begin), min(own[1], end)
        inner = [int(relation.ref[i]) + 10**6 * one for one in turns(truth[i])]
        instants = (lo, *(one for one in inner if lo < one < hi), hi)
        found += [(sign * naive.piece_value(relation.ref[i], truth[i], at), at) for at in instants]
    least = min(value for value, _ in found)
    held = [at for value, at in found if value == least]
    return min(held), max(held)


def touched(relation: Relation, group: int, begin: Fraction, end: Fraction) -> list[int]:
    spans = {
        i: naive.row_span(relation, i) for i in range(relation.offsets[group], relation.offsets[group + 1])
    }
    return [
        i for i, (lo, hi) in spans.items() if (lo < end and hi > begin) or (lo == hi and begin <= lo < end)
    ]


@given(relations(codes=(1, 2, 3)), st.sampled_from(INSTANTS), st.sampled_from(SIZES), st.data())
def test_windows_keep_every_truth(relation: Relation, function: str, size: int, data: st.DataObject) -> None:
    columns = Columns(relation.columns.key, ("w",), (), "t")
    made = check_contract(ExtremumInstant(function, "x", "w", size), relation, columns)
    ids = causes(made)
    n = len(relation)
    truth = relation.models["x"].copy()
    truth[:, 0] += np.array(data.draw(st.lists(SHARES, min_size=n, max_size=n))) * relation.err["x"]
    for g in range(relation.groups):
        for row in range(made.offsets[g], made.offsets[g + 1]):
            begin, end = naive.row_span(made, row)
            for share in (Fraction(1, 64), Fraction(1, 2), Fraction(63, 64)):
                at = begin + share * (end - begin)
                inside = touched(relation, g, at - size, at)
                ends = reached(relation, truth, inside, at - size, at, function)
                got = naive.piece_value(made.ref[row], made.models["w"][row], at)
                for instant in ends:
                    assert abs(got - (instant - at) / 10**6) <= Fraction(made.err["w"][row])
                assert set(inside) <= set(ids[row])
                assert made.certainty[row] <= min(relation.certainty[i] for i in inside)


@given(relations(codes=(2, 3)), st.sampled_from(INSTANTS), st.sampled_from(SIZES), st.data())
def test_samples_keep_every_truth(relation: Relation, function: str, size: int, data: st.DataObject) -> None:
    window = ExtremumInstant(function, "x", "w", size)
    made = window.samples(relation, 250_000)
    values = Extremum(function[:3], "x", "w", size).samples(relation, 250_000)
    assert np.array_equal(made.times, values.times)
    assert np.array_equal(made.of_group, values.of_group)
    assert np.array_equal(made.certainty, values.certainty)
    n = len(relation)
    truth = relation.models["x"].copy()
    truth[:, 0] += np.array(data.draw(st.lists(SHARES, min_size=n, max_size=n))) * relation.err["x"]
    for place, (group, t) in enumerate(zip(made.of_group.tolist(), made.times.tolist(), strict=True)):
        at = Fraction(t)
        inside = touched(relation, group, at - size, at)
        got, err = Fraction(made.values["w"][place]), Fraction(made.err["w"][place])
        for instant in reached(relation, truth, inside, at - size, at, function):
            assert abs(got - (instant - at) / 10**6) <= err
        # On the model it is the earliest, and the certificate covers no more than the window.
        first, _ = reached(relation, relation.models["x"], inside, at - size, at, function)
        assert -size / 1e6 <= got <= 0
        if not any(relation.err["x"][inside]) or (relation.models["x"][inside][:, 2] == 0).all():
            assert abs(got - (first - at) / 10**6) <= Fraction(1, 10**6)
        assert err <= size / 1e6 + 1e-5  # references lie up to 1e9 seconds away


@given(relations(codes=(2, 3)), st.sampled_from(INSTANTS), st.sampled_from(SIZES))
def test_segments_are_never_far_from_samples(relation: Relation, function: str, size: int) -> None:
    """Bounds of pieces exceed those at their closing times by the motion of the window within a piece, and by little else."""
    window, every = ExtremumInstant(function, "x", "w", size), 250_000
    straight, through = window.samples(relation, every), sample(window.segments(relation), every)
    held = through.certainty > 0
    there = {
        place: one
        for place, *one in zip(
            zip(through.of_group[held].tolist(), through.times[held].tolist(), strict=True),
            through.values["w"][held],
            through.err["w"][held],
            strict=True,
        )
    }
    mine = list(zip(straight.of_group.tolist(), straight.times.tolist(), strict=True))
    assert set(there) <= set(mine)
    ends = {round(end) for i in range(len(relation)) for end in naive.row_span(relation, i)}
    for place, key in enumerate(mine):
        if key in there and not {key[1], key[1] - size} & ends:
            value, err = there[key]
            assert abs(straight.values["w"][place] - value) <= straight.err["w"][place] + err


def valley(err: float = 0.5) -> Relation:
    """``(t - 4)^2`` over [0, 9)."""
    return one_row([16.0, -8.0, 1.0], err, lo=0.0, hi=9.0)


def test_a_valley_is_as_wide_as_its_bound_is_deep() -> None:
    found = ExtremumInstant("min_at", "x", "w", 8_000_000).samples(valley(), 500_000)
    assert (found.times - valley().ref).tolist() == [8_000_000, 8_500_000, 9_000_000]
    assert found.values["w"].tolist() == pytest.approx([-4.0, -4.5, -5.0])
    assert found.err["w"].tolist() == pytest.approx([1.0, 1.0, 1.0])  # (s - 4)^2 <= 2 * 0.5


def test_a_steep_line_has_a_narrow_bound_over_any_length() -> None:
    for slope, function in ((2.0, "min_at"), (-2.0, "max_at"), (-2.0, "min_at"), (2.0, "max_at")):
        made = ExtremumInstant(function, "x", "w", 2_000_000).segments(
            one_row([1.0, slope], 0.25, lo=0.0, hi=3600.0)
        )
        assert len(made) == 1
        opens = (slope > 0) == (function == "min_at")
        assert made.models["w"].tolist() == [[-2.0 if opens else 0.0, 0.0]]
        assert made.err["w"].tolist() == pytest.approx([0.25])


def test_a_flat_window_is_all_candidates_and_its_first_instant_the_value() -> None:
    for err in (0.0, 1.0):
        made = ExtremumInstant("min_at", "x", "w", 2_000_000).segments(one_row([5.0], err, lo=0.0, hi=60.0))
        assert made.models["w"].tolist() == [[-2.0, 0.0]]
        assert made.err["w"].tolist() == pytest.approx([2.0])


def test_two_valleys_of_one_depth_are_both_candidates() -> None:
    parts = [
        one_row([x], e, lo=float(i), hi=i + 1.0)
        for i, (x, e) in enumerate([(5.0, 0.0), (1.0, 0.1), (5.0, 0.0), (1.1, 0.1), (5.0, 0.0)])
    ]
    relation = replace(Relation.concat(parts), offsets=np.array([0, 5]))
    found = ExtremumInstant("min_at", "x", "w", 5_000_000).samples(relation, 5_000_000)
    assert found.values["w"].tolist() == pytest.approx([-4.0])
    assert found.err["w"].tolist() == pytest.approx([3.0])  # up to the end of the second, at 4
    apart = replace(relation, err={"x": np.array([0.0, 0.04, 0.0, 0.04, 0.0])})
    found = ExtremumInstant("min_at", "x", "w", 5_000_000).samples(apart, 5_000_000)
    assert found.err["w"].tolist() == pytest.approx([1.0])


def test_an_unknown_bound_leaves_the_whole_window() -> None:
    found = ExtremumInstant("min_at", "x", "w", 8_000_000).samples(valley(np.inf), 1_000_000)
    assert found.values["w"].tolist() == pytest.approx([-4.0, -5.0])
    assert found.err["w"].tolist() == pytest.approx([4.0, 5.0])
    made = ExtremumInstant("min_at", "x", "w", 8_000_000).segments(valley(np.inf))
    assert (made.err["w"] <= 8.0 + 1e-6).all()


@pytest.mark.parametrize("function", INSTANTS)
def test_a_window_larger_than_the_data_has_no_result(function: str) -> None:
    window = ExtremumInstant(function, "x", "w", 10**9)
    assert len(window.segments(one_row([1.0, 1.0]))) == 0
    assert len(window.samples(one_row([1.0, 1.0]), 1_000_000)) == 0


def test_the_equations_say_which_instant() -> None:
    assert ExtremumInstant("min_at", "x", "w", 1).equations("5 min") == (
        "min_at: t + w(t) = the first instant of [t - 5 min, t) at which x is smallest",
    )
    assert TupleExtremumInstant("max_at", "x", "w", 1).equations("5 min") == (
        "max_at: t + w(t) = the instant of the first tuple in [t - 5 min, t) with the largest x",
    )


# -- over tuples ------------------------------------------------------------------------------------------------------


@given(rows_of(), st.sampled_from(INSTANTS), st.integers(1, 12))
def test_the_first_best_tuple_of_a_window(rows: Rows, function: str, size: int) -> None:
    made = TupleExtremumInstant(function, "x", "w", size).segments(points(rows))
    check_valid(made, RESULT)
    best = min if function == "min_at" else max
    for key in "ab":
        own = [(t, x) for k, t, x, _, _ in sorted(rows, key=lambda row: row[:2]) if k == key]
        for t in range(-2, 50):
            inside = [(at, x) for at, x in own if t - size <= at < t]
            found = at_closing(made, key, t)
            assert len(found) == (1 if inside else 0)
            if inside:
                level = best(x for _, x in inside)
                want = [at for at, x in inside if x == level]
                value, err, _ = found[0]
                assert abs(value - (want[0] - t) / 1e6) <= 1e-12
                assert err == pytest.approx((want[-1] - want[0]) / 1e6, abs=2e-9)


@given(rows_of((1, 2, 3), (0.0, 0.5)), st.sampled_from(INSTANTS), st.integers(1, 12), st.randoms())
def test_the_bounds_hold_for_every_choice_of_tuples(
    rows: Rows, function: str, size: int, random: Any
) -> None:
    made = TupleExtremumInstant(function, "x", "w", size).segments(points(rows))
    best = min if function == "min_at" else max
    for _ in range(4):
        truth = [
            (key, t, x + e * random.uniform(-1, 1))
            for key, t, x, e, code in sorted(rows, key=lambda row: row[:2])
            if code == 3 or random.random() < 0.5
        ]
        for key in "ab":
            for t in range(-2, 50):
                inside = [(at, x) for k, at, x in truth if k == key and t - size <= at < t]
                found = at_closing(made, key, t)
                if inside and found:
                    level = best(x for _, x in inside)
                    value, err, _ = found[0]
                    for at in (at for at, x in inside if x == level):
                        assert abs(value - (at - t) / 1e6) <= err

"""First and last values of windows, against truths within the bounds, over ranges and over tuples."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.errors import OperatorError
from pulse.operators.output.sampling import sample
from pulse.operators.windows.ends import End, TupleEnd
from tests import naive
from tests.operators.contract import causes, check_contract, check_valid
from tests.operators.relational.test_filter import one_row
from tests.operators.windows.test_tuple_window import RESULT, Rows, at_closing, points, rows_of
from tests.strategies import relations

FUNCTIONS = ("first", "last")


@given(
    relations(codes=(1, 2, 3)), st.sampled_from(FUNCTIONS), st.sampled_from([500_000, 2_000_000]), st.data()
)
def test_windows_keep_every_truth(relation: Relation, function: str, size: int, data: st.DataObject) -> None:
    columns = Columns(relation.columns.key, ("w",), (), "t")
    made = check_contract(End(function, "x", "w", size), relation, columns)
    ids = causes(made)
    shares = data.draw(
        st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=len(relation), max_size=len(relation))
    )
    truth = relation.models["x"].copy()
    truth[:, 0] += np.array(shares) * relation.err["x"]
    spans = [tuple(round(end) for end in naive.row_span(relation, i)) for i in range(len(relation))]
    for g in range(relation.groups):
        rows = [i for i in range(relation.offsets[g], relation.offsets[g + 1]) if spans[i][1] > spans[i][0]]
        for row in range(made.offsets[g], made.offsets[g + 1]):
            begin, end = naive.row_span(made, row)
            at = (begin + end) / 2
            touched = [i for i in rows if spans[i][0] < at and spans[i][1] > at - size]
            chosen = touched[0] if function == "first" else touched[-1]
            want = naive.piece_value(
                relation.ref[chosen], truth[chosen], at - size if function == "first" else at
            )
            got = naive.piece_value(made.ref[row], made.models["w"][row], at)
            assert abs(got - want) <= Fraction(made.err["w"][row])
            assert set(touched) <= set(ids[row])
            assert made.certainty[row] == min(relation.certainty[i] for i in touched)


@given(relations(codes=(2, 3)), st.sampled_from(FUNCTIONS), st.sampled_from([500_000, 2_000_000]))
def test_samples_are_the_segments_where_no_piece_ends(relation: Relation, function: str, size: int) -> None:
    window, every = End(function, "x", "w", size), 250_000
    straight, through = window.samples(relation, every), sample(window.segments(relation), every)
    held = through.certainty > 0
    there = dict(
        zip(
            zip(through.of_group[held].tolist(), through.times[held].tolist(), strict=True),
            zip(through.values["w"][held], through.err["w"][held], strict=True),
            strict=True,
        )
    )
    ends = {round(end) for i in range(len(relation)) for end in naive.row_span(relation, i)}
    mine = list(zip(straight.of_group.tolist(), straight.times.tolist(), strict=True))
    assert set(there) <= set(mine)  # a window that closes as its run ends has a sample only
    for place, (group, t) in enumerate(mine):
        if (t if function == "last" else t - size) not in ends and (group, t) in there:
            value, err = there[group, t]
            assert abs(straight.values["w"][place] - value) <= straight.err["w"][place] + err


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_value_has_the_bound_of_its_own_row_and_the_certainty_of_the_window(function: str) -> None:
    parts = [one_row([float(i)], e, lo=float(i), hi=i + 1.0) for i, e in enumerate([1.0, 0.0, 0.25])]
    relation = replace(
        Relation.concat(parts), offsets=np.array([0, 3]), certainty=np.array([3, 2, 3], np.uint8)
    )
    made = End(function, "x", "w", 2_000_000).segments(relation)
    assert made.models["w"][:, 0].tolist() == ([0.0] if function == "first" else [2.0])
    assert made.err["w"].tolist() == ([1.0] if function == "first" else [0.25])
    assert made.certainty.tolist() == [2]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_window_larger_than_the_data_has_no_result(function: str) -> None:
    window = End(function, "x", "w", 10**9)
    assert len(window.segments(one_row([1.0, 1.0]))) == 0
    assert len(window.samples(one_row([1.0, 1.0]), 1_000_000)) == 0


def test_the_equations_say_at_which_instant() -> None:
    assert End("first", "x", "w", 1).equations("5 min") == ("first: w(t) = x(t - 5 min)",)
    assert End("last", "x", "w", 1).equations("5 min") == ("last: w(t) = x(t⁻), the limit from the left",)


# -- over tuples ------------------------------------------------------------------------------------------------------


@given(rows_of(), st.sampled_from(FUNCTIONS), st.integers(1, 12))
def test_the_first_and_last_tuple_of_a_window(rows: Rows, function: str, size: int) -> None:
    made = TupleEnd(function, "x", "w", size).segments(points(rows))
    check_valid(made, RESULT)
    for key in "ab":
        own = [(t, x) for k, t, x, _, _ in sorted(rows, key=lambda row: row[:2]) if k == key]
        for t in range(-2, 50):
            inside = [x for at, x in own if t - size <= at < t]
            want = [inside[0] if function == "first" else inside[-1]] if inside else []
            assert [(value, err) for value, err, _ in at_closing(made, key, t)] == [(x, 0.0) for x in want]


@given(rows_of((1, 2, 3), (0.0, 0.5)), st.sampled_from(FUNCTIONS), st.integers(1, 12), st.randoms())
def test_the_bounds_hold_for_every_choice_of_tuples(
    rows: Rows, function: str, size: int, random: Any
) -> None:
    made = TupleEnd(function, "x", "w", size).segments(points(rows))
    for _ in range(4):
        truth = [
            (key, t, x + e * random.uniform(-1, 1))
            for key, t, x, e, code in sorted(rows, key=lambda row: row[:2])
            if code == 3 or random.random() < 0.5
        ]
        for key in "ab":
            for t in range(-2, 50):
                inside = [x for k, at, x in truth if k == key and t - size <= at < t]
                found = at_closing(made, key, t)
                if inside and found:
                    value, err, _ = found[0]
                    assert abs(value - (inside[0] if function == "first" else inside[-1])) <= err + 1e-12


def test_other_functions_are_refused() -> None:
    with pytest.raises(OperatorError, match="expected one of first, last, got 'sum'"):
        TupleEnd("sum", "x", "w", 1)

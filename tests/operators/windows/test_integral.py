"""Sums and averages over windows, against exact integrals of truths within the bounds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError
from pulse.operators.windows.integral import Integral
from tests import naive
from tests.operators.contract import causes, check_contract, refusal
from tests.operators.relational.test_filter import one_row
from tests.strategies import relations


def output(relation: Relation) -> Columns:
    return Columns(relation.columns.key, ("w",), (), "t")


@given(
    relations(codes=(1, 2, 3)),
    st.sampled_from(["sum", "avg"]),
    st.sampled_from([500_000, 1_000_000, 2_500_000]),
    st.data(),
)
def test_windows_keep_every_truth(relation: Relation, function: str, size: int, data: st.DataObject) -> None:
    made = check_contract(Integral(function, "x", "w", size), relation, output(relation))
    ids = causes(made)
    share = data.draw(
        st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=len(relation), max_size=len(relation))
    )
    truth = relation.models["x"].copy()
    truth[:, 0] += np.array(share) * relation.err["x"]
    seconds = Fraction(size, 10**6)
    for g in range(relation.groups):
        rows = range(relation.offsets[g], relation.offsets[g + 1])
        pieces = [(relation.ref[i], relation.lo[i], relation.hi[i], truth[i]) for i in rows]
        for row in range(made.offsets[g], made.offsets[g + 1]):
            for at in naive.instants_of(made, row):
                want = naive.window_integral(pieces, at / 10**6, seconds)
                assert want is not None
                want = want / seconds if function == "avg" else want
                got = naive.piece_value(made.ref[row], made.models["w"][row], at)
                assert (
                    abs(got - want)
                    <= made.err["w"][row] * (1 + 1e-9) + 1e-5 * np.any(np.abs(relation.lo) > 1e6) + 1e-9
                )
                touched = [
                    i
                    for i in rows
                    if naive.row_span(relation, i)[0] < at
                    and naive.row_span(relation, i)[1] > at - size
                    and relation.lo[i] < relation.hi[i]
                ]
                assert set(touched) <= set(ids[row])
                assert made.certainty[row] <= min(relation.certainty[i] for i in touched)


@given(relations(points=False), st.sampled_from([500_000, 1_500_000]))
def test_a_result_comes_of_all_rows_of_its_windows_and_no_others(relation: Relation, size: int) -> None:
    made = Integral("avg", "x", "w", size).segments(relation)
    for row, ids in enumerate(causes(made)):
        begin, end = naive.row_span(made, row)
        for i in range(int(relation.offsets[made.group[row]]), int(relation.offsets[made.group[row] + 1])):
            a, b = naive.row_span(relation, i)
            slack = Fraction(1) if abs(relation.lo[i]) > 1e6 else Fraction(1, 100)
            if a < end - slack and b > begin - size + slack:
                assert i in ids
            elif a >= end + slack or b <= begin - size - slack:
                assert i not in ids


@given(relations(points=False, holes=False, max_rows=4))
def test_coverage(relation: Relation) -> None:
    """One result from a window after the start to the end; none where the data is shorter than the window."""
    size = 2_000_000
    made = Integral("sum", "x", "w", size).segments(relation)
    for g in range(relation.groups):
        begin = naive.row_span(relation, int(relation.offsets[g]))[0]
        end = naive.row_span(relation, int(relation.offsets[g + 1]) - 1)[1]
        length = sum(
            (
                b - a
                for a, b in (naive.row_span(made, i) for i in range(made.offsets[g], made.offsets[g + 1]))
            ),
            Fraction(0),
        )
        assert abs(length - max(end - begin - size, 0)) <= 4


def test_the_smaller_of_the_two_certificates() -> None:
    relation = replace(one_row([5.0], 0.5), drift={"x": np.array([0.1])})
    assert Integral("avg", "x", "w", 2_000_000).segments(relation).err["w"] == pytest.approx([0.1])
    assert Integral("sum", "x", "w", 2_000_000).segments(relation).err["w"] == pytest.approx([0.2])
    assert Integral("avg", "x", "w", 100_000).segments(relation).err["w"] == pytest.approx([0.5])
    unknown = replace(relation, drift={})
    assert Integral("avg", "x", "w", 2_000_000).segments(unknown).err["w"] == pytest.approx([0.5])


def test_the_mean_of_the_bounds_is_taken_where_it_is_largest() -> None:
    two = Relation.concat([one_row([1.0], 0.0, hi=2.0), one_row([1.0], 1.0, lo=2.0)])
    two = replace(two, offsets=np.array([0, 2]), drift={})
    made = Integral("avg", "x", "w", 1_000_000).segments(two)
    assert made.lo.tolist() == [0.0, 0.0, 0.0]
    assert made.err["w"] == pytest.approx([0.0, 1.0, 1.0])


def test_beyond_floats() -> None:
    relation = one_row([1e308])
    text = refusal(lambda: Integral("sum", "x", "w", 3_000_000).segments(relation), DomainError)
    assert "sum(x)" in text

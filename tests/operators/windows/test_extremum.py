"""Extrema over windows, against exact extrema of truths within the bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.windows.extremum import Extremum
from tests import naive
from tests.operators.contract import causes, check_contract
from tests.operators.relational.test_filter import one_row
from tests.strategies import relations


@given(
    relations(codes=(1, 2, 3)),
    st.sampled_from(["min", "max"]),
    st.sampled_from([500_000, 2_000_000]),
    st.data(),
)
def test_windows_keep_every_truth(relation: Relation, function: str, size: int, data: st.DataObject) -> None:
    columns = Columns(relation.columns.key, ("w",), (), "t")
    made = check_contract(Extremum(function, "x", "w", size), relation, columns)
    ids = causes(made)
    share = data.draw(
        st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=len(relation), max_size=len(relation))
    )
    truth = relation.models["x"].copy()
    truth[:, 0] += np.array(share) * relation.err["x"]
    for g in range(relation.groups):
        rows = range(relation.offsets[g], relation.offsets[g + 1])
        spans = {i: tuple(round(end) for end in naive.row_span(relation, i)) for i in rows}
        pieces = [(relation.ref[i], truth[i], *spans[i]) for i in rows]
        for row in range(made.offsets[g], made.offsets[g + 1]):
            for at in naive.instants_of(made, row):
                want = naive.window_extremum(pieces, at, size, function == "max")
                assert want is not None
                got = naive.piece_value(made.ref[row], made.models["w"][row], at)
                slack = 1e-5 * np.any(np.abs(relation.lo) > 1e6) + 1e-6
                assert abs(got - want) <= made.err["w"][row] + slack
                touched = [
                    i
                    for i in rows
                    if spans[i][0] < at
                    and (spans[i][1] > at - size or spans[i][0] == spans[i][1] > at - size)
                ]
                assert set(touched) <= set(ids[row])
                assert made.certainty[row] == min(relation.certainty[i] for i in touched)
                assert (
                    made.err["w"][row] <= max(relation.err["x"][i] for i in rows) + 10 * slack
                )  # a shift's rounding


def test_only_the_rows_of_its_windows_bound_a_piece() -> None:
    parts = [one_row([float(i)], e, lo=float(i), hi=i + 1.0) for i, e in enumerate([1.0, 0.0, 0.0, 0.25])]
    relation = replace(Relation.concat(parts), offsets=np.array([0, 4]))
    made = Extremum("max", "x", "w", 1_000_000).segments(relation)
    by_start = {
        float(r - relation.ref[0]) / 1e6 + lo: e
        for r, lo, e in zip(made.ref, made.lo, made.err["w"], strict=True)
    }
    assert by_start == {1.0: 1.0, 2.0: 0.0, 3.0: 0.25}


@pytest.mark.parametrize("function", ["min", "max"])
def test_a_window_larger_than_the_data_has_no_result(function: str) -> None:
    assert len(Extremum(function, "x", "w", 10**9).segments(one_row([1.0, 1.0]))) == 0

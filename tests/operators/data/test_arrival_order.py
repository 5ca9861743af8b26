"""Tuples without an order of arrival: by key and time, and as they stood within one instant."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import NullKeyError
from pulse.operators.data.arrival_order import sorted_by_key_and_time
from tests.operators.fit.fitting import stream, tuples

SCHEMA = stream(x="step")
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), max_size=20)


@given(ROWS)
def test_rows_of_a_key_are_by_time_and_stable(rows: list[tuple[str, int]]) -> None:
    table = tuples([t for _, t in rows], k=[k for k, _ in rows], x=list(range(len(rows))))
    got: Any = sorted_by_key_and_time(table, SCHEMA).to_pylist()
    for key in "abc":
        wanted = sorted((t, i) for i, (k, t) in enumerate(rows) if k == key)
        own = [row for row in got if row["k"] == key]
        assert [int(row["x"]) for row in own] == [i for _, i in wanted]
    assert len(got) == len(rows)


def test_what_is_in_order_is_not_copied() -> None:
    for times, keys in (([0, 1, 2, 3], "abab"), ([5, 6, 0, 1], "aabb"), ([5, 0, 6, 1], "abab"), ([], "")):
        table = tuples(times, k=list(keys), x=[1.0] * len(times))
        assert sorted_by_key_and_time(table, SCHEMA) is table


def test_a_row_without_key_is_an_error() -> None:
    table = pa.table({"k": ["a", None], "t": pa.array([1, 0], pa.timestamp("us")), "x": [1.0, 2.0]})
    with pytest.raises(NullKeyError, match="'k': 1 nulls"):
        sorted_by_key_and_time(table, SCHEMA)

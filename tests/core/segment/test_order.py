"""Rows by key and time: one sort of whole numbers gives what sorting by every column does."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.instants import split
from pulse.core.segment.order import Ranges, is_in_order, time_order

TIMES = st.sampled_from([0, 1, 2, 5, 1_000_000, 10**15, -(10**15), 4 * 10**18])
SECONDS = st.sampled_from([0.0, 1e-9, 2e-9, 5e-7, 1e-6, 0.5, 3.0])
ROWS = st.lists(st.tuples(st.integers(0, 4), TIMES, SECONDS, SECONDS), min_size=1, max_size=40)


def ranges_of(rows: list[tuple[int, int, float, float]]) -> Ranges:
    rank, ref, lo, length = (np.array(column) for column in zip(*rows, strict=True))
    return Ranges(rank.astype(np.int64), ref.astype(np.int64), lo, lo + length)


@given(ROWS)
def test_the_order_is_that_of_all_columns_and_stable(rows: list[tuple[int, int, float, float]]) -> None:
    ranges = ranges_of(rows)
    whole, rest = split(ranges.ref, ranges.lo)
    expected = np.lexsort((ranges.hi - ranges.lo, rest, whole, ranges.rank))
    found = time_order(ranges)
    if found is None:
        np.testing.assert_array_equal(expected, np.arange(len(rows)))
    else:
        np.testing.assert_array_equal(found, expected)
        assert is_in_order(ranges.take(found))


def test_keys_and_times_too_many_for_one_number() -> None:
    rank = np.array([70_000, 3, 3])
    ref = np.array([-(4 * 10**18), 4 * 10**18, 0])
    found = time_order(Ranges(rank, ref, np.zeros(3), np.ones(3)))
    assert found is not None
    assert found.tolist() == [2, 1, 0]


def test_two_sorted_files_are_merged() -> None:
    rank, ref = np.repeat(np.arange(3), 4), np.tile(np.arange(4) * 1_000_000, 3)
    points = np.arange(3), np.full(3, 4_000_000)
    ranges = Ranges(
        np.concatenate([rank, points[0]]),
        np.concatenate([ref, points[1]]),
        np.zeros(15),
        np.concatenate([np.ones(12), np.zeros(3)]),
    )
    found = time_order(ranges)
    assert found is not None
    assert found.tolist() == [0, 1, 2, 3, 12, 4, 5, 6, 7, 13, 8, 9, 10, 11, 14]

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import SegmentError
from pulse.core.segment.coefficients import flat, from_padded, from_ragged, lengths, to_padded

rows = st.lists(st.lists(st.floats(allow_nan=False), max_size=5), max_size=8)


@given(rows, st.integers(0, 3), st.integers(0, 3))
def test_padding_is_what_a_loop_would_do(rows, skip, drop):
    lists = pa.array(rows, pa.list_(pa.float64())).slice(skip, max(len(rows) - skip - drop, 0))
    kept = lists.to_pylist()
    k = max([1, *map(len, kept)])
    expected = np.array([row + [0.0] * (k - len(row)) for row in kept]).reshape(len(kept), k)
    np.testing.assert_array_equal(to_padded(lists), expected)
    assert lengths(lists).tolist() == [len(row) for row in kept]
    assert flat(lists).tolist() == [c for row in kept for c in row]


def test_equal_lengths_are_a_view_also_of_a_slice():
    array = np.arange(12.0).reshape(4, 3)
    lists = from_padded(array)
    assert np.shares_memory(to_padded(lists), array)
    part = to_padded(lists.slice(1, 2))
    assert np.shares_memory(part, array)
    np.testing.assert_array_equal(part, array[1:3])
    mixed = from_ragged(np.arange(5.0), [0, 1, 3, 5])
    np.testing.assert_array_equal(to_padded(mixed.slice(1)), [[1, 2], [3, 4]])
    assert np.shares_memory(to_padded(mixed.slice(1)), mixed.values.to_numpy())


def test_nulls_give_zeros():
    lists = pa.array([[1.0, 2.0], None, [3.0]], pa.list_(pa.float64()))
    np.testing.assert_array_equal(to_padded(lists), [[1, 2], [0, 0], [3, 0]])
    # A null that still owns a stretch of the values.
    owning = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), pa.array([1.0, 9.0, 3.0]), mask=pa.array([False, True, False])
    )
    np.testing.assert_array_equal(to_padded(owning), [[1], [0], [3]])
    np.testing.assert_array_equal(flat(pa.array([[1.0, None]], pa.list_(pa.float64()))), [1.0, np.nan])


@given(rows.filter(bool))
def test_ragged_round_trips(rows):
    offsets = np.cumsum([0, *map(len, rows)])
    lists = from_ragged(np.array([c for row in rows for c in row]), offsets)
    assert lists.to_pylist() == rows


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((2, 0)), np.zeros((1, 2, 3))])
def test_shapes_that_are_no_batch(array):
    with pytest.raises(SegmentError, match=r"expected shape \(n, k\)"):
        from_padded(array)


@pytest.mark.parametrize(
    ("values", "offsets"),
    [
        ([1.0], []),
        ([1.0], [0.0, 1.0]),
        ([[1.0]], [0, 1]),
        ([1.0], [0, 2]),
        ([1.0, 2.0], [0, 2, 1]),
        ([1.0], [-1, 1]),
    ],
)
def test_offsets_that_are_none(values, offsets):
    with pytest.raises(SegmentError, match="offsets"):
        from_ragged(np.array(values), np.array(offsets))

"""Ranges of time among the rows of keys, against plain loops."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.pieces.range_lookup import locate, merge_ranges

ranges = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(-1, 6)), max_size=12)


@given(given_=ranges)
def test_ranges_are_made_one(given_: list[tuple[int, int, int]]) -> None:
    rows = [(code, start, start + length) for code, start, length in given_]
    code, start, end = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    found = list(zip(*(values.tolist() for values in merge_ranges(code, start, end)), strict=True))
    # Halves, so that touching joins.
    touched = {(c, t) for c, a, b in rows for t in range(2 * a, 2 * b + (b > a))}
    assert {(c, t) for c, a, b in found for t in range(2 * a, 2 * b + 1)} == touched
    assert found == sorted(found)
    assert all(a[0] != b[0] or a[2] < b[1] for a, b in pairwise(found))


@given(lengths=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=8), asked=ranges)
def test_rows_are_located(lengths: list[tuple[int, int]], asked: list[tuple[int, int, int]]) -> None:
    starts, ends, at = [], [], 0
    for gap, length in lengths:
        starts.append(at + gap)
        ends.append(at + gap + length)
        at = ends[-1]
    wanted = np.array([(a, a + max(length, 1)) for _, a, length in asked], np.int64).reshape(-1, 2)
    spans = np.array([(0, len(starts))] * len(wanted), np.int64).reshape(-1, 2)
    found = locate(np.array(starts, np.int64), np.array(ends, np.int64), spans, wanted)
    for (a, b), (first, last) in zip(wanted.tolist(), found.tolist(), strict=True):
        rows = [i for i in range(len(starts)) if starts[i] < b and ends[i] > a]
        assert list(range(first, last)) == rows


def test_shapes_are_checked() -> None:
    one = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match=r"expected one shape \(n, 2\)"):
        locate(one, one, np.zeros((1, 2), np.int64), np.zeros((2, 2), np.int64))
    with pytest.raises(ValueError, match=r"places in 0\.\.1"):
        locate(one, one, np.array([[0, 2]]), np.array([[0, 2]]))

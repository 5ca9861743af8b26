from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.samples.grid_runs import (
    common_stretches,
    copy_stretches,
    keep,
    take,
    times_of,
)

EVERY = 500


@st.composite
def sides(draw, groups=3):
    """Stretches of some groups, as (group, first, offsets); a gap of nothing is allowed."""
    group, first, counts = [], [], []
    for g in range(groups):
        at = EVERY * draw(st.integers(-6, 3))
        for gap, count in draw(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=4)):
            group.append(g)
            first.append(at + gap * EVERY)
            counts.append(count)
            at += (gap + count) * EVERY
    return np.array(group, np.int64), np.array(first, np.int64), np.cumsum([0, *counts])


def instants(side, wanted):
    group, first, offsets = side
    return {
        int(first[s]) + j * EVERY: int(offsets[s]) + j
        for s in np.flatnonzero(group == wanted)
        for j in range(offsets[s + 1] - offsets[s])
    }


@given(sides(), sides(), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=5))
def test_common_instants_are_those_of_both(left, right, pairs):
    found = common_stretches(np.array(pairs, np.int64).reshape(-1, 2), left, right, EVERY)
    mine = [{} for _ in pairs]
    for s, p in enumerate(found.pair):
        for j in range(found.offsets[s + 1] - found.offsets[s]):
            mine[p][int(found.first[s]) + j * EVERY] = (int(found.left[s]) + j, int(found.right[s]) + j)
    for (a, b), got in zip(pairs, mine, strict=True):
        one, other = instants(left, a), instants(right, b)
        assert got == {t: (one[t], other[t]) for t in one if t in other}
    assert list(found.pair) == sorted(found.pair)
    values = np.arange(float(left[2][-1]))
    expected = [
        place
        for s in range(len(found.pair))
        for place in range(found.left[s], found.left[s] + (found.offsets[s + 1] - found.offsets[s]))
    ]
    assert copy_stretches(values, found.left, found.offsets).tolist() == expected
    assert copy_stretches(values.astype(np.uint8), found.left, found.offsets).tolist() == expected


def test_what_is_whole_is_not_copied():
    values, offsets = np.arange(5.0), np.array([0, 2, 5])
    assert copy_stretches(values, np.array([0, 2]), offsets) is values
    assert copy_stretches(values, np.array([0, 1]), np.array([0, 2, 4])).tolist() == [0.0, 1.0, 1.0, 2.0]


@given(sides(), st.data())
def test_samples_that_are_kept(side, data):
    group, first, offsets = side
    n = int(offsets[-1])
    codes = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), np.uint8)
    index, counts = keep(codes, 2, offsets)
    expected = [i for i, code in enumerate(codes) if code >= 2]
    assert (list(range(n)) if index is None else index.tolist()) == expected
    assert (index is None) == (len(expected) == n)
    times = np.repeat(first - EVERY * offsets[:-1], np.diff(offsets)) + EVERY * np.arange(offsets[-1])
    assert times_of(index, counts, first, offsets, EVERY).tolist() == times[expected].tolist()
    assert np.repeat(group, counts).tolist() == np.repeat(group, np.diff(offsets))[expected].tolist()
    assert take(np.arange(float(len(codes))), index).tolist() == expected
    assert take(codes, index).tolist() == codes[expected].tolist()

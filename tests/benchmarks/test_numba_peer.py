"""Tuple operators by hand against the same in a few lines of Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.benchmarks.peers.duckdb_operators import DuckTuples
from pulse.benchmarks.peers.numba_peer import above, minimum, near
from pulse.benchmarks.workloads.moving_objects import Objects, Tuples

KEYS = 3


@st.composite
def streams(draw: st.DrawFn, *, span: int = 40) -> Tuples:
    """Tuples in order of time, several at one instant and long silences among them; values that repeat."""
    n = draw(st.integers(1, 30))
    t = np.sort(np.array(draw(st.lists(st.integers(0, span), min_size=n, max_size=n)), np.int64))
    key = np.array(draw(st.lists(st.integers(0, KEYS - 1), min_size=n, max_size=n)), np.int64)
    x, y = (np.array(draw(st.lists(st.integers(-4, 4), min_size=n, max_size=n)), float) for _ in range(2))
    return Tuples(key, t, x, y, x + 0.5, y - 0.5)


def rows(tuples: Tuples) -> list[tuple[float, ...]]:
    return list(zip(*(column.tolist() for column in tuples), strict=True))


@given(streams(), st.integers(-5, 5))
def test_above(tuples: Tuples, level: int) -> None:
    assert rows(above(tuples, level)) == [row for row in rows(tuples) if row[2] > level]


def naive_minimum(tuples: Tuples, size: int, advance: int) -> dict[tuple[int, int], float]:
    found = {}
    for key in range(KEYS):
        mine = [(t, x) for k, t, x, *_ in rows(tuples) if k == key]
        if mine:
            opens = -(-mine[0][0] // advance) * advance
            for end in range(opens + size, mine[-1][0] + 1, advance):
                found[key, end] = min((x for t, x in mine if end - size <= t < end), default=np.inf)
    return found


@given(streams(), st.integers(1, 5), st.integers(1, 4), st.sampled_from(["open windows", "deque", "panes"]))
def test_minimum(tuples: Tuples, panes: int, advance: int, way: str) -> None:
    found = minimum(tuples, KEYS, panes * advance, advance, way=way)
    mine = {(key, t): value for key, t, value in zip(*(c.tolist() for c in found), strict=True)}
    assert len(mine) == len(found.t)
    assert mine == naive_minimum(tuples, panes * advance, advance)


@given(streams(), streams(), st.integers(1, 6), st.integers(1, 4), st.sampled_from(["nested loops", "grid"]))
def test_near(left: Tuples, right: Tuples, window: int, reach: int, way: str) -> None:
    found = near(left, right, window, reach, way=way)
    mine = sorted(zip(rows(found.left), rows(found.right), strict=True))
    expected = sorted(
        (a, b)
        for a in rows(left)
        for b in rows(right)
        if abs(a[1] - b[1]) < window and (a[2] - b[2]) ** 2 + (a[3] - b[3]) ** 2 < reach**2
    )
    assert mine == expected


def test_duckdb_says_the_same() -> None:
    left, right = (Objects(3000, 5, rate=100.0, stream=stream).stream_tuples for stream in (0, 1))
    duck = DuckTuples(tuples=left, r=left, s=right)
    assert duck.above(2000.0).to_pydict() == {
        name: column.tolist() for name, column in above(left, 2000.0)._asdict().items()
    }
    size, advance = 10_000_000, 2_000_000
    windows = minimum(left, 10, size, advance)
    assert sorted(zip(*(c.to_pylist() for c in duck.minimum(size, advance).columns), strict=True)) == sorted(
        zip(*(c.tolist() for c in windows), strict=True)
    )
    pairs = near(left, right, 500_000, 200.0)
    theirs = sorted(zip(*(c.to_pylist() for c in duck.near(500_000, 200.0).columns), strict=True))
    assert len(theirs) > 100
    assert theirs == sorted((*a, *b) for a, b in zip(rows(pairs.left), rows(pairs.right), strict=True))
    duck.close()


def test_ways_that_are_none() -> None:
    tuples = Objects(100, 5).stream_tuples
    with pytest.raises(ValueError, match="multiple of the advance, got 3 and 2"):
        minimum(tuples, 10, 3, 2)
    with pytest.raises(ValueError, match="expected open windows, deque or panes, got 'heap'"):
        minimum(tuples, 10, 4, 2, way="heap")
    with pytest.raises(ValueError, match="expected nested loops or grid, got 'tree'"):
        near(tuples, tuples, 1, 1.0, way="tree")

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.pieces.proximity_sweep import Tracks, near_pairs
from tests import naive
from tests.strategies import SCALES, functions

quarters = st.integers(-40, 40).map(lambda x: x / 4)
huge = st.builds(
    lambda m, e: m * 10.0**e,
    st.floats(-1, 1, allow_subnormal=False),
    st.sampled_from([-200, -12, 0, 6, 12, 290]),
)


def sides(number):
    """Intervals of one axis: sizes of 0, a little, or anything."""
    return st.tuples(number, st.one_of(st.just(0.0), number.map(abs))).map(
        lambda x: (x[0], max(x[0], x[0] + x[1]))
    )


@st.composite
def tracks(draw, scale, number, max_groups=5):
    groups = draw(st.lists(functions(scale, max_pieces=4), max_size=max_groups))
    n = sum(len(one.ref) for one in groups)
    box = np.array(
        [[*draw(sides(number)), *draw(sides(number))] for _ in range(n)], dtype=np.float64
    ).reshape(n, 4)
    offsets = np.concatenate(([0], np.cumsum([len(one.ref) for one in groups]))).astype(np.int64)
    flat = [np.concatenate([np.zeros(0), *(getattr(one, name) for one in groups)]) for name in ("lo", "hi")]
    ref = np.concatenate([np.zeros(0, np.int64), *(one.ref for one in groups)])
    return Tracks(ref, *flat, offsets, box)


def exact(track):
    """The groups' pieces in exact numbers, times in microseconds."""
    pieces = [
        (naive.instant(r, a), naive.instant(r, b), *(Fraction(float(x)) for x in box))
        for r, a, b, box in zip(track.ref, track.lo, track.hi, track.box, strict=True)
    ]
    return [pieces[a:b] for a, b in zip(track.offsets[:-1], track.offsets[1:], strict=True)]


@given(st.data(), st.sampled_from(SCALES), st.integers(0, 16).map(lambda x: x / 4))
def test_on_a_grid_exactly_the_near_ones(data, scale, reach):
    left, right = data.draw(tracks(scale, quarters)), data.draw(tracks(scale, quarters))
    found = near_pairs(left, right, reach).tolist()
    assert found == naive.near_pairs(exact(left), exact(right), Fraction(reach), Fraction(1, 2))


@given(st.data(), st.integers(0, 16).map(lambda x: x / 4))
def test_with_itself_is_with_a_copy(data, reach):
    track = data.draw(tracks(SCALES[2], quarters, max_groups=6))
    assert near_pairs(track, None, reach).tolist() == near_pairs(track, track, reach).tolist()


@given(st.data(), huge.map(abs))
def test_boxes_of_any_size_anywhere(data, reach):
    left, right = data.draw(tracks(SCALES[2], huge)), data.draw(tracks(SCALES[2], huge))
    found = near_pairs(left, right, reach).tolist()
    a, b = exact(left), exact(right)
    assert [pair for pair in naive.near_pairs(a, b, Fraction(reach)) if pair not in found] == []
    # What is taken too much lies within rounding of the positions.
    farthest = max([reach, *np.abs(left.box).ravel(), *np.abs(right.box).ravel()])
    slack = Fraction(farthest) / 10**9 + Fraction(1, 10**150)
    wide = naive.near_pairs(a, b, Fraction(reach) + slack, Fraction(1, 2))
    assert [pair for pair in found if pair not in wide] == []


def test_touching_exactly_at_reach():
    one = Tracks(np.zeros(1, np.int64), np.zeros(1), np.ones(1), np.array([0, 1]), np.array([[0.0, 1, 0, 1]]))
    for gap, (dx, dy) in ((5.0, (3.0, 4.0)), (0.1, (0.1, 0.0)), (0.0, (0.0, 0.0)), (8.0, (0.0, -9.0))):
        box = np.array([[1 + dx, 2 + dx, 1 + dy, 1 + dy]])
        other = one._replace(box=box)
        assert len(near_pairs(one, other, box[0, 0] - 1 if dy == 0 else gap)) == 1
        if gap > 0:
            assert len(near_pairs(one, other, gap * (1 - 1e-9))) == 0


def random_tracks(groups, pieces, seed):
    """Walks with rests: tiny boxes, large ones, and a few that span everything."""
    rng = np.random.default_rng(seed)
    n = groups * pieces
    steps = rng.normal(0, 1, (groups, pieces, 2)) * 10.0 ** rng.integers(-6, 3, (groups, pieces, 1))
    ends = rng.uniform(-1000, 1000, (groups, 1, 2)) + np.cumsum(steps, axis=1)
    begin = np.concatenate((ends[:, :1], ends[:, :-1]), axis=1)
    low, high = np.minimum(begin, ends).reshape(n, 2), np.maximum(begin, ends).reshape(n, 2)
    box = np.stack((low[:, 0], high[:, 0], low[:, 1], high[:, 1]), axis=1)
    box[rng.integers(0, n, 3)] = (-1e5, 1e5, -1e5, 1e5)
    lengths = rng.exponential(10, (groups, pieces))
    stop = np.cumsum(lengths, axis=1)
    ref = (1.7e15 + (stop - lengths).ravel() * 1e6).astype(np.int64)
    return Tracks(ref, np.zeros(n), lengths.ravel() * 0.9, np.arange(0, n + 1, pieces), box)


def test_many_tracks_against_all_comparisons():
    left, right = random_tracks(40, 12, 1), random_tracks(50, 10, 2)
    for reach in (0.0, 1.0, 30.0, 500.0):
        assert near_pairs(left, right, reach).tolist() == all_compared(left, right, reach)


def all_compared(left, right, reach):
    def group(track):
        return np.repeat(np.arange(len(track.offsets) - 1), np.diff(track.offsets))

    def between(a0, a1, b0, b1):
        return np.maximum(0, np.maximum(a0[:, None] - b1, b0 - a1[:, None]))

    begin, end = [t.ref / 1e6 + t.lo for t in (left, right)], [t.ref / 1e6 + t.hi for t in (left, right)]
    a, b = left.box.T, right.box.T
    distance = np.hypot(between(a[0], a[1], b[0], b[1]), between(a[2], a[3], b[2], b[3]))
    i, j = np.nonzero((between(begin[0], end[0], begin[1], end[1]) == 0) & (distance <= reach))
    return np.unique(np.stack((group(left)[i], group(right)[j]), axis=1), axis=0).tolist()


def test_more_pairs_than_there_is_room_for(monkeypatch):
    left = random_tracks(40, 6, 3)
    whole = near_pairs(left, None, 300.0)
    monkeypatch.setattr("pulse.kernels.pieces.proximity_sweep._ROOM", 8)
    assert np.array_equal(near_pairs(left, None, 300.0), whole)
    assert len(whole) > 200


def test_nothing():
    none = Tracks(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(1, np.int64), np.zeros((0, 4)))
    assert near_pairs(none, None, 1.0).shape == (0, 2)
    assert near_pairs(none, random_tracks(2, 2, 0), 1.0).shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"box": np.array([[0.0, np.inf, 0, 1]])}, "expected finite x0 <= x1"),
        ({"box": np.array([[0.0, np.nan, 0, 1]])}, "expected finite x0 <= x1"),
        ({"box": np.array([[1.0, 0.0, 0, 1]])}, "expected finite x0 <= x1"),
        ({"box": np.zeros((1, 3))}, "boxes of 4"),
        ({"hi": np.array([np.inf])}, "expected finite lo <= hi"),
        ({"lo": np.array([2.0])}, "expected finite lo <= hi"),
        ({"offsets": np.array([0, 2])}, "expected offsets from 0 to 1"),
    ],
)
def test_what_is_no_track(change, message):
    one = Tracks(np.zeros(1, np.int64), np.zeros(1), np.ones(1), np.array([0, 1]), np.zeros((1, 4)))
    with pytest.raises(ValueError, match=message):
        near_pairs(one._replace(**change), None, 1.0)


@pytest.mark.parametrize("reach", [-1.0, np.nan, np.inf])
def test_what_is_no_reach(reach):
    with pytest.raises(ValueError, match="reach: expected a finite number, 0 or more"):
        near_pairs(random_tracks(2, 2, 0), None, reach)

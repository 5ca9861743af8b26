"""Hulls hold their pieces, in time and in the plane, and no more pieces than asked."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.pieces.coarse_tracks import hulls
from pulse.kernels.pieces.proximity_sweep import Tracks, near_pairs
from tests.strategies import EPOCH_US

SECOND = 1_000_000


@st.composite
def tracks(draw) -> Tracks:
    counts = draw(st.lists(st.integers(0, 7), max_size=4))
    n = sum(counts)
    whole = st.integers(0, 5)
    gaps, lengths, x, y, w = (draw(st.lists(whole, min_size=n, max_size=n)) for _ in range(5))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    ref, lo, hi = np.zeros(n, np.int64), np.zeros(n), np.zeros(n)
    for a, b in pairwise(offsets):
        now = 0
        for i in range(a, b):
            now += gaps[i] // 3
            ref[i] = EPOCH_US + (now - x[i]) * SECOND
            lo[i], hi[i] = x[i], x[i] + lengths[i]
            now += lengths[i]
    box = np.array([[a, a + c, b, b] for a, b, c in zip(x, y, w, strict=True)], float).reshape(n, 4)
    return Tracks(ref, lo, hi, offsets, box)


@given(tracks(), st.integers(1, 5))
def test_hulls_hold_their_pieces(one: Tracks, size: int) -> None:
    made, spans, group = hulls(one, size)
    assert [p for a, b in spans.tolist() for p in range(a, b)] == list(range(len(one.ref)))
    for h, (a, b) in enumerate(spans.tolist()):
        assert 0 < b - a <= size
        assert one.offsets[group[h]] <= a < b <= one.offsets[group[h] + 1]
        begin, end = made.ref[h] / SECOND + made.lo[h], made.ref[h] / SECOND + made.hi[h]
        assert begin == min(one.ref[a:b] / SECOND + one.lo[a:b])
        assert end == pytest.approx(max(one.ref[a:b] / SECOND + one.hi[a:b]), abs=1e-6)
        assert made.box[h].tolist() == [
            one.box[a:b, 0].min(), one.box[a:b, 1].max(), one.box[a:b, 2].min(), one.box[a:b, 3].max()
        ]  # fmt: skip


@given(tracks(), tracks(), st.integers(1, 5), st.integers(0, 3))
def test_what_is_near_is_near_as_hulls(a: Tracks, b: Tracks, size: int, reach: int) -> None:
    (hull_a, _, group_a), (hull_b, _, group_b) = hulls(a, size), hulls(b, size)
    met = near_pairs(hull_a, hull_b, float(reach))
    found = {(int(group_a[i]), int(group_b[j])) for i, j in met.tolist()}
    assert {tuple(pair) for pair in near_pairs(a, b, float(reach)).tolist()} <= found


def test_a_size_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="1 or more, got 0"):
        hulls(
            Tracks(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(1, np.int64), np.zeros((0, 4))),
            0,
        )

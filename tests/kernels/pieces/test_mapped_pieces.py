"""Segments cut at steps against a look through all of them, one row at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.pieces.mapped_pieces import cut_at_steps, scaled_drift
from tests.kernels.pieces.test_step_maps import FAR, arrays, cells


@given(cells, st.data())
def test_parts_tile_their_rows_and_lie_in_one_step(steps, data):
    row = st.tuples(
        st.integers(0, len(steps) - 1), st.integers(-2, 12), st.integers(0, 9), st.sampled_from([0, FAR])
    )
    rows = data.draw(st.lists(row, max_size=6))
    ref = np.array([FAR + shift for *_, shift in rows], np.int64)
    lo = np.array([0.5 * begin - shift / 1e6 for _, begin, _, shift in rows])
    hi = np.array([0.5 * (begin + length) - shift / 1e6 for _, begin, length, shift in rows])
    packed, _ = arrays(steps)
    parts = cut_at_steps(ref, lo, hi, np.array([c for c, *_ in rows], np.int64), packed)
    for i, (c, begin, length, shift) in enumerate(rows):
        own = np.flatnonzero(parts.row == i)
        inside = [at for at in steps[c] if begin < at < begin + length]
        bounds = [begin, *inside, begin + length]
        assert (2 * (parts.lo[own] + shift / 1e6)).tolist() == bounds[:-1]
        assert (2 * (parts.hi[own] + shift / 1e6)).tolist() == bounds[1:]
        for p, at in zip(own, bounds, strict=False):
            before = [s for s, there in enumerate(steps[c], packed[0][c]) if there <= at]
            assert parts.step[p] == (before[-1] if before else -1)


def test_drift_is_carried_over_a_change_of_scale():
    scales = np.array([4.0]), np.zeros(1)
    out = scaled_drift(
        np.array([0, 2, 4]), np.array([-1, 0, 0, 0]), scales, np.array([1.0, 2.0, 3.0, np.inf])
    )
    assert out.tolist() == pytest.approx([1.0, 4.0 * 2.0 + 3.0 * 1.0, 12.0, np.inf], rel=1e-14)
    assert out[1] >= 11.0
    assert out[2] == 12.0


def test_no_rows_have_no_parts():
    steps, empty = (np.array([0, 1]), np.array([5])), np.zeros(0, np.int64)
    assert len(cut_at_steps(empty, np.zeros(0), np.zeros(0), empty, steps).row) == 0

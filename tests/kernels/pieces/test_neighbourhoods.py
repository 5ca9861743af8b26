from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.pieces.align import Pieces
from pulse.kernels.pieces.neighbourhoods import around
from tests import naive
from tests.strategies import SCALES, functions


@st.composite
def chosen_ranges(draw, function):
    """For each piece none, a quarter or an eighth of it, an instant or all."""
    offsets, bounds = [0], []
    for lo, hi in zip(function.lo, function.hi, strict=True):
        cuts = draw(st.sampled_from([(), (), (), (0, 0), (0, 4), (2, 3), (4, 4), (1, 2, 3, 4)]))
        if lo == hi:
            cuts = cuts[:2]
        bounds += [
            (lo + (hi - lo) * a / 4, lo + (hi - lo) * b / 4)
            for a, b in zip(cuts[::2], cuts[1::2], strict=True)
        ]
        offsets.append(len(bounds))
    return np.array(offsets), np.array(bounds, dtype=np.float64).reshape(-1, 2)


@given(st.data(), st.sampled_from(SCALES), st.integers(0, 9))
def test_an_instant_is_kept_if_it_lies_around_a_chosen_one(data, scale, quarters):
    step = scale[0]
    groups = data.draw(st.lists(functions(scale), max_size=3))
    chosen = [data.draw(chosen_ranges(one)) for one in groups]
    offsets = np.concatenate(([0], np.cumsum([len(one.ref) for one in groups]))).astype(np.int64)
    pieces = Pieces(*(np.concatenate([np.zeros(0), *(one[i] for one in groups)]) for i in (1, 2, 3)))
    before = np.concatenate(([0], np.cumsum([len(b) for _, b in chosen]))).astype(np.int64)
    of_piece = np.concatenate(([0], *(o[1:] + x for (o, _), x in zip(chosen, before, strict=False))))
    bounds = np.concatenate([np.zeros((0, 2)), *(b for _, b in chosen)])
    size = Fraction(quarters * step, 4)
    parts = around(pieces, offsets, (of_piece, bounds), float(size) / 1e6)
    assert (np.diff(parts.piece) >= 0).all()
    ref = pieces.ref.astype(np.int64)
    ranges = [
        (naive.instant(ref[i], a), naive.instant(ref[i], b), i) for i, (a, b) in zip(*parts, strict=True)
    ]
    # Cuts are exact to the rounding of offsets; instants that near to the end of a run may go either way.
    doubt = Fraction(step, 1000) + Fraction(1, 100)
    fuzz = Fraction(1, 100)
    for g, one in enumerate(groups):
        o, b = chosen[g]
        near = [
            (naive.instant(one.ref[i], low) - size, naive.instant(one.ref[i], high) + size)
            for i in range(len(one.ref))
            for low, high in b[o[i] : o[i + 1]]
        ]
        for i, (begin, end) in enumerate(one.ranges):
            own = [(x, y) for x, y, piece in ranges if piece == offsets[g] + i]
            for t in [begin + Fraction(end - begin) * k / 16 for k in range(16 if begin < end else 1)]:
                margin = [min(t - x, y - t) for x, y in near]
                inside = any(x - fuzz <= t < y + (fuzz if begin == end else 0) for x, y in own)
                if begin == end and size == 0:
                    assert inside == any(x - fuzz <= t <= y + fuzz for x, y in near)
                elif max(margin, default=-doubt * 2) > doubt:
                    assert inside
                elif max(margin, default=-doubt * 2) < -doubt:
                    assert not inside


def test_pieces_that_are_kept_whole_keep_their_ends():
    pieces = Pieces(np.array([0, 7_000_000]), np.array([0.1, -6.7]), np.array([0.3, 1.0]))
    parts = around(pieces, np.array([0, 2]), (np.array([0, 1, 1]), np.array([[0.2, 0.25]])), 100.0)
    assert parts.piece.tolist() == [0, 1]
    assert parts.bounds.tolist() == [[0.1, 0.3], [-6.7, 1.0]]


@pytest.mark.parametrize(
    ("offsets", "chosen", "size", "message"),
    [
        ([0, 1], ([0, 0], np.zeros((0, 2))), -1.0, "size: expected"),
        ([0, 1], ([0, 0], np.zeros((0, 2))), np.nan, "size: expected"),
        ([0, 2], ([0, 0], np.zeros((0, 2))), 1.0, "offsets: expected groups from 0 to 1"),
        ([0, 1], ([0], np.zeros((0, 2))), 1.0, "chosen: expected 2 offsets"),
        ([0, 1], ([0, 1], np.zeros((1, 3))), 1.0, "ranges of 2"),
    ],
)
def test_what_does_not_fit(offsets, chosen, size, message):
    pieces = Pieces(np.zeros(1, np.int64), np.zeros(1), np.ones(1))
    with pytest.raises(ValueError, match=message):
        around(pieces, np.array(offsets), (np.array(chosen[0]), chosen[1]), size)

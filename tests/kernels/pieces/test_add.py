"""Sums of pieces against fractions: no sum is off by more than its bound, and what is exact has none of its own."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pulse.kernels.pieces.add import add_pieces
from pulse.kernels.pieces.align import Cells, align
from tests.naive import piece_value

SECOND = 1_000_000


def streams(random, size, k):
    """Two functions of ``size`` pieces each, about their own starts, with a gap in the second."""
    ref, lo, hi, c = [], [], [], []
    for f in range(2):
        at = 1_700_000_000 * SECOND + int(random.integers(0, SECOND))
        for i in range(size):
            length = int(random.integers(1, 5 * SECOND))
            ref.append(at)
            lo.append(0.0)
            hi.append(length / SECOND)
            c.append(random.choice([1e15, 1e6, 100.0, 0.0]) + random.normal(size=k))
            at += length + (SECOND if f and i == size // 2 else 0)
    return np.array(ref), np.array(lo), np.array(hi), np.array(c)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_sum_is_off_by_more_than_its_bound(k):
    random = np.random.default_rng(k)
    ref, lo, hi, c = streams(random, 40, k)
    cells = align(ref, lo, hi, np.array([[0, 40, 80]]), outer=True)
    sums, bound = add_pieces(cells, ref, c, np.zeros(80))
    assert (cells.index < 0).any()
    assert len(sums) > 80
    for i, (p, q) in enumerate(cells.index):
        for share in (0, Fraction(1, 3), 1):
            span = Fraction(cells.hi[i]) - Fraction(cells.lo[i])
            at = int(cells.ref[i]) + (Fraction(cells.lo[i]) + share * span) * SECOND
            truth = sum((piece_value(ref[j], c[j], at) for j in (p, q) if j >= 0), Fraction(0))
            got = piece_value(cells.ref[i], sums[i], at)
            assert abs(got - truth) <= Fraction(bound[i])


def test_what_is_exact_keeps_its_bound_and_what_is_missing_is_nothing():
    index = np.array([[0, 1], [1, -1], [-1, 0], [-1, -1]])
    cells = Cells(np.array([0, 4]), np.zeros(4, np.int64), np.zeros(4), np.ones(4), index)
    sums, bound = add_pieces(cells, np.zeros(2, np.int64), np.array([[0.1], [0.2]]), np.array([0.0, 0.7]))
    assert sums[:, 0].tolist() == [0.1 + 0.2, 0.2, 0.1, 0.0]
    assert bound[1:].tolist() == [0.7, 0.0, 0.0]
    assert 0.7 < bound[0] < 0.7 + 1e-14
    with pytest.raises(ValueError, match="one per row"):
        add_pieces(cells, np.zeros(1, np.int64), np.zeros((2, 1)), np.zeros(2))
    with pytest.raises(ValueError, match="below 1"):
        add_pieces(cells, np.zeros(1, np.int64), np.zeros((1, 1)), np.zeros(1))

"""Figures of samples against loops over them."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.samples.summary import count, figures

codes = st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=5)


@given(codes, st.integers(1, 3), st.integers(1, 3))
def test_counts(stretches, least, sure):
    offsets = np.cumsum([0, *map(len, stretches)])
    flat = np.array([c for s in stretches for c in s], np.uint8)
    runs = 0
    for stretch in stretches:
        marks = [False, *(c >= least for c in stretch)]
        runs += sum(b and not a for a, b in itertools.pairwise(marks))
    held = [c for c in flat if c >= least]
    assert count(flat, offsets, least, sure) == (len(held), runs, sum(c >= sure for c in held))


def test_stretches_need_not_start_at_the_first_sample():
    assert count(np.array([3, 3, 3], np.uint8), np.array([1, 2]), 2, 3) == (1, 1, 1)
    assert count(np.zeros(0, np.uint8), np.array([0]), 2, 3) == (0, 0, 0)


@given(st.lists(st.tuples(st.floats(-1e12, 1e12), st.integers(0, 3)), max_size=30))
def test_figures(samples):
    values = np.array([v for v, _ in samples], np.float64)
    total, smallest, largest = figures(values, np.array([c for _, c in samples], np.uint8), 2)
    held = [v for v, c in samples if c >= 2]
    exact = sum(map(Fraction, held), Fraction())
    size = float(sum(map(abs, map(Fraction, held)), Fraction()))
    assert abs(Fraction(total) - exact) <= Fraction(4 * 2.0**-52 * size)
    assert (smallest, largest) == (min(held, default=math.inf), max(held, default=-math.inf))


def test_a_long_sum_keeps_its_digits():
    n = 1 << 17
    total, *_ = figures(np.full(n, 0.1), np.full(n, 3, np.uint8), 2)
    assert total == pytest.approx(n * 0.1, rel=1e-15)


def test_what_does_not_fit_is_refused():
    three = np.zeros(3, np.uint8)
    for bad in ([], [0, 4], [-1, 3]):
        with pytest.raises(ValueError, match=r"offsets: expected ascending numbers in 0\.\.3"):
            count(three, np.array(bad, np.int64), 2, 3)
    with pytest.raises(ValueError, match=r"expected one length, got shapes \(2,\) and \(3,\)"):
        figures(np.zeros(2), three, 2)

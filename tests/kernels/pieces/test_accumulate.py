"""Rates added up group by group, against fractions: never below the exact sum, and hardly above it."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.pieces.accumulate import accumulate

rates = st.sampled_from([0.0, 5e-324, 1e-300, 1e-16, 0.1, 1 / 3, 1.0, 1e16, 1e30]) | st.floats(0.0, 1e20)
lengths = st.sampled_from([0.0, 1e-6, 0.1, 1.0, 86400.0])


@given(st.lists(st.lists(st.tuples(rates, lengths), max_size=12), max_size=4))
def test_no_sum_is_below_the_exact_one(groups):
    rows = [row for own in groups for row in own]
    offsets = np.cumsum([0, *map(len, groups)])
    rate, length = (np.array([row[i] for row in rows], np.float64) for i in (0, 1))
    lo = np.full(len(rows), 0.25)
    hi = lo + length
    found = accumulate(offsets, rate, lo, hi)
    for begin, end in pairwise(offsets):
        total = Fraction(0)
        for i in range(begin, end):
            total += Fraction(rate[i]) * (Fraction(hi[i]) - Fraction(lo[i]))
            assert Fraction(found[i]) >= total
            assert Fraction(found[i]) <= total * (1 + Fraction(1e-14)) + Fraction(2) ** -1060


def test_a_small_group_after_a_large_one_keeps_its_own():
    found = accumulate(np.array([0, 1, 2]), np.array([1e20, 1e-16]), np.zeros(2), np.ones(2))
    assert found[1] >= 1e-16


def test_an_infinite_rate_that_lasts_no_time_adds_nothing():
    assert accumulate(np.array([0, 2]), np.array([np.inf, 1.0]), np.zeros(2), np.array([0.0, 1.0]))[1] < 1.1

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.instants import first_microsecond, gaps, last_microsecond, on_microsecond, split, tolerances
from pulse.core.time import LIMIT
from pulse.kernels import instants

refs = st.integers(-LIMIT, LIMIT)
offsets = st.floats(-1e9, 1e9) | st.integers(-(10**12), 10**12).map(lambda us: us / 1e6)


def one(*values):
    return [np.array([v]) for v in values]


@given(refs, offsets, refs, offsets)
def test_the_same_arithmetic_as_the_kernels(ref_a, a, ref_b, b):
    assert gaps(*one(ref_a, a, ref_b, b))[0] == instants.gap(ref_a, a, ref_b, b)
    assert tolerances(*one(ref_a, a, ref_b, b))[0] == instants.tolerance(ref_a, a, ref_b, b)


@given(refs, offsets)
def test_a_split_instant_is_the_same_instant(ref, offset):
    (whole,), (rest,) = split(*one(ref, offset))
    exact = Fraction(ref) + Fraction(offset) * 10**6
    assert (
        abs(Fraction(int(whole)) + Fraction(float(rest)) * 10**6 - exact)
        <= Fraction(2, 10**16) * abs(Fraction(offset)) * 10**6
    )
    assert abs(rest) <= 5.0001e-7 + 1e-15 * abs(offset)


@given(refs, st.integers(-(10**13), 10**13))
def test_whole_microseconds_are_found_whatever_rounding_did(ref, us):
    ref, offset = one(ref // 4, us / 1e6)
    assert first_microsecond(ref, offset)[0] == ref[0] + us
    assert on_microsecond(ref, offset)[0]


def test_between_microseconds():
    ref, offset = np.zeros(3, dtype=np.int64), np.array([0.3e-6, -0.3e-6, 0.7e-6])
    assert first_microsecond(ref, offset).tolist() == [1, 0, 1]
    assert not on_microsecond(ref, offset).any()


def test_the_last_microsecond_is_not_after_an_instant_but_for_the_tolerance() -> None:
    ref, offset = np.array([5, 5, 5, 5]), np.array([0.0, 0.1, 2.5e-7, -2.5e-7])
    assert last_microsecond(ref, offset).tolist() == [5, 100_005, 5, 4]
    assert last_microsecond(np.array([0]), np.array([1.0 - 1e-10])).tolist() == [1_000_000]

"""Bands: whole ranges on one side of a level and of the bounds about it, against exact values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.polynomial.sign_bands import ABOVE, BELOW, MIXED, OVER, UNDER, bands_about, bands_between

COEFFICIENTS = st.one_of(
    st.integers(-5, 5).map(float),
    st.floats(-1e3, 1e3),
    st.floats(-1e12, 1e12),
    st.sampled_from([0.0, 1e-12, 1e300]),
)
ERRORS = st.one_of(st.just(0.0), st.integers(0, 3).map(float), st.floats(0.0, 1e3))


def exact(c: list[float], t: Fraction) -> Fraction:
    value = Fraction(0)
    for one in reversed(c):
        value = value * t + Fraction(one)
    return value


def lies_in(band: int, value: Fraction, e: float) -> bool:
    bound = Fraction(e)
    return {
        BELOW: value < -bound,
        UNDER: -bound < value < 0,
        OVER: 0 < value < bound,
        ABOVE: value > bound,
    }[band]


@given(
    st.lists(COEFFICIENTS, min_size=1, max_size=4),
    st.floats(-10, 10),
    st.floats(0, 20),
    ERRORS,
    st.integers(-5, 5).map(float) | st.floats(-1e6, 1e6),
)
def test_a_band_holds_all_values(c: list[float], lo: float, length: float, e: float, level: float) -> None:
    hi = lo + length
    band = int(bands_about(np.array([c]), np.array([lo]), np.array([hi]), np.array([e]), level)[0])
    if band != MIXED:
        for j in range(17):
            t = Fraction(lo) + (Fraction(hi) - Fraction(lo)) * j / 16
            assert lies_in(band, exact(c, t) - Fraction(level), e)


@given(
    st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=3),
    st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=3),
    st.integers(-3, 3).map(float),
    st.integers(0, 4).map(float),
    st.integers(0, 30).map(float),
)
def test_differences_are_as_their_values(
    a: list[float], b: list[float], lo: float, length: float, e: float
) -> None:
    band = int(
        bands_between(np.array([a]), np.array([b]), np.array([lo]), np.array([lo + length]), np.array([e]))[0]
    )
    instants = [Fraction(lo) + Fraction(length) * j / 64 for j in range(65)]
    values = [exact(a, t) - exact(b, t) for t in instants]
    holds = [all(lies_in(one, value, e) for value in values) for one in (BELOW, UNDER, OVER, ABOVE)]
    if band != MIXED:
        assert holds[band]
    elif len(a) <= 2 and len(b) <= 2:
        # The ends of a line tell all there is, and numbers as small are far from rounding.
        assert not any(holds)


@pytest.mark.parametrize(
    ("c", "hi", "e"),
    [
        ([np.nan, 0.0], 1.0, 0.0),
        ([np.inf, 0.0], 1.0, 0.0),
        ([5.0, 0.0], 1.0, np.inf),
        ([5.0, 0.0], 1.0, np.nan),
        ([5.0, 0.0], -1.0, 0.0),
        ([5.0, 0.0], np.inf, 0.0),
        ([5.0, 0.0, np.nan], 1.0, 0.0),
        ([0.0, 0.0], 1.0, 0.0),
        ([0.0, 0.0], 1.0, 1.0),
        ([1.0, 0.0], 1.0, 1.0),
        ([1e-17, 0.0, 1.0], 1.0, 0.0),
    ],
)
def test_what_is_not_clear_is_to_be_solved(c: list[float], hi: float, e: float) -> None:
    assert bands_about(np.array([c]), np.zeros(1), np.array([hi]), np.array([e]), 0.0).tolist() == [MIXED]


def test_a_point_has_the_band_of_its_value() -> None:
    c = np.array([[5.0, 1.0], [5.0, -1.0], [5.0, -4.0], [5.0, -9.0]])
    assert bands_about(c, 1.0, 1.0, 3.0, 0.0).tolist() == [ABOVE, ABOVE, OVER, BELOW]


def test_no_rows() -> None:
    assert len(bands_about(np.empty((0, 2)), np.empty(0), np.empty(0), np.empty(0), 1.0)) == 0

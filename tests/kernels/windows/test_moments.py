"""Moments of windows against exact integrals, at any level of the values, with parts, whole pieces and holes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.windows.ends_on_grid import window_ends_every
from pulse.kernels.windows.moments import Column, window_moments
from tests import naive

START = 1_700_000_000_000_000


@st.composite
def tables(draw: Any) -> tuple[Any, ...]:
    """Pieces of two functions at some level, with a hole at times, and the size and advance of windows."""
    k, level = draw(st.integers(1, 4)), draw(st.sampled_from([0.0, 100.0, -1.7e9, 1e-150]))
    scale = draw(st.sampled_from([1e-2, 1.0, 1e-155]))
    number = st.sampled_from([0.0, 0.0, 1.0, -1.0, 0.5, 3.0, -0.37])
    at, ref, hi, x, y = START, [], [], [], []
    for _ in range(draw(st.integers(1, 9))):
        length = draw(st.sampled_from([1, 250_000, 1_000_000, 1_234_567]))
        ref.append(at)
        hi.append(length / 1e6)
        for rows in (x, y):
            c = [scale * draw(number) for _ in range(k)]
            rows.append([level + c[0], *c[1:]])
        at += length + draw(st.sampled_from([0, 0, 0, 0, 500_000]))
    size = draw(st.sampled_from([250_000, 1_000_000, 1_700_000]))
    return np.array(ref), np.zeros(len(ref)), np.array(hi), np.array(x), np.array(y), size


def found_in(table: tuple[Any, ...], advance: int, err: float = 0.0) -> tuple[Any, ...]:
    ref, lo, hi, x, y, size = table
    n = len(ref)
    ends = window_ends_every(
        (ref, lo, hi, x), [0, n], err=np.zeros(n), size_us=size, advance_us=advance, closing=True
    )
    times = np.repeat(ends.first - advance * ends.offsets[:-1], np.diff(ends.offsets)) + advance * np.arange(
        len(ends.values)
    )
    e = np.full(n, err)
    columns = [Column(c, e, e * e * hi, np.zeros(n), np.full(n, np.inf), e * e * hi, e) for c in (x, y)]
    places = times, np.zeros(len(times)), ends.tail, ends.head
    return times, *window_moments(ref, lo, hi, *columns, places, size_us=size)


@given(tables(), st.sampled_from([100_000, 250_000, 333_333]))
def test_moments_are_those_of_exact_integrals(table: tuple[Any, ...], advance: int) -> None:
    ref, _, hi, x, y, size = table
    times, mx, my, covariance, lost = found_in(table, advance)
    pieces = [
        [
            (Fraction(int(ref[i])), Fraction(int(ref[i])) + round(hi[i] * 1e6), int(ref[i]), c[i])
            for i in range(len(ref))
        ]
        for c in (x, y)
    ]
    for i, t in enumerate(times.tolist()):
        means, both = naive.window_moments(pieces, Fraction(t - size), Fraction(t))
        for number, one in enumerate((mx, my)):
            mean = Fraction(one.mean[i]) + Fraction(one.mean_low[i])
            assert abs(mean - means[number]) <= Fraction(one.mean_rounding[i])
            low = max(Fraction(one.deviation[i]) - Fraction(one.rounding[i]), Fraction(0))
            assert (
                low**2
                <= both[number][number]
                <= (Fraction(one.deviation[i]) + Fraction(one.rounding[i])) ** 2
            )
        assert abs(Fraction(covariance[i]) - both[0][1]) <= Fraction(lost[i]) + Fraction(2) ** -900


@given(tables(), st.sampled_from([100_000, 333_333]))
def test_energies_are_those_of_the_errors(table: tuple[Any, ...], advance: int) -> None:
    _, mx, my, _, _ = found_in(table, advance, err=0.5)
    for one in (mx, my):
        assert np.allclose(one.energy, 0.25 * table[-1] / 1e6, rtol=1e-9)
        assert (one.between <= one.energy).all()


def test_a_flat_window_has_no_deviation_and_no_rounding() -> None:
    n = 50
    ref, level = START + 1_000_000 * np.arange(n), np.full((n, 1), 1e9 + 0.1)
    _, mx, _, covariance, lost = found_in((ref, np.zeros(n), np.ones(n), level, level, 7_500_000), 500_000)
    assert len(covariance) > 50
    assert not mx.deviation.any()
    assert not mx.rounding.any()
    assert not covariance.any()
    assert not lost.any()


def test_the_energy_of_a_whole_piece_may_be_smaller_than_that_of_its_bound() -> None:
    ref, lo, hi, c = np.array([START]), np.zeros(1), np.full(1, 10.0), np.zeros((1, 1))
    two, three = np.full(1, 2.0), np.full(1, 3.0)
    column = Column(c, two, three, np.zeros(1), np.zeros(1), three, two)
    for size, want in ((500_000, 2.0), (2_000_000, 3.0)):  # err² 4: half a second of it is 2
        places = np.array([START + 5_000_000]), np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64)
        mx, *_ = window_moments(ref, lo, hi, column, None, places, size_us=size)
        assert mx.energy.round(9).tolist() == [want]


@pytest.mark.parametrize(
    ("size", "rests", "text"),
    [
        (0, 1, "a positive number of microseconds, got 0"),
        (5, 2, "as many rests, tails and heads as closing times"),
    ],
)
def test_wrong_input_is_refused(size: int, rests: int, text: str) -> None:
    zeros = np.zeros(1)
    column = Column(np.zeros((1, 1)), *[zeros] * 6)
    places = np.array([5]), np.zeros(rests), np.zeros(1, np.int64), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match=text):
        window_moments(np.zeros(1, np.int64), zeros, np.ones(1), column, None, places, size_us=size)

"""The exponential memory of piecewise polynomials against the same recurrence in mpmath, with many digits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.pieces.relaxation import Relaxed, first_counted
from pulse.kernels.pieces.relaxation import relax as relax_since


def relax(runs: Any, lo: Any, hi: Any, c: Any, err: Any, tau: float) -> Relaxed:
    """Each run from its first piece on."""
    none = np.zeros(len(lo))
    since = np.repeat(runs[:-1], np.diff(runs))
    return relax_since(runs, since, lo, hi, c, (err, none, none), none > 0.0, tau)


def naive(
    runs: list[int], lo: list[float], hi: list[float], c: list[list[float]], tau: float
) -> list[mpmath.mpf]:
    """The value at each piece's start: the integral of x exp((s - t) / tau) / tau, by the formula for powers, piece by piece."""
    found = []
    for begin, stop in pairwise(runs):
        value = None
        for i in range(begin, stop):
            x = [mpmath.mpf(one) for one in c[i]]

            def particular(t: mpmath.mpf, x: list[mpmath.mpf] = x) -> mpmath.mpf:
                total, derived, sign = mpmath.mpf(0), list(x), mpmath.mpf(1)
                while derived:
                    total += sign * sum(one * t**j for j, one in enumerate(derived))
                    derived = [j * one for j, one in enumerate(derived)][1:]
                    sign *= -mpmath.mpf(tau)
                return total

            start, end = mpmath.mpf(lo[i]), mpmath.mpf(hi[i])
            if value is None:
                value = sum(one * start**j for j, one in enumerate(x))
            found.append(value)
            fade = mpmath.exp(-(end - start) / mpmath.mpf(tau))
            value = particular(end) + (value - particular(start)) * fade
    return found


pieces = st.tuples(
    st.floats(-100, 100),
    st.floats(1e-6, 1e4),
    st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3),
    st.floats(0, 10),
)


@given(st.lists(pieces, min_size=1, max_size=8), st.floats(1e-6, 1e6), st.integers(0, 8))
def test_values_and_bounds(rows: list[tuple[float, float, list[float], float]], tau: float, cut: int) -> None:
    runs = sorted({0, min(cut, len(rows)), len(rows)})
    lo = [a for a, _, _, _ in rows]
    hi = [a + length for a, length, _, _ in rows]
    c, err = [one for *_, one, _ in rows], [one for *_, one in rows]
    with mpmath.workdps(60):
        truth = naive(runs, lo, hi, c, tau)
        made = relax(np.array(runs), np.array(lo), np.array(hi), np.array(c), np.array(err), tau)
        for i, value in enumerate(truth):
            assert abs(made.value[i] - value) <= made.rounding[i]
            particular = sum(
                mpmath.mpf(one) * mpmath.mpf(lo[i]) ** j for j, one in enumerate(made.particular[i])
            )
            assert abs(made.transient[i] - (value - particular)) <= made.rounding[i]
    for begin, stop in pairwise(runs):
        highest = np.maximum.accumulate(np.array(err[begin:stop]))
        before = np.concatenate((highest[:1], highest[:-1]))
        assert (made.error[begin:stop] <= before * (1 + 1e-12) + 1e-300).all()
        e = err[begin]
        for i in range(begin, stop):
            assert made.error[i] >= e * (1 - 1e-12)
            by = -(hi[i] - lo[i]) / tau
            e = e * np.exp(by) - err[i] * np.expm1(by)


def test_degenerate_input() -> None:
    none = relax(np.array([0]), np.zeros(0), np.zeros(0), np.zeros((0, 2)), np.zeros(0), 1.0)
    assert none.value.shape == (0,)
    assert none.particular.shape == (0, 2)
    constant = relax(np.array([0, 3]), np.zeros(3), np.ones(3), np.full((3, 1), 7.0), np.zeros(3), 2.0)
    assert constant.value.tolist() == [7.0] * 3
    assert constant.transient.tolist() == [0.0] * 3
    for tau in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="tau: expected a number of seconds above 0"):
            relax(np.array([0]), np.zeros(0), np.zeros(0), np.zeros((0, 2)), np.zeros(0), tau)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=1, max_size=20),
    st.integers(-1000, 1000),
    st.integers(1, 40),
    st.integers(0, 4),
)
def test_the_first_piece_that_counts(
    rows: list[tuple[int, bool]], begin: int, block: int, blocks: int
) -> None:
    start = begin + np.cumsum([0, *(length for length, _ in rows[:-1])])
    end = start + np.array([length for length, _ in rows])
    runs = [0, *(i for i, (_, cut) in enumerate(rows) if cut and i), len(rows)]
    found = first_counted(np.array(runs), start, end, block, blocks)
    for a, b in pairwise(runs):
        for i in range(a, b):
            opened = (int(start[i]) // block - blocks) * block
            assert found[i] == next(j for j in range(a, i + 1) if j == i or end[j] > opened)


@given(st.lists(pieces, min_size=3, max_size=12), st.floats(1e-3, 1e3), st.integers(1, 2))
def test_results_depend_on_the_pieces_that_count_alone(
    rows: list[tuple[float, float, list[float], float]], tau: float, left_out: int
) -> None:
    lo = np.array([a for a, _, _, _ in rows])
    hi = np.array([a + length for a, length, _, _ in rows])
    c, err = np.array([one for *_, one, _ in rows]), np.array([one for *_, one in rows])
    n = len(rows)
    since = np.maximum(np.arange(n) - 2, 0)
    fresh = np.arange(n) % 5 == 4
    marks = np.arange(n) % 3 * 1.0
    whole = relax_since(np.array([0, n]), since, lo, hi, c, (err, err, marks), fresh, tau)
    k = left_out
    limits = err[k:], err[k:], marks[k:]
    part = relax_since(
        np.array([0, n - k]), np.maximum(since[k:] - k, 0), lo[k:], hi[k:], c[k:], limits, fresh[k:], tau
    )
    for mine, theirs in zip(part, whole, strict=True):
        assert np.array_equal(mine[2:], theirs[k + 2 :], equal_nan=True)
    for i in range(n):
        used = range(max((j for j in range(since[i], i + 1) if fresh[j]), default=since[i]), i + 1)
        assert whole.drift[i] == max(err[j] for j in used)
        assert whole.least[i] == min(marks[j] for j in used)
        if fresh[i]:
            assert (whole.transient[i], whole.error[i], whole.kept[i]) == (0.0, err[i], err[i])


def test_blocks_are_checked() -> None:
    none = np.zeros(0, np.int64)
    for block, blocks in ((0, 1), (-5, 1), (5, -1)):
        with pytest.raises(ValueError, match="expected a block of at least 1 microsecond"):
            first_counted(np.array([0]), none, none, block, blocks)

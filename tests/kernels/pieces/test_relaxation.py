"""The exponential memory of piecewise polynomials against the same recurrence in mpmath, with many digits."""

from __future__ import annotations

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.pieces.relaxation import relax


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

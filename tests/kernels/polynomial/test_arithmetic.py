from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.polynomial import polynomial as P
from scipy.interpolate import PPoly

from pulse.kernels.polynomial import arithmetic

EPS = 2.220446049250313e-16

values = st.one_of(
    st.floats(-1e12, 1e12, allow_subnormal=False), st.floats(-1, 1), st.sampled_from([0.0, 1e-12, 1e12, 1e9])
)
times = st.one_of(st.floats(-100, 100), st.sampled_from([0.0, 1e9, -1e9, 1e-6, 31556952.0]))


@st.composite
def batches(draw, max_k=6):
    n, k = draw(st.integers(0, 4)), draw(st.integers(1, max_k))
    return draw(arrays(float, (n, k), elements=values))


def times_for(c):
    return arrays(float, (len(c),), elements=times)


def exactly(c, t):
    return sum((Fraction(x) * Fraction(t) ** j for j, x in enumerate(c)), Fraction(0))


def size(c, t):
    """What rounding errors at t are proportional to."""
    return sum((abs(Fraction(x)) * abs(Fraction(t)) ** j for j, x in enumerate(c)), Fraction(0))


def close(found, expected, scale, units):
    assert abs(Fraction(float(found)) - expected) <= units * Fraction(EPS) * scale + Fraction(1e-290)


@given(st.data(), batches())
def test_values(data, c):
    t = data.draw(times_for(c))
    found = arithmetic.evaluate(c, t)
    for i in range(len(c)):
        close(found[i], exactly(c[i], t[i]), size(c[i], t[i]), 2 * c.shape[1])
        assert arithmetic.magnitude(c, i, c.shape[1], t[i]) == pytest.approx(float(size(c[i], t[i])))


@given(st.data(), batches())
def test_shifts(data, c):
    d = data.draw(times_for(c))
    found = arithmetic.taylor_shift(c, d)
    k = c.shape[1]
    high, low = np.empty(k), np.empty(k)
    for i in range(len(c)):
        arithmetic.shift_row_exact(c, i, k, d[i], high, low)
        for j in range(k):
            terms = [Fraction(c[i, m]) * binomial(m, j) * Fraction(d[i]) ** (m - j) for m in range(j, k)]
            scale = sum(abs(x) for x in terms)
            close(found[i, j], sum(terms), scale, 2 * k)
            rest = abs(Fraction(high[j]) + Fraction(low[j]) - sum(terms))
            assert rest <= 64 * k * Fraction(EPS) ** 2 * scale + Fraction(1e-290)


def binomial(n, k):
    return P.polypow([1, 1], n)[k].astype(int).item()


@given(st.data(), batches(max_k=5), st.integers(-(2**52), 2**52))
def test_shifts_by_whole_microseconds_are_exact(data, c, microseconds):
    k = c.shape[1]
    d = Fraction(microseconds, 10**6)
    high = microseconds / 1e6
    low = float(d - Fraction(high))
    for i in range(len(c)):
        out, rest = c[i].copy(), np.zeros(k)
        arithmetic.shift_exact(out, rest, k, high, low)
        for j in range(k):
            terms = [Fraction(c[i, m]) * binomial(m, j) * d ** (m - j) for m in range(j, k)]
            error = abs(Fraction(out[j]) + Fraction(rest[j]) - sum(terms))
            assert error <= 64 * k * Fraction(EPS) ** 2 * sum(abs(x) for x in terms) + Fraction(1e-290)


@given(batches())
def test_derivatives(c):
    for row, found in zip(c, arithmetic.derivative(c), strict=True):
        np.testing.assert_array_equal(found, P.polyder(row) if len(row) > 1 else [0.0])
    assert arithmetic.derivative(c).shape == (len(c), max(c.shape[1] - 1, 1))


@given(st.data(), batches())
def test_integrals(data, c):
    a, b = data.draw(times_for(c)), data.draw(times_for(c))
    for lo, hi in ((a, b), (a, a), (a, a + 1e-6)):
        found = arithmetic.integrate(c, lo, hi)
        for i in range(len(c)):
            x, y = Fraction(lo[i]), Fraction(hi[i])
            expected = sum(
                (Fraction(v) * (y ** (j + 1) - x ** (j + 1)) / (j + 1) for j, v in enumerate(c[i])),
                Fraction(0),
            )
            far = max(abs(lo[i]), abs(hi[i]))
            # Not the magnitude of the antiderivative: a short range far away keeps its digits.
            close(found[i], expected, size(c[i], far) * abs(y - x), 4 * c.shape[1])


@given(st.data(), batches())
def test_a_mean_times_its_length_is_the_integral(data, c):
    a, b = data.draw(times_for(c)), data.draw(times_for(c))
    for i in range(len(c)):
        mean = arithmetic.mean_row(c, i, c.shape[1], a[i], b[i])
        assert mean * (b[i] - a[i]) == arithmetic.integrate(c, a, b)[i]
        far = max(abs(a[i]), abs(b[i]))
        close(
            arithmetic.mean_row(c, i, c.shape[1], a[i], a[i]),
            exactly(c[i], a[i]),
            size(c[i], far),
            4 * c.shape[1],
        )


@given(st.data(), st.integers(0, 3), st.integers(1, 4), st.integers(1, 4), values, values)
def test_arithmetic(data, n, k, m, alpha, beta):
    a = data.draw(arrays(float, (n, k), elements=values))
    b = data.draw(arrays(float, (n, m), elements=values))
    total, difference = arithmetic.add(a, b), arithmetic.subtract(a, b)
    product, mixture = arithmetic.multiply(a, b), arithmetic.combine(a, b, alpha, beta)
    for i in range(n):
        np.testing.assert_array_equal(total[i], wide(P.polyadd(a[i], b[i]), max(k, m)))
        np.testing.assert_array_equal(difference[i], wide(P.polysub(a[i], b[i]), max(k, m)))
        for j in range(max(k, m)):
            x = Fraction(alpha) * Fraction(a[i, j]) if j < k else Fraction(0)
            y = Fraction(beta) * Fraction(b[i, j]) if j < m else Fraction(0)
            close(mixture[i, j], x + y, abs(x) + abs(y), 4)
        for j in range(k + m - 1):
            terms = [Fraction(a[i, r]) * Fraction(b[i, j - r]) for r in range(k) if 0 <= j - r < m]
            close(product[i, j], sum(terms), sum(abs(x) for x in terms), 2 * min(k, m))


def wide(c, k):
    return np.concatenate([c, np.zeros(k - len(c))])


def test_scipy_agrees():
    rng = np.random.default_rng(3)
    breaks = np.cumsum(rng.uniform(0.1, 2.0, 101))
    c = rng.normal(size=(100, 4))
    peer = PPoly(c[:, ::-1].T, breaks)
    t = rng.uniform(breaks[:-1], breaks[1:])
    local = t - breaks[:-1]
    np.testing.assert_allclose(arithmetic.evaluate(c, local), peer(t), rtol=1e-12, atol=1e-12)
    slopes = arithmetic.evaluate(arithmetic.derivative(c), local)
    np.testing.assert_allclose(slopes, peer.derivative()(t), rtol=1e-12, atol=1e-12)
    total = arithmetic.integrate(c, 0.0, np.diff(breaks)).sum()
    assert total == pytest.approx(peer.integrate(breaks[0], breaks[-1]), rel=1e-12)


def test_what_is_not_finite_stays_in_its_row():
    c = np.array([[1.0, np.nan], [1.0, 2.0], [np.inf, 0.0]])
    for found in (arithmetic.evaluate(c, 1.0), arithmetic.integrate(c, 0.0, 1.0)):
        assert np.isfinite(found).tolist() == [False, True, False]
    assert np.isfinite(arithmetic.taylor_shift(c, 1.0)).all(axis=1).tolist() == [False, True, False]


def test_read_only_and_foreign_arrays_are_taken():
    c = np.arange(12.0).reshape(2, 6)
    c.setflags(write=False)
    np.testing.assert_array_equal(arithmetic.evaluate(c, 1.0), c.sum(axis=1))
    np.testing.assert_array_equal(arithmetic.evaluate(c[:, ::2], 1.0), c[:, ::2].sum(axis=1))
    np.testing.assert_array_equal(arithmetic.evaluate(c.astype(np.float32), 1), c.sum(axis=1))
    np.testing.assert_array_equal(arithmetic.evaluate([[1, 2]], [2]), [5.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: arithmetic.evaluate(np.zeros(3), 1.0), r"shape \(n, k\)"),
        (lambda: arithmetic.evaluate(np.zeros((3, 0)), 1.0), r"k >= 1"),
        (lambda: arithmetic.evaluate(np.zeros((3, 1)), np.zeros(2)), "one per polynomial"),
        (lambda: arithmetic.add(np.zeros((3, 1)), np.zeros((2, 1))), "one length, got 3 and 2"),
        (lambda: arithmetic.multiply(np.zeros((1, 1)), np.zeros((2, 1))), "one length"),
    ],
)
def test_wrong_shapes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()

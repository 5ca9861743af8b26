"""Kernels against numpy and scipy: roots, values, integrals, windows, alignment. Every run's result is compared.

Run with ``pytest benchmarks/bench_kernels.py --import-mode=importlib``. Kernels are compiled before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.interpolate import PPoly

from pulse.kernels import _jit, align, integral, lift, polynomial, roots
from pulse.kernels.window_average import window_averages_every

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND
MANY = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile time is not what is measured here."""
    _jit.warm()


def timed(benchmark: Any, group: str, contender: str, work: int, function: Callable[[], Any]) -> Any:
    benchmark.group = group
    benchmark.extra_info.update(contender=contender, work=work)
    return benchmark.pedantic(function, rounds=5, iterations=1, warmup_rounds=1)


# --- roots ---


def polynomials_with_roots(n: int, degree: int) -> Any:
    """Batches on [0, 1], with between none and ``degree`` roots there."""
    rng = np.random.default_rng(degree)
    c = np.ones((n, 1))
    for _ in range(degree):
        c = polynomial.multiply(c, np.column_stack([-rng.uniform(-1, 2, n), np.ones(n)]))
    return c * rng.uniform(0.1, 10, (n, 1))


@pytest.mark.parametrize("degree", [2, 3, 4])
@pytest.mark.parametrize("contender", ["pulse", "scipy PPoly", "numpy.roots"])
def test_roots(benchmark: Any, degree: int, contender: str) -> None:
    n = {"pulse": 200_000, "scipy PPoly": 50_000, "numpy.roots": 2_000}[contender]
    c = polynomials_with_roots(200_000, degree)[:n]
    expected = roots.real_roots(c, 0.0, 1.0)
    if contender == "pulse":
        found = timed(
            benchmark, f"roots of degree {degree}", contender, n, lambda: roots.real_roots(c, 0.0, 1.0)
        )
        assert (
            np.abs(polynomial.evaluate(np.repeat(c, np.diff(found.offsets), axis=0), found.roots)).max()
            < 1e-12
        )
    elif contender == "scipy PPoly":
        peer = PPoly(c[:, ::-1].T, np.arange(n + 1.0))
        found = timed(
            benchmark,
            f"roots of degree {degree}",
            contender,
            n,
            lambda: peer.roots(discontinuity=False, extrapolate=False),
        )
        piece = np.repeat(np.arange(n), np.diff(expected.offsets))
        assert len(found) == len(expected.roots)
        np.testing.assert_allclose(found, expected.roots + piece, atol=1e-6)
    else:
        found = timed(
            benchmark, f"roots of degree {degree}", contender, n, lambda: [np.roots(row[::-1]) for row in c]
        )
        real = [np.sort(r.real[(abs(r.imag) < 1e-9) & (r.real >= 0) & (r.real <= 1)]) for r in found]
        np.testing.assert_allclose(np.concatenate(real), expected.roots, atol=1e-6)


# --- values ---


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("contender", ["pulse", "np.sum of the inputs", "numpy Horner"])
def test_evaluation(benchmark: Any, k: int, contender: str) -> None:
    rng = np.random.default_rng(k)
    c, t, out = rng.normal(size=(MANY, k)), rng.uniform(size=MANY), np.empty(MANY)
    expected = sum(c[:, j] * t**j for j in range(k))
    group = f"values, {k} coefficients"
    if contender == "pulse":
        timed(benchmark, group, contender, MANY, lambda: polynomial._evaluate(c, t, out))
        np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-12)
    elif contender == "numpy Horner":

        def horner() -> Any:
            value = c[:, -1]
            for j in range(k - 2, -1, -1):
                value = value * t + c[:, j]
            return value

        found = timed(benchmark, group, contender, MANY, horner)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    else:
        total = timed(benchmark, group, contender, MANY, lambda: np.sum(c) + np.sum(t))
        assert total == pytest.approx(c.sum() + t.sum())


# --- integrals ---


@pytest.mark.parametrize("contender", ["pulse", "scipy PPoly", "numpy"])
def test_integrals(benchmark: Any, contender: str) -> None:
    rng = np.random.default_rng(1)
    n = {"pulse": MANY, "scipy PPoly": 10_000, "numpy": MANY}[contender]
    c, length = rng.normal(size=(n, 3)), rng.uniform(0.1, 1, n)
    expected = sum(c[:, j] * length ** (j + 1) / (j + 1) for j in range(3))
    if contender == "pulse":
        found = timed(
            benchmark, "integrals of pieces", contender, n, lambda: polynomial.integrate(c, 0.0, length)
        )
    elif contender == "numpy":
        powers = np.arange(3) + 1
        found = timed(
            benchmark,
            "integrals of pieces",
            contender,
            n,
            lambda: (c / powers * length[:, None] ** powers).sum(axis=1),
        )
    else:
        breaks = np.concatenate([[0.0], np.cumsum(length)])
        peer = PPoly(c[:, ::-1].T, breaks)
        found = timed(
            benchmark,
            "integrals of pieces",
            contender,
            n,
            lambda: np.array([peer.integrate(a, b) for a, b in pairwise(breaks)]),
        )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def regular_pieces(n: int, k: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(k)
    return NOON + SECOND * np.arange(n), np.zeros(n), np.ones(n), rng.normal(size=(n, k)), np.array([0, n])


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("advance", [100_000, 2_000_000])
@pytest.mark.parametrize("contender", ["pulse", "pulse, with bounds", "scipy PPoly"])
def test_sampled_windows(benchmark: Any, k: int, advance: int, contender: str) -> None:
    n = 500_000
    ref, lo, hi, c, offsets = regular_pieces(n, k)
    exact = np.zeros(n), None, None
    closing = np.arange(NOON + 10 * SECOND, NOON + n * SECOND + 1, advance)
    expected, status = integral.window_integral_at(
        ref, lo, hi, c, offsets, 10 * SECOND, closing, np.array([0, len(closing)])
    )
    group = f"windows every {advance / SECOND:g} s, k = {k}"
    m = len(closing)
    if contender == "pulse, with bounds":
        found = timed(
            benchmark, group, contender, m,
            lambda: window_averages_every(
                (ref, lo, hi, c), offsets, exact, sizes_us=[10 * SECOND], advance_us=advance, total=True
            )[0].values,
        )  # fmt: skip
    elif contender == "pulse":
        found = timed(
            benchmark, group, contender, m,
            lambda: integral.window_integral_at(ref, lo, hi, c, offsets, 10 * SECOND, closing, np.array([0, m]))[0],
        )  # fmt: skip
    else:
        t = (closing - NOON) / SECOND  # scipy cannot hold the epoch: local time

        def with_scipy() -> Any:
            primitive = PPoly(c[:, ::-1].T, np.arange(n + 1.0)).antiderivative()
            return primitive(t) - primitive(t - 10)

        found = timed(benchmark, group, contender, m, with_scipy)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert not status.any()


# --- alignment ---


@pytest.mark.parametrize("contender", ["pulse", "scipy PPoly"])
def test_difference_of_two_functions(benchmark: Any, contender: str) -> None:
    """Two functions on their merged breakpoints, subtracted."""
    n = 100_000
    rng = np.random.default_rng(5)
    breaks = [np.concatenate([[0], np.cumsum(rng.integers(1, 2 * SECOND, n))]) for _ in range(2)]
    end = min(b[-1] for b in breaks)
    breaks = [np.append(b[b < end], end) for b in breaks]
    c = [rng.normal(size=(len(b) - 1, 3)) for b in breaks]
    merged = np.union1d(*breaks)
    work = len(merged) - 1

    def ours() -> Any:
        ref = np.concatenate([NOON + b[:-1] for b in breaks])
        hi = np.concatenate([np.diff(b) / SECOND for b in breaks])
        coefficients = np.concatenate(c)
        cells = align.align(ref, np.zeros(len(hi)), hi, np.array([[0, len(c[0]), len(hi)]]))
        sides = [align.coefficients_at(cells, f, ref, coefficients) for f in range(2)]
        return polynomial.subtract(*sides)

    def scipys() -> Any:
        sides = []
        for b, x in zip(breaks, c, strict=True):
            peer = PPoly(x[:, ::-1].T, b / SECOND)
            middle = merged[:-1] / SECOND
            derivatives = [peer(middle, nu) / f for nu, f in ((0, 1), (1, 1), (2, 2))]
            sides.append(np.stack(derivatives, axis=1))
        return sides[0] - sides[1]

    run = ours if contender == "pulse" else scipys
    found = timed(benchmark, "align and subtract", contender, work, run)
    assert len(found) == work
    np.testing.assert_allclose(found, scipys(), atol=1e-6)


# --- lifts ---


@pytest.mark.parametrize("contender", ["pulse", "numpy at 16 samples"])
def test_distances(benchmark: Any, contender: str) -> None:
    """Square roots of quadratics to 1e-3, against sampling each piece sixteen times without any certificate."""
    n = 50_000
    rng = np.random.default_rng(6)
    x, y, dx, dy = rng.normal(size=(4, n))
    c = np.stack([x * x + y * y + 0.1, 2 * (x * dx + y * dy), dx * dx + dy * dy], axis=1)
    ref, lo, hi = NOON + SECOND * np.arange(n), np.zeros(n), np.ones(n)
    if contender == "pulse":
        made = timed(benchmark, "distances", contender, n, lambda: lift.lift("sqrt", ref, lo, hi, c, 1e-3))
        middle = (made.lo + made.hi) / 2
        local = (made.ref - ref[made.source]) / SECOND + middle
        truth = np.sqrt(polynomial.evaluate(c[made.source], local))
        assert (np.abs(polynomial.evaluate(made.c, middle) - truth) <= made.err + 1e-12).all()
        assert (made.err <= 1e-3).all()
    else:
        t = np.linspace(0, 1, 16)
        found = timed(benchmark, "distances", contender, n, lambda: np.sqrt(polynomial.evaluate_grid(c, t)))
        np.testing.assert_allclose(found[:, 0], np.sqrt(c[:, 0]))

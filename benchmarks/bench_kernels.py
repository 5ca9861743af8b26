"""Kernels against numpy and scipy: roots, values, integrals, windows, alignment, each held against what is known otherwise."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.polynomial.polynomial import polyval
from scipy.interpolate import PPoly

from pulse.benchmarks.checks.comparisons import numbers, sets_of_numbers
from pulse.benchmarks.recording import FLOOR, OURS, SEED, Accuracy, exact, record, sizes
from pulse.kernels.pieces import align
from pulse.kernels.polynomial import arithmetic, lift, roots
from pulse.kernels.windows.average_on_grid import window_averages_every

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND
MANY = sizes(300_000, 1_000_000)
READ = f"{FLOOR}np.sum of the inputs"


# --- roots ---


def polynomials_with_roots(n: int, degree: int) -> tuple[Any, tuple[Any, Any]]:
    """Batches on [0, 1], with between none and ``degree`` roots there; and those roots, with offsets."""
    rng = np.random.default_rng(SEED + degree)
    at = np.sort(rng.uniform(-1, 2, (n, degree)), axis=1)
    c = np.ones((n, 1))
    for j in range(degree):
        c = arithmetic.multiply(c, np.column_stack([-at[:, j], np.ones(n)]))
    inside = (at >= 0) & (at <= 1)
    return c * rng.uniform(0.1, 10, (n, 1)), (at[inside], _offsets(inside.sum(axis=1)))


def _offsets(counts: Any) -> Any:
    return np.concatenate([[0], np.cumsum(counts)])


@pytest.mark.parametrize("degree", [2, 3, 4])
@pytest.mark.parametrize("contender", [OURS, "scipy PPoly", "numpy.roots"])
def test_roots(benchmark: Any, degree: int, contender: str) -> None:
    n = {OURS: sizes(50_000, 200_000), "scipy PPoly": sizes(20_000, 50_000), "numpy.roots": 2_000}[contender]
    c, truth = polynomials_with_roots(n, degree)
    peer = PPoly(c[:, ::-1].T, np.arange(n + 1.0))
    run: Any = {
        OURS: lambda: roots.real_roots(c, 0.0, 1.0),
        "scipy PPoly": lambda: peer.roots(discontinuity=False, extrapolate=False),
        "numpy.roots": lambda: [np.roots(row[::-1]) for row in c],
    }[contender]

    def judge(found: Any) -> Accuracy:
        if contender == OURS:
            sets = found.roots, found.offsets
        elif contender == "scipy PPoly":
            piece = np.minimum(np.floor(found), n - 1).astype(np.int64)
            sets = found - piece, _offsets(np.bincount(piece, minlength=n))
        else:
            real = [np.sort(r.real[(abs(r.imag) < 1e-9) & (r.real >= 0) & (r.real <= 1)]) for r in found]
            sets = np.concatenate(real), _offsets([len(r) for r in real])
        # Roots that nearly meet are known to half the digits.
        judged = sets_of_numbers(sets, truth, rounding=1e-6)
        assert min(judged.precision, judged.recall) > 0.999
        return judged

    record(
        benchmark,
        run,
        group=f"roots of degree {degree}",
        contender=contender,
        work=n,
        unit="polynomials",
        accuracy=judge,
    )


# --- values ---


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("contender", [OURS, READ, "numpy Horner"])
def test_evaluation(benchmark: Any, k: int, contender: str) -> None:
    rng = np.random.default_rng(SEED + k)
    c, t = rng.normal(size=(MANY, k)), rng.uniform(size=MANY)
    expected = sum(c[:, j] * t**j for j in range(k))

    def ours() -> Any:
        return arithmetic.evaluate(c, t)

    def horner() -> Any:
        value = c[:, -1]
        for j in range(k - 2, -1, -1):
            value = value * t + c[:, j]
        return value

    def judge(found: Any) -> Accuracy:
        if contender == READ:
            assert found == pytest.approx(sum(c.sum(axis=0)) + t.sum())
            return exact()
        return numbers(found, expected, rounding=1e-12)

    run: Any = {OURS: ours, "numpy Horner": horner, READ: lambda: np.sum(c) + np.sum(t)}[contender]
    record(
        benchmark,
        run,
        group=f"values, {k} coefficients",
        contender=contender,
        work=MANY,
        unit="values",
        accuracy=judge,
        rounds=9,
    )


# --- integrals ---


@pytest.mark.parametrize("contender", [OURS, "scipy PPoly", "numpy"])
def test_integrals(benchmark: Any, contender: str) -> None:
    rng = np.random.default_rng(SEED)
    n = 10_000 if contender == "scipy PPoly" else MANY
    c, length = rng.normal(size=(n, 3)), rng.uniform(0.1, 1, n)
    expected = sum(
        c[:, j].astype(np.longdouble) * length.astype(np.longdouble) ** (j + 1) / (j + 1) for j in range(3)
    )
    breaks, powers = np.concatenate([[0.0], np.cumsum(length)]), np.arange(3) + 1
    peer = PPoly(c[:, ::-1].T, breaks)
    run: Any = {
        OURS: lambda: arithmetic.integrate(c, 0.0, length),
        "numpy": lambda: (c / powers * length[:, None] ** powers).sum(axis=1),
        "scipy PPoly": lambda: np.array([peer.integrate(a, b) for a, b in pairwise(breaks)]),
    }[contender]
    record(
        benchmark,
        run,
        group="integrals of pieces",
        contender=contender,
        work=n,
        unit="pieces",
        accuracy=lambda found: numbers(
            found, expected, rounding=1e-8 if contender == "scipy PPoly" else 1e-12
        ),
    )


def regular_pieces(n: int, k: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(SEED + k)
    return NOON + SECOND * np.arange(n), np.zeros(n), np.ones(n), rng.normal(size=(n, k)), np.array([0, n])


def integrals_of_windows(c: Any, closing: Any) -> Any:
    """Over the ten seconds before each closing time (µs), of pieces of a second each, in extended precision."""
    powers = np.arange(c.shape[1]) + 1
    coefficients = (c / powers).astype(np.longdouble)
    upto = np.concatenate([[0], np.cumsum(coefficients.sum(axis=1))])

    def primitive(at: Any) -> Any:
        piece = np.minimum(at // SECOND, len(c) - 1)
        inside = (at - piece * SECOND).astype(np.longdouble) / SECOND
        return upto[piece] + (coefficients[piece] * inside[:, None] ** powers).sum(axis=1)

    return primitive(closing) - primitive(closing - 10 * SECOND)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("advance", [100_000, 2_000_000])
@pytest.mark.parametrize("contender", [OURS, "scipy PPoly"])
def test_sampled_windows(benchmark: Any, k: int, advance: int, contender: str) -> None:
    n = sizes(100_000, 500_000)
    ref, lo, hi, c, offsets = regular_pieces(n, k)
    certain = np.zeros(n), None, None
    closing = np.arange(NOON + 10 * SECOND, NOON + n * SECOND + 1, advance)
    expected = integrals_of_windows(c, closing - NOON)
    t = (closing - NOON) / SECOND  # scipy cannot hold the epoch: local time

    def ours() -> Any:
        return window_averages_every(
            (ref, lo, hi, c), offsets, certain, sizes_us=[10 * SECOND], advance_us=advance, total=True
        )[0].values

    def scipys() -> Any:
        primitive = PPoly(c[:, ::-1].T, np.arange(n + 1.0)).antiderivative()
        return primitive(t) - primitive(t - 10)

    record(
        benchmark,
        {OURS: ours, "scipy PPoly": scipys}[contender],
        group=f"windows every {advance / SECOND:g} s, k = {k}",
        contender=contender,
        work=len(closing),
        unit="windows",
        accuracy=lambda found: numbers(found, expected, rounding=1e-9),
    )


# --- alignment ---


@pytest.mark.parametrize("contender", [OURS, "scipy PPoly"])
def test_difference_of_two_functions(benchmark: Any, contender: str) -> None:
    """Two functions on their merged breakpoints, subtracted."""
    n = sizes(30_000, 100_000)
    rng = np.random.default_rng(SEED)
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
        return arithmetic.subtract(*sides)

    def scipys() -> Any:
        sides = []
        for b, x in zip(breaks, c, strict=True):
            peer = PPoly(x[:, ::-1].T, b / SECOND)
            middle = merged[:-1] / SECOND
            derivatives = [peer(middle, nu) / f for nu, f in ((0, 1), (1, 1), (2, 2))]
            sides.append(np.stack(derivatives, axis=1))
        return sides[0] - sides[1]

    def truth() -> Any:
        """Taylor's shift by hand, from whole microseconds."""
        sides = []
        for b, x in zip(breaks, c, strict=True):
            piece = np.searchsorted(b, merged[:-1], side="right") - 1
            h, (a0, a1, a2) = (merged[:-1] - b[piece]) / SECOND, x[piece].T
            sides.append(np.stack([a0 + h * (a1 + h * a2), a1 + 2 * h * a2, a2], axis=1))
        return sides[0] - sides[1]

    record(
        benchmark,
        ours if contender == OURS else scipys,
        group="align and subtract",
        contender=contender,
        work=work,
        unit="pieces",
        accuracy=lambda found: numbers(found, truth(), rounding=1e-6 if contender != OURS else 1e-12),
    )


# --- lifts ---


@pytest.mark.parametrize("contender", [OURS, "numpy at 16 samples"])
def test_distances(benchmark: Any, contender: str) -> None:
    """Square roots of quadratics to 1e-3, against sampling each piece sixteen times without any certificate."""
    n = sizes(20_000, 50_000)
    rng = np.random.default_rng(SEED)
    x, y, dx, dy = rng.normal(size=(4, n))
    c = np.stack([x * x + y * y + 0.1, 2 * (x * dx + y * dy), dx * dx + dy * dy], axis=1)
    ref, lo, hi = NOON + SECOND * np.arange(n), np.zeros(n), np.ones(n)
    t = np.linspace(0, 1, 16)

    def distance(source: Any, at: Any) -> Any:
        return np.sqrt((x[source] + dx[source] * at) ** 2 + (y[source] + dy[source] * at) ** 2 + 0.1)

    def judge(made: Any) -> Accuracy:
        """At eleven places of each piece that was made."""
        off = np.zeros(len(made.lo))
        for share in np.linspace(0, 1, 11):
            at = made.lo + share * (made.hi - made.lo)
            local = (made.ref - ref[made.source]) / SECOND + at
            off = np.maximum(off, np.abs(arithmetic.evaluate(made.c, at) - distance(made.source, local)))
        right = (off <= made.err + 1e-12) & (made.err <= 1e-3)
        covered = (made.hi - made.lo).sum() / n
        return Accuracy(
            float(right.mean()), min(float(covered), 1.0), float(made.err.max()), float(off.max()), 1e-12
        )

    row: dict[str, Any] = {"group": "distances", "contender": contender, "work": n, "unit": "pieces"}
    if contender == OURS:
        record(benchmark, lambda: lift.lift("sqrt", ref, lo, hi, c, 1e-3), accuracy=judge, **row)
        return
    everywhere, middles = np.arange(n)[:, None], (t[1:] + t[:-1]) / 2
    between = np.sqrt(polyval(t, c.T))
    off = np.abs((between[:, 1:] + between[:, :-1]) / 2 - distance(everywhere, middles))
    record(
        benchmark,
        lambda: np.sqrt(polyval(t, c.T)),
        accuracy=lambda found: numbers(found, distance(everywhere, t), rounding=1e-12),
        facts={"largest error halfway between samples, which it does not bound": off.max()},
        **row,
    )

"""The oracles themselves, against what is slower and more obvious: fractions, dense samples, adaptive quadrature."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.integrate import quad

from tests.truth import pairs, ranges, windows
from tests.truth.measure import assess_ranges, assess_tuples
from tests.truth.pieces import SECOND, Long, Track, tracks

START = 1_600_000_000 * SECOND


def ticks(seed: int, n: int = 60, *, attributes: tuple[str, ...] = ("x",), grain: int = 250_000) -> pa.Table:
    random = np.random.default_rng(seed)
    t = START + np.cumsum(random.integers(0, 9, n)) * grain
    columns = {a: random.integers(-40, 40, n) / 8 for a in attributes}
    return pa.table({"k": ["a"] * n, "t": pa.array(t, pa.timestamp("us")), **columns})


def slow_value(table: pa.Table, kind: str, max_gap: int | None, t: Fraction) -> Fraction | None:
    """By the definition: the neighbours of one instant."""
    at = table.column("t").cast(pa.int64()).to_pylist()
    x = [Fraction(v) for v in table.column("x").to_pylist()]
    before = [i for i, a in enumerate(at) if a <= t]
    after = [i for i, a in enumerate(at) if a > t]
    if not before or not after:
        return None
    i, j = before[-1], after[0]
    if max_gap is not None and at[j] - at[i] > max_gap:
        return None
    return x[i] if kind == "step" else x[i] + (x[j] - x[i]) * (t - at[i]) / (at[j] - at[i])


def slow_window(table: pa.Table, kind: str, max_gap: int | None, t: int, size: int) -> tuple[Any, ...] | None:
    """Sum, least and greatest over [t - size, t) by exact fractions between all tuples inside."""
    at = sorted({int(a) for a in table.column("t").cast(pa.int64()).to_pylist() if t - size < int(a) < t})
    cuts = [t - size, *at, t]
    total, values = Fraction(0), []
    for a, b in pairwise(cuts):
        third = Fraction(b - a, 3)
        one, two = (slow_value(table, kind, max_gap, a + third * k) for k in (1, 2))
        if one is None or two is None:
            return None
        first, last = 2 * one - two, 2 * two - one  # the line through both, at its ends
        total += (first + last) / 2 * (b - a)
        values += [first, last]
    return total / SECOND, min(values), max(values)


@pytest.mark.parametrize("kind", ["step", "linear"])
@pytest.mark.parametrize("max_gap", [None, 1_500_000])
@pytest.mark.parametrize("seed", range(3))
def test_windows_are_those_of_fractions(kind: str, max_gap: int | None, seed: int) -> None:
    table, size, advance = ticks(seed, 40), 4 * SECOND, SECOND
    track = tracks(table, {"x": kind}, key="k", max_gap=max_gap)["a"]
    t, total = windows.window_sums(track, "x", size, advance)
    wanted = {}
    for when in range(START // advance * advance, START + 90 * SECOND, advance):
        found = slow_window(table, kind, max_gap, when, size)
        if found is not None:
            wanted[when] = found
    assert t.tolist() == list(wanted)
    np.testing.assert_allclose(
        total.astype(float), [float(w[0]) for w in wanted.values()], rtol=1e-15, atol=1e-15
    )
    _, average = windows.window_averages(track, "x", size, advance)
    np.testing.assert_allclose(average.astype(float), [float(w[0] / 4) for w in wanted.values()], atol=1e-15)
    for i, function in ((1, "min"), (2, "max")):
        _, best = windows.window_extrema(track, "x", size, advance, function)
        np.testing.assert_allclose(best.astype(float), [float(w[i]) for w in wanted.values()], atol=1e-15)
    at, diff = windows.macd(track, "x", 2 * SECOND, size, advance)
    assert at.tolist() == list(wanted)
    short = [float(slow_window(table, kind, max_gap, w, 2 * SECOND)[0] / 2) for w in wanted]
    np.testing.assert_allclose(diff.astype(float), np.array(short) - average.astype(float), atol=1e-14)


@pytest.mark.parametrize("kind", ["step", "linear"])
@pytest.mark.parametrize("seed", range(4))
def test_windows_over_all_keys_are_those_of_fractions(kind: str, seed: int) -> None:
    tables = [ticks(seed), ticks(seed + 100, 30)]
    gap, size, advance = 1_500_000, 4 * SECOND, SECOND
    all_tracks = [tracks(one, {"x": kind}, key="k", max_gap=gap)["a"] for one in tables]
    t, total = windows.window_sums_of_all(all_tracks, "x", size, advance)
    _, least = windows.window_extrema_of_all(all_tracks, "x", size, advance, "min")
    seen = 0
    for when in range(START // advance * advance, START + 90 * SECOND, advance):
        grid = [when - size + Fraction(125_000) * k + Fraction(1, 3) for k in range(32)]
        at_each = [[v for one in tables if (v := slow_value(one, kind, gap, g)) is not None] for g in grid]
        if not all(at_each):
            assert when not in t
            continue
        (i,) = np.flatnonzero(t == when)
        seen += 1
        # Tuples lie on multiples of 250 ms: on each eighth of a second the sum is a line or constant.
        middle = [
            [v for one in tables if (v := slow_value(one, kind, gap, g + 62_500)) is not None] for g in grid
        ]
        assert abs(float(total[i]) - float(sum(map(sum, middle)) / 8)) < 1e-5
        assert float(least[i]) <= float(min(map(min, at_each))) + 1e-12
    assert seen == len(t)


@pytest.mark.parametrize("kind", ["step", "linear"])
@pytest.mark.parametrize("relation", ["<", "<=", ">", ">=", "=", "!="])
def test_filters_hold_where_dense_samples_do(kind: str, relation: str) -> None:
    table = ticks(3)
    track = tracks(table, {"x": kind}, key="k", max_gap=1_500_000)["a"]
    c = float(track.first["x"][4])
    begin, end = ranges.holding(track, "x", relation, c)
    t = np.arange(START, START + 130 * SECOND, 31_250) + 1
    value, there = track.at("x", t)
    wanted = there & ranges.HOLDS[relation](value, c)
    got = ((t[:, None] >= begin) & (t[:, None] < end)).any(axis=1)
    assert (wanted == got).all()
    slow = [slow_value(table, kind, 1_500_000, Fraction(int(one))) for one in t[:200]]
    assert [v is not None for v in slow] == there[:200].tolist()
    np.testing.assert_allclose(value[:200].astype(float), [float(v or 0) for v in slow], atol=1e-15)


def line_between(seed: int) -> tuple[Track, Track]:
    two = [ticks(seed + 50 * k, 40, attributes=("x", "y"), grain=1_000_000) for k in range(2)]
    a, b = (tracks(one, {"x": "linear", "y": "linear"}, key="k", max_gap=6 * SECOND)["a"] for one in two)
    return a, b


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_near_where_dense_samples_are(seed: int) -> None:
    a, b = line_between(seed)
    begin, end = pairs.within(a, b, 3.0)
    t = np.arange(START, START + 200 * SECOND, 62_500) + 1
    distance, there = pairs.distance_at(a, b, t)
    got = ((t[:, None] >= begin) & (t[:, None] < end)).any(axis=1)
    wanted = there & (distance < 3)
    assert (wanted == got).all()
    assert wanted.any()
    assert pairs.near_pairs([a, b], 3.0, 5 * SECOND) == [(0, 1)]


@pytest.mark.parametrize("seed", range(3))
def test_average_distances_are_those_of_quadrature(seed: int) -> None:
    a, b = line_between(seed)
    size = 4 * SECOND
    t, average = pairs.average_distances(a, b, size, SECOND)
    assert len(t) > 3
    some, fewer = pairs.average_distances(a, b, size, SECOND, near=2.0)
    assert 0 < len(some) < len(t)
    assert set(t[average < 2]) <= set(some)
    assert fewer.tolist() == average[np.isin(t, some)].tolist()
    cuts = np.unique(np.concatenate([a.begin, b.begin]))
    for when, got in zip(t, average, strict=True):
        inside = [when - size, *cuts[(cuts > when - size) & (cuts < when)], when]

        def f(s: float, since: int) -> float:
            return float(pairs.distance_at(a, b, np.array([Long(since) + Long(s)]))[0][0])

        total = sum(
            quad(f, 0, np.nextafter(j - i, 0), (int(i),), epsabs=0, epsrel=1e-11, limit=200)[0]
            for i, j in pairwise(inside)
        )
        assert float(got) == pytest.approx(total / size, rel=1e-9)


def test_the_integral_of_a_length_is_exact_near_and_far() -> None:
    import mpmath as mp

    random = np.random.default_rng(0)
    for scale in (1e-9, 1e-3, 0.5, 1.0, 1.5, 1e3, 1e9):
        start, move = random.normal(size=(2, 8)).astype(Long), random.normal(size=(2, 8)).astype(Long) * scale
        got = pairs.length_integral(start, start + move)
        for i in range(8):
            (px, py), (mx, my) = ([mp.mpf(float(v)) for v in one[:, i]] for one in (start, move))
            near = -(px * mx + py * my) / (mx * mx + my * my)
            cuts = [0, near, 1] if 0 < near < 1 else [0, 1]
            wanted = mp.quad(lambda s: mp.sqrt((px + s * mx) ** 2 + (py + s * my) ** 2), cuts)  # noqa: B023
            assert float(got[i]) == pytest.approx(float(wanted), rel=1e-9)


def test_an_assessment_finds_each_fault() -> None:
    import pandas as pd

    truth = pd.DataFrame(
        {"k": "a", "t": [1, 2, 3, 4], "value": [1.0, 2.0, 3.0, 4.0], "margin": [1.0, 1.0, -1.0, 1.0]}
    )
    answer = pd.DataFrame(
        {
            "k": "a",
            "t": pd.to_datetime([1, 2, 3, 9], unit="us"),
            "v": [1.0, 2.5, 3.0, 9.0],
            "v_err": [0.0, 0.1, 0.0, 0.0],
            "certainty": ["certain", "likely", "certain", "possible"],
        }
    )
    found = assess_tuples(answer, truth, keys=["k"], value="v")
    assert found.faults == {"outside": 1, "undefined": 1, "wrong": 1, "missed": 1}
    assert (found.precision, found.recall) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    again = assess_tuples(pd.concat([answer, answer]), truth, keys=["k"], value="v")
    assert again.faults["twice"] == 4

    when = pd.to_datetime([START] * 3, unit="us")
    pieces = pd.DataFrame(
        {
            "k": "a",
            "ref": when,
            "lo": [0.0, 2.0, 5.0],
            "hi": [1.0, 3.0, 6.0],
            "certainty": ["certain", "likely", "possible"],
        }
    )
    real = ranges.Ranges(
        ["a"] * 2, START + np.array([0.5, 5.0]) * SECOND, START + np.array([2.5, 7.0]) * SECOND
    )
    there = ranges.Ranges(["a"], np.array([Long(START)]), np.array([Long(START + 6 * SECOND)]))
    seen = assess_ranges(pieces, real, keys=["k"], defined=there)
    assert seen.faults == {"wrong": 1, "missed": 2}  # 0 to 0.5; 1 to 2 and 6 to 7
    assert (seen.answered, seen.true) == (2.0, 4.0)
    assert seen.precision == seen.certain == 0.5
    assert seen.recall == 0.25

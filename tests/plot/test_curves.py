"""What is drawn of segments: each piece while they are few, of many an envelope that loses no peak."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import polynomial as P

from pulse.plot.curves import EXACT, Curve, DrawnPieces, curve, runs, thin


def pieces(
    ranges: list[tuple[float, float]], c: list[list[float]], err: float = 0.5, ref: int = 0
) -> DrawnPieces:
    lo, hi = np.array(ranges, float).reshape(-1, 2).T
    n = len(lo)
    return DrawnPieces(
        np.full(n, ref), lo, hi, np.array(c, float).reshape(n, len(c[0]) if c else 1), np.full(n, err)
    )


def seconds(made: Curve) -> np.ndarray:
    return np.asarray(made.at.astype("datetime64[us]").astype(np.int64) / 1e6)


def test_pieces_are_strokes_with_their_tube() -> None:
    made = curve(pieces([(0, 2), (2, 5)], [[1.0, 1.0], [9.0, 0.0]]))
    assert seconds(made).tolist() == [0, 2, 2, 2, 5, 5]
    np.testing.assert_array_equal(made.low, [1, 3, np.nan, 9, 9, np.nan])
    np.testing.assert_array_equal(made.tube_low, made.low - 0.5)
    np.testing.assert_array_equal(made.tube_high, made.low + 0.5)
    assert not made.thinned


def test_jumps_are_jumps_and_holes_are_holes() -> None:
    made = curve(pieces([(0, 2), (2, 4), (4, 6)], [[1, 1], [3, 0], [1, 0.5]]))
    assert len(made.jumps[0]) == len(made.holes) == 0  # what goes on is neither
    made = curve(pieces([(0, 2), (2, 4), (5, 6)], [[0, 0], [3, 0], [3, 0]]))
    at, before, after = made.jumps
    assert (at.astype(np.int64).tolist(), before.tolist(), after.tolist()) == ([2_000_000], [0.0], [3.0])
    assert [(int(a.astype(np.int64)), int(b.astype(np.int64))) for a, b in made.holes] == [
        (4_000_000, 5_000_000)
    ]


def test_a_piece_that_is_no_line_is_followed() -> None:
    made = curve(pieces([(0, 2)], [[0.0, 2.0, -1.0]]))
    assert len(made.at) > 10
    assert np.nanmax(made.low) == pytest.approx(1.0, abs=0.01)


def test_single_instants_are_points() -> None:
    made = curve(pieces([(0, 0), (1, 2), (3, 3)], [[5.0, 1.0], [1.0, 0.0], [7.0, 1.0]]))
    at, value, err = made.points
    assert at.astype(np.int64).tolist() == [0, 3_000_000]
    assert value.tolist() == [5.0, 10.0]
    assert err.tolist() == [0.5, 0.5]
    assert len(made.at) == 3


def test_nothing_is_nothing() -> None:
    made = curve(pieces([], [[1.0, 0.0]] * 0))
    assert len(made.at) == len(made.low) == len(made.points[0]) == 0
    assert made.holes == []


@given(
    st.lists(
        st.tuples(st.floats(0.01, 3), st.floats(0, 2), st.lists(st.floats(-5, 5), min_size=3, max_size=3)),
        min_size=2,
        max_size=30,
    ),
    st.integers(1, 12),
)
def test_an_envelope_holds_all_that_it_stands_for(
    parts: list[tuple[float, float, list[float]]], columns: int
) -> None:
    """Against dense samples: none lies outside its column's band, and the band is reached."""
    ranges, at = [], 0.0
    for length, gap, _ in parts:
        ranges.append((at, at + length))
        at += length + gap
    ref = 1_700_000_000_000_000
    made = curve(pieces(ranges, [c for _, _, c in parts], ref=ref), columns=columns, exact=1)
    assert made.thinned
    assert len(made.at) == columns
    first, last = ranges[0][0], ranges[-1][1]
    edges = np.linspace(first, last, columns + 1)
    lows, highs = np.full(columns, np.inf), np.full(columns, -np.inf)
    for (lo, hi), (_, _, c) in zip(ranges, parts, strict=True):
        t = np.unique(np.r_[np.linspace(lo, hi, 60), edges[(edges > lo) & (edges < hi)]])
        value = P.polyval(t, c)
        for column in range(columns):
            own = (t >= edges[column] - 1e-9) & (t <= edges[column + 1] + 1e-9)
            if own.any() and lo < edges[column + 1] and hi > edges[column]:
                lows[column] = min(lows[column], value[own].min())
                highs[column] = max(highs[column], value[own].max())
    held = np.isfinite(lows)
    slack = 1e-6 * (1 + np.abs(np.where(held, lows, 0)) + np.abs(np.where(held, highs, 0)))
    drawn = np.isfinite(made.low)
    for column in np.flatnonzero(held & drawn):
        assert made.low[column] <= lows[column] + slack[column]
        assert made.high[column] >= highs[column] - slack[column]
        assert made.tube_low[column] == pytest.approx(made.low[column] - 0.5)
        assert made.tube_high[column] == pytest.approx(made.high[column] + 0.5)
    whole = (lows[held].min(), highs[held].max())
    assert np.nanmin(made.low) == pytest.approx(whole[0], abs=0.2 + 1e-3 * abs(whole[0]), rel=0.2)
    assert np.nanmax(made.high) == pytest.approx(whole[1], abs=0.2 + 1e-3 * abs(whole[1]), rel=0.2)


def test_what_is_drawn_of_very_many_pieces_is_bounded() -> None:
    n = 300_000
    start = np.arange(n, dtype=float)
    made = curve(
        DrawnPieces(
            np.full(n, 10**15),
            start,
            start + 1,
            np.column_stack([np.sin(start / 999), np.zeros(n)]),
            np.full(n, 0.1),
        )
    )
    assert made.thinned
    assert len(made.at) <= 1200
    assert len(made.holes) == 0


def test_a_hole_among_very_many_pieces_stays_one() -> None:
    start = np.r_[np.arange(EXACT), np.arange(EXACT) + 2.0 * EXACT].astype(float)
    n = len(start)
    made = curve(DrawnPieces(np.zeros(n, np.int64), start, start + 1, np.ones((n, 1)), np.zeros(n)))
    ((begin, end),) = made.holes
    width = 3 * EXACT / 1200 * 1e6
    assert abs(int(begin.astype(np.int64)) - EXACT * 1e6) <= width
    assert abs(int(end.astype(np.int64)) - 2 * EXACT * 1e6) <= width


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(2, 20))
def test_thinned_tuples_keep_extremes_and_ends(values: list[float], columns: int) -> None:
    at, v = np.arange(len(values), dtype=float), np.array(values)
    kept = thin(at, v, columns)
    assert np.all(np.diff(kept) > 0)
    assert {0, len(values) - 1} <= set(kept.tolist())
    assert v[kept].min() == v.min()
    assert v[kept].max() == v.max()
    assert len(kept) <= max(4 * columns, 1) or len(kept) == len(values) <= 4 * columns


def test_tuples_of_one_instant_can_be_thinned() -> None:
    assert len(thin(np.zeros(100), np.arange(100.0), 3)) <= 4


@given(st.lists(st.booleans(), max_size=50))
def test_runs_are_what_holds(held: list[bool]) -> None:
    found = np.zeros(len(held), bool)
    for begin, end in runs(np.array(held, bool)):
        assert begin < end
        assert not found[begin:end].any()
        found[begin:end] = True
    assert found.tolist() == held

"""When minima of spans are reached, and the rows of windows, against loops over rows in exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.windows.extremum_instants import Model, first_at_most, highest_of, last_at_most, reached
from pulse.kernels.windows.monotone_parts import best_before, monotone_parts, where_reached
from pulse.kernels.windows.window_spans import Spans, spans_of

VALUES = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0, np.inf]), min_size=0, max_size=20)


@given(VALUES, st.data())
def test_the_first_and_the_last_value_at_most_a_level(values: list[float], data: st.DataObject) -> None:
    n = len(values)
    queries = data.draw(
        st.lists(
            st.tuples(st.sampled_from([-2.0, -1.0, 0.5, np.inf]), st.integers(0, n), st.integers(0, n)),
            max_size=8,
        )
    )
    level = np.array([one[0] for one in queries])
    first, stop = (np.array([f(one[1:]) for one in queries], np.int64) for f in (min, max))
    table = np.array(values)
    ahead, behind = first_at_most(table, level, first, stop), last_at_most(table, level, first, stop)
    for i, (most, *_) in enumerate(queries):
        held = [at for at in range(first[i], stop[i]) if values[at] <= most]
        assert ahead[i] == (held[0] if held else stop[i])
        assert behind[i] == (held[-1] if held else first[i] - 1)


def test_places_outside_of_the_values_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected places in 0\.\.2"):
        first_at_most(np.zeros(2), np.zeros(1), np.array([0]), np.array([3]))


ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from([0, 0, 10**15])), max_size=6)
"""Gap before a row, its length, and how far its reference lies, in seconds and microseconds."""


@given(ROWS, st.lists(st.tuples(st.integers(-1, 14), st.integers(1, 8)), max_size=6))
def test_the_rows_of_windows(rows: list[tuple[int, int, int]], windows: list[tuple[int, int]]) -> None:
    """On a grid of half seconds, at which ends of rows and windows are exactly equal or far apart."""
    begin, end, ref, at = [], [], [], 0
    for gap, length, far in rows:
        begin.append(at + gap)
        at += gap + length
        end.append(at)
        ref.append(far)
    if not rows:
        return
    lo, hi = (np.array(one) - np.array(ref) / 1e6 for one in (np.array(begin, float), np.array(end, float)))
    table = np.array(ref, np.int64), lo, hi
    opens = np.array([500_000 * a for a, _ in windows], np.int64)
    closes = opens + np.array([500_000 * size for _, size in windows], np.int64)
    zero = np.zeros(len(windows))
    found = spans_of(
        table, np.array([0, len(rows)]), np.zeros(len(windows), np.int64), (opens, zero), (closes, zero)
    )
    for i in range(len(windows)):
        a, b = Fraction(int(opens[i]), 10**6), Fraction(int(closes[i]), 10**6)
        want = [
            row
            for row in range(len(rows))
            if (begin[row] < b and end[row] > a) or (begin[row] == end[row] and a <= begin[row] < b)
        ]
        # A row without a length that lies on the closing, or before the opening, is not in the window.
        inside = list(range(found.first[i], found.stop[i]))
        assert [row for row in inside if row in want] == want
        assert all(begin[row] == end[row] for row in inside if row not in want)
        if want and want == inside:
            first, last = want[0], want[-1]
            assert found.begin[i] == pytest.approx(max(float(a), begin[first]) - ref[first] / 1e6, abs=1e-6)
            assert found.end[i] == pytest.approx(min(float(b), end[last]) - ref[last] / 1e6, abs=1e-6)


def test_a_row_that_ends_within_the_tolerance_is_in_the_outward_window_alone() -> None:
    table = np.zeros(2, np.int64), np.array([0.0, 1.0 + 4e-10]), np.array([1.0 + 4e-10, 2.0])
    one = np.array([1_000_000]), np.zeros(1)
    until = np.array([2_000_000]), np.zeros(1)
    wide, narrow = (
        spans_of(table, np.array([0, 2]), np.zeros(1, np.int64), one, until, outward=outward)
        for outward in (True, False)
    )
    assert (wide.first.tolist(), wide.stop.tolist()) == ([0], [2])
    assert (narrow.first.tolist(), narrow.stop.tolist()) == ([1], [2])
    exact = spans_of(
        (table[0], np.array([0.0, 1.0]), np.array([1.0, 2.0])),
        np.array([0, 2]),
        np.zeros(1, np.int64),
        one,
        until,
    )
    assert exact.first.tolist() == [1]


@given(
    st.lists(
        st.tuples(
            st.integers(-3, 3), st.integers(-3, 3), st.integers(-2, 2), st.sampled_from([0.0, 0.5, 2.0])
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([1, 2, 3]),
)
def test_minima_of_quadratics_and_all_that_may_be(rows: list[tuple[int, int, int, float]], k: int) -> None:
    """Rows of a second each, the span from a quarter into the first to three quarters of the last, at 256 instants a row."""
    c = np.array([[float(x) for x in one[:3]] for one in rows])[:, :k].copy()
    n = len(rows)
    model = Model(np.zeros(n), np.ones(n), c, np.array([one[3] for one in rows]))
    span = Spans(np.array([0]), np.array([n]), np.array([0.25]), np.array([0.75]))
    found = reached(model, span, highest_of(model, span))
    tried = []
    for row in range(n):
        for step in range(257):
            at = Fraction(step, 256)
            if (row == 0 and at < Fraction(1, 4)) or (row == n - 1 and at > Fraction(3, 4)):
                continue
            value = sum((Fraction(int(x)) * at**i for i, x in enumerate(c[row].astype(int))), Fraction(0))
            tried.append((row + at, value, Fraction(rows[row][3])))
    least = min(value for _, value, _ in tried)
    level = min(value + e for _, value, e in tried)
    candidates = [at for at, value, e in tried if value - e <= level]
    # Between the instants tried a vertex may lie lower, by a little.
    at = found.at[0]
    assert np.polyval(c[found.row[0]][::-1], at) <= float(least) + 1e-12
    earlier = [
        at for at, value, _ in tried if value == least and float(at) < found.row[0] + found.at[0] - 1 / 256
    ]
    assert not earlier or np.polyval(c[found.row[0]][::-1], at) < float(least)
    assert found.first[0] + found.begin[0] <= float(candidates[0]) + 1 / 16
    assert found.last[0] + found.end[0] >= float(candidates[-1]) - 1 / 16
    if k < 3:
        assert found.first[0] + found.begin[0] == pytest.approx(float(candidates[0]), abs=1 / 250)
        assert found.last[0] + found.end[0] == pytest.approx(float(candidates[-1]), abs=1 / 250)


def test_unbounded_rows_make_all_of_a_span_candidates() -> None:
    model = Model(np.zeros(2), np.ones(2), np.array([[1.0, 2.0], [9.0, 1.0]]), np.array([0.5, np.inf]))
    span = Spans(np.array([0]), np.array([2]), np.array([0.0]), np.array([1.0]))
    found = reached(model, span, highest_of(model, span))
    assert (found.first.tolist(), found.begin.tolist()) == ([0], [0.0])
    assert (found.last.tolist(), found.end.tolist()) == ([1], [1.0])
    assert (found.row.tolist(), found.at.tolist()) == ([0], [0.0])


def test_parts_turn_nowhere_inside() -> None:
    c = np.array([[0.0, -3.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    row, lo, hi = monotone_parts(c, np.array([-2.0, 0.0]), np.array([2.0, 1.0]))
    assert row.tolist() == [0, 0, 0, 1]
    assert lo.tolist() == pytest.approx([-2.0, -1.0, 1.0, 0.0])
    assert hi.tolist() == pytest.approx([-1.0, 1.0, 2.0, 1.0])
    assert best_before(np.array([1.0, 3.0, 2.0]), np.array([0, 0, 2])).tolist() == [-np.inf, 1.0, -np.inf]
    at = where_reached(
        np.array([[0.0, 2.0]]), np.zeros(1), np.full(1, 9.0), np.array([3.0]), np.array([True])
    )
    assert at.tolist() == [1.5]

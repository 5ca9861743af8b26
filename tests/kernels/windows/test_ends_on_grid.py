"""Values where windows open and close, against exact fractions of the pieces."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.windows.ends_on_grid import window_ends_every
from pulse.kernels.windows.extremum_on_grid import window_extremum_every
from tests import naive
from tests.strategies import EPOCH_US, SCALES, coefficients, functions

SECOND = 1_000_000


def by_closing_time(made, advance):
    """The place of each window, by closing time."""
    return {
        int(first) + j * advance: place
        for first, a, b in zip(made.first, made.offsets[:-1], made.offsets[1:], strict=True)
        for j, place in enumerate(range(a, b))
    }


@given(st.data(), st.sampled_from(SCALES[:3]), st.integers(1, 4), st.booleans())
def test_windows_have_the_values_at_their_ends(data, scale, k, closing):
    f = data.draw(functions(scale, max_pieces=8))
    n = len(f.ranges)
    c = data.draw(coefficients(f, scale, k))
    err = np.array(data.draw(st.lists(st.integers(0, 8), min_size=n, max_size=n)), float)
    size, advance = (scale[0] * data.draw(st.integers(1, 7)) for _ in range(2))
    table = f.ref, f.lo, f.hi, c
    made = window_ends_every(table, [0, n], err=err, size_us=size, advance_us=advance, closing=closing)
    mine = by_closing_time(made, advance)
    codes = np.full(n, 3, np.uint8)
    same = window_extremum_every(table, [0, n], err=err, certainty=codes, size_us=size, advance_us=advance)
    assert mine == by_closing_time(same, advance), (
        "every function of a window has a result where the others have"
    )
    long = [i for i, (a, b) in enumerate(f.ranges) if b > a]
    for t, place in mine.items():
        at = t if closing else t - size
        row = next(
            i
            for i in long
            if (f.ranges[i][0] < at <= f.ranges[i][1] if closing else f.ranges[i][0] <= at < f.ranges[i][1])
        )
        want = naive.piece_value(f.ref[row], c[row], Fraction(at))
        terms = sum(abs(x) * max(abs(f.lo[row]), abs(f.hi[row])) ** j for j, x in enumerate(c[row]))
        assert abs(Fraction(made.values[place]) - want) <= 1e-15 * (k + 1) * Fraction(terms)
        assert made.err[place] == err[row]
        covered = [i for i in long if f.ranges[i][0] < t and f.ranges[i][1] > t - size]
        assert (made.tail[place], made.head[place]) == (covered[0], covered[-1])


def test_a_piece_that_begins_as_the_window_closes_has_no_part_in_it():
    table = np.full(2, EPOCH_US), [0.0, 1.0], [1.0, 2.0], [[1.0], [5.0]]
    options = {"err": [0.0, 0.0], "size_us": SECOND, "advance_us": SECOND}
    assert window_ends_every(table, [0, 2], closing=True, **options).values.tolist() == [1.0, 5.0]
    assert window_ends_every(table, [0, 2], closing=False, **options).values.tolist() == [1.0, 5.0]


@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize("beside", [-4e-10, -2e-13, 2e-13, 4e-10])
def test_the_bound_covers_the_piece_beside_an_end_found_by_solving(beside, closing):
    """The true end may lie on the other side of the instant."""
    table = np.zeros(2, np.int64), [0.0, 2.0 + beside], [2.0 + beside, 5.0], [[1.0], [4.0]]
    made = window_ends_every(
        table, [0, 2], err=[0.25, 0.5], size_us=SECOND, advance_us=SECOND, closing=closing
    )
    place = by_closing_time(made, SECOND)[(2 if closing else 3) * SECOND]
    value, err = made.values[place], made.err[place]
    assert value - err <= 1.0 - 0.25
    assert value + err >= 4.0 + 0.5


def test_slivers_around_an_instant_are_all_covered():
    ends = [0.0, 1.0 - 4e-10, 1.0 - 2e-10, 1.0 + 3e-10, 3.0]
    c = [[float(10 * i)] for i in range(4)]
    table = np.zeros(4, np.int64), ends[:-1], ends[1:], c
    made = window_ends_every(table, [0, 4], err=[0.0] * 4, size_us=SECOND, advance_us=SECOND, closing=True)
    place = by_closing_time(made, SECOND)[SECOND]
    assert made.values[place] - made.err[place] <= 0.0
    assert made.values[place] + made.err[place] >= 30.0


@pytest.mark.parametrize("closing", [False, True])
def test_holes_points_and_groups(closing):
    """Two groups, a hole in the first, a point among the pieces of the second, and a group without pieces."""
    ref = np.full(5, EPOCH_US)
    lo, hi = [0.0, 3.0, 0.0, 1.0, 1.0], [2.0, 6.0, 1.0, 1.0, 2.5]
    c = [[float(i)] for i in range(5)]
    made = window_ends_every(
        (ref, lo, hi, c), [0, 2, 2, 5], err=[0.0] * 5, size_us=2 * SECOND, advance_us=SECOND, closing=closing
    )
    assert made.group.tolist() == [0, 0, 2]
    assert ((made.first - EPOCH_US) // SECOND).tolist() == [2, 5, 2]
    assert made.offsets.tolist() == [0, 1, 3, 4]
    assert made.values.tolist() == ([0.0, 1.0, 1.0, 4.0] if closing else [0.0, 1.0, 1.0, 2.0])


def test_no_pieces():
    empty = np.zeros(0)
    made = window_ends_every(
        (np.zeros(0, np.int64), empty, empty, np.zeros((0, 2))),
        [0],
        err=empty,
        size_us=1,
        advance_us=1,
        closing=True,
    )
    assert len(made.values) == 0
    assert made.offsets.tolist() == [0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"err": [0.0, 0.0]}, "err: expected shape"),
        ({"size_us": 0}, "expected positive microseconds"),
        ({"advance_us": -1}, "expected positive microseconds"),
    ],
)
def test_bad_arguments(change, message):
    table = np.zeros(1, np.int64), [0.0], [5.0], [[0.0]]
    with pytest.raises(ValueError, match=message):
        window_ends_every(
            table, [0, 1], **{"err": [0.0], "size_us": 1, "advance_us": 1, "closing": True, **change}
        )


def test_pieces_out_of_order_or_out_of_range_are_refused():
    with pytest.raises(ValueError, match="offsets"):
        window_ends_every(
            (np.zeros(1, np.int64), [0.0], [5.0], [[0.0]]),
            [0, 2],
            err=[0.0],
            size_us=1,
            advance_us=1,
            closing=True,
        )
    with pytest.raises(ValueError, match="finite seconds"):
        window_ends_every(
            (np.zeros(1, np.int64), [0.0], [np.inf], [[0.0]]),
            [0, 1],
            err=[0.0],
            size_us=1,
            advance_us=1,
            closing=True,
        )

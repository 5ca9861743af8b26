from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.windows.extremum_on_grid import window_extremum_every
from tests import naive
from tests.strategies import EPOCH_US, SCALES, coefficients, functions

SECOND = 1_000_000


def extrema(pieces, c, closing, size, upper):
    """The extremum of each window of one function, None where it is not covered."""
    whole = [(int(ref), row, int(begin), int(end)) for (ref, begin, end), row in zip(pieces, c, strict=True)]
    found = [naive.window_extremum(whole, Fraction(int(t)), size, upper) for t in closing]
    return [None if one is None else float(one) for one in found]


@given(st.data(), st.sampled_from(SCALES[:3]), st.integers(1, 4), st.booleans())
def test_windows_equal_those_asked_one_by_one(data, scale, k, upper):
    """Each window by itself, in exact fractions, is the oracle."""
    f = data.draw(functions(scale, max_pieces=8))
    n = len(f.ranges)
    c = data.draw(coefficients(f, scale, k))
    err = np.array(data.draw(st.lists(st.integers(0, 8), min_size=n, max_size=n)), float)
    codes = np.array(data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)), np.uint8)
    size, advance = (scale[0] * data.draw(st.integers(1, 7)) for _ in range(2))
    made = window_extremum_every(
        (f.ref, f.lo, f.hi, c),
        [0, n],
        err=err,
        certainty=codes,
        size_us=size,
        advance_us=advance,
        upper=upper,
    )
    mine = {
        int(first) + j * advance: place
        for first, a, b in zip(made.first, made.offsets[:-1], made.offsets[1:], strict=True)
        for j, place in enumerate(range(a, b))
    }
    ends = [t for one in f.ranges for t in one] or [0]
    closing = np.arange(-(-ends[0] // advance) * advance, ends[-1] + 1, advance)

    pieces = [(ref, *one) for ref, one in zip(f.ref, f.ranges, strict=True)]
    values = extrema(pieces, c, closing, size, upper)
    widths = extrema(pieces, err[:, None], closing, size, True)
    doubt = extrema(pieces, 3.0 - codes[:, None], closing, size, True)
    assert set(mine) == {t for t, value in zip(closing.tolist(), values, strict=True) if value is not None}
    largest = max(
        (
            abs(x) * max(abs(a), abs(b)) ** j
            for a, b, row in zip(f.lo, f.hi, c, strict=True)
            for j, x in enumerate(row)
        ),
        default=0.0,
    )
    for t, value, wide, unsure in zip(closing.tolist(), values, widths, doubt, strict=True):
        if t in mine:
            assert made.values[mine[t]] == pytest.approx(value, rel=1e-9, abs=1e-9 + 1e-12 * largest)
            assert made.err[mine[t]] == wide
            assert made.certainty[mine[t]] == 3 - unsure


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("upper", [False, True])
def test_many_short_lines_to_a_pane(k, upper):
    """Points and holes among them, references near and far: the short way over lines meets them all."""
    rng = np.random.default_rng(k)
    lengths = rng.integers(1, 40_000, 400)
    lengths[rng.random(400) < 0.05] = 0
    begin = np.concatenate(([0], np.cumsum(lengths)[:-1])) + np.repeat([0, 50_000, 50_001], [150, 150, 100])
    ref = EPOCH_US + np.where(rng.random(400) < 0.5, begin, begin - 77_000_000)
    lo = (EPOCH_US + begin - ref) / SECOND
    hi = np.where(lengths > 0, (EPOCH_US + begin + lengths - ref) / SECOND, lo)
    c = rng.normal(size=(400, k)) * [[10.0, 1.0][:k]]
    err, codes = rng.random(400), rng.integers(1, 4, 400).astype(np.uint8)
    size, advance = 1_100_000, 500_000
    made = window_extremum_every(
        (ref, lo, hi, c), [0, 400], err=err, certainty=codes, size_us=size, advance_us=advance, upper=upper
    )
    closing = np.concatenate(
        [
            np.arange(made.offsets[i + 1] - made.offsets[i]) * advance + made.first[i]
            for i in range(len(made.first))
        ]
    )
    assert len(closing) > 5
    pieces = list(zip(ref, EPOCH_US + begin, EPOCH_US + begin + lengths, strict=True))
    np.testing.assert_allclose(made.values, extrema(pieces, c, closing, size, upper), rtol=1e-12)
    np.testing.assert_array_equal(made.err, extrema(pieces, err[:, None], closing, size, True))
    doubt = extrema(pieces, 3.0 - codes[:, None], closing, size, True)
    np.testing.assert_array_equal(made.certainty, 3 - np.array(doubt))


def test_critical_points_points_and_holes_by_hand():
    S = SECOND
    table = (
        np.full(4, EPOCH_US),
        [-3.0, 1.0, 1.0, 9.0],
        [1.0, 1.0, 3.0, 12.0],
        [[1.0, 2.0, 1.0], [-7.0, 0.0, 0.0], [5.0, 0.0, 0.0], [2.0, 0.0, 0.0]],
    )
    err, codes = [0.5, 2.0, 1.0, 0.25], np.array([3, 1, 2, 3], np.uint8)
    made = window_extremum_every(table, [0, 4], err=err, certainty=codes, size_us=2 * S, advance_us=S)
    assert ((made.first - EPOCH_US) // S).tolist() == [-1, 11]
    assert made.offsets.tolist() == [0, 5, 7]
    assert made.values.tolist() == [0.0, 0.0, 0.0, -7.0, -7.0, 2.0, 2.0]
    assert made.err.tolist() == [0.5, 0.5, 0.5, 2.0, 2.0, 0.25, 0.25]
    assert made.certainty.tolist() == [3, 3, 3, 1, 1, 3, 3]


def test_a_point_at_the_start_of_a_run_is_in_the_window_that_opens_there():
    S = SECOND
    codes = np.full(2, 3, np.uint8)
    for start, expected in ((0.0, [-1.0, 4.0]), (0.5, [4.0])):
        table = ([0, 0], [start, start], [start, 3.0], [[-1.0], [4.0]])
        made = window_extremum_every(
            table, [0, 2], err=[0.0, 0.0], certainty=codes, size_us=2 * S, advance_us=S
        )
        assert made.values.tolist() == expected


def test_nothing_in_nothing_out():
    nothing = (np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros((0, 3)))
    made = window_extremum_every(
        nothing, [0, 0], err=[], certainty=np.zeros(0, np.uint8), size_us=1, advance_us=1
    )
    assert made.offsets.tolist() == [0]
    assert len(made.values) == 0


def lines(ref, lo, hi):
    n = len(lo)
    return {
        "table": (np.broadcast_to(np.int64(ref), n), lo, hi, np.ones((n, 2))),
        "offsets": [0, n],
        "err": np.zeros(n),
        "certainty": np.full(n, 3, np.uint8),
    }


def test_a_hole_of_a_thousand_years_takes_no_room():
    year = 31_557_600.0
    lo, hi = np.array([0.0, 1.0, 2.0, 1000 * year]), np.array([1.0, 2.0, 3.0, 1000 * year + 3.0])
    made = window_extremum_every(**lines(0, lo, hi), size_us=2000, advance_us=1000)
    assert made.first.tolist() == [2000, int(1000 * year) * SECOND + 2000]
    assert np.diff(made.offsets).tolist() == [2999, 2999]
    np.testing.assert_allclose(made.values[:2999], 1.0 + np.arange(2999) / 1000)


@pytest.mark.parametrize("where", range(6))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e13])
def test_a_range_without_numbers_is_refused_wherever_it_is(where, value):
    for side in (0, 1):
        ends = np.arange(6.0), np.arange(1.0, 7.0)
        ends[side][where] = value
        with pytest.raises(ValueError, match="finite seconds"):
            window_extremum_every(**lines(0, *ends), size_us=SECOND, advance_us=SECOND)


def test_pieces_out_of_order_are_refused_before_they_leave_their_room():
    lo, hi = np.array([0.0, 1e6, 2e6, 3e6, -1.0]), np.array([1e6, 2e6, 3e6, 4e6, 0.0])
    with pytest.raises(ValueError, match="order of time"):
        window_extremum_every(**lines(0, lo, hi), size_us=SECOND, advance_us=SECOND)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size_us": 0}, "positive microseconds"),
        ({"err": [0.0, 0.0]}, "lo, hi, err: expected shape"),
        ({"table": ([0], [np.nan], [1.0], [[1.0]])}, "finite seconds"),
        ({"offsets": [0]}, "ascending offsets"),
    ],
)
def test_bad_arguments_are_named(change, message):
    order = {
        "table": ([0], [0.0], [1.0], [[1.0]]),
        "offsets": [0, 1],
        "err": [0.0],
        "certainty": np.full(1, 3, np.uint8),
    }
    order |= {"size_us": 1, "advance_us": 1} | change
    with pytest.raises(ValueError, match=message):
        window_extremum_every(**order)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("moved", [-1e-9, -1e-12, 0.0, 1e-12, 1e-9])
@pytest.mark.parametrize("off", [-9e-10, -6e-13, 0.0, 6e-13, 9e-10])
@pytest.mark.parametrize(
    ("left", "right"), [([0.0, 5.0], [0.0, 5.0]), ([3.0, 0.0], [-2e3, 4e2]), ([1.0, 0.0], [8.0, 0.0])]
)
def test_what_lies_within_a_nanosecond_of_a_cut_is_in_the_bound(left, right, off, moved, upper):
    """Wherever within the tolerance the pieces meet in truth, unless they surely meet at the cut."""
    joint = 5.0 + off
    made = window_extremum_every(
        (np.zeros(2, np.int64), [0.0, joint], [joint, 20.0], [left, right]),
        [0, 2],
        err=np.zeros(2),
        certainty=np.full(2, 3, np.uint8),
        size_us=2 * SECOND,
        advance_us=SECOND,
        upper=upper,
    )
    assert len(made.values) == 19
    best = max if upper else min
    true_joint = Fraction(joint) + (Fraction(moved) if off else 0)
    for t, value, err in zip(range(2, 21), made.values, made.err, strict=True):
        seen = []
        for c, a, b in ((left, Fraction(0), true_joint), (right, true_joint, Fraction(20))):
            a, b = max(a, Fraction(t - 2)), min(b, Fraction(t))
            seen += [Fraction(c[0]) + Fraction(c[1]) * x for x in (a, b) if a < b]
        jump = abs(left[0] - right[0] + 5.0 * (left[1] - right[1]))
        # What the pieces say beyond their own ends is off by the slope.
        loose = 2e-9 * max(abs(left[1]), abs(right[1])) if moved else 1e-15 * (2e3 if right[1] > 5 else 25.0)
        assert abs(Fraction(value) - best(seen)) <= Fraction(err) + Fraction(loose)
        assert err <= jump + 1e-6
        assert err == 0.0 or (off and t in (5, 6, 7))


def test_a_piece_that_agrees_with_its_neighbour_counts_however_little_of_it_is_in_the_window():
    joint = 2.5 - 6e-13
    made = window_extremum_every(
        (np.zeros(2, np.int64), [0.0, joint], [joint, 7.0], [[1.0, 1.0], [-7.5, 5.0]]),
        [0, 2],
        err=np.ones(2),
        certainty=np.full(2, 3, np.uint8),
        size_us=2 * SECOND,
        advance_us=SECOND // 2,
        upper=True,
    )
    assert made.values[1] == 5.0  # at 2.5 s, as the second piece has it
    assert (made.err == 1.0).all()

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulse.kernels.windows.average_on_grid import first_not_finite, window_averages_every
from tests import naive
from tests.effort import size
from tests.strategies import EPOCH_US, SCALES, coefficients, functions

SECOND = 1_000_000
NEAR = SCALES[:3]


def window_average_every(
    ref, lo, hi, c, offsets, *, err, drift=None, certainty=None, size_us, advance_us, total=False
):
    """Windows of one size."""
    table, bounds = (ref, lo, hi, c), (err, drift, certainty)
    (found,) = window_averages_every(
        table, offsets, bounds, sizes_us=[size_us], advance_us=advance_us, total=total
    )
    return found


@st.composite
def problems(draw, degrees=(1, 4)):
    """Groups of pieces, bounds, a size and an advance on the same grid of microseconds; sizes need not be multiples."""
    scale = draw(st.sampled_from(NEAR))
    k = draw(st.integers(*degrees))
    found = [draw(functions(scale, max_pieces=8)) for _ in range(draw(st.integers(1, 2)))]
    c = [draw(coefficients(f, scale, k)) for f in found]
    n = sum(len(f.ranges) for f in found)
    err = np.array(draw(st.lists(st.integers(0, 8), min_size=n, max_size=n)), float) / 8
    size, advance = (scale[0] * draw(st.integers(1, 7)) for _ in range(2))
    return found, np.concatenate(c), err, size, advance


def arrays(found):
    return (
        np.concatenate([f.ref for f in found]),
        np.concatenate([f.lo for f in found]),
        np.concatenate([f.hi for f in found]),
        np.cumsum([0, *(len(f.ranges) for f in found)]),
    )


def windows_of(found, advance):
    """(group, closing time, place) of every sample."""
    for s, g in enumerate(found.group):
        for j, place in enumerate(range(found.offsets[s], found.offsets[s + 1])):
            yield int(g), int(found.first[s]) + j * advance, place


def closings(f, advance):
    if not f.ranges:
        return range(0)
    return range(-(-f.ranges[0][0] // advance) * advance, f.ranges[-1][1] + 1, advance)


def exact_rows(f, values):
    """Rows for the oracle about their own starts, so that ranges are exact."""
    return [(ref, lo, hi, list(x)) for ref, lo, hi, x in zip(f.ref, f.lo, f.hi, values, strict=True)]


def magnitude(f, c):
    return max(
        (
            sum(abs(x) * max(abs(lo), abs(hi)) ** j for j, x in enumerate(row))
            for lo, hi, row in zip(f.lo, f.hi, c, strict=True)
        ),
        default=0.0,
    )


@given(problems(), st.booleans())
def test_values_and_bounds_equal_exact_integrals(problem, total):
    found, c, err, size, advance = problem
    ref, lo, hi, offsets = arrays(found)
    made = window_average_every(
        ref, lo, hi, c, offsets, err=err, size_us=size, advance_us=advance, total=total
    )
    mine = {(g, t): place for g, t, place in windows_of(made, advance)}
    scale = Fraction(1) if total else Fraction(size, SECOND)
    expected = set()
    for g, f in enumerate(found):
        own = slice(offsets[g], offsets[g + 1])
        ends = max((np.spacing(max(abs(a), abs(b))) for a, b in zip(f.lo, f.hi, strict=True)), default=0.0)
        largest = magnitude(f, c[own])
        loose = largest * (1e-12 * size / SECOND + 4 * len(f.lo) * ends) / scale
        for t in closings(f, advance):
            at, w, gap = Fraction(t, SECOND), Fraction(size, SECOND), Fraction(1, 2 * SECOND)
            exact = naive.window_integral(exact_rows(f, c[own]), at, w, gap)
            if exact is None:
                continue
            expected.add((g, t))
            place = mine[g, t]
            assert abs(Fraction(made.values[place]) - exact / scale) <= loose + 1e-300
            bound = naive.window_integral(exact_rows(f, err[own, None]), at, w, gap) / scale
            wider = 1e-12 * float(bound) + float(loose) + 8 * len(f.lo) * ends / float(scale)
            noise = (
                1e-14 * largest * (size / SECOND + max(np.abs(f.lo).max(), np.abs(f.hi).max())) / float(scale)
            )
            assert -1e-13 - wider <= made.err[place] - float(bound) <= wider + noise + 1e-300
    assert set(mine) == expected
    assert (made.certainty == 3).all()
    assert first_not_finite(made) == -1


@given(problems(degrees=(1, 2)), st.data())
def test_every_truth_within_the_bounds_is_within_the_certificate(problem, data):
    found, c, err, size, advance = problem
    ref, lo, hi, offsets = arrays(found)
    n = len(ref)
    share = np.array(data.draw(st.lists(st.integers(-4, 4), min_size=n, max_size=n)), float) / 4
    wrong = share * err  # truth = model + wrong: at every instant within err
    drift = np.zeros(n)
    for g in range(len(found)):  # the largest drift so far in the piece: linear, so at one of its ends
        sum_, before = 0.0, None
        for i in range(offsets[g], offsets[g + 1]):
            begin, end = found[g].ranges[i - offsets[g]]
            if begin == end:
                continue
            sum_ = sum_ if before == begin else 0.0
            drift[i] = max(abs(sum_), abs(sum_ + wrong[i] * (end - begin) / SECOND))
            sum_ += wrong[i] * (end - begin) / SECOND
            before = end
    made = window_average_every(
        ref, lo, hi, c, offsets, err=err, drift=drift * (1 + 1e-12), size_us=size, advance_us=advance
    )
    for g, t, place in windows_of(made, advance):
        own = slice(offsets[g], offsets[g + 1])
        f = found[g]
        truth = c[own].copy()
        truth[:, 0] += wrong[own]
        exact = naive.window_integral(
            exact_rows(f, truth), Fraction(t, SECOND), Fraction(size, SECOND), Fraction(1, 2 * SECOND)
        ) / Fraction(size, SECOND)
        ends = max(np.spacing(max(abs(a), abs(b))) for a, b in zip(f.lo, f.hi, strict=True))
        loose = 8 * len(f.lo) * ends * (1 + magnitude(f, c[own])) * SECOND / size
        assert abs(float(exact - Fraction(made.values[place]))) <= made.err[place] * (1 + 1e-12) + loose
        # No wider than the drift says: of the piece on either side of where the window opens and closes.
        far = max(np.abs(f.lo).max(), np.abs(f.hi).max())
        both = sum(
            max(drift[own][i] for i, (a, b) in enumerate(f.ranges) if a < b and a <= u <= b)
            for u in (t, t - size)
        )
        rest = 2 * (1e-9 + 1e-15 * far) * err[own].max() + 1e-14 * magnitude(f, c[own]) * (
            size / SECOND + far
        )
        assert made.err[place] <= (both * (1 + 1e-9) + rest) * SECOND / size


@given(problems(degrees=(1, 1)), st.data())
def test_certainty_is_the_smallest_of_the_pieces_touched(problem, data):
    found, c, err, size, advance = problem
    ref, lo, hi, offsets = arrays(found)
    codes = np.array(data.draw(st.lists(st.integers(1, 3), min_size=len(ref), max_size=len(ref))), np.uint8)
    made = window_average_every(
        ref, lo, hi, c, offsets, err=err, certainty=codes, size_us=size, advance_us=advance
    )
    for g, t, place in windows_of(made, advance):
        touched = [
            codes[offsets[g] + i]
            for i, (begin, end) in enumerate(found[g].ranges)
            if begin < t and end > t - size and begin < end
        ]
        assert made.certainty[place] == min(touched)


@example(4)
@given(st.integers(1, 20))
def test_a_size_that_is_no_multiple_opens_between_closing_times(tenths):
    size = tenths * SECOND // 10
    made = window_average_every(
        [EPOCH_US], [0.05], [7.45], [[0.0, 2.0]], [0, 1], err=[0.0], size_us=size, advance_us=SECOND // 2
    )
    t = (made.first[0] - EPOCH_US) / SECOND + 0.5 * np.arange(len(made.values))
    assert t[0] >= 0.05 + size / SECOND > t[0] - 0.5
    assert t[-1] <= 7.45 < t[-1] + 0.5
    np.testing.assert_allclose(made.values, 2 * t - size / SECOND, rtol=1e-13)


def test_long_runs_lose_no_digits():
    n = size(200_000)
    ref = EPOCH_US + SECOND * np.arange(n)
    c = np.full((n, 1), 1e9)
    c[-20:] = 0.125
    made = window_average_every(
        ref, np.zeros(n), np.ones(n), c, [0, n], err=np.full(n, 0.0), size_us=10 * SECOND, advance_us=SECOND
    )
    assert made.values[-10:].tolist() == [0.125] * 10
    assert (made.values[:100] == 1e9).all()


def test_bounds_and_holes_by_hand():
    S = SECOND
    made = window_average_every(
        [0, 0, 0], [-4.0, 0.0, 9.0], [0.0, 4.0, 11.0], [[1.0], [3.0], [5.0]], [0, 3],
        err=[0.5, 1.0, 0.25], drift=[0.1, np.inf, 0.125], size_us=2 * S, advance_us=S,
    )  # fmt: skip
    assert made.group.tolist() == [0, 0]
    assert made.first.tolist() == [-2 * S, 11 * S]
    assert made.offsets.tolist() == [0, 7, 8]
    assert made.values.tolist() == [1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 5.0]
    np.testing.assert_allclose(made.err, [0.1, 0.1, 0.1, 0.75, 1.0, 1.0, 1.0, 0.125], atol=1e-8)


def test_a_window_larger_than_the_data_has_no_result():
    for pieces in (
        ([0], [0.0], [1.0], [[1.0]], [0, 1]),
        (np.zeros(0, int), [], [], np.zeros((0, 2)), [0, 0]),
    ):
        made = window_average_every(
            *pieces, err=np.zeros(len(pieces[0])), size_us=2 * SECOND, advance_us=SECOND
        )
        assert len(made.values) == len(made.group) == 0
        assert made.offsets.tolist() == [0]
        assert first_not_finite(made) == -1


def test_what_is_not_finite_is_found():
    made = window_average_every(
        [0, 0], [0.0, 3.0], [3.0, 9.0], [[1.0], [1e308]], [0, 2], err=[0.0, 0.0], size_us=2 * SECOND,
        advance_us=SECOND, total=True,
    )  # fmt: skip
    assert first_not_finite(made) == 3
    made = window_average_every(
        [0], [0.0], [9.0], [[1.0]], [0, 1], err=[np.inf], drift=[0.5], size_us=2 * SECOND, advance_us=SECOND
    )
    np.testing.assert_allclose(made.err, 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size_us": 0}, "positive microseconds"),
        ({"advance_us": -1}, "positive microseconds"),
        ({"err": [0.0, 0.0]}, "err, drift: expected shape"),
        ({"c": np.zeros((1, 0))}, "k >= 1"),
        ({"hi": [np.nan]}, "finite seconds"),
        ({"offsets": [1, 1]}, "ascending offsets"),
    ],
)
def test_bad_arguments_are_named(change, message):
    order = {
        "ref": [0],
        "lo": [0.0],
        "hi": [1.0],
        "c": [[1.0]],
        "offsets": [0, 1],
        "err": [0.0],
        "size_us": 1,
        "advance_us": 1,
    }
    order |= change
    with pytest.raises(ValueError, match=message):
        window_average_every(**order)


NEAR_A_CUT = [0.0, 1e-12, 3e-10, 9e-10, 1e-9, 1.5e-9]


def at_second_five(off, left, right, err=(0.0, 0.0)):
    """Windows of two seconds over two pieces that meet so many seconds from second five: by closing time ``(value, err)``."""
    joint = 5.0 + off
    made = window_average_every(
        np.zeros(2, np.int64),
        np.array([0.0, joint]),
        np.array([joint, 20.0]),
        np.array([left, right]),
        [0, 2],
        err=np.array(err),
        size_us=2 * SECOND,
        advance_us=SECOND,
        total=True,
    )
    assert (made.certainty == 3).all()
    return {t // SECOND: (made.values[i], made.err[i]) for _, t, i in windows_of(made, SECOND)}


def exact_sum(t, joint, left, right):
    """The integral over the two seconds before ``t`` of lines that change at ``joint``."""

    def over(c, a, b):
        return Fraction(c[0]) * (b - a) + Fraction(c[1]) * (b * b - a * a) / 2 if b > a else Fraction(0)

    a, b = Fraction(t - 2), Fraction(t)
    return over(left, a, min(max(joint, a), b)) + over(right, max(min(joint, b), a), b)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("off", NEAR_A_CUT)
def test_a_piece_that_ends_just_beside_a_cut_loses_nothing(sign, off):
    flat = [1e9, 0.0]
    found = at_second_five(sign * off, flat, flat)
    assert set(found) == set(range(2, 21))
    for value, err in found.values():
        assert abs(Fraction(value) - 2 * 10**9) <= Fraction(err)
        assert err < 1e-4


@pytest.mark.parametrize("moved", [-1e-9, -1e-12, 0.0, 1e-12, 1e-9])
@pytest.mark.parametrize("off", [0.25e-6, 0.5 + 1.3e-7, -1e-12, 5e-10, -9e-10, 1e-12])
def test_a_jump_at_an_end_that_was_solved_for_is_in_the_bound(off, moved):
    left, right = [0.25, 1.0], [-7.0, 0.5]
    joint = Fraction(5.0 + off) + Fraction(moved)
    for t, (value, err) in at_second_five(off, left, right).items():
        assert abs(Fraction(value) - exact_sum(t, joint, left, right)) <= Fraction(err)
        assert err < (1e-7 if 4 < t < 8 else 1e-12)


def test_a_jump_at_a_whole_microsecond_costs_nothing():
    for off in (0.0, 0.3, 0.123457):
        assert all(err < 1e-10 for _, err in at_second_five(off, [1e3, 0.0], [-1e3, 0.0]).values())
    assert all(err < 1e-12 for _, err in at_second_five(0.25e-6, [1.0, 0.0], [1.0, 0.0]).values())


@pytest.mark.parametrize("total", [False, True])
@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-300])
def test_windows_of_subnormal_values_lie_within_their_bounds(scale, total):
    values = scale * np.array([1.0, 3.0, 2.0, 7.0, 5.0, 1.0, 1.0, 2.0])
    n = len(values)
    made = window_average_every(
        np.arange(n) * SECOND,
        np.zeros(n),
        np.ones(n),
        values[:, None],
        [0, n],
        err=np.zeros(n),
        size_us=1_500_000,
        advance_us=SECOND // 4,
        total=total,
    )
    for _, t, place in windows_of(made, SECOND // 4):
        exact = Fraction(0)
        for i, value in enumerate(values):
            begin, end = (
                max(Fraction(i), Fraction(t, SECOND) - Fraction(3, 2)),
                min(i + 1, Fraction(t, SECOND)),
            )
            exact += max(end - begin, 0) * Fraction(value)
        exact = exact if total else exact / Fraction(3, 2)
        assert abs(Fraction(made.values[place]) - exact) <= Fraction(made.err[place])
        assert made.err[place] <= max(1e-320, 1e-13 * values.max())

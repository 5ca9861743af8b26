from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.interpolate import PPoly

from pulse.kernels.windows import integral
from tests import naive
from tests.effort import size

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND  # an epoch-sized reference
YEAR = 31_556_952 * SECOND

lengths = st.one_of(
    st.sampled_from([1, 2, 7, SECOND, 3 * SECOND, YEAR]), st.integers(1, 50), st.integers(1, 100 * SECOND)
)
holes = st.one_of(st.just(0), st.just(0), st.just(0), st.integers(5, 10 * SECOND))
moves = st.one_of(st.just(0), st.just(0), st.integers(-100, 100), st.sampled_from([-YEAR, 10**15]))


@st.composite
def piecewise(draw, k=None, max_pieces=8):
    """One group of pieces: (ref, lo, hi, c). Values of order `scale`; references anywhere near or far."""
    k = k or draw(st.integers(1, 4))
    scale = draw(st.sampled_from([1.0, 1e-12, 1e12]))
    t = NOON + draw(st.integers(-10, 10))
    rows = []
    for length, hole, move in draw(
        st.lists(st.tuples(lengths, holes, moves), min_size=1, max_size=max_pieces)
    ):
        t += hole
        ref = t - move
        reach = max(abs(move), abs(move + length)) / SECOND
        c = [scale * draw(st.floats(-1, 1, allow_subnormal=False)) / reach**j for j in range(k)]
        rows.append((ref, move / SECOND, (move + length) / SECOND, c))
        if draw(st.integers(0, 9)) == 0:
            rows.append((t + length, 0.0, 0.0, [scale] * k))  # a point: no measure
        t += length
    return rows


def arrays(groups):
    rows = [row for group in groups for row in group]
    k = len(rows[0][3]) if rows else 1
    return (
        np.array([r[0] for r in rows], np.int64),
        np.array([r[1] for r in rows], float),
        np.array([r[2] for r in rows], float),
        np.array([r[3] for r in rows], float).reshape(-1, k),
        np.cumsum([0] + [len(group) for group in groups]),
    )


def allowance(rows, size):
    """1e-12 of the largest value there can be in a window, and the rounding of the pieces' own ends."""
    largest = max(sum(abs(x) * max(abs(lo), abs(hi)) ** j for j, x in enumerate(c)) for _, lo, hi, c in rows)
    ends = max(np.spacing(max(abs(lo), abs(hi))) for _, lo, hi, _ in rows)
    return largest * (1e-12 * size / SECOND + 4 * len(rows) * ends) + 1e-300  # that is: subnormal


def sampled(made, closing):
    """The integral over the window that closes at each of these instants, of which every one has a piece."""
    _, ref, lo, hi, c, _, _ = made
    found = []
    for t in closing:
        (i, *_) = np.flatnonzero((ref + lo * SECOND <= t + 0.01) & (t - 0.01 <= ref + hi * SECOND))
        found.append(np.polynomial.polynomial.polyval((t - ref[i]) / SECOND, c[i]))
    return found


sizes = st.one_of(st.sampled_from([1, SECOND, 10 * SECOND, YEAR]), st.integers(1, 100 * SECOND))


@given(piecewise(), sizes)
@example([(NOON, 0.0, 1.0, [1.0]), (NOON + SECOND, 0.0, 1.0, [2.0])], 2 * SECOND)
@example([(NOON, 0.0, 1e-6, [1.0, 1.0]), (NOON + 1, 0.0, 31556952.0, [2.0, 1e-8])], 10)
def test_window_pieces_equal_exact_integrals_and_name_their_causes(rows, size):
    offsets, ref, lo, hi, c, head, tail = integral.window_integral(*arrays([rows]), size)
    assert offsets.tolist() == [0, len(ref)]
    w = Fraction(size, SECOND)
    slack = Fraction(1e-8 + 1e-15 * max(max(abs(r[1]), abs(r[2])) for r in rows))
    for i in range(len(ref)):
        assert hi[i] > lo[i]
        assert abs(lo[i]) <= 0.5e-6
        for share in (0.0, 0.25, 0.5, 1.0):
            s = lo[i] + share * (hi[i] - lo[i])
            t = naive.seconds(ref[i], s)
            expected = naive.window_integral(rows, t, w)
            assert expected is not None
            found = sum(Fraction(x) * Fraction(s) ** j for j, x in enumerate(c[i]))
            assert abs(found - expected) <= allowance(rows, size)
            for piece, at in ((rows[head[i]], t), (rows[tail[i]], t - w)):
                assert (
                    naive.seconds(piece[0], piece[1]) - slack
                    <= at
                    <= naive.seconds(piece[0], piece[2]) + slack
                )
    for i in range(len(ref) - 1):
        assert naive.seconds(ref[i], hi[i]) <= naive.seconds(ref[i + 1], lo[i + 1]) + slack


@given(piecewise(), sizes)
def test_window_pieces_cover_just_the_complete_windows(rows, size):
    _, _, lo, hi, *_ = integral.window_integral(*arrays([rows]), size)
    covered = sum(hi - lo)
    expected, runs = 0.0, list[list[Fraction]]()
    for ref, begin, end, _ in rows:
        if end > begin:
            start, stop = naive.seconds(ref, begin), naive.seconds(ref, end)
            if runs and abs(start - runs[-1][1]) <= Fraction(1, SECOND):
                runs[-1][1] = stop
            else:
                runs.append([start, stop])
    for start, stop in runs:
        expected += max(float(stop - start) - size / SECOND, 0.0)
    assert covered == pytest.approx(expected, rel=1e-9, abs=1e-6 * len(rows))


def test_two_groups_do_not_mix():
    one = [(0, 0.0, 4.0, [1.0])]
    two = [(0, 0.0, 4.0, [10.0])]
    offsets, _, _, _, c, _, _ = integral.window_integral(*arrays([one, two]), SECOND)
    assert offsets.tolist() == [0, 1, 2]
    assert c[:, 0].tolist() == [1.0, 10.0]


def test_pieces_that_miss_each_other_by_rounding_are_one_run():
    third = 1.0 / 3.0
    rows = [(NOON, i * third, (i + 1) * third, [1.0]) for i in range(9)]
    rows[4] = (NOON - 10**15, 1e9 + 4 * third, 1e9 + 5 * third, [1.0])  # its ends are rounded to 1e-7 s
    values = sampled(integral.window_integral(*arrays([rows]), 2 * SECOND), [NOON + 3 * SECOND])
    assert values == pytest.approx([2.0], abs=5e-7)


def test_a_year_of_ten_second_windows_keeps_its_digits():
    n = size(100_000)
    length = YEAR // n
    starts = NOON + length * np.arange(n)
    level = 1e6 + np.sin(np.arange(n))
    pieces = (starts, np.zeros(n), np.full(n, length / SECOND), level[:, None], np.array([0, n]))
    exact = sum((Fraction(x) * Fraction(length, SECOND) for x in level[-3:]), Fraction(0))
    values = sampled(integral.window_integral(*pieces, 3 * length), starts[-1:] + length)
    assert abs(Fraction(values[0]) - exact) <= exact * Fraction(1, 10**15)


def test_a_short_window_in_a_long_piece_keeps_its_digits():
    rows = [(NOON, 0.0, YEAR / SECOND, [5.0, 1e-7, 1e-15])]
    _, ref, _, hi, c, _, _ = integral.window_integral(*arrays([rows]), 1)
    s = Fraction(hi[0]) - 1
    found = sum(Fraction(x) * s**j for j, x in enumerate(c[0]))
    expected = naive.window_integral(rows, naive.seconds(ref[0], 0.0) + s, Fraction(1, SECOND))
    assert abs(found - expected) <= 1e-14 * abs(expected)


def test_what_is_not_finite_stays_where_it_is():
    rows = [(i * SECOND, 0.0, 1.0, [1.0, 0.0]) for i in range(12)]
    rows[4] = (4 * SECOND, 0.0, 1.0, [np.nan, 0.0])
    rows[5] = (5 * SECOND, 0.0, 1.0, [np.inf, 0.0])
    _, _, _, _, c, head, tail = integral.window_integral(*arrays([rows]), 3 * SECOND)
    broken = (head >= 4) & (tail <= 5)
    np.testing.assert_array_equal(np.isfinite(c).all(axis=1), ~broken)


def test_scipy_agrees():
    rng = np.random.default_rng(7)
    breaks = np.cumsum(rng.integers(1, 5 * SECOND, 200))
    c = rng.normal(size=(199, 4))
    peer = PPoly(c[:, ::-1].T, breaks / SECOND)
    closing = np.sort(rng.integers(breaks[0] + 7 * SECOND, breaks[-1], 500))
    pieces = breaks[:-1], np.zeros(199), np.diff(breaks) / SECOND, c, [0, 199]
    values = sampled(integral.window_integral(*pieces, 7 * SECOND), closing)
    primitive = peer.antiderivative()
    expected = primitive(closing / SECOND) - primitive(closing / SECOND - 7)
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-8)


def test_empty_inputs():
    nothing = arrays([])
    assert len(integral.window_integral(*nothing, 5)[1]) == 0
    assert integral.window_integral(*arrays([[], []]), 5)[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 0}, "size_us"),
        ({"size": 1.5}, "size_us"),
        ({"offsets": [0, 2]}, "offsets"),
        ({"lo": [np.nan]}, "finite"),
        ({"hi": [np.inf]}, "finite"),
        ({"hi": [1.0, 2.0]}, "shape"),
        ({"c": [1.0]}, "coefficients"),
        ({"ref": [0.5]}, "integers"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    arguments = {
        "ref": [0], "lo": [0.0], "hi": [1.0], "c": [[1.0]], "offsets": [0, 1],
        "size": 1,
    } | change  # fmt: skip
    with pytest.raises(ValueError, match=message):
        integral.window_integral(*arguments.values())

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.samples.on_grid import evaluate_rows, sample_every, spread
from tests import naive
from tests.strategies import EPOCH_US, SCALES, coefficients, functions

SECOND = 1_000_000


@st.composite
def groups(draw):
    """Some piecewise functions on one grid of breakpoints, and a step that sometimes hits them."""
    scale = draw(st.sampled_from(SCALES[:3]))
    found = [draw(functions(scale)) for _ in range(draw(st.integers(0, 3)))]
    every = scale[0] * draw(st.sampled_from([1, 1, 2, 3, 7]))
    return scale, found, every


def columns(found):
    return (
        np.concatenate([np.zeros(0, np.int64), *(f.ref for f in found)]),
        np.concatenate([np.zeros(0), *(f.lo for f in found)]),
        np.concatenate([np.zeros(0), *(f.hi for f in found)]),
        np.cumsum([0, *(len(f.ranges) for f in found)]),
    )


@given(groups(), st.integers(0, 3), st.data())
def test_samples_are_the_pieces_that_hold_the_instants(given_, longest, data):
    scale, found, every = given_
    ref, lo, hi, offsets = columns(found)
    group, first, starts, row = sample_every(ref, lo, hi, offsets, every, longest)
    k = data.draw(st.integers(1, 4))
    c = np.concatenate([np.zeros((0, k)), *(data.draw(coefficients(f, scale, k)) for f in found)])
    values = evaluate_rows(ref, c, row, first, starts, every)
    assert starts[0] == 0
    assert starts[-1] == len(row)
    seen = [{} for _ in found]
    last = {}
    for s, g in enumerate(group):
        rows = row[starts[s] : starts[s + 1]]
        assert rows[0] >= 0
        assert rows[-1] >= 0
        uncovered = "".join("." if r < 0 else "v" for r in rows).split("v")
        assert max(map(len, uncovered)) <= longest
        if g in last:  # a stretch ends only at a hole that is long
            assert first[s] - last[g] > (longest + 1) * every
        last[g] = first[s] + (len(rows) - 1) * every
        for j, r in enumerate(rows):
            t = int(first[s]) + j * every
            assert t % every == 0
            if r >= 0:
                seen[g][t] = r - offsets[g]
                exact = naive.piece_value(ref[r], c[r], Fraction(t))
                size = sum(abs(x) * abs((t - int(ref[r])) / 1e6) ** j for j, x in enumerate(c[r]))
                assert abs(Fraction(float(values[starts[s] + j])) - exact) <= 1e-14 * size
            else:
                assert values[starts[s] + j] == 0.0
    for f, mine in zip(found, seen, strict=True):
        exact_pieces = [(Fraction(begin), Fraction(end)) for begin, end in f.ranges]
        assert mine == naive.regular_samples(exact_pieces, every)
    assert list(group) == sorted(group)


def test_pieces_that_meet_but_for_rounding_leave_no_instant_out():
    # The first ends a trifle after the instant, the second starts a thousandth of a microsecond after it.
    _, first, _, row = sample_every([0, 0], [0.0, 1.0 + 1.01e-9], [1.0 + 0.1e-9, 2.0], [0, 2], SECOND // 2, 9)
    assert (first.tolist(), row.tolist()) == ([0], [0, 0, 1, 1])


def test_far_references_and_times_before_the_epoch():
    far = 1_000_000_000.0
    ref = np.array([-(10**15), -(10**15) - 10**15])
    _, first, offsets, row = sample_every(ref, [-1.0, far + 0.5], [0.5, far + 2.0], [0, 2], SECOND, 9)
    assert first.tolist() == [-(10**15) - SECOND]
    assert row.tolist() == [0, 0, 1]
    values = evaluate_rows(ref, np.array([[1.0, 2.0], [0.0, 1.0]]), row, first, offsets, SECOND)
    assert values.tolist() == [-1.0, 1.0, far + 1.0]


def test_a_point_rules_over_a_range_that_starts_with_it_and_counts_only_on_the_grid():
    lo, hi = np.array([0.0, 1.0, 1.0, 2.5]), np.array([1.0, 1.0, 2.0, 2.5])
    *_, row = sample_every(np.zeros(4, np.int64), lo, hi, np.array([0, 4]), SECOND, 9)
    assert row.tolist() == [0, 1]
    *_, row = sample_every(np.zeros(4, np.int64), lo, hi, np.array([0, 4]), SECOND // 2, 9)
    assert row.tolist() == [0, 0, 1, 2, -1, 3]


def test_no_pieces_and_no_groups():
    nothing = np.zeros(0)
    for offsets in ([0], [0, 0]):
        group, first, starts, row = sample_every(nothing.astype(np.int64), nothing, nothing, offsets, 7, 1)
        assert [len(x) for x in (group, first, row)] == [0, 0, 0]
        assert starts.tolist() == [0]


def test_a_hole_of_years_costs_nothing():
    year = 31_557_600.0
    group, _, offsets, row = sample_every([0, 0], [0.0, 90 * year], [1.0, 90 * year + 1], [0, 2], 100, 64)
    assert group.tolist() == [0, 0]
    assert len(row) == offsets[-1] == 20_000


def test_what_holds_for_a_piece_holds_for_its_samples():
    row = np.array([1, -1, 0])
    assert spread(np.array([0.5, 2.5]), row).tolist() == [2.5, 0.0, 0.5]
    assert spread(np.array([3, 2], np.uint8), row).tolist() == [2, 0, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"every_us": 0}, "every_us > 0"),
        ({"longest_hole": -1}, "longest_hole >= 0"),
        ({"offsets": [0, 2]}, "ascending offsets from 0 to 1"),
        ({"lo": [0.0, 1.0]}, r"shape \(1,\)"),
        ({"hi": [np.inf]}, "finite seconds"),
    ],
)
def test_bad_arguments_are_named(change, message):
    order = {"ref": [EPOCH_US], "lo": [0.0], "hi": [1.0], "offsets": [0, 1], "every_us": 1, "longest_hole": 1}
    with pytest.raises(ValueError, match=message):
        sample_every(**(order | change))

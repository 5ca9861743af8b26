"""Sliding extrema against brute force: every end and critical point within the window, in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.segment.order import Ranges, find_overlap
from pulse.kernels.instants import tolerance
from pulse.kernels.windows.extremum import sliding_extremum
from tests import naive
from tests.strategies import EPOCH_US, SCALES, coefficients, functions

EPS = 2.220446049250313e-16


@st.composite
def cases(draw, *, max_k=5, max_groups=2):
    """``(functions, ref, lo, hi, c, offsets, size)``: sizes on the grid, off it, and longer than the data."""
    scale = draw(st.sampled_from(SCALES))
    step, k = scale[0], draw(st.integers(1, max_k))
    parts = draw(st.lists(functions(scale), min_size=1, max_size=max_groups))
    size = draw(st.sampled_from([step, 2 * step, 3 * step, 100 * step]) | st.integers(1, 8 * step))
    c = np.concatenate([draw(coefficients(f, scale, k)) for f in parts])
    columns = [np.concatenate(x) for x in zip(*[f[1:] for f in parts], strict=True)]
    return parts, *columns, c, np.cumsum([0] + [len(f.ranges) for f in parts]), size


def pieces_of(case, g):
    parts, ref, _, _, c, offsets, _ = case
    return [(ref[p], c[p], *parts[g].ranges[p - offsets[g]]) for p in range(offsets[g], offsets[g + 1])]


def slack(pieces, at, size):
    """What rounding may do to any value in the window, moved to any of the references."""
    reach = [(abs(float(at - int(ref))) + 2.0 * size) / 1e6 for ref, *_ in pieces]
    spread = max(reach, default=0.0)
    return (
        64
        * EPS
        * sum(
            len(c) * abs(x) * (r + spread) ** j
            for r, (_, c, _, _) in zip(reach, pieces, strict=True)
            for j, x in enumerate(c)
        )
    )


@given(cases(), st.booleans())
def test_the_pieces_are_the_extremum_at_every_closing_time(case, upper):
    parts, ref, lo, hi, c, offsets, size = case
    found = sliding_extremum(ref, lo, hi, c, offsets, size, upper=upper)
    for g, f in enumerate(parts):
        pieces = pieces_of(case, g)
        mine = range(found.offsets[g], found.offsets[g + 1])
        begin = {j: naive.instant(found.ref[j], found.lo[j]) for j in mine}
        end = {j: naive.instant(found.ref[j], found.hi[j]) for j in mine}
        assert all(end[a] <= begin[b] + Fraction(1, 4) for a, b in pairwise(mine))
        breaks = sorted({t + shift for r in f.ranges for t in r for shift in (0, size)})
        asked = [b + Fraction(37, 73) * (e - b) for b, e in pairwise(breaks) if e - b > 2]
        asked += [(begin[j] + end[j]) / 2 for j in mine]
        # Bounds are right to the timeline's tolerance, which grows with the distance from references.
        fuzz = max([tolerance(ref[0], 0.0, r, (b - r) / 1e6) for r, _, b, _ in pieces], default=0.0) * 2e6
        asked = [at for at in asked if all(abs(at - b) > fuzz for b in breaks)]
        for at in asked:
            expected = naive.window_extremum(pieces, at, size, upper)
            holding = [j for j in mine if begin[j] <= at < end[j]]
            assert (expected is None) == (not holding)
            if expected is not None:
                assert offsets[g] <= found.source[holding[0]] < offsets[g + 1]
                value = naive.piece_value(found.ref[holding[0]], found.c[holding[0]], at)
                assert abs(value - expected) <= slack(pieces, at, size)


def one_group(lo, hi, c, size, **options):
    n = len(lo)
    return sliding_extremum(
        np.full(n, EPOCH_US),
        np.array(lo),
        np.array(hi),
        np.array(c, dtype=np.float64),
        np.array([0, n]),
        size,
        **options,
    )


def test_a_peak_stays_for_the_length_of_the_window():
    # Largest at 4, where it is 16.
    found = one_group([0.0], [10.0], [[0.0, 8.0, -1.0]], 3_000_000, upper=True)
    begin = (found.ref - EPOCH_US) / 1e6 + found.lo
    np.testing.assert_allclose(begin, [3.0, 4.0, 7.0])
    np.testing.assert_allclose(found.c[1], [16.0, 0.0, 0.0])
    assert found.ref[2] == EPOCH_US + 3_000_000
    assert found.c[[0, 2]].tolist() == [[0.0, 8.0, -1.0]] * 2
    assert found.source.tolist() == [0, 0, 0]


def test_both_values_at_a_jump_count():
    lo, hi, c = [0.0, 4.0], [4.0, 10.0], [[0.0, 1.0], [0.0, 0.0]]  # up to 4, then 0
    high = one_group(lo, hi, c, 2_000_000, upper=True)
    low = one_group(lo, hi, c, 2_000_000)
    begin = (high.ref - EPOCH_US) / 1e6 + high.lo
    assert begin.tolist() == [2.0, 4.0, 6.0]
    assert (high.c[1].tolist(), high.source.tolist()) == ([4.0, 0.0], [0, 0, 1])
    assert ((low.ref - EPOCH_US) / 1e6 + low.lo).tolist()[:2] == [2.0, 4.0]


def test_a_window_as_long_as_the_data_has_no_range():
    assert len(one_group([0.0], [5.0], [[1.0, 1.0]], 5_000_000).ref) == 0
    assert len(one_group([0.0], [5.0], [[1.0, 1.0]], 4_999_999).ref) == 1


def test_nothing_gives_nothing():
    none = (np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty((0, 2)))
    for groups in (0, 2):
        offsets = np.zeros(groups + 1, np.int64)
        found = sliding_extremum(*none, offsets, 1)
        assert found.offsets.tolist() == offsets.tolist()
        assert found.c.shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size_us": 0}, "positive"),
        ({"c": [[np.inf]]}, "finite numbers"),
    ],
)
def test_what_makes_no_sense_is_refused(change, words):
    sound = {"ref": [0], "lo": [0.0], "hi": [1.0], "c": [[1.0]], "offsets": [0, 1]}
    arguments = {name: np.array(x) for name, x in (sound | change).items() if name != "size_us"}
    with pytest.raises(ValueError, match=words):
        sliding_extremum(**arguments, size_us=change.get("size_us", 1))


def test_an_extremum_does_not_overlap_itself_where_a_far_reference_rounds_a_crossing():
    """The tail, about a far reference, crosses the step a third into a second: its end is written 40 nanoseconds late."""
    ref = np.array([EPOCH_US + 10**15 + 1_000_000, EPOCH_US + 4_000_000])
    lo, hi = np.array([-1e9, 0.0]), np.array([-1e9 + 3.0, 2.0])
    c = np.array([[3e9 - 3.0, 3.0, 0.0], [1.0, -3.0, 1.0]])
    made = sliding_extremum(ref, lo, hi, c, np.array([0, 2]), 2_000_000)
    assert find_overlap(Ranges(np.zeros(len(made.ref), np.int64), made.ref, made.lo, made.hi)) is None
    assert (made.lo < made.hi).all()
    assert made.source.tolist() == [0, 1, 1]

"""Envelopes against the naive extremum at many instants, and the algebra of their merge."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.segment.order import Ranges, find_overlap
from pulse.kernels.pieces.envelope import EnvelopePieces, envelope, merge_runs
from tests import naive
from tests.kernels.covering import unbroken
from tests.strategies import EPOCH_US, SCALES, Function, coefficients, functions, rounded, slivered

EPS = 2.220446049250313e-16


def single_valued(f):
    """Without the points at which a range of the same function starts."""
    keep = [
        p for p, r in enumerate(f.ranges) if not (r[0] == r[1] and r[1] in [b for b, _ in f.ranges[p + 1 :]])
    ]
    return Function([f.ranges[p] for p in keep], f.ref[keep], f.lo[keep], f.hi[keep])


@st.composite
def tables(draw, *, max_functions=4, max_k=5, points=True, near=False):
    """``(functions, ref, lo, hi, c, offsets)``; with ``near``, references are the pieces' own starts."""
    scale = draw(st.sampled_from(SCALES))
    k = draw(st.integers(1, max_k))
    parts = draw(st.lists(functions(scale, points=points).map(single_valued), max_size=max_functions))
    if near:
        parts = [
            Function(
                f.ranges,
                np.array([b for b, _ in f.ranges], dtype=np.int64),
                np.zeros(len(f.ranges)),
                np.array([(e - b) / 1e6 for b, e in f.ranges], dtype=np.float64),
            )
            for f in parts
        ]
    c = [draw(coefficients(f, scale, k)) for f in parts]
    none = np.empty(0)
    ref = np.concatenate([none.astype(np.int64), *[f.ref for f in parts]])
    lo, hi = np.concatenate([none, *[f.lo for f in parts]]), np.concatenate([none, *[f.hi for f in parts]])
    return parts, ref, lo, hi, np.concatenate([np.empty((0, k)), *c]), offsets_of(parts)


def offsets_of(parts):
    return np.cumsum([0] + [len(f.ranges) for f in parts])


def noise(ref, c, p, at):
    """What rounding may do to the value of piece ``p`` when it is moved to any reference of the table."""
    reach = max(abs(float(at - int(r))) for r in ref) / 1e6 + abs(float(at - int(ref[p]))) / 1e6
    return 32 * c.shape[1] * EPS * sum(abs(x) * reach**j for j, x in enumerate(c[p]))


def check(parts, ref, c, found: EnvelopePieces, upper):
    """``found`` has the extremum wherever any function is defined, and nothing elsewhere."""
    ranges = [r for f in parts for r in f.ranges]
    pieces = [(ref[p], c[p], Fraction(b), Fraction(e)) for p, (b, e) in enumerate(ranges)]
    begin = [naive.instant(ref[s], x) for s, x in zip(found.source, found.lo, strict=True)]
    end = [naive.instant(ref[s], x) for s, x in zip(found.source, found.hi, strict=True)]
    for j in range(1, len(begin)):
        assert end[j - 1] <= begin[j] + Fraction(1, 4)
        assert not (found.source[j] == found.source[j - 1] and end[j - 1] == begin[j] and begin[j] < end[j])
    for at, wobble in samples(ranges, begin, end):
        best = naive.extremum_at(pieces, at, upper)
        at_point = [
            j for j in range(len(begin)) if found.lo[j] == found.hi[j] and abs(begin[j] - at) <= wobble
        ]
        holding = at_point or [
            j for j in range(len(begin)) if begin[j] - wobble <= at < end[j] - wobble and begin[j] < end[j]
        ]
        assert (best is None) == (not holding)
        if best is not None:
            slack = sum(noise(ref, c, p, at) for p, (b, e) in enumerate(ranges) if b <= at <= e)
            value = naive.piece_value(ref[found.source[holding[0]]], c[found.source[holding[0]]], at)
            assert abs(value - best) <= slack


def samples(ranges, begin, end):
    """Instants within every part between breakpoints, and at points, with the error their coverage may have."""
    breaks = sorted({t for r in ranges for t in r})
    for b, e in pairwise(breaks):
        for share in (Fraction(1, 7), Fraction(37, 73), Fraction(12, 13)):
            yield b + share * (e - b), Fraction(0)
    for b, e in zip(begin, end, strict=True):
        if b < e:
            yield (b + e) / 2, Fraction(0)
    for b, e in ranges:
        if b == e:
            yield Fraction(b), Fraction(1, 4)


@given(tables(), st.booleans())
def test_the_envelope_is_the_extremum_at_every_instant(table, upper):
    parts, ref, lo, hi, c, offsets = table
    found = envelope(ref, lo, hi, c, offsets, upper=upper)
    assert found.offsets.tolist() == [0, len(found.source)]
    check(parts, ref, c, found, upper)


def merge(ref, c, a, b, *, upper):
    """Two envelopes merged, group by group; the sources of both point into ``ref`` and ``c``."""
    runs = (np.concatenate([a.source, b.source]), np.concatenate([a.lo, b.lo]), np.concatenate([a.hi, b.hi]))
    after = b.offsets + len(a.source)
    spans = np.stack([a.offsets[:-1], a.offsets[1:], after[:-1], after[1:]], axis=1).reshape(-1, 2)
    return merge_runs((ref, np.ascontiguousarray(c)), runs, spans, np.arange(0, len(spans) + 1, 2), upper)


def subset(table, chosen, upper):
    """The envelope of some functions of a table, with sources in the whole table."""
    _, ref, lo, hi, c, offsets = table
    rows = np.concatenate([np.arange(0), *[np.arange(offsets[f], offsets[f + 1]) for f in chosen]])
    sizes = [offsets[f + 1] - offsets[f] for f in chosen]
    found = envelope(ref[rows], lo[rows], hi[rows], c[rows], np.cumsum([0, *sizes]), upper=upper)
    return found._replace(source=rows[found.source])


@given(tables(), st.booleans(), st.data())
def test_every_tree_of_merges_gives_the_extremum(table, upper, data):
    parts, ref, _, _, c, _ = table
    left = [f for f in range(len(parts)) if data.draw(st.booleans())]
    a, b = subset(table, left, upper), subset(table, [f for f in range(len(parts)) if f not in left], upper)
    check(parts, ref, c, merge(ref, c, a, b, upper=upper), upper)
    check(parts, ref, c, merge(ref, c, b, a, upper=upper), upper)


@given(tables(max_k=2, near=True), st.booleans(), st.data())
def test_every_tree_of_merges_of_lines_gives_the_same_pieces(table, upper, data):
    _, ref, lo, hi, c, offsets = table
    order = data.draw(st.permutations(range(len(offsets) - 1)))
    whole = envelope(ref, lo, hi, c, offsets, upper=upper)
    one_by_one = subset(table, [], upper)
    for f in order:
        one_by_one = merge(ref, c, one_by_one, subset(table, [f], upper), upper=upper)
    assert one_by_one.source.tolist() == whole.source.tolist()
    np.testing.assert_allclose(one_by_one.lo, whole.lo, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(one_by_one.hi, whole.hi, rtol=1e-12, atol=1e-9)


@given(tables(max_functions=1, points=True), st.booleans())
def test_a_function_merged_with_itself_is_itself(table, upper):
    _, ref, lo, hi, c, offsets = table
    once = envelope(ref, lo, hi, c, offsets, upper=upper)
    assert once.source.tolist() == list(range(len(ref)))
    assert (once.lo.tolist(), once.hi.tolist()) == (lo.tolist(), hi.tolist())
    twice = merge(ref, c, once, once, upper=upper)
    assert [x.tolist() for x in twice] == [x.tolist() for x in once]


@given(tables(max_functions=1), st.booleans())
def test_ties_go_to_the_lower_source(table, upper):
    _, ref, lo, hi, c, _ = table
    n = len(ref)
    doubled = [np.concatenate([x, x]) for x in (ref, lo, hi, c)]
    found = envelope(*doubled, np.array([0, n, 2 * n]), upper=upper)
    assert found.source.tolist() == list(range(n))


@given(st.lists(tables(max_k=1, max_functions=3), max_size=4), st.booleans())
def test_groups_do_not_see_each_other(parts, upper):
    none = (np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty((0, 1)))
    columns = [np.concatenate([e, *[t[1 + i] for t in parts]]) for i, e in enumerate(none)]
    starts = np.cumsum([0] + [len(t[1]) for t in parts])
    offsets = np.concatenate([[0], *[t[5][1:] + s for t, s in zip(parts, starts, strict=False)]])
    groups = np.cumsum([0] + [len(t[0]) for t in parts])
    found = envelope(*columns, offsets, groups, upper=upper)
    assert len(found.offsets) == len(parts) + 1
    for g, (_, *table) in enumerate(parts):
        alone = envelope(*table, upper=upper)
        piece = slice(found.offsets[g], found.offsets[g + 1])
        assert (found.source[piece] - starts[g]).tolist() == alone.source.tolist()
        assert found.lo[piece].tolist() == alone.lo.tolist()
        assert found.hi[piece].tolist() == alone.hi.tolist()


def lines(*pieces):
    """Table of functions of one piece each: (lo, hi, coefficients) about today."""
    width = max(len(c) for _, _, c in pieces)
    c = np.array([list(c) + [0.0] * (width - len(c)) for _, _, c in pieces], dtype=np.float64)
    lo, hi = (np.array([p[i] for p in pieces], dtype=np.float64) for i in (0, 1))
    return np.full(len(pieces), EPOCH_US), lo, hi, c, np.arange(len(pieces) + 1)


def test_touching_without_crossing_changes_nothing():
    found = envelope(*lines((0.0, 4.0, [0.0]), (0.0, 4.0, [4.0, -4.0, 1.0])))
    assert (found.source.tolist(), found.lo.tolist(), found.hi.tolist()) == ([0], [0.0], [4.0])


def test_a_hole_shows_the_other_function():
    table = (
        np.full(3, EPOCH_US),
        np.array([0.0, 3.0, 0.0]),
        np.array([2.0, 5.0, 5.0]),
        np.array([[0.0], [0.0], [1.0]]),
    )
    found = envelope(*table, np.array([0, 2, 3]))
    assert found.source.tolist() == [0, 2, 1]
    assert (found.lo.tolist(), found.hi.tolist()) == ([0.0, 2.0, 3.0], [2.0, 3.0, 5.0])


def test_a_point_that_wins_stands_before_the_range_that_goes_on():
    table = lines((0.0, 4.0, [1.0]), (2.0, 2.0, [0.0]))
    low, high = envelope(*table), envelope(*table, upper=True)
    assert (low.source.tolist(), low.lo.tolist(), low.hi.tolist()) == (
        [0, 1, 0],
        [0.0, 2.0, 2.0],
        [2.0, 2.0, 4.0],
    )
    assert (high.source.tolist(), high.lo.tolist(), high.hi.tolist()) == ([0], [0.0], [4.0])


def test_a_crossing_of_pieces_with_references_a_year_apart_is_found_where_it_is():
    year = 31_557_600
    ref = np.array([EPOCH_US - year * 10**6, EPOCH_US])
    c = np.array([[-float(year), 1.0], [3.0, -1.0]])  # t and 3 - t about today
    found = envelope(ref, np.array([float(year), 0.0]), np.array([year + 4.0, 4.0]), c, np.array([0, 1, 2]))
    assert found.source.tolist() == [0, 1]
    assert abs(found.hi[0] - year - 1.5) < 1e-7
    assert abs(found.lo[1] - 1.5) < 1e-7


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"c": [[np.nan], [1.0]]}, "finite numbers"),
        ({"c": [[1.0]]}, "one row per piece"),
        ({"offsets": [0, 3]}, "ascending numbers"),
        ({"offsets": []}, "ascending numbers"),
        ({"groups": [0, 2]}, "ascending numbers"),
        ({"hi": [np.inf, 1.0]}, "finite lo <= hi"),
    ],
)
def test_what_makes_no_sense_is_refused(change, words):
    sound = {"ref": [0, 0], "lo": [0.0, 1.0], "hi": [1.0, 2.0], "c": [[1.0], [2.0]], "offsets": [0, 2]}
    with pytest.raises(ValueError, match=words):
        envelope(**{name: np.array(value) for name, value in (sound | change).items()})


@given(st.lists(slivered(), min_size=1, max_size=5), st.data(), st.booleans())
def test_no_number_of_slivers_opens_a_hole(parts, data, upper):
    ref, lo, hi = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    rows = st.lists(st.integers(-2, 2), min_size=2, max_size=2)
    c = np.array(data.draw(st.lists(rows, min_size=len(ref), max_size=len(ref))), dtype=np.float64)
    found = envelope(ref, lo, hi, c, np.cumsum([0] + [len(one[0]) for one in parts]), upper=upper)
    assert unbroken(ref[found.source], found.lo, found.hi, EPOCH_US, 0.0, 1.0)


@given(st.lists(rounded(), min_size=2, max_size=4), st.booleans(), st.data())
def test_pieces_do_not_overlap_though_far_references_round_the_ends_of_those_that_came(found, upper, data):
    ref, lo, hi = (np.concatenate(columns) for columns in zip(*found, strict=True))
    slope, value = (
        np.array(
            data.draw(st.lists(st.integers(-3, 3), min_size=len(ref), max_size=len(ref))), dtype=np.float64
        )
        for _ in range(2)
    )
    c = np.stack([value + slope * ((ref - EPOCH_US) / 1e6), slope], axis=1)
    made = envelope(ref, lo, hi, c, np.cumsum([0] + [len(one[0]) for one in found]), upper=upper)
    assert (made.lo < made.hi).all()
    ranges = Ranges(np.zeros(len(made.lo), np.int64), ref[made.source], made.lo, made.hi)
    assert find_overlap(ranges) is None


def instants(ref, offsets):
    return [naive.instant(int(r), float(x)) for r, x in zip(ref, offsets, strict=True)]


@given(rounded(), st.lists(rounded(), min_size=1, max_size=3), st.integers(0, 3), st.integers(1, 2))
def test_nothing_else_wins_between_pieces_whose_ends_a_far_reference_rounds(best, others, place, k):
    parts = [*others[:place], best, *others[place:]]
    ref, lo, hi = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    function = np.repeat(np.arange(len(parts)), [len(one[0]) for one in parts])
    winner = min(place, len(others))
    c = np.zeros((len(ref), k))
    c[:, 0] = np.where(function == winner, 5.0, 3.0)
    found = envelope(ref, lo, hi, c, np.cumsum([0] + [len(one[0]) for one in parts]), upper=True)
    begin, end = instants(best[0], best[1])[0], instants(best[0], best[2])[-1]
    far = Fraction(1)  # microseconds: more than a reference 1e9 s away rounds by
    starts, ends = instants(ref[found.source], found.lo), instants(ref[found.source], found.hi)
    for source, a, b in zip(found.source, starts, ends, strict=True):
        assert function[source] == winner or b <= begin + far or a >= end - far
    inside = [(a, b) for a, b in zip(starts, ends, strict=True) if b > begin and a < end]
    assert inside[0][0] <= begin + far
    assert inside[-1][1] >= end - far
    assert all(after[0] - before[1] <= far for before, after in pairwise(inside))

"""Cells of several piecewise functions, against a sweep over exact integer breakpoints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.segment.order import Ranges, find_overlap
from pulse.kernels.pieces.align import Cells, Pieces, align, align_pair, coefficients_at
from tests import naive
from tests.kernels.covering import unbroken
from tests.strategies import EPOCH_US, SCALES, functions, rounded, slivered


def table(groups):
    """Piece columns and the offsets ``(G, F + 1)`` of groups of equally many functions."""
    flat = [f for group in groups for f in group]
    offsets, at = [], 0
    for group in groups:
        row = [at]
        for f in group:
            at += len(f.ranges)
            row.append(at)
        offsets.append(row)
    columns = [np.concatenate(columns) for columns in zip(*[f[1:] for f in flat], strict=True)]
    return Pieces(*columns), np.array(offsets)


def exact_cells(cells: Cells, g: int, starts) -> list[tuple[int, int, list[int]]]:
    """A group's cells in whole microseconds and piece numbers within each function."""
    out = []
    for j in range(cells.offsets[g], cells.offsets[g + 1]):
        begin = round(naive.instant(cells.ref[j], cells.lo[j]))
        end = round(naive.instant(cells.ref[j], cells.hi[j]))
        index = [p - s if p >= 0 else -1 for p, s in zip(cells.index[j].tolist(), starts, strict=True)]
        out.append((begin, end, index))
    return out


def ranges_of(*spans, ref=EPOCH_US):
    """Piece columns of ranges in seconds about one reference."""
    lo, hi = (np.array([span[i] for span in spans], dtype=np.float64) for i in (0, 1))
    return Pieces(np.full(len(spans), ref), lo, hi)


def joined(*tables):
    pieces = Pieces(*[np.concatenate(columns) for columns in zip(*tables, strict=True)])
    return pieces, np.array([np.cumsum([0] + [len(t.ref) for t in tables])])


@given(st.data(), st.sampled_from(SCALES), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_cells_are_those_between_the_exact_breakpoints(data, scale, count, group_count, outer):
    groups = [[data.draw(functions(scale)) for _ in range(count)] for _ in range(group_count)]
    pieces, offsets = table(groups)
    cells = align(*pieces, offsets, outer=outer)
    assert len(cells.ref) == cells.offsets[-1]
    for g, group in enumerate(groups):
        expected = naive.align_ranges([f.ranges for f in group], outer)
        assert exact_cells(cells, g, offsets[g, :-1]) == expected


@given(st.data(), st.sampled_from(SCALES))
def test_a_range_cell_starts_with_the_untouched_start_of_a_piece(data, scale):
    pieces, offsets = table([[data.draw(functions(scale)) for _ in range(2)]])
    cells = align(*pieces, offsets)
    for ref, lo, index in zip(cells.ref, cells.lo, cells.index, strict=True):
        assert any(ref == pieces.ref[p] and lo == pieces.lo[p] for p in index)


@given(st.data(), st.sampled_from(SCALES))
def test_pairs_may_share_functions(data, scale):
    left = [data.draw(functions(scale)) for _ in range(2)]
    right = [data.draw(functions(scale)) for _ in range(2)]
    (a, starts_a), (b, starts_b) = table([left]), table([right])
    pairs = [(i, j) for i in range(2) for j in range(2)]
    spans_a = np.array([starts_a[0, i : i + 2] for i, _ in pairs])
    spans_b = np.array([starts_b[0, j : j + 2] for _, j in pairs])
    cells = align_pair(a, b, spans_a, spans_b)
    for g, (i, j) in enumerate(pairs):
        expected = naive.align_ranges([left[i].ranges, right[j].ranges], outer=False)
        assert exact_cells(cells, g, (spans_a[g, 0], spans_b[g, 0])) == expected


@given(st.data(), st.sampled_from(SCALES[:3]), st.integers(1, 5))
def test_coefficients_follow_the_reference_of_the_cell(data, scale, k):
    pieces, offsets = table([[data.draw(functions(scale)) for _ in range(2)]])
    number = st.floats(-1e3, 1e3).map(lambda x: x if abs(x) > 1e-12 else 0.0)
    c = np.array(
        data.draw(
            st.lists(
                st.lists(number, min_size=k, max_size=k), min_size=len(pieces.ref), max_size=len(pieces.ref)
            )
        )
    )
    c = c.reshape(len(pieces.ref), k)
    cells = align(*pieces, offsets, outer=True)
    for f in range(2):
        shifted = coefficients_at(cells, f, pieces.ref, c)
        for j, p in enumerate(cells.index[:, f]):
            if p < 0:
                assert not shifted[j].any()
                continue
            at = naive.instant(cells.ref[j], (cells.lo[j] + cells.hi[j]) / 2)
            reach = abs(float(at - int(pieces.ref[p]))) / 1e6 + 2 * abs(float(at - int(cells.ref[j]))) / 1e6
            magnitude = sum(abs(x) * reach**m for m, x in enumerate(c[p]))
            difference = naive.piece_value(cells.ref[j], shifted[j], at) - naive.piece_value(
                pieces.ref[p], c[p], at
            )
            assert abs(difference) <= 8 * k * 2.3e-16 * magnitude + 1e-300


def test_pieces_that_meet_within_the_tolerance_leave_no_gap_and_no_sliver():
    a = ranges_of((0.0, 4.0), (4.0, 8.0))
    b = ranges_of((0.0, 4.0 + 4e-10), (4.0 + 4e-10, 8.0 - 4e-10))
    pieces, offsets = joined(a, b)
    for outer in (False, True):
        cells = align(*pieces, offsets, outer=outer)
        assert cells.index.tolist() == [[0, 2], [1, 3]]
        assert abs(cells.hi[0] - cells.lo[1]) < 1e-9


@given(st.lists(slivered(), min_size=2, max_size=4), st.booleans())
def test_no_number_of_slivers_opens_a_hole(tables, outer):
    """Functions that are all defined throughout: so are their cells, one after the other."""
    pieces, offsets = joined(*(Pieces(*one) for one in tables))
    cells = align(*pieces, offsets, outer=outer)
    assert unbroken(cells.ref, cells.lo, cells.hi, EPOCH_US, 0.0, 1.0)
    assert (cells.index >= 0).all() or outer


@given(st.lists(rounded(), min_size=2, max_size=3), st.booleans())
def test_cells_do_not_overlap_though_far_references_round_the_ends_of_pieces(tables, outer):
    pieces, offsets = joined(*(Pieces(*one) for one in tables))
    cells = align(*pieces, offsets, outer=outer)
    assert (cells.lo < cells.hi).all()
    assert find_overlap(Ranges(np.zeros(len(cells.ref), np.int64), cells.ref, cells.lo, cells.hi)) is None


def test_a_cell_begins_where_the_one_before_it_ended_about_a_far_reference():
    shift = -(10**15)  # about it the end is 40 nanoseconds late
    a = Pieces(
        np.array([EPOCH_US + shift, EPOCH_US]),
        np.array([-shift / 1e6, 4 / 3]),
        np.array([4 / 3 - shift / 1e6, 2.0]),
    )
    pieces, offsets = joined(a, ranges_of((0.5, 2.0)))
    for outer in (False, True):
        cells = align(*pieces, offsets, outer=outer)
        assert cells.hi[-2] > 4 / 3 + 1e-8
        assert cells.lo[-1] == cells.hi[-2]


def test_three_slivers_in_a_row_go_to_the_cell_that_follows():
    a = ranges_of((0.0, 4.0), (4.0, 4.0 + 8e-10), (4.0 + 8e-10, 4.0 + 16e-10), (4.0 + 16e-10, 8.0))
    b = ranges_of((0.0, 4.0 + 4e-10), (4.0 + 4e-10, 4.0 + 12e-10), (4.0 + 12e-10, 8.0))
    pieces, offsets = joined(a, b)
    for outer in (False, True):
        cells = align(*pieces, offsets, outer=outer)
        assert np.abs(cells.lo[1:] - cells.hi[:-1]).max() <= 1e-9
        assert (cells.lo[0], cells.hi[-1]) == (0.0, 8.0)


def test_a_sliver_before_a_hole_goes_to_the_cell_before_it():
    a = ranges_of((0.0, 4.0), (4.0, 4.0 + 8e-10), (5.0, 6.0))
    b = ranges_of((0.0, 8.0))
    pieces, offsets = joined(a, b)
    cells = align(*pieces, offsets)
    assert cells.hi.tolist() == [4.0 + 8e-10, 6.0]


def test_a_microsecond_piece_survives_under_a_reference_decades_away():
    a = Pieces(np.array([0]), np.array([0.0]), np.array([2e9]))
    b = Pieces(np.array([EPOCH_US]), np.array([0.0]), np.array([1e-6]))
    pieces, offsets = joined(a, b)
    cells = align(*pieces, offsets)
    assert (cells.ref.tolist(), cells.lo.tolist(), cells.hi.tolist()) == ([EPOCH_US], [0.0], [1e-6])


@pytest.mark.parametrize(
    ("spans", "holder"),
    [([(0.0, 4.0)], None), ([(4.0, 8.0)], 0), ([(0.0, 4.0), (4.0, 8.0)], 1), ([(4.0, 4.0), (4.0, 8.0)], 0)],
)
def test_a_point_is_held_by_what_starts_at_it_and_not_by_what_ends(spans, holder):
    point, other = ranges_of((4.0, 4.0)), ranges_of(*spans)
    one, all_others = np.array([0, 1]), np.array([0, len(spans)])
    cells = align_pair(point, other, one, all_others)
    assert cells.index.tolist() == ([] if holder is None else [[0, holder]])
    assert cells.lo.tolist() == cells.hi.tolist() == [4.0] * len(cells.ref)
    assert align_pair(other, point, all_others, one).index.tolist() == cells.index[:, ::-1].tolist()


def test_of_many_functions_a_point_makes_one_cell_and_splits_the_others():
    pieces, offsets = joined(ranges_of((0.0, 8.0)), ranges_of((4.0, 4.0)), ranges_of((2.0, 8.0)))
    cells = align(*pieces, offsets, outer=True)
    assert cells.lo.tolist() == [0.0, 2.0, 4.0, 4.0]
    assert cells.hi.tolist() == [2.0, 4.0, 4.0, 8.0]
    assert cells.index.tolist() == [[0, -1, -1], [0, -1, 2], [0, 1, 2], [0, -1, 2]]


def test_nothing_gives_nothing():
    empty = Pieces(np.empty(0, np.int64), np.empty(0), np.empty(0))
    for f in (1, 2, 3):
        for outer in (False, True):
            cells = align(*empty, np.zeros((2, f + 1), np.int64), outer=outer)
            assert cells.offsets.tolist() == [0, 0, 0]
            assert cells.index.shape == (0, f)
            assert align(*empty, np.zeros((0, f + 1), np.int64), outer=outer).offsets.tolist() == [0]
    assert coefficients_at(
        align(*empty, np.zeros((1, 2), np.int64)), 0, empty.ref, np.empty((0, 2))
    ).shape == (0, 2)


@pytest.mark.parametrize(
    ("lo", "hi", "offsets", "words"),
    [
        ([0.0, np.nan], [1.0, 2.0], [[0, 1, 2]], "finite lo <= hi"),
        ([0.0, 0.0], [1.0, np.inf], [[0, 1, 2]], "finite lo <= hi"),
        ([0.0, 3.0], [1.0, 2.0], [[0, 1, 2]], "finite lo <= hi"),
        ([0.0], [1.0], [[0, 1, 2]], "one length"),
        ([0.0, 0.0], [1.0, 1.0], [[0, 1, 3]], "ascending numbers in 0..2"),
        ([0.0, 0.0], [1.0, 1.0], [[2, 1, 2]], "ascending numbers in 0..2"),
        ([0.0, 0.0], [1.0, 1.0], [0, 1, 2], "shape"),
    ],
)
def test_what_makes_no_sense_is_refused(lo, hi, offsets, words):
    with pytest.raises(ValueError, match=words):
        align(np.zeros(2, np.int64), np.array(lo), np.array(hi), np.array(offsets))


def test_pairs_and_cells_that_do_not_fit_are_refused():
    a = ranges_of((0.0, 1.0))
    with pytest.raises(ValueError, match="as many groups"):
        align_pair(a, a, np.array([0, 1]), np.array([0, 1, 1]))
    cells = align(*a, np.array([[0, 1]]))
    with pytest.raises(ValueError, match="expected a function"):
        coefficients_at(cells, 1, a.ref, np.zeros((1, 2)))
    with pytest.raises(ValueError, match="one per row"):
        coefficients_at(cells, 0, a.ref, np.zeros((2, 2)))

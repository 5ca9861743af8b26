"""Positions and areas: pieces of tracks against exact tests of points in fractions, for every truth within the bounds."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import shapely
import shapely.affinity
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.area import Area
from pulse.core.certainty import ABSENT, CERTAIN, LIKELY, POSSIBLE
from pulse.operators.functions.area_edges import Tracks, certainties_at, cut_pieces

NOTCHED = "POLYGON ((0 0, 8 0, 8 8, 4 4, 0 8, 0 0), (1 1, 3 1, 3 3, 1 1))"
TWO = "MULTIPOLYGON (((0 0, 3 0, 0 3, 0 0)), ((5 5, 9 5, 9 9, 5 9, 5 5), (6 6, 8 6, 8 8, 6 8, 6 6)))"
SLIVER = "POLYGON ((0 0, 8 0.001, 8 0.002, 0 0.001, 0 0))"
SHAPES = [NOTCHED, TWO, SLIVER, "POLYGON ((0 0, 1e-6 0, 0 1e-6, 0 0))"]


def area_of(text, tolerance=0.0):
    return Area(shapely.to_wkb(shapely.from_wkt(text)), tolerance)


def edges_of(text):
    rings = [ring for part in shapely.get_parts(shapely.from_wkt(text)) for ring in shapely.get_rings(part)]
    rounds = [
        [tuple(map(Fraction, point)) for point in shapely.get_coordinates(ring).tolist()] for ring in rings
    ]
    return [pair for points in rounds for pair in pairwise(points)]


def exactly_inside(edges, x, y):
    """Whether a point lies in the polygons or on an edge, by crossings of a ray, in fractions."""
    odd = False
    for (ax, ay), (bx, by) in edges:
        side = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        if side == 0 and min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by):
            return True
        if (ay > y) != (by > y):
            crossing = ax + (y - ay) * (bx - ax) / (by - ay)
            odd ^= crossing > x
    return odd


def exactly_meets(edges, x, y, ex, ey):
    """Whether a box around a point meets an edge, by clipping the edge to the box (Liang and Barsky), in fractions."""
    for (ax, ay), (bx, by) in edges:
        first, last = Fraction(0), Fraction(1)
        for start, step, low, high in ((ax, bx - ax, x - ex, x + ex), (ay, by - ay, y - ey, y + ey)):
            if step == 0:
                if not low <= start <= high:
                    last = Fraction(-1)
                continue
            ends = sorted(((low - start) / step, (high - start) / step))
            first, last = max(first, ends[0]), min(last, ends[1])
        if first <= last:
            return True
    return False


whole = st.integers(-2, 10)
tracks = st.lists(
    st.tuples(
        st.tuples(whole, whole),
        st.tuples(st.integers(-4, 4), st.integers(-4, 4)),
        st.tuples(st.integers(-1, 1), st.integers(-1, 1)),
        st.sampled_from([0.0, 0.25, 1.0]),
        st.sampled_from([0.0, 0.25, 2.0]),
        st.sampled_from([0.0, 1.0, 3.0]),
    ),
    min_size=1,
    max_size=4,
)


def track_of(rows, far=0.0):
    """Rows from ``far`` on, about a reference there or long before."""
    x = np.array([[p[0], v[0], a[0]] for p, v, a, *_ in rows], float)
    y = np.array([[p[1], v[1], a[1]] for p, v, a, *_ in rows], float)
    ex, ey, length = (np.array([row[i] for row in rows], float) for i in (3, 4, 5))
    lo = np.zeros(len(rows))
    return Tracks(x, y, ex, ey, lo, lo + length)


@given(st.sampled_from(SHAPES), tracks, st.integers(0, 97))
def test_pieces_are_what_exact_tests_of_points_find(text, rows, phase):
    edges, given_tracks = edges_of(text), track_of(rows)
    pieces = cut_pieces(given_tracks, area_of(text))
    for i, (p, v, a, ex, ey, length) in enumerate(rows):
        own = np.flatnonzero(pieces.row == i)
        assert pieces.lo[own[0]] == 0.0
        assert pieces.hi[own[-1]] == length
        assert np.array_equal(pieces.lo[own[1:]], pieces.hi[own[:-1]])
        for j in range(13):
            t = Fraction(length) * (j * 97 + phase) / (13 * 97) if length else Fraction(0)
            x, y = (Fraction(p[k]) + v[k] * t + a[k] * t * t for k in (0, 1))
            here = own[np.searchsorted(pieces.lo[own], float(t), "right") - 1]
            inside, close = (
                exactly_inside(edges, x, y),
                exactly_meets(edges, x, y, Fraction(ex), Fraction(ey)),
            )
            code, out = pieces.inside[here], pieces.outside[here]
            if close:
                assert code not in (CERTAIN, ABSENT)
                assert out not in (CERTAIN, ABSENT)
            barely = exactly_meets(
                edges, x, y, Fraction(ex) + Fraction(1, 10**9), Fraction(ey) + Fraction(1, 10**9)
            )
            if not barely:  # farther than rounding from a change
                assert (code, out) == ((CERTAIN, ABSENT) if inside else (ABSENT, CERTAIN))
            if not exactly_meets(edges, x, y, Fraction(1, 10**9), Fraction(1, 10**9)):
                assert (code >= LIKELY) == inside
                assert (out >= LIKELY) == (not inside)


@given(
    st.sampled_from(SHAPES), tracks, st.lists(st.integers(-4, 4), min_size=6, max_size=6), st.floats(0.0, 1.0)
)
def test_no_truth_within_the_bounds_contradicts_what_is_certain(text, rows, off, at):
    edges = edges_of(text)
    pieces = cut_pieces(track_of(rows), area_of(text))
    for i, lo, hi, code in zip(pieces.row, pieces.lo, pieces.hi, pieces.inside, strict=True):
        p, v, a, ex, ey, _ = rows[i]
        t = Fraction(float(lo + (hi - lo) * at))
        x, y = (Fraction(p[k]) + v[k] * t + a[k] * t * t for k in (0, 1))
        for dx, dy in zip(off[:3], off[3:], strict=True):
            truth = exactly_inside(
                edges, x + Fraction(dx, 4) * Fraction(ex), y + Fraction(dy, 4) * Fraction(ey)
            )
            assert code != (ABSENT if truth else CERTAIN)


@given(
    st.sampled_from(SHAPES),
    st.lists(st.tuples(whole, whole, st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8),
)
def test_instants_are_what_exact_tests_of_points_find(text, points):
    edges = edges_of(text)
    x, y, ex, ey = np.array(points, float).T
    inside, outside = certainties_at(x, y, ex / 4, ey / 4, area_of(text))
    for (px, py, qx, qy), code, out in zip(points, inside, outside, strict=True):
        exact = Fraction(px), Fraction(py)
        close = exactly_meets(edges, *exact, Fraction(qx, 4), Fraction(qy, 4))
        held = exactly_inside(edges, *exact)
        own, other = (LIKELY, POSSIBLE) if close else (CERTAIN, ABSENT)
        assert (code, out) == ((own, other) if held else (other, own))


def test_a_touch_at_a_vertex_is_likely_for_an_instant():
    track = track_of(
        [((-2, 8), (4, 0), (0, 0), 0.0, 0.0, 3.0)]
    )  # along y = 8, past the tip (0, 8) and (8, 8)
    pieces = cut_pieces(track, area_of(NOTCHED))
    held = pieces.inside >= LIKELY
    assert held.sum() == 2
    assert (pieces.hi - pieces.lo)[held].max() < 1e-9
    assert pieces.lo[held] == pytest.approx([0.5, 2.5])


def test_standing_on_an_edge_is_likely_throughout():
    track = track_of([((4, 0), (0, 0), (0, 0), 0.0, 0.0, 3.0), ((4, 0), (1, 0), (0, 0), 0.0, 0.0, 3.0)])
    pieces = cut_pieces(track, area_of(NOTCHED))
    assert set(pieces.inside.tolist()) == {LIKELY}
    assert set(pieces.outside.tolist()) == {POSSIBLE}


def test_a_tolerance_counts_as_a_bound():
    track = track_of([((2, 4), (0, 0), (0, 0), 0.0, 0.0, 1.0)])  # 2 from the left edge
    codes = {t: cut_pieces(track, area_of(NOTCHED, t)).inside.tolist() for t in (0.0, 0.5, 3.0)}
    assert codes == {0.0: [CERTAIN], 0.5: [CERTAIN], 3.0: [LIKELY]}


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), tracks)
def test_areas_far_from_the_origin_are_alike(dx, dy, rows):
    near, far = area_of(NOTCHED), area_of(shapely.affinity.translate(shapely.from_wkt(NOTCHED), dx, dy).wkt)
    own = track_of(rows)
    moved = own._replace(x=own.x + np.array([dx, 0, 0]), y=own.y + np.array([dy, 0, 0]))
    here, there = cut_pieces(own, near), cut_pieces(moved, far)
    at = np.linspace(0.013, 0.987, 7)
    for i in range(len(rows)):
        for share in at:
            t = own.hi[i] * share
            codes = []
            for pieces in (here, there):
                mine = np.flatnonzero(pieces.row == i)
                codes.append(pieces.inside[mine[np.searchsorted(pieces.lo[mine], t, "right") - 1]])
            if codes[0] != codes[1]:  # only beside an edge of the neighbourhood
                cuts = np.concatenate([pieces.lo[pieces.row == i] for pieces in (here, there)])
                assert np.abs(cuts - t).min() < 1e-3


def test_no_rows():
    none = np.zeros((0, 2))
    empty = np.zeros(0)
    pieces = cut_pieces(Tracks(none, none, empty, empty, empty, empty), area_of(NOTCHED))
    assert len(pieces.row) == 0


def test_many_edges_are_pruned(monkeypatch):
    import pulse.operators.functions.area_edges as module

    circle = shapely.Point(0, 0).buffer(1000.0, quad_segs=500)
    rows = [((990, k), (5, 0), (0, 0), 0.25, 0.25, 3.0) for k in range(50)]
    solved = []
    plain = module._axes
    monkeypatch.setattr(
        module, "_axes", lambda pairs, *rest: solved.append(len(pairs.lo)) or plain(pairs, *rest)
    )
    pieces = cut_pieces(track_of(rows), Area(shapely.to_wkb(circle)))
    assert sum(solved) < 50 * 40
    for i in range(50):
        own = pieces.row == i
        leaves = pieces.hi[own & (pieces.inside >= LIKELY)].max()
        assert 990 + 5 * leaves == pytest.approx(np.sqrt(1000.0**2 - i**2), abs=0.02)

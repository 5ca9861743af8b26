from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.expression import TRUE
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import clip
from pulse.operators.relational.equi_join import JoinOperator
from pulse.operators.relational.proximity_join import APPROXIMATED, Nearness, PairJoin
from pulse.operators.relational.spatial_grid import (
    PairHome,
    ResolvedGrid,
    cell_place,
    cell_size,
    places,
    portions,
    scatter,
    scattered,
)
from tests import naive
from tests.operators.relational.test_proximity_join import (
    distance,
    error,
    instants,
    line,
    one_piece,
    rows_by_key,
)
from tests.operators.relational.tracks import exact_rows, key_of, relation, relations, side_by_side
from tests.strategies import EPOCH_US

buckets = st.sampled_from([1_000_000, 2_500_000, 7_000_000, 10**12])
cells = st.sampled_from([6.0, 40.0, 300.0])
NEAR_REFS = (1_000_000, 1_000_000)  # else positions, and the cells they touch, are astronomical
PLACES = 5
reaches = st.integers(0, 8).map(lambda x: x / 4)


def solved(
    left: Relation, right: Relation, near: Nearness | None, how: tuple[int, int, float]
) -> list[tuple[int, Relation]]:
    """Each place by itself: the bucket's start, and the joined rows, not yet cut to the bucket."""
    bucket, margin, cell = how
    sides = []
    for side, position in ((left, near and near.left), (right, near and near.right)):
        grid = ResolvedGrid(position, near.reach if near else 0.0, bucket, margin, cell, PLACES)
        sides.append({place: (part, ranges) for place, part, ranges in scatter(side, grid)})
    join = PairJoin(near, TRUE, side_by_side(left.columns, right.columns))
    out = []
    for place in sorted(sides[0].keys() & sides[1].keys()):
        (a, ranges_a), (b, ranges_b) = sides[0][place], sides[1][place]
        number, dealt = divmod(place, PLACES)
        home = PairHome(dealt, PLACES, ranges_a, ranges_b)
        out.append((number * bucket, join.segments(a, b, home.keep(join.pairs(a, b)))))
    return out


@given(
    relations("R", scale=NEAR_REFS, max_groups=2),
    relations("S", scale=NEAR_REFS, max_groups=2),
    reaches,
    buckets,
    cells,
)
def test_each_pair_and_time_is_solved_in_exactly_one_place(
    left: Relation, right: Relation, reach: float, bucket: int, cell: float
) -> None:
    near = Nearness(("R.x", "R.y"), ("S.x", "S.y"), reach)
    full = JoinOperator((), side_by_side(left.columns, right.columns)).segments(left, right)
    found: dict[Any, list[tuple[Fraction, Fraction, float]]] = {}
    for begin, both in solved(left, right, near, (bucket, 0, cell)):
        for key, rows in rows_by_key(clip(both, begin, begin + bucket)).items():
            found.setdefault(key, []).extend(
                (a, b, distance(both, 0, a) if a == b else 0.0) for a, b, _ in rows
            )
    fuzz = Fraction(1, 100)
    for key, rows in rows_by_key(full).items():
        own = found.get(key, [])
        for begin, end, row in rows:
            for t in instants(begin, end):
                count = sum(a - fuzz <= t < b + (fuzz if begin == end == a else 0) for a, b, _ in own)
                count -= sum(a == b and begin < end for a, b, _ in own if abs(a - t) <= fuzz)
                if begin == end:
                    count = sum(abs(a - t) <= fuzz and a == b for a, b, _ in own)
                elif t == begin:
                    continue  # where rows meet, both are within the fuzz
                assert count <= 1
                if distance(full, row, t) <= reach + error(full, row):
                    assert count == 1
    assert found.keys() <= rows_by_key(full).keys()


@given(
    relations("R", scale=NEAR_REFS, max_groups=2, points=False),
    relations("S", scale=NEAR_REFS, max_groups=2, points=False),
    reaches,
    buckets,
    cells,
)
def test_windows_are_complete_in_exactly_one_place(
    left: Relation, right: Relation, reach: float, bucket: int, cell: float
) -> None:
    window = 1_500_000
    near = Nearness(("R.x", "R.y"), ("S.x", "S.y"), reach, window)
    full = JoinOperator((), side_by_side(left.columns, right.columns)).segments(left, right)

    def smallest(both: Relation, closings: list[Fraction]) -> list[tuple[Any, Fraction]]:
        found = []
        for key, rows in rows_by_key(both).items():
            excess = [
                (begin, end, lambda t, row=row: distance(both, row, t) - error(both, row))
                for begin, end, row in rows
            ]
            for t in closings:
                values = naive.window_values(excess, t, Fraction(window), 8)
                if values is not None and min(values) < reach - 1e-9:
                    found.append((key, t))
        return found

    closings = [Fraction(EPOCH_US + 700_000 * i) for i in range(25)]
    mine = []
    for begin, both in solved(left, right, near, (bucket, window, cell)):
        mine += smallest(both, [t for t in closings if begin <= t < begin + bucket])
    assert sorted(mine) == sorted(smallest(full, closings))


@given(relations("R"), relations("S"), buckets)
def test_by_time_alone_every_pair_meets(left: Relation, right: Relation, bucket: int) -> None:
    full = JoinOperator((), side_by_side(left.columns, right.columns)).segments(left, right)
    lengths: dict[Any, Fraction] = {}
    for begin, both in solved(left, right, None, (bucket, 0, 1.0)):
        for key, rows in rows_by_key(clip(both, begin, begin + bucket)).items():
            lengths[key] = lengths.get(key, Fraction(0)) + sum(b - a for a, b, _ in rows)
    expected = {key: sum(b - a for a, b, _ in rows) for key, rows in rows_by_key(full).items()}
    assert lengths.keys() == expected.keys()
    assert all(abs(lengths[key] - expected[key]) <= Fraction(1, 10) for key in lengths)


@given(relations("R"), buckets, st.sampled_from([0, 300_000, 5_000_000]))
def test_portions_are_what_lies_in_a_bucket_and_its_margin(own: Relation, bucket: int, margin: int) -> None:
    cut = portions(own, bucket, margin)
    assert np.diff(cut.relation.offsets).all()
    assert (np.lexsort((cut.group, cut.bucket)) == np.arange(len(cut.bucket))).all()
    mine = [
        (int(b), int(g), key_of(cut.relation, i), [(x, y) for x, y, _ in exact_rows(cut.relation, i)])
        for i, (b, g) in enumerate(zip(cut.bucket, cut.group, strict=True))
    ]
    expected = []
    for b in sorted({int(b) for b in cut.bucket} | {EPOCH_US // bucket}):
        low, high = Fraction(b * bucket - margin), Fraction((b + 1) * bucket)
        for g in range(own.groups):
            rows = [
                (max(x, low), min(y, high))
                for x, y, _ in exact_rows(own, g)
                if (x < y and min(y, high) - max(x, low) > Fraction(1, 10)) or (x == y and low <= x < high)
            ]
            if rows:
                expected.append((b, g, key_of(own, g), rows))
    assert [one[:3] for one in mine] == [one[:3] for one in expected]
    for (*_, rows), (*_, want) in zip(mine, expected, strict=True):
        assert len(rows) == len(want)
        assert all(
            abs(a - b) < Fraction(1, 10)
            for x, y in zip(rows, want, strict=True)
            for a, b in zip(x, y, strict=True)
        )
    causes = cut.relation.lineage.to_arrow().flatten().field("segment_id").to_pylist()
    assert set(causes) == set(range(len(own)))


def test_the_home_is_the_first_common_cell() -> None:
    a, b = np.array([[1, 2, 1, 2]]), np.array([[2, 3, 0, 1]])
    pair = np.zeros((1, 2), np.int64)
    homes = [place for place in range(99) if len(PairHome(place, 99, a, b).keep(pair))]
    assert homes == cell_place(np.array([2]), np.array([1]), 99).tolist()


def test_cells_at_the_edge_of_the_numbers() -> None:
    far = relation("R", [one_piece()] * 2, [line(1e12, 0), line(-1e12, 0)])
    ranges = places(portions(far, 10**9, 0).relation, ("R.x", "R.y"), 1.0, 2.0)
    assert ranges[:, :2].tolist() == [[32767, 32767], [-32768, -32768]]


def test_a_wild_position_goes_to_every_place_once() -> None:
    wide = relation("R", [one_piece()], [(np.array([[-3e4, 6e3]]), np.array([[-3e4, 6e3]]))])
    whole = scattered(wide, ResolvedGrid(("R.x", "R.y"), 0.0, 10**9, 0, 1.0, PLACES))
    assert sorted(place % PLACES for place in whole.place.tolist()) == list(range(PLACES))
    assert len(whole.relation) == PLACES * len(wide)


@pytest.mark.parametrize("err", [(0.0, 0.0), (3.0, 0.0), (1.0, 2.0)])
def test_pairs_near_on_average_meet_within_the_slack_of_the_join(err: tuple[float, float]) -> None:
    reach, cell = 10.0, 25.0
    # The boxes themselves are grown by the bound of the distance's error.
    apart = (1.0 + APPROXIMATED) * reach + max(err) + math.sqrt(2) * sum(err)
    for begin in np.linspace(0.0, cell, 40):
        ranges = []
        for alias, x, e in (("R", begin, err[0]), ("S", begin + apart, err[1])):
            side = relation(alias, [one_piece()], [line(x, 0)], err=e)
            grid = ResolvedGrid((f"{alias}.x", f"{alias}.y"), reach, 10**9, 10**6, cell, 99)
            ranges.append(scattered(side, grid).ranges[0])
        assert ranges[0][1] >= ranges[1][0]


@given(relations("R"), reaches, buckets)
def test_a_chosen_cell_is_touched_by_a_handful(own: Relation, reach: float, bucket: int) -> None:
    cell = cell_size(own, ("R.x", "R.y"), reach, bucket)
    assert cell >= 2 * reach
    cut = portions(own, bucket, 0)
    ranges = places(cut.relation, ("R.x", "R.y"), reach, cell)
    touched = (ranges[:, 1] - ranges[:, 0] + 1) * (ranges[:, 3] - ranges[:, 2] + 1)
    # A box of a by b cells touches (a + 1) (b + 1) on average over where it lies, at most 6 in the mean over all boxes. At worst,
    # all of them across corners, it is (a + 2) (b + 2) = (a + 1) (b + 1) + a + b + 3 <= 6 + 5 + 3.
    assert touched.sum() <= 14 * len(cut.bucket)


@pytest.mark.parametrize(
    "change",
    [
        {"bucket": 0},
        {"margin": -1},
        {"cell": 0.0},
        {"cell": np.inf},
        {"places": 0},
        {"reach": -1.0},
        {"reach": np.nan},
    ],
)
def test_what_is_no_grid(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="grid: expected"):
        ResolvedGrid(**{"position": None, "reach": 1.0, "bucket": 1, "margin": 0, "cell": 1.0} | change)


def test_nothing_goes_nowhere() -> None:
    none = relation("R", [], [])
    assert list(scatter(none, ResolvedGrid(("R.x", "R.y"), 1.0, 10**6, 0, 1.0))) == []
    assert cell_size(none, ("R.x", "R.y"), 3.0, 10**6) == 6.0

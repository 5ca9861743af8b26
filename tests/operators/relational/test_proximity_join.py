from __future__ import annotations

import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.expression import TRUE, And, Column, Comparison, Constant
from pulse.operators.data.relation import Relation
from pulse.operators.relational import proximity_join as pair_join_module
from pulse.operators.relational.equi_join import JoinOperator, all_pairs, common_cells
from pulse.operators.relational.proximity_join import (
    Nearness,
    PairJoin,
    _comes_within,
    _squared,
    _times_within,
    position_boxes,
)
from tests import naive
from tests.operators.relational.tracks import columns, exact_rows, key_of, relation, relations, side_by_side
from tests.strategies import EPOCH_US
from tests.strategies import Function as Pieces

UNLIKE = Comparison("!=", Column("R.id"), Column("S.id"))
reaches = st.integers(0, 12).map(lambda x: x / 4)


def near(reach: float, window: int = 0) -> Nearness:
    return Nearness(("R.x", "R.y"), ("S.x", "S.y"), reach, window)


def pair_join(left: Relation, right: Relation, how: Nearness | None, condition: Any = TRUE) -> PairJoin:
    return PairJoin(how, condition, side_by_side(left.columns, right.columns))


def distance(both: Relation, row: int, at: Fraction) -> float:
    x1, y1, x2, y2 = (
        float(naive.piece_value(both.ref[row], both.models[n][row], at)) for n in both.columns.modelled
    )
    return math.hypot(x1 - x2, y1 - y2)


def error(both: Relation, row: int) -> float:
    x1, y1, x2, y2 = (float(both.err[n][row]) for n in both.columns.modelled)
    return math.hypot(x1 + x2, y1 + y2)


def instants(begin: Fraction, end: Fraction) -> list[Fraction]:
    return [begin + (end - begin) * Fraction(i, 8) for i in range(8)] if begin < end else [begin]


def rows_by_key(both: Relation) -> dict[Any, list[tuple[Fraction, Fraction, int]]]:
    return {key_of(both, g): exact_rows(both, g) for g in range(both.groups)}


@given(relations("R"), relations("S"), reaches)
def test_no_row_is_lost_that_could_be_possible(left: Relation, right: Relation, reach: float) -> None:
    full = JoinOperator((), side_by_side(left.columns, right.columns)).segments(left, right)
    pruned = pair_join(left, right, near(reach)).segments(left, right)
    kept = {(key, begin, end): row for key, rows in rows_by_key(pruned).items() for begin, end, row in rows}
    for key, rows in rows_by_key(full).items():
        for begin, end, row in rows:
            is_near = any(distance(full, row, t) <= reach + error(full, row) for t in instants(begin, end))
            assert (key, begin, end) in kept or not is_near
            if (key, begin, end) in kept:
                own = kept[key, begin, end]
                for name in full.columns.modelled:
                    assert np.array_equal(pruned.models[name][own], full.models[name][row])
                    assert pruned.err[name][own] == full.err[name][row]
                assert pruned.certainty[own] == full.certainty[row]
    assert set(kept) <= {
        (key, begin, end) for key, rows in rows_by_key(full).items() for begin, end, _ in rows
    }


@given(
    relations("R"), relations("S"), reaches, st.integers(1, 3), st.sampled_from([TRUE, UNLIKE]), st.booleans()
)
def test_by_hulls_as_piece_by_piece(
    left: Relation, right: Relation, reach: float, size: int, condition: Any, with_itself: bool
) -> None:
    if with_itself:
        right = left.renamed(columns("S", keyed=bool(left.columns.key)))
    join = pair_join(left, right, near(reach), condition)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_join_module, "_HULL", size)
        made = join.segments(left, right)
    expected = join.segments(left, right, join.pairs(left, right))
    assert [key_of(made, g) for g in range(made.groups)] == [
        key_of(expected, g) for g in range(expected.groups)
    ]
    for name in ("offsets", "ref", "lo", "hi", "certainty"):
        np.testing.assert_array_equal(getattr(made, name), getattr(expected, name))
    for name in made.columns.modelled:
        np.testing.assert_array_equal(made.models[name], expected.models[name])
    assert made.lineage is not None
    assert expected.lineage is not None
    assert made.lineage.to_arrow().to_pylist() == expected.lineage.to_arrow().to_pylist()


@given(
    relations("R", points=False),
    relations("S", points=False),
    reaches,
    st.sampled_from([500_000, 1_000_000, 3_000_000]),
)
def test_windows_whose_average_is_within_reach_are_untouched(
    left: Relation, right: Relation, reach: float, window: int
) -> None:
    full = JoinOperator((), side_by_side(left.columns, right.columns)).segments(left, right)
    pruned = pair_join(left, right, near(reach, window)).segments(left, right)
    closings = [Fraction(EPOCH_US + 500_000 * i) for i in range(0, 40)]

    def answers(both: Relation, average: Any) -> dict[Any, float]:
        """Filter(avg(distance) < reach + avg(error)): what is possible, and with it what is likely or certain."""
        found = {}
        for key, rows in rows_by_key(both).items():
            excess = [
                (begin, end, lambda t, row=row: distance(both, row, t) - error(both, row))
                for begin, end, row in rows
            ]
            for t in closings:
                values = naive.window_values(excess, t, Fraction(window))
                if values is not None and average(values) < reach - 1e-9:
                    found[key, t] = average(values)
        return found

    # Any kind of average is no smaller than the smallest value, which is the hardest to keep.
    for average in (np.mean, min):
        mine, expected = answers(pruned, average), answers(full, average)
        assert mine.keys() == expected.keys()
        assert all(abs(mine[at] - expected[at]) <= 1e-6 for at in mine)


@given(relations("R"), relations("S"), reaches, st.sampled_from([1_000, 1_000_000]))
def test_what_is_given_lies_within_a_window_of_a_near_instant(
    left: Relation, right: Relation, reach: float, window: int
) -> None:
    how = near(reach, window)
    pruned = pair_join(left, right, how).segments(left, right)
    pairs = all_pairs(left, right)
    cells = common_cells(left, right, pairs)  # of all pairs; boxes may rule out more, where q rounds badly
    q, limit = _squared(left, right, cells, how)
    times = _times_within(q, limit, cells, _comes_within(q, limit, cells))
    chosen: dict[Any, list[tuple[Fraction, Fraction]]] = {}
    for g, (i, j) in enumerate(pairs):
        for cell in range(cells.offsets[g], cells.offsets[g + 1]):
            for low, high in times.bounds[times.offsets[cell] : times.offsets[cell + 1]]:
                begin, end = (naive.instant(cells.ref[cell], x) for x in (low, high))
                chosen.setdefault(key_of(left, i) + key_of(right, j), []).append((begin, end))
    grown = window + 2
    for key, rows in rows_by_key(pruned).items():
        for begin, end, _ in rows:
            for t in (begin, (begin + end) / 2, end):
                assert any(a - grown <= t <= b + grown for a, b in chosen[key])


@given(relations("R"), reaches)
def test_with_itself_as_with_a_copy(own: Relation, reach: float) -> None:
    other = pickle.loads(pickle.dumps(own))
    plan = side_by_side(columns("R", bool(own.keys)), columns("S", bool(own.keys)))
    join = PairJoin(near(reach), UNLIKE if own.keys else TRUE, plan)
    assert np.array_equal(join.pairs(own, own), join.pairs(own, other))
    mine, others = join.segments(own, own), join.segments(own, other)
    assert mine.to_segments().drop_columns("lineage").equals(others.to_segments().drop_columns("lineage"))


@given(relations("R"), relations("S"), reaches)
def test_in_many_chunks_as_in_one(left: Relation, right: Relation, reach: float) -> None:
    join = pair_join(left, right, near(reach, 1_000_000))
    whole = join.segments(left, right)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pulse.operators.relational.proximity_join._ROWS", 3)
        assert join.segments(left, right).to_segments().equals(whole.to_segments())


def one_piece(length: int = 10, at: int = EPOCH_US) -> Pieces:
    return Pieces([(at, at + length * 10**6)], np.array([at]), np.zeros(1), np.array([float(length)]))


def line(x: float, v: float) -> tuple[np.ndarray, np.ndarray]:
    return np.array([[x, v]]), np.zeros((1, 2))


def test_a_passing_ship_is_near_for_a_while() -> None:
    left = relation("R", [one_piece(), one_piece(10, EPOCH_US - 10**15)], [line(0, 0), line(0, 0)])
    right = relation("S", [one_piece(100, EPOCH_US - 50 * 10**6)], [line(-100, 2)])
    join = pair_join(left, right, near(3.0, 2_000_000))
    assert join.pairs(left, right).tolist() == [[0, 0]]
    both = join.segments(left, right)
    assert len(both) == 1
    # It is at 0 after 50 s, when the other's piece begins, and within 3 until 1.5 s later; a window more is 3.5 s.
    assert (both.lo[0], both.hi[0]) == (0.0, pytest.approx(3.5, abs=2e-6))
    assert both.ref[0] == EPOCH_US


def test_touching_exactly_at_reach_and_with_errors() -> None:
    for e, reach, count in (
        (0.0, 3.0, 1),
        (0.0, 2.999999, 0),
        (1.0, 3.0 - 2 * math.sqrt(5), 1),
        (0.5, 0.5, 0),
    ):
        left = relation("R", [one_piece()], [line(0, 0)], err=e)
        right = relation("S", [one_piece()], [line(3, 1)], err=e)
        if reach >= 0:
            assert len(pair_join(left, right, near(reach)).segments(left, right)) == count
        else:
            assert len(pair_join(left, right, near(reach)).segments(left, right)) == 0


def test_slack_widens_the_reach() -> None:
    left, right = relation("R", [one_piece()], [line(0, 0)]), relation("S", [one_piece()], [line(3, 1)])
    for slack, count in ((0.0, 0), (1.0, 1)):
        how = near(2.0)._replace(slack=slack)
        assert len(pair_join(left, right, how).segments(left, right)) == count


def test_conditions_on_keys_are_seen_to_and_others_left() -> None:
    own = relation("R", [one_piece()] * 3, [line(0, 0)] * 3, names=["a", "b", "c"])
    plan = side_by_side(columns("R"), columns("S"))
    before = Comparison("<", Column("R.id"), Column("S.id"))
    modelled = Comparison("<", Column("R.x"), Constant(-5))
    for how in (None, near(1.0)):
        join = PairJoin(how, And((before, modelled)), plan)
        assert join.pairs(own, own).tolist() == [[0, 1], [0, 2], [1, 2]]
        assert join.segments(own, own).groups == 3
        assert pickle.loads(pickle.dumps(join)) == join


def test_bounds_that_are_not_known_keep_everything() -> None:
    left = relation("R", [one_piece()], [line(0, 0)], err=np.inf)
    right = relation("S", [one_piece()], [line(1e9, 1)])
    assert len(pair_join(left, right, near(1.0)).segments(left, right)) == 1
    assert len(pair_join(left, right, near(1.0, 10**6)).segments(left, right)) == 1
    huge = relation("S", [one_piece()], [line(1e300, 1e308)])
    assert np.isfinite(position_boxes(huge, ("S.x", "S.y"))).all()
    assert len(pair_join(left, huge, near(1.0, 10**6)).segments(left, huge)) == 1


def test_nothing_joins_nothing() -> None:
    none, some = relation("R", [], []), relation("S", [one_piece()], [line(0, 0)])
    for how in (None, near(1.0), near(1.0, 10**6)):
        both = pair_join(none, some, how).segments(none, some)
        assert (both.groups, len(both), both.to_segments().num_rows) == (0, 0, 0)

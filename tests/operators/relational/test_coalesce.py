"""Coalesce: at every instant the row of the first input that has one, for every truth within the bounds."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE
from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError
from pulse.operators.relational.coalesce import CoalesceOperator
from pulse.operators.relational.union import UnionOperator
from tests import naive
from tests.operators.contract import causes, check_same, check_valid, refusal
from tests.strategies import EPOCH_US, relations

COLUMNS = Columns((("k", pa.string()),), ("x", "y"), (), "t")
CODES = (POSSIBLE, LIKELY, CERTAIN)


def sides(**asked):
    """Two relations of one key column and two attributes."""
    plain = relations(codes=CODES, **asked).map(_plain)
    return st.tuples(plain, plain)


def _plain(relation: Relation) -> Relation:
    """The relation with its first key column alone, and without the unmodelled attribute."""
    found = replace(relation.only(replace(relation.columns, unmodelled=())), keys=relation.keys[:1])
    return replace(found, columns=COLUMNS)


def coalesce(first: Relation, second: Relation) -> Relation:
    made = pickle.loads(pickle.dumps(CoalesceOperator(COLUMNS))).segments(first, second)
    check_valid(made, COLUMNS)
    return made


def groups(relation: Relation) -> dict[str, int]:
    return {key: g for g, key in enumerate(relation.keys[0].to_pylist())}


def row_at(relation: Relation, key: str, at: Fraction) -> int | None:
    """The row that counts at an instant: a point before a range."""
    group = groups(relation).get(key)
    rows = [] if group is None else naive.rows_at(relation, group, at)
    return rows[0] if rows else None


def probes(*relations: Relation) -> list[Fraction]:
    """All instants at which anything begins or ends, and one between any two of them."""
    ends = {end for one in relations for row in range(len(one)) for end in naive.row_span(one, row)}
    ordered = sorted(ends)
    between = [(a + b) / 2 for a, b in itertools.pairwise(ordered)]
    third = [a + (b - a) / 3 for a, b in itertools.pairwise(ordered)]
    return sorted({*ordered, *between, *third})


def worlds(relation: Relation, row: int | None) -> list[int | None]:
    """The rows that a truth may have: this one, or none where it is not certain."""
    if row is None:
        return [None]
    return [row] if relation.certainty[row] == CERTAIN else [row, None]


@given(sides())
def test_each_instant_has_the_value_of_the_first_that_has_one_in_every_truth(both) -> None:
    """Only instants that are exact in floats of every reference: far ones are of lines whose ends are whole seconds."""
    first, second = both
    made = coalesce(first, second)
    for key in {*groups(first), *groups(second)}:
        for at in probes(first, second):
            a, b = row_at(first, key, at), row_at(second, key, at)
            found = row_at(made, key, at)
            outcomes = [
                (first, i) if i is not None else (second, j) if j is not None else None
                for i in worlds(first, a)
                for j in worlds(second, b)
            ]
            assert (found is None) == (a is None and b is None)
            if found is None:
                continue
            held_a = a is not None and first.certainty[a] >= LIKELY
            held_b = b is not None and second.certainty[b] >= LIKELY
            least = CERTAIN if None not in outcomes else LIKELY if held_a or held_b else POSSIBLE
            assert made.certainty[found] == least
            on_model = (first, a) if held_a else (second, b) if held_b else None
            for name in COLUMNS.modelled:
                value = naive.piece_value(made.ref[found], made.models[name][found], at)
                if on_model is not None:
                    model = naive.truth_at(on_model[0], name, on_model[1], at, Fraction(0))
                    assert value == model
                bound = Fraction(float(made.err[name][found]))
                for outcome in outcomes:
                    for share in (Fraction(-1), Fraction(1)):
                        if outcome is not None:
                            truth = naive.truth_at(outcome[0], name, outcome[1], at, share)
                            assert abs(value - truth) <= bound
                if len({one for one in outcomes if one is not None}) == 1:  # nothing to cover
                    (only,) = {one for one in outcomes if one is not None}
                    assert made.err[name][found] == only[0].err[name][only[1]]


@given(sides(far=10**6))
def test_a_bound_covers_no_more_than_both_values_in_its_cell(both) -> None:
    first, second = both
    made = coalesce(first, second)
    for row in range(len(made)):
        begin, end = naive.row_span(made, row)
        key = made.keys[0][int(made.group[row])].as_py()
        for name in COLUMNS.modelled:
            reached = Fraction(0)
            steps = [begin + (end - begin) * Fraction(i, 64) for i in range(65)]
            for at in steps[:-1] if end > begin else [begin]:
                value = naive.piece_value(made.ref[row], made.models[name][row], at)
                a, b = row_at(first, key, at), row_at(second, key, at)
                for side, other in ((first, a), (second, b)):
                    if other is not None:
                        shares = (Fraction(-1), Fraction(1))
                        apart = [abs(naive.truth_at(side, name, other, at, s) - value) for s in shares]
                        reached = max(reached, *apart)
            # The largest distance lies between two of the instants: small whole coefficients, a few seconds.
            assert float(made.err[name][row]) <= float(reached) * (1 + 1e-12) + 2.5


@given(sides())
def test_one_side_alone_stays_as_it_is(both) -> None:
    first, _ = both
    nothing = Relation.empty(COLUMNS, lineage=True)
    ordered = first.select_groups(np.argsort(first.keys[0].to_pylist()))
    check_same(coalesce(first, nothing), ordered)
    check_same(coalesce(nothing, first), ordered)
    assert len(coalesce(nothing, nothing)) == 0


@given(sides())
def test_keys_apart_are_keys_together(both) -> None:
    first, second = both
    made = coalesce(first, second)
    parts = []
    for key in sorted({*groups(first), *groups(second)}):
        some = [
            one.select_groups(np.array([groups(one)[key]]))
            if key in groups(one)
            else Relation.empty(COLUMNS, lineage=True)
            for one in both
        ]
        parts.append(coalesce(*some))
    if parts:
        apart = Relation.concat(parts)
        check_same(replace(apart, lineage=None), replace(made, lineage=None))
        assert [sorted(row) for row in causes(apart)] == [sorted(row) for row in causes(made)]


@given(relations(codes=(CERTAIN,)).map(_plain), st.data())
def test_rows_of_two_halves_come_back_whole(relation: Relation, data: st.DataObject) -> None:
    """Rows that do not overlap are a union."""
    n = len(relation)
    which = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), np.int64)
    parts = [relation.take(np.flatnonzero(which == side)) for side in (0, 1)]
    made = coalesce(*parts)
    expected = UnionOperator().segments(parts).without_empty_groups()
    if np.array_equal(made.lo == made.hi, expected.lo == expected.hi) and len(made) == len(expected):
        check_same(made, expected)
    else:  # a point where another side's range begins rules it
        assert relation.is_point.any()


@given(sides())
def test_causes_are_those_of_the_rows_that_count_in_some_truth(both) -> None:
    first, second = both
    made = coalesce(first, second)
    for row in range(len(made)):
        begin, end = naive.row_span(made, row)
        key = made.keys[0][int(made.group[row])].as_py()
        at = (begin + end) / 2
        a, b = row_at(first, key, at), row_at(second, key, at)
        if row_at(made, key, at) != row:
            continue  # another row's point in the middle
        expected = {causes(first)[a][0]} if a is not None else set()
        if b is not None and (a is None or first.certainty[a] != CERTAIN):
            expected |= {causes(second)[b][0]}
        assert set(causes(made)[row]) == expected


def track(rows, certainty=CERTAIN, err=0.0) -> Relation:
    """Constant rows ``(begin, end, value)`` of one key, in seconds since a start."""
    n = len(rows)
    begin, end, value = (np.array([row[i] for row in rows], float) for i in range(3))
    return Relation(
        columns=Columns((("k", pa.string()),), ("x",), (), "t"),
        keys=(pa.array(["a"]),),
        offsets=np.array([0, n]),
        ref=np.full(n, EPOCH_US),
        lo=begin,
        hi=end,
        models={"x": value[:, None]},
        err={"x": np.full(n, err)},
        drift={"x": np.zeros(n)},
        certainty=np.full(n, certainty, np.uint8),
    )


def shown(first: Relation, second: Relation, *, tuples: bool = False) -> list[tuple[float, float, float]]:
    made = CoalesceOperator(first.columns, tuples).segments(first, second)
    return list(zip(made.lo.tolist(), made.hi.tolist(), made.models["x"][:, 0].tolist(), strict=True))


def test_a_hole_that_begins_where_the_other_does_leaves_no_gap() -> None:
    assert shown(track([(0, 2, 1), (5, 6, 2)]), track([(2, 5, 7)])) == [(0, 2, 1), (2, 5, 7), (5, 6, 2)]
    assert shown(track([(2, 5, 7)]), track([(0, 2, 1), (5, 6, 2)])) == [(0, 2, 1), (2, 5, 7), (5, 6, 2)]


def test_a_row_is_not_cut_where_the_other_side_does_not_matter() -> None:
    pieces = [(i, i + 1, i) for i in range(10)]
    assert shown(track([(0, 10, 7)]), track(pieces)) == [(0, 10, 7)]
    assert shown(track([(3.5, 4.5, 7)]), track([(0, 10, 1)])) == [(0, 3.5, 1), (3.5, 4.5, 7), (4.5, 10, 1)]


def test_a_point_of_the_first_counts_before_a_range_of_the_second() -> None:
    assert shown(track([(3, 3, 7)]), track([(0, 5, 1)])) == [(0, 3, 1), (3, 3, 7), (3, 5, 1)]
    assert shown(track([(0, 5, 1)]), track([(3, 3, 7), (5, 5, 9)])) == [(0, 5, 1), (5, 5, 9)]


def test_slivers_of_a_nanosecond_open_no_hole() -> None:
    ends = np.concatenate(([0.0], 0.5 + 0.4e-9 * np.arange(6), [1.0]))
    pieces = [(a, b, 1.0) for a, b in itertools.pairwise(ends)]
    made = CoalesceOperator(track([]).columns).segments(track(pieces[::2]), track(pieces[1::2]))
    at = made.lo[0]
    for lo, hi in zip(made.lo, made.hi, strict=True):
        assert abs(lo - at) <= 2e-9
        at = hi
    assert (made.lo[0], at) == (0.0, 1.0)


def test_values_at_the_end_of_an_epoch_keep_their_digits() -> None:
    """A price of 0.1 stays that number, whatever the other side's references."""
    far = replace(track([(1e9, 1e9 + 5, 3.0)]), ref=np.array([EPOCH_US - 10**15]))
    made = CoalesceOperator(far.columns).segments(track([(1, 2, 0.1), (3, 4, 0.1)]), far)
    assert made.err["x"].tolist() == [0.0] * len(made)
    assert made.models["x"][:, 0].tolist() == [3.0, 0.1, 3.0, 0.1, 3.0]


def test_drift_is_known_where_one_side_has_all_rows() -> None:
    first, second = track([(0, 1, 1), (1, 2, 1)]), track([(5, 6, 1)])
    operator = CoalesceOperator(first.columns)
    assert operator.segments(first, second).drift["x"].tolist() == [np.inf] * 3
    assert operator.segments(first, track([])).drift["x"].tolist() == [0.0] * 2
    likely = track([(0, 2, 1)], LIKELY)
    assert operator.segments(likely, first).drift["x"].tolist() == [np.inf] * 2


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # one tuple of each side is one row: in doubt it has either value, and exists where either does
        ([(1, CERTAIN)], [(2, CERTAIN)], [(1, CERTAIN, 0.0)]),
        ([(1, LIKELY)], [(2, CERTAIN)], [(1, CERTAIN, 1.0)]),
        ([(1, POSSIBLE)], [(2, LIKELY)], [(2, LIKELY, 1.0)]),
        ([(1, POSSIBLE)], [(2, POSSIBLE)], [(1, POSSIBLE, 1.0)]),
        # several are rows of their own
        ([(1, LIKELY), (3, CERTAIN)], [(2, CERTAIN)], [(1, LIKELY, 0.0), (3, CERTAIN, 0.0)]),
        ([(1, LIKELY), (3, LIKELY)], [(2, CERTAIN)], [(1, LIKELY, 0.0), (3, LIKELY, 0.0), (2, POSSIBLE, 0.0)]),
        ([(1, POSSIBLE)], [(2, CERTAIN), (4, LIKELY)], [(1, POSSIBLE, 0.0), (2, LIKELY, 0.0), (4, LIKELY, 0.0)]),
        ([], [(2, CERTAIN), (2, LIKELY)], [(2, CERTAIN, 0.0), (2, LIKELY, 0.0)]),
    ],
)  # fmt: skip
def test_tuples_of_one_instant(first, second, expected) -> None:
    def side(values) -> Relation:
        made = track([(3, 3, value) for value, _ in values])
        return replace(made, certainty=np.array([code for _, code in values], np.uint8))

    made = CoalesceOperator(track([]).columns, tuples=True).segments(side(first), side(second))
    rows = zip(made.models["x"][:, 0], made.certainty, made.err["x"].round(9), strict=True)
    assert sorted((float(a), int(b), float(c)) for a, b, c in rows) == sorted(expected)
    assert (made.lo == 3).all()
    assert (made.hi == 3).all()


def test_tuples_at_other_instants_are_all_there() -> None:
    assert shown(track([(1, 1, 5), (4, 4, 6)]), track([(0, 0, 7), (4, 4, 8), (9, 9, 9)]), tuples=True) == [
        (0, 0, 7),
        (1, 1, 5),
        (4, 4, 6),
        (9, 9, 9),
    ]


def test_a_difference_beyond_the_range_of_floats_is_refused() -> None:
    first, second = track([(0, 2, 1.5e308)], LIKELY), track([(0, 2, -1.5e308)])
    text = refusal(lambda: CoalesceOperator(first.columns).segments(first, second), DomainError)
    assert "k='a' at" in text
    assert "scale the attributes down" in text

from __future__ import annotations

import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse.core.expression as ex
from pulse.core.columns import Columns
from pulse.core.errors import ColumnTypeError, UnknownColumnError
from pulse.operators.data.relation import Relation
from pulse.operators.relational.equi_join import (
    JoinOperator,
    all_pairs,
    equal_pairs,
    matching_pairs,
    split_condition,
)
from tests import naive
from tests.operators.relational.tracks import columns, exact_rows, key_of, relation, relations, side_by_side
from tests.strategies import SCALES, functions
from tests.strategies import Function as Pieces

R, S = ex.Column("R.id"), ex.Column("S.id")


def join_of(left: Relation, right: Relation, equal: tuple[tuple[str, str], ...] = ()) -> JoinOperator:
    return JoinOperator(equal, side_by_side(left.columns, right.columns))


def keyed(alias: str, *key: pa.Array) -> Relation:
    """Groups of these keys, none with a row."""
    names = tuple((f"{alias}.k{i}", column.type) for i, column in enumerate(key))
    return replace(
        Relation.empty(Columns(names, (f"{alias}.x",))), keys=key, offsets=np.zeros(len(key[0]) + 1, np.int64)
    )


def shift_rounding(side: Relation, name: str, own: int, both: Relation, row: int) -> Fraction:
    """What a shift of a row's coefficients to the joined row's reference may round: ``4 u k M``, nothing where it stays."""
    by = Fraction(abs(int(both.ref[row]) - int(side.ref[own])), 10**6)
    reach = Fraction(max(abs(both.lo[row]), abs(both.hi[row]))) + by
    c = [abs(Fraction(one)) for one in side.models[name][own]]
    rounded = Fraction(4 * len(c), 2**53) * sum((one * reach**j for j, one in enumerate(c)), Fraction(0))
    return rounded + Fraction(16, 2**53) * Fraction(side.err[name][own]) if by and any(c[1:]) else Fraction(0)


@given(relations("R"), relations("S"))
def test_every_pair_is_cut_into_its_cells(left: Relation, right: Relation) -> None:
    both = join_of(left, right).segments(left, right)
    expected = []
    for i, j in all_pairs(left, right):
        a, b = exact_rows(left, i), exact_rows(right, j)
        for begin, end, index in naive.align_ranges([[x[:2] for x in a], [x[:2] for x in b]], False):
            expected.append((key_of(left, i) + key_of(right, j), begin, end, a[index[0]][2], b[index[1]][2]))
    assert len(both) == len(expected)
    rows = [(g, *one) for g in range(both.groups) for one in exact_rows(both, g)]
    assert np.diff(both.offsets).all()
    lineage = both.lineage.to_arrow().to_pylist()
    for (g, begin, end, row), (key, want_begin, want_end, a, b) in zip(rows, expected, strict=True):
        assert key_of(both, g) == key
        assert max(abs(begin - want_begin), abs(end - want_end)) < 1e-2
        assert (both.unmodelled["R.flag"][row].as_py(), both.unmodelled["S.flag"][row].as_py()) == (a, b)
        assert [(one["key"], one["segment_id"]) for one in lineage[row]] == [("R", a), ("S", b)]
        assert both.certainty[row] == min(left.certainty[a], right.certainty[b])
        for side, own in ((left, a), (right, b)):
            for name in side.columns.modelled:
                size = sum(abs(c) * 1.1e6**k for k, c in enumerate(side.models[name][own]))
                added = Fraction(both.err[name][row]) - Fraction(side.err[name][own])
                assert 0 <= added <= shift_rounding(side, name, own, both, row) * (1 + Fraction(1, 10**9))
                at = (begin + end) / 2
                want = naive.piece_value(side.ref[own], side.models[name][own], at)
                got = naive.piece_value(both.ref[row], both.models[name][row], at)
                assert abs(got - want) <= 1e-14 * size
    assert dict(both.drift) == {}
    assert list(both.models) == list(both.columns.modelled)


@given(relations("R"))
def test_a_relation_joined_with_itself_goes_by_the_plans_names(own: Relation) -> None:
    plan = side_by_side(columns("R", bool(own.keys)), columns("S", bool(own.keys)))
    equal = (("R.id", "S.id"),) if own.keys else ()
    both = JoinOperator(equal, plan).segments(own, own)
    kept = own.without_empty_groups()
    assert both.columns == plan
    assert both.groups == kept.groups
    assert len(both) == len(own)
    assert np.array_equal(both.offsets, kept.offsets)
    for name in ("x", "y"):
        assert np.array_equal(both.models[f"R.{name}"], both.models[f"S.{name}"])
    assert np.array_equal(np.diff(both.lineage.offsets), np.ones(len(own)))  # one cause, not the same twice


@given(st.data(), st.sampled_from(SCALES))
def test_any_scale_of_time(data: st.DataObject, scale: tuple[int, int]) -> None:
    a, b = data.draw(functions(scale)), data.draw(functions(scale))
    zero = [(np.zeros((len(one.ref), 1)),) * 2 for one in (a, b)]
    left, right = relation("R", [a], zero[:1]), relation("S", [b], zero[1:])
    both = join_of(left, right).segments(left, right)
    assert len(both) == len(naive.align_ranges([a.ranges, b.ranges], False))


def test_no_groups_and_no_rows() -> None:
    none, one = (
        relation("R", [], []),
        relation("S", [Pieces([], *np.zeros((3, 0)))], [(np.zeros((0, 1)),) * 2]),
    )
    for left, right in ((none, one), (one, none), (one, one), (none, none)):
        both = JoinOperator((), side_by_side(columns("R"), columns("S"))).segments(left, right)
        assert (both.groups, len(both)) == (0, 0)
        assert both.to_segments().num_rows == 0


def test_a_join_pickles() -> None:
    join = JoinOperator((("R.id", "S.id"),), side_by_side(columns("R"), columns("S")))
    assert pickle.loads(pickle.dumps(join)) == join


def test_columns_must_be_those_of_the_inputs() -> None:
    left = relation("R", [], [])
    with pytest.raises(ValueError, match="expected 1 modelled attributes of both inputs together, got 4"):
        JoinOperator((), Columns(left.columns.key * 2, ("x",), left.columns.unmodelled * 2)).segments(
            left, left
        )


texts = st.lists(st.sampled_from(["", "a", "b", "ä", "日本"]), max_size=8)
numbers = st.lists(st.integers(-2, 3), max_size=8)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 3)), max_size=8), texts, numbers)
def test_equal_keys_of_any_width(rows: list[tuple[str, int]], names: list[str], whole: list[int]) -> None:
    n = min(len(names), len(whole))
    a = [[text for text, _ in rows], [number for _, number in rows]]
    b = [names[:n], whole[:n]]
    left = keyed("R", pa.array(a[0], pa.string()), pa.array(a[1], pa.int32()))
    right = keyed("S", pa.array(b[0], pa.large_string()), pa.array(b[1], pa.int64()).dictionary_encode())
    pairs = equal_pairs(left, right, (("R.k0", "S.k0"), ("R.k1", "S.k1")))
    want = [[i, j] for i in range(len(rows)) for j in range(n) if (a[0][i], a[1][i]) == (b[0][j], b[1][j])]
    assert pairs.reshape(-1, 2).tolist() == want
    assert len(equal_pairs(left, right, ())) == len(rows) * n


def test_keys_that_no_integer_type_holds_together() -> None:
    big = 2**63 + 1
    left, right = keyed("R", pa.array([big, 7], pa.uint64())), keyed("S", pa.array([-1, 7], pa.int64()))
    assert equal_pairs(left, right, (("R.k0", "S.k0"),)).tolist() == [[1, 1]]


def test_keys_that_cannot_be_compared() -> None:
    left, right = keyed("R", pa.array(["a"])), keyed("S", pa.array([1]))
    with pytest.raises(
        ColumnTypeError, match=r"R\.k0 = S\.k0: expected two comparable types, got string and int64"
    ):
        equal_pairs(left, right, (("R.k0", "S.k0"),))
    with pytest.raises(UnknownColumnError, match=r"'S\.k1'"):
        equal_pairs(left, right, (("R.k0", "S.k1"),))
    sum_of_text = ex.Comparison("<", ex.Arithmetic("+", ex.Column("R.k0"), ex.Constant(1)), ex.Constant(2))
    with pytest.raises(ColumnTypeError, match="expected numbers"):
        matching_pairs(left, right, all_pairs(left, right), sum_of_text)


PYTHON = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
}


@given(texts, texts, st.sampled_from(sorted(PYTHON)), st.sampled_from(["R", "S", "both"]))
def test_comparisons_of_texts(a: list[str], b: list[str], relation: str, sides: str) -> None:
    left, right = keyed("R", pa.array(a, pa.string())), keyed("S", pa.array(b, pa.large_string()))
    one, other = ex.Column("R.k0"), ex.Column("S.k0")
    holds = PYTHON[relation]
    condition, want = {
        "R": (ex.Comparison(relation, ex.Constant("a"), one), lambda x, y: holds(b"a", x.encode())),
        "S": (ex.Comparison(relation, other, ex.Constant("ä")), lambda x, y: holds(y.encode(), "ä".encode())),
        "both": (ex.Comparison(relation, one, other), lambda x, y: holds(x.encode(), y.encode())),
    }[sides]
    pairs = matching_pairs(left, right, all_pairs(left, right), condition)
    assert pairs.tolist() == [[i, j] for i in range(len(a)) for j in range(len(b)) if want(a[i], b[j])]


@given(numbers, numbers, st.sampled_from(sorted(PYTHON)))
def test_conditions_on_numbers(a: list[int], b: list[int], relation: str) -> None:
    left, right = keyed("R", pa.array(a, pa.int16())), keyed("S", pa.array(b, pa.int64()))
    x, y = ex.Column("R.k0"), ex.Column("S.k0")
    near = ex.Comparison("<=", ex.Function("abs", (ex.Arithmetic("-", x, y),)), ex.Constant(1))
    listed = ex.Or(tuple(ex.Comparison("=", y, ex.Constant(value)) for value in (0, 2.0, 2.5)))
    condition = ex.And((ex.Comparison(relation, x, y), ex.Or((near, ex.Not(listed), ex.FALSE)), ex.TRUE))
    pairs = matching_pairs(left, right, all_pairs(left, right), condition)
    holds = PYTHON[relation]
    assert pairs.tolist() == [
        [i, j]
        for i, u in enumerate(a)
        for j, v in enumerate(b)
        if holds(u, v) and (abs(u - v) <= 1 or v not in (0, 2))
    ]


def test_a_condition_is_split_into_keys_and_the_rest() -> None:
    unlike, modelled = ex.Comparison("!=", R, S), ex.Comparison("<", ex.Column("R.x"), ex.Column("S.x"))
    mixed = ex.Or((unlike, modelled))
    flag = ex.Comparison("=", ex.Column("R.flag"), ex.Constant(1))
    root = ex.Comparison("<", ex.Function("sqrt", (R,)), ex.Constant(3))
    both = split_condition(ex.And((mixed, unlike, flag, root, ex.TRUE)), columns("R"), columns("S"))
    assert both == (unlike, ex.And((mixed, flag, root)))
    assert split_condition(ex.TRUE, columns("R"), columns("S")) == (ex.TRUE, ex.TRUE)
    assert split_condition(ex.FALSE, columns("R"), columns("S")) == (ex.FALSE, ex.TRUE)


def test_many_pairs_go_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    names = pa.array([str(i) for i in range(20)])
    left, right = keyed("R", names), keyed("S", names)
    condition = ex.Comparison("<", ex.Column("R.k0"), ex.Column("S.k0"))
    whole = matching_pairs(left, right, all_pairs(left, right), condition)
    monkeypatch.setattr("pulse.operators.relational.equi_join._CHUNK", 7)
    assert np.array_equal(matching_pairs(left, right, all_pairs(left, right), condition), whole)
    assert len(whole) == 190

"""Filters: the solution of a predicate, apart by how sure it is, against truths within the bounds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse.core.expression as ex
from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE
from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.errors import OperandError
from pulse.operators.relational.filter import FilterOperator
from tests import naive
from tests.operators.contract import causes, check_contract, refusal, truths
from tests.strategies import EPOCH_US, relations

X, Y, U, K, N = (ex.Column(name) for name in "xyukn")


def atoms():
    constant = st.integers(-3, 6).map(ex.Constant)
    number = st.sampled_from(
        [
            X,
            Y,
            ex.Arithmetic("-", X, Y),
            ex.Arithmetic("*", X, Y),
            ex.Arithmetic("*", X, U),
            ex.Function("abs", (X,)),
            N,
        ]
    )
    square = st.just(ex.Function("distance2", (X, Y, ex.Constant(0), ex.Constant(1))))
    relation = st.sampled_from(ex.RELATIONS)
    moment = st.integers(0, 8).map(lambda s: ex.Instant(EPOCH_US + s * 1_000_000))
    return st.one_of(
        st.builds(ex.Comparison, relation, number, constant | number),
        st.builds(ex.Comparison, relation, square, st.sampled_from([-1, 0, 1, 4, 9]).map(ex.Constant)),
        st.builds(ex.Comparison, relation, st.just(ex.Column("t")), moment),
        st.builds(ex.Comparison, relation, st.just(K), st.sampled_from("abc").map(ex.Constant)),
        st.builds(ex.Comparison, relation, st.just(U), st.sampled_from([1, 2]).map(ex.Constant)),
    )


def predicates():
    return st.recursive(
        atoms(),
        lambda inner: st.one_of(
            st.builds(ex.Not, inner),
            st.builds(lambda *a: ex.And(a), inner, inner),
            st.builds(lambda *a: ex.Or(a), inner, inner),
        ),
        max_leaves=4,
    )


def certainty_at(made: Relation, group: int, at: Fraction) -> int:
    return max((int(made.certainty[row]) for row in naive.rows_at(made, group, at)), default=0)


@given(relations(codes=(1, 2, 3)), predicates())
def test_certain_is_true_for_all_truths_and_what_is_true_for_one_is_possible(
    relation: Relation, predicate: ex.Expression
) -> None:
    made = check_contract(FilterOperator(predicate, possible=True), relation, relation.columns)
    for row in range(len(relation)):
        group, limit = int(relation.group[row]), int(relation.certainty[row])
        for at in naive.instants_of(relation, row):
            holds = [
                naive.expression_value(predicate, values) is True for values in truths(relation, row, at)
            ]
            on_model = holds[len(holds) // 2]
            found = certainty_at(made, group, at)
            assert found != min(CERTAIN, limit) or limit < CERTAIN or all(holds)
            assert found >= POSSIBLE or not any(holds)
            assert (found >= min(LIKELY, limit)) == on_model or (limit == POSSIBLE and found == POSSIBLE)


@given(relations(codes=(2, 3)), predicates())
def test_without_possible_ranges_the_model_decides(relation: Relation, predicate: ex.Expression) -> None:
    made = check_contract(FilterOperator(predicate), relation, relation.columns)
    asked = FilterOperator(predicate, possible=True).segments(relation)
    for row in range(len(relation)):
        for at in naive.instants_of(relation, row):
            found = certainty_at(made, int(relation.group[row]), at)
            wider = certainty_at(asked, int(relation.group[row]), at)
            assert found == (wider if wider >= LIKELY else 0)


@given(relations(), predicates())
def test_a_result_comes_of_the_row_it_lies_in(relation: Relation, predicate: ex.Expression) -> None:
    made = FilterOperator(predicate, possible=True).segments(relation)
    for row, ids in enumerate(causes(made)):
        assert len(ids) == 1
        begin, end = naive.row_span(relation, ids[0])
        a, b = naive.row_span(made, row)
        assert begin - Fraction(1, 1000) <= a <= b <= end + Fraction(1, 1000)


def one_row(
    c: list[float], err: float = 0.0, lo: float = 0.0, hi: float = 4.0, ref: int = EPOCH_US
) -> Relation:
    one = np.array([err])
    return Relation(
        Columns((), ("x",)),
        (),
        np.array([0, 1]),
        np.array([ref]),
        np.array([lo]),
        np.array([hi]),
        {"x": np.array([c])},
        {"x": one},
        {"x": one},
        np.array([CERTAIN], np.uint8),
    )


def spans(relation: Relation) -> list[tuple[float, float, int]]:
    return list(zip(relation.lo.tolist(), relation.hi.tolist(), relation.certainty.tolist(), strict=True))


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        ("<", []),
        ("<=", [(2.0, 2.0)]),
        ("=", [(2.0, 2.0)]),
        ("!=", [(0.0, 2.0), (2.0, 4.0)]),
        (">=", [(0.0, 4.0)]),
        (">", [(0.0, 2.0), (2.0, 4.0)]),
    ],
)
def test_a_touching_root(relation: str, expected: list[tuple[float, float]]) -> None:
    made = FilterOperator(ex.Comparison(relation, X, ex.Constant(0))).segments(one_row([4.0, -4.0, 1.0]))
    assert [(lo, hi) for lo, hi, _ in spans(made)] == expected


def test_equality_on_constants_holds_throughout() -> None:
    made = FilterOperator(ex.Comparison("=", X, ex.Constant(5))).segments(one_row([5.0]))
    assert spans(made) == [(0.0, 4.0, CERTAIN)]
    assert "x" in made.drift  # nothing was cut off


def test_equal_models_are_equal_though_rounding_moved_one() -> None:
    relation = one_row([0.1, 0.3, 0.7])
    moved = relation.take(
        np.array([0]), ref=relation.ref + 777_777, lo=relation.lo - 0.777777, hi=relation.hi - 0.777777
    )
    back = moved.take(np.array([0]), ref=relation.ref, lo=relation.lo, hi=relation.hi)
    both = replace(
        relation,
        columns=Columns((), ("x", "y")),
        models={"x": relation.models["x"], "y": back.models["x"]},
        err={"x": relation.err["x"], "y": relation.err["x"]},
        drift={},
    )
    assert spans(FilterOperator(ex.Comparison("=", X, Y)).segments(both)) == [(0.0, 4.0, CERTAIN)]


def test_the_three_parts_of_a_crossing() -> None:
    made = FilterOperator(ex.Comparison("<", X, ex.Constant(2)), possible=True).segments(
        one_row([0.0, 1.0], 0.5)
    )
    assert [code for *_, code in spans(made)] == [CERTAIN, LIKELY, POSSIBLE]
    # Ends move inwards, or outwards, by what rounding may do to the values there.
    assert [end for _, end, _ in spans(made)] == pytest.approx([1.5, 2.0, 2.5], abs=1e-13)
    assert made.hi[0] <= 1.5
    assert made.hi[2] >= 2.5
    assert np.isinf(made.drift["x"]).all()


def test_a_point_is_decided_by_its_value() -> None:
    point = one_row([0.0, 1.0], 0.5, lo=2.0, hi=2.0)

    def ask(level):
        return spans(FilterOperator(ex.Comparison("<", X, ex.Constant(level)), possible=True).segments(point))

    assert ask(3.0) == [(2.0, 2.0, CERTAIN)]
    assert ask(2.25) == [(2.0, 2.0, LIKELY)]
    assert ask(1.75) == [(2.0, 2.0, POSSIBLE)]
    assert ask(1.5 - 1e-14) == []


def test_a_dip_too_short_to_be_a_range_is_a_point() -> None:
    # Below zero for 2e-10 seconds about 2.
    made = FilterOperator(ex.Comparison("<", X, ex.Constant(0))).segments(one_row([4.0 - 1e-20, -4.0, 1.0]))
    assert len(made) <= 1
    made = FilterOperator(ex.Comparison("<", X, ex.Constant(0))).segments(one_row([-1e-10, 1.0], lo=0.0))
    assert spans(made)[0][:2] == pytest.approx((5e-11, 5e-11))


def test_distance_is_compared_exactly_for_every_truth() -> None:
    relation = replace(
        one_row([3.0]),
        columns=Columns((), ("x", "y")),
        models={"x": np.array([[0.0, 1.0]]), "y": np.array([[0.0]])},
        err={"x": np.array([0.3]), "y": np.array([0.4])},
        drift={},
    )
    for name, level in (("distance", 2.0), ("distance2", 4.0)):
        predicate = ex.Comparison(
            "<", ex.Function(name, (X, Y, ex.Constant(0), ex.Constant(0))), ex.Constant(level)
        )
        made = FilterOperator(predicate, possible=True).segments(relation)
        assert [code for *_, code in spans(made)] == [CERTAIN, LIKELY, POSSIBLE]
        assert [end for _, end, _ in spans(made)] == pytest.approx([1.5, 2.0, 2.5], abs=1e-13)
    never = ex.Comparison(
        "<", ex.Function("distance", (X, Y, ex.Constant(0), ex.Constant(0))), ex.Constant(-1)
    )
    assert len(FilterOperator(never, possible=True).segments(relation)) == 0
    assert spans(FilterOperator(ex.Not(never)).segments(relation)) == [(0.0, 4.0, CERTAIN)]


def test_far_from_the_reference() -> None:
    far = one_row([-(1e9 + 2.0), 1.0], lo=1e9, hi=1e9 + 4.0)
    made = FilterOperator(ex.Comparison(">", X, ex.Constant(0))).segments(far)
    assert spans(made) == [(1e9 + 2.0, 1e9 + 4.0, CERTAIN)]


def test_true_changes_nothing() -> None:
    relation = one_row([1.0])
    assert FilterOperator(ex.TRUE).segments(relation) is relation


def test_what_cannot_be_compared_is_reported() -> None:
    relation = replace(
        one_row([1.0]), columns=Columns((("k", pa.string()),), ("x",)), keys=(pa.array(["a"]),)
    )
    text = refusal(
        lambda: FilterOperator(ex.Comparison("<", K, ex.Constant(3))).segments(relation), OperandError
    )
    assert "k < 3" in text
    assert "string" in text
    text = refusal(
        lambda: FilterOperator(ex.Comparison("<", ex.Column("t"), ex.Constant(3))).segments(relation),
        OperandError,
    )
    assert "instant" in text
    text = refusal(
        lambda: FilterOperator(ex.Comparison("<", X, ex.Constant("a"))).segments(relation), OperandError
    )
    assert "expected a number" in text

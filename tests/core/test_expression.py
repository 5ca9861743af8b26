"""Expressions: compared by structure, taken apart and put together again, printed as they are read."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse.core.expression as ex
from pulse.operators.functions.registry import SCALARS

X, Y, K = ex.Column("S.x"), ex.Column("S.y"), ex.Column("S.k")

leaves = st.one_of(
    st.sampled_from([X, Y, K, ex.Elapsed(), ex.Parameter("p"), ex.Instant(1_600_000_000_000_000)]),
    st.builds(ex.Constant, st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from(["a", "", True])),
)


def _functions(parts: st.SearchStrategy[ex.Expression]) -> st.SearchStrategy[ex.Expression]:
    return st.sampled_from(list(SCALARS.values())).flatmap(
        lambda one: st.tuples(*[parts] * one.arity).map(lambda arguments: ex.Function(one.name, arguments))
    )


numbers = st.recursive(
    leaves,
    lambda parts: st.one_of(
        st.builds(ex.Arithmetic, st.sampled_from("+-*/^"), parts, parts),
        st.builds(ex.Negative, parts),
        _functions(parts),
    ),
    max_leaves=8,
)
predicates = st.recursive(
    st.builds(ex.Comparison, st.sampled_from(ex.RELATIONS), numbers, numbers)
    | st.sampled_from([ex.TRUE, ex.FALSE]),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3).map(lambda ps: ex.And(tuple(ps))),
        st.lists(parts, max_size=3).map(lambda ps: ex.Or(tuple(ps))),
        st.builds(ex.Not, parts),
    ),
    max_leaves=6,
)
expressions = numbers | predicates


@given(expressions)
def test_parts_make_the_whole(expression):
    assert expression.with_parts(expression.parts) == expression
    assert ex.transform(expression, lambda e: e) == expression
    again = pickle.loads(pickle.dumps(expression))
    assert again == expression
    assert hash(again) == hash(expression)


@given(expressions)
def test_walked_are_all_parts_and_their_columns_known(expression):
    met = list(ex.walk(expression))
    assert met[0] is expression
    assert len(met) == 1 + sum(len(list(ex.walk(part))) for part in expression.parts)
    assert ex.columns_of(expression) == {e.name for e in met if isinstance(e, ex.Column)}


@given(expressions)
def test_columns_are_replaced_at_once(expression):
    """Two names swapped: what was put in is not replaced again."""
    swapped = ex.renamed(expression, {"S.x": Y, "S.y": X})
    swap = {"S.x": "S.y", "S.y": "S.x"}
    assert ex.columns_of(swapped) == {swap.get(name, name) for name in ex.columns_of(expression)}
    assert ex.renamed(swapped, {"S.x": Y, "S.y": X}) == expression
    assert ex.renamed(expression, {}) == expression


@given(st.lists(predicates, max_size=4))
def test_a_conjunction_is_flat(given_):
    whole = ex.all_of(given_)
    parts = ex.conjuncts(whole)
    assert parts == tuple(one for predicate in given_ for one in ex.conjuncts(predicate))
    assert not any(isinstance(part, ex.And) or part == ex.TRUE for part in parts)
    assert (whole == ex.TRUE) == (not parts)


def test_relations_turned_round_and_denied():
    holds = {"<": [-1], "<=": [-1, 0], "=": [0], "!=": [-1, 1], ">=": [0, 1], ">": [1]}
    for relation in ex.RELATIONS:
        assert sorted(-sign for sign in holds[relation]) == holds[ex.FLIPPED[relation]]
        assert sorted({-1, 0, 1} - set(holds[relation])) == holds[ex.NEGATED[relation]]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (ex.Arithmetic("+", X, ex.Constant(2.5)), "(S.x + 2.5)"),
        (ex.Negative(ex.Constant(3)), "-3"),
        (ex.Function("distance2", (X, Y, X, ex.Constant(1e9))), "distance2(S.x, S.y, S.x, 1e+09)"),
        (ex.Comparison("!=", K, ex.Constant("a")), "S.k != 'a'"),
        (ex.And((ex.Comparison("<", X, Y), ex.Or(()))), "(S.x < S.y and ())"),
        (ex.Or((ex.TRUE, ex.Not(ex.FALSE))), "(True or not False)"),
        (
            ex.Comparison(">=", ex.Column("S.t"), ex.Instant(1_600_000_000_000_000)),
            "S.t >= '2020-09-13T12:26:40.000000Z'",
        ),
        (ex.Arithmetic("*", ex.Elapsed(), ex.Parameter("v")), "(t * :v)"),
    ],
)
def test_printed(expression, text):
    assert str(expression) == text

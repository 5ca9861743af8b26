"""Expressions: compared by structure, taken apart and put together again, printed as they are read."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.expression import (
    FALSE,
    FLIPPED,
    NEGATED,
    RELATIONS,
    TRUE,
    And,
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Elapsed,
    Expression,
    Function,
    Instant,
    Negative,
    Not,
    Or,
    Parameter,
    all_of,
    columns_of,
    conjuncts,
    renamed,
    transform,
    walk,
)
from pulse.operators.functions.registry import SCALARS

X, Y, K = Column("S.x"), Column("S.y"), Column("S.k")

leaves = st.one_of(
    st.sampled_from([X, Y, K, Elapsed(), Parameter("p"), Instant(1_600_000_000_000_000)]),
    st.builds(Constant, st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from(["a", "", True])),
)


def _functions(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.sampled_from(list(SCALARS.values())).flatmap(
        lambda one: st.tuples(*[parts] * one.arity).map(lambda arguments: Function(one.name, arguments))
    )


numbers = st.recursive(
    leaves,
    lambda parts: st.one_of(
        st.builds(Arithmetic, st.sampled_from("+-*/^"), parts, parts),
        st.builds(Negative, parts),
        _functions(parts),
    ),
    max_leaves=8,
)
predicates = st.recursive(
    st.builds(Comparison, st.sampled_from(RELATIONS), numbers, numbers) | st.sampled_from([TRUE, FALSE]),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3).map(lambda ps: And(tuple(ps))),
        st.lists(parts, max_size=3).map(lambda ps: Or(tuple(ps))),
        st.builds(Not, parts),
    ),
    max_leaves=6,
)
expressions = numbers | predicates


@given(expressions)
def test_parts_make_the_whole(expression):
    assert expression.with_parts(expression.parts) == expression
    assert transform(expression, lambda e: e) == expression
    again = pickle.loads(pickle.dumps(expression))
    assert again == expression
    assert hash(again) == hash(expression)


@given(expressions)
def test_walked_are_all_parts_and_their_columns_known(expression):
    met = list(walk(expression))
    assert met[0] is expression
    assert len(met) == 1 + sum(len(list(walk(part))) for part in expression.parts)
    assert columns_of(expression) == {e.name for e in met if isinstance(e, Column)}


@given(expressions)
def test_columns_are_replaced_at_once(expression):
    """Two names swapped: what was put in is not replaced again."""
    swapped = renamed(expression, {"S.x": Y, "S.y": X})
    swap = {"S.x": "S.y", "S.y": "S.x"}
    assert columns_of(swapped) == {swap.get(name, name) for name in columns_of(expression)}
    assert renamed(swapped, {"S.x": Y, "S.y": X}) == expression
    assert renamed(expression, {}) == expression


@given(st.lists(predicates, max_size=4))
def test_a_conjunction_is_flat(given_):
    whole = all_of(given_)
    parts = conjuncts(whole)
    assert parts == tuple(one for predicate in given_ for one in conjuncts(predicate))
    assert not any(isinstance(part, And) or part == TRUE for part in parts)
    assert (whole == TRUE) == (not parts)


def test_relations_turned_round_and_denied():
    holds = {"<": [-1], "<=": [-1, 0], "=": [0], "!=": [-1, 1], ">=": [0, 1], ">": [1]}
    for relation in RELATIONS:
        assert sorted(-sign for sign in holds[relation]) == holds[FLIPPED[relation]]
        assert sorted({-1, 0, 1} - set(holds[relation])) == holds[NEGATED[relation]]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (Arithmetic("+", X, Constant(2.5)), "(S.x + 2.5)"),
        (Negative(Constant(3)), "-3"),
        (Function("distance2", (X, Y, X, Constant(1e9))), "distance2(S.x, S.y, S.x, 1e+09)"),
        (Comparison("!=", K, Constant("a")), "S.k != 'a'"),
        (And((Comparison("<", X, Y), Or(()))), "(S.x < S.y and ())"),
        (Or((TRUE, Not(FALSE))), "(True or not False)"),
        (
            Comparison(">=", Column("S.t"), Instant(1_600_000_000_000_000)),
            "S.t >= '2020-09-13T12:26:40.000000Z'",
        ),
        (Arithmetic("*", Elapsed(), Parameter("v")), "(t * :v)"),
    ],
)
def test_printed(expression, text):
    assert str(expression) == text

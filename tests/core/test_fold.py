"""Folds: one value for each kind of node, and negations pushed down to what has an opposite."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse.core.expression as ex
from pulse.core.fold import Domain, negated

X = ex.Column("x")
ONE_OF_EACH = (
    (X, "column"),
    (ex.Constant(1), "constant"),
    (ex.Parameter("p"), "parameter"),
    (ex.Elapsed(), "elapsed"),
    (ex.Negative(X), "negative"),
    (ex.Arithmetic("+", X, X), "arithmetic"),
    (ex.Function("f", (X, X)), "function"),
    (ex.Comparison("<", X, X), "comparison"),
    (ex.And((X,)), "conjunction"),
    (ex.Or((X,)), "disjunction"),
    (ex.Not(X), "negation"),
    (ex.Instant(0), "other"),
)


@pytest.mark.parametrize(("expression", "method"), ONE_OF_EACH)
def test_each_kind_of_node_has_its_method(expression: ex.Expression, method: str) -> None:
    asked: list[tuple[str, ex.Expression]] = []

    class Asked(Domain[None]):
        def __getattribute__(self, name: str) -> object:
            if name not in {one for _, one in ONE_OF_EACH}:
                return super().__getattribute__(name)
            return lambda e, *values: asked.append((name, e))

    Asked().fold(expression)
    assert asked[-1] == (method, expression)
    below = 0 if method == "comparison" else len(expression.parts)
    assert asked[:-1] == [("column", X)] * below


@pytest.mark.parametrize("expression", [one for one, name in ONE_OF_EACH if name != "parameter"])
def test_what_a_domain_does_not_define_is_refused_by_name(expression: ex.Expression) -> None:
    with pytest.raises(TypeError, match="expected no"):
        Domain[int]().fold(expression)


def test_a_parameter_must_be_bound() -> None:
    with pytest.raises(AssertionError, match="not bound"):
        Domain[int]().fold(ex.Negative(ex.Parameter("p")))


comparisons = st.builds(
    ex.Comparison, st.sampled_from(ex.RELATIONS), st.just(X), st.builds(ex.Constant, st.integers(0, 3))
)
predicates = st.recursive(
    comparisons | st.builds(ex.Constant, st.booleans()),
    lambda parts: st.one_of(
        st.builds(ex.Not, parts),
        st.builds(ex.And, st.tuples(parts, parts)),
        st.builds(ex.Or, st.tuples(parts, parts)),
    ),
    max_leaves=6,
)


class At(Domain[bool]):
    """Whether a predicate holds where x has a value."""

    def __init__(self, x: int) -> None:
        self.x = x

    def constant(self, e: ex.Constant) -> bool:
        return bool(e.value)

    def comparison(self, e: ex.Comparison) -> bool:
        return bool(ex.HOLDS[e.relation](self.x, ex.number_of(e.right)))

    def conjunction(self, e: ex.And, operands: list[bool]) -> bool:
        return all(operands)

    def disjunction(self, e: ex.Or, operands: list[bool]) -> bool:
        return any(operands)

    def negation(self, e: ex.Not, operand: bool) -> bool:
        return not operand


@given(predicates, st.integers(-1, 4))
def test_a_negation_is_the_opposite_everywhere(predicate: ex.Expression, x: int) -> None:
    assert At(x).fold(negated(predicate)) is not At(x).fold(predicate)


@given(predicates)
def test_negating_twice_adds_no_negation(predicate: ex.Expression) -> None:
    plain = negated(negated(predicate))
    assert sum(isinstance(one, ex.Not) for one in ex.walk(plain)) <= sum(
        isinstance(one, ex.Not) for one in ex.walk(predicate)
    )


def test_only_what_has_no_opposite_gets_a_not() -> None:
    assert negated(X) == ex.Not(X)
    assert negated(ex.Not(X)) == X
    assert negated(ex.Parameter("p")) == ex.Not(ex.Parameter("p"))


@given(comparisons, st.integers(-1, 4))
def test_a_constant_goes_last(comparison: ex.Comparison, x: int) -> None:
    flipped = ex.Comparison(
        {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(comparison.relation, comparison.relation),
        comparison.right,
        comparison.left,
    )
    assert flipped.with_constant_last == comparison
    assert comparison.with_constant_last is comparison

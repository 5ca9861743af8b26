"""The normal form of predicates, and what is asked of it."""

from __future__ import annotations

import pytest

from pulse.core.columns import Columns
from pulse.core.expression import (
    FALSE,
    TRUE,
    And,
    Column,
    Comparison,
    Constant,
    Expression,
    Instant,
    Not,
    Or,
    Parameter,
)
from pulse.operators.errors import OperandError
from pulse.operators.expressions.predicates import (
    Truth,
    compares_keys,
    comparisons_of,
    equates_model,
    only_mentions,
    positive,
)

X, K = Column("x"), Column("k")
LOW, HIGH = Comparison("<", X, Constant(1)), Comparison(">=", X, Constant(1))


@pytest.mark.parametrize(
    ("predicate", "plain"),
    [
        (Not(LOW), HIGH),
        (Not(And((LOW, Not(K)))), Or((HIGH, Comparison("=", K, TRUE)))),
        (Not(Not(K)), Comparison("=", K, TRUE)),
        (Not(K), Comparison("!=", K, TRUE)),
        (Or((Not(TRUE), LOW)), Or((FALSE, LOW))),
        (And(()), And(())),
        (Not(Or(())), And(())),
    ],
)
def test_negations_are_pushed_down(predicate: Expression, plain: Expression) -> None:
    assert positive(predicate) == plain
    assert positive(plain) == plain


@pytest.mark.parametrize("wrong", [Constant(3), Constant("a"), Instant(0), And((LOW, Constant(1)))])
def test_what_is_no_predicate_is_refused(wrong: Expression) -> None:
    with pytest.raises(OperandError, match="expected a predicate"):
        positive(wrong)


class Counted(Truth[str]):
    """Truths as text, to see what is combined."""

    def always(self, value: bool) -> str:
        return str(value)

    def both(self, a: str, b: str) -> str:
        return f"({a}&{b})"

    def either(self, a: str, b: str) -> str:
        return f"({a}|{b})"

    def comparison(self, e: Comparison) -> str:
        return e.relation


def test_operands_are_combined_from_left_to_right() -> None:
    assert Counted().fold(And((LOW, HIGH, Or((LOW, HIGH))))) == "((<&>=)&(<|>=))"
    assert Counted().fold(And((LOW,))) == "<"
    assert (Counted().fold(And(())), Counted().fold(Or(()))) == ("True", "False")


def test_comparisons_are_listed_once() -> None:
    assert comparisons_of(And((LOW, Or((HIGH, LOW))))) == (LOW, HIGH)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Comparison("=", K, Constant("a")), True),
        (Comparison("<", Parameter("p"), K), True),
        (Not(Or((Comparison("=", K, Constant("a")), Comparison("!=", K, Parameter("p"))))), True),
        (And((Comparison("=", K, Constant("a")), LOW)), False),
        (Comparison("=", K, K), False),
        (Comparison("=", Constant(1), Constant(1)), False),
        (TRUE, False),
        (K, False),
        (Parameter("p"), False),
    ],
)
def test_comparisons_of_keys_with_constants(predicate: Expression, expected: bool) -> None:
    assert compares_keys(predicate, ("k",)) is expected


def test_columns_that_predicates_mention() -> None:
    columns = Columns((), ("x",))
    assert only_mentions(LOW, ("x", "k"))
    assert not only_mentions(And((LOW, K)), ("x",))
    assert equates_model(Not(Comparison("=", X, Constant(1))), columns)
    assert not equates_model(And((LOW, Comparison("=", K, Constant(1)))), columns)

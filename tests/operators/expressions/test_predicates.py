"""The normal form of predicates, and what is asked of it."""

from __future__ import annotations

import pytest

import pulse.core.expression as ex
from pulse.core.columns import Columns
from pulse.operators.errors import OperandError
from pulse.operators.expressions.predicates import (
    Truth,
    compares_keys,
    comparisons_of,
    equates_model,
    only_mentions,
    positive,
)

X, K = ex.Column("x"), ex.Column("k")
LOW, HIGH = ex.Comparison("<", X, ex.Constant(1)), ex.Comparison(">=", X, ex.Constant(1))


@pytest.mark.parametrize(
    ("predicate", "plain"),
    [
        (ex.Not(LOW), HIGH),
        (ex.Not(ex.And((LOW, ex.Not(K)))), ex.Or((HIGH, ex.Comparison("=", K, ex.TRUE)))),
        (ex.Not(ex.Not(K)), ex.Comparison("=", K, ex.TRUE)),
        (ex.Not(K), ex.Comparison("!=", K, ex.TRUE)),
        (ex.Or((ex.Not(ex.TRUE), LOW)), ex.Or((ex.FALSE, LOW))),
        (ex.And(()), ex.And(())),
        (ex.Not(ex.Or(())), ex.And(())),
    ],
)
def test_negations_are_pushed_down(predicate: ex.Expression, plain: ex.Expression) -> None:
    assert positive(predicate) == plain
    assert positive(plain) == plain


@pytest.mark.parametrize(
    "wrong", [ex.Constant(3), ex.Constant("a"), ex.Instant(0), ex.And((LOW, ex.Constant(1)))]
)
def test_what_is_no_predicate_is_refused(wrong: ex.Expression) -> None:
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

    def comparison(self, e: ex.Comparison) -> str:
        return e.relation


def test_operands_are_combined_from_left_to_right() -> None:
    assert Counted().fold(ex.And((LOW, HIGH, ex.Or((LOW, HIGH))))) == "((<&>=)&(<|>=))"
    assert Counted().fold(ex.And((LOW,))) == "<"
    assert (Counted().fold(ex.And(())), Counted().fold(ex.Or(()))) == ("True", "False")


def test_comparisons_are_listed_once() -> None:
    assert comparisons_of(ex.And((LOW, ex.Or((HIGH, LOW))))) == (LOW, HIGH)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (ex.Comparison("=", K, ex.Constant("a")), True),
        (ex.Comparison("<", ex.Parameter("p"), K), True),
        (
            ex.Not(
                ex.Or((ex.Comparison("=", K, ex.Constant("a")), ex.Comparison("!=", K, ex.Parameter("p"))))
            ),
            True,
        ),
        (ex.And((ex.Comparison("=", K, ex.Constant("a")), LOW)), False),
        (ex.Comparison("=", K, K), False),
        (ex.Comparison("=", ex.Constant(1), ex.Constant(1)), False),
        (ex.TRUE, False),
        (K, False),
        (ex.Parameter("p"), False),
    ],
)
def test_comparisons_of_keys_with_constants(predicate: ex.Expression, expected: bool) -> None:
    assert compares_keys(predicate, ("k",)) is expected


def test_columns_that_predicates_mention() -> None:
    columns = Columns((), ("x",))
    assert only_mentions(LOW, ("x", "k"))
    assert not only_mentions(ex.And((LOW, K)), ("x",))
    assert equates_model(ex.Not(ex.Comparison("=", X, ex.Constant(1))), columns)
    assert not equates_model(ex.And((LOW, ex.Comparison("=", K, ex.Constant(1)))), columns)

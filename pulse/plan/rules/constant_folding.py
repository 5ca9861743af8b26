"""Fold constants: ``5 > x`` and ``2 * 3 = 6`` become ``x < 5`` and true."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence

from pulse.core.expression import (
    FALSE,
    FLIPPED,
    HOLDS,
    TRUE,
    And,
    Arithmetic,
    Case,
    Comparison,
    Constant,
    Expression,
    Function,
    Instant,
    Negative,
    Not,
    Or,
    Parameter,
    number_of,
)
from pulse.core.fold import Domain, negated
from pulse.operators.functions.registry import rules_of
from pulse.operators.node import Node
from pulse.operators.node import transform as transform_plan

_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": operator.pow,
}


def constant_folding(plan: Node) -> Node:
    """Fold constant parts of all expressions and normalise them.

    Neutral operands (``x + 0``, ``x * 1``, ``x ^ 1``) are dropped, constants move to the right of comparisons, and ``not`` down
    to the comparisons (certainty allows it: semantics 3.9 is symmetric under negation).

    Expressions without a finite value (``1 / 0``) stay, for the operator to report with their place.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> print(show(constant_folding(Filter(scan, Comparison(">", Arithmetic("*", Constant(2), Constant(3)), Column("S.x"))))))
    Filter S.x < 6
      Scan S as S
    """
    return transform_plan(plan, lambda node: node.change_predicates(folded).change_outputs(folded))


def folded(expression: Expression) -> Expression:
    """Fold the constant parts of an expression.

    >>> str(folded(Not(Comparison("<", Constant(1), Parameter("x")))))
    ':x <= 1'
    """
    return _Folded().fold(expression)


class _Folded(Domain[Expression]):
    """Expressions in normal form, from parts in normal form."""

    def negative(self, e: Negative, operand: Expression) -> Expression:
        return (
            operand.operand if isinstance(operand, Negative) else _computed(operator.neg, Negative(operand))
        )

    def arithmetic(self, e: Arithmetic, left: Expression, right: Expression) -> Expression:
        a, b = number_of(left), number_of(right)
        if a is not None and b is not None:
            return _computed(_ARITHMETIC[e.op], Arithmetic(e.op, left, right))
        match e.op:
            case "+" if a == 0:
                return right
            case "-" if a == 0:
                return self.negative(Negative(right), right)
            case "*" if a == 1:
                return right
            case "+" | "-" if b == 0:
                return left
            case "*" | "/" | "^" if b == 1:
                return left
        return Arithmetic(e.op, left, right)

    def function(self, e: Function, arguments: Sequence[Expression]) -> Expression:
        return _computed(rules_of(e).of_numbers, e.with_parts(tuple(arguments)))

    def comparison(self, e: Comparison) -> Expression:
        return _compared(Comparison(e.relation, self.fold(e.left), self.fold(e.right)))

    def case(self, e: Case) -> Expression:
        condition = self.fold(e.condition)
        if is_truth(condition, True) or is_truth(condition, False):
            return self.fold(e.value if is_truth(condition, True) else e.otherwise)
        return Case(condition, self.fold(e.value), self.fold(e.otherwise))

    def conjunction(self, e: And, operands: Sequence[Expression]) -> Expression:
        return _joined(And, operands, neutral=TRUE, decisive=FALSE)

    def disjunction(self, e: Or, operands: Sequence[Expression]) -> Expression:
        return _joined(Or, operands, neutral=FALSE, decisive=TRUE)

    def negation(self, e: Not, operand: Expression) -> Expression:
        return negated(operand)

    def parameter(self, e: Parameter) -> Expression:
        return e

    def other(self, e: Expression) -> Expression:
        return e


def is_truth(e: Expression, value: bool) -> bool:
    """Check whether an expression is the constant true, or false. (Constants compare as Python's: 1 equals True.)"""
    return isinstance(e, Constant) and e.value is value


def _computed(function: Callable[..., float], e: Expression) -> Expression:
    """Return the value of a function if all its arguments are numbers and it is finite; else the expression."""
    values = [number_of(part) for part in e.parts]
    if None in values:
        return e
    try:
        result = function(*values)
        finite = not isinstance(result, complex) and math.isfinite(result)
    except (ArithmeticError, ValueError):  # 1/0, sqrt(-1), 10.0^1000: not a number
        return e
    return Constant(result) if finite else e


def _compared(e: Comparison) -> Expression:
    left, right = e.left, e.right
    if isinstance(left, Instant) and isinstance(right, Instant):
        return Constant(HOLDS[e.relation](left.microseconds, right.microseconds))
    if isinstance(left, Constant) and isinstance(right, Constant):
        a, b = left.value, right.value
        if None not in (number_of(left), number_of(right)) or type(a) is type(b):
            return Constant(HOLDS[e.relation](a, b))
        return e
    fixed = (Constant, Instant, Parameter)
    if isinstance(left, fixed) and not isinstance(right, fixed):
        return Comparison(FLIPPED[e.relation], right, left)
    if isinstance(left, (Constant, Instant)) and isinstance(right, Parameter):
        return Comparison(FLIPPED[e.relation], right, left)
    return e


def _joined(
    kind: type[And] | type[Or], operands: Iterable[Expression], *, neutral: Constant, decisive: Constant
) -> Expression:
    """Flatten and deduplicate operands, without neutral ones; return the decisive one alone if present."""
    kept: dict[Expression, None] = {}
    for operand in operands:
        for one in operand.operands if isinstance(operand, kind) else (operand,):
            if is_truth(one, bool(decisive.value)):
                return decisive
            if not is_truth(one, bool(neutral.value)):
                kept[one] = None
    return neutral if not kept else next(iter(kept)) if len(kept) == 1 else kind(tuple(kept))

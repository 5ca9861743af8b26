"""Fold constants: ``5 > x`` and ``2 * 3 = 6`` become ``x < 5`` and true."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

from pulse.core.expression import (
    FALSE,
    FLIPPED,
    TRUE,
    And,
    Arithmetic,
    Comparison,
    Constant,
    Expression,
    Function,
    Instant,
    Negative,
    Not,
    Or,
    Parameter,
    transform,
)
from pulse.core.fold import negated
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
_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
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
    return transform(expression, _fold_one)


def _fold_one(e: Expression) -> Expression:
    match e:
        case Arithmetic(op, Constant(a), Constant(b)) if _number(a) and _number(b):
            return _computed(_ARITHMETIC[op], (a, b), e)
        case Arithmetic():
            return _without_neutral(e)
        case Negative(Constant(a)) if _number(a):
            return _computed(operator.neg, (a,), e)
        case Negative(Negative(inner)):
            return inner
        case Function(_, arguments):
            values = [argument.value for argument in arguments if isinstance(argument, Constant)]
            if len(values) == len(arguments) and all(map(_number, values)):
                return _computed(rules_of(e).of_numbers, tuple(values), e)
            return e
        case Comparison():
            return _compared(e)
        case Not():
            return negated(e.operand)
        case And():
            return _joined(And, e.operands, neutral=TRUE, decisive=FALSE)
        case Or():
            return _joined(Or, e.operands, neutral=FALSE, decisive=TRUE)
    return e


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is(e: Expression, value: float) -> bool:
    return isinstance(e, Constant) and _number(e.value) and e.value == value


def is_truth(e: Expression, value: bool) -> bool:
    """Check whether an expression is the constant true, or false. (Constants compare as Python's: 1 equals True.)"""
    return isinstance(e, Constant) and e.value is value


def _computed(function: Callable[..., float], values: tuple[object, ...], e: Expression) -> Expression:
    try:
        result = function(*values)
        finite = not isinstance(result, complex) and math.isfinite(result)
    except (ArithmeticError, ValueError):  # 1/0, sqrt(-1), 10.0^1000: not a number
        return e
    return Constant(result) if finite else e


def _without_neutral(e: Arithmetic) -> Expression:
    match e.op:
        case "+" if _is(e.left, 0):
            return e.right
        case "-" if _is(e.left, 0):
            return _fold_one(Negative(e.right))
        case "*" if _is(e.left, 1):
            return e.right
        case "+" | "-" if _is(e.right, 0):
            return e.left
        case "*" | "/" | "^" if _is(e.right, 1):
            return e.left
    return e


def _compared(e: Comparison) -> Expression:
    left, right = e.left, e.right
    if isinstance(left, Instant) and isinstance(right, Instant):
        return Constant(_RELATIONS[e.relation](left.microseconds, right.microseconds))
    if isinstance(left, Constant) and isinstance(right, Constant):
        a, b = left.value, right.value
        if (_number(a) and _number(b)) or (type(a) is type(b)):
            return Constant(_RELATIONS[e.relation](a, b))
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

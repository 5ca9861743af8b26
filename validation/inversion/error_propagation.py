"""Propagate errors of columns to errors of expressions on them (semantics 4.2).

The rules of :mod:`pulse.operators.expressions.on_segments` and :mod:`pulse.operators.functions` as functions of the
columns' errors alone: the models are evaluated once, and the inputs of the rules (the range of every part, and the approximation
errors) are kept. The inverse, from a bound to shares of it, is :mod:`pulse.validation.inversion.apportion`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.bounds import SHARE
from pulse.core.expression import (
    Arithmetic,
    Case,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    Negative,
    columns_of,
    number_of,
    transform,
    walk,
)
from pulse.core.fold import Domain
from pulse.kernels.polynomial.extrema import bounds
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError
from pulse.operators.expressions.linear_terms import linear_terms
from pulse.operators.expressions.on_segments import Evaluation, without_hidden
from pulse.operators.expressions.predicates import Truth, comparisons_of, positive
from pulse.operators.expressions.solve import solve
from pulse.operators.functions.reciprocal import reciprocal_error
from pulse.operators.functions.registry import rules_of
from pulse.operators.inversion.needs import group_max, group_min

_ROW = "#row"

Errors = Mapping[str, FloatArray]
"""Per column the bound of its error in each row; a missing column has no error."""


class Forward:
    """Expressions over a relation, evaluated once; computes their errors for any errors of the columns.

    ``relation`` is cut as the expressions need it; ``row`` maps each of its rows to the original row.
    """

    def __init__(self, relation: Relation, expressions: Sequence[Expression], operator: str) -> None:
        self.expressions = tuple(transform(one, _as_product) for one in expressions)
        self._lifted = any(_is_approximated(part) for one in self.expressions for part in walk(one))
        traced = {**relation.unmodelled, _ROW: pa.array(np.arange(len(relation)))}
        exact = {name: np.zeros(len(relation)) for name in relation.columns.modelled}
        try:
            self._work = self._evaluated(replace(relation, err=exact, drift={}, unmodelled=traced), operator)
        except DomainError:  # a root of a value below zero by no more than its error
            self._work = self._evaluated(replace(relation, drift={}, unmodelled=traced), operator)
        self.relation = self._work.relation
        self.row: IntArray = self.relation.unmodelled[_ROW].to_numpy()
        self._ranges: dict[str, tuple[FloatArray, FloatArray]] = {}
        self._added: dict[Expression, FloatArray] = {}

    def _evaluated(self, relation: Relation, operator: str) -> Evaluation:
        work = Evaluation(relation, operator, null=1.0)
        work.near()  # rounding is proportional to the times that are multiplied
        for expression in self.expressions:
            work.fold(expression)
            for one in _of_cases(expression):
                if columns_of(one) & set(relation.columns.modelled):
                    work.fold(one)
        return work

    # -- inputs of the rules -------------------------------------------------------------------------------

    def coefficients(self, index: int) -> FloatArray:
        """Return the model of an expression."""
        found = self._work.fold(self.expressions[index])
        return (
            np.full((len(self.relation), 1), found)
            if isinstance(found, float)
            else self.relation.models[found]
        )

    def approximation(self, index: int) -> FloatArray:
        """Return the bound on the difference between an expression's model and the expression of the models."""
        found = self._work.fold(self.expressions[index])
        return np.zeros(len(self.relation)) if isinstance(found, float) else self.relation.err[found]

    def values(self, e: Expression) -> tuple[FloatArray, FloatArray]:
        """Return the least and largest value of an expression in each row."""
        found = self._work.fold(e)
        if isinstance(found, float):
            level = np.full(len(self.relation), found)
            return level, level
        if found not in self._ranges:
            low, high, _ = bounds(self.relation.models[found], self.relation.lo, self.relation.hi)
            if self._lifted:
                # Errors make approximations coarser: a range over the whole row holds for any pieces of it.
                n = int(self.row.max(initial=-1)) + 1
                low, high = group_min(low, self.row, n)[self.row], group_max(high, self.row, n)[self.row]
            self._ranges[found] = low, high
        return self._ranges[found]

    def sizes(self, e: Expression) -> FloatArray:
        """Return the largest absolute value of an expression in each row."""
        low, high = self.values(e)
        return np.maximum(np.abs(low), np.abs(high))

    def added(self, e: Expression) -> FloatArray:
        """Return the part of an approximated expression's error that the approximation itself added."""
        if e not in self._added:
            found = self._work.fold(e)
            err = self.relation.err
            inside = {name: err[name] for name in self.relation.columns.modelled}
            known = err[found] if isinstance(found, str) else np.zeros(len(self.relation))
            caused = _Errors(self, inside).caused(e)
            self._added[e] = np.where(np.isfinite(caused), np.maximum(known - caused, 0.0), known)
        return self._added[e]

    def error(self, index: int, errors: Errors) -> FloatArray:
        """Return the bound of an expression's error per row, approximations included; infinite without one."""
        with np.errstate(all="ignore"):
            found = _Errors(self, errors).fold(self.expressions[index])
        return np.where(np.isnan(found), np.inf, found)


def _of_cases(expression: Expression) -> Iterator[Expression]:
    """Yield the expressions whose ranges decide the errors of the cases in an expression."""
    for one in walk(expression):
        if isinstance(one, Case):
            yield Arithmetic("-", one.value, one.otherwise)
            for comparison in comparisons_of(positive(one.condition)):
                yield Arithmetic("-", comparison.left, comparison.right)


class _Decisions(Truth[tuple[BoolArray, BoolArray]]):
    """Whether a predicate holds in the whole of each row for every truth within these errors, and in some of it for some."""

    def __init__(self, forward: Forward, errors: _Errors) -> None:
        self._forward, self._errors = forward, errors

    def always(self, value: bool) -> tuple[BoolArray, BoolArray]:
        same = np.full(len(self._forward.relation), value)
        return same, same

    def both(
        self, a: tuple[BoolArray, BoolArray], b: tuple[BoolArray, BoolArray]
    ) -> tuple[BoolArray, BoolArray]:
        return a[0] & b[0], a[1] & b[1]

    def either(
        self, a: tuple[BoolArray, BoolArray], b: tuple[BoolArray, BoolArray]
    ) -> tuple[BoolArray, BoolArray]:
        return a[0] | b[0], a[1] | b[1]

    def comparison(self, e: Comparison) -> tuple[BoolArray, BoolArray]:
        relation = self._forward.relation
        if not columns_of(e) & set(relation.columns.modelled):
            sets = solve(without_hidden(relation), e, possible=False)[1].model
            some = np.diff(sets.offsets) > 0
            return some, some
        low, high = self._forward.values(Arithmetic("-", e.left, e.right))
        err = self._errors.fold(e.left) + self._errors.fold(e.right)
        low, high = low - err, high + err
        match e.relation:
            case "<":
                return high < 0.0, low < 0.0
            case "<=":
                return high <= 0.0, low <= 0.0
            case ">":
                return low > 0.0, high > 0.0
            case ">=":
                return low >= 0.0, high >= 0.0
        within = (low <= 0.0) & (high >= 0.0)
        equal = (low == 0.0) & (high == 0.0)
        return (equal, within) if e.relation == "=" else (~within, ~equal)


class _Errors(Domain[FloatArray]):
    """Bounds of errors, for these errors of the columns."""

    def __init__(self, forward: Forward, errors: Errors) -> None:
        self._forward, self._errors = forward, errors
        self._none = np.zeros(len(forward.relation))

    def column(self, e: Column) -> FloatArray:
        return self._errors.get(e.name, self._none)

    def constant(self, e: Constant) -> FloatArray:
        return self._none

    def negative(self, e: Negative, operand: FloatArray) -> FloatArray:
        return operand

    def arithmetic(self, e: Arithmetic, left: FloatArray, right: FloatArray) -> FloatArray:
        by, sizes = number_of(e.right), self._forward.sizes
        match e.op:
            case "+" | "-":
                return left + right
            case "*":
                return sizes(e.left) * right + sizes(e.right) * left + left * right
            case "/" if by is not None:
                return left / abs(by)
            case "^" if by is not None:
                return _power(left, sizes(e.left), int(by))
        return self._approximated(e, self._caused(e, (left, right)))

    def function(self, e: Function, arguments: Sequence[FloatArray]) -> FloatArray:
        caused = self._caused(e, arguments)
        return self._approximated(e, caused) if rules_of(e).approximated else caused

    def case(self, e: Case) -> FloatArray:
        """Return the larger error of both values, and their distance where these errors leave the condition undecided."""
        larger = np.maximum(self.fold(e.value), self.fold(e.otherwise))
        certain, possible = _Decisions(self._forward, self).fold(positive(e.condition))
        apart = self._forward.sizes(Arithmetic("-", e.value, e.otherwise))
        return np.where(certain | ~possible, larger, larger + apart)

    def _approximated(self, e: Expression, caused: FloatArray) -> FloatArray:
        return caused * (1.0 + SHARE) + self._forward.added(e)

    def caused(self, e: Expression) -> FloatArray:
        """Return the error that an approximated expression makes of the errors of its parts."""
        return self._caused(e, [self.fold(part) for part in e.parts])

    def _caused(self, e: Expression, errors: Sequence[FloatArray]) -> FloatArray:
        if isinstance(e, Function):
            return rules_of(e).error(e, errors, self._forward)
        return reciprocal_error(errors[1], self._forward.values(e.parts[1]))


def _power(e: FloatArray, x: FloatArray, n: int) -> FloatArray:
    terms = [(x + e) ** j * x ** (n - 1 - j) for j in range(n)]
    return np.where(e > 0.0, e * np.sum(terms, axis=0), 0.0) if n else np.zeros(len(e))


def _as_product(e: Expression) -> Expression:
    """Rewrite ``a / b`` as ``a (1 / b)``, which is how it is evaluated."""
    if isinstance(e, Arithmetic) and e.op == "/" and not isinstance(e.right, Constant):
        return Arithmetic("*", e.left, Arithmetic("/", Constant(1.0), e.right))
    return e


def _is_approximated(e: Expression) -> bool:
    """Return whether an expression is not polynomial, and so is approximated on pieces."""
    if isinstance(e, Arithmetic):
        return e.op == "/" and not isinstance(e.right, Constant)
    return isinstance(e, Function) and rules_of(e).approximated


def linear_factors(expression: Expression, modelled: Sequence[str]) -> dict[str, float] | None:
    """Return ``|factor|`` of each modelled column of an expression linear in them with constant factors, else None.

    >>> linear_factors(Arithmetic("-", Column("x"), Arithmetic("*", Constant(2), Column("y"))), ("x", "y"))
    {'x': 1.0, 'y': 2.0}
    """
    legs = linear_legs(expression, modelled)
    if legs is None:
        return None
    if len(legs) == 1:
        return legs[0]
    names = dict.fromkeys(name for leg in legs for name in leg)
    return {name: math.hypot(*(leg.get(name, 0.0) for leg in legs)) for name in names}


def linear_legs(expression: Expression, modelled: Sequence[str]) -> list[dict[str, float]] | None:
    """Return the factors of the sums whose hypotenuse is an expression's error: two for a distance, one if linear."""
    spans = rules_of(expression).legs(expression) if isinstance(expression, Function) else None
    legs = []
    for leg in spans or (expression,):
        factors: dict[str, float] = {}
        for factor, term in linear_terms(leg):
            if not isinstance(term, Column):
                return None
            if term.name in modelled:
                factors[term.name] = factors.get(term.name, 0.0) + abs(factor)
        legs.append(factors)
    return legs

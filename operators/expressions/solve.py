"""Solve predicates: find the times per row at which they hold, and how certainly (semantics 3.2, 3.9).

A comparison ``x R y`` of modelled expressions is ``D R 0`` with ``D = x - y`` and ``|error of D| <= e`` per row::

              certain          model      possible
    D <  0    D < -e           D < 0      D < e            (<=, >, >= alike)
    D =  0    D = 0, e = 0     D = 0      -e <= D <= e
    D != 0    |D| > e          D != 0     all, or D != 0 where e = 0

A function may have its own sets beside a number (:meth:`pulse.operators.functions.base.ScalarFunction.solution`).

On the model, values of D within the rounding of its own terms count as zero, so that equal models are equal. ``e`` includes the
rounding of D (:mod:`pulse.kernels.rounding`) and, for the certain and possible sets, that of deciding a sign. Operands without
error are solved as they are: for constants, such as values passed on as stored, the sign is exact. Times are compared exactly,
in microseconds; keys and unmodelled attributes by value, once per key where they are keys.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pulse.core.arrays import BoolArray
from pulse.core.expression import (
    Column,
    Comparison,
    Expression,
    Function,
    number_of,
)
from pulse.core.schema import Role
from pulse.kernels.polynomial.interval_sets import IntervalSets, intersect, union
from pulse.kernels.rounding import magnitudes
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.by_value import holds_by_value, is_by_value, numbers_of
from pulse.operators.expressions.on_segments import Evaluation
from pulse.operators.expressions.predicates import Truth, comparisons_of, computed_columns, positive
from pulse.operators.expressions.solution_sets import NOISE, Problem, Truths, chosen, nested, same
from pulse.operators.expressions.time_sets import times_that_hold
from pulse.operators.functions.base import Solution
from pulse.operators.functions.registry import function_rules

# Roots and signs are exact to 2 k eps of the terms' magnitude (kernels.roots); subtracting a level adds one rounding.
DECIDED = 4 * float(np.finfo(np.float64).eps)


def solve(
    relation: Relation, predicate: Expression, *, possible: bool, strict: bool = False
) -> tuple[Relation, Truths]:
    """Find when a predicate holds in each row; return the relation, possibly with rows cut finer, and the solution sets.

    Without ``possible`` that set is not computed and equals the model's. With ``strict`` the rounding of models without error
    counts as error, so that the certain and the possible set differ where a sign is not decided. A point row has its instant as
    the set, or none. The relation may have gained hidden columns, whose names begin with ``#``.
    """
    plain = positive(predicate)
    work = Evaluation(relation, "filter", null=1.0)
    atoms = [
        _Atom(work, one, strict) for one in comparisons_of(plain)
    ]  # cut all rows before any set is built
    found = {atom.comparison: atom.truths(possible) for atom in atoms}
    return work.relation, _Solution(found, work.relation).fold(plain)


class _Solution(Truth[Truths]):
    """The sets of predicates, from those of their comparisons."""

    def __init__(self, found: dict[Comparison, Truths], relation: Relation) -> None:
        self._found, self._relation = found, relation

    def always(self, value: bool) -> Truths:
        return same(chosen(self._relation, np.full(len(self._relation), value)))

    def comparison(self, e: Comparison) -> Truths:
        return self._found[e]

    def both(self, a: Truths, b: Truths) -> Truths:
        return _by_sets(intersect, a, b)

    def either(self, a: Truths, b: Truths) -> Truths:
        return _by_sets(union, a, b)


def _by_sets(combine: Callable[[IntervalSets, IntervalSets], IntervalSets], a: Truths, b: Truths) -> Truths:
    if a.certain is a.possible and b.certain is b.possible:
        return same(combine(a.certain, b.certain))
    return Truths(*(combine(x, y) for x, y in zip(a, b, strict=True)))


class _Atom:
    """A comparison with evaluated operands; its sets are built once all rows have been cut."""

    def __init__(self, work: Evaluation, comparison: Comparison, strict: bool) -> None:
        self.comparison, self._work, self._strict = comparison, work, strict
        turned = self._turned = comparison.with_constant_last
        self._relation = turned.relation
        self._used = computed_columns(turned)
        columns = work.relation.columns
        self._is_time = isinstance(turned.left, Column) and columns.role(turned.left.name) is Role.TIME
        self._by_value = not self._is_time and is_by_value(turned, columns)
        self._solution: Solution | None = None
        if self._is_time or self._by_value:
            return
        rules, level = function_rules(turned.left), number_of(turned.right)
        if rules is not None and level is not None:
            assert isinstance(turned.left, Function)
            self._solution = rules.solution(work, turned.left, float(level))
        if self._solution is None:
            self._operands = work.fold(turned.left), work.fold(turned.right)
            self._difference = work.sum(*self._operands, -1.0)

    def truths(self, possible: bool) -> Truths:
        if self._is_time:
            return same(times_that_hold(self._work.relation, self._turned))
        if self._by_value:
            return same(chosen(self._work.relation, holds_by_value(self.comparison, self._work.relation)))
        solution = self._solution
        found = (
            self._models(possible) if solution is None else solution.truths(self._relation, possible=possible)
        )
        known = ~self._nulls()
        if known.all():
            return found
        rows = chosen(self._work.relation, known)
        return Truths(*(intersect(one, rows) for one in found))

    def _nulls(self) -> BoolArray:
        """Find rows in which an unmodelled attribute of the comparison is null or not a number."""
        relation = self._work.relation
        mask = np.zeros(len(relation), bool)
        for name in self._used & set(relation.unmodelled):
            mask |= np.isnan(numbers_of(relation, name, "filter"))
        return mask

    def _models(self, possible: bool) -> Truths:
        relation, name = self._work.relation, self._work.as_model(self._difference)
        relation = self._work.relation
        e, D = relation.err[name], relation.models[name]
        zero, R = np.zeros(len(relation)), self._relation
        noise, errors = zero.copy(), zero
        for operand in self._operands:
            c = relation.models[operand] if isinstance(operand, str) else np.full((len(relation), 1), operand)
            noise += NOISE * c.shape[1] * magnitudes(c, relation.lo, relation.hi)
            if isinstance(operand, str):
                errors = errors + relation.err[operand]
        # Operands without error are exact as evaluated; for constants among them the sign of the difference is exact.
        exact = errors == 0.0
        constant = exact if D.shape[1] == 1 else exact & ~D[:, 1:].any(axis=1)
        model = Problem(relation, D, np.where(constant, 0.0, noise)).sets(R, zero)
        if self._strict:
            e, exact = np.where(exact, noise, e), constant
        if exact.all():
            return same(model)
        # For these sets no value counts as zero; instead the bound grows by the error of evaluating D and finding its roots.
        problem = Problem(relation, D, np.where(exact & ~constant, noise, 0.0))
        margin = DECIDED * D.shape[1] * (magnitudes(D, relation.lo, relation.hi) + e)
        e = np.where(exact, 0.0, e + margin)
        if R in ("<", "<="):
            return nested(problem.sets(R, -e), model, problem.sets(R, e) if possible else None)
        if R in (">", ">="):
            return nested(problem.sets(R, e), model, problem.sets(R, -e) if possible else None)
        if R == "=":
            maybe = intersect(problem.sets("<=", e), problem.sets(">=", -e)) if possible else None
            return nested(problem.sets("=", zero, never=~exact), model, maybe)
        # |D| > e; without error that is D != 0.
        certain = union(problem.sets("<", -e), problem.sets(">", e))
        return nested(certain, model, problem.sets("!=", zero, always=~exact) if possible else None)

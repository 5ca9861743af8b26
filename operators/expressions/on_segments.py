"""Evaluate expressions over a relation: polynomial arithmetic with certified bounds (semantics 3.3, 4.2).

Every operand is a number or the name of a model of the working relation, whose hidden columns (``#1``, ``#2``, …) hold
intermediate results. So operations that cut rows finer (functions, :mod:`pulse.operators.functions`) cut all columns alike.

================== ===============================================================================================
``x + y, x - y``   ``ex + ey``; drifts add as well
``a x, x / a``     ``|a| ex``, for a number ``a``; the drift too
``x y``            ``|x| ey + |y| ex + ex ey``, with the largest ``|x|`` and ``|y|`` of the row's range
``x ^ n``          ``(|x| + ex)^n - |x|^n``
================== ===============================================================================================

To each of these the rounding of the operation itself is added, and that of evaluating its result (:mod:`pulse.kernels.rounding`);
to the drift the integral of that since the start of the group. A change of sign, a factor that is a power of two, and an exact
sum of constants add nothing.

A numeric key or unmodelled attribute counts as a model of degree 0 without error; so does a constant. A null where a number
is needed is an error. ``Elapsed`` refers to the hidden column :data:`ELAPSED`, which a MODEL clause provides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.expression import (
    Arithmetic,
    Case,
    Column,
    Constant,
    Elapsed,
    Expression,
    Function,
    Negative,
    number_of,
)
from pulse.core.fold import Domain
from pulse.core.schema import Role
from pulse.kernels.polynomial.arithmetic import add, multiply, subtract
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import GROWN, TERM, evaluation, magnitudes, sum_rounding, underflow
from pulse.operators.data.grouping import about_own_start
from pulse.operators.data.relation import Relation, Squares
from pulse.operators.errors import DomainError, MissingValueError, OperandError
from pulse.operators.expressions.by_value import numbers_of
from pulse.operators.functions.reciprocal import reciprocal
from pulse.operators.functions.registry import rules_of

Operand = float | str
"""A number, or the name of a model (possibly hidden) of the working relation."""

ELAPSED = "#elapsed"


class Evaluation(Domain[Operand]):
    """A working relation: evaluating expressions adds hidden columns and may cut rows finer."""

    def __init__(
        self, relation: Relation, operator: str = "expression", *, null: float | None = None
    ) -> None:
        self.relation = relation
        self.operator = operator
        self._null = null  # replaces a null, if the caller handles the rows that have one
        self._cache: dict[Expression, Operand] = {}
        self._count = 0

    # -- the rows -------------------------------------------------------------------------------------------

    def add(
        self,
        c: FloatArray,
        err: FloatArray,
        drift: FloatArray | None = None,
        squares: Squares | None = None,
    ) -> str:
        """Add a hidden column with these coefficients and this bound; return its name."""
        relation = self.relation
        finite = np.isfinite(c).all(axis=1) & np.isfinite(err)
        if not finite.all():
            row = int(finite.argmin())
            raise DomainError(
                f"{self.operator}: a result at {relation.where(row)} is beyond the range of floating-point numbers; "
                "scale the attributes down first"
            )
        self._count += 1
        name = f"#{self._count}"
        self.relation = replace(
            relation,
            models={**relation.models, name: c},
            err={**relation.err, name: err},
            drift=relation.drift if drift is None else {**relation.drift, name: drift},
        ).with_squares(relation.squares if squares is None else {**relation.squares, name: squares})
        return name

    def refine(self, rows: IntArray, lo: FloatArray, hi: FloatArray, ref: IntArray) -> None:
        """Cut rows finer, in all columns including hidden ones."""
        old = self.relation
        if len(rows) != len(old) or not (np.array_equal(ref, old.ref) and np.array_equal(lo, old.lo)):
            self.relation = old.take(rows, lo=lo, hi=hi, ref=ref)

    def near(self) -> None:
        """Move rows that lie far from their reference to their own start, before anything is multiplied."""
        old = self.relation
        ref, lo, hi = about_own_start(old.ref, old.lo, old.hi)
        if ref is not old.ref:
            self.relation = old.take(np.arange(len(old)), ref=ref, lo=lo, hi=hi)

    def sizes(self, name: str) -> FloatArray:
        """Return per row the largest absolute value of a model on the row's range, rounding included."""
        low, high = self.values(name)
        largest: FloatArray = np.maximum(np.abs(low), np.abs(high))
        return largest

    def values(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Return per row the lowest and highest value of a model on the row's range, rounding included."""
        relation = self.relation
        low, high, _ = bounds(relation.models[name], relation.lo, relation.hi)
        rounding = evaluation(relation.models[name], relation.lo, relation.hi)
        return low - rounding, high + rounding

    def as_model(self, operand: Operand) -> str:
        """Return the operand as a column: a number becomes a model of degree 0."""
        if isinstance(operand, str):
            return operand
        n = len(self.relation)
        return self.add(np.full((n, 1), operand), np.zeros(n), np.zeros(n))

    def magnitude(self, name: str) -> FloatArray:
        """Return per row the sum of a model's terms at their largest, which roundings are proportional to."""
        return magnitudes(self.relation.models[name], self.relation.lo, self.relation.hi)

    def too_fine(self, row: int, e: Expression, why: str) -> NoReturn:
        """Raise an error for a function that would cut a row into too many parts."""
        raise DomainError(
            f"{self.operator}: {e}: {why} for {self.relation.where(row)}, which makes too many pieces; scale the operand down, "
            "or filter that range away first"
        )

    def magnitude_of(self, e: Expression) -> FloatArray | float:
        """Return the magnitude of an expression, its error included."""
        found = self.fold(e)
        return abs(found) if isinstance(found, float) else self.magnitude(found) + self.relation.err[found]

    # -- expressions ----------------------------------------------------------------------------------------

    def fold(self, e: Expression) -> Operand:
        """Evaluate an expression; equal parts are evaluated once."""
        if e not in self._cache:
            with np.errstate(over="ignore", invalid="ignore"):  # `add` checks for values that are not finite
                self._cache[e] = super().fold(e)
        return self._cache[e]

    def constant(self, e: Constant) -> Operand:
        value = number_of(e)
        return self.other(e) if value is None else float(value)

    def elapsed(self, e: Elapsed) -> Operand:
        assert ELAPSED in self.relation.models, "elapsed time occurs outside a MODEL clause"
        return ELAPSED

    def negative(self, e: Negative, operand: Operand) -> Operand:
        return self.scaled(operand, -1.0)

    def arithmetic(self, e: Arithmetic, left: Operand, right: Operand) -> Operand:
        match e.op:
            case "^":
                return self._power(left, right, e)
            case "/":
                return self._quotient(left, right, e)
            case "*":
                return self.product(left, right)
        return self.sum(left, right, 1.0 if e.op == "+" else -1.0)

    def function(self, e: Function, arguments: Sequence[Operand]) -> Operand:
        return rules_of(e).segments(self, e, arguments)

    def case(self, e: Case) -> Operand:
        from pulse.operators.expressions.case import (
            case_of_models,  # it solves predicates, which are evaluated here
        )

        return case_of_models(self, e)

    def other(self, e: Expression) -> NoReturn:
        raise OperandError(f"{self.operator}: expected a number, got {e}")

    def column(self, e: Column) -> Operand:
        relation, name = self.relation, e.name
        role = relation.columns.role(name)
        if role is Role.MODELLED:
            return name
        if role is Role.TIME:
            raise OperandError(
                f"{self.operator}: the time '{name}' is not a number to compute with; compare it with an instant"
            )
        values = numbers_of(relation, name, self.operator)
        missing = np.isnan(values)
        if missing.any() and self._null is not None:
            values = np.where(missing, self._null, values)
        elif missing.any():
            raise MissingValueError(
                f"{self.operator}: '{name}' is null (or not a number) for {relation.where(int(missing.argmax()))}; "
                f"filter such rows away first, by a comparison of '{name}'"
            )
        zeros = np.zeros(len(relation))
        return self.add(values[:, None], zeros, zeros)

    def scaled(self, a: Operand, factor: float) -> Operand:
        """Compute ``factor * a``."""
        if isinstance(a, float):
            return factor * a
        # An unknown drift is infinite; times zero it would become NaN, so it stays as it is.
        size = abs(factor)
        return self._scaled(
            a, self.relation.models[a] * factor, size, size or 1.0, exact=_is_power_of_two(size)
        )

    def _scaled(self, a: str, c: FloatArray, size: float, drifts: float, *, exact: bool) -> str:
        """Add the column ``c``, ``a`` times a number of this size, each coefficient rounded once unless ``exact``."""
        relation = self.relation
        err, drift = relation.err[a] * size, relation.drift.get(a)
        drift = None if drift is None else drift * drifts
        squares = relation.squares.get(a)
        squares = None if squares is None or size == 0.0 else squares.scaled(size)
        if exact and size >= 1.0:
            return self.add(c, err, drift, squares)
        magnitude = magnitudes(c, relation.lo, relation.hi)
        some: BoolArray = (relation.models[a] != 0.0).any(axis=1) & (size > 0.0)
        rounding = underflow(magnitude, some, c.shape[1], relation.lo, relation.hi)
        if not exact:
            rounding += TERM * c.shape[1] * magnitude
        squares = None if squares is None else squares.rounded(rounding)
        return self.add(c, err * GROWN + rounding, self._drifted(drift, rounding), squares)

    def _drifted(self, drift: FloatArray | None, rounding: FloatArray) -> FloatArray | None:
        """Add the integral of the rounding since the start of the group to a drift."""
        if drift is None or not rounding.any():
            return drift
        grown: FloatArray = (drift + self.relation.accumulated(rounding)) * GROWN
        return grown

    def sum(self, a: Operand, b: Operand, sign: float = 1.0) -> Operand:
        """Compute ``a + b``, or with ``sign = -1`` the difference."""
        if isinstance(a, float) and isinstance(b, float):
            return a + sign * b
        if isinstance(b, float):
            return self._moved(str(a), sign * b)
        if isinstance(a, float):
            return self._moved(str(self.scaled(b, sign)) if sign < 0 else b, a)
        relation = self.relation
        drift = None
        if a in relation.drift and b in relation.drift:
            drift = relation.drift[a] + relation.drift[b]
        form = add if sign > 0 else subtract
        x, y = relation.models[a], relation.models[b]
        c = trimmed(form(x, y))
        rounding = sum_rounding(c, x, sign * y[:, :1], relation.lo, relation.hi)
        err = (relation.err[a] + relation.err[b]) * GROWN + rounding
        squares = _summed(relation.squares.get(a), relation.squares.get(b))
        squares = None if squares is None else squares.rounded(rounding)
        return self.add(c, err, self._drifted(drift, rounding), squares)

    def _moved(self, a: str, by: float) -> str:
        relation = self.relation
        before = relation.models[a]
        c = before.copy()
        c[:, 0] += by
        rounding = sum_rounding(c, before, np.full((len(c), 1), by), relation.lo, relation.hi)
        squares = relation.squares[a].rounded(rounding) if a in relation.squares else None
        drift = self._drifted(relation.drift.get(a), rounding)
        return self.add(c, relation.err[a] + rounding, drift, squares)

    def product(self, a: Operand, b: Operand) -> Operand:
        """Compute ``a * b``."""
        if isinstance(a, float):
            return self.scaled(b, a)
        if isinstance(b, float):
            return self.scaled(a, b)
        self.near()
        relation = self.relation
        ea, eb = relation.err[a], relation.err[b]
        c = multiply(relation.models[a], relation.models[b])
        ma, mb = self.magnitude(a), self.magnitude(b)
        err = TERM * c.shape[1] * ma * mb
        some = (ma + ea > 0.0) & (mb + eb > 0.0)
        err += underflow(ma * mb, some, c.shape[1], relation.lo, relation.hi)
        if ea.any() or eb.any():
            err += (self.sizes(a) * eb + self.sizes(b) * ea + ea * eb) * GROWN
        return self.add(c, err)

    def _power(self, base: Operand, n: Operand, expression: Expression) -> Operand:
        if not isinstance(n, float) or n < 0 or n != int(n):
            raise OperandError(
                f"{self.operator}: {expression}: expected a whole number, 0 or more, as the power; "
                "sqrt(…) is the root, and 1 / (…) the inverse"
            )
        if isinstance(base, float):
            return float(base**n)
        if n == 0:
            return 1.0
        if n == 1:
            return base
        self.near()
        c = power = self.relation.models[base]
        e = self.relation.err[base]
        for _ in range(int(n) - 1):
            c = multiply(c, power)
        size = self.magnitude(base)
        err = TERM * n * c.shape[1] * size**n
        err += n * underflow(size**n, size + e > 0.0, c.shape[1], self.relation.lo, self.relation.hi)
        if e.any():
            x = self.sizes(base)
            terms = [(x + e) ** j * x ** (n - 1 - j) for j in range(int(n))]
            err += e * np.sum(terms, axis=0) * GROWN ** int(n)
        return self.add(c, err)

    def _quotient(self, a: Operand, b: Operand, expression: Expression) -> Operand:
        if isinstance(b, float):
            if b == 0.0:
                raise DomainError(f"{self.operator}: {expression} divides by zero")
            if isinstance(a, float):
                return a / b
            share = 1.0 / abs(b)
            return self._scaled(a, self.relation.models[a] / b, share, share, exact=_is_power_of_two(abs(b)))
        return self.product(a, reciprocal(self, b, expression))


def without_hidden(relation: Relation) -> Relation:
    """Remove the hidden columns of an evaluation, whose names another evaluation would reuse."""
    own = (*relation.columns.modelled, *({ELAPSED} & relation.models.keys()))
    return replace(
        relation,
        models={name: relation.models[name] for name in own},
        err={name: relation.err[name] for name in own},
    )


def _is_power_of_two(size: float) -> bool:
    """Test whether a product with this number is exact (up to underflow)."""
    return size == 0.0 or math.frexp(size)[0] == 0.5


def trimmed(c: FloatArray) -> FloatArray:
    """Drop leading coefficients that are zero in every row: the degree determines the cost of later steps."""
    k = c.shape[1]
    while k > 1 and not c[:, k - 1].any():
        k -= 1
    return c if k == c.shape[1] else np.ascontiguousarray(c[:, :k])


def _summed(a: Squares | None, b: Squares | None) -> Squares | None:
    """Return the squared errors of a sum, known where both attributes are of the same segments."""
    if a is None or b is None or not np.array_equal(a.source, b.source):
        return None
    total = (np.sqrt(a.total) + np.sqrt(b.total)) ** 2 * GROWN
    return Squares(total, a.source, (a.rounding + b.rounding) * GROWN)

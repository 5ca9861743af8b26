"""Solve predicates: find the times per row at which they hold, and how certainly (semantics 3.2, 3.9).

Negations are pushed down to the comparisons first, so that AND intersects, OR unites, and nothing is complemented. A comparison
with a null is false and so is its negation: for predicates in this form that equals SQL's three-valued logic, where a filter
keeps only true rows.

A comparison ``x R y`` of modelled expressions is ``D R 0`` with ``D = x - y`` and ``|error of D| <= e`` per row::

              certain          model      possible
    D <  0    D < -e           D < 0      D < e            (<=, >, >= alike)
    D =  0    D = 0, e = 0     D = 0      -e <= D <= e
    D != 0    |D| > e          D != 0     all, or D != 0 where e = 0

A distance differs from the true one by at most ``e = hypot(ex, ey)`` of the coordinates' differences, and is not negative, so
for its square ``q`` and a constant ``c >= 0`` the sets are exact::

    d <  c    q < (c - e)^2, never where c <= e    q < c^2    q < (c + e)^2
    d >  c    q > (c + e)^2                        q > c^2    q > (c - e)^2, always where c < e

On the model, values of D within the rounding of its own terms count as zero, so that equal models are equal. ``e`` includes the
rounding of D (:mod:`pulse.kernels.rounding`) and, for the certain and possible sets, that of deciding a sign. Operands without
error are solved as they are: for constants, such as values passed on as stored, the sign is exact. Times are compared exactly,
in microseconds; keys and unmodelled attributes by value, once per key where they are keys.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray
from pulse.core.arrow_comparisons import COMPARE
from pulse.core.expression import (
    FLIPPED,
    NEGATED,
    TRUE,
    And,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    Instant,
    Not,
    Or,
    Parameter,
    columns_of,
    walk,
)
from pulse.core.schema import Role
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.interval_sets import LOWER, UPPER, IntervalSets, full, intersect, union
from pulse.kernels.polynomial.signs import RELATIONS, sign_ranges
from pulse.kernels.rounding import GROWN, UNIT, magnitudes
from pulse.kernels.status import NOT_FINITE
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError, OperandError
from pulse.operators.expressions.on_segments import Evaluation, numbers_of

# A shift, a difference, and Horner's rule err by up to 2 * k roundings of the terms' magnitude each (as in kernels.envelope).
NOISE = 4 * float(np.finfo(np.float64).eps)
# Roots and signs are exact to 2 k eps of the terms' magnitude (kernels.roots); subtracting a level adds one rounding.
DECIDED = 4 * float(np.finfo(np.float64).eps)


class Truths(NamedTuple):
    """The times per row at which a predicate holds for every truth within the bounds, on the model, and for some truth."""

    certain: IntervalSets
    model: IntervalSets
    possible: IntervalSets


def solve(relation: Relation, predicate: Expression, *, possible: bool) -> tuple[Relation, Truths]:
    """Find when a predicate holds in each row; return the relation, possibly with rows cut finer, and the solution sets.

    Without ``possible`` that set is not computed and equals the model's. A point row has its instant as the set, or none. The
    relation may have gained hidden columns, whose names begin with ``#``.
    """
    plain = positive(predicate)
    work = Evaluation(relation, "filter", null=1.0)
    atoms = [_Atom(work, one) for one in _comparisons(plain)]  # cut all rows before any set is built
    found = {atom.comparison: atom.truths(possible) for atom in atoms}
    return work.relation, _combined(plain, found, work.relation)


def positive(predicate: Expression, *, negate: bool = False) -> Expression:
    """Rewrite the predicate, or its negation, without NOT."""
    match predicate:
        case Not(operand):
            return positive(operand, negate=not negate)
        case And(operands) | Or(operands):
            parts = tuple(positive(one, negate=negate) for one in operands)
            return And(parts) if isinstance(predicate, And) is not negate else Or(parts)
        case Comparison(relation, left, right):
            return Comparison(NEGATED[relation], left, right) if negate else predicate
        case Constant(bool() as value):
            return Constant(value is not negate)
        case Column():
            return Comparison("!=" if negate else "=", predicate, TRUE)
    assert not isinstance(predicate, Parameter), f"parameter {predicate} was not bound"
    raise OperandError(f"filter: expected a predicate, got {predicate}")


def _comparisons(predicate: Expression) -> list[Comparison]:
    return list(dict.fromkeys(one for one in walk(predicate) if isinstance(one, Comparison)))


def _combined(predicate: Expression, found: dict[Comparison, Truths], relation: Relation) -> Truths:
    match predicate:
        case Comparison():
            return found[predicate]
        case Constant(value):
            return _same(_chosen(relation, np.full(len(relation), bool(value))))
    assert isinstance(predicate, (And, Or))
    meet = intersect if isinstance(predicate, And) else union
    total = _combined(Constant(isinstance(predicate, And)), found, relation)
    for operand in predicate.operands:
        other = _combined(operand, found, relation)
        if total.certain is total.possible and other.certain is other.possible:
            total = _same(meet(total.certain, other.certain))
        else:
            total = Truths(*(meet(a, b) for a, b in zip(total, other, strict=True)))
    return total


class _Atom:
    """A comparison with evaluated operands; its sets are built once all rows have been cut."""

    def __init__(self, work: Evaluation, comparison: Comparison) -> None:
        self.comparison, self._work = comparison, work
        self._relation = comparison.relation
        self._sides = comparison.left, comparison.right
        if isinstance(self._sides[0], (Constant, Instant)):
            self._sides, self._relation = self._sides[::-1], FLIPPED[self._relation]
        self._difference: str | float | None = None
        self._distance: tuple[str, str, str] | None = None
        columns = work.relation.columns
        left, right = self._sides
        self._is_time = isinstance(left, Column) and columns.role(left.name) is Role.TIME
        used = set().union(*(columns_of(side) for side in self._sides))
        plain = all(isinstance(side, (Column, Constant, Instant)) for side in self._sides)
        self._by_value = plain and not self._is_time and not used & set(columns.modelled)
        if self._is_time or self._by_value:
            return
        if isinstance(left, Function) and left.name in ("distance", "distance2") and _is_number(right):
            self._ends = [work.operand(one) for one in left.arguments]
            x1, y1, x2, y2 = self._ends
            dx, dy = work.as_model(work.sum(x1, x2, -1.0)), work.as_model(work.sum(y1, y2, -1.0))
            self._distance = dx, dy, work.squares(dx, dy)
            return
        self._operands = work.operand(left), work.operand(right)
        self._difference = work.sum(*self._operands, -1.0)

    def truths(self, possible: bool) -> Truths:
        if self._is_time:
            return _same(self._times())
        if self._by_value:
            return _same(_chosen(self._work.relation, self._values()))
        found = (
            self._models(possible) if self._distance is None else self._distances(*self._distance, possible)
        )
        known = ~self._nulls()
        if known.all():
            return found
        rows = _chosen(self._work.relation, known)
        return Truths(*(intersect(one, rows) for one in found))

    def _nulls(self) -> BoolArray:
        """Find rows in which an unmodelled attribute of the comparison is null or not a number."""
        relation = self._work.relation
        mask = np.zeros(len(relation), bool)
        for name in set().union(*(columns_of(side) for side in self._sides)) & set(relation.unmodelled):
            mask |= np.isnan(numbers_of(relation, name, "filter"))
        return mask

    def _models(self, possible: bool) -> Truths:
        relation, name = self._work.relation, self._work.as_model(self._difference or 0.0)
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
        model = _Problem(relation, D, np.where(constant, 0.0, noise)).sets(R, zero)
        if exact.all():
            return _same(model)
        # For these sets no value counts as zero; instead the bound grows by the error of evaluating D and finding its roots.
        problem = _Problem(relation, D, np.where(exact & ~constant, noise, 0.0))
        margin = DECIDED * D.shape[1] * (magnitudes(D, relation.lo, relation.hi) + e)
        e = np.where(exact, 0.0, e + margin)
        if R in ("<", "<="):
            return _nested(problem.sets(R, -e), model, problem.sets(R, e) if possible else None)
        if R in (">", ">="):
            return _nested(problem.sets(R, e), model, problem.sets(R, -e) if possible else None)
        if R == "=":
            maybe = intersect(problem.sets("<=", e), problem.sets(">=", -e)) if possible else None
            return _nested(problem.sets("=", zero, never=~exact), model, maybe)
        # |D| > e; without error that is D != 0.
        certain = union(problem.sets("<", -e), problem.sets(">", e))
        return _nested(certain, model, problem.sets("!=", zero, always=~exact) if possible else None)

    def _distances(self, dx: str, dy: str, squares: str, possible: bool) -> Truths:
        relation = self._work.relation
        q, rounding = relation.models[squares], relation.err[squares]
        problem = _Problem(relation, q, np.zeros(len(relation)))
        left, right = self._sides
        assert isinstance(left, Function)
        assert isinstance(right, Constant)
        given = float(right.value)
        square = given if left.name == "distance2" else given * abs(given)  # negative: below all
        R = self._relation
        if square < 0.0:
            return _same(_chosen(relation, np.full(len(relation), R in (">", ">=", "!="))))
        errors = np.hypot(relation.err[dx], relation.err[dy])
        exact, c = (errors == 0.0) & (rounding == 0.0) & (left.plane is None), np.sqrt(square)
        e = errors * GROWN + (8 * UNIT + self._work.distortion(left, self._ends)) * c
        level = np.full(len(relation), square)
        inner, outer = (c - e) ** 2, (c + e) ** 2
        inner, outer = inner * (1 - 8 * UNIT) - 2.0 * rounding, outer * (1 + 8 * UNIT) + 2.0 * rounding
        model = _Problem(relation, q, rounding).sets(R, level)
        none_below = c <= e if R == "<" else c < e
        if R in ("<", "<="):
            never = none_below
            return _nested(
                problem.sets(R, inner, never=never), model, problem.sets(R, outer) if possible else None
            )
        if R in (">", ">="):
            return _nested(
                problem.sets(R, outer), model, problem.sets(R, inner, always=c < e) if possible else None
            )
        if R == "=":
            maybe = None
            if possible:
                maybe = intersect(problem.sets("<=", outer), problem.sets(">=", inner, always=c < e))
            return _nested(problem.sets("=", level, never=~exact), model, maybe)
        certain = union(problem.sets(">", outer), problem.sets("<", inner, never=c <= e))
        always = np.ones(len(relation), bool)
        return _nested(certain, model, problem.sets("!=", level, always=always) if possible else None)

    def _times(self) -> IntervalSets:
        relation = self._work.relation
        instant = self._sides[1]
        if not isinstance(instant, Instant):
            raise OperandError(
                f"filter: {self.comparison}: expected an instant beside a time, such as '2024-05-01 12:00'; got {instant}"
            )
        x = (instant.microseconds - relation.ref) / 1e6
        infinity = np.full(len(x), np.inf)
        before, at, after = (-infinity, x, 0), (x, x, LOWER | UPPER), (x, infinity, 0)
        sides = {
            "<": [before],
            "<=": [(*before[:2], UPPER)],
            "=": [at],
            "!=": [before, after],
            ">=": [(*after[:2], LOWER)],
            ">": [after],
        }[self._relation]
        bounds = np.stack([np.stack(side[:2], axis=1) for side in sides], axis=1).reshape(-1, 2)
        ends = np.tile(np.array([side[2] for side in sides], np.uint8), len(x))
        line = IntervalSets(np.arange(len(x) + 1) * len(sides), bounds, ends)
        return intersect(line, whole(relation))

    def _values(self) -> BoolArray:
        """Decide per row whether a comparison of keys, unmodelled attributes and constants holds; null is false."""
        relation = self._work.relation
        names = relation.columns.key_names
        used = set().union(*(columns_of(side) for side in self._sides))
        per_group = used <= set(names)
        left, right = (_values_of(relation, side, per_group) for side in self._sides)
        if isinstance(left, pa.Scalar):  # two constants
            left = pa.repeat(left, relation.groups if per_group else len(relation))
        try:
            if isinstance(right, pa.StringScalar) and pa.types.is_temporal(left.type):
                right = right.cast(left.type)
            if not _comparable(left.type, right.type) and left.type != right.type:
                raise pa.ArrowTypeError("different kinds")
            holds = COMPARE[self._relation](left, right)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            raise OperandError(
                f"filter: {self.comparison}: {left.type} cannot be compared with {right.type}; "
                "write a value of the column's own type"
            ) from None
        mask: BoolArray = holds.fill_null(False).to_numpy(zero_copy_only=False)
        return mask[relation.group] if per_group else mask


class _Problem:
    """The inequality ``q(t) R level`` on the rows of a relation: ranges by roots and signs, points by their value."""

    def __init__(self, relation: Relation, q: FloatArray, noise: FloatArray) -> None:
        self._rows, self._q, self._noise = relation, q, noise

    def sets(
        self,
        relation: str,
        level: FloatArray,
        *,
        never: BoolArray | None = None,
        always: BoolArray | None = None,
    ) -> IntervalSets:
        """Return the solution sets; ``never`` and ``always`` mark rows with a known answer, which get a matching constant."""
        rows, code = self._rows, RELATIONS[relation]
        c = self._q.copy()
        c[:, 0] -= level
        noise = np.where(self._noise > 0.0, self._noise + NOISE * np.abs(level), 0.0)
        for mask, holds in ((never, False), (always, True)):
            if mask is not None and mask.any():
                c[mask], noise[mask] = 0.0, 0.0
                c[mask, 0] = next(v for v in (-1.0, 0.0, 1.0) if bool(code & _sign(v)) is holds)
        found, status = sign_ranges(c, rows.lo, rows.hi, code, noise)
        if (status == NOT_FINITE).any():
            row = int((status == NOT_FINITE).argmax())
            raise DomainError(
                f"filter: an operand is not finite for {rows.where(row)}; scale the attributes down first"
            )
        point = rows.is_point
        if not point.any():
            return found
        value = evaluate(c, rows.lo)
        sign = np.where(np.abs(value) <= noise, 2, np.where(value < 0.0, 1, 4))
        return union(found, _instants(rows, point & (sign & code != 0)))


def whole(relation: Relation) -> IntervalSets:
    """Return each row's whole range: half open, or its instant."""
    return _chosen(relation, np.ones(len(relation), bool))


def _chosen(relation: Relation, mask: BoolArray) -> IntervalSets:
    """Return the whole range of the rows in a mask, and empty sets for others."""
    ranges = full(relation.lo, np.where(mask, relation.hi, relation.lo))
    points = mask & relation.is_point
    return union(ranges, _instants(relation, points)) if points.any() else ranges


def _instants(relation: Relation, mask: BoolArray) -> IntervalSets:
    at = relation.lo[mask]
    offsets = np.concatenate(([0], np.cumsum(mask))).astype(np.int64)
    return IntervalSets(offsets, np.stack((at, at), axis=1), np.full(len(at), LOWER | UPPER, np.uint8))


def _nested(certain: IntervalSets, model: IntervalSets, possible: IntervalSets | None) -> Truths:
    """Nest the three sets, even where their ends differ only by rounding."""
    model = union(model, certain)
    return Truths(certain, model, model if possible is None else union(model, possible))


def _same(sets: IntervalSets) -> Truths:
    return Truths(sets, sets, sets)


def _sign(value: float) -> int:
    return 1 if value < 0.0 else 4 if value > 0.0 else 2


def _is_number(expression: Expression) -> bool:
    return isinstance(expression, Constant) and not isinstance(expression.value, (bool, str))


def _values_of(relation: Relation, side: Expression, per_group: bool) -> pa.Array | pa.Scalar:
    """Return a column per group or row, or a scalar."""
    if isinstance(side, Constant):
        return pa.scalar(side.value)
    if isinstance(side, Instant):
        return pa.scalar(side.microseconds, pa.timestamp("us"))
    assert isinstance(side, Column)
    names = relation.columns.key_names
    if side.name in names:
        column = relation.keys[names.index(side.name)]
        column = column if per_group else column.take(pa.array(relation.group))
    else:
        relation.columns.role(side.name)  # raises an error that lists the columns if this one is missing
        column = relation.unmodelled[side.name]
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _comparable(a: pa.DataType, b: pa.DataType) -> bool:
    """Test whether Arrow compares two types as users expect: numbers with numbers, text with text, and so on."""
    kinds = (
        lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t),
        lambda t: pa.types.is_string(t) or pa.types.is_large_string(t),
        pa.types.is_boolean,
        pa.types.is_timestamp,
        pa.types.is_date,
    )
    return any(kind(a) and kind(b) for kind in kinds)

"""Compile the operators above windows to steps of a vector program, for all variants of a sweep in one pass.

Joins, projections and filters of samples with one set of places become numbers and codes of a program. It covers sums,
differences, products, quotients by constants, powers and ``abs`` of modelled attributes, and comparisons of them. Everything
else, and any value that is not finite, falls back to :mod:`pulse.operators.relational.on_samples`; the results are equal, bit
by bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pulse.core.columns import Columns
from pulse.core.expression import (
    FLIPPED,
    NEGATED,
    And,
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    Negative,
    Not,
    Or,
    columns_of,
    renamed,
    walk,
)
from pulse.kernels.polynomial.certainty import form_of
from pulse.kernels.samples import vector_program
from pulse.kernels.samples.vector_program import Programs

_MOST_FACTORS = 16  # in a power
_OPS = {
    "+": vector_program.ADD,
    "-": vector_program.SUBTRACT,
    "*": vector_program.MULTIPLY,
    "/": vector_program.DIVIDE,
}
_BOUNDS = {
    "+": vector_program.SUM_ERROR,
    "-": vector_program.DIFFERENCE_ERROR,
    "*": vector_program.PRODUCT_ERROR,
    "/": vector_program.QUOTIENT_ERROR,
}


class NoProgramError(ValueError):
    """No program covers an expression; the caller evaluates the samples themselves instead."""


@dataclass(frozen=True)
class ProgramArc:
    """Samples on an arc of a program.

    ``numbers`` gives each modelled attribute as an expression over the program's columns ``#0, #1, …``; ``code`` is the row of
    their certainty. ``keys`` maps key columns to their places among those of the input, or to -1 for a text from the query.
    """

    numbers: Mapping[str, Expression]
    code: int
    keys: Mapping[str, int]


class Program:
    """The steps of one variant over ``columns`` columns."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.steps: list[list[int]] = []
        self.constants: list[float] = []
        self.numbers = self.codes = 0
        self._values: dict[Expression, int] = {}
        self._errors: dict[Expression, int] = {}
        self._checked: set[int] = set()

    # -- arcs -----------------------------------------------------------------------------------------------

    def column(self, row: int, name: str, keys: Sequence[str]) -> ProgramArc:
        """Return the samples of a column, under its name."""
        return ProgramArc({name: Column(f"#{row}")}, row, {key: place for place, key in enumerate(keys)})

    def project(
        self, arc: ProgramArc, outputs: Sequence[tuple[str, Expression]], columns: Columns
    ) -> ProgramArc:
        """Project as :func:`pulse.operators.relational.on_samples.project_samples`."""
        if columns.unmodelled:
            raise NoProgramError("unmodelled attributes")
        expressions = dict(outputs)
        numbers = {name: _within(arc, expressions[name]) for name in columns.modelled}
        for name, number in numbers.items():
            self._check(expressions[name], number)
        keys = {}
        for name in columns.key_names:
            expression = expressions.get(name, Column(name))
            keys[name] = arc.keys[expression.name] if isinstance(expression, Column) else -1
        return ProgramArc(numbers, arc.code, keys)

    def filter(self, arc: ProgramArc, predicate: Expression) -> ProgramArc:
        """Filter as :func:`~pulse.operators.relational.on_samples.filter_samples`, but keep possible rows, for summaries."""
        return ProgramArc(arc.numbers, self._predicate(arc, predicate, negate=False), arc.keys)

    def join(
        self,
        left: ProgramArc,
        right: ProgramArc,
        equal: Sequence[tuple[str, str]],
        columns: Columns,
        keys: int,
    ) -> ProgramArc:
        """Join as :func:`~pulse.operators.relational.sample_join.join_samples`, for samples whose ``keys`` are all equal."""
        paired = [(left.keys[a], right.keys[b]) for a, b in equal]
        if any(a != b for a, b in paired) or {a for a, _ in paired} != set(range(keys)):
            raise NoProgramError("a join of different keys")
        numbers = dict(zip(columns.modelled, (*left.numbers.values(), *right.numbers.values()), strict=True))
        named = dict(zip(columns.key_names, (*left.keys.values(), *right.keys.values()), strict=True))
        return ProgramArc(numbers, self._combined(vector_program.LOWER, left.code, right.code), named)

    def summary(self, arc: ProgramArc, attributes: Sequence[str]) -> None:
        """Count the samples that hold, and summarise these attributes."""
        self._step(vector_program.COUNT, 0, arc.code)
        for place, name in enumerate(attributes):
            self._step(vector_program.FIGURES, place, self._value(arc.numbers[name]), arc.code)

    # -- codes ----------------------------------------------------------------------------------------------

    def _predicate(self, arc: ProgramArc, predicate: Expression, *, negate: bool) -> int:
        match predicate:
            case Not(operand):
                return self._predicate(arc, operand, negate=not negate)
            case And(operands) | Or(operands) if operands:
                op = (
                    vector_program.LOWER if isinstance(predicate, And) is not negate else vector_program.RAISE
                )
                total, *others = (self._predicate(arc, one, negate=negate) for one in operands)
                for one in others:
                    total = self._combined(op, total, one)
                return total
            case Comparison(relation, left, right):
                return self._comparison(arc, NEGATED[relation] if negate else relation, left, right)
            case Constant(bool() as value):
                return arc.code if value is not negate else self._step(vector_program.NEVER, self._new_code())
        raise NoProgramError(f"{predicate}")

    def _comparison(self, arc: ProgramArc, relation: str, left: Expression, right: Expression) -> int:
        if isinstance(left, Constant):
            left, right, relation = right, left, FLIPPED[relation]
        if not columns_of(left) | columns_of(right):
            raise NoProgramError("a comparison of constants")
        sides = [_within(arc, side) for side in (left, right)]
        for side, number in zip((left, right), sides, strict=True):
            self._check(side, number)
        form, exchanged = form_of(relation)
        first, second = reversed(sides) if exchanged else sides
        numbers = [self._value(first), self._error(first), self._value(second), self._error(second)]
        return self._step(
            vector_program.COMPARE, self._new_code(), *numbers, other=form + vector_program.FORMS * arc.code
        )

    def _combined(self, op: int, a: int, b: int) -> int:
        return a if a == b else self._step(op, self._new_code(), a, b)

    # -- numbers --------------------------------------------------------------------------------------------

    def _value(self, expression: Expression) -> int:
        if expression not in self._values:
            self._values[expression] = self._evaluate(expression)
        return self._values[expression]

    def _error(self, expression: Expression) -> int:
        if expression not in self._errors:
            self._errors[expression] = self._bound(expression)
        return self._errors[expression]

    def _evaluate(self, expression: Expression) -> int:
        match expression:
            case Column(name):
                return int(name[1:])
            case Constant(value):
                self.constants.append(_number(value))
                return self._step(vector_program.FILL, self._new_number(), other=len(self.constants) - 1)
            case Negative(operand):
                return self._step(vector_program.NEGATE, self._new_number(), self._value(operand))
            case Function("abs", (operand,)):
                return self._step(vector_program.ABSOLUTE, self._new_number(), self._value(operand))
            case Arithmetic("^"):
                return self._value(_product(expression))
            case Arithmetic(op, left, right):
                if op == "/":
                    _check_divisor(right)
                a, b = self._value(left), self._value(right)
                return self._step(_OPS[op], self._new_number(), a, b)
        raise NoProgramError(f"{expression}")

    def _bound(self, expression: Expression) -> int:
        match expression:
            case Column(name):
                return self.columns + int(name[1:])
            case Constant():
                return self._value(Constant(0.0))
            case Negative(operand) | Function("abs", (operand,)):
                return self._error(operand)
            case Arithmetic("^"):
                return self._error(_product(expression))
            case Arithmetic(op, left, right):
                numbers = [self._value(left), self._error(left), self._value(right), self._error(right)]
                return self._step(_BOUNDS[op], self._new_number(), *numbers)
        raise NoProgramError(f"{expression}")

    def _check(self, written: Expression, expression: Expression) -> None:
        """Check that a computed expression is finite; columns already are."""
        value = self._value(expression)
        if not isinstance(written, (Column, Constant)) and value not in self._checked:
            self._checked.add(value)
            self._step(vector_program.CHECK, 0, value)

    # -- steps ----------------------------------------------------------------------------------------------

    def _new_number(self) -> int:
        self.numbers += 1
        return 2 * self.columns + self.numbers - 1

    def _new_code(self) -> int:
        self.codes += 1
        return self.columns + self.codes - 1

    def _step(self, op: int, to: int, *operands: int, other: int = 0) -> int:
        self.steps.append([op, to, *operands, *[0] * (4 - len(operands)), other])
        return to


def combine_programs(programs: Sequence[Program], outputs: int) -> Programs:
    """Combine programs over the same columns into one pass."""
    steps: list[Any] = []
    constants: list[float] = []
    for one in programs:
        moved = np.array(one.steps, np.int64)
        moved[moved[:, 0] == vector_program.FILL, 6] += len(constants)
        steps.append(moved)
        constants += one.constants
    return Programs(
        np.concatenate(steps),
        np.cumsum([0, *map(len, steps)]),
        np.array(constants, np.float64),
        programs[0].columns,
        max(one.numbers for one in programs),
        max(one.codes for one in programs),
        outputs,
    )


def _within(arc: ProgramArc, expression: Expression) -> Expression:
    """Rewrite an expression over the columns of the program."""
    missing = columns_of(expression) - arc.numbers.keys()
    if missing:
        raise NoProgramError(f"{', '.join(sorted(missing))}: not modelled")
    for one in walk(expression):  # booleans are refused here: as dictionary keys True equals 1
        if isinstance(one, Constant):
            _number(one.value)
    return renamed(expression, dict(arc.numbers))


def _product(power: Arithmetic) -> Expression:
    """Expand a power into a product of its factors."""
    exponent = power.right
    if not isinstance(exponent, Constant) or _number(exponent.value) not in range(_MOST_FACTORS + 1):
        raise NoProgramError(f"{power}")
    made: Expression = Constant(1.0) if exponent.value == 0 else power.left
    for _ in range(int(exponent.value) - 1):
        made = Arithmetic("*", made, power.left)
    return made


def _check_divisor(divisor: Expression) -> None:
    if not isinstance(divisor, Constant) or _number(divisor.value) == 0.0:
        raise NoProgramError(f"a quotient by {divisor}")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NoProgramError(f"{value!r} is not a number")
    return float(value)

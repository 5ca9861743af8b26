"""Compile the operators above windows to steps of a vector program, for all variants of a sweep in one pass.

Joins, projections and filters of samples with one set of places become numbers and codes of a program. It covers sums,
differences, products, quotients by constants, powers and functions that have a step, all of modelled attributes, and comparisons
of them. Everything else, and any value that is not finite, falls back to :mod:`pulse.operators.relational.on_samples`; the
results are equal, bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from pulse.core.columns import Columns
from pulse.core.expression import (
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    Negative,
    columns_of,
    number_of,
    renamed,
    transform,
    walk,
)
from pulse.core.fold import Domain
from pulse.kernels.polynomial.certainty import form_of
from pulse.kernels.samples import vector_program
from pulse.kernels.samples.vector_program import Programs
from pulse.operators.errors import OperandError
from pulse.operators.expressions.predicates import Truth, positive
from pulse.operators.functions.registry import rules_of

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
        self._values = _Values(self)
        self._errors = _Errors(self, self._values)
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
        return ProgramArc(arc.numbers, _Codes(self, arc).fold(_positive(predicate)), arc.keys)

    def join(
        self,
        left: ProgramArc,
        right: ProgramArc,
        equal: Sequence[tuple[str, str]],
        columns: Columns,
        keys: int,
    ) -> ProgramArc:
        """Join as :func:`~pulse.operators.relational.on_samples.join_samples`, for samples whose ``keys`` are all equal."""
        paired = [(left.keys[a], right.keys[b]) for a, b in equal]
        if any(a != b for a, b in paired) or {a for a, _ in paired} != set(range(keys)):
            raise NoProgramError("a join of different keys")
        numbers = dict(zip(columns.modelled, (*left.numbers.values(), *right.numbers.values()), strict=True))
        named = dict(zip(columns.key_names, (*left.keys.values(), *right.keys.values()), strict=True))
        return ProgramArc(numbers, self.combined(vector_program.LOWER, left.code, right.code), named)

    def summary(self, arc: ProgramArc, attributes: Sequence[str]) -> None:
        """Count the samples that hold, and summarise these attributes."""
        self._step(vector_program.COUNT, 0, arc.code)
        for place, name in enumerate(attributes):
            self._step(vector_program.FIGURES, place, self._values.fold(arc.numbers[name]), arc.code)

    # -- codes ----------------------------------------------------------------------------------------------

    def never(self) -> int:
        """Return the code of what never holds."""
        return self._step(vector_program.NEVER, self._new_code())

    def compared(self, arc: ProgramArc, e: Comparison) -> int:
        """Return the code of a comparison."""
        turned = e.with_constant_last
        if not columns_of(turned):
            raise NoProgramError("a comparison of constants")
        sides = [_within(arc, side) for side in turned.parts]
        for side, number in zip(turned.parts, sides, strict=True):
            self._check(side, number)
        form, exchanged = form_of(turned.relation)
        first, second = reversed(sides) if exchanged else sides
        numbers = [
            self._values.fold(first),
            self._errors.fold(first),
            self._values.fold(second),
            self._errors.fold(second),
        ]
        return self._step(
            vector_program.COMPARE, self._new_code(), *numbers, other=form + vector_program.FORMS * arc.code
        )

    def combined(self, op: int, a: int, b: int) -> int:
        """Return the lower, or higher, of two codes."""
        return a if a == b else self._step(op, self._new_code(), a, b)

    # -- numbers --------------------------------------------------------------------------------------------

    def computed(self, op: int, *operands: int) -> int:
        """Add a step that computes a number."""
        return self._step(op, self._new_number(), *operands)

    def filled(self, value: float) -> int:
        """Add a step that fills a number with a constant."""
        self.constants.append(value)
        return self._step(vector_program.FILL, self._new_number(), other=len(self.constants) - 1)

    def _check(self, written: Expression, expression: Expression) -> None:
        """Check that a computed expression is finite; columns already are."""
        value = self._values.fold(expression)
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


class _Numbers(Domain[int]):
    """Rows of numbers; equal parts are computed once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[Expression, int] = {}

    def fold(self, e: Expression) -> int:
        if e not in self._known:
            self._known[e] = super().fold(e)
        return self._known[e]

    def other(self, e: Expression) -> NoReturn:
        raise NoProgramError(f"{e}")


class _Values(_Numbers):
    """Rows of values."""

    def column(self, e: Column) -> int:
        return int(e.name[1:])

    def constant(self, e: Constant) -> int:
        return self._program.filled(_number(e))

    def negative(self, e: Negative, operand: int) -> int:
        return self._program.computed(vector_program.NEGATE, operand)

    def arithmetic(self, e: Arithmetic, left: int, right: int) -> int:
        if e.op == "/" and not number_of(e.right):
            raise NoProgramError(f"a quotient by {e.right}")
        return self._program.computed(_OPS[e.op], left, right)

    def function(self, e: Function, arguments: Sequence[int]) -> int:
        step = rules_of(e).step
        return self.other(e) if step is None else self._program.computed(step, *arguments)


class _Errors(_Numbers):
    """Rows of the bounds of errors."""

    def __init__(self, program: Program, values: _Values) -> None:
        super().__init__(program)
        self._values = values

    def column(self, e: Column) -> int:
        return self._program.columns + int(e.name[1:])

    def constant(self, e: Constant) -> int:
        return self._values.fold(Constant(0.0))

    def negative(self, e: Negative, operand: int) -> int:
        return operand

    def arithmetic(self, e: Arithmetic, left: int, right: int) -> int:
        numbers = [self._values.fold(e.left), left, self._values.fold(e.right), right]
        return self._program.computed(_BOUNDS[e.op], *numbers)

    def function(self, e: Function, arguments: Sequence[int]) -> int:
        return arguments[0]


class _Codes(Truth[int]):
    """Rows of certainties of predicates on an arc."""

    def __init__(self, program: Program, arc: ProgramArc) -> None:
        self._program, self._arc = program, arc

    def always(self, value: bool) -> int:
        return self._arc.code if value else self._program.never()

    def both(self, a: int, b: int) -> int:
        return self._program.combined(vector_program.LOWER, a, b)

    def either(self, a: int, b: int) -> int:
        return self._program.combined(vector_program.RAISE, a, b)

    def comparison(self, e: Comparison) -> int:
        return self._program.compared(self._arc, e)


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
    """Rewrite an expression over the columns of the program, with powers as products of their factors."""
    missing = columns_of(expression) - arc.numbers.keys()
    if missing:
        raise NoProgramError(f"{', '.join(sorted(missing))}: not modelled")
    for one in walk(expression):  # booleans are refused here: as dictionary keys True equals 1
        if isinstance(one, Constant):
            _number(one)
    return transform(renamed(expression, dict(arc.numbers)), _as_product)


def _as_product(e: Expression) -> Expression:
    if not (isinstance(e, Arithmetic) and e.op == "^"):
        return e
    exponent = number_of(e.right)
    if exponent is None or exponent not in range(_MOST_FACTORS + 1):
        raise NoProgramError(f"{e}")
    made: Expression = Constant(1.0) if exponent == 0 else e.left
    for _ in range(int(exponent) - 1):
        made = Arithmetic("*", made, e.left)
    return made


def _number(e: Constant) -> float:
    value = number_of(e)
    if value is None:
        raise NoProgramError(f"{e} is not a number")
    return float(value)


def _positive(predicate: Expression) -> Expression:
    try:
        return positive(predicate)
    except OperandError as e:
        raise NoProgramError(str(e)) from None

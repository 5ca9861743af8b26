"""Represent the expressions of predicates and projections over the attributes of an arc.

Immutable nodes compare by structure, so that plans can be rewritten and equal parts found. Column names are those
of the arc that the expression is evaluated on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

from pulse.core.plane import Plane

RELATIONS = ("<", "<=", "=", "!=", ">=", ">")
FLIPPED = {"<": ">", "<=": ">=", "=": "=", "!=": "!=", ">=": "<=", ">": "<"}
HOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
"""The function of each relation, of numbers or arrays."""
NEGATED = {"<": ">=", "<=": ">", "=": "!=", "!=": "=", ">=": "<", ">": "<="}


@dataclass(frozen=True)
class Expression:
    """A node of an expression tree."""

    @cached_property
    def parts(self) -> tuple[Expression, ...]:
        """Return the direct subexpressions, in the order of the fields."""
        return tuple(one for value in self._values() for one in _expressions_in(value))

    def with_parts(self, parts: tuple[Expression, ...]) -> Self:
        """Return the same node with other subexpressions, as many as it has."""
        rest = iter(parts)
        values = []
        for value in self._values():
            own = [next(rest) for _ in _expressions_in(value)]
            values.append(value if not own else tuple(own) if isinstance(value, tuple) else own[0])
        return type(self)(*values)

    def _values(self) -> list[Any]:
        return [getattr(self, one.name) for one in fields(self)]


@dataclass(frozen=True)
class Column(Expression):
    """An attribute of the arc: key, modelled, unmodelled, or the time."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Constant(Expression):
    """A number, text or truth value."""

    value: float | int | str | bool

    def __str__(self) -> str:
        return (
            f"'{self.value}'"
            if isinstance(self.value, str)
            else f"{self.value:g}"
            if isinstance(self.value, float)
            else str(self.value)
        )


@dataclass(frozen=True)
class Instant(Expression):
    """A point in time, microseconds since the epoch, to compare the time attribute with."""

    microseconds: int

    def __str__(self) -> str:
        from pulse.core.time import format_instant

        return f"'{format_instant(self.microseconds)}'"


@dataclass(frozen=True)
class Parameter(Expression):
    """``:name``: a value given when the query is run."""

    name: str

    def __str__(self) -> str:
        return f":{self.name}"


@dataclass(frozen=True)
class Elapsed(Expression):
    """``t`` in a MODEL clause: seconds since the start of the segment."""

    def __str__(self) -> str:
        return "t"


@dataclass(frozen=True)
class Arithmetic(Expression):
    """``left op right``, op one of ``+ - * / ^``; the right side of ``^`` is a whole number, 0 or more."""

    op: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"({self.left} {self.op} {self.right})"


@dataclass(frozen=True)
class Negative(Expression):
    """``-operand``."""

    operand: Expression

    def __str__(self) -> str:
        return f"-{self.operand}"


@dataclass(frozen=True)
class Function(Expression):
    """A function of :mod:`pulse.operators.functions`.

    ``plane`` is the plane that its arguments are positions of, ``area`` the region that it compares them with, if any: a
    parameter, once bound a :class:`~pulse.core.area.Area`. An area is no value, so it is none of the arguments.
    """

    name: str
    arguments: tuple[Expression, ...]
    plane: Plane | None = None
    area: Expression | None = None

    @cached_property
    def parts(self) -> tuple[Expression, ...]:
        return (*self.arguments, self.area) if isinstance(self.area, Parameter) else self.arguments

    def with_parts(self, parts: tuple[Expression, ...]) -> Function:
        count = len(self.arguments)
        area = parts[count] if len(parts) > count else self.area
        return Function(self.name, parts[:count], self.plane, area)

    def __str__(self) -> str:
        shown = self.arguments if self.area is None else (*self.arguments, self.area)
        return f"{self.name}({', '.join(map(str, shown))})"


@dataclass(frozen=True)
class Comparison(Expression):
    """``left R right``, R one of :data:`RELATIONS`."""

    relation: str
    left: Expression
    right: Expression

    @property
    def with_constant_last(self) -> Comparison:
        """Return the same comparison with the sides exchanged if a constant or an instant is on the left."""
        if isinstance(self.left, (Constant, Instant)):
            return Comparison(FLIPPED[self.relation], self.right, self.left)
        return self

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True)
class And(Expression):
    """The conjunction of the operands; true without operands."""

    operands: tuple[Expression, ...]

    def __str__(self) -> str:
        return "(" + " and ".join(map(str, self.operands)) + ")"


@dataclass(frozen=True)
class Or(Expression):
    """The disjunction of the operands; false without operands."""

    operands: tuple[Expression, ...]

    def __str__(self) -> str:
        return "(" + " or ".join(map(str, self.operands)) + ")"


@dataclass(frozen=True)
class Not(Expression):
    """The negation of the operand."""

    operand: Expression

    def __str__(self) -> str:
        return f"not {self.operand}"


@dataclass(frozen=True)
class Case(Expression):
    """``case when condition then value else otherwise end``; several conditions are cases within ``otherwise``."""

    condition: Expression
    value: Expression
    otherwise: Expression

    @property
    def parts(self) -> tuple[Expression, ...]:
        return self.condition, self.value, self.otherwise

    def with_parts(self, parts: tuple[Expression, ...]) -> Case:
        return Case(*parts)

    def __str__(self) -> str:
        return f"case when {self.condition} then {self.value} else {self.otherwise} end"


TRUE, FALSE = Constant(True), Constant(False)


def _expressions_in(value: Any) -> list[Expression]:
    """Return the expressions that a field holds: itself, or the members of a tuple."""
    members = value if isinstance(value, tuple) else (value,)
    return [one for one in members if isinstance(one, Expression)]


def number_of(expression: Expression) -> float | int | None:
    """Return the number that an expression consists of; None if it is anything else.

    >>> number_of(Constant(2)), number_of(TRUE), number_of(Column("x"))
    (2, None, None)
    """
    value = expression.value if isinstance(expression, Constant) else None
    return None if isinstance(value, (bool, str)) else value


def transform(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Apply ``change`` to every node of an expression, inner ones first.

    >>> str(transform(Negative(Column("x")), lambda e: Column("y") if e == Column("x") else e))
    '-y'
    """
    parts = tuple(transform(part, change) for part in expression.parts)
    return change(expression if parts == expression.parts else expression.with_parts(parts))


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and all its subexpressions."""
    yield expression
    for part in expression.parts:
        yield from walk(part)


def columns_of(expression: Expression) -> set[str]:
    """Return the names of the columns that occur.

    >>> sorted(columns_of(Comparison("<", Column("x"), Arithmetic("+", Column("y"), Constant(1)))))
    ['x', 'y']
    """
    return {node.name for node in walk(expression) if isinstance(node, Column)}


def conjuncts(predicate: Expression) -> tuple[Expression, ...]:
    """Return the predicates that must all hold; none for TRUE."""
    if isinstance(predicate, And):
        return tuple(one for operand in predicate.operands for one in conjuncts(operand))
    return () if predicate == TRUE else (predicate,)


def all_of(predicates: Any) -> Expression:
    """Return the conjunction of predicates in its simplest form."""
    flat = tuple(one for predicate in predicates for one in conjuncts(predicate))
    return TRUE if not flat else flat[0] if len(flat) == 1 else And(flat)


def renamed(expression: Expression, names: dict[str, Expression]) -> Expression:
    """Replace columns by the expressions that ``names`` maps them to."""
    return transform(expression, lambda e: names.get(e.name, e) if isinstance(e, Column) else e)


def in_order(*operands: Expression) -> tuple[Expression, ...]:
    """Return operands in an order that depends on nothing else."""
    return tuple(sorted(operands, key=repr))

"""Compute how an expression changes when its attributes are altered: the affine map of its values, if there is one.

Alter data of ``x`` replaces values by ``a*x + b``. An expression ``e`` then becomes ``A*e + B`` only for some combinations:
sums and differences of terms of one scale, products and quotients of terms that only scale, and so on::

    S.ap - L.ap     both (1/4, 0)                 ->  (1/4, 0)      a difference of prices after a split
    temp - 32       (5/9, -160/9)                 ->  affine        constants are in the units of the start
    price * size    (1/4, 0) and (4, 0)           ->  (1, 0)        the cost of a trade does not change
    S.ap - L.ap     (1/4, 0) and (1, 0)           ->  none          one stream split, the other did not

Where there is none the output stays in its units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from pulse.core.expression import (
    Arithmetic,
    Case,
    Column,
    Constant,
    Elapsed,
    Expression,
    Function,
    Negative,
    columns_of,
    number_of,
)
from pulse.core.fold import Domain
from pulse.operators.functions.registry import rules_of
from pulse.stream.units.affine import IDENTITY, Affine, exact


def affine_image(expression: Expression, maps: Mapping[str, Affine]) -> Affine | None:
    """Return the map of an expression's values under these maps of its columns; columns without a map do not change.

    >>> difference = Arithmetic("-", Column("x"), Column("y"))
    >>> affine_image(difference, {"x": Affine(2, 1), "y": Affine(2, 5)}), affine_image(difference, {"x": Affine(2)})
    (Affine('y * 2 - 4'), None)
    """
    if all(maps.get(name, IDENTITY).is_identity for name in columns_of(expression)):
        return IDENTITY
    found = _Images(maps).fold(expression)
    return IDENTITY if isinstance(found, Fraction) else found


class _Images(Domain[Affine | Fraction | None]):
    """Maps of values, or the value of a constant; None where there is no map."""

    def __init__(self, maps: Mapping[str, Affine]) -> None:
        self._maps = maps

    def column(self, e: Column) -> Affine:
        return self._maps.get(e.name, IDENTITY)

    def constant(self, e: Constant) -> Affine | Fraction:
        value = number_of(e)
        return IDENTITY if value is None else exact(value)

    def elapsed(self, e: Elapsed) -> Affine:
        return IDENTITY

    def negative(self, e: Negative, operand: Affine | Fraction | None) -> Affine | Fraction | None:
        return Affine(operand.a, -operand.b) if isinstance(operand, Affine) else operand and -operand

    def arithmetic(
        self, e: Arithmetic, left: Affine | Fraction | None, right: Affine | Fraction | None
    ) -> Affine | Fraction | None:
        return _arithmetic(e.op, left, right)

    def function(self, e: Function, arguments: Sequence[Affine | Fraction | None]) -> Affine | None:
        maps = [one for one in arguments if isinstance(one, Affine)]
        if len(maps) < len(arguments):
            return None
        return IDENTITY if all(one.is_identity for one in maps) else rules_of(e).affine_image(maps)

    def case(self, e: Case) -> Affine | Fraction | None:
        """Return the map that both values have; a number has those that leave it as it is."""
        value, otherwise = self.fold(e.value), self.fold(e.otherwise)
        if isinstance(value, Fraction):
            value, otherwise = otherwise, value
        if isinstance(value, Affine) and isinstance(otherwise, Fraction):
            return value if value(otherwise) == otherwise else None
        if isinstance(value, Fraction):  # two numbers
            return value if value == otherwise else IDENTITY
        return value if value == otherwise else None

    def other(self, e: Expression) -> None:
        return None


def _arithmetic(
    op: str, left: Affine | Fraction | None, right: Affine | Fraction | None
) -> Affine | Fraction | None:
    if left is None or right is None:
        return None
    if op in "+-":
        sign = 1 if op == "+" else -1
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return left + sign * right
        scale = right.a if isinstance(right, Affine) else left.a if isinstance(left, Affine) else Fraction(1)
        one, two = _at_scale(left, scale), _at_scale(right, scale)
        return None if one is None or two is None else Affine(scale, one + sign * two)
    if op == "^":
        return _power(left, right)
    return _product(op, left, right)


def _at_scale(term: Affine | Fraction, scale: Fraction) -> Fraction | None:
    """Return the shift of a term at this scale; a constant does not change: ``c = scale*c + (1 - scale)*c``."""
    if isinstance(term, Fraction):
        return (1 - scale) * term
    return term.b if term.a == scale else None


def _product(op: str, left: Affine | Fraction, right: Affine | Fraction) -> Affine | Fraction | None:
    if isinstance(right, Fraction):
        factor = right if op == "*" else (1 / right if right else None)
        if factor is None:
            return None
        return left * factor if isinstance(left, Fraction) else Affine(left.a, left.b * factor)
    if isinstance(left, Fraction):
        if op == "*":
            return Affine(right.a, right.b * left)
        return Affine(1 / right.a) if right.b == 0 else None
    if left.b or right.b:
        return None if not (left.is_identity and right.is_identity) else IDENTITY
    return Affine(left.a * right.a if op == "*" else left.a / right.a)


def _power(base: Affine | Fraction, exponent: Affine | Fraction) -> Affine | Fraction | None:
    if not isinstance(exponent, Fraction) or exponent.denominator != 1:
        return None
    if isinstance(base, Fraction):
        return base ** int(exponent)
    return base if exponent == 1 else Affine(base.a ** int(exponent)) if base.b == 0 else None

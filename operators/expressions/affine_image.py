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

import math
from collections.abc import Mapping
from fractions import Fraction

from pulse.core.expression import (
    Arithmetic,
    Column,
    Constant,
    Elapsed,
    Expression,
    Function,
    Negative,
    columns_of,
)
from pulse.stream.units.affine import IDENTITY, Affine, exact


def affine_image(expression: Expression, maps: Mapping[str, Affine]) -> Affine | None:
    """Return the map of an expression's values under these maps of its columns; columns without a map do not change.

    >>> difference = Arithmetic("-", Column("x"), Column("y"))
    >>> affine_image(difference, {"x": Affine(2, 1), "y": Affine(2, 5)}), affine_image(difference, {"x": Affine(2)})
    (Affine('y * 2 - 4'), None)
    """
    if all(maps.get(name, IDENTITY).is_identity for name in columns_of(expression)):
        return IDENTITY
    found = _image(expression, maps)
    return IDENTITY if isinstance(found, Fraction) else found


def _image(e: Expression, maps: Mapping[str, Affine]) -> Affine | Fraction | None:
    """Return the map, or the value of a constant."""
    match e:
        case Column(name):
            return maps.get(name, IDENTITY)
        case Constant(value):
            return exact(value) if not isinstance(value, (str, bool)) else IDENTITY
        case Elapsed():
            return IDENTITY
        case Negative(operand):
            found = _image(operand, maps)
            return (
                -found
                if isinstance(found, Fraction)
                else None
                if found is None
                else Affine(found.a, -found.b)
            )
        case Arithmetic(op, left, right):
            return _arithmetic(op, _image(left, maps), _image(right, maps))
        case Function(name, arguments):
            return _function(name, [_image(one, maps) for one in arguments])
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


def _function(name: str, arguments: list[Affine | Fraction | None]) -> Affine | None:
    maps = [one for one in arguments if isinstance(one, Affine)]
    if len(maps) < len(arguments):
        return None
    if all(one.is_identity for one in maps):
        return IDENTITY
    first = maps[0]
    if name in ("distance", "distance2") and len({one.a for one in maps}) == 1:
        same = maps[0].b == maps[2].b and maps[1].b == maps[3].b
        return Affine(first.a if name == "distance" else first.a**2) if same else None
    if first.b:
        return None
    if name == "abs":
        return Affine(first.a)
    if name == "sqrt":
        roots = math.isqrt(first.a.numerator), math.isqrt(first.a.denominator)
        return Affine(Fraction(*roots)) if Fraction(*roots) ** 2 == first.a else None
    return None

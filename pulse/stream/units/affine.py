"""Increasing affine maps ``y -> a*y + b`` of exact fractions: the effect of alter data on an attribute (semantics 8.1).

Everything is exact; :attr:`Affine.floats` converts for the kernels. Maps increase (``a > 0``), because comparisons with altered
values must keep their direction: ``x < V`` before is ``alpha(x) < alpha(V)`` after.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from pulse.core.errors import PulseError

_PLAIN = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "→": "\0"})
_EXPONENT = re.compile(r"e[+-]?0*(\d+)", re.IGNORECASE)
_LONGEST = 1000  # characters of a map's text; longer texts are rejected, as ast would recurse too deep


class AffineError(PulseError, ValueError):
    """A map that is not affine and increasing."""


def exact(number: Any, what: str = "number") -> Fraction:
    """Convert a number to an exact fraction; a float stands for the very value it holds.

    >>> exact("1.8"), exact(0.5)
    (Fraction(9, 5), Fraction(1, 2))
    """
    if isinstance(number, bool):
        raise AffineError(f"{what}: expected a number, got {number!r}")
    try:
        if isinstance(number, str) and (
            "_" in number or ((huge := _EXPONENT.search(number)) and len(huge[1]) > 3)
        ):
            raise ValueError  # before Fraction expands all its zeros
        found = Fraction(number)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise AffineError(f"{what}: expected a finite number, got {number!r}") from None
    # Kernels take numbers as floats. Python does not even print integers with too many digits.
    if not -1074 < found.numerator.bit_length() - found.denominator.bit_length() < 1024 and found:
        raise AffineError(
            f"{what}: expected a number that floating point holds, got one that is too large or small"
        )
    return found


@dataclass(frozen=True)
class Affine:
    """``y -> a*y + b`` with ``a > 0``; hashable, and equal when the maps are.

    >>> celsius = Affine.parse("(y - 32) * 5/9")
    >>> celsius(77), celsius.inverse()
    (Fraction(25, 1), Affine('y * 9/5 + 32'))
    """

    a: Fraction
    b: Fraction

    def __init__(self, a: Any = 1, b: Any = 0) -> None:
        object.__setattr__(self, "a", exact(a, "slope of an affine map"))
        object.__setattr__(self, "b", exact(b, "shift of an affine map"))
        if self.a <= 0:
            raise AffineError(
                f"affine map: expected an increasing one (slope above zero), got slope {self.a}"
            )

    @classmethod
    def parse(cls, text: str) -> Affine:
        """Parse an expression in ``y``: ``(y - 32) * 5/9``, ``y / 4``, also ``y -> y * 9/5 + 32`` and ``×``.

        Decimals are exact: ``1.8`` is nine fifths. An expression that is not affine in ``y`` raises an :class:`AffineError`.
        """
        body = text.translate(_PLAIN).replace("->", "\0").rpartition("\0")[2].strip()
        if len(body) > _LONGEST:
            raise AffineError(f"affine map: expected a short expression in y, got {len(body)} characters")
        try:
            tree = ast.parse(body, mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            raise AffineError(f"affine map: cannot parse {text!r}; write, say, (y - 32) * 5/9") from None
        a, b = _linear(tree, body, text)
        return cls(a, b)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.a, self.b))  # cached: hashing fractions costs as much as a hundred comparisons

    def __call__(self, value: Any) -> Fraction:
        return self.a * exact(value, "value under an affine map") + self.b

    def after(self, first: Affine) -> Affine:
        """Compose: ``first``, then this map.

        >>> Affine(2, 0).after(Affine(1, 3))(1)
        Fraction(8, 1)
        """
        return Affine(self.a * first.a, self.a * first.b + self.b)

    def inverse(self) -> Affine:
        """Return the inverse map."""
        return Affine(1 / self.a, -self.b / self.a)

    @property
    def is_identity(self) -> bool:
        """Check whether the map changes nothing."""
        return self.a == 1 and self.b == 0

    @property
    def floats(self) -> tuple[float, float]:
        """Return ``(a, b)`` as the nearest floats, for kernels."""
        return float(self.a), float(self.b)

    @property
    def is_exact(self) -> bool:
        """Check whether the map rounds no double: a scale by a power of two, and no shift."""
        return self.b == 0 and math.frexp(float(self.a))[0] == 0.5 and _distance(self.a) == 0.0

    @property
    def float_errors(self) -> tuple[float, float]:
        """Return how far :attr:`floats` are from ``a`` and ``b``, rounded up; 0 where they are equal.

        >>> Affine("3/4", -32).float_errors, Affine("5/9", 0.5).float_errors[0] > 0.0
        ((0.0, 0.0), True)
        """
        return _distance(self.a), _distance(self.b)

    def __str__(self) -> str:
        """Format as the shorter of ``y * a + b`` and ``(y + b/a) * a``; it parses back to the same map."""
        if self.a == 1:
            return "y" + _shift(self.b)
        outside = _scaled("y", self.a) + _shift(self.b)
        inside = _scaled(f"(y{_shift(self.b / self.a)})", self.a)
        return inside if self.b and len(_shift(self.b / self.a)) < len(_shift(self.b)) else outside

    def __repr__(self) -> str:
        return f"Affine({str(self)!r})"

    def to_json(self) -> list[str]:
        """Return ``[a, b]`` as exact text.

        >>> Affine.from_json(Affine("5/9", -32).to_json())
        Affine('y * 5/9 - 32')
        """
        return [str(self.a), str(self.b)]

    @classmethod
    def from_json(cls, value: Any) -> Affine:
        """Read the output of :meth:`to_json`, or a text as :meth:`parse` reads it."""
        if isinstance(value, str):
            return cls.parse(value)
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise AffineError(f"affine map: expected [a, b] or a text in y, got {value!r}")
        return cls(value[0], value[1])


IDENTITY = Affine()


def _distance(number: Fraction) -> float:
    """Return the distance from a number to the nearest double, rounded up."""
    off = abs(Fraction(float(number)) - number)
    return math.nextafter(float(off), math.inf) if off else 0.0


def _shift(b: Fraction) -> str:
    return "" if b == 0 else f" + {b}" if b > 0 else f" - {-b}"


def _scaled(inner: str, a: Fraction) -> str:
    return f"{inner} / {a.denominator}" if a.numerator == 1 else f"{inner} * {a}"


def _linear(node: ast.expr, body: str, text: str) -> tuple[Fraction, Fraction]:
    """Return slope and shift of an expression."""
    if isinstance(node, ast.Name) and node.id.lower() == "y":
        return Fraction(1), Fraction(0)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(0), exact(ast.get_source_segment(body, node), "affine map")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        a, b = _linear(node.operand, body, text)
        return (a, b) if isinstance(node.op, ast.UAdd) else (-a, -b)
    if isinstance(node, ast.BinOp):
        (a, b), (c, d) = _linear(node.left, body, text), _linear(node.right, body, text)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            sign = 1 if isinstance(node.op, ast.Add) else -1
            return a + sign * c, b + sign * d
        if isinstance(node.op, ast.Mult) and (a == 0 or c == 0):
            return a * d + c * b, b * d
        if isinstance(node.op, ast.Div) and c == 0 and d != 0:
            return a / d, b / d
    raise AffineError(f"affine map: expected an expression affine in y, such as (y - 32) * 5/9, got {text!r}")

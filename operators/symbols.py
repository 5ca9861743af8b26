"""Represent models in symbols, as functions of ``t``, for explanations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulse.core.expression import Arithmetic, Column, Constant, Elapsed, Expression

Degrees = Mapping[tuple[str, str], int]
"""The highest degree of a stored model, by stream and attribute."""

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True)
class GenericModel(Column):
    """A model of unknown degree: ``Σ x[i]·tⁱ``."""

    def __str__(self) -> str:
        return f"{self.name}(t)"


def model_of_degree(name: str, degree: int) -> Expression:
    """Return a polynomial in ``t`` with coefficients named after an attribute.

    >>> str(model_of_degree("x", 1))
    '(x₀ + (x₁ * t))'
    """
    made: Expression = Column(name + subscript(0))
    for power in range(1, degree + 1):
        t: Expression = Elapsed() if power == 1 else Arithmetic("^", Elapsed(), Constant(power))
        made = Arithmetic("+", made, Arithmetic("*", Column(name + subscript(power)), t))
    return made


def subscript(number: int) -> str:
    """Format an index as in x₀.

    >>> subscript(10)
    '₁₀'
    """
    return str(number).translate(_SUBSCRIPTS)

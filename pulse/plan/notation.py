"""Format expressions as formulas for people: ``A.x + A.v·t - B.a·t²``."""

from __future__ import annotations

from collections.abc import Iterable

from pulse.core.expression import (
    And,
    Arithmetic,
    Comparison,
    Constant,
    Expression,
    Function,
    Negative,
    Not,
    Or,
)

_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "^": 4}
_NEGATIVE = 3
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def formula(expression: Expression) -> str:
    """Format the expression with as few parentheses as necessary.

    >>> from pulse.core.expression import Column
    >>> x = Column("x")
    >>> formula(Arithmetic("-", x, Arithmetic("-", Arithmetic("^", x, Constant(2)), x)))
    'x - (x² - x)'
    """
    return _formula(expression, 0)


def _formula(e: Expression, around: int) -> str:
    match e:
        case Arithmetic("^", base, Constant(int() as exponent)) if exponent >= 0:
            return _around(f"{_formula(base, 5)}{superscript(exponent)}", around > 4)
        case Arithmetic(op, left, right):
            strength = _STRENGTH[op]
            after = strength + (op in "-/^")
            sign = "·" if op == "*" else f" {op} "
            return _around(f"{_formula(left, strength)}{sign}{_formula(right, after)}", strength < around)
        case Negative(operand):
            return _around(f"-{_formula(operand, _NEGATIVE)}", around > 1)
        case Function("distance2", (x1, y1, x2, y2)):
            squares = Arithmetic("+", *(_square(a, b) for a, b in ((x1, x2), (y1, y2))))
            return _formula(squares, around)
        case Function(name, arguments):
            return f"{name}({', '.join(map(formula, arguments))})"
        case Comparison(relation, left, right):
            return f"{formula(left)} {relation} {formula(right)}"
        case Constant(int() | float() as value) if not isinstance(value, bool) and value < 0:
            return _around(str(e), around > 1)
        case Not(operand):
            return f"not {_formula(operand, 1)}"
        case And(operands) | Or(operands) if operands:
            word = " and " if isinstance(e, And) else " or "
            return _around(word.join(_formula(one, 1) for one in operands), around > 0)
    return str(e)


def _square(a: Expression, b: Expression) -> Expression:
    return Arithmetic("^", a if b == Constant(0) else Arithmetic("-", a, b), Constant(2))


def _around(text: str, needed: bool) -> str:
    return f"({text})" if needed else text


def superscript(number: int) -> str:
    """Format a power as in t²; nothing for 1.

    >>> superscript(12), superscript(1)
    ('¹²', '')
    """
    return "" if number == 1 else str(number).translate(_SUPERSCRIPTS)


def subscript(number: int) -> str:
    """Format an index as in x₀.

    >>> subscript(10)
    '₁₀'
    """
    return str(number).translate(_SUBSCRIPTS)


def signed_sum(terms: Iterable[tuple[bool, str]]) -> str:
    """Format terms, each negative or not, as a sum.

    >>> signed_sum([(True, "a"), (False, "b"), (True, "c")])
    '-a + b - c'
    """
    text = ""
    for negative, term in terms:
        sign = "-" if negative else "+"
        text += f" {sign} {term}" if text else f"-{term}" if negative else term
    return text or "0"

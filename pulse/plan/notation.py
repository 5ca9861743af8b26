"""Format expressions as formulas for people: ``A.x + A.v·t - B.a·t²``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pulse.core.expression import (
    And,
    Arithmetic,
    Case,
    Comparison,
    Constant,
    Expression,
    Function,
    Negative,
    Not,
    Or,
    Parameter,
    number_of,
)
from pulse.core.fold import Domain
from pulse.operators.functions.registry import rules_of

_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "^": 4}
_NEGATIVE, _WHOLE = 3, 9
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def formula(expression: Expression) -> str:
    """Format the expression with as few parentheses as necessary.

    >>> from pulse.core.expression import Column
    >>> x = Column("x")
    >>> formula(Arithmetic("-", x, Arithmetic("-", Arithmetic("^", x, Constant(2)), x)))
    'x - (x² - x)'
    """
    return _Formulas().fold(expression)[0]


class _Formulas(Domain[tuple[str, int]]):
    """Texts, and how strongly each holds together: one that is weaker than its place needs gets parentheses."""

    def negative(self, e: Negative, operand: tuple[str, int]) -> tuple[str, int]:
        return f"-{_within(operand, _NEGATIVE)}", 1

    def arithmetic(self, e: Arithmetic, left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
        strength, exponent = _STRENGTH[e.op], number_of(e.right)
        if e.op == "^" and isinstance(exponent, int) and exponent >= 0:
            return f"{_within(left, strength + 1)}{superscript(exponent)}", strength
        sign = "·" if e.op == "*" else f" {e.op} "
        after = strength + (e.op in "-/^")
        return f"{_within(left, strength)}{sign}{_within(right, after)}", strength

    def function(self, e: Function, arguments: Sequence[tuple[str, int]]) -> tuple[str, int]:
        expanded = rules_of(e).expanded(e)
        if expanded is not None:
            return self.fold(expanded)
        return f"{e.name}({', '.join(text for text, _ in arguments)})", _WHOLE

    def comparison(self, e: Comparison) -> tuple[str, int]:
        return f"{formula(e.left)} {e.relation} {formula(e.right)}", _WHOLE

    def case(self, e: Case) -> tuple[str, int]:
        condition, value, otherwise = (formula(part) for part in e.parts)
        return f"case when {condition} then {value} else {otherwise} end", _WHOLE

    def constant(self, e: Constant) -> tuple[str, int]:
        value = number_of(e)
        return str(e), 1 if value is not None and value < 0 else _WHOLE

    def negation(self, e: Not, operand: tuple[str, int]) -> tuple[str, int]:
        return f"not {_within(operand, 1)}", _WHOLE

    def conjunction(self, e: And, operands: Sequence[tuple[str, int]]) -> tuple[str, int]:
        return self._connected(e, " and ", operands)

    def disjunction(self, e: Or, operands: Sequence[tuple[str, int]]) -> tuple[str, int]:
        return self._connected(e, " or ", operands)

    def _connected(self, e: And | Or, word: str, operands: Sequence[tuple[str, int]]) -> tuple[str, int]:
        return (word.join(_within(one, 1) for one in operands), 0) if operands else self.other(e)

    def parameter(self, e: Parameter) -> tuple[str, int]:
        return self.other(e)

    def other(self, e: Expression) -> tuple[str, int]:
        return str(e), _WHOLE


def _within(text: tuple[str, int], needed: int) -> str:
    return text[0] if text[1] >= needed else f"({text[0]})"


def superscript(number: int) -> str:
    """Format a power as in t²; nothing for 1.

    >>> superscript(12), superscript(1)
    ('¹²', '')
    """
    return "" if number == 1 else str(number).translate(_SUPERSCRIPTS)


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

"""Parse and evaluate the arithmetic of a computed column: numbers, columns of the source, ``+ - * /`` and parentheses.

The text is stored in manifests, so it stays as the user wrote it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.errors import SchemaError

_FORM = "write numbers, columns, + - * / and parentheses, such as price*size, or 1 to count the tuples"
_OPERATIONS = {ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide}
_LONGEST = 1000  # characters; nested deeper than Python's parser allows only beyond that


@dataclass(frozen=True)
class Arithmetic:
    """An arithmetic expression over columns, as text."""

    text: str

    @classmethod
    def parse(cls, text: object, *, what: str) -> Arithmetic:
        """Check a text, or a plain number; errors begin with ``what`` it defines.

        >>> Arithmetic.parse("price * size", what="flow notional").columns
        ('price', 'size')
        """
        made = cls(str(text).strip())
        try:
            made.columns  # noqa: B018  # parses
        except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
            why = e.msg if isinstance(e, SyntaxError) else e
            raise SchemaError(f"{what}: cannot read {str(text)!r} ({why}); {_FORM}") from None
        return made

    def __str__(self) -> str:
        return self.text

    @cached_property
    def _tree(self) -> ast.expr:
        if not self.text or len(self.text) > _LONGEST:
            raise ValueError(f"expected 1 to {_LONGEST} characters, got {len(self.text)}")
        return ast.parse(self.text, mode="eval").body

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that it mentions, each once, in order."""
        return tuple(dict.fromkeys(_columns(self._tree)))

    def evaluate(self, columns: Mapping[str, FloatArray], rows: int) -> FloatArray:
        """Return its value for each row, in float64; what is undefined is not finite.

        >>> Arithmetic("2*x").evaluate({"x": np.array([1.0, 3.0])}, 2).tolist()
        [2.0, 6.0]
        """
        with np.errstate(all="ignore"):
            value = _value(self._tree, columns)
        return np.broadcast_to(np.asarray(value, dtype=np.float64), (rows,)).copy()


def _columns(node: ast.expr) -> list[str]:
    """Return the columns of a tree, and check that it has nothing but arithmetic."""
    match node:
        case ast.Name(name):
            return [name]
        case ast.Constant(int() | float() as value) if type(value) is not bool and np.isfinite(float(value)):
            return []
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
            return _columns(operand)
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATIONS:
            return [*_columns(left), *_columns(right)]
    raise ValueError(f"'{ast.unparse(node)}' is no arithmetic")


def _value(node: ast.expr, columns: Mapping[str, FloatArray]) -> FloatArray:
    match node:
        case ast.Name(name):
            return columns[name]
        case ast.Constant(value):
            return np.asarray(value, dtype=np.float64)  # a number, as parsing checked
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, columns)
        case ast.UnaryOp(_, operand):
            return _value(operand, columns)
    assert isinstance(node, ast.BinOp), ast.dump(node)
    result: FloatArray = _OPERATIONS[type(node.op)](_value(node.left, columns), _value(node.right, columns))
    return result

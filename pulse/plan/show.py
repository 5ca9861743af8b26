"""Format a plan as text: an indented tree, one node a line."""

from __future__ import annotations

from pulse.operators.node import Node


def show(node: Node) -> str:
    """Format the plan as a tree, inputs indented below their node.

    >>> import pyarrow as pa
    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Comparison, Constant
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.operators.windows.window import Window
    >>> prices = Scan("S", "S", Columns((("symbol", pa.string()),), ("price",)))
    >>> average = Window(prices, "avg", "S.price", "ap", 10_000_000, 2_000_000)
    >>> print(show(Filter(average, Comparison(">", Column("ap"), Constant(5)))))
    Filter ap > 5
      Window ap = avg(S.price) over 10 s every 2 s
        Scan S as S
    """
    return "\n".join(_lines(node, ""))


def _lines(node: Node, indent: str) -> list[str]:
    return [indent + node.label, *(text for one in node.inputs for text in _lines(one, indent + "  "))]

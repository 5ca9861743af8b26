"""Format a plan as text: an indented tree, one node a line."""

from __future__ import annotations

from pulse.core.expression import TRUE, And, Column, Expression, Or
from pulse.core.time import format_duration, format_instant
from pulse.operators.across.across import Across
from pulse.operators.node import Duration, Node
from pulse.operators.relational.exchange import Exchange, Grid
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.intersect import Intersect
from pulse.operators.relational.join import Join
from pulse.operators.relational.mirror import Mirror
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window


def show(node: Node) -> str:
    """Format the plan as a tree, inputs indented below their node.

    >>> import pyarrow as pa
    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Comparison, Constant
    >>> prices = Scan("S", "S", Columns((("symbol", pa.string()),), ("price",)))
    >>> average = Window(prices, "avg", "S.price", "ap", 10_000_000, 2_000_000)
    >>> print(show(Filter(average, Comparison(">", Column("ap"), Constant(5)))))
    Filter ap > 5
      Window ap = avg(S.price) over 10 s every 2 s
        Scan S as S
    """
    return "\n".join(_lines(node, ""))


def _lines(node: Node, indent: str) -> list[str]:
    return [indent + line(node), *(text for one in node.inputs for text in _lines(one, indent + "  "))]


def line(node: Node) -> str:
    """Format one node without its inputs."""
    match node:
        case Scan():
            return _scan(node)
        case Filter():
            return f"Filter {predicate(node.predicate)}"
        case Project():
            outputs = ", ".join(
                name if expression == Column(name) else f"{name} = {expression}"
                for name, expression in node.outputs
            )
            return f"Project {outputs}; time {node.time}"
        case Join():
            return _join(node)
        case Union():
            return "Union"
        case Intersect():
            return "Intersect"
        case Across():
            by = f" by {', '.join(node.by)}" if node.by else ""
            phase = "" if node.phase == "whole" else f" [{node.phase}]"
            return f"Across {node.output} = {node.function}({node.argument}){by}{phase}"
        case Window():
            every = "" if node.advance is None else f" every {duration(node.advance)}"
            return (
                f"Window {node.output} = {node.function}({node.argument}) over {duration(node.size)}{every}"
            )
        case Mirror():
            return f"Mirror {', '.join(f'{a} <-> {b}' for a, b in node.swaps)}"
        case Exchange():
            return f"Exchange {exchange(node)}"
    raise TypeError(f"plan: expected a node, got {type(node).__name__}")


def _scan(node: Scan) -> str:
    text = f"Scan {node.stream} as {node.alias}"
    if node.at is not None:
        text += f" {node.at}"
    if node.attributes is not None:
        text += f" ({', '.join(node.attributes)})"
    if node.start is not None:
        text += f" from '{format_instant(node.start)}'"
    if node.end is not None:
        text += f" to '{format_instant(node.end)}'"
    if node.keys != TRUE:
        text += f" where {predicate(node.keys)}"
    if node.models:
        text += " model " + ", ".join(f"{name} = {expression}" for name, expression in node.models)
    return text


def _join(node: Join) -> str:
    text = "Join"
    if node.equal:
        text += " on " + " and ".join(f"{left} = {right}" for left, right in node.equal)
    if node.condition != TRUE:
        text += f" where {predicate(node.condition)}"
    if node.near is not None:
        near = node.near
        text += f" near ({', '.join(near.left)}) ({', '.join(near.right)}) within {near.reach}"
        text += "" if near.window == 0 else f" over {duration(near.window)}"
    return text


def exchange(node: Exchange) -> str:
    """Describe the columns or grid of an exchange."""
    if not isinstance(node.by, Grid):
        return f"by {', '.join(node.by)}" if node.by else "all to one"
    grid = node.by
    text = "by time" if grid.position is None else f"by time and ({', '.join(grid.position)})"
    text += f" in buckets of {duration(grid.bucket)}"
    if grid.margin:
        text += f" after {' + '.join(map(duration, grid.margin))}"
    return text if grid.reach is None else f"{text}, reach {grid.reach}"


def duration(value: Duration) -> str:
    """Format microseconds as people write them, or the parameter."""
    return format_duration(value) if isinstance(value, int) else str(value)


def predicate(expression: Expression) -> str:
    """Format a predicate without the outermost parentheses."""
    return (
        str(expression)[1:-1]
        if isinstance(expression, (And, Or)) and expression.operands
        else str(expression)
    )

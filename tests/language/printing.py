"""Plans as text, for golden pairs: a node a line, inputs indented below it, and only what differs from the default."""

from __future__ import annotations

from pulse.core.expression import TRUE
from pulse.core.schema import StreamSchema
from pulse.core.time import format_duration
from pulse.operators.across.across import Across
from pulse.operators.node import Node
from pulse.operators.relational.coalesce import Coalesce
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.intersect import Intersect
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window
from pulse.plan.query import Query

STREAMS = {
    "S": StreamSchema.of(
        key={"symbol": "string"},
        time="t",
        modelled={"price": "step"},
        unmodelled={"venue": "string", "lot": "int32"},
    ),
    "objects": StreamSchema.of(
        key={"id": "int64"}, time="t", modelled={"x": "linear", "y": "linear"}, unmodelled={"moored": "bool"}
    ),
    "A": StreamSchema.of(time="t", modelled={"x": "linear", "v": "linear"}),
    "B": StreamSchema.of(time="t", modelled={"y": "linear", "v": "linear"}, unmodelled={"a": "double"}),
    "R": StreamSchema.of(key={"k": "int64"}, time="t", modelled={"a": "linear", "b": "linear"}),
    "T": StreamSchema.of(
        key={"n": "int64", "m": "string"}, time="at", modelled={"a": "linear", "d": "linear"}
    ),
}
"""Ticks, vessels, the streams of Fig. 1, and those of the alias join, called R and T here."""

POINTS = {
    "trades": StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "samples"}, points=True)
}
"""A stream that is kept as points."""

FLOWS = {
    "volume": StreamSchema.of(
        key={"symbol": "string"},
        time="t",
        modelled={"size": "flow"},
        flows={"notional": "price*size", "trades": "1"},
    )
}
"""A stream of what adds up."""


def printed(query: Query) -> str:
    """The whole query."""
    lines = [f"select {', '.join(query.select)}"]
    if query.every is not None:
        lines.append(f"every {_duration(query.every)}")
    lines += [f"error {bound} on {name or 'all'}" for name, bound in query.errors]
    lines += ["possible"] if query.possible else []
    lines += [f"parameters {', '.join(query.parameters)}"] if query.parameters else []
    return "\n".join([*lines, *_plan(query.plan, 0)])


def _plan(node: Node, depth: int) -> list[str]:
    below = [line for one in node.inputs for line in _plan(one, depth + 1)]
    return [f"{'  ' * depth}{_node(node)}", *below]


def _node(node: Node) -> str:
    match node:
        case Scan():
            models = "".join(f" model {name} = {value}" for name, value in node.models)
            at = "" if node.at is None else f" {node.at}"
            return f"scan {node.stream} as {node.alias}{at}{models}"
        case Filter():
            return f"filter {node.predicate}"
        case Project():
            made = ", ".join(str(e) if name == str(e) else f"{name} = {e}" for name, e in node.outputs)
            return f"project {made} at {node.time}"
        case Join():
            equal = "".join(f" {a} == {b}" for a, b in node.equal)
            return f"join{equal}" + ("" if node.condition == TRUE else f" on {node.condition}")
        case Union():
            return "union"
        case Coalesce():
            return "coalesce"
        case Intersect():
            return "intersect"
        case Across():
            return f"across {node.output} = {node.function}({node.argument}) by [{', '.join(node.by)}]"
        case Window():
            span = f"size {_duration(node.size)} advance {_duration(node.advance)}"
            return f"window {node.output} = {node.function}({node.argument}) {span}"
    raise AssertionError(node)


def _duration(value: object) -> str:
    return format_duration(value) if isinstance(value, int) else str(value)

"""Read the notation of `pulse.plan.show` back into a plan, for fixtures. Streams are those of `STREAMS`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pyarrow as pa

import pulse.core.expression as ex
from pulse.core.columns import Columns
from pulse.core.time import parse_duration
from pulse.operators.across.across import Across
from pulse.operators.node import Node
from pulse.operators.relational.coalesce import Coalesce
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.intersect import Intersect
from pulse.operators.relational.join import Join
from pulse.operators.relational.mirror import Mirror
from pulse.operators.relational.near import Near
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window

ID, SYMBOL = ("id", pa.int64()), ("symbol", pa.string())
STREAMS = {
    "S": Columns((SYMBOL,), ("price",), (("size", pa.int64()),)),
    "Q": Columns((SYMBOL,), ("price",), (("size", pa.int64()),)),
    "objects": Columns((ID,), ("x", "y")),
    "two": Columns((ID, SYMBOL), ("x", "y")),
    "alone": Columns((), ("x", "y")),
    "A": Columns((ID,), ("x",), (("v", pa.float64()),)),
    "B": Columns((ID,), ("y",), (("v", pa.float64()), ("a", pa.float64()))),
}

_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "^"}
_RELATIONS = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "=", ast.NotEq: "!=", ast.GtE: ">=", ast.Gt: ">"}


def read_expression(text: str, *, model: bool = False) -> ex.Expression:
    """Read an expression as it is printed; in a MODEL clause `t` is the elapsed time."""
    python = re.sub(r"(?<![<>!])=", "==", text).replace("^", "**")
    python = re.sub(r":([a-zA-Z_]\w*)", r"parameter_.\1", python.strip())
    return _expression(ast.parse(python, mode="eval").body, model)


def _expression(e: ast.expr, model: bool) -> ex.Expression:
    def inner(one: ast.expr) -> ex.Expression:
        return _expression(one, model)

    match e:
        case ast.Attribute(ast.Name("parameter_"), name):
            return ex.Parameter(name)
        case ast.Attribute(ast.Name(alias), name):
            return ex.Column(f"{alias}.{name}")
        case ast.Name(name):
            return ex.Elapsed() if model and name == "t" else ex.Column(name)
        case ast.Constant(str() as value) if re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", value):
            return ex.Instant(_instant(value))
        case ast.Constant(value):
            return ex.Constant(value)
        case ast.UnaryOp(ast.USub(), operand):
            return ex.Negative(inner(operand))
        case ast.UnaryOp(ast.Not(), operand):
            return ex.Not(inner(operand))
        case ast.BinOp(left, op, right):
            return ex.Arithmetic(_OPERATORS[type(op)], inner(left), inner(right))
        case ast.BoolOp(op, values):
            return (ex.And if isinstance(op, ast.And) else ex.Or)(tuple(map(inner, values)))
        case ast.Compare(left, [op], [right]):
            return ex.Comparison(_RELATIONS[type(op)], inner(left), inner(right))
        case ast.Call(ast.Name(name), arguments):
            return ex.Function(name, tuple(map(inner, arguments)))
    raise ValueError(f"cannot read {ast.dump(e)}")


def _instant(text: str) -> int:
    return int(np.datetime64(text.removesuffix("Z"), "us").astype(np.int64))


def _duration(text: str) -> int | ex.Parameter:
    return ex.Parameter(text[1:]) if text.startswith(":") else parse_duration(text)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    return re.split(r",\s*(?![^()]*\))", text) if text else []


def read_plan(text: str) -> Node:
    """Read a plan as `show` prints it."""
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.splitlines() if line.strip()]

    def build(at: int) -> tuple[Node, int]:
        indent, line = lines[at]
        inputs, at = [], at + 1
        while at < len(lines) and lines[at][0] > indent:
            one, at = build(at)
            inputs.append(one)
        return _node(line, inputs), at

    plan, end = build(0)
    assert end == len(lines), text
    return plan


def _node(line: str, inputs: list[Node]) -> Node:
    kind, _, rest = line.partition(" ")
    match kind:
        case "Scan":
            return _scan(rest)
        case "Filter":
            return Filter(inputs[0], read_expression(rest))
        case "Project":
            outputs, _, time = rest.rpartition("; time ")
            pairs = [one.partition(" = ") if " = " in one else (one, "", one) for one in _split(outputs)]
            return Project(
                inputs[0],
                tuple((name.strip(), read_expression(expression)) for name, _, expression in pairs),
                time,
            )
        case "Join":
            return _join(rest, inputs)
        case "Union":
            return Union(tuple(inputs))
        case "Coalesce":
            return Coalesce(*inputs)
        case "Intersect":
            return Intersect(*inputs)
        case "Mirror":
            swaps = [one.split(" <-> ") for one in rest.split(", ")]
            return Mirror(inputs[0], tuple((a, b) for a, b in swaps))
    found = re.fullmatch(r"(\S+) = (\w+)\((\S+)\)(?: over (.+?))?(?: every (.+))?(?: by (.+))?", rest)
    assert found, line
    output, function, argument, size, advance, by = found.groups()
    if kind == "Across":
        return Across(inputs[0], function, argument, output, _names(by))
    return Window(
        inputs[0], function, argument, output, _duration(size), _duration(advance) if advance else None
    )


def _scan(rest: str) -> Scan:
    found = re.fullmatch(
        r"(\w+) as (\w+)(?: \((.*?)\))?(?: from '(.*?)')?(?: to '(.*?)')?(?: where (.*?))?(?: model (.*))?",
        rest,
    )
    assert found, rest
    stream, alias, attributes, start, end, keys, models = found.groups()
    return Scan(
        stream,
        alias,
        STREAMS[stream],
        tuple(
            (name.strip(), read_expression(expression, model=True))
            for name, _, expression in (one.partition(" = ") for one in _split(models or ""))
        ),
        None if attributes is None else _names(attributes),
        _instant(start) if start else None,
        _instant(end) if end else None,
        read_expression(keys) if keys else ex.TRUE,
    )


def _join(rest: str, inputs: list[Node]) -> Join:
    found = re.fullmatch(
        r"(?:on (.*?))?(?: ?where (.*?))?(?: ?near \((.*?)\) \((.*?)\) within (\S+)(?: over (.*))?)?", rest
    )
    assert found, rest
    equal, condition, left, right, reach, window = found.groups()
    near = None
    if left:
        (a, b), (c, d) = _names(left), _names(right)
        near = Near((a, b), (c, d), read_expression(reach), _duration(window) if window else 0)
    pairs = [pair.split(" = ") for pair in equal.split(" and ")] if equal else []
    return Join(
        inputs[0],
        inputs[1],
        tuple((a, b) for a, b in pairs),
        read_expression(condition) if condition else ex.TRUE,
        near,
    )


def read_cases(path: Path) -> list[tuple[str, str, str]]:
    """Read the title, input and expected plan of each case of a fixture file. `-> same` expects what was given."""
    cases = []
    for block in re.split(r"\n\s*\n", path.read_text("utf-8").strip()):
        title, *lines = block.splitlines()
        assert title.startswith("# "), block
        before, _, after = "\n".join(lines).partition("\n->")
        expected = before if after.strip() == "same" else after.strip("\n")
        assert expected.strip(), block
        cases.append((title[2:], before, expected))
    return cases

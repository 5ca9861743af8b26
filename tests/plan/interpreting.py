"""Evaluate plans point by point in plain Python: the oracle of the rewrite rules.

Time runs in whole steps of a second. A relation is a dict from key values to a dict from instant to attributes; a window of
``n`` seconds is the mean (sum, …) of the ``n`` instants before the closing time, without a result if one of them is missing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import pulse.core.expression as ex
from pulse.operators.across.across import Across
from pulse.operators.node import Node
from pulse.operators.relational.coalesce import Coalesce
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.intersect import Intersect
from pulse.operators.relational.join import Join
from pulse.operators.relational.mirror import Mirror
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window

SECOND = 1_000_000
Row = dict[str, Any]
Relation = dict[tuple[Any, ...], dict[int, Row]]
Stored = Mapping[str, Mapping[tuple[Any, ...], Mapping[int, Row]]]
"""Stream, key values, instant in microseconds, attributes by their own names."""

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
AGGREGATES: dict[str, Callable[[list[float]], float]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "avg": lambda values: sum(values) / len(values),
}
WINDOW_FUNCTIONS = AGGREGATES | {"first": lambda values: values[0], "last": lambda values: values[-1]}


def value(e: ex.Expression, row: Row) -> Any:
    """Evaluate an expression on the attributes of one instant."""
    match e:
        case ex.Column(name):
            return row[name]
        case ex.Constant(constant):
            return constant
        case ex.Instant(microseconds):
            return microseconds
        case ex.Arithmetic(op, left, right) | ex.Comparison(op, left, right):
            return OPERATIONS[op](value(left, row), value(right, row))
        case ex.Negative(operand):
            return -value(operand, row)
        case ex.Not(operand):
            return not value(operand, row)
        case ex.And(operands):
            return all(value(one, row) for one in operands)
        case ex.Or(operands):
            return any(value(one, row) for one in operands)
        case ex.Function("distance", arguments):
            x1, y1, x2, y2 = (value(one, row) for one in arguments)
            return math.sqrt((x1 - x2) ** 2 + (y1 - y2) ** 2)
        case ex.Function("distance2", arguments):
            x1, y1, x2, y2 = (value(one, row) for one in arguments)
            return (x1 - x2) ** 2 + (y1 - y2) ** 2
        case ex.Function("sqrt", (one,)):
            return math.sqrt(value(one, row))
        case ex.Function("abs", (one,)):
            return abs(value(one, row))
    raise TypeError(e)


def interpret(node: Node, stored: Stored, given: Mapping[Node, Relation] | None = None) -> Relation:
    """Return the relation that a plan gives: rows with all columns and the time, by key and instant.

    ``given`` holds the rows of some nodes, which are then not looked into.
    """
    given = given or {}
    if node in given:
        return given[node]
    match node:
        case Scan():
            return _scan(node, stored)
        case Filter():
            below = interpret(node.input, stored, given)
            return _clean(
                {
                    key: {t: row for t, row in rows.items() if value(node.predicate, row)}
                    for key, rows in below.items()
                }
            )
        case Project():
            return _project(node, interpret(node.input, stored, given))
        case Join():
            return _join(node, interpret(node.left, stored, given), interpret(node.right, stored, given))
        case Union():
            return _union(node, [interpret(one, stored, given) for one in node.members])
        case Coalesce():
            return _coalesce(interpret(node.first, stored, given), interpret(node.second, stored, given))
        case Intersect():
            return _intersect(interpret(node.left, stored, given), interpret(node.right, stored, given))
        case Window():
            below = interpret(node.input, stored, given)
            return _clean({key: _windows(node, rows) for key, rows in below.items()})
        case Mirror():
            return _mirror(node, interpret(node.input, stored, given))
        case Across():
            return _across(node, interpret(node.input, stored, given))
    raise TypeError(node)


def _clean(relation: Relation) -> Relation:
    return {key: rows for key, rows in relation.items() if rows}


def _scan(node: Scan, stored: Stored) -> Relation:
    columns = node.columns
    own = node.stored.key_names
    out: Relation = {}
    for key, rows in stored[node.stream].items():
        named = dict(zip(columns.key_names, key, strict=True))
        if not value(node.keys, named):
            continue
        out[key] = {}
        for t, row in rows.items():
            if (node.start is None or t >= node.start) and (node.end is None or t < node.end):
                full = {f"{node.alias}.{name}": x for name, x in row.items()} | named | {columns.time: t}
                out[key][t] = {name: full[name] for name in (*columns.names, columns.time)}
        assert len(own) == len(key)
    return _clean(out)


def _project(node: Project, below: Relation) -> Relation:
    before, columns = node.input.columns, node.columns
    out: Relation = {}
    for rows in below.values():
        for t, row in rows.items():
            made = {name: row[name] for name in before.key_names} | {
                name: value(e, row) for name, e in node.outputs
            }
            made[node.time] = t
            key = tuple(made[name] for name in columns.key_names)
            out.setdefault(key, {})[t] = {name: made[name] for name in (*columns.names, columns.time)}
    return out


def _join(node: Join, left: Relation, right: Relation) -> Relation:
    columns = node.columns
    other_time = node.right.columns.time
    out: Relation = {}
    for a, rows in left.items():
        for b, others in right.items():
            both = {t: {**rows[t], **others[t]} for t in rows if t in others}
            near = {t for t, row in both.items() if node.near is None or _is_near(node, row)}
            window = 0 if node.near is None else node.near.window
            kept = {}
            for t, row in both.items():
                # The most that `near` allows to be left out: far from any instant at which the pair was near.
                if not any(abs(t - s) <= window for s in near):
                    continue
                if all(row[x] == row[y] for x, y in node.equal) and value(
                    node.condition, row | {other_time: t}
                ):
                    kept[t] = {name: row[name] for name in (*columns.names, columns.time)}
            out[(*a, *b)] = kept
    return _clean(out)


def _is_near(node: Join, row: Row) -> bool:
    assert node.near is not None
    (x1, y1), (x2, y2) = node.near.left, node.near.right
    return math.hypot(row[x1] - row[x2], row[y1] - row[y2]) <= value(node.near.reach, {})


def _union(node: Union, below: list[Relation]) -> Relation:
    columns = node.columns
    out: Relation = {}
    for member, relation in zip(node.members, below, strict=True):
        own = member.columns
        for key, rows in relation.items():
            for t, row in rows.items():
                renamed = {a: row[b] for a, b in zip(columns.names, own.names, strict=True)}
                out.setdefault(key, {})[t] = renamed | {columns.time: t}
    return out


def _coalesce(first: Relation, second: Relation) -> Relation:
    return {key: {**second.get(key, {}), **first.get(key, {})} for key in {**first, **second}}


def _intersect(left: Relation, right: Relation) -> Relation:
    return _clean(
        {
            key: {t: row for t, row in rows.items() if right.get(key, {}).get(t) == row}
            for key, rows in left.items()
        }
    )


def _mirror(node: Mirror, below: Relation) -> Relation:
    columns, other = node.columns, dict(node.swaps) | {b: a for a, b in node.swaps}
    out = dict(below)
    for rows in below.values():
        for t, row in rows.items():
            turned = {other.get(name, name): x for name, x in row.items()}
            key = tuple(turned[name] for name in columns.key_names)
            assert key not in below, "a pair that is there both ways round is there four times"
            out.setdefault(key, {})[t] = turned
    return out


def _windows(node: Window, rows: dict[int, Row]) -> dict[int, Row]:
    columns = node.columns
    assert isinstance(node.size, int)
    out = {}
    for t in [last + SECOND for last in rows]:
        instants = range(t - node.size, t, SECOND)
        if all(at in rows for at in instants):
            values = [rows[at][node.argument] for at in instants]
            made = {name: rows[instants[-1]][name] for name in columns.key_names}
            out[t] = made | {node.output: WINDOW_FUNCTIONS[node.function](values), columns.time: t}
    return out


def _across(node: Across, below: Relation) -> Relation:
    """Aggregate at each instant. Partial averages are sums and counts, which a merge takes as columns of its input."""
    columns = node.columns
    argument = node.output if node.phase == "merge" else node.argument
    groups: dict[tuple[Any, ...], dict[int, list[Row]]] = {}
    for rows in below.values():
        for t, row in rows.items():
            key = tuple(row[name] for name in columns.key_names)
            groups.setdefault(key, {}).setdefault(t, []).append(row)
    out: Relation = {}
    for key, instants in groups.items():
        out[key] = {}
        for t, members in instants.items():
            made = dict(zip(columns.key_names, key, strict=True)) | {columns.time: t}
            values = sorted(row[argument] for row in members)
            if node.function == "avg" and node.phase == "partial":
                made |= {node.output: sum(values), f"{node.output}#count": len(values)}
            elif node.function == "avg" and node.phase == "merge":
                made[node.output] = sum(values) / sum(row[f"{node.output}#count"] for row in members)
            else:
                made[node.output] = AGGREGATES[node.function](values)
            out[key][t] = made
    return out

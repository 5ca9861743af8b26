"""Solve pairs of one stream's keys one way round, and mirror the results."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from pulse.core.expression import Column, Comparison, Expression, all_of, conjuncts
from pulse.operators.node import Node, transform
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.mirror import Mirror
from pulse.operators.relational.project import Project
from pulse.operators.windows.window import Window
from pulse.plan.symmetry import Names, called, equal_as, normal, same_but_for_names


def mirror_pairs(plan: Node) -> Node:
    """Solve a join of a stream with itself on unlike keys for ``R.id < S.id`` only, if it is symmetric in its sides.

    A :class:`~pulse.operators.relational.mirror.Mirror` adds the other half, above all nodes that treat both sides alike:
    filters that the exchange leaves unchanged, windows over unchanged columns, projections whose outputs it maps onto each
    other. Anything else (an aggregate across keys, another join) is above the mirror.

    Both inputs must be equal except for the alias, the key of one column, and what ``near`` names the same on either side. For
    plans to which the other rules have been applied; not for those evaluated on changed keys only, where a pair's smaller key
    may be on either side.

    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> pairs = Join(*(Scan("O", alias, Columns((("id", pa.int64()),), ("x",))) for alias in "RS"))
    >>> print(show(mirror_pairs(replace(pairs, condition=Comparison("!=", Column("R.id"), Column("S.id"))))))
    Mirror R.id <-> S.id, R.x <-> S.x
      Join where R.id < S.id
        Scan O as R
        Scan O as S
    """
    return transform(plan, _mirrored)


def _mirrored(node: Node) -> Node:
    if isinstance(node, Join):
        return _one_way_round(node)
    if len(node.inputs) == 1 and isinstance(node.inputs[0], Mirror):
        below = node.inputs[0]
        swaps = _above(node, below.exchanged)
        if swaps is not None:
            return Mirror(node.with_inputs((below.input,)), swaps)
    return node


# -- the join ---------------------------------------------------------------------------------------------------


def _one_way_round(node: Join) -> Node:
    names = None if node.equal else same_but_for_names(node.left, node.right)
    if names is None or len(node.left.columns.key) != 1 or set(names) & set(names.values()):
        return node
    ((key, type_),) = node.left.columns.key
    if not _ordered(type_):
        return node
    unlike = [one for one in conjuncts(node.condition) if _unlike(one, key, names[key])]
    rest = [one for one in conjuncts(node.condition) if one not in unlike]
    near = node.near
    if not unlike or (near is not None and tuple(names[name] for name in near.left) != near.right):
        return node
    # Both sides' times are the same instant: either name will do.
    time = {node.right.columns.time: node.left.columns.time}
    at_once = called(all_of(rest), time)
    swaps = tuple((name, names[name]) for name in node.left.columns.names)
    if not _symmetric(at_once, dict(swaps) | {b: a for a, b in swaps}):
        return node
    first = Comparison("<", Column(key), Column(names[key]))
    one_way = [
        first if one is unlike[0] else one for one in conjuncts(node.condition) if one not in unlike[1:]
    ]
    return Mirror(replace(node, condition=all_of(one_way)), swaps)


def _unlike(predicate: Expression, key: str, other: str) -> bool:
    match predicate:
        case Comparison("!=", Column(a), Column(b)):
            return {a, b} == {key, other}
    return False


def _ordered(type_: pa.DataType) -> bool:
    """Check whether of two different values one is smaller: not for types with values that are not numbers."""
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_temporal(type_)
    )


# -- above the join ---------------------------------------------------------------------------------------------


def _above(node: Node, exchanged: Names) -> tuple[tuple[str, str], ...] | None:
    """Return the swaps of a mirror above a node, in place of one that exchanges columns of its input; None if impossible."""
    columns = node.columns
    if isinstance(node, Filter):
        return _pairs(exchanged, columns.names) if _symmetric(node.predicate, exchanged) else None
    if isinstance(node, Window):
        return None if node.argument in exchanged else _pairs(exchanged, columns.key_names)
    return (
        _pairs(of_outputs, columns.names) if (of_outputs := _outputs(node, exchanged)) is not None else None
    )


def _outputs(node: Node, exchanged: Names) -> Names | None:
    """Map each output of a projection to its mirror image; None if an image is no output.

    Equal outputs are paired in order with their equal images.
    """
    if not isinstance(node, Project):
        return None
    outputs = dict(node.outputs)
    of: dict[Expression, list[str]] = {}
    for name in node.columns.names:
        of.setdefault(normal(outputs.get(name, Column(name))), []).append(name)
    found: Names = {}
    for expression, names in of.items():
        others = of.get(normal(called(expression, exchanged)), [])
        if len(others) != len(names):
            return None
        found |= {a: b for a, b in zip(names, others, strict=True) if a != b}
    return found


def _pairs(exchanged: Names, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return each swap once, in the order of the columns."""
    places = {name: i for i, name in enumerate(names)}
    return tuple(
        (name, exchanged[name])
        for name in names
        if name in exchanged and places[name] < places[exchanged[name]]
    )


def _symmetric(predicate: Expression, exchanged: Names) -> bool:
    return equal_as(predicate, predicate, exchanged)

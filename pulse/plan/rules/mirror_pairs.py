"""Solve a pair of one stream's keys one way round, and give it both ways."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from pulse.core.expression import Column, Comparison, Expression, all_of, conjuncts, renamed
from pulse.plan.nodes import Filter, Join, Mirror, Node, Project, Scan, Window, transform
from pulse.plan.symmetry import normal

Names = dict[str, str]


def mirror_pairs(plan: Node) -> Node:
    """A join of a stream with itself on unlike keys, the same under exchange of its sides, is solved for ``R.id < S.id``.

    A :class:`~pulse.plan.nodes.Mirror` gives the other half, above all that treats both sides alike: filters that the
    exchange leaves as they are, windows over what it leaves as it is, projections whose outputs it maps onto each other.
    Anything else (an aggregate across keys, another join) is above the mirror.

    Both inputs must be equal but for the alias, the key of one column, and what ``near`` names the same on either side. For
    plans to which the other rules have been applied; not for those evaluated on changed keys only, where a pair's smaller
    key may be on either side.

    >>> from pulse.core.columns import Columns
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
    names = None if node.equal else _same(node.left, node.right)
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
    at_once = _renamed(all_of(rest), time)
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
    """Whether of two different values one is the smaller: not so where there are values that are not numbers."""
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_temporal(type_)
    )


def _same(left: Node, right: Node) -> Names | None:
    """What the columns (and the time) of the left are called on the right, if both are one but for names; else None."""
    match left, right:
        case Scan(), Scan():
            return _same_scans(left, right)
        case Filter(), Filter():
            names = _same(left.input, right.input)
            return names if names is not None and _equal(left.predicate, right.predicate, names) else None
        case Window(), Window():
            names = _same(left.input, right.input)
            renamed_ = replace(left, input=right.input, argument="", output="")
            if names is None or renamed_ != replace(right, argument="", output=""):
                return None
            return _by_place(left, right) if names[left.argument] == right.argument else None
        case Project(), Project():
            names = _same(left.input, right.input)
            if names is None or len(left.outputs) != len(right.outputs):
                return None
            pairs = zip(left.outputs, right.outputs, strict=True)
            same = all(_equal(a, b, names) for (_, a), (_, b) in pairs)
            return _by_place(left, right) if same else None
    return None


def _same_scans(left: Scan, right: Scan) -> Names | None:
    stored = (*left.stored.names, left.stored.time, *(name for name, _ in left.models))
    names = {f"{left.alias}.{name}": f"{right.alias}.{name}" for name in stored}
    models = tuple((name, _renamed(expression, names)) for name, expression in left.models)
    as_right = replace(left, alias=right.alias, models=models, keys=right.keys)
    same = as_right == right and _equal(left.keys, right.keys, names)
    return _by_place(left, right) if same else None


def _by_place(left: Node, right: Node) -> Names:
    a, b = left.columns, right.columns
    return dict(zip((*a.names, a.time), (*b.names, b.time), strict=True))


# -- what is above it ---------------------------------------------------------------------------------------------


def _above(node: Node, exchanged: Names) -> tuple[tuple[str, str], ...] | None:
    """The swaps of a mirror above a node, in place of one that exchanges columns of its input; None if it cannot be."""
    columns = node.columns
    if isinstance(node, Filter):
        return _pairs(exchanged, columns.names) if _symmetric(node.predicate, exchanged) else None
    if isinstance(node, Window):
        return None if node.argument in exchanged else _pairs(exchanged, columns.key_names)
    return (
        _pairs(of_outputs, columns.names) if (of_outputs := _outputs(node, exchanged)) is not None else None
    )


def _outputs(node: Node, exchanged: Names) -> Names | None:
    """Which output of a projection becomes which; None if one would become something that is no output.

    Outputs that are the same are exchanged in their order with those that are what they become.
    """
    if not isinstance(node, Project):
        return None
    outputs = dict(node.outputs)
    of: dict[Expression, list[str]] = {}
    for name in node.columns.names:
        of.setdefault(normal(outputs.get(name, Column(name))), []).append(name)
    found: Names = {}
    for expression, names in of.items():
        others = of.get(normal(_renamed(expression, exchanged)), [])
        if len(others) != len(names):
            return None
        found |= {a: b for a, b in zip(names, others, strict=True) if a != b}
    return found


def _pairs(exchanged: Names, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Each swap once, in the order of the columns."""
    places = {name: i for i, name in enumerate(names)}
    return tuple(
        (name, exchanged[name])
        for name in names
        if name in exchanged and places[name] < places[exchanged[name]]
    )


# -- expressions --------------------------------------------------------------------------------------------------


def _symmetric(predicate: Expression, exchanged: Names) -> bool:
    return _equal(predicate, predicate, exchanged)


def _equal(a: Expression, b: Expression, names: Names) -> bool:
    """Whether one is the other after renaming."""
    return normal(_renamed(a, names)) == normal(b)


def _renamed(expression: Expression, names: Names) -> Expression:
    return renamed(expression, {old: Column(new) for old, new in names.items()})

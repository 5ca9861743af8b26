"""Push predicates down to where they can first be evaluated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pulse.core.columns import Columns
from pulse.core.expression import (
    Column,
    Comparison,
    Expression,
    all_of,
    columns_of,
    conjuncts,
    renamed,
    walk,
)
from pulse.operators.across.across import Across
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window
from pulse.plan.rewriting import below_project, only_mentions


def push_predicates(plan: Node) -> Node:
    """Push each conjunct of a filter, and of a join's condition, down as far as it keeps its meaning.

    - Below a projection: with the outputs replaced by their expressions.
    - Into a join: to the side whose columns it mentions, on time to both, else to the condition; an equality of keys of
      both sides becomes a pair of ``equal``, and predicates on keys so paired apply to both sides. A predicate on one
      side's models stays in the condition where an equation reduces the other side to single instants: a range, which is
      half open, would include or exclude the instant at its end regardless of the predicate.
    - Below a window or an aggregate across keys: only predicates on the remaining keys. Those on modelled attributes depend
      on the aggregate; those on time refer to closing times, and stay (``prune_time`` reads them there).
    - Into every member of a union.

    >>> import pyarrow as pa
    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Constant
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((("k", pa.string()),), ("x",)))
    >>> average = Window(scan, "avg", "S.x", "a", 10_000_000, None)
    >>> print(show(push_predicates(Filter(average, Comparison("=", Column("S.k"), Constant("IBM"))))))
    Window a = avg(S.x) over 10 s
      Filter S.k = 'IBM'
        Scan S as S
    """
    if isinstance(plan, Filter):
        return _push(plan.input, conjuncts(plan.predicate))
    if isinstance(plan, Join):
        return _into_join(plan, ())
    return _over_inputs(plan)


def _over_inputs(node: Node) -> Node:
    inputs = tuple(push_predicates(one) for one in node.inputs)
    return node if inputs == node.inputs else node.with_inputs(inputs)


def _push(node: Node, predicates: tuple[Expression, ...]) -> Node:
    """Return the node, its output filtered by all the predicates, pushed down as far as possible."""
    match node:
        case Filter():
            return _push(node.input, (*conjuncts(node.predicate), *predicates))
        case Project():
            return node.with_inputs((_push(node.input, tuple(below_project(p, node) for p in predicates)),))
        case Join():
            return _into_join(node, predicates)
        case Union():
            return _into_union(node, predicates)
        case Window() | Across():
            keys = node.columns.key_names
            below = tuple(p for p in predicates if only_mentions(p, keys))
            above = tuple(p for p in predicates if not only_mentions(p, keys))
            return _filtered(node.with_inputs((_push(node.input, below),)), above)
    return _filtered(_over_inputs(node), predicates)


def _filtered(node: Node, predicates: Iterable[Expression]) -> Node:
    kept = tuple(dict.fromkeys(predicates))
    return Filter(node, all_of(kept)) if kept else node


def _into_union(node: Union, predicates: tuple[Expression, ...]) -> Node:
    first = node.columns
    members = []
    for member in node.members:
        own = member.columns
        names: dict[str, Expression] = {
            a: Column(b) for a, b in zip((*first.names, first.time), (*own.names, own.time), strict=True)
        }
        members.append(_push(member, tuple(renamed(p, names) for p in predicates)))
    return node.with_inputs(tuple(members))


def _into_join(node: Join, predicates: tuple[Expression, ...]) -> Node:
    a, b = node.left.columns, node.right.columns
    to_left: list[Expression] = []
    to_right: list[Expression] = []
    kept: list[Expression] = []
    equal = list(node.equal)
    on_left = {b.time: Column(a.time)}
    on_right = {a.time: Column(b.time)}
    for predicate in (*conjuncts(node.condition), *predicates):
        on_time = columns_of(predicate) & {a.time, b.time}
        left, right = renamed(predicate, dict(on_left)), renamed(predicate, dict(on_right))
        fits_left = only_mentions(left, (*a.names, a.time))
        fits_right = only_mentions(right, (*b.names, b.time))
        if (pair := _key_pair(predicate, node)) is not None:
            equal.append(pair)
            continue
        if fits_left:
            to_left.append(left)
        if fits_right and (on_time or not fits_left):
            to_right.append(right)
        if not fits_left and not fits_right:
            kept.append(predicate)
    at_points = _has_points(node.left, to_left), _has_points(node.right, to_right)
    to_left, kept_left = _beside_points(to_left, a, beside=at_points[1])
    to_right, kept_right = _beside_points(to_right, b, beside=at_points[0])
    kept += [*kept_left, *kept_right]
    across = {x: Column(y) for x, y in equal}
    back = {y: Column(x) for x, y in equal}
    for_right = [
        renamed(p, dict(across)) for p in to_left if columns_of(p) and only_mentions(p, tuple(across))
    ]
    for_left = [renamed(p, dict(back)) for p in to_right if columns_of(p) and only_mentions(p, tuple(back))]
    return replace(
        node,
        left=_push(node.left, (*to_left, *for_left)),
        right=_push(node.right, (*to_right, *for_right)),
        equal=tuple(dict.fromkeys(equal)),
        condition=all_of(kept),
    )


def _beside_points(
    predicates: list[Expression], columns: Columns, *, beside: bool
) -> tuple[list[Expression], list[Expression]]:
    """Split predicates into those that go down to one side of a join, and those that stay as the other side may hold points."""
    if not beside:
        return predicates, []
    stay = [p for p in predicates if columns_of(p) & set(columns.modelled) and not _is_equation(p, columns)]
    return [p for p in predicates if p not in stay], stay


def _has_points(node: Node, predicates: Iterable[Expression]) -> bool:
    """Check whether an equation in it, or among the predicates to add, makes results at single instants."""
    if any(_is_equation(p, node.columns) for p in predicates):
        return True
    match node:
        case Filter():
            return _has_points(node.input, conjuncts(node.predicate))
        case Join():
            solved = any(_is_equation(p, node.columns) for p in conjuncts(node.condition))
            return solved or _has_points(node.left, ()) or _has_points(node.right, ())
        case Project() | Union():
            return any(_has_points(one, ()) for one in node.inputs)
    return False


def _is_equation(predicate: Expression, columns: Columns) -> bool:
    """Check whether a predicate equates a model with something."""
    return any(
        isinstance(one, Comparison) and one.relation == "=" and bool(columns_of(one) & set(columns.modelled))
        for one in walk(predicate)
    )


def _key_pair(predicate: Expression, node: Join) -> tuple[str, str] | None:
    """Return the names, left and right, of an equality of keys of the same type."""
    match predicate:
        case Comparison("=", Column(x), Column(y)):
            a, b = node.left.columns, node.right.columns
            for left, right in ((x, y), (y, x)):
                same = left in a.key_names and right in b.key_names and a.type_of(left) == b.type_of(right)
                if same:
                    return left, right
    return None

"""Read only the attributes that are used."""

from __future__ import annotations

from dataclasses import replace

from pulse.core.expression import columns_of
from pulse.operators.across.across import Across
from pulse.operators.node import Node
from pulse.operators.relational.exchange import Exchange
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.mirror import Mirror
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window


def prune_columns(plan: Node) -> Node:
    """Restrict scans and inner projections to the columns used above them; the plan's own columns stay.

    The right sides of MODEL clauses count as use. Members of a union, which must have the same columns, keep all of theirs.

    >>> from pulse.core.columns import Columns
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((), ("x", "y")))
    >>> print(show(prune_columns(Window(scan, "avg", "S.x", "a", 10_000_000, None))))
    Window a = avg(S.x) over 10 s
      Scan S as S (x)
    """
    return _pruned(plan, set(plan.columns.names))


def _pruned(node: Node, needed: set[str]) -> Node:
    """Return the node with at least the needed columns and its keys."""
    match node:
        case Scan():
            return _scan(node, needed)
        case Project():
            keys = set(node.columns.key_names)
            outputs = tuple((name, e) for name, e in node.outputs if name in needed or name in keys)
            used = {name for _, e in outputs for name in columns_of(e)}
            return replace(node, input=_pruned(node.input, used), outputs=outputs)
        case Filter():
            return node.with_inputs((_pruned(node.input, needed | columns_of(node.predicate)),))
        case Window() | Across():
            own = {node.argument}
            if isinstance(node, Across) and node.phase == "merge":
                own = set(node.input.columns.names)
            return node.with_inputs((_pruned(node.input, own),))
        case Join():
            used = needed | columns_of(node.condition)
            if node.near is not None:
                used |= {*node.near.left, *node.near.right}
            return node.with_inputs((_pruned(node.left, used), _pruned(node.right, used)))
        case Union():
            return node.with_inputs(tuple(_pruned(one, set(one.columns.names)) for one in node.members))
        case Mirror():
            other = node.exchanged
            both = needed | {other[name] for name in needed & other.keys()}
            below = _pruned(node.input, both)
            swaps = tuple((a, b) for a, b in node.swaps if a in below.columns.names)
            return replace(node, input=below, swaps=swaps)
        case Exchange():
            return node.with_inputs((_pruned(node.input, needed),))
    raise TypeError(f"plan: expected a node, got {type(node).__name__}")


def _scan(node: Scan, needed: set[str]) -> Scan:
    prefix = f"{node.alias}."
    have = node.columns
    attributes = tuple(name.removeprefix(prefix) for name in (*have.modelled, *have.unmodelled_names))
    models = tuple((name, e) for name, e in node.models if prefix + name in needed)
    read = needed | {name for _, e in models for name in columns_of(e)}
    kept = tuple(name for name in attributes if prefix + name in read)
    return node if kept == attributes else replace(node, models=models, attributes=kept)

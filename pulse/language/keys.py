"""Find keys of a node that are always equal, because a join below made them so.

They hold one piece of information under several names: a result shows one of them, and grouping by one is grouping by all.
"""

from __future__ import annotations

from collections.abc import Hashable

from pulse.core.expression import Column
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
from pulse.operators.windows.window import Window


def equal_keys(node: Node) -> dict[str, Hashable]:
    """Return a label for every key column of the node; keys of one label are equal.

    Keys not known to be equal have labels of their own, which is safe for nodes that are not examined.
    """
    names = node.columns.key_names
    if isinstance(node, (Filter, Window)):
        return equal_keys(node.input)
    if isinstance(node, Project):
        before = equal_keys(node.input)
        renamed = {
            name: expression.name for name, expression in node.outputs if isinstance(expression, Column)
        }
        return {name: before.get(renamed.get(name, name), ("made", name)) for name in names}
    if isinstance(node, Join):
        labels: dict[str, Hashable] = {n: ("left", label) for n, label in equal_keys(node.left).items()}
        labels |= {n: ("right", label) for n, label in equal_keys(node.right).items()}
        for left, right in node.equal:
            old, new = labels[right], labels[left]
            labels = {name: new if label == old else label for name, label in labels.items()}
        return labels
    return {name: name for name in names}

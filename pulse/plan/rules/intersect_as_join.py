"""Evaluate an intersection as the join of its inputs with all columns equal.

An intersection is composed of existing operators; its five behaviours are:

1 Transforms: times at which both inputs have a row of the same key with the same values. Differences of models are solved for
  zero (semantics 3.2): identical models hold on their common range, models that cross hold at an instant, a point.
2 Bounds: a row has those of the first input. It is ``certain`` where both certify equality, that is where their
  errors are 0; ``likely`` where the models are equal; ``possible`` where their tubes overlap (semantics 3.9).
3 Inverts: through the join to the first input, and by inference to the compared attributes of the second (semantics 4.3).
4 Revises: like a join with a condition; a revised row of either input adds or retracts a result.
5 Accents: its own signature, that of a union: everything is merged (semantics 8.2, paper §6.2). So accents are propagated in
  the plan before this rule.
"""

from __future__ import annotations

from pulse.core.expression import Column, Comparison, all_of
from pulse.operators.node import Node, transform
from pulse.operators.relational.intersect import Intersect
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project


def intersect_as_join(plan: Node) -> Node:
    """Rewrite every intersection as a join and a projection.

    >>> import pyarrow as pa
    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((("k", pa.string()),), ("x",)))
    >>> print(show(intersect_as_join(Intersect(scan, scan))))
    Project S.k, S.x; time S.t
      Join on S.k = S.k_other where S.x = S.x_other
        Scan S as S
        Project S.k_other = S.k, S.x_other = S.x; time S.t
          Scan S as S
    """
    return transform(plan, _joined)


def _joined(node: Node) -> Node:
    if not isinstance(node, Intersect):
        return node
    columns = node.columns
    names = (*columns.key_names, *columns.modelled, *columns.unmodelled_names)
    suffix = "_other"
    while any(name.endswith(suffix) for name in names):
        suffix = f"_{suffix}"
    right = Project(node.right, tuple((f"{name}{suffix}", Column(name)) for name in names), columns.time)
    compared = names[len(columns.key) :]
    equal = tuple((name, f"{name}{suffix}") for name in columns.key_names)
    condition = all_of(tuple(Comparison("=", Column(name), Column(f"{name}{suffix}")) for name in compared))
    joined = Join(node.left, right, equal, condition)
    return Project(
        joined,
        tuple((name, Column(name)) for name in names),
        columns.time,
        hidden=tuple((other, name) for name, other in equal),
    )

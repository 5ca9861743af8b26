"""Solve pairs of one stream's keys one way round, and mirror the results."""

from __future__ import annotations

from pulse.operators.node import Node, transform
from pulse.operators.relational.mirror import Mirror, lift_mirror


def mirror_pairs(plan: Node) -> Node:
    """Solve a join of a stream with itself on unlike keys for ``R.id < S.id`` only, if it is symmetric in its sides.

    A :class:`~pulse.operators.relational.mirror.Mirror` adds the other half, above all nodes that treat both sides alike:
    filters that the exchange leaves unchanged, windows over unchanged columns, projections whose outputs it maps onto each
    other. Anything else (an aggregate across keys, another join) is above the mirror.

    Both inputs must be equal except for the alias, the key of one column, and what ``near`` names the same on either side. For
    plans to which the other rules have been applied; not for those evaluated on changed keys only, where a pair's smaller key
    may be on either side.

    >>> import pyarrow as pa
    >>> from dataclasses import replace
    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Comparison
    >>> from pulse.operators.relational.join import Join
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
    half = node.one_way_round()
    return lift_mirror(node) if half is None else Mirror(*half)

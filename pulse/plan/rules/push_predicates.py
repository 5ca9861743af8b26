"""Push predicates down to where they can first be evaluated."""

from __future__ import annotations

from pulse.operators.node import Node, Predicates
from pulse.operators.relational.filter import filtered


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
    >>> from pulse.core.expression import Column, Comparison, Constant
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.operators.windows.window import Window
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((("k", pa.string()),), ("x",)))
    >>> average = Window(scan, "avg", "S.x", "a", 10_000_000, None)
    >>> print(show(push_predicates(Filter(average, Comparison("=", Column("S.k"), Constant("IBM"))))))
    Window a = avg(S.x) over 10 s
      Filter S.k = 'IBM'
        Scan S as S
    """
    return _pushed(plan, ())


def _pushed(node: Node, predicates: Predicates) -> Node:
    """Return the node, its output filtered by all the predicates, pushed down as far as possible."""
    made, above = node.push(predicates, _pushed)
    return filtered(made, tuple(dict.fromkeys(above)))

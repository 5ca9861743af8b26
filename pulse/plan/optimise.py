"""Apply all rewrite rules, in order, until nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from pulse.operators.node import Node
from pulse.plan.rules.attach_planes import attach_planes
from pulse.plan.rules.average_bounds_pairs import average_bounds_pairs
from pulse.plan.rules.constant_folding import constant_folding
from pulse.plan.rules.intersect_as_join import intersect_as_join
from pulse.plan.rules.merge_nodes import merge_nodes
from pulse.plan.rules.mirror_pairs import mirror_pairs
from pulse.plan.rules.prune_columns import prune_columns
from pulse.plan.rules.prune_keys import prune_keys
from pulse.plan.rules.prune_time import prune_time
from pulse.plan.rules.push_predicates import push_predicates
from pulse.plan.rules.rewrite_comparisons import rewrite_comparisons
from pulse.plan.rules.simplify_functions import simplify_functions

RULES: tuple[Callable[[Node], Node], ...] = (
    intersect_as_join,  # first: no other rule handles intersections
    simplify_functions,  # before rules that rely on simple functions
    constant_folding,  # moves constants to the right, where later rules expect them
    rewrite_comparisons,
    push_predicates,
    merge_nodes,
    average_bounds_pairs,  # on predicates that have reached the joins
    prune_time,  # on predicates that have reached the scans
    prune_keys,
    prune_columns,  # last: filters that scans have absorbed need no columns any more
)

FINAL = mirror_pairs
"""Applied once, at the fixpoint: it relies on the other rules' result, and no rule moves a predicate past a mirror."""

MOST_ROUNDS = 10
"""Predicates move down in one round, and new constants are folded in the next; three rounds are usual."""


def optimise(plan: Node, *, mirror: bool = True) -> Node:
    """Rewrite a plan to one with the same columns and answer that reads, pairs and solves less.

    Without ``mirror`` pairs are solved both ways round: for evaluation on parts of the scans.

    >>> import pyarrow as pa
    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Comparison, Constant
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.project import Project
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((("k", pa.string()),), ("x", "y")))
    >>> named = Project(scan, (("who", Column("S.k")), ("x", Column("S.x"))), "t")
    >>> print(show(optimise(Filter(named, Comparison("=", Constant("IBM"), Column("who"))))))
    Project who = S.k, x = S.x; time t
      Scan S as S (x) where S.k = 'IBM'
    """
    # The text distinguishes equal but different constants: 1, 1.0 and true; 0.0 and -0.0.
    return _optimised(plan, repr(plan), mirror)


@lru_cache(256)
def _optimised(plan: Node, _: str, mirror: bool) -> Node:
    for _round in range(MOST_ROUNDS):
        before = plan
        for rule in RULES:
            plan = rule(plan)
        if plan == before:
            break
    plan = attach_planes(plan)  # after functions of positions have been recognised
    return FINAL(plan) if mirror else plan

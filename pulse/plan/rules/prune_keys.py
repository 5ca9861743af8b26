"""Read only the keys that are needed."""

from __future__ import annotations

from dataclasses import replace

from pulse.core.expression import (
    And,
    Column,
    Comparison,
    Constant,
    Expression,
    Not,
    Or,
    Parameter,
    all_of,
    conjuncts,
)
from pulse.operators.node import Node, transform
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.scan import Scan


def prune_keys(plan: Node) -> Node:
    """Move conjuncts directly above a scan that compare its keys with constants into the scan.

    >>> import pyarrow as pa
    >>> from pulse.core.columns import Columns
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((("k", pa.string()),), ("x",)))
    >>> print(show(prune_keys(Filter(scan, Comparison("=", Column("S.k"), Constant("IBM"))))))
    Scan S as S where S.k = 'IBM'
    """
    return transform(plan, _absorbed)


def _absorbed(node: Node) -> Node:
    if not (isinstance(node, Filter) and isinstance(node.input, Scan)):
        return node
    scan, own = node.input, conjuncts(node.predicate)
    keys = scan.columns.key_names
    taken = [p for p in own if _of_keys(p, keys)]
    kept = [p for p in own if not _of_keys(p, keys)]
    if taken:
        merged = dict.fromkeys((*conjuncts(scan.keys), *taken))
        scan = replace(scan, keys=all_of(merged))
    return Filter(scan, all_of(kept)) if kept else scan


def _of_keys(predicate: Expression, keys: tuple[str, ...]) -> bool:
    match predicate:
        case And(operands) | Or(operands):
            return all(_of_keys(operand, keys) for operand in operands)
        case Not(operand):
            return _of_keys(operand, keys)
        case Comparison(_, Column(name), Constant() | Parameter()):
            return name in keys
        case Comparison(_, Constant() | Parameter(), Column(name)):
            return name in keys
    return False

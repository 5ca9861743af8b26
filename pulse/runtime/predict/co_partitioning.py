"""Choose the key attributes by which tuples are partitioned into buckets, so that rows that must meet share a bucket.

Buckets of whole keys suffice for queries that process keys separately. An aggregate ``GROUP BY venue`` over a stream of
``(venue, symbol)`` has complete groups if tuples are partitioned by ``venue`` alone, and streams joined by key meet if each is
partitioned by its side of the equalities. Then a query needs no second stage: each bucket predicts by itself. Fewer attributes
make coarser buckets, so the largest sufficient set is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product

from pulse.core.expression import Column
from pulse.operators.across.across import Across
from pulse.operators.node import Node, walk
from pulse.operators.relational.exchange import Exchange
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.windows.window import Window
from pulse.plan.exchanges import place_exchanges
from pulse.runtime.predict.spec import Predictor

PartitionKeys = Mapping[str, tuple[str, ...]]
"""By stream, the key attributes whose values choose a tuple's bucket."""

Parts = tuple[frozenset[str], ...]
"""The placement of rows: rows that agree in all parts share a bucket; a part is a set of key columns of equal value."""


def partition_keys(predictor: Predictor) -> PartitionKeys | None:
    """The partitioning under which each bucket answers its part of the query; None if rows of any two keys may have to meet."""
    plan = predictor.continuous.plan
    keys = {stream: spec.schema.key_names for stream, spec in predictor.specs.items()}
    if not any(isinstance(node, Exchange) for node in walk(place_exchanges(plan))):
        return keys
    for partitioning in _candidates(predictor):
        if _placement(plan, partitioning) is not None:
            return partitioning
    return None


def _candidates(predictor: Predictor) -> Iterator[PartitionKeys]:
    """Yield partitionings with the same number and types of attributes for all streams, those by most attributes first."""
    types = {stream: dict(spec.schema.key) for stream, spec in predictor.specs.items()}
    for n in range(max(map(len, types.values())), 0, -1):
        for chosen in product(*(combinations(own, n) for own in types.values())):
            partitioning = dict(zip(types, chosen, strict=True))
            kinds = {tuple(types[stream][name] for name in names) for stream, names in partitioning.items()}
            if len(kinds) == 1:
                yield partitioning


def _placement(node: Node, partitioning: PartitionKeys) -> Parts | None:
    """The placement of a node's rows; None if some that must meet are in different buckets."""
    if isinstance(node, Scan):
        return tuple(frozenset({f"{node.alias}.{name}"}) for name in partitioning[node.stream])
    if isinstance(node, Join):
        left, right = _placement(node.left, partitioning), _placement(node.right, partitioning)
        if left is None or right is None:
            return None
        joined = tuple(a | b for a, b in zip(left, right, strict=True))
        met = (any(x in a and y in b for x, y in node.equal) for a, b in zip(left, right, strict=True))
        return joined if all(met) else None
    if not isinstance(node, (Filter, Window, Project, Across)):
        return None
    parts = _placement(node.input, partitioning)
    if parts is None or isinstance(node, (Filter, Window)):
        return parts
    if isinstance(node, Across):
        remaining = tuple(part & frozenset(node.by) for part in parts)
        return remaining if all(remaining) else None
    named = [(new, e.name) for new, e in node.outputs if isinstance(e, Column)]
    old = {name for _, name in named} | {name for name, _ in node.hidden}
    return tuple(frozenset({new for new, name in named if name in part} | (part - old)) for part in parts)

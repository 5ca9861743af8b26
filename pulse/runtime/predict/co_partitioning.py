"""By which of their key attributes tuples are dealt to buckets, so that all rows that must meet lie in one.

A bucket of whole keys is enough for what treats keys apart. An aggregate ``GROUP BY venue`` over a stream of ``(venue, symbol)``
has its groups whole where tuples are dealt by ``venue`` alone, and streams that are joined by key meet where each is dealt by
its side of the equalities. Then a query needs no second stage: each bucket predicts by itself. Dealing by fewer attributes
makes coarser buckets, so the most that do are taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product

from pulse.core.expression import Column
from pulse.plan.exchanges import place_exchanges
from pulse.plan.nodes import Across, Exchange, Filter, Join, Node, Project, Scan, Window, walk
from pulse.runtime.predict.spec import Predictor

Dealing = Mapping[str, tuple[str, ...]]
"""By stream the key attributes whose values choose a tuple's bucket."""

Parts = tuple[frozenset[str], ...]
"""Where rows lie: together if they agree in all parts, each a set of key columns with one value."""


def partition_keys(predictor: Predictor) -> Dealing | None:
    """How to deal tuples so that buckets are all there is to a query; None if rows of any two keys may have to meet."""
    plan = predictor.standing.plan
    keys = {stream: spec.schema.key_names for stream, spec in predictor.specs.items()}
    if not any(isinstance(node, Exchange) for node in walk(place_exchanges(plan))):
        return keys
    for dealing in _dealings(predictor):
        if _placement(plan, dealing) is not None:
            return dealing
    return None


def _dealings(predictor: Predictor) -> Iterator[Dealing]:
    """All that are the same for all streams, in number and types, those by most attributes first."""
    types = {stream: dict(spec.schema.key) for stream, spec in predictor.specs.items()}
    for n in range(max(map(len, types.values())), 0, -1):
        for chosen in product(*(combinations(own, n) for own in types.values())):
            dealing = dict(zip(types, chosen, strict=True))
            kinds = {tuple(types[stream][name] for name in names) for stream, names in dealing.items()}
            if len(kinds) == 1:
                yield dealing


def _placement(node: Node, dealing: Dealing) -> Parts | None:
    """Where a node's rows lie; None if some that must meet lie apart."""
    if isinstance(node, Scan):
        return tuple(frozenset({f"{node.alias}.{name}"}) for name in dealing[node.stream])
    if isinstance(node, Join):
        left, right = _placement(node.left, dealing), _placement(node.right, dealing)
        if left is None or right is None:
            return None
        joined = tuple(a | b for a, b in zip(left, right, strict=True))
        met = (any(x in a and y in b for x, y in node.equal) for a, b in zip(left, right, strict=True))
        return joined if all(met) else None
    if not isinstance(node, (Filter, Window, Project, Across)):
        return None
    parts = _placement(node.input, dealing)
    if parts is None or isinstance(node, (Filter, Window)):
        return parts
    if isinstance(node, Across):
        kept = tuple(part & frozenset(node.by) for part in parts)
        return kept if all(kept) else None
    named = [(new, e.name) for new, e in node.outputs if isinstance(e, Column)]
    old = {name for _, name in named} | {name for name, _ in node.hidden}
    return tuple(frozenset({new for new, name in named if name in part} | (part - old)) for part in parts)

"""Choose the key attributes by which tuples are partitioned into buckets, so that rows that must meet share a bucket.

Buckets of whole keys suffice for queries that process keys separately. An aggregate ``GROUP BY venue`` over a stream of
``(venue, symbol)`` has complete groups if tuples are partitioned by ``venue`` alone, and streams joined by key meet if each is
partitioned by its side of the equalities. Then a query needs no second stage: each bucket predicts by itself. Fewer attributes
make coarser buckets, so the largest sufficient set is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product

from pulse.operators.relational.exchange import exchanges
from pulse.plan.exchanges import place_exchanges
from pulse.runtime.predict.spec import Predictor

PartitionKeys = Mapping[str, tuple[str, ...]]
"""By stream, the key attributes whose values choose a tuple's bucket."""


def partition_keys(predictor: Predictor) -> PartitionKeys | None:
    """The partitioning under which each bucket answers its part of the query; None if rows of any two keys may have to meet."""
    plan = predictor.continuous.plan
    keys = {stream: spec.schema.key_names for stream, spec in predictor.specs.items()}
    if not exchanges(place_exchanges(plan)):
        return keys
    candidates = _candidates(predictor)
    return next((one for one in candidates if not exchanges(place_exchanges(plan, one))), None)


def _candidates(predictor: Predictor) -> Iterator[PartitionKeys]:
    """Yield partitionings with the same number and types of attributes for all streams, those by most attributes first."""
    types = {stream: dict(spec.schema.key) for stream, spec in predictor.specs.items()}
    for n in range(max(map(len, types.values())), 0, -1):
        for chosen in product(*(combinations(own, n) for own in types.values())):
            partitioning = dict(zip(types, chosen, strict=True))
            kinds = {tuple(types[stream][name] for name in names) for stream, names in partitioning.items()}
            if len(kinds) == 1:
                yield partitioning

"""Tighten models whose results exceed the query's own bound (semantics 6.2).

Bounds are allotted again as values change. A model that started under a larger share than its key has now stays in force, while
its join partner may use a share that has grown: their result may exceed the query's bound. So the models of keys in such results
are tightened to the current allotment, from the newest tuple before this push on (:mod:`pulse.validation.online.tighten`); the
tuples are validated after that.

This takes effect from each key's newest tuple on. If a stream lags and its tuples meet older, wider models of the other stream,
results exceed the bound: no information exists to tighten them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import apply_updates, keys_in
from pulse.operators.relational.scan import scans
from pulse.runtime.incremental.continuous_query import ContinuousQuery, followed
from pulse.validation.online.counts import ValidationCounts
from pulse.validation.online.tighten import loose, tighten
from pulse.validation.online.validator import Validator
from pulse.validation.revisions.history import AcceptedTuples, History

Parties = dict[str, tuple[pa.Array, ...] | None]
"""Keys by stream; None stands for all keys."""


def parties(query: ContinuousQuery, results: Relation) -> Parties:
    """The keys that take part in results, by stream; all keys of a stream that the results do not name."""
    found: Parties = {}
    own = results.columns.key_names
    chosen = results.without_empty_groups()
    for leaf in dict.fromkeys(scans(query.plan)):
        plain = query.columns[leaf.stream].key_names
        names = [followed(query.plan, f"{leaf.alias}.{name}") for name in plain]
        known = [name for name in names if name is not None and name in own]
        if not query.separates_keys or not names or len(known) < len(names):
            found[leaf.stream] = None
            continue
        keys = tuple(chosen.keys[own.index(name)] for name in known)
        before = found.get(leaf.stream, ())
        if before:
            keys = tuple(pa.concat_arrays([a, b.cast(a.type)]) for a, b in zip(before, keys, strict=True))
        if before is not None:
            found[leaf.stream] = keys
    return found


def merge_parties(one: Parties, other: Parties) -> Parties:
    """Unite the keys of two parties."""
    found = dict(one)
    for stream, keys in other.items():
        before = found.get(stream, ())
        if before is None or keys is None:
            found[stream] = None
        elif before:
            found[stream] = tuple(pa.concat_arrays([a, b]) for a, b in zip(before, keys, strict=True))
        else:
            found[stream] = keys
    return found


def tighten_models(
    validators: Mapping[str, Validator], histories: Mapping[str, History], asked: Parties
) -> dict[str, Relation]:
    """Tighten models of these keys that exceed their current allotment; return the new segments by stream."""
    found = {}
    for stream, keys in asked.items():
        rows = loose(validators[stream], keys)
        if len(rows):
            found[stream] = tighten(validators[stream], rows)
            if stream in histories:
                histories[stream].fresh.append(found[stream])
    return found


def prepend_segments(
    first: Mapping[str, Relation], taken: Mapping[str, AcceptedTuples]
) -> dict[str, AcceptedTuples]:
    """Prepend the segments of tightened models to accepted updates; those of revised keys are part of their revision."""
    found = dict(taken)
    for stream, segments in first.items():
        one = taken.get(stream)
        if one is None:
            found[stream] = AcceptedTuples(segments, None, ValidationCounts(), None)
            continue
        left = segments
        if one.revised is not None:
            left = segments.select_groups(np.flatnonzero(~keys_in(segments.keys, one.revised.keys)))
        found[stream] = one._replace(updates=apply_updates(left, one.updates, voids=True)[0])
    return found

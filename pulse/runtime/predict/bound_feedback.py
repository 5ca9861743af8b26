"""Models that are restated where results state more than the query's own bound allows (semantics 6.2).

Bounds are allotted anew as values move. A model that was begun under a wider share than its key has now stays in force, while
what it is joined with may use a share that has grown: together they may state more than the query asks. So the models of keys
that take part in such results are held to what is allotted now, and say so, from the newest tuple before those of this push on
(:mod:`pulse.validation.online.tighten`); the tuples are validated after that.

That helps from each key's newest tuple on. Where a stream is behind, and what its tuples say now meets what was said of the other
by wider models long ago, results state more than was asked: nothing is known by which they could state less.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import apply_updates, keys_in
from pulse.plan.nodes import scans
from pulse.runtime.incremental.continuous_query import ContinuousQuery, followed
from pulse.validation.online.tighten import loose, restate
from pulse.validation.online.validator import ValidationCounts, Validator
from pulse.validation.revisions.history import AcceptedTuples, History

Parties = dict[str, tuple[pa.Array, ...] | None]
"""Keys by stream; None: all."""


def parties(standing: ContinuousQuery, results: Relation) -> Parties:
    """The keys that take part in results, as far as these name them; all where they do not."""
    found: Parties = {}
    own = results.columns.key_names
    chosen = results.without_empty_groups()
    for leaf in dict.fromkeys(scans(standing.plan)):
        plain = standing.columns[leaf.stream].key_names
        names = [followed(standing.plan, f"{leaf.alias}.{name}") for name in plain]
        known = [name for name in names if name is not None and name in own]
        if not standing.treats_keys_apart or not names or len(known) < len(names):
            found[leaf.stream] = None
            continue
        keys = tuple(chosen.keys[own.index(name)] for name in known)
        before = found.get(leaf.stream, ())
        if before:
            keys = tuple(pa.concat_arrays([a, b.cast(a.type)]) for a, b in zip(before, keys, strict=True))
        if before is not None:
            found[leaf.stream] = keys
    return found


def together(one: Parties, other: Parties) -> Parties:
    """The keys of both."""
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


def restated(
    validators: Mapping[str, Validator], histories: Mapping[str, History], asked: Parties
) -> dict[str, Relation]:
    """Hold the models of these keys to what is allotted to them now, where they state more; the segments that say so."""
    found = {}
    for stream, keys in asked.items():
        rows = loose(validators[stream], keys)
        if len(rows):
            found[stream] = restate(validators[stream], rows)
            if stream in histories:
                histories[stream].fresh.append(found[stream])
    return found


def after(first: Mapping[str, Relation], taken: Mapping[str, AcceptedTuples]) -> dict[str, AcceptedTuples]:
    """What was taken after models were restated by these segments. Those of keys that are revised are part of the revision."""
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

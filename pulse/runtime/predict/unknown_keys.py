"""Limit the certainty of aggregates over keys whose value has become unknown (semantics 6.1, 6.2).

::

    key a   ├── known ──┤·· predicted ··┤            unknown, until its next tuple
    key b   ├── known ────────────────────────┤·· predicted ··
    max     ├──── certain ──────────────┤── likely, any error ──

A model ends at most a horizon after its key's newest tuple. After that neither the key's value nor its existence is known. So
from there on an aggregate that it may take part in is that of the other keys, ``likely`` at most, and its error is unbounded,
which no truth violates. (In a plan with quotients, or functions that are not defined everywhere, the aggregate has no value
there.) The key's next tuple corrects the results.

An ended key takes no part and causes no doubt: it was silent for longer than its stream's ``max_gap``, an attribute of it was
dropped, or punctuation has closed it (:mod:`pulse.validation.online.ended_keys`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.certainty import ABSENT, LIKELY, UNBOUNDED
from pulse.core.expression import TRUE, Arithmetic, Expression, Function, columns_of, walk
from pulse.core.instants import nearest_microsecond
from pulse.core.keys import key_ranks
from pulse.core.time import LATEST
from pulse.kernels.instants import GRAIN
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import is_over
from pulse.operators.functions.registry import rules_of
from pulse.operators.node import Node
from pulse.operators.node import walk as nodes
from pulse.operators.relational.scan import Scan, scans
from pulse.runtime.execution.scan import of_keys


class Ends(NamedTuple):
    """The keys of a scan, by column, and the instant from which each is unknown, in microseconds."""

    keys: Mapping[str, pa.Array]
    at: IntArray


def ends_of(stream: Relation, leaf: Scan) -> Ends:
    """The instants from which the keys of a stream at rest are unknown, for those that a scan reads; ended keys have none."""
    some = stream.without_empty_groups()
    if leaf.keys != TRUE:
        some = of_keys(some, leaf.keys).without_empty_groups()
    keys, at = ends_known(some)
    return Ends(dict(zip(some.prefixed(leaf.alias).columns.key_names, keys, strict=True)), at)


def ends_known(stream: Relation) -> tuple[tuple[pa.Array, ...], IntArray]:
    """The keys of a stream at rest, and the instant from which each is unknown."""
    some = stream.without_empty_groups()
    last = some.offsets[1:] - 1
    end = np.where(some.certainty == ABSENT, some.lo, some.hi)[last]
    at = nearest_microsecond(some.ref[last], end)
    return some.keys, np.where(is_over(some)[last], LATEST, at)


def bounded_only(plan: Node) -> bool:
    """Whether an expression needs bounded arguments: a quotient, or a function that is not defined and finite everywhere."""
    return any(_needs_bound(one) for node in nodes(plan) for made in node.expressions for one in walk(made))


def _needs_bound(one: Expression) -> bool:
    if isinstance(one, Arithmetic) and one.op == "/":
        return bool(columns_of(one.right))
    return isinstance(one, Function) and rules_of(one).needs_bounds


def downgrade_unknown(
    made: Relation, node: Node, unknown: Mapping[Node, Ends], *, left_out: bool
) -> Relation:
    """Downgrade, or with ``left_out`` remove, the rows of an aggregate from when on a key that may take part is unknown."""
    since = np.full(made.groups, LATEST)
    for leaf in dict.fromkeys(scans(node)):
        if leaf in unknown:
            since = np.minimum(since, _since(made, node, unknown[leaf]))
    if not len(made) or (since == LATEST).all():
        return made
    at = np.clip((since[made.group] - made.ref) / 1e6, -1e12, 1e12)
    after = made.lo >= at - GRAIN
    cut = ~after & (made.hi > at + GRAIN)
    rows = np.repeat(np.arange(len(made)), 1 + cut)
    second = np.concatenate(([False], rows[1:] == rows[:-1]))
    first = np.append(second[1:], False)
    lo = np.where(second, at[rows], made.lo[rows])
    hi = np.where(first, at[rows], made.hi[rows])
    doubt = after[rows] | second
    if left_out:
        some = np.flatnonzero(~doubt)
        return replace(made.take(rows[some], lo=lo[some], hi=hi[some]), drift={})
    out = made.take(rows, lo=lo, hi=hi)
    return replace(
        out,
        certainty=np.where(doubt, np.minimum(out.certainty, LIKELY), out.certainty).astype(np.uint8),
        err={name: np.where(doubt, UNBOUNDED, err) for name, err in out.err.items()},
        drift={},
    )


def without_bound(results: Relation) -> Relation:
    """Set the error of results without a bound to infinity."""
    if not any((err >= UNBOUNDED**0.5).any() for err in results.err.values()):
        return results
    return replace(
        results, err={n: np.where(err >= UNBOUNDED**0.5, np.inf, err) for n, err in results.err.items()}
    )


def _since(made: Relation, node: Node, ends: Ends) -> IntArray:
    """Per group of an aggregate, the instant from which a key of a scan that may take part in it is unknown."""
    if not len(ends.at):
        return np.full(made.groups, LATEST)
    own, mine, theirs = made.columns.key_names, [], []
    for name, column in ends.keys.items():
        output = followed(node.inputs[0], name)
        if output is not None and output in own:
            at = own.index(output)
            mine.append(made.keys[at])
            theirs.append(column.cast(made.keys[at].type))
    if not mine:
        return np.full(made.groups, ends.at.min())
    joined = [pa.concat_arrays([a, b]) for a, b in zip(mine, theirs, strict=True)]
    ranks = key_ranks(joined, made.groups + len(ends.at))
    first = np.full(int(ranks.max(initial=0)) + 1, LATEST)
    np.minimum.at(first, ranks[made.groups :], ends.at)
    found: IntArray = first[ranks[: made.groups]]
    return found


def followed(plan: Node, name: str) -> str | None:
    """The output's name of a scan's key column; None if it is lost."""
    if not plan.inputs:
        return plan.key_output(name)
    found = next((one for one in (followed(below, name) for below in plan.inputs) if one is not None), None)
    return None if found is None else plan.key_output(found)

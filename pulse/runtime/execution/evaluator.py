"""Evaluate a fragment over one batch of inputs: each plan node by its operator, equal nodes once.

There are two ways to the same answer. For **segments**, every operator solves its equation system. For **samples**, when tuples
at a rate are wanted, operators above windows work on values at those instants, and a window is evaluated at them directly from
the segments below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.node import Node, walk
from pulse.operators.output.sampling import sample
from pulse.operators.relational.spatial_grid import PairHome
from pulse.runtime.predict.unknown_keys import Ends, downgrade_unknown

SHARED_BYTES = 1 << 29
"""Samples of windows that the variants of a sweep share, per worker."""

SHARED_SCANS = 4
"""Narrowed scans that they share."""


_BYTES_PER_INSTANT = 17  # value, error and certainty

Homes = Callable[[Relation, Relation], PairHome]
"""Map the two inputs of a pair join to the pairs that are solved here."""


class FragmentEvaluation:
    """Evaluate the nodes of a fragment over ``inputs``: the relations of its leaves, or of any other nodes.

    ``possible``: whether possible ranges are wanted at the end. ``home``: which pairs a pair join solves here. ``unknown``: per
    leaf, from when on the values of its keys are unknown, where that ends (:mod:`pulse.runtime.predict.unknown_keys`); with
    ``bounded_only`` aggregates have no results then. Shared nodes are evaluated once, and cached as long as this object.
    """

    def __init__(
        self,
        inputs: Mapping[Node, Relation],
        *,
        possible: bool = False,
        home: PairHome | Homes | None = None,
        unknown: Mapping[Node, Ends] | None = None,
        bounded_only: bool = False,
    ) -> None:
        self._inputs, self.possible, self._home = dict(inputs), possible, home
        self._unknown, self._bounded_only = unknown or {}, bounded_only
        self._relations: dict[tuple[Node, bool], Relation] = {}
        self._sampled: dict[tuple[Node, int], Samples] = {}
        self._expected: dict[tuple[Any, ...], dict[Node, None]] = {}

    def expect(self, roots: Iterable[Node]) -> None:
        """Announce plans that will be sampled: their windows over one input are then evaluated in one pass."""
        for root in roots:
            for node in walk(root):
                if node.pass_of_samples is not None:
                    self._expected.setdefault(node.pass_of_samples, {})[node] = None

    def segments(self, node: Node, possible: bool | None = None) -> Relation:
        """Return the node's output as segments; with ``possible`` rows as in the end, unless given."""
        wanted = self.possible if possible is None else possible
        if node.is_leaf or node in self._inputs:
            given = self._inputs[node]
            return given.without_possible() if node.reads_certainty and not wanted else given
        key = node, wanted
        if key not in self._relations:
            made = node.segments(self, wanted)
            if self._unknown and node.combines_keys:
                made = downgrade_unknown(made, node, self._unknown, left_out=self._bounded_only)
            self._relations[key] = made
        return self._relations[key]

    def samples(self, node: Node, every: int) -> Samples:
        """Return the node's output at multiples of ``every`` (microseconds) since the epoch."""
        key = node, every
        if key not in self._sampled:
            if node.columns.points:  # several may share an instant, and a predicate may keep any of them
                self._sampled[key] = sample(self.segments(node), every)
            else:
                self._sampled[key] = node.samples(self, every)
        return self._sampled[key]

    def instants(self, node: Node, every: int, *, possible: bool | None = None) -> Relation:
        """Return the node's output at multiples of ``every``, as points: several per instant where keys are merged."""
        if possible is not None and possible != self.possible:
            return FragmentEvaluation(self._inputs, possible=possible, home=self._home).instants(node, every)
        given = self._inputs.get(node)
        if given is not None and given.columns.points:
            return given
        return node.instants(self, every)

    def carries_instants(self, node: Node) -> bool:
        """Return whether partial aggregates arrived as points; those that arrived as segments are merged as segments."""
        leaves = (one for one in walk(node) if one in self._inputs and one.inputs)
        return all(self._inputs[one].columns.points or not one.inputs[0].is_partial for one in leaves)

    def pairs_here(self, left: Relation, right: Relation) -> PairHome | None:
        """Return which pairs of two inputs are solved here; None for all."""
        return (
            self._home if self._home is None or isinstance(self._home, PairHome) else self._home(left, right)
        )

    def in_one_pass(self, node: Node, below: Relation, every: int) -> Samples:
        """Evaluate a window, and with it the expected windows over the same input, as far as the cache has room.

        The smallest of them all is always evaluated: its places are those of all, whenever they are evaluated, and windows that
        share places are joined without a copy.
        """
        shared = node.pass_of_samples
        assert shared is not None
        used = sum(_bytes(one) for (other, _), one in self._sampled.items() if other.keeps_samples)
        instants = below.groups + float((below.hi - below.lo).sum()) * 1e6 / every
        room = int((SHARED_BYTES - used) / (_BYTES_PER_INSTANT * instants + 1.0))
        expected = tuple(self._expected.get(shared, ()))
        others = [one for one in expected if one != node and (one, every) not in self._sampled]
        smallest = min((node, *expected), key=lambda one: one.looks_back)
        chosen = list(dict.fromkeys((node, *others[: max(room - 1, 0)], smallest)))
        found = dict(zip(chosen, node.samples_in_one_pass(below, chosen, every), strict=True))
        self._sampled |= {(one, every): samples for one, samples in found.items() if one in others}
        return found[node]

    # -- shared by the variants of a sweep ------------------------------------------------------------------

    def has(self, leaf: Node) -> bool:
        """Return whether the leaf's relation is among the inputs."""
        return leaf in self._inputs

    def give(self, inputs: Mapping[Node, Relation]) -> None:
        """Add relations of further leaves."""
        self._inputs |= inputs

    def keep_shared(self) -> None:
        """Drop what only one variant needs, and the oldest windows while the cache is too large."""
        self._relations.clear()
        for key in [key for key in self._sampled if not key[0].keeps_samples]:
            del self._sampled[key]
        while sum(map(_bytes, self._sampled.values())) > SHARED_BYTES:
            del self._sampled[next(iter(self._sampled))]
        while len(self._inputs) > SHARED_SCANS:
            del self._inputs[next(iter(self._inputs))]


def _bytes(samples: Samples) -> int:
    numbers = sum(array.nbytes for array in (*samples.values.values(), *samples.err.values()))
    return numbers + samples.certainty.nbytes

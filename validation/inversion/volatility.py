"""Propagate the volatility of the streams' attributes to the columns inside a plan, and pool and use it.

Volatility is a size in the attribute's own unit (per root of a second, or any other unit common to all), so it propagates
through operators as an error does (``Node.volatility``): through expressions by the forward rules, through ``sum`` over a
window by its seconds, across keys by the largest, the sum or the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.expression import Expression
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.needs import TUPLE_RATE, Needs, group_max
from pulse.operators.node import Node
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.inversion.error_propagation import Errors, Forward

Evaluate = Callable[[Node], Relation]
"""A function that returns the output of a plan node, scans included: with the runtime, its evaluation's ``segments``."""


def pooled(streams: Mapping[str, Allotment]) -> dict[str, Allotment]:
    """Assign every key the volatility of its stream's attribute over all keys: the root of the mean square."""
    out = {}
    for stream, known in streams.items():
        typical = {name: _root_mean_square(values) for name, values in known.bounds.items()}
        bounds = {name: np.full(len(known), value) for name, value in typical.items()}
        out[stream] = Allotment(stream, known.keys, bounds, typical)
    return out


def _root_mean_square(values: FloatArray) -> float:
    """Return the root mean square of the finite values without overflow; 0 without any."""
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max(initial=0.0))
    return largest * float(np.sqrt(np.mean((finite / largest) ** 2))) if largest > 0.0 else 0.0


def expected_violations(allotted: Mapping[str, Allotment], rates: Mapping[str, Allotment]) -> float:
    """Estimate violations per second over all keys as random walks: ``sum(min(sum((r / b)^2), pace))``, at most one a tuple."""
    total = 0.0
    for stream, known in rates.items():
        if stream not in allotted or not len(known):
            continue
        bounds = allotted[stream].of(known.keys, len(known))
        of_key = np.zeros(len(known))
        with np.errstate(over="ignore"):
            for name, rate in known.bounds.items():
                if name in bounds:
                    of_key += np.minimum(rate / np.maximum(bounds[name], 1e-300), 1e150) ** 2
        total += float(np.minimum(of_key, known.bounds.get(TUPLE_RATE, np.full(len(known), np.inf))).sum())
    return total


class Volatility:
    """The volatility of every node's columns, as its operators see it; empty if no stream's is known."""

    def __init__(self, segments: Evaluate, streams: Mapping[str, Allotment] | None) -> None:
        self.segments, self._streams = segments, streams
        self._known: dict[Node, Needs] = {}

    def rows(self, node: Node) -> Errors:
        if self._streams is None:
            return {}
        group = self.segments(node).group
        return {name: values[group] for name, values in self.groups(node).items()}

    def groups(self, node: Node) -> Needs:
        if self._streams is None:
            return {}
        if node not in self._known:
            self._known[node] = node.volatility(self, self.segments(node))
        return self._known[node]

    def of_stream(self, stream: str, relation: Relation) -> Needs:
        known = (self._streams or {}).get(stream)
        if known is None:
            return {}
        found = known.of(relation.keys, relation.groups)
        return {name: _finite(values) for name, values in found.items() if name != TUPLE_RATE}

    def of_expression(self, node: Node, expression: Expression) -> FloatArray:
        forward = Forward(self.segments(node), [expression], "project")
        group, known = forward.relation.group, self.groups(node)
        moved = forward.error(0, {name: np.nan_to_num(v, nan=0.0)[group] for name, v in known.items()})
        return _finite(group_max(moved, group, self.segments(node).groups))


def _finite(values: FloatArray) -> FloatArray:
    """Replace infinite values by NaN, unknown."""
    return np.where(np.isfinite(values), values, np.nan)

"""Propagate the volatility of the streams' attributes to the columns inside a plan.

Volatility is a size in the attribute's own unit (per root of a second, or any other unit common to all), so it propagates
through operators as an error does: through expressions by the forward rules, through ``sum`` over a window by its
seconds, across keys by the largest, the sum or the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.expression import Column
from pulse.operators.across.across import Across
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.needs import TUPLE_RATE, Needs, gather, group_max, mirrored, positions
from pulse.operators.node import Node
from pulse.operators.relational.join import Join
from pulse.operators.relational.mirror import Mirror
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.inversion.error_propagation import Errors, Forward


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
    """The volatility of every node's columns; empty if no stream's is known."""

    def __init__(self, evaluate: Callable[[Node], Relation], streams: Mapping[str, Allotment] | None) -> None:
        self._evaluate, self._streams = evaluate, streams
        self._known: dict[Node, Needs] = {}

    def rows(self, node: Node) -> Errors:
        """Return the volatility per row of the node's relation."""
        if self._streams is None:
            return {}
        group = self._evaluate(node).group
        return {name: values[group] for name, values in self.groups(node).items()}

    def groups(self, node: Node) -> Needs:
        """Return the volatility per group of the node's relation."""
        if self._streams is None:
            return {}
        if node not in self._known:
            self._known[node] = self._of(node)
        return self._known[node]

    def _of(self, node: Node) -> Needs:
        relation = self._evaluate(node)
        n = relation.groups
        match node:
            case Scan():
                assert self._streams is not None
                known = self._streams.get(node.stream)
                if known is None:
                    return {}
                found = known.of(relation.keys, n)
                own = {name: values for name, values in found.items() if name != TUPLE_RATE}
                return {f"{node.alias}.{name}": _finite(values) for name, values in own.items()}
            case Project():
                return self._project(node, relation)
            case Window():
                argument = self._below(node.input, relation).get(node.argument)
                scale = node.size / 1e6 if node.function == "sum" and isinstance(node.size, int) else 1.0
                return {} if argument is None else {node.output: argument * scale}
            case Across():
                return self._across(node, relation)
            case Join():
                keys = len(node.left.columns.key)
                left, right = self._evaluate(node.left), self._evaluate(node.right)
                at_left = positions(relation.keys[:keys], left.keys, n, left.groups)
                at_right = positions(relation.keys[keys:], right.keys, n, right.groups)
                out = {name: gather(v, at_left) for name, v in self.groups(node.left).items()}
                return out | {name: gather(v, at_right) for name, v in self.groups(node.right).items()}
            case Mirror():
                below, other = self._evaluate(node.input), node.exchanged
                image = positions(mirrored(relation, other), below.keys, n, below.groups)
                out = self._below(node.input, relation)
                for name, values in self.groups(node.input).items():
                    swapped = other.get(name, name)
                    out[swapped] = np.fmax(out.get(swapped, np.full(n, np.nan)), gather(values, image))
                return out
            case Union():
                out = {}
                for member in node.members:
                    names = dict(zip(member.columns.modelled, node.columns.modelled, strict=True))
                    for name, values in self._below(member, relation).items():
                        out[names[name]] = np.fmax(out.get(names[name], np.full(n, np.nan)), values)
                return out
        return self._below(node.inputs[0], relation)

    def _below(self, node: Node, relation: Relation) -> Needs:
        """Return an input's volatility for the groups of equal keys."""
        below = self._evaluate(node)
        at = positions(relation.keys, below.keys, relation.groups, below.groups)
        return {name: gather(values, at) for name, values in self.groups(node).items()}

    def _project(self, node: Project, relation: Relation) -> Needs:
        below = self._evaluate(node.input)
        known = self.groups(node.input)
        made = [(name, dict(node.outputs)[name]) for name in node.columns.modelled]
        out: Needs = {}
        for name, expression in made:
            if isinstance(expression, Column):
                if expression.name in known:
                    out[name] = known[expression.name]
                continue
            forward = Forward(below, [expression], "project")
            group = forward.relation.group
            moved = forward.error(0, {one: np.nan_to_num(v, nan=0.0)[group] for one, v in known.items()})
            out[name] = _finite(group_max(moved, group, below.groups))
        # A projection keeps the groups of its input, in order.
        assert relation.groups == below.groups
        return out

    def _across(self, node: Across, relation: Relation) -> Needs:
        below = self._evaluate(node.input)
        values = self.groups(node.input).get(node.argument)
        if values is None:
            return {}
        names = below.columns.key_names
        own = [below.keys[names.index(name)] for name in relation.columns.key_names]
        at = positions(own, relation.keys, below.groups, relation.groups)
        there = (at >= 0) & ~np.isnan(values)
        if node.function in ("min", "max"):
            return {node.output: group_max(values, at, relation.groups)}
        total: FloatArray = np.bincount(at[there], values[there], relation.groups).astype(float)
        number = np.bincount(at[there], minlength=relation.groups)
        return {node.output: total if node.function == "sum" else total / np.maximum(number, 1)}


def _finite(values: FloatArray) -> FloatArray:
    """Replace infinite values by NaN, unknown."""
    return np.where(np.isfinite(values), values, np.nan)

"""Invert bounds on a query's output to bounds on its inputs, walking down its plan (paper IV-B, semantics 4.3).

Every node's output has, per key and modelled column, a *need*: the largest error that keeps the query's bounds; infinite where
nothing depends on it, NaN where it is still unknown (a window not yet full, a key without a partner). The needs of a node's
inputs follow from those of its output, operator by operator:

========== =======================================================================================================
project    unchanged through names (*translations*); through expressions by their forward rules and the split
           (:mod:`~pulse.validation.inversion.error_propagation`, :mod:`~pulse.validation.inversion.apportion`)
filter     passed on where a key has results. The predicate's columns (*inferences*) get a share of its margin, the slack
           where there is no result and the depth where there is one, or of the query's tolerance where that is larger
           (:mod:`~pulse.validation.inversion.predicate`)
join       passed on to the sides; its condition as a filter, over all pairs whose keys can match
           (:mod:`~pulse.validation.inversion.join`); progressive filling then distributes what the smallest shares leave
           (:mod:`~pulse.operators.inversion.max_min_fill`)
window     ``avg``, ``min``, ``max``: passed on; ``sum``: divided by the window's seconds
across     :mod:`~pulse.validation.inversion.across`
union      passed on to the member that a key came from
mirror     the smaller of a pair and its mirror image, each column's from where it was exchanged to
========== =======================================================================================================

A column that several nodes use must satisfy all of them: at a scan the smallest need counts. Keys of unknown need, and keys yet
to come, get the smallest known need of the stream's attribute, or else the bound that holds for any data
(:func:`~pulse.plan.required_fit.required_fit`).

Relative bounds refer to the smallest value that the truth may have on the result's range: with
``b = p |m| / (1 + p)``, ``b <= p (|m| - b) <= p |truth|``. A relative bound on all columns also limits what predicates
compare, as a part of the larger side; so does an absolute one where the query selects no modelled column at all,
only keys and times. Where it selects some, predicates may err by as much as the output, or as keeps their answer.

The guarantee: while every input stays within its allotted bound, the output is within its bound at every instant at which
both it and the true output exist. Below an aggregate across keys, it also requires that the same keys take part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.bounds import Absolute, ErrorBound, Relative, RelativeWithFloor
from pulse.core.errors import unknown_column
from pulse.core.expression import TRUE, Column, Expression
from pulse.kernels.polynomial.extrema import bounds as extrema
from pulse.operators.across.across import Across
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.needs import Needs, gather, group_min, mirrored, positions, smaller
from pulse.operators.inversion.split_heuristics import Split, get
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.mirror import Mirror
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window
from pulse.plan.query import Query
from pulse.plan.required_fit import required_fit
from pulse.validation.inversion import across, join
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.inversion.apportion import shares
from pulse.validation.inversion.error_propagation import Forward
from pulse.validation.inversion.predicate import Tolerance, decision_shares
from pulse.validation.inversion.volatility import Volatility

Evaluate = Callable[[Node], Relation]
"""A function that returns the output of a plan node, scans included: with the runtime, its evaluation's ``segments``."""


def invert(
    plan: Node,
    bounds: Mapping[str | None, ErrorBound],
    evaluate: Evaluate,
    *,
    split: str = "equi",
    volatility: Mapping[str, Allotment] | None = None,
    inferences: bool = True,
) -> dict[str, Allotment]:
    """Compute the bounds of every stream's keys and attributes that keep the bounds on the output's columns.

    Parameters
    ----------
    plan : the query plan, its parameters bound, without exchanges
    bounds : bound by output column; None stands for all modelled columns
    evaluate : returns the output of a plan node
    split : name of the split (:mod:`~pulse.operators.inversion.split_heuristics`), default ``equi``
    volatility : volatility of each key's attributes per stream, in any one unit, default None (all equal)
    inferences : whether the existence of results counts and not only their values, default True
    """
    column_bounds = _by_column(plan, bounds)
    restless = Volatility(evaluate, volatility)
    walk = _Inversion(evaluate, get(split), restless, _tolerance(plan, bounds), inferences)
    root = evaluate(plan)
    walk.down(plan, {name: _need(root, name, one) for name, one in column_bounds.items()})
    static = _static(plan, column_bounds)
    return {stream: _allotment(stream, uses, static) for stream, uses in walk.found.items()}


def _by_column(plan: Node, bounds: Mapping[str | None, ErrorBound]) -> dict[str, tuple[ErrorBound, ...]]:
    modelled = plan.columns.modelled
    out: dict[str, tuple[ErrorBound, ...]] = {}
    for name, bound in bounds.items():
        if name is not None and name not in modelled:
            raise unknown_column(name, modelled, "the query's modelled columns")
        for one in modelled if name is None else (name,):
            out[one] = (*out.get(one, ()), bound)
    return out


def _tolerance(plan: Node, bounds: Mapping[str | None, ErrorBound]) -> Tolerance | None:
    general = bounds.get(None)
    if general is None:
        return None
    if isinstance(general, Absolute):
        return Tolerance(0.0, general.value, strict=not plan.columns.modelled)
    assert isinstance(general, (Relative, RelativeWithFloor))
    part = general.percent / 100.0
    floor = general.floor if isinstance(general, RelativeWithFloor) else 0.0
    return Tolerance(part / (1.0 + part), floor, strict=True)


def absolute_bounds(relation: Relation, name: str, bound: ErrorBound) -> FloatArray:
    """Return per row the absolute bound that keeps ``bound`` against every truth within it (semantics 2.4)."""
    if isinstance(bound, Absolute):
        return np.full(len(relation), bound.value)
    assert isinstance(bound, (Relative, RelativeWithFloor))
    low, high, _ = extrema(relation.models[name], relation.lo, relation.hi)
    size = np.where((low <= 0.0) & (high >= 0.0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    part = bound.percent / 100.0
    floor = bound.floor if isinstance(bound, RelativeWithFloor) else 0.0
    return np.maximum(part / (1.0 + part) * size, floor)


def _need(root: Relation, name: str, bounds: tuple[ErrorBound, ...]) -> FloatArray:
    need = np.full(root.groups, np.nan)
    for bound in bounds:
        own = group_min(absolute_bounds(root, name, bound), root.group, root.groups)
        if isinstance(bound, Absolute):  # holds also where there is no result yet
            own = np.full(root.groups, bound.value)
        need = np.fmin(need, own)
    return need


def _static(plan: Node, column_bounds: Mapping[str, tuple[ErrorBound, ...]]) -> dict[tuple[str, str], float]:
    """Return the bounds that hold for any data, by stream and attribute, where derivable."""
    fixed = {
        name: min(one.value for one in many if isinstance(one, Absolute))
        for name, many in column_bounds.items()
        if any(isinstance(one, Absolute) for one in many)
    }
    fits = required_fit(Query(plan, ()), fixed)
    return {place: fit.error for place, fit in fits.items() if fit.error is not None}


def _allotment(
    stream: str, uses: list[tuple[Relation, Needs]], static: Mapping[tuple[str, str], float]
) -> Allotment:
    """Return the smallest need of each key and attribute over all uses of a stream."""
    merged: Allotment | None = None
    names = tuple(dict.fromkeys(name for _, needs in uses for name in needs))
    for relation, needs in uses:
        own = Allotment(
            stream,
            relation.keys,
            {name: _known(needs.get(name), relation.groups) for name in names},
            {},
        )
        merged = own if merged is None else merged.tighter(own)
    assert merged is not None
    known = {name: np.concatenate([_values(needs.get(name)) for _, needs in uses]) for name in names}
    default = {name: _default(known[name], static.get((stream, name))) for name in names}
    bounds = dict(merged.bounds)
    for name in names:
        unknown = _unknown(merged.keys, len(merged), uses, name)
        bounds[name] = np.where(unknown, np.minimum(default[name], bounds[name]), bounds[name])
    return Allotment(stream, merged.keys, bounds, default)


def _values(need: FloatArray | None) -> FloatArray:
    return np.zeros(0) if need is None else need[~np.isnan(need)]


def _known(need: FloatArray | None, n: int) -> FloatArray:
    return np.full(n, np.inf) if need is None else np.where(np.isnan(need), np.inf, need)


def _unknown(keys: tuple[pa.Array, ...], n: int, uses: list[tuple[Relation, Needs]], name: str) -> FloatArray:
    """Return the keys whose need is unknown in some use of the stream."""
    unknown = np.zeros(n, bool)
    for relation, needs in uses:
        if name in needs:
            unknown |= np.isnan(gather(needs[name], positions(keys, relation.keys, n, relation.groups)))
    return unknown


def _default(known: FloatArray, static: float | None) -> float:
    finite = known[np.isfinite(known)]
    smallest = float(finite.min()) if len(finite) else np.inf
    return smallest if static is None else min(smallest, static)


@dataclass(frozen=True)
class _Inversion:
    """One walk down a plan; ``found`` collects the needs of each scan."""

    evaluate: Evaluate
    split: Split
    restless: Volatility
    tolerance: Tolerance | None
    inferences: bool
    found: dict[str, list[tuple[Relation, Needs]]] = field(default_factory=dict)

    def down(self, node: Node, needs: Needs) -> None:
        """Propagate the needs of a node's output to its inputs, recursively."""
        relation = self.evaluate(node)
        match node:
            case Scan():
                own = {name.removeprefix(f"{node.alias}."): need for name, need in needs.items()}
                self.found.setdefault(node.stream, []).append((relation, own))
            case Filter():
                self._filter(node, relation, needs)
            case Project():
                self._project(node, relation, needs)
            case Window():
                self._window(node, relation, needs)
            case Across():
                self._across(node, relation, needs)
            case Union():
                for member in node.members:
                    below = self.evaluate(member)
                    at = positions(below.keys, relation.keys, below.groups, relation.groups)
                    names = dict(zip(node.columns.modelled, member.columns.modelled, strict=True))
                    self.down(member, {names[name]: gather(need, at) for name, need in needs.items()})
            case Mirror():
                self._mirror(node, relation, needs)
            case Join():
                found = join.passed_on(node, relation, needs, self.evaluate)
                if self.inferences:
                    found = join.with_condition(
                        node, found, self.evaluate, self.split, self.restless, self.tolerance
                    )
                for side, own in zip(node.inputs, found, strict=True):
                    self.down(side, own)
            case _:
                raise AssertionError(f"no inversion of {type(node).__name__}")

    def _filter(self, node: Filter, relation: Relation, needs: Needs) -> None:
        below = self.evaluate(node.input)
        at = positions(below.keys, relation.keys, below.groups, relation.groups)
        # Where the predicate passes no rows, only its margin counts.
        emptied = (np.diff(below.offsets) > 0) & (gather(np.diff(relation.offsets).astype(float), at) == 0.0)
        passed = {name: np.where(emptied, np.inf, gather(need, at)) for name, need in needs.items()}
        if self.inferences and node.predicate != TRUE:
            own = decision_shares(
                below, node.predicate, self.split, self.restless.rows(node.input), self.tolerance
            )
            passed = smaller(passed, own)
        self.down(node.input, passed)

    def _project(self, node: Project, relation: Relation, needs: Needs) -> None:
        below = self.evaluate(node.input)
        at = _projected(node, below, relation)
        outputs = dict(node.outputs)
        out: Needs = {}
        made: list[tuple[str, Expression]] = []
        for name, need in needs.items():
            expression = outputs.get(name, Column(name))
            if isinstance(expression, Column):
                out = smaller(out, {expression.name: gather(need, at)})
            else:
                made.append((name, expression))
        if made:
            forward = Forward(below, [expression for _, expression in made], "project")
            rest = self.restless.rows(node.input)
            of_part = {name: values[forward.row] for name, values in rest.items()}
            group = forward.relation.group
            for i, (name, _) in enumerate(made):
                budget = gather(needs[name], at)[group]
                found = shares(forward, i, budget, self.split, of_part)
                own = {column: group_min(values, group, below.groups) for column, values in found.items()}
                out = smaller(out, own)
        self.down(node.input, out)

    def _mirror(self, node: Mirror, relation: Relation, needs: Needs) -> None:
        below = self.evaluate(node.input)
        n, m = below.groups, relation.groups
        at = positions(below.keys, relation.keys, n, m)
        image = positions(mirrored(below, node.exchanged), relation.keys, n, m)
        other = node.exchanged
        own = {name: gather(need, at) for name, need in needs.items()}
        self.down(
            node.input, smaller(own, {other.get(name, name): gather(v, image) for name, v in needs.items()})
        )

    def _window(self, node: Window, relation: Relation, needs: Needs) -> None:
        if node.output not in needs:
            self.down(node.input, {})
            return
        assert isinstance(node.size, int)
        below = self.evaluate(node.input)
        at = positions(below.keys, relation.keys, below.groups, relation.groups)
        scale = node.size / 1e6 if node.function == "sum" else 1.0
        self.down(node.input, {node.argument: gather(needs[node.output], at) / scale})

    def _across(self, node: Across, relation: Relation, needs: Needs) -> None:
        if node.output not in needs:
            self.down(node.input, {})
            return
        below = self.evaluate(node.input)
        rest = self.restless.rows(node.input).get(node.argument)
        own = across.invert_across(node, below, relation, needs[node.output], self.split, rest)
        self.down(node.input, {node.argument: own})


def _projected(node: Project, below: Relation, relation: Relation) -> IntArray:
    """Return the output group of each group of a projection's input.

    All key columns are there, possibly renamed, except hidden ones, which equal another.
    """
    source = {}
    outputs = dict(node.outputs)
    for name, column in zip(relation.columns.key_names, relation.keys, strict=True):
        expression = outputs.get(name, Column(name))
        if isinstance(expression, Column):
            source[expression.name] = column
    source |= {name: source[equal] for name, equal in node.hidden}
    among = [source[name] for name in below.columns.key_names]
    return positions(below.keys, among, below.groups, relation.groups)

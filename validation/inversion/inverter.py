"""Invert bounds on a query's output to bounds on its inputs, walking down its plan (paper IV-B, semantics 4.3).

Every node's output has, per key and modelled column, a *need*: the largest error that keeps the query's bounds; infinite where
nothing depends on it, NaN where it is still unknown (a window not yet full, a key without a partner). The needs of a node's
inputs follow from those of its output, operator by operator (``Node.invert``): through names and expressions, and by the
decisions of predicates, whose columns (*inferences*) get a share of their margin: the slack where there is no result and the
depth where there is one, or of the query's tolerance where that is larger (:mod:`~pulse.validation.inversion.predicate`).

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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray
from pulse.core.bounds import Absolute, ErrorBound
from pulse.core.errors import unknown_column
from pulse.core.expression import Expression, Parameter
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.needs import Needs, gather, group_min, positions, smaller
from pulse.operators.inversion.sources import Limited
from pulse.operators.inversion.split_heuristics import Split, SplitInput, allot, get
from pulse.operators.node import Node
from pulse.plan.query import Query
from pulse.plan.required_fit import required_fit
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.inversion.apportion import shares
from pulse.validation.inversion.error_propagation import Errors, Forward, linear_legs
from pulse.validation.inversion.predicate import Tolerance, decision_shares, least_size
from pulse.validation.inversion.volatility import Evaluate, Volatility


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
    column_bounds = bounds_by_column(plan, bounds.items())
    known = Volatility(evaluate, volatility)
    walk = PlanInversion(evaluate, get(split), known, _tolerance(plan, bounds), inferences)
    root = evaluate(plan)
    walk.down(plan, {name: _need(root, name, one) for name, one in column_bounds.items()})
    static = _static(plan, column_bounds)
    return {stream: _allotment(stream, uses, static) for stream, uses in walk.found.items()}


def bounds_by_column(
    plan: Node, bounds: Iterable[tuple[str | None, ErrorBound | Parameter]]
) -> dict[str, tuple[ErrorBound, ...]]:
    """Return all bounds of each modelled column of a plan's output; None stands for all columns."""
    modelled = plan.columns.modelled
    out: dict[str, tuple[ErrorBound, ...]] = {}
    for name, bound in bounds:
        assert isinstance(bound, ErrorBound), "parameters are bound"
        if name is not None and name not in modelled:
            raise unknown_column(name, modelled, "the query's modelled columns")
        for one in modelled if name is None else (name,):
            out[one] = (*out.get(one, ()), bound)
    return out


def _tolerance(plan: Node, bounds: Mapping[str | None, ErrorBound]) -> Tolerance | None:
    general = bounds.get(None)
    if general is None:
        return None
    strict = not isinstance(general, Absolute) or not plan.columns.modelled
    return Tolerance.by(general, strict=strict)


def absolute_bounds(relation: Relation, name: str, bound: ErrorBound) -> FloatArray:
    """Return per row the absolute bound that keeps ``bound`` against every truth within it (semantics 2.4)."""
    if isinstance(bound, Absolute):
        return np.full(len(relation), bound.value)
    part, floor, _ = Tolerance.by(bound, strict=True)
    return np.maximum(part * least_size(relation.models[name], relation), floor)


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
class PlanInversion:
    """One walk down a plan, as its operators see it; ``found`` collects the needs of each stream's uses."""

    segments: Evaluate
    split: Split
    volatility: Volatility
    tolerance: Tolerance | None
    inferences: bool
    found: dict[str, list[tuple[Relation, Needs]]] = field(default_factory=dict)

    def down(self, node: Node, needs: Needs) -> None:
        """Propagate the needs of a node's output to its inputs, recursively."""
        for one, own in zip(node.inputs, node.invert(self, self.segments(node), needs), strict=True):
            self.down(one, own)

    def require(self, stream: str, relation: Relation, needs: Needs) -> None:
        self.found.setdefault(stream, []).append((relation, needs))

    def allot(self, question: SplitInput) -> FloatArray:
        return allot(self.split, question)

    def shares(self, node: Node, needs: Sequence[tuple[Expression, FloatArray]]) -> Needs:
        below = self.segments(node)
        forward = Forward(below, [expression for expression, _ in needs], "project")
        of_part = {name: values[forward.row] for name, values in self.volatility.rows(node).items()}
        group = forward.relation.group
        out: Needs = {}
        for i, (_, need) in enumerate(needs):
            found = shares(forward, i, need[group], self.split, of_part)
            own = {name: group_min(values, group, below.groups) for name, values in found.items()}
            out = smaller(out, own)
        return out

    def decision_shares(
        self,
        rows: Relation,
        predicate: Expression,
        volatility: Errors,
        *,
        empty_only: bool = False,
        limited: Limited | None = None,
    ) -> Needs:
        def note(forward: Forward, index: int, limit: FloatArray) -> None:
            if limited is not None:
                limited(forward.expressions[index], forward.row, limit)

        return decision_shares(
            rows, predicate, self.split, volatility, self.tolerance, empty_only=empty_only, note=note
        )

    def tolerated(self, size: float) -> float:
        return 0.0 if self.tolerance is None else max(self.tolerance.part * size, self.tolerance.floor)

    def linear_legs(self, expression: Expression, columns: Sequence[str]) -> list[dict[str, float]] | None:
        return linear_legs(expression, columns)

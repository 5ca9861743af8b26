"""Derive how far a predicate's columns may move without changing its answer (inferences; paper IV-B, semantics 4.3).

Validation alternates (paper IV): where there is a result the query's accuracy counts, where there is none the slack
(:mod:`~pulse.validation.inversion.slack`). So a predicate's columns share its margin or the query's own tolerance, whichever is
larger: near a boundary the margin is close to zero and every tuple would be a violation, only to learn on which
side of it an inexact model lies. Certainty covers that (semantics 3.9).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.bounds import Absolute, ErrorBound, Relative, RelativeWithFloor
from pulse.core.expression import Comparison, Expression
from pulse.kernels.polynomial.extrema import bounds
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.needs import Needs, group_min
from pulse.operators.inversion.split_heuristics import Split
from pulse.validation.inversion.error_propagation import Errors, Forward
from pulse.validation.inversion.margin_curves import root_level
from pulse.validation.inversion.slack import Note, margins, shares_of_margin


def least_size(c: FloatArray, relation: Relation) -> FloatArray:
    """Return the smallest absolute value of a polynomial in each row of a relation."""
    low, high, _ = bounds(c, relation.lo, relation.hi)
    return np.where((low <= 0.0) & (high >= 0.0), 0.0, np.minimum(np.abs(low), np.abs(high)))


class Tolerance(NamedTuple):
    """The allowed error of what a predicate compares: ``part`` of the larger side, at least ``floor``.

    ``strict``: this limit also holds where there is a result, however deep it lies.
    """

    part: float
    floor: float
    strict: bool

    @classmethod
    def by(cls, bound: ErrorBound, *, strict: bool) -> Tolerance:
        """Return the tolerance that keeps a bound against every truth within it (semantics 2.4)."""
        if isinstance(bound, Absolute):
            return cls(0.0, bound.value, strict)
        assert isinstance(bound, (Relative, RelativeWithFloor))
        part = bound.percent / 100.0
        floor = bound.floor if isinstance(bound, RelativeWithFloor) else 0.0
        return cls(part / (1.0 + part), floor, strict)

    def of(self, comparison: Comparison, relation: Relation) -> FloatArray:
        """Return the tolerance per row of a relation, from the smallest magnitude of the larger side."""
        level = root_level(comparison)
        if level is not None:
            size = np.full(len(relation), abs(level))
        else:
            sides = [comparison.left, comparison.right]
            forward = Forward(relation, sides, "filter")
            size = np.zeros(len(relation))
            for i in range(len(sides)):
                own = least_size(forward.coefficients(i), forward.relation)
                size = np.fmax(size, group_min(own, forward.row, len(relation)))
        return np.maximum(self.part * size, self.floor)


def decision_shares(
    relation: Relation,
    predicate: Expression,
    split: Split,
    volatility: Errors,
    tolerance: Tolerance | None = None,
    *,
    empty_only: bool = False,
    note: Note | None = None,
) -> Needs:
    """Return per group how far each modelled column may move without changing the answer of any row.

    With a tolerance, columns may also move as long as no comparison errs by more than that. With ``empty_only``, rows that have a
    result are unconstrained. ``note`` receives all limits that the shares satisfy.
    """
    rows = len(relation)
    found = margins(relation, predicate)
    row = found.forward.row
    budget = found.budget(rows)
    holds = found.by_row(rows)[0][row]
    if empty_only:
        budget = np.where(holds, np.inf, budget)
    if tolerance is None:
        own = shares_of_margin(found, budget, rows, split, volatility, note)
        return {name: group_min(values, relation.group, relation.groups) for name, values in own.items()}
    out: Needs = {}
    for j, comparison in enumerate(found.comparisons):
        allowed = tolerance.of(comparison, relation)[row]
        limit = np.where(found.matters[:, j], np.maximum(budget, allowed), np.inf)
        if tolerance.strict and not empty_only:
            limit = np.where(holds, allowed, limit)
        only = found._replace(matters=_column(found.matters.shape, j))
        for name, values in shares_of_margin(only, limit, rows, split, volatility, note).items():
            need = group_min(values, relation.group, relation.groups)
            out[name] = np.fmin(out[name], need) if name in out else need
    return out


def _column(shape: tuple[int, ...], j: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    mask = np.zeros(shape, bool)
    mask[:, j] = True
    return mask

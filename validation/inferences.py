"""Inferences (paper IV-B, semantics 4.3): what the attributes of a predicate may move by, for its answer to stay.

Their share is of the predicate's margin (:mod:`~pulse.validation.slack`), and of the query's own tolerance where it states one
that predicates can be measured by.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.expression import Comparison, Expression
from pulse.kernels.extrema import bounds
from pulse.operators.relation import Relation
from pulse.validation.matching import least
from pulse.validation.needs import Needs
from pulse.validation.sensitivity import Errors, Forward
from pulse.validation.slack import distance_level, margins, shares_of_margin
from pulse.validation.splits import Split


class Tolerance(NamedTuple):
    """By how much what a predicate compares may err: ``part`` of the larger side, at least ``floor``."""

    part: float
    floor: float

    def of(self, comparison: Comparison, relation: Relation) -> FloatArray:
        """Per row of a relation, of the larger side where that is smallest."""
        level = distance_level(comparison)
        if level is not None:
            size = np.full(len(relation), abs(level))
        else:
            sides = [comparison.left, comparison.right]
            forward = Forward(relation, sides, "filter")
            size = np.zeros(len(relation))
            for i in range(len(sides)):
                low, high, _ = bounds(forward.coefficients(i), forward.relation.lo, forward.relation.hi)
                crosses = (low <= 0.0) & (high >= 0.0)
                own = np.where(crosses, 0.0, np.minimum(np.abs(low), np.abs(high)))
                size = np.fmax(size, least(own, forward.row, len(relation)))
        return np.maximum(self.part * size, self.floor)


def decision_shares(
    relation: Relation,
    predicate: Expression,
    split: Split,
    restlessness: Errors,
    tolerance: Tolerance | None = None,
    *,
    empty_only: bool = False,
) -> Needs:
    """Per group, what each modelled column of a predicate may move by for the answer of every row to stay.

    With a tolerance also: for no comparison to err by more than that where there is a result. With
    ``empty_only`` rows that have a result are left free.
    """
    rows = len(relation)
    found = margins(relation, predicate)
    budget = found.budget(rows)
    if empty_only:
        budget = np.where(found.by_row(rows)[0][found.forward.row], np.inf, budget)
        tolerance = None
    own = shares_of_margin(found, budget, rows, split, restlessness)
    if tolerance is not None:
        holds, _ = found.by_row(rows)
        for j, comparison in enumerate(found.comparisons):
            limit = np.where(holds, tolerance.of(comparison, relation), np.inf)[found.forward.row]
            only = found._replace(matters=_column(found.matters.shape, j))
            for name, values in shares_of_margin(only, limit, rows, split, restlessness).items():
                own[name] = np.fmin(own[name], values)
    return {name: least(values, relation.group, relation.groups) for name, values in own.items()}


def _column(shape: tuple[int, ...], j: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    mask = np.zeros(shape, bool)
    mask[:, j] = True
    return mask

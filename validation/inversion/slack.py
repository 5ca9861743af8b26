"""Compute slack: how far a predicate is from gaining a result where it has none, and from losing one (semantics 4.5).

A comparison ``D R 0`` holds at ``t`` by a *margin* ``m(t)``: ``-D`` for ``<``, ``D`` for ``>``, ``|D|`` for ``!=``, ``-|D|``
for ``=``; below zero it is violated by as much. The margin of a conjunction is the least of its operands', of a
disjunction the largest; negations are pushed down to the comparisons. With ``M = max over t of m(t)`` on a row's range:

* ``M < 0``: the row has no result, and ``-M = min over t of max over the violated comparisons of |D(t)|`` is the **slack**.
* ``M > 0``: it has one, and ``M`` is its **depth**: while every ``D`` moves by less, some of the result remains.

So one quantity decides how far inferences, the attributes that only predicates use, may move (semantics 4.3): while they keep
their share of it, an existing result remains, and no new one appears. A result need not begin and end at the same instants:
near its ends the predicate is close to its boundary by nature, no bound above zero would suffice, and certainty
(semantics 3.9) covers that.

``M`` is exact up to rounding: its search covers finitely many instants (:mod:`pulse.validation.inversion.margin_curves`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.expression import (
    Comparison,
    Expression,
    columns_of,
)
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.on_segments import without_hidden
from pulse.operators.expressions.predicates import Truth, comparisons_of, positive
from pulse.operators.expressions.solve import solve
from pulse.operators.inversion.needs import group_min
from pulse.operators.inversion.split_heuristics import Split
from pulse.validation.inversion.apportion import shares
from pulse.validation.inversion.error_propagation import Errors, Forward
from pulse.validation.inversion.margin_curves import (
    Fixed,
    MarginCandidates,
    MarginCurve,
    candidates,
    curve_of,
    difference,
)

_STRICTLY = 1.0 - 1e-9  # an input that moves by all of its slack may just touch the boundary


class Margins(NamedTuple):
    """The margins of a predicate, per row of ``forward.relation``, which are parts of the original rows.

    ``holds``: whether there is a result. ``amount``: ``|M|`` minus rounding and approximation. ``matters[i, j]``:
    whether comparison ``j`` must keep its sign for the answer to stay.
    """

    forward: Forward
    comparisons: tuple[Comparison, ...]
    holds: BoolArray
    amount: FloatArray
    matters: BoolArray

    def by_row(self, rows: int) -> tuple[BoolArray, FloatArray]:
        """Return ``holds`` and ``amount`` of the original rows: the depth of the deepest part, or the slack of the nearest."""
        row = self.forward.row
        holds = np.zeros(rows, bool)
        np.logical_or.at(holds, row, self.holds)
        own = self.holds == holds[row]
        depth = np.zeros(rows)
        np.maximum.at(depth, row[own], self.amount[own])
        nearest = np.full(rows, np.inf)
        np.minimum.at(nearest, row[own], self.amount[own])
        return holds, np.where(holds, depth, nearest)

    def budget(self, rows: int) -> FloatArray:
        """Return how far each part's comparisons may move: all parts must stay empty, or the deepest keep its result."""
        holds, amount = self.by_row(rows)
        deepest = self.holds & (self.amount == amount[self.forward.row])
        free = holds[self.forward.row] & ~deepest
        return np.where(free, np.inf, self.amount)


Note = Callable[[Forward, int, FloatArray], None]
"""A callback for every expression (by index) whose error is limited, with the limits per row of ``forward.relation``."""


def shares_of_margin(
    found: Margins,
    budget: FloatArray,
    rows: int,
    split: Split,
    volatility: Errors,
    note: Note | None = None,
) -> dict[str, FloatArray]:
    """Return shares per original row that keep every comparison that matters within ``budget`` (by part of a row)."""
    out: dict[str, FloatArray] = {}
    of_part = {name: values[found.forward.row] for name, values in volatility.items()}
    for j in range(len(found.comparisons)):
        limit = np.where(found.matters[:, j], budget, np.inf)
        if note is not None:
            note(found.forward, j, limit)
        for name, values in shares(found.forward, j, limit, split, of_part).items():
            own = group_min(values, found.forward.row, rows)
            out[name] = np.fmin(out[name], own) if name in out else own
    return out


def margins(relation: Relation, predicate: Expression) -> Margins:
    """Compute the margins of a predicate over a relation's rows."""
    plain = positive(predicate)
    modelled = set(relation.columns.modelled)
    every = comparisons_of(plain)
    moving = tuple(one for one in every if columns_of(one) & modelled)
    forward = Forward(relation, [difference(one) for one in moving], "slack")
    atoms: dict[Comparison, Fixed | MarginCurve] = {}
    for one in every:
        if one not in moving:
            sets = solve(without_hidden(forward.relation), one, possible=False)[1].model
            atoms[one] = Fixed(sets)
    for j, one in enumerate(moving):
        atoms[one] = curve_of(forward, j, one)
    where = candidates(forward.relation, atoms)
    values = {one: atom.margin(where) for one, atom in atoms.items()}
    value, best = _largest(_Margin(values, len(where.row)).fold(plain), where, len(forward.relation))
    matters = np.zeros((len(forward.relation), len(moving)), bool)
    rounding = np.zeros(len(forward.relation))
    for j, one in enumerate(moving):
        matters[:, j] = _matters(values[one], where, value, best)
        atom = atoms[one]
        assert isinstance(atom, MarginCurve)
        rounding = np.maximum(rounding, np.where(matters[:, j], atom.noise + forward.approximation(j), 0.0))
    amount = np.maximum(np.abs(value) - rounding, 0.0) * _STRICTLY
    return Margins(forward, moving, value >= 0.0, amount, matters)


class _Margin(Truth[FloatArray]):
    """Margins of predicates at candidates, from those of their comparisons."""

    def __init__(self, values: dict[Comparison, FloatArray], n: int) -> None:
        self._values, self._n = values, n

    def always(self, value: bool) -> FloatArray:
        return np.full(self._n, np.inf if value else -np.inf)

    def comparison(self, e: Comparison) -> FloatArray:
        return self._values[e]

    def both(self, a: FloatArray, b: FloatArray) -> FloatArray:
        return np.minimum(a, b)

    def either(self, a: FloatArray, b: FloatArray) -> FloatArray:
        return np.maximum(a, b)


def _largest(margin: FloatArray, where: MarginCandidates, n: int) -> tuple[FloatArray, IntArray]:
    """Return the largest margin of each row, and its candidate."""
    value = np.full(n, -np.inf)
    np.maximum.at(value, where.row, margin)
    best = np.zeros(n, np.int64)
    at = np.flatnonzero(margin == value[where.row])
    best[where.row[at]] = at
    return value, best


def _matters(own: FloatArray, where: MarginCandidates, value: FloatArray, best: IntArray) -> BoolArray:
    """Return the rows whose answer depends on a comparison.

    With a result: only comparisons that hold by at least the depth at the deepest instant. Without: only those violated
    somewhere by at least the slack.
    """
    worst = np.full(len(value), np.inf)
    np.minimum.at(worst, where.row, own)
    if not len(where.row):
        return np.zeros(len(value), bool)
    close = 1.0 - 1e-9
    return np.where(value >= 0.0, own[best] >= value * close, worst <= value * close)

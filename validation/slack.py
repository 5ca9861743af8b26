"""Slack: how far a predicate is from giving a result where it gives none, and from losing the one it gives (semantics 4.5).

A comparison ``D R 0`` holds at ``t`` by a *margin* ``m(t)``: ``-D`` for ``<``, ``D`` for ``>``, ``|D|`` for ``!=``, ``-|D|``
for ``=``; below zero it is violated by as much. Of a conjunction the margin is the least of its operands', of a
disjunction the largest; negations are pushed down to the comparisons. With ``M = max over t of m(t)`` on a row's range:

* ``M < 0``: the row gives no result, and ``-M = min over t of max over the violated comparisons of |D(t)|`` is the **slack**.
* ``M > 0``: it gives one, and ``M`` is its **depth**: while every ``D`` moves by less, some of the result remains.

So one quantity decides what inferences, the attributes that only predicates see, may move by (semantics 4.3): while they keep
their share of it, a result that is there stays there, and where there is none there will be none. It is not asked that a
result begins and ends at the same instants. Near its ends the predicate is close to its boundary by nature, no bound above
zero would do, and certainty (semantics 3.9) says what is sure.

``M`` is exact up to rounding. The margin of a row is made of polynomials by least and largest, so it has its maximum at an
end, at a critical point of some ``D``, or where ``D_i = D_j`` or ``D_i = -D_j``. A distance is compared as ``sqrt(q) - c``;
where it meets another margin is found on squares, among more candidates than need be. Comparisons that no model takes
part in (keys, unmodelled attributes, times) cannot move: they hold by an infinite margin or are violated by one. An
equality of models holds where ``D`` crosses zero, and by the intermediate value theorem a continuous one crosses it still
while it moves by less than ``min(max D, -min D)``, which is its margin there; of a conjunction with others that
is no promise, as the crossing may move to where they fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.expression import (
    FLIPPED,
    And,
    Arithmetic,
    Comparison,
    Constant,
    Expression,
    Function,
    columns_of,
    walk,
)
from pulse.kernels.extrema import bounds, critical_points
from pulse.kernels.intervals import LOWER, UPPER, IntervalSets
from pulse.kernels.polynomial import add, evaluate, multiply, subtract
from pulse.kernels.roots import Roots, real_roots
from pulse.operators.evaluate import numbers_of
from pulse.operators.lifted import magnitudes
from pulse.operators.relation import Relation
from pulse.operators.solve import NOISE, positive, solve
from pulse.validation.matching import least
from pulse.validation.sensitivity import SPAN, Errors, Forward, shares
from pulse.validation.splits import Split, equi

_STRICTLY = 1.0 - 1e-9  # what moves by all of its slack may just touch the boundary


class Margins(NamedTuple):
    """Margins of a predicate, per row of ``forward.relation``: parts of the rows that were asked about.

    ``holds``: whether there is a result. ``amount``: ``|M|``, rounding and approximations deducted. ``matters[i, j]``:
    whether comparison ``j`` must keep its sign for the answer to stay.
    """

    forward: Forward
    comparisons: tuple[Comparison, ...]
    holds: BoolArray
    amount: FloatArray
    matters: BoolArray

    def by_row(self, rows: int) -> tuple[BoolArray, FloatArray]:
        """``holds`` and ``amount`` of the original rows: the depth of the deepest part, or the slack of the nearest."""
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
        """What the comparisons of each part may move by: all parts must stay empty, or the deepest must keep its result."""
        holds, amount = self.by_row(rows)
        deepest = self.holds & (self.amount == amount[self.forward.row])
        free = holds[self.forward.row] & ~deepest
        return np.where(free, np.inf, self.amount)


def slack(relation: Relation, predicate: Expression) -> FloatArray:
    """Per row the slack: infinite where no motion of a model could give a result, 0 where there is one already.

    >>> from pulse.core.columns import Columns
    >>> import pyarrow as pa
    >>> columns = Columns((), ("x",))
    >>> batch = pa.RecordBatch.from_pylist([{"ref": 0, "lo": 0.0, "hi": 4.0, "x": [3.0, 1.0], "x_err": 0.0,
    ...     "x_drift": None, "certainty": "certain"}], schema=columns.segment_schema())
    >>> from pulse.core.expression import Column
    >>> slack(Relation.from_table(batch, columns), Comparison("<", Column("x"), Constant(1))).round(6)
    array([2.])
    """
    holds, amount = margins(relation, predicate).by_row(len(relation))
    return np.where(holds, 0.0, amount)


def allot_slack(
    relation: Relation, predicate: Expression, split: Split = equi, restlessness: Errors | None = None
) -> dict[str, FloatArray]:
    """Per row the share of each modelled attribute of the predicate: while all move by no more, an empty answer stays empty.

    Infinite where the row has a result already, or could get none. ``restlessness`` is given per row.
    """
    found = margins(relation, predicate)
    holds, _ = found.by_row(len(relation))
    budget = np.where(holds[found.forward.row], np.inf, found.amount)
    return shares_of_margin(found, budget, len(relation), split, restlessness or {})


Note = Callable[[Forward, int, FloatArray], None]
"""Told of every expression (by its index) whose error is limited, and the limits per row of ``forward.relation``."""


def shares_of_margin(
    found: Margins,
    budget: FloatArray,
    rows: int,
    split: Split,
    restlessness: Errors,
    note: Note | None = None,
) -> dict[str, FloatArray]:
    """Shares, per original row, that keep the error of every comparison that matters within ``budget`` (by part of a row)."""
    out: dict[str, FloatArray] = {}
    of_part = {name: values[found.forward.row] for name, values in restlessness.items()}
    for j in range(len(found.comparisons)):
        limit = np.where(found.matters[:, j], budget, np.inf)
        if note is not None:
            note(found.forward, j, limit)
        for name, values in shares(found.forward, j, limit, split, of_part).items():
            own = least(values, found.forward.row, rows)
            out[name] = np.fmin(out[name], own) if name in out else own
    return out


def margins(relation: Relation, predicate: Expression) -> Margins:
    """The margins of a predicate over a relation's rows."""
    plain = positive(predicate)
    modelled = set(relation.columns.modelled)
    every = list(dict.fromkeys(one for one in walk(plain) if isinstance(one, Comparison)))
    moving = tuple(one for one in every if columns_of(one) & modelled)
    forward = Forward(relation, [_difference(one) for one in moving], "slack")
    atoms: dict[Comparison, _Fixed | _Curve] = {}
    for one in every:
        if one not in moving:
            sets = solve(_bare(forward.relation), one, possible=False)[1].model
            atoms[one] = _Fixed(sets)
    for j, one in enumerate(moving):
        atoms[one] = _curve(forward, j, one)
    where = _candidates(forward.relation, atoms)
    values = {one: atom.margin(where) for one, atom in atoms.items()}
    value, best = _largest(_combined(plain, values, len(where.row)), where, len(forward.relation))
    matters = np.zeros((len(forward.relation), len(moving)), bool)
    rounding = np.zeros(len(forward.relation))
    for j, one in enumerate(moving):
        matters[:, j] = _matters(values[one], where, value, best)
        atom = atoms[one]
        assert isinstance(atom, _Curve)
        rounding = np.maximum(rounding, np.where(matters[:, j], atom.noise + forward.approximation(j), 0.0))
    amount = np.maximum(np.abs(value) - rounding, 0.0) * _STRICTLY
    return Margins(forward, moving, value >= 0.0, amount, matters)


def _difference(comparison: Comparison) -> Expression:
    """What the margin's error is that of: the distance itself where one is compared with a number, else the difference."""
    one, number = _distance(comparison)
    return Arithmetic("-", comparison.left, comparison.right) if number is None else Function(SPAN, one)


def _distance(comparison: Comparison) -> tuple[tuple[Expression, ...], float | None]:
    """The arguments of a distance that is compared with a number, and that distance; None if it is no such comparison."""
    left, right = comparison.left, comparison.right
    if isinstance(left, Constant):
        left, right = right, left
    if not (isinstance(left, Function) and left.name in ("distance", "distance2")):
        return (), None
    if not isinstance(right, Constant) or isinstance(right.value, (bool, str)):
        return (), None
    level = float(right.value)
    if left.name == "distance2":
        level = float(np.copysign(np.sqrt(abs(level)), level))
    return left.arguments, level


def distance_level(comparison: Comparison) -> float | None:
    """The distance that a comparison compares one with; None if it compares something else."""
    return _distance(comparison)[1]


def _bare(relation: Relation) -> Relation:
    """Without the hidden columns of an evaluation, whose names another one would use again."""
    own = relation.columns.modelled
    return replace(
        relation,
        models={name: relation.models[name] for name in own},
        err={name: relation.err[name] for name in own},
    )


# -- margins at instants ----------------------------------------------------------------------------------------


class _Candidates(NamedTuple):
    """Instants at which a row's margin may be largest; ``side`` -1 and 1 are what it tends to from before and after."""

    row: IntArray
    at: FloatArray
    side: IntArray


class _Fixed(NamedTuple):
    """A comparison without models, by when it holds."""

    sets: IntervalSets

    def margin(self, where: _Candidates) -> FloatArray:
        """Infinite, one way or the other."""
        inside = np.zeros(len(where.row), bool)
        begin, count = self.sets.offsets[where.row], np.diff(self.sets.offsets)[where.row]
        for j in range(int(count.max(initial=0))):
            some = np.flatnonzero(count > j)
            place = begin[some] + j
            (a, b), ends = self.sets.bounds[place].T, self.sets.ends[place]
            t, side = where.at[some], where.side[some]
            lower = (t > a) | ((t == a) & ((side > 0) | ((side == 0) & (ends & LOWER != 0))))
            upper = (t < b) | ((t == b) & ((side < 0) | ((side == 0) & (ends & UPPER != 0))))
            inside[some] |= lower & upper
        return np.where(inside, np.inf, -np.inf)


class _Curve(NamedTuple):
    """``D`` of a comparison: the polynomial ``c``, or ``sqrt(c) - level`` for a distance.

    ``never``: rows where a null is compared. ``crossing``: the margin of an equality where it holds.
    """

    relation: str
    c: FloatArray
    level: float | None
    noise: FloatArray
    crossing: FloatArray
    never: BoolArray

    def values(self, where: _Candidates) -> FloatArray:
        """``D`` at the candidates."""
        v = evaluate(np.ascontiguousarray(self.c[where.row]), where.at)
        return v if self.level is None else np.sqrt(np.maximum(v, 0.0)) - self.level

    def margin(self, where: _Candidates) -> FloatArray:
        """By how much the comparison holds at the candidates."""
        v = self.values(where)
        if self.relation in ("<", "<="):
            m = -v
        elif self.relation in (">", ">="):
            m = v
        elif self.relation == "!=":
            m = np.abs(v)
        else:
            zero = np.abs(v) <= self.noise[where.row]
            m = np.where(zero, self.crossing[where.row], -np.abs(v))
        return np.where(self.never[where.row], -np.inf, m)


def _curve(forward: Forward, j: int, comparison: Comparison) -> _Curve:
    relation = forward.relation
    level = _distance(comparison)[1]
    kind = comparison.relation
    if level is None:
        c = forward.coefficients(j)
        noise = np.zeros(len(relation))
        for name in columns_of(comparison) & set(relation.columns.modelled):
            noise += NOISE * c.shape[1] * magnitudes(relation.models[name], relation.lo, relation.hi)
        noise += NOISE * c.shape[1] * magnitudes(c, relation.lo, relation.hi)
        low, high, _ = bounds(c, relation.lo, relation.hi)
    else:
        if isinstance(comparison.left, Constant):
            kind = FLIPPED[kind]
        c = forward.coefficients(j)
        low, high, _ = bounds(c, relation.lo, relation.hi)
        low, high = np.sqrt(np.maximum(low, 0.0)), np.sqrt(np.maximum(high, 0.0))
        rounding = NOISE * c.shape[1] * magnitudes(c, relation.lo, relation.hi)
        noise = rounding / np.maximum(np.maximum(low, np.sqrt(rounding)), 1e-300)  # of a root, at its least
        low, high = low - level, high - level
    crossing = np.maximum(np.minimum(high, -low), 0.0)
    never = np.zeros(len(relation), bool)
    for name in columns_of(comparison) & set(relation.columns.unmodelled_names):
        never |= np.isnan(numbers_of(relation, name, "slack"))
    return _Curve(kind, c, level, noise, crossing, never)


def _candidates(relation: Relation, atoms: dict[Comparison, _Fixed | _Curve]) -> _Candidates:
    n = len(relation)
    rows, lo, hi = np.arange(n), relation.lo, relation.hi
    places: list[tuple[IntArray, FloatArray]] = []
    curves = [one for one in atoms.values() if isinstance(one, _Curve)]
    for i, a in enumerate(curves):
        found = [critical_points(a.c, lo, hi)]
        zero = a.c if a.level is None else _lowered(a.c, a.level**2)
        found.append(real_roots(zero, lo, hi))
        for b in curves[:i]:
            found += [real_roots(c, lo, hi) for c in _meetings(a, b)]
        places += [_listed(one) for one in found]
    fixed = [one.sets for one in atoms.values() if isinstance(one, _Fixed)]
    for sets in fixed:
        of = np.repeat(rows, np.diff(sets.offsets))
        places += [(of, sets.bounds[:, 0]), (of, sets.bounds[:, 1])]
    row = np.concatenate([np.zeros(0, np.int64), *(one[0] for one in places)])
    at = np.concatenate([np.zeros(0), *(one[1] for one in places)])
    inside = (at > lo[row]) & (at < hi[row])
    row, at = row[inside], at[inside]
    sides = (-1, 0, 1) if fixed else (0,)
    ends = np.flatnonzero(lo < hi)
    return _Candidates(
        np.concatenate([*[row] * len(sides), rows, ends, ends]),
        np.concatenate([*[at] * len(sides), lo, lo[ends], hi[ends]]),
        np.concatenate(
            [np.repeat(sides, len(row)), np.zeros(n), np.ones(len(ends)), -np.ones(len(ends))]
        ).astype(np.int64),
    )


def _listed(roots: Roots) -> tuple[IntArray, FloatArray]:
    return np.repeat(np.arange(len(roots.status)), np.diff(roots.offsets)), roots.roots


def _lowered(c: FloatArray, by: float) -> FloatArray:
    c = c.copy()
    c[:, 0] -= by
    return c


def _meetings(a: _Curve, b: _Curve) -> list[FloatArray]:
    """Polynomials among whose roots are the instants at which ``|D_a| = |D_b|``."""
    if a.level is None and b.level is None:
        return [subtract(a.c, b.c), add(a.c, b.c)]
    if a.level is not None and b.level is not None:
        # sqrt(p) - x = ±(sqrt(q) - y) with s = x ∓ y: (p - q - s^2)^2 = 4 s^2 q
        out = []
        for s in (a.level - b.level, a.level + b.level):
            left = _lowered(subtract(a.c, b.c), s * s)
            out.append(subtract(multiply(left, left), 4.0 * s * s * b.c))
        return out
    distance, other = (a, b) if a.level is not None else (b, a)
    assert distance.level is not None
    # sqrt(q) - c = ±D: q = (c ± D)^2
    out = []
    for d in (other.c, -other.c):
        side = _lowered(d, -distance.level)
        out.append(subtract(distance.c, multiply(side, side)))
    return out


def _combined(predicate: Expression, values: dict[Comparison, FloatArray], n: int) -> FloatArray:
    match predicate:
        case Comparison():
            return values[predicate]
        case Constant(value):
            return np.full(n, np.inf if value else -np.inf)
    parts = [_combined(one, values, n) for one in predicate.parts]
    meet = np.minimum if isinstance(predicate, And) else np.maximum
    whole: FloatArray = meet.reduce([np.full(n, np.inf if isinstance(predicate, And) else -np.inf), *parts])
    return whole


def _largest(margin: FloatArray, where: _Candidates, n: int) -> tuple[FloatArray, IntArray]:
    """The largest margin of each row, and the candidate that has it."""
    value = np.full(n, -np.inf)
    np.maximum.at(value, where.row, margin)
    best = np.zeros(n, np.int64)
    at = np.flatnonzero(margin == value[where.row])
    best[where.row[at]] = at
    return value, best


def _matters(own: FloatArray, where: _Candidates, value: FloatArray, best: IntArray) -> BoolArray:
    """Rows whose answer hangs on a comparison.

    A result: only comparisons that hold by as much at the instant where it is deepest. None: only those that somewhere are
    violated by as much as the slack.
    """
    worst = np.full(len(value), np.inf)
    np.minimum.at(worst, where.row, own)
    if not len(where.row):
        return np.zeros(len(value), bool)
    close = 1.0 - 1e-9
    return np.where(value >= 0.0, own[best] >= value * close, worst <= value * close)

"""Compute the margin of a comparison at an instant, and the instants at which a row's margin can be largest (semantics 4.5).

The margin of a row combines polynomials by minimum and maximum, so it has its maximum at an end, at a critical point of some
``D``, or where ``D_i = D_j`` or ``D_i = -D_j``. A root is compared as ``sqrt(q) - c``; where it meets another margin is
found on squares, which adds some superfluous candidates. Comparisons without models (keys, unmodelled attributes,
times) cannot move: their margin is plus or minus infinity. An equality of models holds where ``D`` crosses
zero, and by the intermediate value theorem a continuous ``D`` still crosses it while it moves by less than
``min(max D, -min D)``, which is its margin there; in a conjunction with others this is no guarantee, as the crossing may move to
where they fail.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.expression import (
    Arithmetic,
    Comparison,
    Expression,
    Function,
    columns_of,
    number_of,
)
from pulse.kernels.polynomial.arithmetic import add, evaluate, multiply, subtract
from pulse.kernels.polynomial.extrema import bounds, critical_points
from pulse.kernels.polynomial.interval_sets import LOWER, UPPER, IntervalSets
from pulse.kernels.polynomial.roots import Roots, real_roots
from pulse.kernels.rounding import magnitudes
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.by_value import numbers_of
from pulse.operators.expressions.solution_sets import NOISE
from pulse.operators.functions.registry import rules_of
from pulse.validation.inversion.error_propagation import Forward


class MarginCandidates(NamedTuple):
    """Instants at which a row's margin may be largest; ``side`` -1 and 1 are the limits from before and after."""

    row: IntArray
    at: FloatArray
    side: IntArray


class Fixed(NamedTuple):
    """A comparison without models, given by the times at which it holds."""

    sets: IntervalSets

    def margin(self, where: MarginCandidates) -> FloatArray:
        """Return plus or minus infinity at the candidates."""
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


class MarginCurve(NamedTuple):
    """The difference ``D`` of a comparison: the polynomial ``c``, or ``sqrt(c) - level`` for a root such as a distance.

    ``never``: rows where a null is compared. ``crossing``: the margin of an equality where it holds.
    """

    relation: str
    c: FloatArray
    level: float | None
    noise: FloatArray
    crossing: FloatArray
    never: BoolArray

    def values(self, where: MarginCandidates) -> FloatArray:
        """Return ``D`` at the candidates."""
        v = evaluate(np.ascontiguousarray(self.c[where.row]), where.at)
        return v if self.level is None else np.sqrt(np.maximum(v, 0.0)) - self.level

    def margin(self, where: MarginCandidates) -> FloatArray:
        """Return the comparison's margin at the candidates."""
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


def curve_of(forward: Forward, j: int, comparison: Comparison) -> MarginCurve:
    """Build the :class:`MarginCurve` of a comparison with models, the ``j``-th expression of ``forward``."""
    relation = forward.relation
    level = root_level(comparison)
    kind = comparison.relation if level is None else comparison.with_constant_last.relation
    if level is None:
        c = forward.coefficients(j)
        noise = np.zeros(len(relation))
        for name in columns_of(comparison) & set(relation.columns.modelled):
            noise += NOISE * c.shape[1] * magnitudes(relation.models[name], relation.lo, relation.hi)
        noise += NOISE * c.shape[1] * magnitudes(c, relation.lo, relation.hi)
        low, high, _ = bounds(c, relation.lo, relation.hi)
    else:
        c = forward.coefficients(j)
        low, high, _ = bounds(c, relation.lo, relation.hi)
        low, high = np.sqrt(np.maximum(low, 0.0)), np.sqrt(np.maximum(high, 0.0))
        rounding = NOISE * c.shape[1] * magnitudes(c, relation.lo, relation.hi)
        noise = rounding / np.maximum(np.maximum(low, np.sqrt(rounding)), 1e-300)  # of the smallest root
        low, high = low - level, high - level
    crossing = np.maximum(np.minimum(high, -low), 0.0)
    never = np.zeros(len(relation), bool)
    for name in columns_of(comparison) & set(relation.columns.unmodelled_names):
        never |= np.isnan(numbers_of(relation, name, "slack"))
    return MarginCurve(kind, c, level, noise, crossing, never)


def candidates(relation: Relation, atoms: dict[Comparison, Fixed | MarginCurve]) -> MarginCandidates:
    """Return the instants of each row at which a predicate of these comparisons can have its largest margin."""
    n = len(relation)
    rows, lo, hi = np.arange(n), relation.lo, relation.hi
    places: list[tuple[IntArray, FloatArray]] = []
    curves = [one for one in atoms.values() if isinstance(one, MarginCurve)]
    for i, a in enumerate(curves):
        found = [critical_points(a.c, lo, hi)]
        zero = a.c if a.level is None else _lowered(a.c, a.level**2)
        found.append(real_roots(zero, lo, hi))
        for b in curves[:i]:
            found += [real_roots(c, lo, hi) for c in _meetings(a, b)]
        places += [_listed(one) for one in found]
    fixed = [one.sets for one in atoms.values() if isinstance(one, Fixed)]
    for sets in fixed:
        of = np.repeat(rows, np.diff(sets.offsets))
        places += [(of, sets.bounds[:, 0]), (of, sets.bounds[:, 1])]
    row = np.concatenate([np.zeros(0, np.int64), *(one[0] for one in places)])
    at = np.concatenate([np.zeros(0), *(one[1] for one in places)])
    inside = (at > lo[row]) & (at < hi[row])
    row, at = row[inside], at[inside]
    sides = (-1, 0, 1) if fixed else (0,)
    ends = np.flatnonzero(lo < hi)
    return MarginCandidates(
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


def _meetings(a: MarginCurve, b: MarginCurve) -> list[FloatArray]:
    """Return polynomials whose roots include the instants at which ``|D_a| = |D_b|``."""
    if a.level is None and b.level is None:
        return [subtract(a.c, b.c), add(a.c, b.c)]
    if a.level is not None and b.level is not None:
        # sqrt(p) - x = ±(sqrt(q) - y) with s = x ∓ y: (p - q - s^2)^2 = 4 s^2 q
        out = []
        for s in (a.level - b.level, a.level + b.level):
            left = _lowered(subtract(a.c, b.c), s * s)
            out.append(subtract(multiply(left, left), 4.0 * s * s * b.c))
        return out
    root, other = (a, b) if a.level is not None else (b, a)
    assert root.level is not None
    # sqrt(q) - c = ±D: q = (c ± D)^2
    out = []
    for d in (other.c, -other.c):
        side = _lowered(d, -root.level)
        out.append(subtract(root.c, multiply(side, side)))
    return out


def difference(comparison: Comparison) -> Expression:
    """Return the expression whose error is the margin's: the root if a function is compared as one, else the difference."""
    root, _ = _as_root(comparison)
    return Arithmetic("-", comparison.left, comparison.right) if root is None else root


def root_level(comparison: Comparison) -> float | None:
    """Return the number ``c`` of a comparison that is one of ``sqrt(q)`` with it; None for any other comparison."""
    return _as_root(comparison)[1]


def _as_root(comparison: Comparison) -> tuple[Function, float] | tuple[None, None]:
    turned = comparison.with_constant_last
    level = number_of(turned.right)
    if not isinstance(turned.left, Function) or level is None:
        return None, None
    return rules_of(turned.left).margin(turned.left, float(level)) or (None, None)

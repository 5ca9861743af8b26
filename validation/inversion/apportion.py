"""Share a bound on an expression among its columns, so that their joint error keeps it (semantics 4.3).

Most expressions have no closed formula, but the forward rules (:mod:`pulse.validation.inversion.error_propagation`) are monotone
in the errors. So an input's *reach* is the largest error that it alone may have, found by bisection; ``bound / reach`` is its
sensitivity, by which the split shares the bound; and where the shares jointly exceed it (products of errors) all are
scaled down, again by bisection. Linear expressions need no bisection: their sensitivities are their factors.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray
from pulse.core.expression import Column, Expression, Function, columns_of
from pulse.operators.functions.registry import rules_of
from pulse.operators.inversion.split_heuristics import Split, SplitInput, allot
from pulse.validation.inversion.error_propagation import Errors, Forward, linear_factors

_STEPS = 28  # halvings of the exponents -1000 … 1000: relative precision of 1e-5


def shares(
    forward: Forward, index: int, budget: FloatArray, split: Split, volatility: Errors
) -> dict[str, FloatArray]:
    """Return bounds for an expression's columns that keep its error within ``budget``, per row of ``forward.relation``.

    Every column gets an infinite or NaN budget (unconstrained, unknown) unchanged. A budget below the approximation error leaves
    zero.
    """
    relation, expression = forward.relation, forward.expressions[index]
    used = columns_of(expression)
    names = tuple(name for name in relation.columns.modelled if name in used)
    if not names:
        return {}
    linear = linear_factors(expression, names)
    volatility = _by_position(expression, volatility)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if linear is not None:
            reach = {name: budget / linear[name] for name in names}
        else:
            reach = {name: _largest(forward, index, budget, {name: np.ones(len(budget))}) for name in names}
        together = _divided(forward, index, budget, reach, split, volatility)
    if linear is not None:
        return _stretched(forward, index, budget, together)
    fits = ~np.isfinite(budget) | (forward.error(index, together) <= budget)
    return (
        together
        if fits.all()
        else _scaled(forward, index, budget, (reach, together, fits), split, volatility)
    )


def _by_position(expression: Expression, volatility: Errors) -> Errors:
    """Assign both coordinates of a position its own volatility, as a distance does not depend on the axes."""
    out = dict(volatility)
    for x, y in rules_of(expression).positions(expression) if isinstance(expression, Function) else ():
        if isinstance(x, Column) and isinstance(y, Column) and {x.name, y.name} <= set(volatility):
            both = np.hypot(volatility[x.name], volatility[y.name])
            out |= {x.name: both, y.name: both}
    return out


def _stretched(forward: Forward, index: int, budget: FloatArray, together: Errors) -> dict[str, FloatArray]:
    """Enlarge shares of a function up to the budget: its error is the hypotenuse, not the sum, of the errors of its legs."""
    if not isinstance(forward.expressions[index], Function):
        return dict(together)
    used = forward.error(index, together)
    room = np.isfinite(used) & (used > 0.0) & np.isfinite(budget)
    scale = np.where(room, budget / np.where(room, used, 1.0) * (1.0 - 1e-12), 1.0)
    return {name: values * np.maximum(scale, 1.0) for name, values in together.items()}


def _scaled(
    forward: Forward,
    index: int,
    budget: FloatArray,
    tried: tuple[Errors, Errors, BoolArray],
    split: Split,
    volatility: Errors,
) -> dict[str, FloatArray]:
    """Share the budget for rows in which the shares by each input's own reach jointly exceed it.

    Next to a factor near zero an input alone may reach very far, and all would have to be scaled down accordingly. So each
    reach is capped at the input's own size (or the error that all may have jointly): then products of two errors are
    no larger than those of an error and a value, and scaling costs only a small factor.
    """
    reach, together, fits = tried
    common = _largest(forward, index, budget, {name: np.ones(len(budget)) for name in reach})
    capped = {
        name: np.minimum(values, np.maximum(forward.sizes(Column(name)), common))
        for name, values in reach.items()
    }
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        again = _divided(forward, index, budget, capped, split, volatility)
    scale = np.minimum(_largest(forward, index, budget, again), 1.0)
    return {name: np.where(fits, together[name], values * scale) for name, values in again.items()}


def _largest(forward: Forward, index: int, budget: FloatArray, errors: Errors) -> FloatArray:
    """Return per row the largest factor of these errors within the budget, to 1e-5 and never above; 0 if none is."""
    low, high = np.full(len(budget), -1000.0), np.full(len(budget), 1000.0)
    none = forward.error(index, {k: v * 2.0**-1000 for k, v in errors.items()}) > budget
    with np.errstate(over="ignore"):
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            by = np.exp2(middle)
            fits = forward.error(index, {k: v * by for k, v in errors.items()}) <= budget
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    factor: FloatArray = np.where(none, 0.0, np.exp2(low))
    return factor


def _divided(
    forward: Forward, index: int, budget: FloatArray, reach: Errors, split: Split, volatility: Errors
) -> dict[str, FloatArray]:
    """Share the budget by a split; an input of zero reach gets zero, one without effect is unconstrained."""
    relation = forward.relation
    names = tuple(reach)
    table = np.stack([reach[name] for name in names], axis=1)
    limited = np.isfinite(budget) & (budget > 0.0)
    chosen = limited[:, None] & (table > 0.0) & np.isfinite(table)
    out = np.where(limited[:, None], np.where(np.isposinf(table), np.inf, 0.0), budget[:, None])
    rows = np.flatnonzero(chosen.any(axis=1))
    row, which = np.nonzero(chosen[rows])
    of = rows[row]
    group = pa.array(relation.group[of])
    models = _stacked([relation.models[name] for name in names])
    rest = [volatility.get(name) for name in names]
    restless = np.stack([np.ones(len(budget)) if one is None else one for one in rest], axis=1)
    question = SplitInput(
        output_keys=tuple(key.take(pa.array(relation.group[rows])) for key in relation.keys),
        output_coefficients=forward.coefficients(index)[rows],
        bound=budget[rows],
        offsets=np.concatenate(([0], np.cumsum(chosen[rows].sum(axis=1)))),
        keys=tuple(key.take(group) for key in relation.keys),
        attributes=names,
        attribute=which,
        coefficients=np.ascontiguousarray(models[which, of]),
        lo=relation.lo[of],
        hi=relation.hi[of],
        sensitivity=budget[of] / table[of, which],
        volatility=np.nan_to_num(restless[of, which], nan=0.0),
    )
    out[of, which] = allot(split, question)
    return {name: np.ascontiguousarray(out[:, i]) for i, name in enumerate(names)}


def _stacked(models: list[FloatArray]) -> FloatArray:
    width = max(c.shape[1] for c in models)
    return np.stack([np.pad(c, ((0, 0), (0, width - c.shape[1]))) for c in models])

"""Answers on the moving objects held against their tuples: what makes a row of the paper's microbenchmarks count.

The truth is linear through the tuples. Segments are looked at at the instants of tuples, where it is known exactly; nothing
certain may be wrong there, and nothing that is true may be impossible.
"""

from __future__ import annotations

import numpy as np

from pulse.benchmarks.recording import Accuracy
from pulse.benchmarks.workloads.moving_objects import SECOND, Objects, Tuples
from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import CERTAIN
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples


def row_at(relation: Relation, group: IntArray, t: IntArray) -> IntArray:
    """The row of each group that holds each instant, -1 where none does. Rows do not overlap."""
    base = int(t.min(initial=0))
    begin = (relation.ref - base) + relation.lo * SECOND
    end = (relation.ref - base) + relation.hi * SECOND
    span = float(max(end.max(initial=0.0), (t - base).max(initial=0.0)) + 1.0)
    # Times are whole numbers in floats, but for rounding far below a microsecond.
    found = np.searchsorted(relation.group * span + begin, group * span + (t - base) + 1e-3, "right") - 1
    there = found >= 0
    row = np.where(there, found, 0)
    there &= (relation.group[row] == group) & (t - base < end[row] - 1e-3) if len(relation) else False
    return np.where(there, row, -1)


def values_at(relation: Relation, name: str, row: IntArray, t: IntArray) -> FloatArray:
    """The model's values at these instants of these rows."""
    return evaluate(relation.models[name][row], (t - relation.ref[row]) / SECOND)


def judged_above(found: Relation, wider: Relation, tuples: Tuples, level: float) -> Accuracy:
    """Of a filter ``x > level``; ``wider`` is the answer with what is only possible."""
    truth = tuples.x > level
    row = row_at(found, tuples.id, tuples.t)
    given = row >= 0
    _check_certainty(found, row, row_at(wider, tuples.id, tuples.t), truth)
    off = _checked_values(found, "x", row[given], tuples.t[given], tuples.x[given])
    return _selected(given, truth, float(found.err["x"].max(initial=0.0)), off)


def _check_certainty(found: Relation, row: IntArray, wide: IntArray, truth: BoolArray) -> None:
    certain = np.append(found.certainty, 0)[row] == CERTAIN  # the last stands for no row, -1
    if (certain & ~truth).any():
        raise ValueError(f"{int((certain & ~truth).sum())} tuples are certain and wrong")
    if (truth & (wide < 0)).any():
        raise ValueError(f"{int((truth & (wide < 0)).sum())} tuples are true and not even possible")


def _checked_values(found: Relation, name: str, row: IntArray, t: IntArray, truth: FloatArray) -> float:
    """The largest error at these instants of these rows, each within what its row certifies."""
    off = np.abs(values_at(found, name, row, t) - truth)
    if not (off <= found.err[name][row]).all():
        raise ValueError(f"a value of {name} is off by {off.max()}, which is more than it certifies")
    return float(off.max(initial=0.0))


def _selected(given: BoolArray, truth: BoolArray, certified: float, observed: float) -> Accuracy:
    both = int((given & truth).sum())
    return Accuracy(both / max(int(given.sum()), 1), both / max(int(truth.sum()), 1), certified, observed)


def true_minimum(objects: Objects, size: int, closing: IntArray, key: IntArray) -> FloatArray:
    """The infimum over ``[t - size, t)`` of the straight lines through a key's tuples, for each closing time of a key."""
    tuples = objects.stream_tuples
    found = np.empty(len(closing))
    for g in range(objects.objects):
        mine, asked = tuples.id == g, key == g
        t, x, ends = tuples.t[mine], tuples.x[mine], closing[asked]
        at = np.interp(np.stack([ends - size, ends]) - t[0], t - t[0], x)
        first, last = np.searchsorted(t, ends - size), np.searchsorted(t, ends)
        lows = [x[a:b].min(initial=np.inf) for a, b in zip(first, last, strict=True)]
        found[asked] = np.minimum(lows, at.min(axis=0))
    return found


def judged_minimum(samples: Samples, output: str, objects: Objects, size: int, expected: int) -> Accuracy:
    """Of windows at their closing times, ``expected`` of them; values must lie within what each certifies."""
    return judged_lows(
        samples.of_group, samples.times, samples.values[output], samples.err[output], objects, size, expected
    )


def judged_lows(
    key: IntArray, t: IntArray, low: FloatArray, err: FloatArray, objects: Objects, size: int, expected: int
) -> Accuracy:
    """As :func:`judged_minimum`, of arrays. A window that closes after its key's last tuple is not looked at."""
    last = np.zeros(objects.objects, np.int64)
    np.maximum.at(last, objects.stream_tuples.id, objects.stream_tuples.t)
    shown = t <= last[key]
    key, t, low, err = key[shown], t[shown], low[shown], err[shown]
    off = np.abs(low - true_minimum(objects, size, t, key))
    if not (off <= err).all():
        raise ValueError(f"a window is off by {off.max()}, which is more than it certifies")
    return Accuracy(1.0, len(t) / max(expected, 1), float(err.max()), float(off.max()))


def true_pairs(left: Objects, right: Objects, reach: float) -> BoolArray:
    """``(n, k)``: whether each tuple of left is within reach of each object of right at its instant."""
    mine, others = left.stream_tuples, right.stream_tuples
    near = np.zeros((len(mine.t), right.objects), bool)
    for g in range(right.objects):
        own = others.id == g
        t = others.t[own]
        x, y = (np.interp(mine.t - t[0], t - t[0], values[own]) for values in (others.x, others.y))
        near[:, g] = (np.hypot(mine.x - x, mine.y - y) < reach) & (mine.t >= t[0]) & (mine.t <= t[-1])
    return near


def judged_near(found: Relation, wider: Relation, left: Objects, right: Objects, reach: float) -> Accuracy:
    """Of a join of objects within reach, looked at at left's tuples, up to the last tuple of either stream."""
    mine, k = left.stream_tuples, right.objects
    ends = min(mine.t[-1], right.stream_tuples.t[-1]) - int(right.objects / right.rate * SECOND)
    shown = mine.t < ends
    truth = true_pairs(left, right, reach)[shown].ravel()
    ids, t = np.repeat(mine.id[shown], k), np.repeat(mine.t[shown], k)
    others = np.tile(np.arange(k), int(shown.sum()))
    row, wide = (_pair_row(one, ids, others, t) for one in (found, wider))
    given = row >= 0
    _check_certainty(found, row, wide, truth)
    off = {
        name: _checked_values(found, name, row[given], t[given], np.repeat(seen[shown], k)[given])
        for name, seen in (("R.x", mine.x), ("R.y", mine.y))
    }
    worst = max(off, key=lambda name: off[name])
    return _selected(given, truth, float(found.err[worst].max(initial=0.0)), off[worst])


def _pair_row(relation: Relation, ids: IntArray, others: IntArray, t: IntArray) -> IntArray:
    """As :func:`row_at`, of the group that has both keys."""
    own, other = (column.to_numpy(zero_copy_only=False).astype(np.int64) for column in relation.keys)
    width = int(max(other.max(initial=0), others.max(initial=0))) + 1
    codes, asked = own * width + other, ids * width + others
    order = np.argsort(codes)
    place = np.searchsorted(codes[order], asked)
    known = place < len(codes)
    group = order[np.where(known, place, 0)] if len(codes) else np.zeros(len(asked), np.int64)
    known &= (codes[group] == asked) if len(codes) else False
    return np.where(known, row_at(relation, group, t), -1)

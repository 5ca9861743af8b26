"""Decide whether corrected tuples still agree with the models in force at their time, so that nothing changes (semantics 7.2).

The truth around a corrected instant extends from the tuple before it to the one after. It is checked against every segment of the
key in between as validation does it (:mod:`pulse.kernels.validate.validate`): the residual at both ends, and how far the model
can deviate from its chord between them. A key's correction is *not* absorbed where

* there is no tuple before or after: the key's truth begins or ends elsewhere now, or the next validation depends on it;
* a model, or a repair, begins at the instant: it was made from the tuple there;
* no model was in force then: a tuple there begins one;
* without it a silence, or with it none, is longer than the stream's ``max_gap``;
* a watched attribute, whose change ends models, differs from the model's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.schema import Truth
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import begins, ends
from pulse.operators.fit.predictive_spec import PredictSpec


class TupleColumns(NamedTuple):
    """The corrected tuples by key and time: key codes, instants, values ``[A, n]``; ``table`` has their watched attributes."""

    code: IntArray
    t: IntArray
    v: FloatArray
    table: pa.Table


class InForce(NamedTuple):
    """The segments in force, by key and time, and the code of each row's key; ``own[C, A]``: where the stream's bound holds."""

    segments: Relation
    code: IntArray
    own: BoolArray


def absorbed(
    spec: PredictSpec, tuples: TupleColumns, force: InForce, code: IntArray, t: IntArray
) -> BoolArray:
    """Return per corrected instant ``(code, t)`` whether the truth around it agrees with the segments in force."""
    places = _Places(np.concatenate([tuples.t, t, begins(force.segments)]))
    at_tuple, at = places(tuples.code, tuples.t), places(code, t)
    first, after = np.searchsorted(at_tuple, at), np.searchsorted(at_tuple, at, side="right")
    n = len(tuples.t)
    padded = np.concatenate([[-1], tuples.code, [-1]])  # of the tuple before index i: padded[i]
    fine: BoolArray = (padded[first] == code) & (padded[after + 1] == code)
    begin = places(force.code, begins(force.segments))
    row = np.searchsorted(begin, at, side="right") - 1
    inside = np.maximum(row, 0)
    if not len(begin) or not n:
        return np.zeros(len(t), bool)
    fine &= (row >= 0) & (force.code[inside] == code) & (ends(force.segments)[inside] > t)
    fine &= begin[inside] != at
    chosen = np.flatnonzero(fine)
    if not len(chosen):
        return fine
    # Check the tuples at the instant, then the truth from the tuple before to the one after.
    owner, which = _expanded(chosen, first[chosen], after[chosen])
    bad = ~_near(spec, tuples, force, which, row[owner])
    fine[owner[bad]] = False
    owner, piece = _expanded(chosen, first[chosen] - 1, after[chosen])
    bad = ~_held(spec, tuples, force, piece, begin, places)
    fine[owner[bad]] = False
    return fine


class _Places:
    """A mapping of keys and instants to one number each, in their order."""

    def __init__(self, t: IntArray) -> None:
        self.t = np.unique(t)

    def __call__(self, code: IntArray, t: IntArray) -> IntArray:
        found: IntArray = code * (len(self.t) + 1) + np.searchsorted(self.t, t)
        return found


def _expanded(owner: IntArray, begin: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Return all indices of the ranges ``[begin, end)``, and their owners."""
    counts = end - begin
    offsets = np.cumsum(counts) - counts
    index = np.arange(int(counts.sum())) + np.repeat(begin - offsets, counts)
    return np.repeat(owner, counts), index


def _near(
    spec: PredictSpec, tuples: TupleColumns, force: InForce, which: IntArray, row: IntArray
) -> BoolArray:
    """Return whether tuples are within the bound of these rows' segments and have the same watched attributes."""
    near = np.ones(len(which), bool)
    x = (tuples.t[which] - force.segments.ref[row]) / 1e6
    for a, name in enumerate(spec.schema.modelled_names):
        value = tuples.v[a, which]
        off = np.abs(value - _model(force.segments.models[name][row], x))
        near &= off <= _tolerance(spec, force, row, a, np.abs(value))
    for name in spec.watched:
        recorded = tuples.table.column(name).combine_chunks().take(pa.array(which))
        model = force.segments.unmodelled[name].take(pa.array(row))
        near &= _equal(recorded, model)
    return near


def _held(
    spec: PredictSpec, tuples: TupleColumns, force: InForce, piece: IntArray, begin: IntArray, places: _Places
) -> BoolArray:
    """Return whether the truth from each tuple ``piece`` to the next agrees with all segments in between."""
    held = np.ones(len(piece), bool)
    t0, t1, code = tuples.t[piece], tuples.t[piece + 1], tuples.code[piece]
    low = np.searchsorted(begin, places(code, t0), side="right") - 1
    high = np.searchsorted(begin, places(code, t1))
    owner, row = _expanded(np.arange(len(piece)), np.maximum(low, 0), np.maximum(high, np.maximum(low, 0)))
    segments = force.segments
    left = np.maximum(t0[owner], begins(segments)[row])
    right = np.minimum(t1[owner], ends(segments)[row])
    meet = np.flatnonzero((force.code[row] == code[owner]) & (right > left))
    owner, row, left, right = owner[meet], row[meet], left[meet], right[meet]
    x0, x1 = (left - segments.ref[row]) / 1e6, (right - segments.ref[row]) / 1e6
    if spec.max_gap is not None:
        held[t1 - t0 > spec.max_gap] = False
    length = np.maximum(t1 - t0, 1)[owner]
    for a, (name, truth) in enumerate(spec.schema.modelled):
        if truth is Truth.SAMPLES:
            continue
        old, new = tuples.v[a, piece][owner], tuples.v[a, piece + 1][owner]
        from_, to = old, old
        if truth is Truth.LINEAR:
            from_ = old + (new - old) * ((left - t0[owner]) / length)
            to = np.where(right == t1[owner], new, old + (new - old) * ((right - t0[owner]) / length))
        c = segments.models[name][row]
        off = np.maximum(np.abs(from_ - _model(c, x0)), np.abs(to - _model(c, x1))) + _chord_deviation(
            c, x1, x1 - x0
        )
        least = np.where((from_ < 0) != (to < 0), 0.0, np.minimum(np.abs(from_), np.abs(to)))
        held[owner[~(off <= _tolerance(spec, force, row, a, least))]] = False
    return held


def _tolerance(
    spec: PredictSpec, force: InForce, row: IntArray, attribute: int, least: FloatArray
) -> FloatArray:
    """Return the segment's certified bound, or the stream's own bound where that is tighter at these values."""
    err = force.segments.err[spec.schema.modelled_names[attribute]][row]
    share, floor = spec.limits[attribute]
    own = force.own[force.code[row], attribute]
    allowed: FloatArray = np.where(own, np.minimum(err, np.maximum(share * least, floor)), err)
    return allowed


def _model(c: FloatArray, x: FloatArray) -> FloatArray:
    value = c[:, -1]
    for j in range(c.shape[1] - 2, -1, -1):
        value = value * x + c[:, j]
    return value


def _chord_deviation(c: FloatArray, x: FloatArray, length: FloatArray) -> FloatArray:
    """Return ``h**2 / 8 * max|M''|``: how far the model can deviate from its chord."""
    bend, power = np.zeros(len(c)), np.ones(len(c))
    for j in range(2, c.shape[1]):
        bend = bend + j * (j - 1) * np.abs(c[:, j]) * power
        power = power * x
    deviation: FloatArray = bend * length * length * 0.125
    return deviation


def _equal(a: pa.Array, b: pa.Array) -> BoolArray:
    import pyarrow.compute as pc

    same = pc.fill_null(pc.equal(a, b.cast(a.type)), False)
    neither = pc.and_(pc.is_null(a), pc.is_null(b))
    found: BoolArray = pc.or_(same, neither).to_numpy(zero_copy_only=False)
    return found

"""Patch a model exactly: move it by the change of the truth (semantics 1.5, 7.2).

On a cell (:mod:`pulse.operators.refit.truth_diff`) old and new truth are lines, so ``new model = old model + (new truth - old
truth)`` is a polynomial, and model minus truth is unchanged at every instant: err and drift of the cell's segments and of all
later ones stay certified. Rounding is added to those of the patched piece; later segments have room for it, as their own
bounds allow for eight units in the last place of the sum before them. A sample is true at its tuple alone: there the
model becomes the sample, up to the next tuple.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.segment.batch import SegmentBatch
from pulse.kernels.fit.constraints import LEAST, ROUNDING
from pulse.kernels.fit.truth_intervals import LINEAR, SAMPLES
from pulse.kernels.instants import GRAIN, MICROSECONDS
from pulse.kernels.polynomial.arithmetic import taylor_shift
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import GROWN, round_up
from pulse.operators.data.tuple_columns import segments_of
from pulse.operators.fit.spec import FitSpec
from pulse.operators.refit.apply_revisions import Corrected
from pulse.operators.refit.segment_index import Pairs, SegmentIndex
from pulse.operators.refit.truth_diff import TruthCells, TruthPieces


def patch(
    held: SegmentIndex, pairs: Pairs, cells: TruthCells, new: TruthPieces, corrected: Corrected, spec: FitSpec
) -> tuple[SegmentBatch, int]:
    """Patch the pairs' common ranges; return the segments and how many may exceed a requested bound.

    Every pair's cell has a truth before and after.
    """
    schema, old = spec.schema, held.ranges.take(pairs.segment)
    cell = cells.take(pairs.stretch)
    seconds = (cell.end - cell.begin) / MICROSECONDS
    straight = (spec.truth == LINEAR)[:, None] & cell.differs
    # A slope is added about the cell's own begin, where its numbers are small.
    moved = straight.any(axis=0)
    shift = np.where(moved, (cell.begin - old.ref) / MICROSECONDS, 0.0)
    ref = np.where(moved, cell.begin, old.ref)
    low = (cell.begin - old.ref) / MICROSECONDS
    lo = np.where(moved, np.where(pairs.lo <= low, 0.0, pairs.lo - shift), pairs.lo)
    hi = np.where(moved, np.where(pairs.hi >= low + seconds, seconds, pairs.hi - shift), pairs.hi)
    at_tuple = pairs.lo <= low
    models: dict[str, Any] = {}
    err: dict[str, Any] = {}
    drift: dict[str, Any] = {}
    err2: dict[str, Any] = {}
    missed = np.zeros(len(old), dtype=bool)
    for a, (name, truth) in enumerate(schema.modelled):
        differs = cell.differs[a] & (at_tuple | (spec.truth[a] != SAMPLES))
        coefficients, noise = _moved(old, name, cell.y[:, a], seconds, shift, differs, spec.truth[a])
        models[name] = _lists(coefficients, old.degrees(name) + 1)
        err[name] = old.err(name) + noise
        if truth == "samples":
            err[name] = np.where(differs, 0.0, err[name])
        else:
            before = old.drift(name)
            after = before.filled(0.0) + noise * (hi - lo)
            drift[name] = pa.array(after, mask=np.ma.getmaskarray(before))
            missed |= _misses(after, spec.drift[a], cell.y[2:, a])
            err2[name] = _roughened(old.err2(name), noise, hi - lo)
        missed |= _misses(err[name], spec.error[a], cell.y[2:, a])
    rows = corrected.both.take(pa.array(new.opener[cell.after]))
    batch = segments_of(rows, schema, ref=ref, lo=lo, hi=hi, models=models, err=err, drift=drift, err2=err2)
    return batch, int(np.count_nonzero(missed))


def _roughened(before: Any, noise: FloatArray, length: FloatArray) -> pa.Array:
    """Return integrals of squared errors where errors change by up to ``noise``: the root grows by that times √length."""
    square = before.filled(0.0)
    with np.errstate(over="ignore"):
        grown = round_up((np.sqrt(square) + noise * np.sqrt(np.maximum(length, 0.0))) ** 2 * GROWN)
    after = np.where(noise > 0.0, grown, square)
    return pa.array(after, mask=np.ma.getmaskarray(before) | ~np.isfinite(after))


def _moved(
    old: SegmentBatch,
    name: str,
    y: FloatArray,
    seconds: FloatArray,
    shift: FloatArray,
    differs: BoolArray,
    truth: int,
) -> tuple[FloatArray, FloatArray]:
    """Return the patched coefficients about the shifted references, and the rounding error added."""
    c = old.coefficients(name)
    if c.shape[1] == 1 and truth == LINEAR and differs.any():
        c = np.column_stack([c, np.zeros(len(c))])
    size = _sizes(c, np.maximum(np.abs(old.lo), np.abs(old.hi)))
    exact = (shift == 0.0) | (c[:, 1:] == 0.0).all(axis=1)
    c = np.where(exact[:, None], c, taylor_shift(c, shift))
    if truth == SAMPLES:
        c = np.where(differs[:, None], 0.0, c)
        c[:, 0] += np.where(differs, y[2], 0.0)
        exact = exact | differs
    else:
        # Where the model equals the old truth it becomes the new truth, bit for bit.
        exact &= ~differs | (
            (c[:, 0] == y[0]) & (c[:, 1:] == 0.0).all(axis=1) & (y[0] == y[1]) & (y[2] == y[3])
        )
        c[:, 0] = np.where(differs, (c[:, 0] - y[0]) + y[2], c[:, 0])
        if truth == LINEAR and c.shape[1] > 1:
            slope = (c[:, 1] - (y[1] - y[0]) / seconds) + (y[3] - y[2]) / seconds
            c[:, 1] = np.where(differs, slope, c[:, 1])
            size += np.where(differs, np.abs(c[:, 1]) * seconds, 0.0)
    size += np.abs(y).max(axis=0) + LEAST
    # Instants are exact to a grain; the fit makes the same allowance.
    loose = GRAIN * np.abs(c[:, 1]) if c.shape[1] > 1 else 0.0
    return c, np.where(exact, 0.0, 4 * ROUNDING * size + loose)


def _sizes(c: FloatArray, x: FloatArray) -> FloatArray:
    """Return an upper bound on the magnitudes met when evaluating ``c`` up to ``x``."""
    total: FloatArray = (np.abs(c) * x[:, None] ** np.arange(c.shape[1])).sum(axis=1)
    return total


def _lists(c: FloatArray, count: IntArray) -> tuple[FloatArray, IntArray]:
    """Flatten coefficients to values and offsets, keeping at least the old count and all non-zero terms."""
    used = np.where(c != 0.0, np.arange(1, c.shape[1] + 1), 1).max(axis=1, initial=1)
    count = np.minimum(np.maximum(count, used), c.shape[1])
    return c[np.arange(c.shape[1]) < count[:, None]], np.concatenate([[0], np.cumsum(count)])


def _misses(certified: Any, requested: Any, y: FloatArray) -> BoolArray:
    """Return whether a certified bound may exceed the requested one where the truth is smallest on a cell."""
    if requested is None:
        return np.zeros(len(certified), dtype=bool)
    over: BoolArray = certified > requested.at(_least(y)) * (1 + 1e-9) + 1e-14 * np.abs(y).max(axis=0)
    return over


def _least(y: FloatArray) -> FloatArray:
    """Return the smallest magnitude on the line from ``y[0]`` to ``y[1]``."""
    least: FloatArray = np.where((y[0] < 0.0) != (y[1] < 0.0), 0.0, np.minimum(np.abs(y[0]), np.abs(y[1])))
    return least


def absorbs(held: SegmentIndex, pairs: Pairs, cells: TruthCells, spec: FitSpec) -> BoolArray:
    """Return per pair whether the new truth stays within the segment's certified bounds on their common range."""
    old, cell = held.ranges.take(pairs.segment), cells.take(pairs.stretch)
    begin = (cell.begin - old.ref) / MICROSECONDS
    seconds = (cell.end - cell.begin) / MICROSECONDS
    result = np.ones(len(old), dtype=bool)
    for a, name in enumerate(spec.schema.modelled_names):
        c, err, y = old.coefficients(name), old.err(name), cell.y[2:, a]
        size = _sizes(c, np.maximum(np.abs(old.lo), np.abs(old.hi))) + np.abs(y).max(axis=0)
        flat = (c[:, 1:] == 0.0).all(axis=1) & (y[0] == y[1])
        if spec.truth[a] == SAMPLES:
            off = np.abs(_value(c, begin) - y[0])
            needed = cell.differs[a] & (pairs.lo <= begin)
        else:
            slope = (y[1] - y[0]) / seconds
            line = np.zeros((len(c), max(c.shape[1], 2)))
            line[:, : c.shape[1]] = c
            line[:, 0] -= y[0] - slope * begin
            line[:, 1] -= slope
            least, most, _ = bounds(line, pairs.lo, pairs.hi)
            off = np.maximum(np.abs(least), np.abs(most))
            needed = cell.differs[a]
            size += np.abs(slope) * np.maximum(np.abs(begin), np.abs(pairs.hi))
        # Constants are compared exactly, so that a lossless model absorbs a truth that repeats it.
        room = np.where(flat, err * (1.0 - ROUNDING), err - 4 * ROUNDING * size)
        requested = spec.error[a]
        if requested is not None:  # a relative bound shrinks with the truth
            room = np.minimum(room, requested.at(_least(y)))
        result &= ~needed | (off <= room)
    return result


def _value(c: FloatArray, x: FloatArray) -> FloatArray:
    value = np.zeros(len(c))
    for j in range(c.shape[1] - 1, -1, -1):
        value = value * x + c[:, j]
    return value

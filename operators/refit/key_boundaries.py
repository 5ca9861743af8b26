"""Where a key ends after its tuples were revised: what a later fit goes on from (:mod:`pulse.operators.fit.key_boundaries`).

The row of a key's end is its newest tuple, with the difference of the integrals that stands there (as ``drift``) and the weight
it carries (as ``err``), whose rounding goes with it. Where the difference is known only by a bound ``E``, the row says a
difference of 0 and a weight whose rounding is ``E``: what goes on from there adds it to what it certifies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core import SegmentBatch
from pulse.core.arrays import FloatArray, IntArray
from pulse.core.instants import split
from pulse.core.regions import EARLIEST
from pulse.kernels.fit.constraints import ROUNDING
from pulse.operators.data.tuple_columns import values
from pulse.operators.fit.key_boundaries import LAST, LAST_APART
from pulse.operators.fit.spec import FitSpec
from pulse.operators.fit.stitch import PART
from pulse.operators.refit.apply_revisions import Corrected
from pulse.operators.refit.ranges import FittedRanges
from pulse.operators.refit.segment_index import SegmentIndex, key_codes
from pulse.operators.refit.truth_diff import among


class IntegralCarry(NamedTuple):
    """How integrals stand where fits ended: key, instant, difference and weight ``[n, A]``."""

    key: IntArray
    time: IntArray
    delta: FloatArray
    weight: FloatArray

    @classmethod
    def nowhere(cls, attributes: int) -> IntegralCarry:
        """No fit."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing, nothing, np.zeros((0, attributes)), np.zeros((0, attributes)))

    @classmethod
    def of(cls, fitted: FittedRanges, key: IntArray) -> IntegralCarry:
        """At the end of every stretch; ``key`` by stretch. Stretches stand in order, and so do their segments."""
        segments, of = fitted.segments, fitted.stretch
        last = np.append(of[1:] != of[:-1], True)[: len(of)]
        time, _ = split(segments.ref, segments.hi)
        weight = np.column_stack([weights(segments, name) for name in segments.schema.modelled_names])
        total = np.zeros((len(key), weight.shape[1]))
        np.add.at(total, of, weight)
        return cls(key[of[last]], time[last], fitted.delta[last], total[of[last]])

    def and_(self, other: IntegralCarry) -> IntegralCarry:
        """Both."""
        return IntegralCarry(*(np.concatenate([a, b]) for a, b in zip(self, other, strict=True)))


def weights(segments: SegmentBatch, name: str) -> FloatArray:
    """Per segment, no less than the integral of what was added up in it."""
    c = np.abs(segments.coefficients(name))
    x = np.maximum(np.abs(segments.lo), np.abs(segments.hi))
    size = 2.0 * (c * x[:, None] ** np.arange(c.shape[1])).sum(axis=1) + segments.err(name)
    weight: FloatArray = size * (segments.hi - segments.lo)
    return weight


def revised_ends(
    ends: pa.Table,
    corrected: Corrected,
    now: SegmentIndex,
    fits: IntegralCarry,
    spec: FitSpec,
    *,
    patched: bool,
) -> tuple[pa.Table, pa.Table]:
    """The rows of keys whose end may have changed, and the keys (their columns) that have no tuple any more.

    ``now``: the ranges of the revised model around what changed; ``fits``: where fits of bounded integrals ended.
    """
    schema = spec.schema
    code = key_codes(
        [ends.column(name).combine_chunks() for name in schema.key_names], ends.num_rows, corrected
    )
    row_of = np.full(int(corrected.key.max(initial=-1)) + 1, -1)
    row_of[code[code >= 0]] = np.flatnonzero(code >= 0)
    told = ends.column("ref").cast(pa.int64()).to_numpy()
    v = values(corrected.both, schema)
    finite = np.logical_and.reduce(np.isfinite(v), axis=0)
    before, after = _newest(corrected, corrected.before), _newest(corrected, corrected.after)
    last = _newest(corrected, corrected.after[finite[corrected.after]])
    # The window of tuples shows a key's end only if it reaches what was known of it.
    known = np.where(row_of >= 0, told[row_of] if len(told) else 0, EARLIEST)
    shown = (row_of < 0) | ((before >= 0) & (corrected.time[before] >= known))
    shown &= np.isin(np.arange(len(row_of)), corrected.key)
    # It shows all of the newest instant only where a revision names that, or where all of the run was read.
    named = np.arange(len(corrected.before), len(corrected.key))
    codes = np.arange(len(row_of))
    complete = among(codes, known, corrected.key[named], corrected.time[named]) | np.isin(codes, fits.key)
    shown &= (row_of < 0) | (after < 0) | (corrected.time[after] != known) | complete
    gone = np.flatnonzero(shown & (last < 0) & (after < 0))
    here = np.flatnonzero(shown & (last >= 0))
    tuple_, newest = last[here], after[here]
    is_open = newest == tuple_
    delta, weight = _standing(ends, row_of[here], here, corrected.time[tuple_], now, fits, spec)
    if not patched:
        delta, weight = np.zeros_like(delta), np.zeros_like(weight)
    table = _rows(
        corrected,
        tuple_,
        corrected.time[newest],
        v,
        np.where(is_open[:, None], delta, 0.0),
        np.where(is_open[:, None], weight, 0.0),
        spec,
    )
    table = table.append_column(PART, pa.array(np.where(is_open, LAST, LAST_APART), pa.int8()))
    one = np.array([int(np.flatnonzero(corrected.key == k)[0]) for k in gone], dtype=np.int64)
    return table, corrected.both.select(schema.key_names).take(pa.array(one))


def _newest(corrected: Corrected, rows: IntArray) -> IntArray:
    """Per key the last of these rows (by key and time), or -1."""
    out = np.full(int(corrected.key.max(initial=-1)) + 1, -1)
    out[corrected.key[rows]] = rows  # of several the last one stays
    return out


def _standing(
    ends: pa.Table,
    row: IntArray,
    key: IntArray,
    time: IntArray,
    now: SegmentIndex,
    fits: IntegralCarry,
    spec: FitSpec,
) -> tuple[FloatArray, FloatArray]:
    """Differences and weights at the keys' ends: of a fit that ended there, as told before, or by their bound."""
    attributes = len(spec.schema.modelled)
    delta, weight = np.zeros((len(key), attributes)), np.zeros((len(key), attributes))
    at = now.ending_at(key, time)
    told = ends.column("ref").cast(pa.int64()).to_numpy()
    same = (row >= 0) & (told[row] == time) if len(told) else np.zeros(len(key), dtype=bool)
    fit = _fit_at(key, time, fits)
    for a, (name, truth) in enumerate(spec.schema.modelled):
        if truth == "samples" or not len(key):
            continue
        bound = now.ranges.drift(name).filled(0.0) if len(now.ranges) else np.zeros(1)
        weight[:, a] = np.where(at >= 0, bound[at] / ROUNDING, 0.0)
        if len(told):
            delta[same, a] = ends.column(f"{name}_drift").to_numpy()[row[same]]
            weight[same, a] = ends.column(f"{name}_err").to_numpy()[row[same]]
        delta[fit >= 0, a] = fits.delta[fit[fit >= 0], a]
        weight[fit >= 0, a] = fits.weight[fit[fit >= 0], a]
    return delta, weight


def _fit_at(key: IntArray, time: IntArray, fits: IntegralCarry) -> IntArray:
    """The fit that ended at each instant, or -1."""
    found = {one: i for i, one in enumerate(zip(fits.key.tolist(), fits.time.tolist(), strict=True))}
    return np.array(
        [found.get(one, -1) for one in zip(key.tolist(), time.tolist(), strict=True)], dtype=np.int64
    )


def _rows(
    corrected: Corrected,
    rows: IntArray,
    time: IntArray,
    v: FloatArray,
    delta: Any,
    weight: Any,
    spec: FitSpec,
) -> pa.Table:
    schema = spec.schema
    table = corrected.both.take(pa.array(rows))
    apart = (corrected.time[rows] - time) / 1e6  # where a hole is newer than the newest tuple
    batch = SegmentBatch.from_arrays(
        schema,
        keys={name: table.column(name) for name in schema.key_names},
        ref=time,
        lo=apart,
        hi=apart,
        models={name: v[a, rows].reshape(-1, 1) for a, name in enumerate(schema.modelled_names)},
        err={name: weight[:, a] for a, name in enumerate(schema.modelled_names)},
        drift=dict.fromkeys(schema.modelled_names, 0.0),
        unmodelled={name: table.column(name) for name in schema.unmodelled_names},
        at_rest=False,
    ).to_arrow()
    for a, name in enumerate(schema.modelled_names):  # signed, so no drift of a segment
        column = batch.schema.get_field_index(f"{name}_drift")
        batch = batch.set_column(column, batch.schema.field(column), pa.array(delta[:, a]))
    return pa.Table.from_batches([batch])

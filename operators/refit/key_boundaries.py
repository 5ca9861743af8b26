"""Revise the rows of keys' ends, from which a later fit continues (:mod:`pulse.operators.fit.key_boundaries`).

The row of a key's end is its newest tuple, with the difference of the integrals there (as ``drift``) and the weight that
determines its rounding (as ``err``). Where only a bound ``E`` on the difference is known, the row holds a difference of 0 and a
weight whose rounding is ``E``: a fit that continues from there adds it to its certificates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.instants import split
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import EARLIEST
from pulse.kernels.fit.constraints import ROUNDING
from pulse.operators.data.tuple_columns import segments_of, values
from pulse.operators.fit.key_boundaries import LAST, LAST_APART
from pulse.operators.fit.spec import FitSpec
from pulse.operators.fit.stitch import PART
from pulse.operators.refit.apply_revisions import Corrected
from pulse.operators.refit.ranges import FittedRanges
from pulse.operators.refit.segment_index import SegmentIndex, key_codes
from pulse.operators.refit.truth_diff import among


class IntegralCarry(NamedTuple):
    """The integrals where fits ended: key, instant, difference and weight ``[n, A]``."""

    key: IntArray
    time: IntArray
    delta: FloatArray
    weight: FloatArray

    @classmethod
    def nowhere(cls, attributes: int) -> IntegralCarry:
        """Create an empty carry."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing, nothing, np.zeros((0, attributes)), np.zeros((0, attributes)))

    @classmethod
    def of(cls, fitted: FittedRanges, key: IntArray) -> IntegralCarry:
        """Take the integrals at the end of every range; ``key`` is by range, and ranges and their segments are in order."""
        segments, of = fitted.segments, fitted.stretch
        last = np.append(of[1:] != of[:-1], True)[: len(of)]
        time, _ = split(segments.ref, segments.hi)
        weight = np.column_stack([weights(segments, name) for name in segments.schema.modelled_names])
        total = np.zeros((len(key), weight.shape[1]))
        np.add.at(total, of, weight)
        return cls(key[of[last]], time[last], fitted.delta[last], total[of[last]])

    def and_(self, other: IntegralCarry) -> IntegralCarry:
        """Concatenate two carries."""
        return IntegralCarry(*(np.concatenate([a, b]) for a, b in zip(self, other, strict=True)))


def weights(segments: SegmentBatch, name: str) -> FloatArray:
    """Return per segment an upper bound on the integral of the magnitudes summed in it."""
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
    """Return the rows of keys whose end may have changed, and the keys (their columns) without any tuple left.

    ``now``: the ranges of the revised model around the changes; ``fits``: where fits of bounded integrals ended.
    """
    schema = spec.schema
    code = key_codes(
        [ends.column(name).combine_chunks() for name in schema.key_names], ends.num_rows, corrected
    )
    row_of = np.full(int(corrected.key.max(initial=-1)) + 1, -1)
    row_of[code[code >= 0]] = np.flatnonzero(code >= 0)
    recorded = ends.column("ref").cast(pa.int64()).to_numpy()
    v = values(corrected.both, schema)
    finite = np.logical_and.reduce(np.isfinite(v), axis=0)
    before, after = _newest(corrected, corrected.before), _newest(corrected, corrected.after)
    last = _newest(corrected, corrected.after[finite[corrected.after]])
    # The tuples that were read contain a key's end only if they reach its recorded instant.
    known = np.where(row_of >= 0, recorded[row_of] if len(recorded) else 0, EARLIEST)
    shown = (row_of < 0) | ((before >= 0) & (corrected.time[before] >= known))
    shown &= np.isin(np.arange(len(row_of)), corrected.key)
    # They contain all of the newest instant only where a revision names it, or where the whole run was read.
    named = np.arange(len(corrected.before), len(corrected.key))
    codes = np.arange(len(row_of))
    complete = among(codes, known, corrected.key[named], corrected.time[named]) | np.isin(codes, fits.key)
    shown &= (row_of < 0) | (after < 0) | (corrected.time[after] != known) | complete
    gone = np.flatnonzero(shown & (last < 0) & (after < 0))
    here = np.flatnonzero(shown & (last >= 0))
    tuple_, newest = last[here], after[here]
    is_open = newest == tuple_
    delta, weight = _integrals_at(ends, row_of[here], here, corrected.time[tuple_], now, fits, spec)
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
    """Return per key the last of these rows (by key and time), or -1."""
    out = np.full(int(corrected.key.max(initial=-1)) + 1, -1)
    out[corrected.key[rows]] = rows  # the last of several wins
    return out


def _integrals_at(
    ends: pa.Table,
    row: IntArray,
    key: IntArray,
    time: IntArray,
    now: SegmentIndex,
    fits: IntegralCarry,
    spec: FitSpec,
) -> tuple[FloatArray, FloatArray]:
    """Return differences and weights at the keys' ends: of a fit that ended there, as recorded, or from their bound."""
    attributes = len(spec.schema.modelled)
    delta, weight = np.zeros((len(key), attributes)), np.zeros((len(key), attributes))
    at = now.ending_at(key, time)
    recorded = ends.column("ref").cast(pa.int64()).to_numpy()
    same = (row >= 0) & (recorded[row] == time) if len(recorded) else np.zeros(len(key), dtype=bool)
    fit = _fit_at(key, time, fits)
    for a, (name, truth) in enumerate(spec.schema.modelled):
        if truth == "samples" or not len(key):
            continue
        bound = now.ranges.drift(name).filled(0.0) if len(now.ranges) else np.zeros(1)
        weight[:, a] = np.where(at >= 0, bound[at] / ROUNDING, 0.0)
        if len(recorded):
            delta[same, a] = ends.column(f"{name}_drift").to_numpy()[row[same]]
            weight[same, a] = ends.column(f"{name}_err").to_numpy()[row[same]]
        delta[fit >= 0, a] = fits.delta[fit[fit >= 0], a]
        weight[fit >= 0, a] = fits.weight[fit[fit >= 0], a]
    return delta, weight


def _fit_at(key: IntArray, time: IntArray, fits: IntegralCarry) -> IntArray:
    """Return the fit that ended at each instant, or -1."""
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
    apart = (corrected.time[rows] - time) / 1e6  # negative where a hole is newer than the newest tuple
    batch = segments_of(
        table,
        schema,
        ref=time,
        lo=apart,
        hi=apart,
        models={name: v[a, rows].reshape(-1, 1) for a, name in enumerate(schema.modelled_names)},
        err={name: weight[:, a] for a, name in enumerate(schema.modelled_names)},
        drift=dict.fromkeys(schema.modelled_names, 0.0),
    )
    # Signed, unlike a segment's drift.
    signed = {f"{name}_drift": delta[:, a] for a, name in enumerate(schema.modelled_names)}
    return pa.Table.from_batches([batch.with_columns(**signed).to_arrow()])

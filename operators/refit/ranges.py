"""Fit time ranges of a corrected truth again, with the fit that made the model (semantics 7.2).

The pieces of truth that a range touches are fitted whole and the segments cut to the range: bounds on a range hold on every
part of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.instants import ceil_microsecond, floor_microsecond, tolerances
from pulse.core.segment.batch import SegmentBatch
from pulse.kernels.fit.greedy_lines import SEGMENT
from pulse.kernels.fit.truth_intervals import RESUME, RUN, Intervals
from pulse.kernels.instants import MICROSECONDS
from pulse.operators.fit.fitter import fit_rows, fitted_segments
from pulse.operators.fit.spec import FitSpec
from pulse.operators.refit.apply_revisions import Corrected, dense
from pulse.operators.refit.truth_diff import TruthPieces


class RefitRanges(NamedTuple):
    """Time ranges ``[begin_ref + begin, end_ref + end)`` per key: exact microseconds plus seconds."""

    key: IntArray
    begin_ref: IntArray
    begin: FloatArray
    end_ref: IntArray
    end: FloatArray

    def take(self, rows: IntArray) -> RefitRanges:
        """Select ranges, in this order."""
        return RefitRanges(
            self.key[rows], self.begin_ref[rows], self.begin[rows], self.end_ref[rows], self.end[rows]
        )

    @classmethod
    def whole(cls, key: IntArray, begin: IntArray, end: IntArray) -> RefitRanges:
        """Build ranges between whole microseconds."""
        return cls(key, begin, np.zeros(len(key)), end, np.zeros(len(key)))


class FittedRanges(NamedTuple):
    """The segments, the range each belongs to, and the difference of the integrals at its end (model minus truth)."""

    segments: SegmentBatch
    stretch: IntArray
    delta: FloatArray  # [n, A]
    missed: int


def fit_ranges(
    truth: TruthPieces, stretches: RefitRanges, corrected: Corrected, spec: FitSpec, *, certified: bool
) -> FittedRanges:
    """Fit the truth on disjoint ranges, given by key and time.

    ``certified``: every range begins where integrals start, so the drifts hold; else they stay unknown.
    """
    schema = spec.schema
    first, stop = _touched(truth, stretches)
    count = stop - first
    of = np.repeat(np.arange(len(count)), count)
    piece = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count) + first[of]
    index = truth.found.index[piece].copy()
    index[:, 2] = of
    flag = truth.found.flag[piece].copy()
    opens = np.append(True, of[1:] != of[:-1])[: len(of)]
    flag[opens & (flag != RUN)] = RESUME
    resume = np.zeros((len(count), 1 + 2 * len(schema.modelled)))

    def key_of(stretch: int) -> tuple[object, ...]:
        row = int(np.flatnonzero(corrected.key == stretches.key[stretch])[0])
        return tuple(corrected.both.column(name)[row].as_py() for name in schema.key_names)

    fitted = fit_rows(truth.t, truth.v, Intervals(index, flag, truth.found.verdict), spec, resume, key_of)
    chosen = np.flatnonzero(fitted.kind == SEGMENT)
    ref, of = truth.t[fitted.tuple[chosen]], fitted.key[chosen]
    lo = np.maximum(fitted.lo[chosen], (stretches.begin_ref[of] - ref) / MICROSECONDS + stretches.begin[of])
    hi = np.minimum(fitted.hi[chosen], (stretches.end_ref[of] - ref) / MICROSECONDS + stretches.end[of])
    whole = (lo == fitted.lo[chosen]) & (hi == fitted.hi[chosen])
    keep = (hi - lo > tolerances(ref, lo, ref, hi)) | (whole & (hi > lo))
    chosen, ref, of, lo, hi = chosen[keep], ref[keep], of[keep], lo[keep], hi[keep]
    rows = corrected.both.take(pa.array(truth.rows[fitted.tuple[chosen]]))
    segments = fitted_segments(fitted, chosen, rows, ref, spec, span=(lo, hi), certified=certified)
    return FittedRanges(segments, of, fitted.delta[chosen], int(np.count_nonzero(fitted.missed[chosen])))


def _touched(truth: TruthPieces, stretches: RefitRanges) -> tuple[IntArray, IntArray]:
    """Return per range the pieces ``first`` to ``stop`` that it overlaps."""
    n, m = len(stretches.key), len(truth.key)
    begin = floor_microsecond(stretches.begin_ref, stretches.begin)
    end = ceil_microsecond(stretches.end_ref, stretches.end)
    ids = dense(
        np.concatenate([stretches.key, stretches.key, truth.key, truth.key]),
        np.concatenate([begin, end, truth.begin, truth.end]),
    )
    from_, to, begins, ends = np.split(ids, [n, 2 * n, 2 * n + m])
    first = np.searchsorted(ends, from_, side="right")
    return first, np.maximum(np.searchsorted(begins, to, side="left"), first)

"""Refit streams with flows: fit the revised keys anew, as a corrected tuple moves every total after it (semantics 7.2).

The running total of a key depends on all its tuples, so all of them are read, and the key is fitted from its first tuple on. What
comes out as it was, mostly the segments before the correction, is neither withdrawn nor inserted. The cost is that of a fit of
the revised keys; other keys are not touched.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.regions import Regions
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import EARLIEST, LATEST
from pulse.operators.fit.fitter import Fitter
from pulse.operators.fit.key_boundaries import SEGMENTS
from pulse.operators.fit.stitch import Stitched, part_table, stitch
from pulse.operators.refit.apply_revisions import correct
from pulse.operators.refit.refit import Refit
from pulse.operators.refit.result import without_drift
from pulse.operators.refit.segment_index import SegmentIndex, key_codes


class RefitFlows(Refit):
    """A refit for a stream with flows: it replaces the segments of revised keys."""

    def run(self) -> None:
        """Fit the corrected tuples of the revised keys, and replace the segments that changed."""
        named = self.revisions.regions()
        whole = Regions(
            named.keys,
            np.full(len(named.start), EARLIEST, dtype=np.int64),
            np.full(len(named.start), LATEST, dtype=np.int64),
        ).merged()
        self.corrected = correct(
            self._tuples(whole),
            self.revisions,
            nonfinite=self.spec.nonfinite,
            as_recorded=self._as_recorded,
            drops=self._drops,
        )
        self.held = SegmentIndex.of(self._segments(whole), self.corrected)
        old = SegmentBatch.concat([self.held.ranges, self.held.points], at_rest=False)
        self.stitched = self._fitted()
        new = SegmentBatch.empty(self.spec.schema) if self.stitched is None else self.stitched.segments
        old, new = without_drift(old, self.spec), without_drift(new, self.spec)
        stays_old, stays_new = self._unchanged(old, new)
        self.old.append(old.filter(~stays_old))
        self.new.append(new.filter(~stays_new))

    def _fitted(self) -> Stitched | None:
        """Fit the corrected tuples; None if there are none left."""
        if not self.corrected.tuples.num_rows:
            return None
        fitter = Fitter(self.spec, drops=self._drops)
        fitter.push(self.corrected.tuples)
        parts = [part_table(fitter.finish(), 0, SEGMENTS)]
        parts += [part_table(points, 0, part) for points, part in fitter.ends.parts()]
        stitched = stitch(
            pa.concat_tables([one.select(parts[0].column_names) for one in parts]), self.spec, self._drops
        )
        assert isinstance(stitched, Stitched), "corrected tuples are in order"
        self.missed += fitter.counts.missed + stitched.missed
        return stitched

    def _unchanged(self, old: SegmentBatch, new: SegmentBatch) -> tuple[BoolArray, BoolArray]:
        """Return which segments of either side the other one has, bit by bit."""
        if self.spec.schema.unmodelled or not len(old) or not len(new):
            return np.zeros(len(old), dtype=np.bool_), np.zeros(len(new), dtype=np.bool_)
        both = SegmentBatch.concat([old, new], at_rest=False)
        names = self.spec.schema.modelled_names
        key = key_codes([both.column(name) for name in self.spec.schema.key_names], len(both), self.corrected)
        columns: list[IntArray] = [key, both.ref, *(_bits(x) for x in (both.lo, both.hi))]
        for name in names:
            columns += [*_bits(both.coefficients(name).T), _bits(both.err(name))]
        rows = np.ascontiguousarray(np.column_stack(columns))
        code = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
        mine, others = code[: len(old)], code[len(old) :]
        return np.isin(mine, others), np.isin(others, mine)

    def _ends(self, ends: pa.Table | None) -> tuple[pa.Table | None, pa.Table | None]:
        if ends is None:
            return None, None
        corrected, names = self.corrected, list(self.spec.schema.key_names)
        gone = np.setdiff1d(corrected.key, corrected.key[corrected.after])
        one = np.array([int(np.flatnonzero(corrected.key == k)[0]) for k in gone], dtype=np.int64)
        keys = corrected.both.select(names).take(pa.array(one, pa.int64()))
        return (ends.slice(0, 0) if self.stitched is None else self.stitched.ends), keys

    def _outcomes(self) -> tuple[BoolArray, BoolArray]:
        every = np.ones(len(self.revisions), dtype=np.bool_)
        return every, every


def _bits(values: object) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.int64)

"""Refit streams of points: replace all points of each instant whose tuples changed (semantics 1.2, 7.2)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.operators.fit.points import PointFitter
from pulse.operators.refit.refit import Refit
from pulse.operators.refit.segment_index import SegmentIndex
from pulse.operators.refit.truth_diff import among


class RefitPoints(Refit):
    """A refit for a stream of points: it replaces only the points of changed instants (semantics 1.2)."""

    def run(self) -> None:
        """Withdraw the points of every instant whose tuples changed, and insert the current ones."""
        self._read(self.revisions.regions())
        corrected, spec = self.corrected, self.spec
        before, after = self._instants(corrected.before), self._instants(corrected.after)
        changed = np.array([before.get(one) != after.get(one) for one in self._named()], dtype=bool)
        rows = np.arange(corrected.both.num_rows - len(changed), corrected.both.num_rows)[changed]
        key, time = corrected.key[rows], corrected.time[rows]
        self.changed = changed
        self.moved = np.ones(len(self.found.cells.key), dtype=bool)
        self.held = SegmentIndex.of(self._segments(self._regions(key, time, time + 1).merged()), corrected)
        self.old.append(self.held.points.filter(self.held.points_at(key, time)))
        now = corrected.after[
            among(corrected.key[corrected.after], corrected.time[corrected.after], key, time)
        ]
        fitter = PointFitter(spec)
        fitter.push(corrected.both.take(pa.array(now)))
        self.new.append(fitter.finish())

    def _named(self) -> list[tuple[int, int]]:
        rows = slice(self.corrected.both.num_rows - self.revisions.table.num_rows, None)
        return list(zip(self.corrected.key[rows].tolist(), self.corrected.time[rows].tolist(), strict=True))

    def _instants(self, rows: IntArray) -> dict[tuple[int, int], list[tuple[object, ...]]]:
        """Return the recorded values at the instants that revisions name, in order."""
        corrected, named = self.corrected, set(self._named())
        at = list(zip(corrected.key[rows].tolist(), corrected.time[rows].tolist(), strict=True))
        here = [i for i, one in enumerate(at) if one in named]
        names = [*self.spec.schema.modelled_names, *self.spec.schema.unmodelled_names]
        table = corrected.both.select(names).take(pa.array(rows[here]))
        recorded = zip(*(table.column(name).to_pylist() for name in names), strict=True)
        out: dict[tuple[int, int], list[tuple[object, ...]]] = {}
        for i, values_ in zip(here, recorded, strict=True):
            out.setdefault(at[i], []).append(values_)
        return out

    def _outcomes(self) -> tuple[BoolArray, BoolArray]:
        return self._of_elements(self.changed), np.ones(len(self.revisions), dtype=bool)

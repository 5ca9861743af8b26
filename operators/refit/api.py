"""From revised tuples to revised segments: only what a correction touches is modelled anew (semantics 7.2, 7.7).

1 Transforms: the tuples are corrected (:mod:`pulse.operators.refit.apply_revisions`), the truths before and after compared
  (:mod:`pulse.operators.refit.truth_diff`), and the segments over what changed withdrawn and replaced.
2 Bounds: what stays certified is kept as it is, everything else measured anew. Where no bound on the drift was asked, a revision
  changes the integrals of the truth and the segments' drift certifies nothing any more: see :func:`without_drift`.
3 Inverts: as the fit does.
4 Revises: this is where revisions of segments come from.
5 Accents: as the fit.
"""

from __future__ import annotations

import pyarrow as pa

from pulse.core import SegmentBatch
from pulse.operators.fit.spec import FitSpec
from pulse.operators.refit.apply_revisions import Corrected, Telling, correct
from pulse.operators.refit.points import RefitPoints
from pulse.operators.refit.refit import Refit
from pulse.operators.refit.result import Refitted, RevisionCounts, patches, without_drift
from pulse.operators.refit.source import SegmentSource, TupleSource
from pulse.operators.units.key_ends import Drops
from pulse.stream.revisions import Revisions

__all__ = ["Corrected", "Refitted", "RevisionCounts", "correct", "patches", "refit", "without_drift"]


def refit(
    spec: FitSpec,
    tuples: pa.Table | TupleSource,
    segments: SegmentBatch | SegmentSource,
    revisions: Revisions,
    *,
    ends: pa.Table | None = None,
    told: Telling | None = None,
    drops: Drops | None = None,
) -> Refitted:
    """Correct a model by revisions of its tuples.

    ``tuples`` and ``segments`` are tables, complete for the keys revised and by key and time, or functions that are asked for
    regions: the tuples in them and one on either side of each, the segments that meet them. ``ends``: the rows of the keys'
    ends, if a later fit is to go on from them. ``told`` gives tuples as they are named in reasons, if not as they are.
    ``drops``: where attributes are dropped by accents.
    """
    job = (RefitPoints if spec.schema.points else Refit)(spec, tuples, segments, revisions, told, drops)
    job.run()
    return job.result(ends)

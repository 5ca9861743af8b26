"""Refit segments after revisions of tuples, limited to what a correction touches (semantics 7.2, 7.7).

1 Transforms: corrects the tuples (:mod:`pulse.operators.refit.apply_revisions`), compares the truths before and after
  (:mod:`pulse.operators.refit.truth_diff`), and withdraws and replaces the segments over what changed.
2 Bounds: segments that stay certified are kept unchanged, all others are measured again. Without a requested drift bound, a
  revision changes the integrals of the truth and the segments' drift no longer certifies anything: see :func:`without_drift`.
3 Inverts: as the fit does.
4 Revises: revisions of segments originate here.
5 Accents: as the fit.
"""

from __future__ import annotations

import pyarrow as pa

from pulse.core.segment.batch import SegmentBatch
from pulse.operators.fit.spec import FitSpec
from pulse.operators.refit.apply_revisions import Corrected, TupleFormatter, correct
from pulse.operators.refit.flows import RefitFlows
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
    as_recorded: TupleFormatter | None = None,
    drops: Drops | None = None,
) -> Refitted:
    """Correct a model by revisions of its tuples.

    Parameters
    ----------
    spec : the specification of the model's fit
    tuples : a table, complete for the revised keys, by key and time; or a function from regions to the tuples in them plus one
        on either side of each
    segments : a batch, complete for the revised keys, by key and time; or a function from regions to the segments that meet them
    revisions : the revisions to apply
    ends : the rows of the keys' ends if a later fit continues from them, default None
    as_recorded : a function that restores the recorded form of tuples for reasons, default None (tuples as they are)
    drops : the instants at which accents drop attributes, default None
    """
    kind = RefitPoints if spec.schema.points else RefitFlows if spec.schema.flow_names else Refit
    job = kind(spec, tuples, segments, revisions, as_recorded, drops)
    job.run()
    return job.result(ends)

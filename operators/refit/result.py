"""Define the result of revising a model: withdrawn and new segments, the outcome of each revision and the valid certificates."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pyarrow as pa

from pulse.core.arrays import BoolArray
from pulse.core.schema import certificates
from pulse.core.segment.batch import SegmentBatch
from pulse.operators.fit.spec import FitSpec
from pulse.stream.revisions import Revisions


@dataclass
class RevisionCounts:
    """Counters of revisions (elements; ``aside`` in rows) and segments."""

    revisions: int = 0
    inserted: int = 0
    deleted: int = 0
    replaced: int = 0
    absorbed: int = 0  # applied without changing a segment
    patched: int = 0  # segments were cut and moved by the change of the truth
    refitted: int = 0  # segments were fitted again
    aside: int = 0
    segments_old: int = 0
    segments_new: int = 0
    missed: int = 0  # new segments that may exceed a requested bound

    def add(self, other: RevisionCounts) -> None:
        """Add another's counts."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True, eq=False)
class Refitted:
    """The outcome of a refit: ``old`` segments are withdrawn, ``new`` ones inserted; ``log`` holds the applied revisions.

    ``applied`` and ``absorbed`` are per element. ``ends``: rows of keys' ends (:mod:`pulse.operators.fit.key_boundaries`) that
    replace those of the same key; ``ended``: keys that no longer have one.
    """

    old: SegmentBatch
    new: SegmentBatch
    applied: BoolArray
    absorbed: BoolArray
    log: Revisions
    aside: pa.Table
    counts: RevisionCounts
    ends: pa.Table | None = None
    ended: pa.Table | None = None


def without_drift(segments: SegmentBatch, spec: FitSpec) -> SegmentBatch:
    """Remove the certificates of integrals from a revised model's segments unless a drift bound was requested.

    A revision moves the truth within the bound on the value, and with it every later integral and its segment's squared error.
    """
    if patches(spec):
        return segments
    unknown = pa.nulls(len(segments), pa.float64())
    of_integrals = (one for name in spec.schema.modelled_names for one in certificates(name)[1:])
    return segments.with_columns(**dict.fromkeys(of_integrals, unknown))


def patches(spec: FitSpec) -> bool:
    """Return whether integrals are bounded, so that segments are patched instead of refitted."""
    return any(bound is not None for bound in spec.drift)

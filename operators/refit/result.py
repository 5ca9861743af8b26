"""What comes of revising a model: segments that go and come, what became of each revision, and which certificates remain."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pyarrow as pa

from pulse.core import SegmentBatch
from pulse.core.arrays import BoolArray
from pulse.operators.fit.spec import FitSpec
from pulse.stream.revisions import Revisions


@dataclass
class RevisionCounts:
    """What became of revisions (elements, aside as rows apart) and of segments."""

    revisions: int = 0
    inserted: int = 0
    deleted: int = 0
    replaced: int = 0
    absorbed: int = 0  # applied, and nothing moved
    patched: int = 0  # segments were cut and moved by what the truth moved by
    refitted: int = 0  # segments were fitted anew
    aside: int = 0
    segments_old: int = 0
    segments_new: int = 0
    missed: int = 0  # new segments that may not keep an asked bound

    def add(self, other: RevisionCounts) -> None:
        """Add another's counts."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True, eq=False)
class Refitted:
    """``old`` segments go, ``new`` ones come; ``applied`` and ``absorbed`` per element; ``log`` the revisions that were applied.

    ``closing_old``, ``closing_new``: which of them are points that end a key. ``ends``: rows of keys' ends
    (:mod:`pulse.operators.fit.key_boundaries`) that replace those of the same key, ``ended`` the keys that have none any more.
    """

    old: SegmentBatch
    new: SegmentBatch
    closing_old: BoolArray
    closing_new: BoolArray
    applied: BoolArray
    absorbed: BoolArray
    log: Revisions
    aside: pa.Table
    counts: RevisionCounts
    ends: pa.Table | None = None
    ended: pa.Table | None = None


def without_drift(segments: SegmentBatch, spec: FitSpec) -> SegmentBatch:
    """The segments as a revised model has them: no drift is certified where none was asked of any attribute.

    A revision moves the truth within what a value's bound allows, and with it every integral after it.
    """
    if patches(spec):
        return segments
    batch = segments.to_arrow()
    for name in spec.schema.modelled_names:
        at = batch.schema.get_field_index(f"{name}_drift")
        batch = batch.set_column(at, batch.schema.field(at), pa.nulls(len(segments), pa.float64()))
    return SegmentBatch(batch, segments.schema)


def patches(spec: FitSpec) -> bool:
    """Whether integrals are bounded, so that segments are patched rather than fitted anew."""
    return any(bound is not None for bound in spec.drift)

"""Merge layers into the files they correct, so that the folder reads as one plain table again."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import numpy as np

from pulse.core.arrays import BoolArray
from pulse.core.segment.batch import SegmentBatch
from pulse.store.draft import drafted
from pulse.store.manifest import Manifest, PartFile
from pulse.store.model import CLOSING, Model
from pulse.store.read_units import ReadUnit, read_unit, units
from pulse.store.writers import write_segments

HEAVY = 0.25
"""From this share of a part's segments on, its layers are merged into it."""
LIGHT = 1 << 12
"""Fewer rows of layers than this cost nothing to read."""
MOST = 32
"""The maximum number of layers of a part: each is a file that reading opens."""


def too_heavy(manifest: Manifest) -> bool:
    """Check whether some layers should be merged."""
    return any(_is_heavy(file) for file in manifest.files)


def _is_heavy(file: PartFile) -> bool:
    rows = sum(layer.withdrawn + layer.put for layer in file.layers)
    return len(file.layers) > MOST or rows > max(HEAVY * file.segments, LIGHT)


def compact(model: Model | str | Path) -> Model:
    """Merge all layers of a model as a new version with the same content; return the model at it.

    Where older versions are kept, the previous one is kept too: it holds the known times.
    """
    folder = (model if isinstance(model, Model) else Model(model)).path
    if Model(folder).manifest.is_plain:
        return Model(folder)
    with drafted(folder, replace=True) as draft:
        old = draft.base
        assert old is not None, "it was there just now"
        known = [layer.known for file in old.files for layer in file.layers if layer.known is not None]
        version = old.version + 1
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        manifest = replace(
            old,
            version=version,
            kept=(*old.kept, old.version) if old.kept else (),
            since=max([*known, *([] if old.since is None else [old.since])], default=None),
            changes=(*old.changes, {"version": version, "at": now, "what": "merged", "kept": bool(old.kept)}),
        )
        manifest = replace(merged(folder, manifest, draft.tag, every=True), stale=False)
        draft.commit(manifest, "merged", drop=old.names - manifest.names)
    return Model(folder)


def merged(folder: Path, manifest: Manifest, tag: str, *, every: bool = False) -> Manifest:
    """Return an unpublished manifest with heavy layers merged into new files; with ``every``, with all corrections merged."""
    model = Model.with_manifest(folder, manifest)
    by_name = {file.name: file for file in manifest.files}
    files: list[PartFile] = []
    for unit in units(model, shared=False):
        own = [by_name[name] for name in unit.files]
        if any(_is_heavy(file) or (every and (file.layers or manifest.stale)) for file in own):
            files += write_merged(folder, model, unit, manifest.version, tag)
        else:
            files += own
    return replace(manifest, files=tuple(files))


def write_merged(folder: Path, model: Model, unit: ReadUnit, version: int, tag: str) -> list[PartFile]:
    """Write a unit's corrected segments as files without layers: one of segments, and one of the points that end keys."""
    segments, closing = corrected(model, unit)
    names = label(unit, version, tag)
    made = [PartFile(**write_segments(folder / f"part-{names}.parquet", segments.filter(~closing)))]
    if closing.any():
        made.append(
            PartFile(**write_segments(folder / f"{CLOSING}-{names}.parquet", segments.filter(closing)))
        )
    return made


def label(unit: ReadUnit, version: int, tag: str) -> str:
    """Return the common part of the names of a unit's files that are rewritten for a version."""
    _, generation, number, *_ = unit.files[0].removesuffix(".parquet").split("-")
    return f"{generation.partition('v')[0]}v{version:03d}-{number}-{tag}"


def corrected(model: Model, unit: ReadUnit) -> tuple[SegmentBatch, BoolArray]:
    """Return a unit's segments, and which of them are points that end a key."""
    table = read_unit(model, unit, model.schema.arrow_schema().names)
    segments = SegmentBatch.from_arrow(table, model.schema, check=False)
    final = np.append(np.diff(segments.key_ranks) != 0, True)[: len(segments)]
    return segments, final & segments.is_point

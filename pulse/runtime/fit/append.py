"""Continue a stored model (``--append``): take over its files, versions, log and tuples.

Files are linked, not copied, where the file system allows it. Correction layers are merged into them: the model is plain again.
Retained older versions stay, with the files that only they need; so do the log of revisions and the tuples.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pulse.core.segment.batch import SegmentBatch
from pulse.operators.fit.key_boundaries import SEGMENTS
from pulse.operators.fit.stitch import PART, UNIT
from pulse.runtime.fit.append_ends import check_append, read_ends
from pulse.store.manifest import ASIDE, FILE, OLD, Manifest, PartFile, manifest_path
from pulse.store.model import CLOSING, Model
from pulse.store.parquet_io import read_parquet
from pulse.store.read_units import ReadUnit, units
from pulse.store.versions.compact import corrected, label
from pulse.store.versions.layers import without_drift
from pulse.store.writers import merge_statistics, write_segments


def ends_of(model: Model) -> pa.Table | None:
    """Return each key's newest tuple in a stored model, and its closing points: the parts that new data continues."""
    check_append(model)
    ends = read_ends(model)
    parts = [] if ends is None else [ends]
    for unit in units(model, shared=False):
        if _is_corrected(model, unit):
            segments, closing = corrected(model, unit)
            points = [pa.Table.from_batches([segments.filter(closing).to_arrow()])]
        else:
            points = [read_parquet(model.file(name)) for name in unit.files if name.startswith(CLOSING)]
        parts += [
            one.append_column(PART, pa.repeat(pa.scalar(SEGMENTS, pa.int8()), len(one))) for one in points
        ]
    if not parts:
        return None
    table = pa.concat_tables([part.select(parts[0].column_names).cast(parts[0].schema) for part in parts])
    return table.append_column(UNIT, pa.repeat(pa.scalar(-1, pa.int64()), table.num_rows))


def _is_corrected(model: Model, unit: ReadUnit) -> bool:
    """Return whether the unit's files alone are not its content: the manifest is stale, or correction layers lie beside them."""
    manifest = model.manifest
    return manifest.stale or any(file.layers for file in manifest.files if file.name in unit.files)


def carry_over(old: Model, new: Manifest, staging: Path) -> Manifest:
    """Merge the manifests of old and new, and link the old files beside the new ones."""
    manifest = old.manifest
    version = manifest.version + 1
    files = _take_files(old, staging, version)
    for path in sorted((old.path / ASIDE).glob("*")) if (old.path / ASIDE).is_dir() else []:
        link(path, staging / ASIDE / path.name)
    for name in manifest.log:
        link(old.path / name, staging / name)
    kept = (*manifest.kept, manifest.version) if manifest.kept else ()
    _take_versions(old, staging, {*kept, manifest.version})
    known = [layer.known for file in manifest.files for layer in file.layers if layer.known is not None]
    change = {"version": version, "at": new.created, "what": "appended", "kept": bool(kept)}
    return replace(
        new,
        files=(*files, *new.files),
        sources=(*manifest.sources, *new.sources),
        counts=add_counts(manifest.counts, new.counts),
        statistics=merge_statistics([manifest.statistics, new.statistics]),
        statements=tuple(dict.fromkeys((*manifest.statements, *new.statements))),
        version=version,
        kept=kept,
        since=max([*known, *([] if manifest.since is None else [manifest.since])], default=None),
        changes=(*manifest.changes, change),
        log=manifest.log,
    )


def _take_files(old: Model, staging: Path, version: int) -> list[PartFile]:
    """Link the segment files, without the closing points, which have gone through the fit."""
    by_name = {file.name: file for file in old.manifest.files}
    files: list[PartFile] = []
    for unit in units(old, shared=False):
        if _is_corrected(old, unit):
            segments, closing = corrected(old, unit)
            path = staging / f"part-{label(unit, version)}.parquet"
            files.append(PartFile(**write_segments(path, segments.filter(~closing))))
            continue
        for name in unit.files:
            if not name.startswith(CLOSING):
                link(old.file(name), staging / name)
                files.append(by_name[name])
    return files


def _take_versions(old: Model, staging: Path, versions: set[int]) -> None:
    """Link older versions, with the files that only they need. The previous version stays for its current readers."""
    for version in sorted(versions):
        path = old.path / FILE if version == old.version else manifest_path(old.path, version)
        link(path, manifest_path(staging, version))
        manifest = Manifest.read(old.path, version)
        for name in sorted({*manifest.names, *([] if manifest.accents is None else [manifest.accents])}):
            if not (staging / name).exists():
                link(old.file(name), staging / (name if name.startswith("_") else f"{OLD}/{name}"))


def void_drifts(files: tuple[PartFile, ...], staging: Path, spec_schema: Any) -> tuple[PartFile, ...]:
    """Remove the drifts from the new files of a model whose drifts are void: they continue unknown integrals."""
    rewritten = []
    for file in files:
        table = without_drift(read_parquet(staging / file.name), spec_schema)
        batch = SegmentBatch.from_arrow(table, spec_schema, check=False)
        rewritten.append(PartFile(**write_segments(staging / file.name, batch)))
    return tuple(rewritten)


def link(source: Path, target: Path) -> None:
    """Link a file under another name, or copy it."""
    target.parent.mkdir(exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        target.write_bytes(source.read_bytes())


def add_counts(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Add counts by name, those of parts too; of what is not counted, such as the first late tuple, the earlier one stays."""
    out: dict[str, Any] = {}
    for name in {**a, **b}:
        x, y = a.get(name), b.get(name)
        if isinstance(x, Mapping) and isinstance(y, Mapping):
            out[name] = add_counts(x, y)
        elif isinstance(x, int) and isinstance(y, int):
            out[name] = x + y
        else:
            out[name] = x if x is not None else y
    return out

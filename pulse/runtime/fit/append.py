"""Continue a stored model (``--append``): take over its files, versions, log and tuples, from where each key ends.

Files stay where they are. Correction layers are merged into new ones, so that the newest state is plain again. The log of
revisions and the tuples stay.

A fit writes where each key ends (:mod:`pulse.operators.fit.key_boundaries`) to ``_ends-FFF-NNNNN-….parquet``. A revision that
changes a key's end writes the replacing rows to ``_revised-ends-VVV-NNNNN-….parquet``, which the manifest's entry of that version
names; a key without any tuple left has one row there, of the part :data:`GONE`. The next fit writes all ends anew, so only
revisions since the last one count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray
from pulse.core.arrow_types import one_chunk
from pulse.core.keys import keys_filter, ranks_of_rows
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.operators.fit.key_boundaries import SEGMENTS
from pulse.operators.fit.stitch import PART, UNIT
from pulse.store.errors import MissingFileError, StoreError
from pulse.store.manifest import Manifest, PartFile
from pulse.store.model import CLOSING, ENDS, Model
from pulse.store.parquet_io import read_parquet, read_segments
from pulse.store.read_units import ReadUnit, units
from pulse.store.versions.compact import corrected, label
from pulse.store.versions.layers import without_drift
from pulse.store.versions.writer import RevisionTarget
from pulse.store.writers import merge_statistics, write_segments, write_table

GONE = -1
REVISED, MERGED = "revised", "merged"
FILES = "ends_files"
REVISED_ENDS = "_revised-ends"


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
            points = [
                read_segments(model.file(name), model.schema)
                for name in unit.files
                if name.startswith(CLOSING)
            ]
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


def carry_over(old: Model, new: Manifest, staging: Path, tag: str) -> Manifest:
    """Merge the manifests of old and new."""
    manifest = old.manifest
    version = manifest.version + 1
    files = _take_files(old, staging, version, tag)
    kept = (*manifest.kept, manifest.version) if manifest.kept else ()
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


def superseded(old: Model, new: Manifest) -> set[str]:
    """Return the files of the old model that the new one does not need; the ends of all keys have gone through the fit."""
    ends = old.with_prefix(f"{ENDS}-") + old.with_prefix(f"{REVISED_ENDS}-")
    return (old.manifest.needed - new.needed) | set(ends)


def _take_files(old: Model, staging: Path, version: int, tag: str) -> list[PartFile]:
    """Return the segment files, without the closing points, which have gone through the fit."""
    by_name = {file.name: file for file in old.manifest.files}
    files: list[PartFile] = []
    for unit in units(old, shared=False):
        if _is_corrected(old, unit):
            segments, closing = corrected(old, unit)
            path = staging / f"part-{label(unit, version, tag)}.parquet"
            files.append(PartFile(**write_segments(path, segments.filter(~closing))))
            continue
        files += [by_name[name] for name in unit.files if not name.startswith(CLOSING)]
    return files


def void_drifts(files: tuple[PartFile, ...], staging: Path, spec_schema: Any) -> tuple[PartFile, ...]:
    """Remove the drifts from the new files of a model whose drifts are void: they continue unknown integrals."""
    rewritten = []
    for file in files:
        table = without_drift(read_parquet(staging / file.name), spec_schema)
        batch = SegmentBatch.from_arrow(table, spec_schema, check=False)
        rewritten.append(PartFile(**write_segments(staging / file.name, batch)))
    return tuple(rewritten)


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


# -- ends of keys ---------------------------------------------------------------------------------------------


def read_ends(model: Model, condition: Any = None) -> pa.Table | None:
    """Read the ends of all keys, or of those that meet a condition; None if the model has none."""
    files = [model.file(name) for name in model.with_prefix(f"{ENDS}-")]
    parts = [read_segments(file, model.schema, filters=condition) for file in files]
    rows = pa.concat_tables(parts) if parts else None
    for name in _revised(model):
        later = read_segments(model.file(name), model.schema, filters=condition)
        rows = _overlay(rows, later, model.schema)
    return rows


def check_append(model: Model) -> None:
    """Raise if a fit cannot continue from the model's ends: every file of ends that revisions changed must exist."""
    for name in _revised(model):
        try:
            found = model.file(name).is_file()
        except MissingFileError:
            found = False
        if not found:
            raise StoreError(
                f"{model.path}: --append: {name} is missing, which holds the ends of revised keys; fit the model anew"
            )


def ends_of_keys(model: Model, keys: pa.Table) -> pa.Table:
    """Return the ends of these keys; an empty table if they have none."""
    found = read_ends(model, keys_filter(keys.column_names, [one_chunk(one) for one in keys.columns]))
    if found is None:
        return model.schema.arrow_schema().empty_table().append_column(PART, pa.array([], pa.int8()))
    if not keys.num_columns:
        return found
    return found.filter(pa.array(_of_keys(found, keys, model.schema)))


def over_ends(ends: pa.Table, new: pa.Table, ended: pa.Table, schema: StreamSchema) -> pa.Table:
    """Replace the ends of some keys and remove those of ended keys; without key columns replace all, if there are new ends."""
    new = new.select(ends.column_names).cast(ends.schema)
    names = list(schema.key_names)
    if not names:
        return new if new.num_rows else ends
    keys = pa.concat_tables([new.select(names), ended.select(names)])
    kept = ends.filter(pa.array(~_of_keys(ends, keys, schema)))
    return pa.concat_tables([kept, new])


def write_ends(model: Model, ends: pa.Table, keys: pa.Table, target: RevisionTarget, number: int) -> str:
    """Write the current ends of these keys; return the name of the file."""
    rows = ends
    if model.schema.key:
        gone = keys.filter(pa.array(~_of_keys(keys, rows, model.schema)))
    else:
        gone = pa.table({PART: pa.nulls(0 if rows.num_rows else 1, pa.int8())})
    if gone.num_rows:
        columns = [
            gone.column(field.name).cast(field.type)
            if field.name in model.schema.key_names
            else pa.repeat(pa.scalar(GONE, field.type), gone.num_rows)
            if field.name == PART
            else pa.nulls(gone.num_rows, field.type)
            for field in rows.schema
        ]
        rows = pa.concat_tables([rows, pa.table(columns, schema=rows.schema)])
    name = f"{REVISED_ENDS}-{target.version:03d}-{number:05d}-{target.tag}.parquet"
    write_table(Path(model.path) / name, rows)
    return name


def _since_fit(model: Model) -> list[dict[str, Any]]:
    """Return the revisions since the last fit or append."""
    found: list[dict[str, Any]] = []
    for change in model.manifest.changes:
        if change.get("what") == REVISED:
            found.append(change)
        elif change.get("what") != MERGED:
            found.clear()
    return found


def _revised(model: Model) -> Iterator[str]:
    for change in _since_fit(model):
        yield from change["counts"].get(FILES, ())


def _overlay(rows: pa.Table | None, new: pa.Table, schema: StreamSchema) -> pa.Table:
    there = new.filter(pa.array(new.column(PART).to_numpy() != GONE))
    if rows is None:
        return there
    if not schema.key:
        return there if new.num_rows else rows
    kept = rows.filter(pa.array(~_of_keys(rows, new, schema)))
    return pa.concat_tables([kept, there.select(rows.column_names).cast(rows.schema)])


def _of_keys(rows: pa.Table, keys: pa.Table, schema: StreamSchema) -> BoolArray:
    """Return which rows have one of the keys."""
    own = keys.select(list(schema.key_names))
    both = pa.concat_tables([rows.select(own.column_names).cast(own.schema), own])
    ranks = ranks_of_rows(both, own.column_names)
    found: BoolArray = np.isin(ranks[: rows.num_rows], ranks[rows.num_rows :])
    return found

"""Store segments that are not fitted to tuples: saved answers, and models made elsewhere.

The model's files are like those of a fit. Its manifest has ``derived`` in place of sources and tuples::

    {"from": "query", "query": "select …", "parameters": {…},
     "inputs": [{"stream": "S", "path": "…", "version": 3, "as_of": null}]}
    {"from": "segments"}

There are no tuples behind such a model, so it is not revised, appended to or read as of an earlier time, but made anew.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.store.draft import drafted
from pulse.store.errors import StoreError
from pulse.store.manifest import Manifest, PartFile
from pulse.store.model import Model
from pulse.store.writers import merge_statistics, statistics_of, write_segments

Part = dict[str, Any]
"""What was written for some keys: the ``file``'s manifest entry, its ``statistics`` and the highest ``degree``."""


@dataclass(frozen=True)
class Target:
    """The destination of a model's files, for workers: the folder, and the tag that their names end in."""

    folder: str
    tag: str


def write_part(target: Target, number: int, segments: SegmentBatch) -> Part:
    """Write the segments of some keys, all of theirs, as one file of the model."""
    path = Path(target.folder) / f"part-000-{number:05d}-{target.tag}.parquet"
    degrees = [int(segments.degrees(name).max(initial=0)) for name in segments.schema.modelled_names]
    return {
        "file": write_segments(path, segments.sort()),
        "statistics": statistics_of(segments) if len(segments) else {},
        "degree": max(degrees),
    }


def store_derived(
    out: str | Path,
    schema: StreamSchema,
    derived: Mapping[str, Any],
    write: Callable[[Target], Iterable[Part]],
    *,
    overwrite: bool = False,
    statements: tuple[str, ...] = (),
) -> Model:
    """Publish a model of the parts that ``write`` makes in the place that it receives; nothing if it raises."""
    with drafted(out, replace=overwrite) as draft:
        target = Target(str(draft.folder), draft.tag)
        parts = list(write(target)) or [write_part(target, 0, _empty(schema))]
        manifest = Manifest(
            schema=schema,
            fit={"error": {}, "drift": {}, "degree": max(part["degree"] for part in parts)},
            sources=(),
            files=tuple(sorted((PartFile(**part["file"]) for part in parts), key=lambda file: file.name)),
            counts={},
            statistics=merge_statistics(part["statistics"] for part in parts),
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            statements=statements,
            derived=dict(derived),
        )
        draft.commit(manifest, "saved", drop=None)
    return Model(out)


def refuse_derived(model: Model, what: str, advice: str) -> None:
    """Raise an error if the model has no tuples behind it, for work that needs them."""
    if model.manifest.derived:
        origin = "an answer" if model.manifest.derived.get("from") == "query" else "segments made elsewhere"
        raise StoreError(
            f"{model.path}: {what}: the model was saved from {origin}, not fitted to tuples; {advice}"
        )


def _empty(schema: StreamSchema) -> SegmentBatch:
    return SegmentBatch.empty(schema, ("certainty",) if schema.certainty else ())

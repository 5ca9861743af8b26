"""Write files of a stored model atomically, and return their manifest entries."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pulse.core.segment.batch import SegmentBatch

TEMPORARY = ".tmp"
ROW_GROUP = 1 << 16  # segments: enough to compress well, few enough to skip by key and time


def write_segments(path: Path, segments: SegmentBatch) -> dict[str, Any]:
    """Write a file of segments; return its manifest entry."""
    write_table(path, pa.Table.from_batches([segments.to_arrow()]))
    starts, stops = segments.ref + segments.lo * 1e6, segments.ref + segments.hi * 1e6
    return {
        "name": path.name,
        "segments": len(segments),
        "points": int(segments.is_point.sum()),
        "keys": len(np.unique(segments.key_ranks)),
        "bytes": path.stat().st_size,
        "start": int(np.floor(starts.min())) if len(segments) else None,
        "end": int(np.ceil(stops.max())) if len(segments) else None,
    }


def statistics_of(segments: SegmentBatch) -> dict[str, Any]:
    """Return statistics of segments for the manifest: the worst certificates, and the longest reach of a segment."""
    worst = {}
    for name in segments.schema.modelled_names:
        drift = segments.drift(name)
        worst[name] = {
            "worst_err": float(segments.err(name).max()),
            "worst_drift": None if drift.mask.all() else float(drift.max()),
        }
    longest = max(
        float(segments.hi.max()), -float(segments.lo.min())
    )  # an answer's range may begin before its reference
    return {"attributes": worst, "longest_microseconds": int(np.ceil(longest * 1e6))}


def merge_statistics(given: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Merge statistics, keeping the worst."""
    total: dict[str, Any] = {"attributes": {}, "longest_microseconds": 0}
    for one in given:
        if not one:
            continue
        total["longest_microseconds"] = max(total["longest_microseconds"], one["longest_microseconds"])
        for name, worst in one["attributes"].items():
            so_far = total["attributes"].setdefault(name, dict(worst))
            for what, value in worst.items():
                if value is not None:
                    so_far[what] = value if so_far[what] is None else max(so_far[what], value)
    return total


def write_table(path: Path, table: pa.Table) -> None:
    """Write a file atomically: a task that is retried, or runs twice at the same time, does no harm."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    try:
        pq.write_table(
            table,
            temporary,
            row_group_size=ROW_GROUP,
            compression="zstd",
            use_dictionary=_dictionaries(table),
            write_page_checksum=True,
        )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _dictionaries(table: pa.Table) -> list[str]:
    """Return the columns worth a dictionary: not floats that hardly repeat, but those of a few significant bits."""
    short = {f"{name}_err2" for name in table.schema.names}
    return [
        f.name
        for f in table.schema
        if f.name in short
        or not (pa.types.is_floating(f.type) or pa.types.is_list(f.type) or f.name == "ref")
    ]


def temporary_beside(path: Path) -> Path:
    """Return a name that no other process uses: on a cluster two machines may have the same process number."""
    return path.with_name(f"_{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}{TEMPORARY}")


def write_text(path: Path, text: str) -> None:
    """Write a small file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)

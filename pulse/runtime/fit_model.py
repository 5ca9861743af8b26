"""From an order to a stored model: what all drivers of a fit share. They differ only in who runs the workers' functions."""

from __future__ import annotations

import datetime
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pulse.core import SegmentBatch
from pulse.operators.fit_ends import SEGMENTS
from pulse.operators.fit_spec import FitSpec
from pulse.operators.stitch import PART, UNIT
from pulse.runtime.fit_work import PROGRESS, FitJob, Written
from pulse.store.errors import StoreError
from pulse.store.files import merge_statistics, write_segments
from pulse.store.manifest import FILE, Manifest, PartFile, Source
from pulse.store.model import ASIDE, CLOSING, ENDS, Model
from pulse.store.publish import staged

Progress = Callable[[int, int], None]  # units done, rows read
Job = TypeVar("Job", bound=FitJob)


@dataclass(frozen=True)
class FitOutcome:
    """What the workers wrote, added up; ``missed``: joints that could not keep an asked bound."""

    files: tuple[PartFile, ...]
    statistics: dict[str, Any]
    missed: int = 0


def run_fit(job: Job, attempt: Callable[[Job], Iterable[pa.RecordBatch]]) -> FitOutcome:
    """Run the workers; once more where some units held tuples that an earlier unit had made late."""
    written, late = _collect(attempt(job), job)
    if late:
        _clear(Path(job.staging))
        written, late = _collect(attempt(replace(job, watermarks=late)), job)
        if late:
            raise StoreError(
                "fit: units still overlap after their late tuples were set aside; this is a bug, please report it"
            )
    files = sorted((PartFile(**file) for one in written for file in one.files), key=lambda file: file.name)
    statistics = merge_statistics(one.statistics for one in written)
    return FitOutcome(tuple(files), statistics, sum(one.missed for one in written))


Late = dict[int, dict[tuple[object, ...], int]]  # by unit and key: the watermark


def _collect(batches: Iterable[pa.RecordBatch], job: FitJob) -> tuple[list[Written], Late]:
    written: list[Written] = []
    late: Late = {}
    for row in (row for batch in batches for row in batch.to_pylist()):
        if row["_written"] is None:
            key = tuple(row[name] for name in job.spec.schema.key_names)
            late.setdefault(row[UNIT], {})[key] = row["_watermark"]
        else:
            written.append(Written(**json.loads(row["_written"])))
    return written, late


def _clear(staging: Path) -> None:
    for path in staging.rglob("*"):
        if path.is_file():
            path.unlink()


def make_model(
    out: str | Path,
    spec: FitSpec,
    sources: tuple[Source, ...],
    run: Callable[[Path, int, pa.Table | None], FitOutcome],
    *,
    overwrite: bool = False,
    append: bool = False,
    statements: Iterable[str] = (),
    progress: Progress | None = None,
) -> Model:
    """Stage, run, write the manifest, publish."""
    old = Model(out) if append and (Path(out) / FILE).is_file() else None
    if old is not None:
        _check_same(old.manifest, spec)
    with staged(out, replace=overwrite or append) as staging:
        generation = 0 if old is None else old.manifest.fits
        with _watched(staging, progress):
            outcome = run(staging, generation, None if old is None else ends_of(old))
        counts = read_counts(staging)
        counts["missed"] += outcome.missed
        for file in (staging / PROGRESS).glob("*") if (staging / PROGRESS).is_dir() else ():
            file.unlink()
        if (staging / PROGRESS).is_dir():
            (staging / PROGRESS).rmdir()
        if not sources or any(source.rows < 0 for source in sources):
            sources = tuple(replace(source, rows=max(source.rows, 0)) for source in sources)
        manifest = Manifest(
            schema=spec.schema,
            fit=spec.to_json(),
            sources=sources,
            files=outcome.files or (_no_segments(staging, spec, generation),),
            counts=counts,
            statistics=outcome.statistics,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            statements=tuple(statements),
            fits=generation + 1,
        )
        if old is not None:
            manifest = _carry_over(old, manifest, staging)
        (staging / FILE).write_text(manifest.to_json(), encoding="utf-8")
    return Model(out)


def read_counts(staging: Path) -> dict[str, Any]:
    """What the units noted, added up."""
    total: dict[str, Any] = {
        "tuples": 0,
        "late": 0,
        "not_finite": 0,
        "superseded": 0,
        "missed": 0,
        "truncated": 0,
    }
    first, removed, remarked, rows = None, dict[str, int](), dict[str, int](), 0
    for file in sorted((staging / PROGRESS).glob("unit-*.json")):
        note = json.loads(file.read_text(encoding="utf-8"))
        for name in total:
            total[name] += note[name]
        first = first or note["first_not_finite"]
        rows += note["read"]["rows"]
        for whole, part in ((removed, note["read"]["removed"]), (remarked, note["read"]["remarked"])):
            for why, n in part.items():
                whole[why] = whole.get(why, 0) + n
    return {
        **total,
        "first_not_finite": first,
        "rows_read": rows or total["tuples"],
        "removed": removed,
        "remarked": remarked,
    }


def _no_segments(staging: Path, spec: FitSpec, generation: int) -> PartFile:
    """A file without rows, so that an empty model reads as an empty table."""
    name = f"part-{generation:03d}-00000.parquet"
    return PartFile(**write_segments(staging / name, SegmentBatch.empty(spec.schema)))


def ends_of(model: Model) -> pa.Table | None:
    """Each key's newest tuple in a stored model, and the points that end its keys: the parts that new data goes on from."""
    parts = [pq.read_table(file) for file in sorted(model.path.glob(f"{ENDS}-*.parquet"))]
    for file in model.manifest.files:
        if file.name.startswith(CLOSING):
            points = pq.read_table(model.path / file.name)
            parts.append(points.append_column(PART, pa.repeat(pa.scalar(SEGMENTS, pa.int8()), len(points))))
    if not parts:
        return None
    table = pa.concat_tables(parts)
    return table.append_column(UNIT, pa.repeat(pa.scalar(-1, pa.int64()), table.num_rows))


def _check_same(manifest: Manifest, spec: FitSpec) -> None:
    if manifest.schema != spec.schema:
        raise StoreError(
            f"--append: the model is of {manifest.schema!r}, the new data of {spec.schema!r}; "
            "fit it into a model of its own"
        )
    if manifest.fit != spec.to_json():
        raise StoreError(
            f"--append: the model was fitted with {manifest.fit}, this fit asks for {spec.to_json()}; "
            "ask for the same"
        )


def _carry_over(old: Model, new: Manifest, staging: Path) -> Manifest:
    """The old files beside the new: linked, not copied, where the file system can."""
    kept = [file for file in old.manifest.files if not file.name.startswith(CLOSING)]
    for file in kept:
        _link(old.path / file.name, staging / file.name)
    for path in sorted((old.path / ASIDE).glob("*")) if (old.path / ASIDE).is_dir() else []:
        (staging / ASIDE).mkdir(exist_ok=True)
        _link(path, staging / ASIDE / path.name)
    counts = _add(old.manifest.counts, new.counts)
    statistics = merge_statistics([old.manifest.statistics, new.statistics])
    return replace(
        new,
        files=(*kept, *new.files),
        sources=(*old.manifest.sources, *new.sources),
        counts=counts,
        statistics=statistics,
        statements=tuple(dict.fromkeys((*old.manifest.statements, *new.statements))),
    )


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        target.write_bytes(source.read_bytes())


def _add(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in {**a, **b}:
        x, y = a.get(name), b.get(name)
        if isinstance(x, Mapping) and isinstance(y, Mapping):
            out[name] = _add(x, y)
        elif isinstance(x, int) and isinstance(y, int):
            out[name] = x + y
        else:
            out[name] = x if x is not None else y
    return out


@contextmanager
def _watched(staging: Path, progress: Progress | None) -> Iterator[None]:
    """Tell how far the workers are, from what they leave in the staging folder."""
    if progress is None:
        yield
        return
    done = threading.Event()
    seen: dict[str, int] = {}

    def look() -> None:
        for file in (staging / PROGRESS).glob("unit-*.json"):
            if file.name not in seen:
                seen[file.name] = json.loads(file.read_text(encoding="utf-8"))["tuples"]
        progress(len(seen), sum(seen.values()))

    def watch() -> None:
        while not done.wait(0.25):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    look()

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

from pulse.operators.fit_spec import FitSpec
from pulse.operators.stitch import UNIT
from pulse.runtime.fit_work import PROGRESS, FitJob, merge_statistics
from pulse.store.errors import StoreError
from pulse.store.manifest import FILE, Manifest, PartFile, Source
from pulse.store.model import ASIDE, ENDS, Model
from pulse.store.publish import staged

Progress = Callable[[int, int], None]  # units done, rows read
Job = TypeVar("Job", bound=FitJob)


@dataclass(frozen=True)
class FitOutcome:
    """What the workers wrote, added up."""

    files: tuple[PartFile, ...]
    statistics: dict[str, Any]


def run_fit(job: Job, attempt: Callable[[Job], Iterable[pa.RecordBatch]]) -> FitOutcome:
    """Run the workers; once more where some units held tuples that an earlier unit had made late."""
    files, statistics, late = _collect(attempt(job), job)
    if late:
        _clear(Path(job.staging))
        files, statistics, late = _collect(attempt(replace(job, watermarks=late)), job)
        if late:
            raise StoreError(
                "fit: units still overlap after their late tuples were set aside; this is a bug, please report it"
            )
    return FitOutcome(tuple(sorted(files, key=lambda file: file.name)), merge_statistics(statistics))


Late = dict[int, dict[tuple[object, ...], int]]  # by unit and key: the watermark


def _collect(
    batches: Iterable[pa.RecordBatch], job: FitJob
) -> tuple[list[PartFile], list[dict[str, Any]], Late]:
    files, statistics = [], []
    late: Late = {}
    for row in (row for batch in batches for row in batch.to_pylist()):
        if row["_written"] is None:
            key = tuple(row[name] for name in job.spec.schema.key_names)
            late.setdefault(row[UNIT], {})[key] = row["_watermark"]
        else:
            written = json.loads(row["_written"])
            statistics.append(written["statistics"])
            if written["file"] is not None:
                files.append(PartFile(**written["file"]))
    return files, statistics, late


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
    with staged(out, replace=overwrite or old is not None) as staging:
        generation = (
            0 if old is None else 1 + max((int(f.name.split("-")[1]) for f in old.manifest.files), default=0)
        )
        with _watched(staging, progress):
            outcome = run(staging, generation, None if old is None else ends_of(old))
        counts = read_counts(staging)
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
            files=outcome.files,
            counts=counts,
            statistics=outcome.statistics,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            statements=tuple(statements),
        )
        if old is not None:
            manifest = _carry_over(old, manifest, staging)
        (staging / FILE).write_text(manifest.to_json(), encoding="utf-8")
    return Model(out)


def read_counts(staging: Path) -> dict[str, Any]:
    """What the units noted, added up."""
    total: dict[str, Any] = {"tuples": 0, "late": 0, "not_finite": 0, "superseded": 0, "truncated": 0}
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


def ends_of(model: Model) -> pa.Table:
    """Each key's newest tuple in a stored model."""
    files = sorted(model.path.glob(f"{ENDS}-*.parquet"))
    return (
        pa.concat_tables([pq.read_table(file) for file in files])
        if files
        else model.schema.arrow_schema().empty_table()
    )


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
    for file in old.manifest.files:
        _link(old.path / file.name, staging / file.name)
    for path in sorted((old.path / ASIDE).glob("*")) if (old.path / ASIDE).is_dir() else []:
        (staging / ASIDE).mkdir(exist_ok=True)
        _link(path, staging / ASIDE / path.name)
    counts = _add(old.manifest.counts, new.counts)
    statistics = merge_statistics([old.manifest.statistics, new.statistics])
    return replace(
        new,
        files=(*old.manifest.files, *new.files),
        sources=(*old.manifest.sources, *new.sources),
        counts=counts,
        statistics=statistics,
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

"""Run a fit from a request to a stored model: the steps that all drivers share. They differ only in who runs the workers'
functions.
"""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from pulse.core.segment.batch import SegmentBatch
from pulse.datasets.filters.row_filter import RowFilter
from pulse.operators.fit.spec import FitSpec
from pulse.operators.fit.stitch import UNIT
from pulse.runtime.fit.append import add_counts, carry_over, ends_of, superseded, void_drifts
from pulse.runtime.fit.rejects import REFUSE, check_late
from pulse.runtime.fit.retention import Keep, history_of, keeps
from pulse.runtime.fit.worker import PROGRESS, FitJob, Written
from pulse.runtime.spark.progress import polled
from pulse.store.accent_log import write_log
from pulse.store.derived import refuse_derived
from pulse.store.draft import OVERWRITTEN, Draft, drafted
from pulse.store.errors import ConflictError, HeldAlreadyError, StoreError
from pulse.store.manifest import Manifest, PartFile, Source
from pulse.store.model import TUPLES, Model
from pulse.store.model_ref import ModelRef
from pulse.store.plain_reading import is_guard
from pulse.store.tuples.source_files import check_new, source_entry
from pulse.store.writers import merge_statistics, write_segments
from pulse.stream.accents.log import AccentLog

_log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]  # units done, rows read
Job = TypeVar("Job", bound=FitJob)


@dataclass(frozen=True)
class FitOutcome:
    """The sum of what the workers wrote; ``missed`` and ``superseded`` are counted by stitching, beside the units' own counts."""

    files: tuple[PartFile, ...]
    statistics: dict[str, Any]
    missed: int = 0
    superseded: int = 0


def run_fit(job: Job, attempt: Callable[[Job], Iterable[pa.RecordBatch]]) -> FitOutcome:
    """Run the workers; run them once more if some units held tuples that an earlier unit had made late."""
    written, late = _collect(attempt(job), job)
    if late:
        _clear(job)
        written, late = _collect(attempt(replace(job, watermarks=late)), job)
        if late:
            raise StoreError(
                "fit: units still overlap after their late tuples were set aside; this is a bug, please report it"
            )
    files = sorted((PartFile(**file) for one in written for file in one.files), key=lambda file: file.name)
    statistics = merge_statistics(one.statistics for one in written)
    missed, superseded = sum(one.missed for one in written), sum(one.superseded for one in written)
    return FitOutcome(tuple(files), statistics, missed, superseded)


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


def _clear(job: FitJob) -> None:
    """Remove what the first attempt wrote."""
    folder = Path(job.staging)
    for path in folder.rglob("*"):
        if path.is_file() and job.tag in str(path.relative_to(folder)) and not is_guard(path.name):
            path.unlink()


@dataclass(frozen=True)
class Provenance:
    """The origin of the tuples, for the manifest.

    ``source``: where tuples that are not kept can be read again (:func:`pulse.store.tuples.source_files.source_entry`).
    ``accents`` are those of all the data, including what the model held before. ``where`` is the
    filter of their rows.
    """

    sources: tuple[Source, ...]
    source: Mapping[str, Any] = field(default_factory=lambda: source_entry(None, ()))
    statements: tuple[str, ...] = ()
    accents: AccentLog | None = None
    where: RowFilter | None = None


@dataclass(frozen=True)
class Staging:
    """The folder that workers write to, the tag of their files, and the newest tuple of each key, which they continue from."""

    staging: Path
    tag: str
    generation: int
    ends: pa.Table | None
    keep_tuples: bool


@dataclass(frozen=True)
class FitOptions:
    """What becomes of a model that is there already, of its tuples and late ones, and who receives counts and progress.

    Data appended to a model that keeps its tuples is kept as well, unless ``keep_tuples`` is given. ``on_counts`` receives
    the counts of this fit. ``seen`` is the commit that the request for an append was made for; None: any.
    """

    overwrite: bool = False
    append: bool = False
    keep_tuples: Keep = None
    late: str = REFUSE
    seen: int | None = None
    on_counts: Callable[[Mapping[str, Any], FitSpec], None] | None = None
    progress: Progress | None = None


def make_model(
    out: str | Path,
    spec: FitSpec,
    origin: Provenance,
    run: Callable[[Staging], FitOutcome],
    options: FitOptions = FitOptions(),
) -> Model:
    """Stage, run, write the manifest, publish; publish nothing if too many tuples are late.

    Files that a model already holds are not appended again: a warning names them and the model stays as it is.
    """
    try:
        return _made(out, spec, origin, run, options)
    except HeldAlreadyError as e:
        if not e.whole:
            raise
        _log.warning("%s", e)
        return Model(out)


def _made(
    out: str | Path,
    spec: FitSpec,
    origin: Provenance,
    run: Callable[[Staging], FitOutcome],
    options: FitOptions,
) -> Model:
    keep_tuples = options.keep_tuples
    with drafted(out, replace=options.overwrite or options.append) as draft:
        old = _appended_to(draft, options)
        if old is not None:
            refuse_derived(old, "--append", "fit the tuples into a model of their own")
            _check_same(old.manifest, spec)
            _check_filter(old.manifest, origin.where)
            check_new(out, old.manifest.history, origin.source)
            keep_tuples = old.manifest.history.get("keep") if keep_tuples is None else keep_tuples
        generation = 0 if old is None else old.manifest.fits
        folder, progress = draft.folder, draft.folder / f"{PROGRESS}-{draft.tag}"
        with _watched(progress, options.progress):
            ends = None if old is None else ends_of(old)
            outcome = run(Staging(folder, draft.tag, generation, ends, keeps(keep_tuples)))
        counts = read_counts(progress)
        check_late(counts, options.late)
        counts["missed"] += outcome.missed
        counts["superseded"] += outcome.superseded
        accents = origin.accents
        manifest = Manifest(
            schema=spec.schema,
            fit=spec.to_json(),
            sources=tuple(replace(one, rows=max(one.rows, 0)) for one in origin.sources),
            files=outcome.files or (_no_segments(draft, spec, generation),),
            counts=counts,
            statistics=outcome.statistics,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            statements=origin.statements,
            fits=generation + 1,
            history=history_of(progress, keep_tuples, dict(origin.source), old),
            accents=None if accents is None else write_log(folder, generation, draft.tag, accents),
            where=None if origin.where is None else origin.where.to_json(),
        )
        if old is not None:
            if old.manifest.drift_is_void:
                manifest = replace(manifest, files=void_drifts(manifest.files, folder, spec.schema))
            manifest = carry_over(old, manifest, folder, draft.tag)
        _remove_expired(draft, manifest)
        if old is not None:
            draft.commit(manifest, "appended", drop=superseded(old, manifest))
        else:
            draft.commit(manifest, "fitted" if draft.base is None else OVERWRITTEN, drop=None)
    if options.on_counts is not None:
        options.on_counts(counts, spec)
    return Model(out)


def _appended_to(draft: Draft, options: FitOptions) -> Model | None:
    """Return the model that is appended to; None for a new one."""
    base = draft.base
    if base is None or not options.append:
        return None
    if options.seen not in (None, base.commit):
        raise ConflictError(
            f"{draft.folder}: another process has just changed it; run it again", (base.reason,)
        )
    return Model(ModelRef(str(draft.folder), base.version, commit=base.commit))


def _remove_expired(draft: Draft, manifest: Manifest) -> None:
    """Remove the tuples that units wrote and that the retention leaves out."""
    for path in draft.folder.glob(f"{TUPLES}-*-{draft.tag}.parquet"):
        if path.name not in manifest.needed:
            path.unlink()


def read_counts(progress: Path) -> dict[str, Any]:
    """Sum the counts that the units wrote, each in a note in this folder."""
    counts: dict[str, Any] = dict.fromkeys(
        ("tuples", "late", "not_finite", "superseded", "missed", "truncated"), 0
    )
    counts |= dict.fromkeys(("first_late", "first_not_finite"))
    counts |= {"filtered": 0, "rows_read": 0, "removed": {}, "remarked": {}, "changing": {}, "lacking": {}}
    for file in sorted(progress.glob("unit-*.json")):
        note = json.loads(file.read_text(encoding="utf-8"))
        read = note["read"]
        note |= {"rows_read": read["rows"], "removed": read["removed"], "remarked": read["remarked"]}
        note["filtered"] = read["filtered"]
        counts = add_counts(counts, {name: note[name] for name in counts})
    left = sum(counts["removed"].values()) + counts["filtered"]
    counts["rows_read"] = counts["rows_read"] or counts["tuples"] + left
    return counts


def _no_segments(draft: Draft, spec: FitSpec, generation: int) -> PartFile:
    """Write a file without rows, so that an empty model reads as an empty table."""
    name = f"part-{generation:03d}-00000-{draft.tag}.parquet"
    return PartFile(**write_segments(draft.folder / name, SegmentBatch.empty(spec.schema)))


def _check_same(manifest: Manifest, spec: FitSpec) -> None:
    if manifest.schema != spec.schema:
        raise StoreError(
            f"--append: the model is of {manifest.schema!r}, the new data of {spec.schema!r}; "
            "fit it into a model of its own"
        )
    if manifest.fit != spec.to_json():
        raise StoreError(
            f"--append: the model was fitted with {manifest.fit}, this fit uses {spec.to_json()}; "
            "use the same options"
        )


def _check_filter(manifest: Manifest, where: RowFilter | None) -> None:
    """Check that rows to append are filtered as those of the model were."""
    held = None if manifest.where is None else RowFilter.from_json(manifest.where)
    if held is None and where is None:
        return
    if held is None or where is None or not held.is_same(where):
        then, now = ("without --where" if one is None else f"--where {one.text!r}" for one in (held, where))
        raise StoreError(
            f"--append: the model was fitted {then}, the new data is {now}; leave --where out to filter as before, or fit the "
            "data into a model of its own"
        )


@contextmanager
def _watched(notes: Path, progress: Progress | None) -> Iterator[None]:
    """Report the workers' progress, read from the notes that they write in a folder."""
    if progress is None:
        yield
        return
    seen: dict[str, int] = {}

    def look() -> None:
        for file in notes.glob("unit-*.json"):
            if file.name not in seen:
                seen[file.name] = json.loads(file.read_text(encoding="utf-8"))["tuples"]
        progress(len(seen), sum(seen.values()))

    with polled(look):
        yield
    look()

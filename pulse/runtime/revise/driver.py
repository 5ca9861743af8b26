"""Revise a stored model in place and atomically, in this process or on Spark (semantics 7.1, 7.2).

::

    revisions ──by key──> files of the model that hold it ──one task each──> layers, logs, aside ──> manifest of the next version
       the driver                  revise.task                  by the workers, in the folder          by the driver, one commit

Until the commit readers see the old version; `pulse vacuum` removes what a killed revision leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.components import connected
from pulse.core.keys import key_texts
from pulse.core.time import parse_duration
from pulse.datasets.recorded import Reports
from pulse.operators.fit.spec import FitSpec
from pulse.runtime.execution.local_driver import in_threads
from pulse.runtime.fit.append import FILES
from pulse.runtime.revise.task import Done, ReviseJob, Task, homes, reason_kind, revise_units, set_aside
from pulse.store.derived import refuse_derived
from pulse.store.errors import StoreError
from pulse.store.manifest import ASIDE
from pulse.store.model import Model
from pulse.store.read_units import ReadUnit, units
from pulse.store.tuples.tuple_units import TupleUnits
from pulse.store.versions.writer import RevisionTarget, RevisionWriter, begin_revision, rehearse_revision
from pulse.store.writers import write_table
from pulse.stream.revisions import REASON, Revisions, with_reason

if TYPE_CHECKING:
    from pulse.runtime.spark.session import SparkSession

Progress = Callable[[int, int], None]
COUNTS = (
    "revisions",
    "inserted",
    "deleted",
    "replaced",
    "absorbed",
    "patched",
    "refitted",
    "segments_old",
    "segments_new",
    "missed",
    "repeated",
    "aside",
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a revision. ``model``: at the resulting version; ``where``: the folder of rows set aside, if any."""

    model: Model
    counts: dict[str, int]
    reasons: dict[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    dry: bool = False
    before: int = 0

    @property
    def version(self) -> int:
        """Return the version that the revision made, or the current one if it made none."""
        return self.model.version

    @property
    def where(self) -> Path | None:
        """Return the folder of revisions set aside."""
        return self.model.path / ASIDE if self.counts["aside"] and not self.dry else None


def revise(
    model: Model,
    revisions: Revisions,
    *,
    aside: pa.Table | None = None,
    keep: bool = False,
    dry: bool = False,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Correct a stored model by revisions of its tuples.

    Insertions that equal a recorded tuple are counted as repeated; those of :class:`Reports` are set aside. If no revision
    applies, no version is made. In a stream with accents, every row is in the units in force at its own time. ``aside`` are rows
    that a reader could not turn into revisions, stored with the other rejected ones; without ``spark`` the tasks run in this
    process; the other options are those of :meth:`pulse.Session.revise`.
    """
    refuse_derived(model, "revise", "revise the models it was made from, and make it anew")
    if revisions.schema != model.schema:
        raise StoreError(
            f"{model.path}: expected revisions with the model's schema {model.schema!r}, got {revisions.schema!r}"
        )
    units_of = TupleUnits(model.schema, model.accents)
    units_of.check(str(model.path))
    begun = rehearse_revision(model) if dry else begin_revision(model)
    with begun as writer:
        draft = _in_memory if dry else _drafts(model.path, writer.target)
        once = isinstance(revisions, Reports)
        revisions, base, refused = _to_base_units(revisions, units_of)
        job = ReviseJob(
            target=writer.target,
            spec=spec_of(model),
            applied=writer.applied,
            keep=keep,
            dry=dry,
            once=once,
            tasks=_tasks(model, revisions, base, draft),
        )
        done = list(_run(job, spark, progress))
        if refused.num_rows:
            done.append(set_aside(job, refused, len(done)))
        return _finish(writer, job, done, aside)


def _to_base_units(revisions: Revisions, units_of: TupleUnits) -> tuple[Revisions, Revisions, pa.Table]:
    """Return revisions as given and in the units of the stream's start, and those set aside since accents leave them no value."""
    base, reasons = units_of.sifted(revisions.table)
    if not reasons:
        return revisions, Revisions(revisions.schema, base), with_reason(base.slice(0, 0), [])
    rows = np.array(sorted(reasons))
    bad = np.isin(revisions.old_rows, rows) | np.isin(revisions.new_rows, rows)
    given, own = (one.take(np.flatnonzero(~bad)) for one in (revisions, Revisions(revisions.schema, base)))
    texts = []
    for old, new in zip(revisions.old_rows[bad].tolist(), revisions.new_rows[bad].tolist(), strict=True):
        why = reasons.get(old) or reasons[new]
        texts += [why] * ((old >= 0) + (new >= 0))
    return given, own, with_reason(revisions.take(np.flatnonzero(bad)).table, texts)


def _run(job: ReviseJob, spark: SparkSession | None, progress: Progress | None) -> Iterable[Done]:
    numbers = list(range(len(job.tasks)))
    if spark is None or not numbers:
        return in_threads(lambda number: [revise_units(job, number)], numbers, progress)
    from pulse.runtime.revise.spark_driver import run

    return run(spark, job, progress)


def _finish(writer: RevisionWriter, job: ReviseJob, done: list[Done], aside: pa.Table | None) -> Outcome:
    """Add up the tasks' figures, and commit the new version."""
    model = writer.model
    counts = Counter(dict.fromkeys(COUNTS, 0))
    reasons: Counter[str] = Counter()
    examples: list[str] = []
    for one in done:
        counts.update(one.counts)
        reasons.update(one.reasons)
        examples += one.examples
    if aside is not None and aside.num_rows:
        texts = aside.column(REASON).to_pylist()
        counts.update({"revisions": len(texts), "aside": len(texts)})
        reasons.update(reason_kind(text) for text in texts)
        examples += list(dict.fromkeys(texts))[:3]
    outcome = Outcome(
        model,
        dict(counts),
        dict(reasons),
        examples=tuple(dict.fromkeys(examples))[:5],
        dry=job.dry,
        before=model.version,
    )
    if job.dry:
        return outcome
    if aside is not None and aside.num_rows:
        writer.target.aside(aside, len(done))
    if not any(one.log for one in done):
        return replace(outcome, model=writer.stand())
    for one in done:
        for layer in one.facts():
            writer.add(layer)
        if one.log is not None:
            writer.add_log(one.log)
    facts: dict[str, Any] = {**counts, "reasons": dict(reasons)}
    if job.once:
        facts["late"] = counts["inserted"]
    facts[FILES] = [one.ends for one in done if one.ends is not None]
    return replace(outcome, model=writer.commit(facts, keep=job.keep, tuples=sum(one.tuples for one in done)))


def spec_of(model: Model) -> FitSpec:
    """Return the specification that the model was fitted with."""
    fit = model.manifest.fit
    if model.schema.points:
        return FitSpec.of(model.schema, nonfinite=fit["nonfinite"])
    return FitSpec.of(
        model.schema,
        error=fit["error"],
        drift=fit["drift"],
        degree=fit["degree"],
        max_gap=None if fit["max_gap"] is None else parse_duration(fit["max_gap"]),
        nonfinite=fit["nonfinite"],
        max_speed=fit.get("max_speed"),
    )


Draft = Callable[[int, pa.Table], str | pa.Table]


def _in_memory(number: int, table: pa.Table) -> pa.Table:
    return table  # a dry run writes no file


def _drafts(folder: Path, target: RevisionTarget) -> Draft:
    """Return a function that writes draft files into the model's folder, which are removed at the writer's end."""

    def write(number: int, table: pa.Table) -> str:
        path = folder / f"_draft-{target.version:03d}-{number:05d}-{target.tag}.parquet"
        write_table(path, table)
        return path.name

    return write


def _tasks(model: Model, revisions: Revisions, base: Revisions, draft: Draft) -> tuple[Task, ...]:
    """Make a task per set of touched units, joining units between which a revision moves a key; each with its revisions as given,
    in a file."""
    if not len(revisions):
        return ()
    found = units(model, shared=False)
    unit_of = _unit_of_rows(model, found, base)
    old, new = revisions.old_rows, revisions.new_rows
    first = unit_of[np.where(old >= 0, old, new)]
    second = unit_of[np.where(new >= 0, new, old)]
    group = connected(first, second, len(found))
    tasks = []
    for number, one in enumerate(np.unique(group[first])):
        elements = np.flatnonzero(group[first] == one)
        own = np.unique(np.concatenate([first[elements], second[elements]]))
        name = draft(number, revisions.take(elements).table)
        tasks.append(Task(number, tuple(found[i] for i in own), name))
    return tuple(tasks)


def _unit_of_rows(model: Model, found: tuple[ReadUnit, ...], revisions: Revisions) -> IntArray:
    """Return, per row of the revisions, the unit that holds its key; new keys are distributed by hash."""
    if len(found) == 1:
        return np.zeros(revisions.table.num_rows, dtype=np.int64)
    home = homes(model, found, revisions)
    texts = key_texts(list(revisions.keys), revisions.table.num_rows).to_pylist()
    return np.array([home.get(text, crc32(text.encode()) % len(found)) for text in texts], dtype=np.int64)

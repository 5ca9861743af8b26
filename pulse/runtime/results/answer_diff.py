"""Return the changes of a query's results between two versions of its models: lazily, as segments or tuples with a ``kind``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pulse.operators.data.relation import Relation
from pulse.operators.node import PlanError
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.accents.query_units import AS_STORED, Evolution
from pulse.runtime.execution import local_driver
from pulse.runtime.execution.local_driver import Progress
from pulse.runtime.incremental.version_diff import VersionDiff, compared_models, prepare_revised
from pulse.runtime.incremental.version_diff_modes import (
    as_window,
    changes,
    sum_reports,
    undone_results,
    window_of,
)
from pulse.runtime.incremental.view import MODES, Proliferation
from pulse.runtime.io.table_writer import check, write_batches, write_frame
from pulse.runtime.results.lazy_table import LazyTable, first_rows
from pulse.runtime.results.notes import notes_of
from pulse.store.model_ref import ModelRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class RevisedAnswer(LazyTable):
    """The lazy result of :meth:`pulse.Session.revised`: nothing is computed until a method needs rows.

    The columns are those of the answer, and ``kind``: ``-D`` for a removed result, ``+I`` for a new one, ``-U`` directly followed
    by ``+U`` for a changed one. A segment covers only the range that changed. Old and new results are in the units in force at
    their instants.

    Parameters
    ----------
    query : the query with its parameters bound
    paths : the stored models by stream
    since : a version, versions by stream, or a time: the old results
    version : version of the new results; default the newest
    as_of : time of the new results
    spark : returns the Spark session; None runs in this process
    mode : ``upstream``, ``downstream`` or ``adaptive``
    results : old result segments to patch, a table or a Parquet file; only in this process
    evolution : accent logs and policies of the streams
    """

    def __init__(
        self,
        query: Query,
        paths: Mapping[str, str | ModelRef],
        since: Any,
        *,
        version: int | None = None,
        as_of: Any = None,
        spark: Callable[[], SparkSession] | None = None,
        mode: str | None = None,
        results: str | pa.Table | None = None,
        evolution: Evolution = AS_STORED,
    ) -> None:
        if mode is not None and mode not in MODES:
            raise PlanError(f"mode: expected one of {', '.join(MODES)}, got {mode!r}")
        if results is not None and mode == "upstream":
            raise PlanError(
                "revisions: upstream mode replays and needs no old results; leave out one of the two"
            )
        if results is not None and spark is not None:
            raise PlanError(
                "revisions: old results at hand are patched in this process; use the engine local, or leave them out"
            )
        self.query = query
        self._paths, self._since, self._spark, self._results = paths, since, spark, results
        self._to = {
            "version": version,
            "as_of": as_of,
            "mode": mode or ("downstream" if results is not None else None),
            "evolution": evolution,
        }
        self._reports: list[Proliferation] = []

    def job(self, *, tuples: bool) -> VersionDiff:
        """Prepare the comparison of the two versions."""
        return prepare_revised(self.query, self._paths, self._since, tuples=tuples, **self._to)

    @property
    def report(self) -> Proliferation | None:
        """Return how the revisions of the last run propagated, in this process with a ``mode``."""
        return sum_reports(self._reports)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the limits of the answer: as of a time, on either side, arrival times are unknown."""
        to = {name: self._to[name] for name in ("version", "as_of")}
        sides = compared_models(self.query, self._paths, self._since, **to)
        found = (notes_of(self.query, {**self._paths, **models}) for models in sides)
        return tuple(dict.fromkeys(note for notes in found for note in notes))

    def tuples(self) -> DataFrame | pa.Table:
        """Return revisions of sampled tuples, window by window, at the query's rate."""
        return self._run(self.job(tuples=True))

    def segments(self) -> DataFrame | pa.Table:
        """Return revisions of result segments."""
        return self._run(self.job(tuples=False))

    def head(self, count: int = 20, *, tuples: bool | None = None) -> tuple[pa.Table, bool]:
        """Return the first rows found, and whether there are more."""
        job = self.job(tuples=self.query.rate is not None if tuples is None else tuples)
        if self._spark is None:
            found: list[pa.RecordBatch] = []
            for batch in self._batches(job):
                found.append(batch)
                if sum(one.num_rows for one in found) > count:
                    break
            table = pa.Table.from_batches(found, schema=job.schema)
        else:
            from pulse.runtime.incremental.version_diff_spark import frame

            table = _collected(frame(self._spark(), job).limit(count + 1))
        shown = table.slice(0, count), table.num_rows > count
        if not shown[1]:
            job.check_end(shown[0])
        return shown

    def to_arrow(self) -> pa.Table:
        """Collect the revisions in this process: of tuples if the query has a rate, else of segments."""
        found = self.tuples() if self.query.rate is not None else self.segments()
        return found if isinstance(found, pa.Table) else _collected(found)

    def write(
        self,
        out: str,
        *,
        tuples: bool | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> int | None:
        """Write the revisions to a Parquet or CSV file, or with Spark to a folder; return the number of rows.

        Parameters
        ----------
        out : name of the file; with Spark a name that ends in ``/`` is a folder
        tuples : tuples (True) or segments (False); default tuples if the query has a rate
        overwrite : replace an existing file
        progress : called with (done, total)
        """
        job = self.job(tuples=self.query.rate is not None if tuples is None else tuples)
        check(out, overwrite=overwrite, schema=job.schema, folders=self._spark is not None)
        rows = self._written(job, out, overwrite, progress)
        job.check_end(out)
        return rows

    def _written(self, job: VersionDiff, out: str, overwrite: bool, progress: Progress | None) -> int | None:
        if self._spark is None:
            return write_batches(self._batches(job, progress), job.schema, out)
        from pulse.runtime.incremental.version_diff_spark import frame
        from pulse.runtime.spark.progress import watched

        made = frame(self._spark(), job)
        with watched(self._spark(), progress) if progress is not None else nullcontext():
            return write_frame(made, out, overwrite=overwrite)

    def __repr__(self) -> str:
        engine = "in process" if self._spark is None else "on Spark"
        until = "".join(f", until {name} {self._to[name]}" for name in ("version", "as_of") if self._to[name])
        since = f"version {self._since}" if isinstance(self._since, int) else self._since
        columns = ", ".join(("kind", *self.query.select))
        return f"RevisedAnswer({' '.join(self.query.text.split())!r}; {columns}; since {since}{until}; {engine}, runs when asked)"

    def _repr_html_(self) -> str:
        return first_rows(self.head, False, repr(self))

    def _run(self, job: VersionDiff) -> DataFrame | pa.Table:
        found: DataFrame | pa.Table
        if self._spark is None:
            found = pa.Table.from_batches(list(self._batches(job)), schema=job.schema)
        else:
            from pulse.runtime.incremental.version_diff_spark import frame

            found = frame(self._spark(), job)
        job.check_end(found)
        return found

    def _batches(self, job: VersionDiff, progress: Progress | None = None) -> Iterator[pa.RecordBatch]:
        """Compute the revisions in this process and yield them piece by piece."""
        old_results = self._old_results(job)
        self._reports = []
        made: Iterator[tuple[pa.Table, Proliferation | None]] = local_driver.in_threads(
            lambda piece: [changes(piece, old_results)], job.pieces(), progress
        )
        for table, report in made:
            self._reports += [] if report is None else [report]
            yield from (batch for batch in table.to_batches() if batch.num_rows)

    def _old_results(self, job: VersionDiff) -> Relation | None:
        """Return the old results that were passed in, as a window."""
        if self._results is None:
            return None
        found = self._results if isinstance(self._results, pa.Table) else _read(self._results)
        plan = optimise(job.query.plan, mirror=False)
        window_of(plan)
        return as_window(undone_results(found, job), plan, job.query.select)


def _read(path: str) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as e:
        why = "there is no such file" if isinstance(e, FileNotFoundError) else f"it is no Parquet file ({e})"
        raise PlanError(
            f"old results: {path}: {why}; give what `pulse query … --segments --out FILE.parquet` wrote before the revisions"
        ) from e


def _collected(frame: DataFrame) -> pa.Table:
    from pulse.runtime.spark.errors import translated

    with translated():
        return frame.toArrow()

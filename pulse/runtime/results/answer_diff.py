"""Return the changes of a query's results between two versions of its models: lazily, as segments or tuples with a ``kind``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pulse.operators.data.relation import Relation
from pulse.operators.node import PlanError
from pulse.operators.relational.scan import scans
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.accents.query_units import AS_STORED, Evolution
from pulse.runtime.execution import local_driver
from pulse.runtime.execution.local_driver import Progress
from pulse.runtime.incremental.proliferation import Proliferation, sum_reports
from pulse.runtime.incremental.version_diff import VersionDiff, compared_models, prepare_revised
from pulse.runtime.incremental.version_diff_modes import (
    as_window,
    changes,
    undone_results,
    window_of,
)
from pulse.runtime.incremental.view import MODES
from pulse.runtime.results.lazy_table import LazyTable
from pulse.runtime.results.notes import notes_of
from pulse.store.derived import refuse_derived
from pulse.store.model import Model
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
        for stream in sorted({scan.stream for scan in scans(query.plan)}):
            model = Model(paths[stream])
            advice = "ask the query it was saved from, or nest that query"
            refuse_derived(model, f"revisions of stream {stream}", advice)
        self.query = query
        self._paths, self._since, self._spark, self._results = paths, since, spark, results
        self._to = {
            "version": version,
            "as_of": as_of,
            "mode": mode or ("downstream" if results is not None else None),
            "evolution": evolution,
        }
        self._reports: list[Proliferation] = []

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

    def _described(self) -> str:
        until = "".join(f", until {name} {self._to[name]}" for name in ("version", "as_of") if self._to[name])
        since = f"version {self._since}" if isinstance(self._since, int) else self._since
        return f"{', '.join(('kind', *self.query.select))}; since {since}{until}"

    def _job(self, *, tuples: bool) -> VersionDiff:
        return prepare_revised(self.query, self._paths, self._since, tuples=tuples, **self._to)

    def _frame(self, spark: SparkSession, job: VersionDiff) -> DataFrame:
        from pulse.runtime.incremental.version_diff_spark import frame

        return frame(spark, job)

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

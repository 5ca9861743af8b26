"""Return the answer to a query: lazily, as segments or as tuples, on Spark or in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulse.plan.accents.query_effects import Accented
from pulse.plan.explain import Explanation, explain
from pulse.plan.query import Query
from pulse.runtime.accents.query_units import AS_STORED, Evolution, follow
from pulse.runtime.execution import local_driver
from pulse.runtime.execution.bound_plan import BoundPlan, at_versions, prepare
from pulse.runtime.execution.local_driver import Progress
from pulse.runtime.io.table_writer import check, write_batches, write_frame
from pulse.runtime.results.lazy_table import LazyTable, first_rows, is_small
from pulse.runtime.results.notes import notes_of
from pulse.store.model import Model
from pulse.store.model_ref import ModelRef

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

    from pulse.runtime.results.answer_diff import RevisedAnswer


_SHOWN_ACCENTS = 20  # per stream, in explain


def degrees(paths: Mapping[str, str | ModelRef]) -> dict[tuple[str, str], int]:
    """Return the polynomial degree of each stream's attributes, for their equation systems."""
    found = {}
    for stream, path in paths.items():
        model = Model(path)
        degree = model.manifest.fit.get("degree")
        for name in model.schema.modelled_names:
            found[stream, name] = degree if isinstance(degree, int) else 1
    return found


class Answer(LazyTable):
    """The lazy result of :meth:`pulse.Session.sql`: nothing is computed until a method needs rows.

    :meth:`tuples` and :meth:`segments` return Spark DataFrames, or Arrow tables if the session's engine is ``local``.

    Parameters
    ----------
    query : the query with its parameters bound
    paths : the stored models by stream
    given : the values of the parameters, for :meth:`explain`
    spark : returns the Spark session; None runs in this process
    lineage : add to each result segment the segments that caused it, by default
    evolution : accent logs and policies of the streams
    """

    def __init__(
        self,
        query: Query,
        paths: Mapping[str, str | ModelRef],
        *,
        given: Mapping[str, Any] | None = None,
        spark: Callable[[], SparkSession] | None = None,
        lineage: bool = False,
        evolution: Evolution = AS_STORED,
    ) -> None:
        self.query = query
        self._given = dict(given or {})
        self._paths, self._spark, self._lineage, self._evolution = paths, spark, lineage, evolution

    def tuples(self) -> DataFrame | pa.Table:
        """Return sampled tuples: time, the selected columns, ``a_err`` for each modelled one, ``certainty`` (semantics 3.8).

        The rate is the query's ``SAMPLE EVERY``, or the advance of its windows; a selective query without either has no rate,
        which is an error here. Of points every tuple is returned, at its own instant.
        """
        return self._run(self._prepared(tuples=True))

    def segments(self, *, lineage: bool | None = None) -> DataFrame | pa.Table:
        """Return result segments: keys, ``ref``, ``lo``, ``hi``, coefficients with ``a_err``, ``certainty``.

        With ``lineage``, also the ids, keys and ranges of the segments that caused each; default as the answer was created.
        """
        wanted = self._lineage if lineage is None else lineage
        return self._run(self._prepared(tuples=False, lineage=wanted))

    def revised(self, since: Any, **options: Any) -> RevisedAnswer:
        """Return the changes of this answer due to corrections since a version or a time; options as in
        :meth:`pulse.Session.revised`.
        """
        from pulse.runtime.results.answer_diff import RevisedAnswer

        return RevisedAnswer(
            self.query, self._paths, since, spark=self._spark, evolution=self._evolution, **options
        )

    def head(self, count: int = 20, *, tuples: bool | None = None) -> tuple[pa.Table, bool]:
        """Return the first rows found, and whether there are more; work stops once they are found.

        Parameters
        ----------
        count : number of rows, default 20
        tuples : tuples (True) or segments (False); default tuples if the query has a rate
        """
        wanted = self.query.rate is not None if tuples is None else tuples
        job = self._prepared(tuples=wanted, lineage=self._lineage and not wanted)
        if self._spark is None:
            found: list[pa.RecordBatch] = []
            for batch in local_driver.batches(job):
                found.append(batch)
                if sum(one.num_rows for one in found) > count:
                    break
            table = pa.Table.from_batches(found, schema=job.schema)
        else:
            from pulse.runtime.execution import spark_driver

            table = self._collected(spark_driver.frame(self._spark(), job).limit(count + 1))
        shown = table.slice(0, count), table.num_rows > count
        if not shown[1]:
            job.accents.check_end(shown[0])
        return shown

    def to_arrow(self) -> pa.Table:
        """Collect the answer in this process: tuples if the query has a rate, else segments."""
        return self._collected(self.tuples() if self.query.rate is not None else self.segments())

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows of :meth:`to_arrow` batch by batch: in this process as they are found, from Spark once all have
        arrived.
        """
        if self._spark is not None:
            return self.to_arrow().to_reader()
        job = self._prepared(
            tuples=self.query.rate is not None, lineage=self._lineage and self.query.rate is None
        )

        def found() -> Iterator[pa.RecordBatch]:
            for batch in local_driver.batches(job):
                yield batch.cast(job.schema) if batch.schema != job.schema else batch
            job.accents.check_end(None)

        return pa.RecordBatchReader.from_batches(job.schema, found())

    def explain(self) -> Explanation:
        """Explain the plan with its parameter values, its equation systems and its shuffles; notebooks show the text as it is."""
        accents = self.accents(_SHOWN_ACCENTS).lines()
        return explain(self.query, degrees(self._paths), accents, given=self._given, notes=self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the limits of the answer: as of a time, arrival times are unknown."""
        return notes_of(self.query, self._paths)

    def accents(self, first: int | None = None) -> Accented:
        """Trace the accents of the streams through the operators (``pulse check``): all, or the first ones of each stream."""
        query, paths = at_versions(self.query, self._paths)
        return follow(query.plan, paths, self._evolution, trace=True, first=first)

    def causes(self, row: int | None = None) -> pa.Table:
        """Return the stored segments that caused one result segment, or all: id, key and range. Collects the segments here."""
        from pulse.validation.lineage_queries import causes

        return causes(self._collected(self.segments(lineage=True)), row)

    def write(
        self,
        out: str,
        *,
        tuples: bool | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> int | None:
        """Write the answer to a Parquet or CSV file; return the number of rows.

        Parameters
        ----------
        out : name of the file; a name that ends in ``/`` is a folder that Spark's workers write to, whose rows are not counted
        tuples : tuples (True) or segments (False); default tuples if the query has a rate
        overwrite : replace an existing file
        progress : called with (done, total)
        """
        wanted = self.query.rate is not None if tuples is None else tuples
        job = self._prepared(tuples=wanted, lineage=self._lineage and not wanted)
        check(out, overwrite=overwrite, schema=job.schema, folders=self._spark is not None)
        rows = self._written(job, out, overwrite=overwrite, progress=progress)
        job.accents.check_end(out)
        return rows

    def plot(self, **options: Any) -> Figure:
        """Plot the answer: values with their error, ranges with their certainty. Needs the extra ``plot``.

        Options as in :func:`pulse.plot.plot_answer`: ``attribute``, ``keys``, ``width``. Tuples are drawn if the query has a
        rate, else segments. The answer is collected in this process: restrict it if it is large.
        """
        from pulse.plot import plot_answer

        columns = self.query.plan.columns
        return plot_answer(
            self.to_arrow(),
            modelled=columns.modelled,
            key=columns.key_names,
            time=columns.time,
            rate=self.query.rate,
            **options,
        )

    def plot_lineage(self, row: int | None = None, **options: Any) -> Figure:
        """Plot one result segment, or all, with the stored segments that caused it; options as in
        :func:`pulse.plot.plot_lineage`.
        """
        from pulse.plot import plot_lineage
        from pulse.validation.lineage_queries import causes

        found = self._collected(self.segments(lineage=True))
        behind = causes(found, row)
        shown = found if row is None else found.slice(row % max(found.num_rows, 1), 1)
        return plot_lineage(shown, behind, modelled=self.query.plan.columns.modelled, **options)

    def __repr__(self) -> str:
        engine = "in process" if self._spark is None else "on Spark"
        if self.query.plan.columns.points:
            rate = "tuples at their own instants"
        elif self.query.rate is None:
            rate = "segments only (no rate)"
        else:
            rate = f"tuples every {self.query.rate / 1e6:g} s"
        return (
            f"Answer({' '.join(self.query.text.split())!r}; {', '.join(self.query.select)}; {rate}; {engine}, "
            "runs when asked)"
        )

    def _repr_html_(self) -> str:
        """Show the first rows where they cost next to nothing: never on Spark."""
        return first_rows(self.head, self._spark is None and is_small(self.query, self._paths), repr(self))

    def _prepared(self, *, tuples: bool, lineage: bool = False) -> BoundPlan:
        return prepare(self.query, self._paths, tuples=tuples, lineage=lineage, evolution=self._evolution)

    def _run(self, job: BoundPlan) -> DataFrame | pa.Table:
        if self._spark is None:
            result = local_driver.run(job)
        else:
            from pulse.runtime.execution import spark_driver

            result = spark_driver.frame(self._spark(), job)
        job.accents.check_end(result)
        return result

    def _written(self, job: BoundPlan, out: str, *, overwrite: bool, progress: Progress | None) -> int | None:
        if self._spark is None:
            return write_batches(local_driver.batches(job, progress), job.schema, out)
        from pulse.runtime.execution import spark_driver
        from pulse.runtime.spark.progress import watched

        frame = spark_driver.frame(self._spark(), job)
        with watched(self._spark(), progress) if progress is not None else nullcontext():
            return write_frame(frame, out, overwrite=overwrite)

    def _collected(self, result: Any) -> pa.Table:
        if isinstance(result, pa.Table):
            return result
        from pulse.runtime.spark.errors import translated

        with translated():
            return result.toArrow()

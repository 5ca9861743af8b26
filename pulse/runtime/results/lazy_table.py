"""Compute the rows of a result on demand: as segments or tuples, in this process or on Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa

from pulse.core import html
from pulse.core.polars_frame import polars_frame
from pulse.operators.output.episodes import EpisodeError
from pulse.plan.query import Query
from pulse.runtime.execution.local_driver import Progress
from pulse.runtime.io.table_writer import check, is_folder, write_batches, write_frame
from pulse.runtime.io.time_zone import ZoneError, zone_named, zoned, zoned_batch, zoned_schema

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession


class ResultJob(Protocol):
    """Prepared work that yields rows."""

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the rows."""

    def check_end(self, emitted: Any) -> None:
        """Raise if the results end at an accent, with those ``emitted``."""


class LazyTable(ABC):
    """A table whose rows are computed when one of these methods is called."""

    query: Query
    _spark: Callable[[], SparkSession] | None  # None: in this process
    _zone: str | None = None  # of the instants; None: UTC, without a zone

    def in_zone(self, zone: str | None) -> Self:
        """Return the same result with instants in a time zone, ``"America/New_York"``; ``"stream"`` is that of the fit.

        Times are timestamps with that zone in tuples, segments (``ref``) and episodes, in Arrow, pandas, Polars and files. Spark
        DataFrames, and folders that Spark's workers write, stay in UTC. None: as they are stored, UTC without a zone.
        """
        made = copy(self)
        made._zone = None if zone is None else zone_named(zone, self.query)
        return made

    @abstractmethod
    def _job(self, *, tuples: bool) -> Any:
        """Prepare the work for tuples or segments: a :class:`ResultJob`."""

    def _episode_job(self) -> Any:
        """Prepare the work for episodes, where a result has them."""
        raise EpisodeError(
            f"episodes: {type(self).__name__} has segments and tuples; only a query's answer has episodes"
        )

    @abstractmethod
    def _batches(self, job: Any, progress: Progress | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in this process, as they are found."""

    @abstractmethod
    def _frame(self, spark: SparkSession, job: Any) -> DataFrame:
        """Return the rows as a lazy frame."""

    @abstractmethod
    def _described(self) -> str:
        """Describe columns and extent, for the representation."""

    @property
    def _has_rate(self) -> bool:
        """Return whether there are tuples by default."""
        return self.query.rate is not None

    def tuples(self) -> DataFrame | pa.Table:
        """Return sampled tuples, at the query's rate."""
        return self._run(self._job(tuples=True))

    def segments(self) -> DataFrame | pa.Table:
        """Return result segments."""
        return self._run(self._job(tuples=False))

    def head(
        self, count: int = 20, *, tuples: bool | None = None, episodes: bool = False
    ) -> tuple[pa.Table, bool]:
        """Return the first rows found, and whether there are more; work stops once they are found.

        Parameters
        ----------
        count : number of rows, default 20
        tuples : tuples (True) or segments (False); default tuples if the query has a rate
        episodes : episodes instead of either
        """
        job = self._chosen(tuples, episodes)
        if self._spark is None:
            found: list[pa.RecordBatch] = []
            for batch in self._batches(job):
                found.append(batch)
                if sum(one.num_rows for one in found) > count:
                    break
            table = pa.Table.from_batches(found, schema=job.schema)
        else:
            table = self._collected(self._frame(self._spark(), job).limit(count + 1))
        shown = zoned(table.slice(0, count), self._zone), table.num_rows > count
        if not shown[1]:
            job.check_end(shown[0])
        return shown

    def to_arrow(self, *, zone: str | None = None) -> pa.Table:
        """Collect the rows in this process: tuples if the query has a rate, else segments; ``zone`` as in :meth:`in_zone`."""
        if zone is not None:
            return self.in_zone(zone).to_arrow()
        return self._collected(self.tuples() if self._has_rate else self.segments())

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows of :meth:`to_arrow` batch by batch: in this process as they are found, from Spark once all have
        arrived.
        """
        if self._spark is not None:
            return self.to_arrow().to_reader()
        job = self._job(tuples=self._has_rate)

        def found() -> Iterator[pa.RecordBatch]:
            for batch in self._batches(job):
                cast = batch.cast(job.schema) if batch.schema != job.schema else batch
                yield zoned_batch(cast, self._zone)
            job.check_end(None)

        return pa.RecordBatchReader.from_batches(zoned_schema(job.schema, self._zone), found())

    def to_pandas(self, *, zone: str | None = None) -> pandas.DataFrame:
        """Return :meth:`to_arrow` as a pandas frame."""
        return self.to_arrow(zone=zone).to_pandas()

    def to_polars(self, *, zone: str | None = None) -> polars.DataFrame:
        """Return :meth:`to_arrow` as a Polars frame. Needs Polars."""
        return polars_frame(self.to_arrow(zone=zone))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export to libraries that read the Arrow protocol: ``polars.DataFrame(answer)``, ``duckdb.sql("from answer")``."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def write(
        self,
        out: str,
        *,
        tuples: bool | None = None,
        episodes: bool = False,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> int | None:
        """Write the rows to a Parquet or CSV file, or with positions in degrees to a GeoJSON file; return the number of rows.

        Parameters
        ----------
        out : name of the file; a name that ends in ``/`` is a folder that Spark's workers write to, whose rows are not counted
        tuples : tuples (True) or segments (False); default tuples if the query has a rate
        episodes : episodes instead of either
        overwrite : replace an existing file
        progress : called with (done, total)
        """
        job = self._chosen(tuples, episodes)
        check(out, overwrite=overwrite, schema=job.schema, folders=self._spark is not None)
        zone = self._zone
        if self._spark is None:
            batches = (zoned_batch(one, zone) for one in self._batches(job, progress))
            rows: int | None = write_batches(batches, zoned_schema(job.schema, zone), out)
        else:
            if zone is not None and is_folder(out):
                raise ZoneError(
                    f"zone: Spark's workers write folders, {out}, in UTC; name a file, or leave the zone out"
                )
            frame = self._frame(self._spark(), job)
            with self._watched(progress):
                rows = write_frame(frame, out, overwrite=overwrite, metadata=job.schema.metadata, zone=zone)
        job.check_end(out)
        return rows

    def __repr__(self) -> str:
        engine = "in process" if self._spark is None else "on Spark"
        text = " ".join(self.query.text.split())
        return f"{type(self).__name__}({text!r}; {self._described()}; {engine}, runs when asked)"

    def _repr_html_(self) -> str:
        not_run = "Not run: call tuples(), segments(), head() or to_pandas()."
        return html.paragraph(repr(self)) + html.paragraph(not_run)

    def _chosen(self, tuples: bool | None, episodes: bool) -> Any:
        """Prepare the work for the form that was asked for."""
        if episodes:
            return self._episode_job()
        return self._job(tuples=self._has_rate if tuples is None else tuples)

    def _run(self, job: ResultJob, progress: Progress | None = None) -> DataFrame | pa.Table:
        result = self._result(job, progress)
        job.check_end(result)
        return result

    def _result(self, job: ResultJob, progress: Progress | None = None) -> DataFrame | pa.Table:
        if self._spark is None:
            return zoned(
                pa.Table.from_batches(list(self._batches(job, progress)), schema=job.schema), self._zone
            )
        return self._frame(self._spark(), job)

    def _collected(self, result: DataFrame | pa.Table, progress: Progress | None = None) -> pa.Table:
        if isinstance(result, pa.Table):
            return result
        from pulse.runtime.spark.errors import translated

        with translated(), self._watched(progress):
            return zoned(result.toArrow(), self._zone)

    def _watched(self, progress: Progress | None) -> Any:
        """Return a context that reports the progress of Spark."""
        if progress is None or self._spark is None:
            return nullcontext()
        from pulse.runtime.spark.progress import watched

        return watched(self._spark(), progress)

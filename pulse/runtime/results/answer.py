"""Return the answer to a query: lazily, as segments, tuples or episodes, on Spark or in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulse.core import html
from pulse.core.errors import PulseError
from pulse.plan.accents.query_effects import Accented
from pulse.plan.explain import Explanation, explain
from pulse.plan.query import Query
from pulse.runtime.accents.query_units import AS_STORED, Evolution, follow
from pulse.runtime.execution import local_driver
from pulse.runtime.execution.bound_plan import BoundPlan, at_versions, prepare
from pulse.runtime.execution.local_driver import Progress
from pulse.runtime.results.lazy_table import LazyTable
from pulse.runtime.results.notes import notes_of
from pulse.store.model import Model
from pulse.store.model_ref import ModelRef

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

    from pulse.runtime.results.answer_diff import RevisedAnswer


_SHOWN_ACCENTS = 20  # per stream, in explain
_SHOWN = 10  # rows in a notebook
_SMALL = 200_000  # at most so many segments of all streams are read to show rows in a notebook


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

    :meth:`tuples`, :meth:`segments` and :meth:`episodes` return Spark DataFrames, or Arrow tables if the session's engine is
    ``local``.

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
        self._geo = False

    def geo(self) -> Answer:
        """Return the same answer with positions in degrees: ``lon`` and ``lat`` of the selected ``x`` and ``y``, and a geometry.

        A tuple is a point, an episode a line with ``lon_start``, ``lat_start``, ``lon_end`` and ``lat_end``; Parquet files are
        then GeoParquet, and :meth:`write` takes names that end in ``.geojson``. Segments stay as they are. The model must have
        been fitted with a projection, as AIS formats are.
        """
        made = copy(self)
        made._geo = True
        return made

    def tuples(self) -> DataFrame | pa.Table:
        """Return sampled tuples: time, the selected columns, ``a_err`` for each modelled one, ``certainty`` (semantics 3.8).

        The rate is the query's ``SAMPLE EVERY``, or the advance of its windows; a selective query without either has no rate,
        which is an error here. Of points every tuple is returned, at its own instant.
        """
        return super().tuples()

    def segments(self, *, lineage: bool | None = None) -> DataFrame | pa.Table:
        """Return result segments: keys, ``ref``, ``lo``, ``hi``, coefficients with ``a_err``, ``certainty``.

        With ``lineage``, also the ids, keys and ranges of the segments that caused each; default as the answer was created.
        """
        return self._run(self._job(tuples=False, lineage=lineage))

    def episodes(self) -> DataFrame | pa.Table:
        """Return one row for each maximal stretch of time in which the answer holds for a key, those of a key in order.

        Columns: keys; ``start``, ``end`` and ``duration`` in seconds; ``certainty``, the lowest in the stretch; between
        ``start_earliest`` and ``start_latest`` the truth certainly starts to hold, between ``end_earliest`` and ``end_latest`` it
        certainly ceases to (null where it may not hold at all); ``cores``, how many stretches in it are certain. Each modelled
        column ``a`` has ``a_start``, ``a_end``, ``a_min``, ``a_max`` and ``a_mean``, each with a bound (``a_min_err``), and
        the instants of minimum and maximum (``a_min_at``, of the truth's between ``a_min_earliest`` and ``a_min_latest``); an
        unmodelled one its value at the start. Possible ranges widen starts and ends; with ``WITH POSSIBLE`` they belong to the
        stretches.
        """
        return self._run(self._episode_job())

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> Model:
        """Save the answer as a stored model: its segments with keys, bounds and certainty, and where they come from.

        Queries on the model give what the nested query gives, ``FROM (this query) AS S``, bounds included: the model also holds
        the possible segments, which only queries ``WITH POSSIBLE`` return. On Spark the workers write it. Answers of tuples and
        answers with several units are refused.

        Parameters
        ----------
        path : folder of the model
        overwrite : replace the model in this folder
        progress : called with (done, total)
        """
        from pulse.runtime.results.saving import save_answer

        job = prepare(self.query, self._paths, tuples=False, saved=True, evolution=self._evolution)
        spark = self._spark
        return save_answer(
            job,
            os.fspath(path),
            self._given,
            (lambda: self._batches(job, progress)) if spark is None else None,
            None if spark is None else lambda: self._frame(spark(), job),
            overwrite=overwrite,
            watched=self._watched(progress),
        )

    def revised(self, since: Any, **options: Any) -> RevisedAnswer:
        """Return the changes of this answer due to corrections since a version or a time; options as in
        :meth:`pulse.Session.revised`.
        """
        from pulse.runtime.results.answer_diff import RevisedAnswer

        return RevisedAnswer(
            self.query, self._paths, since, spark=self._spark, evolution=self._evolution, **options
        )

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

        plain = self.in_zone(None)
        return causes(plain._collected(plain.segments(lineage=True)), row)

    def plot(self, **options: Any) -> Figure:
        """Plot the answer: values with their error, ranges with their certainty. Needs the extra ``plot``.

        Options as in :func:`pulse.plot.plot_answer`: ``attribute``, ``keys``, ``width``. Tuples are drawn if the query has a
        rate, else segments. The answer is collected in this process: restrict it if it is large.
        """
        from pulse.plot import plot_answer

        columns = self.query.plan.columns
        return plot_answer(
            self.in_zone(None).to_arrow(),
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

        plain = self.in_zone(None)
        found = plain._collected(plain.segments(lineage=True))
        behind = causes(found, row)
        shown = found if row is None else found.slice(row % max(found.num_rows, 1), 1)
        return plot_lineage(shown, behind, modelled=self.query.plan.columns.modelled, **options)

    @property
    def _has_rate(self) -> bool:
        return super()._has_rate or self.query.plan.columns.points

    def _described(self) -> str:
        if self.query.plan.columns.points:
            rate = "tuples at their own instants"
        elif self.query.rate is None:
            rate = "segments only (no rate)"
        else:
            rate = f"tuples every {self.query.rate / 1e6:g} s"
        return f"{', '.join(self.query.select)}; {rate}"

    def _repr_html_(self) -> str:
        """Show the first rows where they cost next to nothing: in this process, of small models, without exchanges."""
        title = html.paragraph(repr(self))
        try:
            if self._spark is not None or not self._is_small():
                return super()._repr_html_()
            rows, more = self.head(_SHOWN)
        except PulseError as e:
            return title + html.paragraph(str(e))
        footer = f"The first {rows.num_rows} rows; there are more." if more else f"{rows.num_rows} rows."
        return title + html.arrow_table(rows) + html.paragraph(footer)

    def _is_small(self) -> bool:
        job = self._job(tuples=False)
        return (
            len(job.fragments) == 1
            and sum(stored.open().manifest.segments for stored in job.paths.values()) <= _SMALL
        )

    def _job(self, *, tuples: bool, lineage: bool | None = None) -> BoundPlan:
        wanted = not tuples and (self._lineage if lineage is None else lineage)
        return prepare(
            self.query,
            self._paths,
            tuples=tuples,
            lineage=wanted,
            geo=self._geo,
            evolution=self._evolution,
        )

    def _episode_job(self) -> BoundPlan:
        return prepare(
            self.query, self._paths, tuples=False, episodes=True, geo=self._geo, evolution=self._evolution
        )

    def _batches(self, job: BoundPlan, progress: Progress | None = None) -> Iterator[pa.RecordBatch]:
        return local_driver.batches(job, progress)

    def _frame(self, spark: SparkSession, job: BoundPlan) -> DataFrame:
        from pulse.runtime.execution import spark_driver

        return spark_driver.frame(spark, job)

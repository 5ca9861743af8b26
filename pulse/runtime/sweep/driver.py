"""Run a what-if sweep: one query over a grid of parameters, in one pass over the model (semantics 5).

Parameters travel to the data: a worker reads its unit once and evaluates every variant on it. Summaries of variants above windows
are computed in batches (:mod:`pulse.runtime.sweep.batched_variants`). The other variants share scans, and windows of one size;
what only one variant needs is freed before the next, and shared windows when they outgrow their cache, so memory does not
depend on the size of the grid.

Queries with exchanges run variant by variant over what was read: what they shuffle depends on the parameters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulse.core import html
from pulse.core.errors import PulseError
from pulse.core.expression import Expression
from pulse.operators.output.summary import Summary, from_rows, to_rows
from pulse.operators.relational.scan import scans
from pulse.plan.query import Query
from pulse.runtime.accents.query_units import aborted
from pulse.runtime.execution import local_driver
from pulse.runtime.execution.bound_plan import BoundPlan
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.fragment import result_of
from pulse.runtime.execution.local_driver import Progress
from pulse.runtime.execution.scan import Reading, as_scanned, read
from pulse.runtime.results.lazy_table import LazyTable
from pulse.runtime.results.notes import notes_of
from pulse.runtime.sweep.batched_variants import Tails, tails
from pulse.runtime.sweep.provenance import SweepOrigin, with_origin
from pulse.runtime.sweep.variants import jobs_of
from pulse.store.model_ref import ModelRef
from pulse.store.read_units import ReadUnit

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

Values = dict[str, Any]
VARIANT = "variant"


class SweepError(PulseError, ValueError):
    """The grid of parameters is invalid."""


@dataclass(frozen=True)
class ParameterGrid:
    """Parameters and their values; the variants are all combinations, the last parameter changing fastest."""

    axes: tuple[tuple[str, tuple[Any, ...]], ...]

    @classmethod
    def of(cls, axes: Mapping[str, Any]) -> ParameterGrid:
        """Make a grid from lists, ranges, arrays or single values.

        >>> len(ParameterGrid.of({"short": [5, 10], "long": range(30, 90, 30)}))
        4
        """
        made = []
        for name, values in axes.items():
            listed = [values] if isinstance(values, str) or not np.iterable(values) else list(values)
            if not listed:
                raise SweepError(f"sweep: parameter :{name} has no values; give at least one")
            made.append((name, tuple(v.item() if hasattr(v, "item") else v for v in listed)))
        grid = cls(tuple(made))
        _ = grid.types  # raise for values of mixed types now, not after the work
        return grid

    @property
    def names(self) -> tuple[str, ...]:
        """Return the parameters, in order."""
        return tuple(name for name, _ in self.axes)

    def __len__(self) -> int:
        return int(np.prod([len(values) for _, values in self.axes], dtype=np.int64))

    def __iter__(self) -> Iterator[Values]:
        for values in itertools.product(*(values for _, values in self.axes)):
            yield dict(zip(self.names, values, strict=True))

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """Return the Arrow type of each parameter's column."""
        found = {}
        for name, values in self.axes:
            try:
                found[name] = pa.array(list(values)).type
            except (pa.ArrowInvalid, pa.ArrowTypeError) as e:
                raise SweepError(
                    f"sweep: the values of parameter :{name} become a column and must be of one type: {e}"
                ) from None
        return found


@dataclass(frozen=True)
class SweepJob:
    """The work order of a sweep; picklable. Yields tuples (``tuples``) or segments, or with ``summary`` figures of either."""

    query: Query
    queries: tuple[Query, ...]  # bound, one for each variant
    grid: ParameterGrid
    paths: Mapping[str, str | ModelRef]
    tuples: bool
    summary: bool = False

    @cached_property
    def jobs(self) -> tuple[BoundPlan, ...]:
        """Return the job of each variant."""
        variants = tuple(zip(self.variants, self.queries, strict=True))
        return jobs_of(self.query, variants, self.paths, tuples=self.tuples, summary=self.summary)

    @cached_property
    def variants(self) -> tuple[Values, ...]:
        """Return the parameters of each variant."""
        return tuple(self.grid)

    @cached_property
    def tails(self) -> tuple[Tails, ...]:
        """Return the batches of variants that are evaluated together."""
        return tails(self.jobs) if self.summary and self.one_pass else ()

    def check_end(self, emitted: Any) -> None:
        """Raise if variants end at an accent, as a query alone would, with the results of all of them."""
        ended = [
            (values, job.accents.ends)
            for values, job in zip(self.grid, self.jobs, strict=True)
            if job.accents.ends
        ]
        if not ended:
            return
        values, reason = ended[0]
        named = ", ".join(f"{name}={value}" for name, value in values.items())
        raise aborted(f"sweep: {len(ended)} of {len(self.grid)} variants end; {named}: {reason}", emitted)

    @property
    def one_pass(self) -> bool:
        """Return whether every variant is one fragment, so that all can share what was read."""
        return all(len(job.fragments) == 1 for job in self.jobs)

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the schema: parameters (in a summary the variant's number), then the columns of the answer."""
        own = self.jobs[0].schema
        types = {VARIANT: pa.int64()} if self.summary else self.grid.types
        _check_names(self.grid, _figure_names(self.jobs[0].columns.modelled) if self.summary else own.names)
        return pa.schema([*types.items(), *own])

    def labelled(self, number: int, values: Values, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Prepend the parameters, or in a summary the number, to a variant's rows."""
        labels = {VARIANT: number} if self.summary else values
        columns = [
            pa.repeat(pa.scalar(labels[name], self.schema.field(name).type), batch.num_rows)
            for name in labels
        ]
        return pa.RecordBatch.from_arrays([*columns, *batch.columns], schema=self.schema)


def run_on_unit(sweep: SweepJob, unit: ReadUnit) -> Iterator[pa.RecordBatch]:
    """Run every variant on one unit; a variant without rows yields an empty batch, so that progress can be reported.

    In a summary every variant has a row; those evaluated together share one batch.
    """
    done: dict[int, Summary] = {}
    of: tuple[Reading, Expression] | None = None
    for some in sweep.tails:
        if (some.reads, some.keys) != of:
            of = some.reads, some.keys
            relation = read(some.reads, unit, some.keys)
        done |= some.summaries(relation)
    if done:
        rows = to_rows(list(done.values()), sweep.jobs[0].columns.modelled)
        yield pa.RecordBatch.from_arrays([pa.array(list(done), pa.int64()), *rows], schema=sweep.schema)
    evaluation = None
    left = [number for number in range(len(sweep.grid)) if number not in done]
    for place, number in enumerate(left):
        job = sweep.jobs[number]
        fragment = job.fragments[-1]
        wanted = job.reading(fragment), job.keys(fragment)
        if wanted != of:
            of, relation, evaluation = wanted, read(wanted[0], unit, wanted[1]), None
        if evaluation is None:
            evaluation = FragmentEvaluation({}, possible=job.query.possible)
            evaluation.expect(sweep.jobs[other].fragments[-1].root for other in left[place:])
        evaluation.give(
            {leaf: as_scanned(relation, leaf) for leaf in fragment.scans if not evaluation.has(leaf)}
        )
        result = result_of(job, evaluation, fragment.root)
        yield sweep.labelled(number, sweep.variants[number], result)
        evaluation.keep_shared()


class Sweep(LazyTable):
    """The lazy result of :meth:`pulse.Session.sweep`: like an answer, with the parameters as first columns.

    A sweep whose query ends at an accent raises as an answer does; ``emitted`` holds its variants' rows up to the accent.

    Parameters
    ----------
    query : the query with open parameters
    grid : the values of each parameter
    paths : the stored models by stream
    spark : returns the Spark session; None runs in this process
    """

    def __init__(
        self,
        query: Query,
        grid: ParameterGrid,
        paths: Mapping[str, str | ModelRef],
        *,
        spark: Callable[[], SparkSession] | None = None,
    ) -> None:
        self.query, self.grid = query, grid
        self._paths, self._spark = paths, spark
        self._bound = tuple(query.bind(values) for values in grid)  # raise for unfit values now

    @property
    def _has_rate(self) -> bool:
        return all(one.rate is not None for one in self._bound)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the limits of the variants, each once: as of a time, arrival times are unknown."""
        at = {tuple(scan.at for scan in scans(one.plan)): one for one in reversed(self._bound)}
        found = (notes_of(one, self._paths) for one in reversed(at.values()))
        return tuple(dict.fromkeys(note for notes in found for note in notes))

    def tuples(self, progress: Progress | None = None) -> DataFrame | pa.Table:
        """Return the sampled tuples of every variant; ``progress`` is called with (done, total)."""
        return self._run(self._job(tuples=True), progress)

    def segments(self, progress: Progress | None = None) -> DataFrame | pa.Table:
        """Return the result segments of every variant; ``progress`` is called with (done, total)."""
        return self._run(self._job(tuples=False), progress)

    def summary(self, progress: Progress | None = None) -> pa.Table:
        """Return a row per variant: number of ``ranges`` in which it holds, their ``seconds``, ``certain_seconds``, and of each
        modelled attribute the time-weighted mean, minimum and maximum.

        Computed from samples if the query has a rate, else from segments. The metadata holds the query and its parameters
        (:func:`pulse.runtime.sweep.provenance.origin_of`).
        """
        job = self._job(tuples=self._has_rate, summary=True)
        partial = self._collected(self._result(job, progress), progress)  # a row per unit and variant
        table = _summary_table(self.grid, partial, job.jobs[0].columns.modelled)
        streams = {name: str(ModelRef.of(path).path) for name, path in self._paths.items()}
        parameters = {name: list(values) for name, values in self.grid.axes}
        table = with_origin(table, SweepOrigin(self.query.text, parameters, streams))
        job.check_end(table)
        return table

    def plot(self, value: str = "seconds", **options: Any) -> Figure:
        """Plot one column of the summary: a heat map over two parameters, a line over one. Needs the extra ``plot``."""
        from pulse.plot import plot_sweep

        return plot_sweep(self.summary(), self.grid.names, value=value, **options)

    def _described(self) -> str:
        axes = ", ".join(f"{name} {_abbreviated(values)}" for name, values in self.grid.axes)
        return f"{len(self.grid)} variants: {axes}"

    def _repr_html_(self) -> str:
        rows = [(name, len(values), _abbreviated(values)) for name, values in self.grid.axes]
        return (
            html.code(self.query.text.strip())
            + html.table(["parameter", "values", ""], rows)
            + html.paragraph(
                f"{len(self.grid)} variants. Not run: call summary(), tuples(), segments() or plot()."
            )
        )

    def _job(self, *, tuples: bool, summary: bool = False) -> SweepJob:
        used = {scan.stream for scan in scans(self.query.plan)}
        pinned = {
            name: ModelRef.of(path).pinned() if name in used else path for name, path in self._paths.items()
        }
        return SweepJob(self.query, self._bound, self.grid, pinned, tuples, summary)

    def _batches(self, job: SweepJob, progress: Progress | None = None) -> Iterator[pa.RecordBatch]:
        return _in_process(job, progress)

    def _frame(self, spark: SparkSession, job: SweepJob) -> DataFrame:
        from pulse.runtime.execution import spark_driver

        return spark_driver.sweep_frame(spark, job)


def _in_process(sweep: SweepJob, progress: Progress | None) -> Iterator[pa.RecordBatch]:
    if not sweep.one_pass:
        for number, (values, job) in enumerate(zip(sweep.grid, sweep.jobs, strict=True)):
            for batch in local_driver.batches(job):
                yield sweep.labelled(number, values, batch)
            if progress is not None:
                progress(number + 1, len(sweep.grid))
        return
    first = sweep.jobs[0]
    units = first.units(first.fragments[-1], at_least=local_driver.cores())
    done, total = 0, len(units) * len(sweep.grid)
    threads = min(local_driver.cores(), max(len(units), 1))
    with ThreadPoolExecutor(threads) as pool:
        for begin in range(0, len(units), threads):
            running = [run_on_unit(sweep, unit) for unit in units[begin : begin + threads]]
            while running:  # one variant of each unit at a time bounds memory
                made = list(pool.map(lambda one: next(one, None), running))
                running = [one for one, batch in zip(running, made, strict=True) if batch is not None]
                for batch in made:
                    if batch is None:
                        continue
                    done += batch.num_rows if sweep.summary else 1
                    if batch.num_rows:
                        yield batch
                    if progress is not None:
                        progress(done, total)


def _abbreviated(values: tuple[Any, ...]) -> str:
    """List a few values, or the ends of many."""
    few = len(values) <= 4
    return ", ".join(map(str, values)) if few else f"{values[0]}, {values[1]} … {values[-1]} ({len(values)})"


def _check_names(grid: ParameterGrid, columns: Iterable[str]) -> None:
    twice = set(grid.names) & set(columns)
    if twice:
        raise SweepError(
            f"sweep: {', '.join(sorted(twice))} is a parameter and a column of the answer; rename one"
        )


def _figure_names(attributes: tuple[str, ...]) -> list[str]:
    figures = [f"{name}_{what}" for name in attributes for what in ("mean", "min", "max")]
    return ["ranges", "seconds", "certain_seconds", *figures]


def _summary_table(grid: ParameterGrid, partial: pa.Table, attributes: tuple[str, ...]) -> pa.Table:
    rows: list[list[dict[str, Any]]] = [[] for _ in range(len(grid))]
    for row in partial.to_pylist():
        rows[row[VARIANT]].append(row)
    found = [from_rows(some, attributes) for some in rows]
    variants = list(grid)
    columns: dict[str, Any] = {
        name: pa.array([values[name] for values in variants], type_) for name, type_ in grid.types.items()
    }
    columns["ranges"] = pa.array([one.ranges for one in found], pa.int64())
    columns["seconds"] = pa.array([one.seconds for one in found], pa.float64())
    columns["certain_seconds"] = pa.array([one.certain for one in found], pa.float64())
    for name in attributes:
        for what in ("mean", "min", "max"):
            columns[f"{name}_{what}"] = pa.array([_figure(one, name, what) for one in found], pa.float64())
    return pa.table(columns)


def _figure(summary: Summary, name: str, what: str) -> float | None:
    """Return a figure of a variant; None if it never holds, a mean also if it holds at single instants only."""
    figures = summary.attributes.get(name)
    if figures is None or not summary.ranges:
        return None
    if what == "mean":
        return figures.integral / summary.seconds if summary.seconds > 0.0 else None
    return figures.smallest if what == "min" else figures.largest

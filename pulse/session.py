"""The way in from Python: a session fits models and, on them, answers queries.

>>> import pyarrow as pa
>>> ticks = pa.table({"t": pa.array([0, 1_000_000, 2_000_000], pa.timestamp("us")), "price": [10.0, 10.0, 10.5]})
>>> model = Session(engine="local").fit(ticks, time="t", model={"price": "step"}, error="0.05%")
>>> model.read().coefficients("price")[0, 0]
np.float64(10.0)
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from pulse.core.errors import SessionError as SessionError  # users take it from here
from pulse.core.errors import was_interrupted
from pulse.core.time import parse_duration
from pulse.store.model import Model
from pulse.store.model_ref import ModelRef

if TYPE_CHECKING:
    from pulse.core.schema import StreamSchema
    from pulse.datasets.format import Format
    from pulse.plan.explain import Explanation
    from pulse.plan.query import Query
    from pulse.runtime.fit.pipeline import Progress
    from pulse.runtime.jobs.run import JobLike, JobRun, OnBatch, OnStatus
    from pulse.runtime.results.answer import Answer
    from pulse.runtime.results.answer_diff import RevisedAnswer
    from pulse.runtime.revise.driver import Outcome
    from pulse.runtime.spark.session import SparkSession
    from pulse.runtime.sweep.driver import Sweep

ENGINES = ("spark", "local")


class Session:
    """Fits models and answers queries on them.

    ``engine="spark"`` starts Spark on first use; ``"local"`` does the same work in this process; without one it is that of
    ``PULSE_ENGINE``, else Spark. ``master`` is Spark's: that of ``PULSE_MASTER`` if none is given, else all cores of this
    machine. Other keywords are as in :func:`pulse.runtime.spark.session.session`: ``environment``, an archive for a cluster's
    workers, and settings of Spark's.
    """

    def __init__(
        self,
        master: str | None = None,
        *,
        engine: str | None = None,
        spark: SparkSession | None = None,
        **conf: Any,
    ) -> None:
        self._asked = engine or os.environ.get("PULSE_ENGINE") or None  # else jobs may name their own
        self.engine = self._asked or "spark"
        if self.engine not in ENGINES:
            raise SessionError(f"engine: expected {' or '.join(map(repr, ENGINES))}, got {self.engine!r}")
        self._master, self._conf, self._spark = master, conf, spark
        self._streams: dict[str, Model] = {}
        self._started = False  # whether it is ours to stop

    @property
    def spark(self) -> SparkSession:
        """The Spark session; started when first asked for."""
        return self._spark_with({})

    def _spark_with(self, settings: Mapping[str, str]) -> SparkSession:
        """Spark with settings of a job: with all of them if it is to be started, else with those that can change."""
        from pulse.runtime.spark.session import is_running, session

        if self._spark is None:
            self._started = not is_running()
            self._spark = session(self._master, **{**settings, **self._conf})
        elif settings:
            session(**settings)  # type: ignore[arg-type]  # names of settings are none of its own keywords
        return self._spark

    def stop(self) -> None:
        """Stop Spark, if this session started it."""
        if self._spark is not None and self._started:
            self._spark.stop()
            self._spark, self._started = None, False

    def __enter__(self) -> Session:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._spark is not None and self._started and was_interrupted(error):
            from pulse.runtime.spark.session import hush

            hush(self._spark)
        self.stop()

    def open(self, path: str | os.PathLike[str], *, version: int | None = None, as_of: Any = None) -> Model:
        """A stored model: its newest version or an older one that is kept, or as it was known at a time."""
        return Model(_path_of_model(path, "open"), version, as_of)

    def fit(
        self,
        data: Any,
        *,
        model: Mapping[str, str],
        key: str | Iterable[str] | None = None,
        time: str | None = None,
        error: Any = None,
        drift: Any = None,
        degree: int | str | None = None,
        max_gap: str | float | None = None,
        nonfinite: str = "reject",
        late: str = "refuse",
        keep: str | Iterable[str] = (),
        points: bool = False,
        format: str | Format | None = None,
        out: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
        append: bool = False,
        progress: Progress | None = None,
        for_query: str | None = None,
        stream: str = "S",
        parameters: Mapping[str, Any] | None = None,
        keep_tuples: bool | str | float | None = None,
        accents: Any = None,
        splits: str | os.PathLike[str] | None = None,
    ) -> Model:
        """Model a stream once, to ask about it many times.

        ``data``: paths of files, folders or patterns; a Spark DataFrame; or an Arrow table, a pandas or Polars frame, or whatever
        else hands out Arrow data (``__arrow_c_stream__``).
        ``model`` maps attributes to their truth (``linear``, ``step``, ``samples``). ``error`` bounds the value,
        ``drift`` the integral; each one bound for all attributes (``"0.05%"``, ``0.01``, ``"0.05% or 0.001"``)
        or a mapping. ``degree`` is 0 to 5 or ``"auto"``, constants or lines per segment: the default where a bound
        on integrals is asked (but for ``linear`` with both bounds); else 1. ``keep`` names unmodelled attributes.

        A table or frame has no order of arrival: its tuples are sorted by key and time, those of one instant as they stand.
        Files are read as they are given. Late tuples, and with ``nonfinite="reject"`` those with a value that is no number, are
        set aside with a :class:`~pulse.runtime.fit.rejects.SetAsideWarning`. A fit more than 1 % of whose tuples are late is
        refused (:class:`~pulse.runtime.fit.rejects.LateTuplesError`) and writes nothing, unless ``late="aside"``.

        Without ``out`` the model lives as long as this process.
        With ``points`` every tuple of attributes that are ``samples`` is kept as it is, and windows are over tuples.
        ``for_query`` chooses the bounds of the attributes that have none so that this query's ERROR WITHIN holds; the query
        calls the data ``stream``, and its ``parameters`` are given here. ``keep_tuples`` keeps the tuples beside the model, all
        (True) or those of so long before the newest (``"2 h"``), so that they can be revised when the source is gone.
        ``accents``, a log (a file, its lines, or accents), and ``splits``, a table of stock splits, say where units and schema
        change: the model is then in the units of the stream's start, and queries answer in those recorded.
        """
        from pulse.operators.fit.spec import FitSpec
        from pulse.runtime.fit.inputs import FitEngine
        from pulse.runtime.fit.rejects import check_policy, warn_of
        from pulse.runtime.fit.request import FitRequest, completed
        from pulse.runtime.fit.retention import parse_keep

        if overwrite and append:
            raise SessionError("fit: overwrite and append exclude each other; say one of them")
        order = FitRequest.of(
            data,
            model=model,
            key=(key,) if isinstance(key, str) else None if key is None else tuple(key),
            time=time,
            keep=(keep,) if isinstance(keep, str) else tuple(keep),
            format=format,
            points=points,
        )
        gap = None if max_gap is None else parse_duration(max_gap)
        if for_query is not None:
            chosen = order.bounds_for(for_query, stream, dict(parameters or {}), gap)
            error, drift = completed(error, drift, chosen, order.schema.modelled_names)
        spec = FitSpec.of(
            order.schema, error=error, drift=drift, degree=degree, max_gap=gap, nonfinite=nonfinite
        )
        return order.model(
            _folder(out) if out is not None else _temporary_folder(),
            spec,
            FitEngine(self.engine == "local", lambda: self.spark),
            accents=order.accents(accents, splits),
            overwrite=overwrite,
            append=append,
            keep_tuples=parse_keep(keep_tuples),
            late=check_policy(late),
            told=warn_of,
            progress=progress,
        )

    def revise(
        self,
        model: Model | str | os.PathLike[str],
        revisions: Any,
        *,
        keep: bool = False,
        known: str | None = None,
        reader: str | None = None,
        time_unit: str | None = None,
        dry: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Outcome:
        """Correct a stored model by revisions of its tuples, in place: whole or not at all.

        ``revisions``: files (a changelog with ``kind`` +I, -U, +U, -D; Debezium events; TAQ corrections; AIS reports with their
        arrival: told by their columns, or named by ``reader``), a table or frame with a column ``kind``, or Revisions.
        ``known`` names the column that says since when each is known. ``keep`` keeps the version before and what was
        known when. ``dry`` only counts. What fits nothing is set aside with its reason, and counted.
        """
        from pulse.runtime.revise.driver import revise
        from pulse.runtime.revise.inputs import revisions_from

        found = self.open(model.path if isinstance(model, Model) else model)
        given = revisions_from(revisions, found, reader=reader, known=known, time_unit=time_unit)
        return revise(
            found,
            given.revisions,
            aside=given.aside,
            keep=keep,
            dry=dry,
            spark=None if self.engine == "local" else self.spark,
            progress=progress,
        )

    def register(self, name: str, model: Model | str | os.PathLike[str]) -> Model:
        """Give a stored model the name of a stream, for all queries of this session."""
        found = self._model(name, model)
        self._streams[name] = found
        return found

    def sql(
        self,
        query: str,
        *,
        streams: Mapping[str, Model | str | os.PathLike[str]] | None = None,
        parameters: Mapping[str, Any] | None = None,
        possible: bool = False,
        lineage: bool = False,
        as_of: Any = None,
        version: int | Mapping[str, int] | None = None,
        accents: Any = None,
        evolution: Any = None,
        accumulate: bool = True,
        later: bool = False,
        **more: Any,
    ) -> Answer:
        """Ask a query of stored models.

        ``streams`` maps the names of the query's streams to models, beside those registered. Parameters, ``:name`` in
        the query, are given as keywords, or in ``parameters``. ``possible`` is ``WITH POSSIBLE``. ``as_of`` is ``AS OF`` a time,
        ``version`` that of a version, of all streams or by name: for streams of which the query does not say it itself.

        Answers about streams with accents are in the units in force at each instant. ``accents`` are logs by stream (one for the
        only stream), for models that were fitted without theirs. ``evolution`` is a policy, or one by stream: ``"evolve"``,
        ``"exception"``, ``"ignore"``, or a mapping of add, drop, alter to these. With ``accumulate=False`` an operator
        aborts where its output cannot say what an accent describes, instead of holding it; with ``later`` the logs come after
        those that the models hold, to see what would become of them (:meth:`Answer.accents`). A query that cannot go on after an
        accent raises :class:`~pulse.runtime.accents.query_units.QueryAbortedError` with its answer before it as ``emitted``.
        """
        from pulse.runtime.accents.query_units import evolution_of
        from pulse.runtime.results.answer import Answer

        order = self._order(query, streams, {**(parameters or {}), **more}, possible, as_of, version)
        return Answer(
            order.query.bind(order.parameters),
            order.paths,
            given=order.parameters,
            spark=self._spark_if_any(),
            lineage=lineage,
            evolution=evolution_of(order.schemas, accents, evolution, accumulate=accumulate, later=later),
        )

    def revised(
        self,
        query: str,
        since: Any,
        *,
        streams: Mapping[str, Model | str | os.PathLike[str]] | None = None,
        parameters: Mapping[str, Any] | None = None,
        possible: bool = False,
        version: int | None = None,
        as_of: Any = None,
        mode: str | None = None,
        results: str | pa.Table | None = None,
        accents: Any = None,
        evolution: Any = None,
        accumulate: bool = True,
        **more: Any,
    ) -> RevisedAnswer:
        """What corrections of the models changed of a query's results, and nothing else.

        ``since``: a version, versions by stream, or a time: results as they were then. They are compared with those of now, or of
        ``version``, or ``as_of`` a time; between times only what was there at the first is compared, as what came later is no
        correction. ``mode`` is ``upstream``, ``downstream`` or ``adaptive``: how segments are revised where there is a choice;
        ``results``, old result segments at hand (a table or Parquet file), are patched instead of being computed again.
        The rest is as in :meth:`sql`; old and new results alike are in the units in force at their instants.
        """
        from pulse.runtime.accents.query_units import evolution_of
        from pulse.runtime.results.answer_diff import RevisedAnswer

        order = self._order(query, streams, {**(parameters or {}), **more}, possible)
        return RevisedAnswer(
            order.query.bind(order.parameters),
            order.paths,
            since,
            version=version,
            as_of=as_of,
            spark=self._spark_if_any(),
            mode=mode,
            results=results,
            evolution=evolution_of(order.schemas, accents, evolution, accumulate=accumulate),
        )

    def explain(
        self,
        query: str,
        *,
        streams: Mapping[str, Model | str | os.PathLike[str]] | None = None,
        parameters: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Explanation:
        """What a query becomes before it runs: plan, equation systems, fragments. Parameters that are not given stay open.

        A text, which notebooks show as it is; its ``sections`` are lines by title.
        """
        from pulse.plan.explain import explain
        from pulse.runtime.results.answer import Answer, degrees

        given = {**(parameters or {}), **more}
        order = self._order(query, streams, given, False)
        known = order.query.parameters
        if not set(known) <= set(given):
            return explain(order.query, degrees(order.paths))
        return Answer(order.query.bind(given), order.paths, given=given).explain()

    def sweep(
        self,
        query: str,
        *,
        streams: Mapping[str, Model | str | os.PathLike[str]] | None = None,
        parameters: Mapping[str, Any] | None = None,
        possible: bool = False,
        **more: Any,
    ) -> Sweep:
        """One query over all combinations of its parameters' values, in one pass over the models.

        ``session.sweep(query, short=[5, 10, 20], long=range(30, 301, 30))``; a single value stays fixed. The rest is as in
        :meth:`sql`.
        """
        from pulse.runtime.sweep.driver import ParameterGrid, Sweep

        given = {**(parameters or {}), **more}
        order = self._order(query, streams, given, possible)
        return Sweep(order.query, ParameterGrid.of(given), order.paths, spark=self._spark_if_any())

    def run(
        self,
        job: JobLike,
        *,
        once: bool = True,
        folder: str | os.PathLike[str] | None = None,
        frames: Mapping[str, Any] | None = None,
        on_batch: OnBatch | None = None,
        on_status: OnStatus | None = None,
    ) -> JobRun:
        """Run a predictive job: results before the data arrives, and most tuples only checked.

        ``job``: the path of a TOML file, its tables as nested dictionaries (paths are then relative to ``folder``), or a Job. It
        runs on this session's engine, or on the one that it names if the session was given none. With ``once`` what is there is
        taken and the run is over; else it goes on in the background until it is stopped: ``with session.run(job, once=False) as
        run: run.wait(60)``. ``frames`` are streaming DataFrames by stream, of streams whose source is ``frame``.
        ``on_batch`` is given every batch of results as a :class:`~pulse.JobBatch`, ``on_status`` the figures after it.

        Tables without a ``sink`` keep their results, with the checkpoint or as long as this process lives, for
        :meth:`JobRun.changes` and :meth:`JobRun.holds`. On Spark a job without a checkpoint begins anew each time, as in process.
        """
        from pulse.runtime.jobs.run import run_job

        return run_job(
            job,
            engine=self._asked,
            spark=self._spark_with,
            once=once,
            folder=folder,
            frames=frames,
            on_batch=on_batch,
            on_status=on_status,
        )

    def _order(
        self,
        query: str,
        streams: Mapping[str, Model | str | os.PathLike[str]] | None,
        parameters: Mapping[str, Any],
        possible: bool,
        as_of: Any = None,
        version: int | Mapping[str, int] | None = None,
    ) -> _BoundQuery:
        from pulse.language import parse
        from pulse.plan.versions import read_as_of

        if streams is not None and not isinstance(streams, Mapping):
            raise SessionError(
                f"streams: expected models by the names that the query calls them, {{'S': model}}, got {type(streams).__name__}"
            )
        known = dict(self._streams)
        for name, model in (streams or {}).items():
            known[name] = self._model(name, model)
        parsed = parse(query, {name: model.schema for name, model in known.items()}, tuple(parameters))
        if possible:
            parsed = replace(parsed, possible=True)
        parsed = read_as_of(parsed, as_of, version)
        paths = {name: model.stored for name, model in known.items()}
        return _BoundQuery(parsed, paths, dict(parameters), {name: one.schema for name, one in known.items()})

    def _model(self, name: str, given: Any) -> Model:
        """The model that a query calls ``name``."""
        if not isinstance(name, str):
            raise SessionError(
                f"streams: the name of a stream is a text, got {name!r} ({type(name).__name__})"
            )
        return given if isinstance(given, Model) else Model(_path_of_model(given, f"stream {name}"))

    def _spark_if_any(self) -> Callable[[], SparkSession] | None:
        return None if self.engine == "local" else lambda: self.spark

    def __repr__(self) -> str:
        if self.engine == "local":
            parts = ["engine='local'"]
        else:
            state = "started" if self._spark is not None else "not started"
            master = self._master or os.environ.get("PULSE_MASTER") or "local[*]"
            parts = [f"{master!r}, engine='spark'; Spark {state}"]
        streams = ", ".join(f"{name} = {str(model.path)!r}" for name, model in self._streams.items())
        return f"Session({'; '.join([*parts, *([f'streams {streams}'] if streams else [])])})"


class _BoundQuery(NamedTuple):
    query: Query
    paths: dict[str, ModelRef]
    parameters: dict[str, Any]
    schemas: dict[str, StreamSchema]


def _path_of_model(given: Any, where: str) -> Path:
    """The folder of a stored model; what to do with data that was not modelled yet."""
    if isinstance(given, (str, os.PathLike)):
        return Path(given)
    if isinstance(given, Model):
        return given.path
    kind = f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"
    raise SessionError(
        f"{where}: expected a Model or the path of a stored one, got {kind}; queries are of models: fit data first, "
        "model = session.fit(data, model={'x': 'linear'}, key=…, time=…, error=…)"
    )


def _folder(out: str | os.PathLike[str]) -> Path:
    """Where a model goes: a path, as a URL would be taken for a folder of that name."""
    if "://" in os.fspath(out):
        raise SessionError(
            f"fit: {out}: models lie in folders, on a cluster in one that all its machines see; object stores must be mounted "
            "(docs/cluster.md)"
        )
    return Path(out)


def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="pulse-model-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder) / uuid.uuid4().hex[:12]

"""Fit models and answer queries on them from Python.

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
    """Fit models and answer queries on them.

    Parameters
    ----------
    master : Spark master; default ``PULSE_MASTER``, else all cores of this machine
    engine : ``"spark"`` or ``"local"``; default ``PULSE_ENGINE``, else Spark
        Spark starts on first use; ``"local"`` does the same work in this process.
    spark : a running Spark session to use; it is not stopped by this one
    **conf : ``environment``, an archive for a cluster's workers, and Spark settings
        They are those of :func:`pulse.runtime.spark.session.session`.
    """

    def __init__(
        self,
        master: str | None = None,
        *,
        engine: str | None = None,
        spark: SparkSession | None = None,
        **conf: Any,
    ) -> None:
        # None: jobs may name their own.
        self._chosen_engine = engine or os.environ.get("PULSE_ENGINE") or None
        self.engine = self._chosen_engine or "spark"
        if self.engine not in ENGINES:
            raise SessionError(f"engine: expected {' or '.join(map(repr, ENGINES))}, got {self.engine!r}")
        self._master, self._conf, self._spark = master, conf, spark
        self._streams: dict[str, Model] = {}
        self._started = False  # whether this session started Spark, and has to stop it

    @property
    def spark(self) -> SparkSession:
        """Return the Spark session; start it on first use."""
        return self._spark_with({})

    def _spark_with(self, settings: Mapping[str, str]) -> SparkSession:
        """Return Spark with a job's settings: all of them if Spark is started here, else those that can change at run time."""
        from pulse.runtime.spark.session import is_running, session

        if self._spark is None:
            self._started = not is_running()
            self._spark = session(self._master, **{**settings, **self._conf})
        elif settings:
            session(**settings)  # type: ignore[arg-type]  # no setting has the name of one of its keywords
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
        """Open a stored model.

        Parameters
        ----------
        path : folder of the model
        version : a retained version; default the newest
        as_of : open the model as it was known at this time; default as known now
        """
        return Model(_path_of_model(path, "open"), version, as_of)

    def fit(
        self,
        data: Any,
        *,
        model: Mapping[str, str] | None = None,
        flow: Mapping[str, str | float] | None = None,
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
        where: str | None = None,
        max_speed: str | None = None,
        zone: str | None = None,
        session: str | None = None,
    ) -> Model:
        """Fit a model to a stream once, to query it many times.

        A table or frame has no arrival order: its tuples are sorted by key and time; tuples of one instant keep their order.
        Files are read in the order given. Late tuples, and with ``nonfinite="reject"`` tuples with a value that is not a number,
        are set aside with a :class:`~pulse.runtime.fit.rejects.SetAsideWarning`. If more than 1 % of the tuples are late, the fit
        is refused (:class:`~pulse.runtime.fit.rejects.LateTuplesError`) and writes nothing, unless ``late="aside"``.

        Parameters
        ----------
        data : paths of files, folders or patterns; a table; or a frame
            A Spark DataFrame, an Arrow table, a pandas or Polars frame, or any other object with ``__arrow_c_stream__``.
        model : maps each modelled attribute to its truth: ``linear``, ``step``, ``samples`` or ``flow``
        flow : maps the name of each computed flow to its arithmetic: ``{"notional": "price*size", "trades": 1}``
        key : name or names of the key columns; default those of the format, else none
        time : name of the time column; default that of the format
        error : bound on the value: one for all attributes (``"0.05%"``, ``0.01``, ``"0.05% or 0.001"``) or a mapping
        drift : bound on the integral, given like ``error``
        degree : 0 to 5, or ``"auto"``: constants or lines per segment
            Default ``"auto"`` where ``drift`` is bounded (except for ``linear`` with both bounds), else 1.
        max_gap : longest time between two tuples that the model bridges, in seconds or as ``"5 min"``; default no limit
        nonfinite : ``"reject"`` sets aside tuples with a value that is null or not finite, ``"hole"`` makes them holes
        late : ``"refuse"`` or ``"aside"``: what to do if more than 1 % of the tuples are late
        keep : name or names of unmodelled attributes to store
        points : store every tuple of attributes that are ``samples`` as it is; windows are then over tuples
        format : name of a file format or a :class:`~pulse.datasets.format.Format`; default detected from the first file
        out : folder of the model; default a temporary folder that lives as long as this process
        overwrite : replace the model in ``out``
        append : continue the model in ``out``; excludes ``overwrite``
        progress : called with (units done, rows read) during the fit
        for_query : query text; attributes without a bound get one that satisfies the query's ERROR WITHIN
        stream : name of the data in ``for_query``, default ``"S"``
        parameters : values of the parameters of ``for_query``
        keep_tuples : True for all, or a duration before the newest (``"2 h"``); default as in the model appended to, else none
            Store these tuples beside the model, so that they can be revised without the source.
        accents : log of changes of units and schema: a file, its lines, or accents
            The model is stored in the units of the stream's start; queries answer in the recorded units.
        splits : table of stock splits, from which accents are made
        where : condition on any columns of the data, ``"venue = 'N' and size > 0"``; rows for which it is not true are left out
            They are counted as filtered. Data appended to a model is filtered as the model's own was.
        max_speed : speed, ``"60 kn"``, ``"30 m/s"``, ``"110 km/h"``; default any
            Positions (x and y in metres, or lat and lon) that cannot be reached from their key's last kept one are set aside.
        zone : time zone of the stream, ``"America/New_York"``, which queries use where they name none; times stay in UTC
        session : code of an exchange, ``"XNYS"``: the model ends with each session, and rows outside of them are filtered
            ``[each session]`` and ``t in session`` use it where they name none.
        """
        from pulse.core.calendar import FOREVER, longest_silence
        from pulse.core.schema import StreamClock
        from pulse.operators.fit.spec import FitSpec
        from pulse.runtime.fit.inputs import FitEngine
        from pulse.runtime.fit.pipeline import FitOptions
        from pulse.runtime.fit.rejects import check_policy, warn_of
        from pulse.runtime.fit.request import (
            FitRequest,
            completed,
            remembered_clock,
            remembered_filter,
            remembered_format,
        )
        from pulse.runtime.fit.retention import parse_keep

        if overwrite and append:
            raise SessionError("fit: overwrite and append exclude each other; choose one of them")
        clock, earlier = StreamClock.of(zone, session), None
        if append and out is not None:
            clock = remembered_clock(_folder(out), zone, session)
            where = remembered_filter(_folder(out)) if where is None else where
            earlier = remembered_format(_folder(out))
        request = FitRequest.of(
            data,
            model=model or {},
            flow=flow,
            key=(key,) if isinstance(key, str) else None if key is None else tuple(key),
            time=time,
            keep=(keep,) if isinstance(keep, str) else tuple(keep),
            format=format,
            points=points,
            where=where,
            clock=clock,
            earlier=earlier,
        )
        gap = None if max_gap is None else parse_duration(max_gap)
        if clock.session and not points:
            gap = min(gap or FOREVER, longest_silence(clock.session))
        if for_query is not None:
            chosen = request.bounds_for(for_query, stream, dict(parameters or {}), gap)
            error, drift = completed(error, drift, chosen, request.schema.modelled_names)
        spec = FitSpec.of(
            request.schema,
            error=error,
            drift=drift,
            degree=degree,
            max_gap=gap,
            nonfinite=nonfinite,
            max_speed=max_speed,
        )
        return request.model(
            _folder(out) if out is not None else _temporary_folder(),
            spec,
            FitEngine(self.engine == "local", lambda: self.spark),
            FitOptions(
                overwrite,
                append,
                parse_keep(keep_tuples),
                check_policy(late),
                on_counts=warn_of,
                progress=progress,
            ),
            request.accents(accents, splits),
        )

    def fit_apart(
        self,
        data: Any,
        *,
        model: Mapping[str, str],
        optional: str | Iterable[str],
        out: str | os.PathLike[str],
        error: Any = None,
        drift: Any = None,
        max_speed: str | None = None,
        **options: Any,
    ) -> dict[str, Model]:
        """Fit attributes that tuples may lack in models of their own, so that a missing value costs its attribute, not the tuple.

        The model of all other attributes is in ``out``, that of an optional one, such as ``cog``, in ``out-cog``. Returns the
        models by the name of their optional attribute; the first has an empty name. Queries join them by key.

        Parameters
        ----------
        data : as of :meth:`fit`
        model : maps each modelled attribute to its truth
        optional : name or names of modelled attributes that tuples may lack: null or not finite
        out : folder of the model of the other attributes
        error : bound on the value, as of :meth:`fit`
        drift : bound on the integral, given like ``error``
        max_speed : as of :meth:`fit`, for the model of the other attributes, which has the positions
        **options : as of :meth:`fit`
        """
        from pulse.runtime.fit.optional import parts_of

        names = (optional,) if isinstance(optional, str) else tuple(optional)
        parts = parts_of(_folder(out), model, names, error, drift)
        return {
            name: self.fit(
                data,
                model=part.model,
                out=part.out,
                error=part.error,
                drift=part.drift,
                max_speed=None if name else max_speed,
                **({**options, "flow": None} if name else options),
            )
            for name, part in parts.items()
        }

    def segments(
        self,
        data: Any,
        schema: StreamSchema | None = None,
        *,
        origin: Any = None,
        err: Any = None,
        keys: Mapping[str, Any] | None = None,
        out: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
    ) -> Model:
        """Take segments that were made elsewhere as a model, with the bounds that their maker states.

        Rows have the columns of a stored model (docs/format.md), in any order if there is a schema; ``a_drift`` may be left out.
        A table of an answer's segments and a file that ``pulse query --segments --out`` wrote are such rows. Every row is
        checked, and an error names the first that is no segment or overlaps another of its key. A DataFrame is checked and stored
        by Spark's workers.

        Parameters
        ----------
        data : a SegmentBatch, a table or frame, paths of Parquet files, or splines
            Splines are of scipy (``PPoly``, ``CubicSpline``, ``BSpline``): one, or by attribute with the same knots, of one key.
        schema : the attributes by role; default that of the batch, else inferred from the columns' order, with time ``t``
        origin : of splines: the time of their argument 0, which is in seconds
        err : of splines: the bound, one for all attributes or a mapping
        keys : of splines: the key, by column
        out : folder of the model; default a temporary folder that lives as long as this process
        overwrite : replace the model in ``out``
        """
        from pulse.runtime.results.segment_input import store_segments

        folder = _folder(out) if out is not None else _temporary_folder()
        return store_segments(data, schema, folder, origin=origin, err=err, keys=keys, overwrite=overwrite)

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
        """Correct a stored model in place by revisions of its tuples; the change is atomic.

        Revisions that match no tuple are set aside with their reason, and counted.

        Parameters
        ----------
        model : a model or its folder
        revisions : files, a table or frame with a column ``kind``, or Revisions
            Files are a changelog with ``kind`` +I, -U, +U, -D; Debezium events; TAQ corrections; or AIS reports with arrival.
        keep : retain the previous version, and when each revision became known
        known : column with the time since when each revision is known
        reader : ``changelog``, ``debezium``, ``taq``, ``ais`` or ``late``; default detected from the columns
        time_unit : ``s``, ``ms``, ``us`` or ``ns``, where times are numbers since 1970
        dry : only count, change nothing
        progress : called with (done, total)
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
        """Register a stored model as a stream for all queries of this session."""
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
        """Answer a query on stored models.

        Answers on streams with accents are in the units in force at each instant. A query that cannot continue after an accent
        raises :class:`~pulse.runtime.accents.query_units.QueryAbortedError`; its ``emitted`` holds the answer up to the accent.

        Parameters
        ----------
        query : text of the query
        streams : models by stream name, in addition to the registered ones
        parameters : values of the query's parameters ``:name``
        possible : the same as ``WITH POSSIBLE``
        lineage : add to each result segment the stored segments that caused it
        as_of : the same as ``AS OF`` a time, for streams whose version the query does not choose itself
        version : the same as ``AS OF VERSION``: one for all such streams, or by stream
        accents : accent logs by stream (one log if there is only one stream), for models fitted without theirs
        evolution : ``"evolve"``, ``"exception"``, ``"ignore"``, or a mapping of add, drop, alter to these
            One policy for all streams, or one by stream.
        accumulate : if False, an operator aborts where its output cannot express an accent, instead of holding the accent back
        later : the logs in ``accents`` follow those stored in the models, to preview their effect (:meth:`Answer.accents`)
        **more : further parameters of the query
        """
        from pulse.runtime.accents.query_units import evolution_of
        from pulse.runtime.results.answer import Answer
        from pulse.runtime.results.notes import warn_of_units

        bound = self._bind(query, streams, {**(parameters or {}), **more}, possible, as_of, version)
        made = bound.query.bind(bound.parameters)
        warn_of_units(made.plan)
        return Answer(
            made,
            bound.paths,
            given=bound.parameters,
            spark=self._spark_if_any(),
            lineage=lineage,
            evolution=evolution_of(bound.schemas, accents, evolution, accumulate=accumulate, later=later),
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
        """Return the changes of a query's results that are due to corrections of the models.

        Old and new results are in the units in force at their instants. The other parameters are those of :meth:`sql`.

        Parameters
        ----------
        since : a version, versions by stream, or a time: the old results
        version : version of the new results; default the newest
        as_of : time of the new results. Between two times only data present at the first is compared: later data is no correction
        mode : ``upstream``, ``downstream`` or ``adaptive``: how segments are revised where there is a choice
        results : old result segments (a table or Parquet file), patched instead of recomputed
        """
        from pulse.runtime.accents.query_units import evolution_of
        from pulse.runtime.results.answer_diff import RevisedAnswer

        bound = self._bind(query, streams, {**(parameters or {}), **more}, possible)
        return RevisedAnswer(
            bound.query.bind(bound.parameters),
            bound.paths,
            since,
            version=version,
            as_of=as_of,
            spark=self._spark_if_any(),
            mode=mode,
            results=results,
            evolution=evolution_of(bound.schemas, accents, evolution, accumulate=accumulate),
        )

    def explain(
        self,
        query: str,
        *,
        streams: Mapping[str, Model | str | os.PathLike[str]] | None = None,
        parameters: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Explanation:
        """Explain a query before it runs: plan, equation systems, fragments. Parameters without a value stay open.

        The result is a text that notebooks show as it is; its ``sections`` are lines by title.
        """
        from pulse.plan.explain import explain
        from pulse.runtime.results.answer import Answer, degrees

        given = {**(parameters or {}), **more}
        bound = self._bind(query, streams, given, False)
        known = bound.query.parameters
        if not set(known) <= set(given):
            return explain(bound.query, degrees(bound.paths))
        return Answer(bound.query.bind(given), bound.paths, given=given).explain()

    def sweep(
        self,
        query: str,
        *,
        streams: Mapping[str, Model | str | os.PathLike[str]] | None = None,
        parameters: Mapping[str, Any] | None = None,
        possible: bool = False,
        **more: Any,
    ) -> Sweep:
        """Answer one query for all combinations of its parameters' values, in one pass over the models.

        ``session.sweep(query, short=[5, 10, 20], long=range(30, 301, 30))``; a single value stays fixed. The other parameters are
        those of :meth:`sql`.
        """
        from pulse.runtime.sweep.driver import ParameterGrid, Sweep

        given = {**(parameters or {}), **more}
        bound = self._bind(query, streams, given, possible)
        return Sweep(bound.query, ParameterGrid.of(given), bound.paths, spark=self._spark_if_any())

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
        """Run a predictive job: it emits results before the data arrives, and only validates most tuples.

        The job runs on this session's engine, or on the one that it names if the session was given none. Tables without a
        ``sink`` store their results for :meth:`JobRun.changes` and :meth:`JobRun.holds`, with the checkpoint or as long as this
        process lives. On Spark, a job without a checkpoint starts from scratch each time, as in process.

        Parameters
        ----------
        job : path of a TOML file, its tables as nested dictionaries, or a Job
        once : process the available data and return, default True
            If False, run in the background until stopped: ``with session.run(job, once=False) as run: run.wait(60)``.
        folder : folder that relative paths of a job given as dictionaries start from
        frames : streaming DataFrames by stream, for streams whose source is ``frame``
        on_batch : called with every batch of results, a :class:`~pulse.JobBatch`
        on_status : called with the figures after each batch
        """
        from pulse.runtime.jobs.run import run_job

        return run_job(
            job,
            engine=self._chosen_engine,
            spark=self._spark_with,
            once=once,
            folder=folder,
            frames=frames,
            on_batch=on_batch,
            on_status=on_status,
        )

    def _bind(
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
        """Return the model of the stream ``name``."""
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
    """Return the folder of a stored model; for data that is not modelled yet, raise an error with advice."""
    if isinstance(given, (str, os.PathLike)):
        return Path(given)
    if isinstance(given, Model):
        return given.path
    kind = f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"
    raise SessionError(
        f"{where}: expected a Model or the path of a stored one, got {kind}; queries are of models: fit data first, "
        "model = session.fit(data, model={'x': 'linear'}, key=…, time=…, error=…); segments made elsewhere: "
        "session.segments(data)"
    )


def _folder(out: str | os.PathLike[str]) -> Path:
    """Return the path to write a model to; refuse URLs, which would become local folders of that name."""
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

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

from pulse.core import StreamSchema, parse_duration
from pulse.core.arrow_types import canonical_type
from pulse.core.errors import PulseError, unknown_column
from pulse.datasets.counts import Counts
from pulse.datasets.format import Format
from pulse.datasets.registry import detect, get_format
from pulse.operators.fit_spec import FitSpec
from pulse.operators.tuples import check_columns, needed_columns
from pulse.runtime import local_modelling
from pulse.runtime.fit_history import parse_keep
from pulse.runtime.fit_model import FitOutcome, Progress, make_model
from pulse.runtime.fit_work import FileJob, FitJob
from pulse.store.accents import continued, log_from
from pulse.store.manifest import FILE, Source
from pulse.store.model import Model
from pulse.store.publish import check_apart, check_free
from pulse.store.sources import remember
from pulse.store.stored import Stored
from pulse.stream.log import AccentLog

if TYPE_CHECKING:
    from pulse.plan.query import Query
    from pulse.runtime.answer import Answer
    from pulse.runtime.fit_for import Bounds
    from pulse.runtime.frames import DataFrame
    from pulse.runtime.revise import Outcome
    from pulse.runtime.revised import RevisedAnswer
    from pulse.runtime.spark import SparkSession
    from pulse.runtime.sweep import Sweep

ENGINES = ("spark", "local")


class SessionError(PulseError, ValueError):
    """The session was asked for something it cannot do."""


class Session:
    """Fits models and answers queries on them.

    ``engine="spark"`` starts Spark on first use; ``"local"`` does the same work in this process. ``master`` is Spark's:
    that of ``PULSE_MASTER`` if none is given, else all cores of this machine. Other keywords are as in
    :func:`pulse.runtime.spark.session`: ``environment``, an archive for a cluster's workers, and settings of Spark's.
    """

    def __init__(
        self,
        master: str | None = None,
        *,
        engine: str = "spark",
        spark: SparkSession | None = None,
        **conf: Any,
    ) -> None:
        if engine not in ENGINES:
            raise SessionError(f"engine: expected {' or '.join(map(repr, ENGINES))}, got {engine!r}")
        self.engine = engine
        self._master, self._conf, self._spark = master, conf, spark
        self._streams: dict[str, Model] = {}
        self._started = False  # whether it is ours to stop

    @property
    def spark(self) -> SparkSession:
        """The Spark session; started when first asked for."""
        if self._spark is None:
            from pulse.runtime.spark import is_running, session

            self._started = not is_running()
            self._spark = session(self._master, **self._conf)
        return self._spark

    def stop(self) -> None:
        """Stop Spark, if this session started it."""
        if self._spark is not None and self._started:
            self._spark.stop()
            self._spark, self._started = None, False

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def open(self, path: str | os.PathLike[str]) -> Model:
        """A stored model."""
        return Model(Path(path))

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

        ``data``: paths of files, folders or patterns; or a Spark DataFrame, a pandas frame or an Arrow table.
        ``model`` maps attributes to their truth (``linear``, ``step``, ``samples``). ``error`` bounds the value,
        ``drift`` the integral; each one bound for all attributes (``"0.05%"``, ``0.01``, ``"0.05% or 0.001"``)
        or a mapping. ``degree`` is 0 to 5 or ``"auto"``, constants or lines per segment: the default for bounds on
        integrals alone; else 1. ``keep`` names unmodelled attributes. Without ``out`` the model lives as long as this process.
        With ``points`` every tuple of attributes that are ``samples`` is kept as it is, and windows are over tuples.
        ``for_query`` chooses the bounds of the attributes that have none so that this query's ERROR WITHIN holds; the query
        calls the data ``stream``, and its ``parameters`` are given here. ``keep_tuples`` keeps the tuples beside the model, all
        (True) or those of so long before the newest (``"2 h"``), so that they can be revised when the source is gone.
        ``accents``, a log (a file, its lines, or accents), and ``splits``, a table of stock splits, say where units and schema
        change: the model is then in the units of the stream's start, and queries answer in those recorded.
        """
        if overwrite and append:
            raise SessionError("fit: overwrite and append exclude each other; say one of them")
        keys = (key,) if isinstance(key, str) else None if key is None else tuple(key)
        kept = (keep,) if isinstance(keep, str) else tuple(keep)
        order = _Order(self, data, model, keys, time, kept, format, points)
        if for_query is not None:
            chosen = order.bounds_for(for_query, stream, dict(parameters or {}), max_gap)
            error, drift = _completed(error, drift, chosen, order.schema().modelled_names)
        spec = FitSpec.of(
            order.schema(),
            error=error,
            drift=drift,
            degree=degree,
            max_gap=None if max_gap is None else parse_duration(max_gap),
            nonfinite=nonfinite,
        )
        target = _folder(out) if out is not None else _temporary_folder()
        check_free(target.absolute(), replace=overwrite or append)
        if overwrite and order.format is not None:
            check_apart(target, (unit.path for unit in order.units))
        order.accents = log_from(accents, splits, spec.schema, order.columns.names, raw=True)
        if append and (target / FILE).is_file():
            old = self.open(target)
            order.accents = continued(old.accents, order.accents, old.manifest.end)
        return make_model(
            target,
            spec,
            order.sources(),
            lambda staging, generation, ends, keep: order.run(spec, staging, generation, ends, keep),
            overwrite=overwrite,
            append=append,
            statements=order.statements(),
            progress=progress,
            keep_tuples=parse_keep(keep_tuples),
            source=order.source(),
            accents=order.accents,
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
        from pulse.runtime.revise import revise
        from pulse.runtime.revise_input import revisions_from

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
        found = model if isinstance(model, Model) else self.open(model)
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
        accent raises :class:`~pulse.runtime.accents.QueryAbortedError` with its answer before it as ``emitted``.
        """
        from pulse.runtime.accents import evolution_of
        from pulse.runtime.answer import Answer

        order = self._order(query, streams, {**(parameters or {}), **more}, possible, as_of, version)
        return Answer(
            order.query.bind(order.parameters),
            order.paths,
            asked=order.query,
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
        from pulse.runtime.accents import evolution_of
        from pulse.runtime.revised import RevisedAnswer

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
    ) -> str:
        """What a query becomes before it runs: plan, equation systems, fragments. Parameters that are not given stay open."""
        from pulse.plan.explain import explain
        from pulse.runtime.answer import Answer, degrees

        given = {**(parameters or {}), **more}
        order = self._order(query, streams, given, False)
        known = order.query.parameters
        if not set(known) <= set(given):
            return explain(order.query, degrees(order.paths))
        return Answer(order.query.bind(given), order.paths).explain()

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
        from pulse.runtime.sweep import Grid, Sweep

        given = {**(parameters or {}), **more}
        order = self._order(query, streams, given, possible)
        return Sweep(order.query, Grid.of(given), order.paths, spark=self._spark_if_any())

    def _order(
        self,
        query: str,
        streams: Mapping[str, Model | str | os.PathLike[str]] | None,
        parameters: Mapping[str, Any],
        possible: bool,
        as_of: Any = None,
        version: int | Mapping[str, int] | None = None,
    ) -> _Question:
        from pulse.language import parse
        from pulse.plan.versions import read_as_of

        known = dict(self._streams)
        for name, model in (streams or {}).items():
            known[name] = model if isinstance(model, Model) else self.open(model)
        parsed = parse(query, {name: model.schema for name, model in known.items()}, tuple(parameters))
        if possible:
            parsed = replace(parsed, possible=True)
        parsed = read_as_of(parsed, as_of, version)
        paths = {name: model.stored for name, model in known.items()}
        return _Question(parsed, paths, dict(parameters), {name: one.schema for name, one in known.items()})

    def _spark_if_any(self) -> Callable[[], SparkSession] | None:
        return None if self.engine == "local" else lambda: self.spark

    def __repr__(self) -> str:
        state = "started" if self._spark is not None else "not started"
        master = self._master or os.environ.get("PULSE_MASTER") or "local[*]"
        return f"Session({master!r}, engine={self.engine!r}; Spark {state})"


class _Question(NamedTuple):
    query: Query
    paths: dict[str, Stored]
    parameters: dict[str, Any]
    schemas: dict[str, StreamSchema]


class _Order:
    """What is to be fitted, whatever it comes from."""

    def __init__(
        self,
        session: Session,
        data: Any,
        model: Mapping[str, str],
        key: Any,
        time: str | None,
        keep: tuple[str, ...],
        format: Any,
        points: bool = False,
    ) -> None:
        self.session, self.model, self.keep, self.points = session, model, keep, points
        self.format: Format | None = None
        self.table: pa.Table | None = None
        self.frame: DataFrame | None = None
        self.accents: AccentLog | None = None
        if _is_paths(data):
            self.paths = data
            self.format = _format_for(data, format, key, time)
            self.key, self.time = self.format.key, self.format.time
            self.units = tuple(self.format.units(data))
            self.columns = self._columns_of(self.format)
        else:
            self.key, self.time = key or (), time
            self._take_frame(data)
        if not self.time:
            raise SessionError("fit: which column is the time? Name it: time='t' (--time t)")

    def _columns_of(self, format: Format) -> pa.Schema:
        """Those of the first file, and of later ones what is asked for and came only then."""
        paths = list(dict.fromkeys(unit.path for unit in self.units))
        found = format.schema(paths[0])
        for path in paths[1:]:
            missing = [name for name in (*self.model, *self.keep) if name not in found.names]
            if not missing:
                break
            more = format.schema(path)
            for name in missing:
                if name in more.names:
                    found = found.append(more.field(name))
        return found

    def _take_frame(self, data: Any) -> None:
        if isinstance(data, (pa.Table, pa.RecordBatch)):
            self.table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        elif type(data).__module__.partition(".")[0] == "pandas":
            self.table = _from_pandas(data)
        elif type(data).__module__.startswith("pyspark."):
            from pulse.runtime.frames import arrow_schema_of

            self.frame = data
            self.columns = arrow_schema_of(data)
            return
        else:
            raise SessionError(
                f"fit: expected paths, a Spark DataFrame, a pandas frame or an Arrow table, got {type(data).__name__}"
            )
        self.columns = self.table.schema

    def schema(self) -> StreamSchema:
        """The stream's schema, with types from the data."""
        assert self.time is not None
        for name in (*self.key, self.time, *self.model, *self.keep):
            if name not in self.columns.names:
                raise unknown_column(name, self.columns.names, self._where())
        schema = StreamSchema.of(
            key={name: _plain(self.columns.field(name).type, name) for name in self.key},
            time=self.time,
            modelled=self.model,
            unmodelled={name: _plain(self.columns.field(name).type, name) for name in self.keep},
            points=self.points,
        )
        check_columns(self.columns, schema, self._where())
        return schema

    def bounds_for(
        self, query: str, stream: str, parameters: dict[str, Any], max_gap: str | float | None
    ) -> Bounds:
        """The bounds that a query needs, found with an exact model of the first tuples."""
        from pulse.language import parse
        from pulse.runtime.fit_for import TRIAL, bounds_for

        asked = parse(query, {stream: self.schema()}, tuple(parameters)).bind(parameters)
        with tempfile.TemporaryDirectory(prefix="pulse-trial-") as folder:
            trial = Session(engine="local").fit(
                self._first(TRIAL),
                model=self.model,
                key=self.key,
                time=self.time,
                error=0,
                keep=self.keep,
                max_gap=max_gap,
                out=Path(folder) / "trial",
            )
            return bounds_for(asked, stream, trial)

    def _first(self, rows: int) -> pa.Table:
        """The first tuples."""
        if self.table is not None:
            return self.table.slice(0, rows)
        if self.frame is not None:
            return self.frame.limit(rows).toArrow()
        assert self.format is not None
        taken: list[pa.RecordBatch] = []
        for batch in self.format.batches(self.units[0], needed_columns(self.schema()), counts=Counts()):
            taken.append(batch.slice(0, rows - sum(one.num_rows for one in taken)))
            if sum(one.num_rows for one in taken) >= rows:
                break
        return pa.Table.from_batches(taken)

    def sources(self) -> tuple[Source, ...]:
        """The files, with their sizes and rows where known."""
        if self.format is None:
            rows = self.table.num_rows if self.table is not None else 0
            nbytes = self.table.nbytes if self.table is not None else 0
            return (Source(self._where(), nbytes, rows),)
        rows_of: dict[str, int] = {}
        for unit in self.units:
            rows_of[unit.path] = rows_of.get(unit.path, 0) + (unit.rows or 0)
        return tuple(
            Source(str(Path(path).absolute()), Path(path).stat().st_size, rows)
            for path, rows in rows_of.items()
        )

    def source(self) -> dict[str, Any]:
        """Where the tuples can be read again."""
        return remember(
            self.format, list(dict.fromkeys(unit.path for unit in self.units)) if self.format else ()
        )

    def statements(self) -> list[str]:
        """What reading does beyond reading."""
        return [] if self.format is None else self.format.statements()

    def run(
        self, spec: FitSpec, staging: Path, generation: int, ends: pa.Table | None, keep_tuples: bool
    ) -> FitOutcome:
        """Fit with the session's engine."""
        if self.format is not None:
            job = FileJob(
                spec,
                str(staging),
                generation,
                keep_tuples=keep_tuples,
                accents=self.accents,
                format=self.format,
                units=self.units,
            )
            if self.session.engine == "local":
                return local_modelling.fit_files(job, ends)
            from pulse.runtime import modelling

            spark = self.session.spark
            rows = sum(unit.rows or unit.size // 40 for unit in self.units)
            return modelling.fit_files(
                spark, job, ends, modelling.partitions_for(rows, spark.sparkContext.defaultParallelism)
            )
        plain = FitJob(spec, str(staging), generation, keep_tuples=keep_tuples, accents=self.accents)
        if self.table is not None:
            return local_modelling.fit_table(plain, self.table, ends)
        from pulse.runtime import modelling

        assert self.frame is not None
        spark = self.session.spark
        return modelling.fit_frame(spark, plain, self.frame, ends, spark.sparkContext.defaultParallelism)

    def _where(self) -> str:
        if self.format is not None:
            return self.units[0].path
        return "the table" if self.table is not None else "the DataFrame"


def _completed(error: Any, drift: Any, chosen: Bounds, names: tuple[str, ...]) -> tuple[Any, Any]:
    """The bounds that were given, and for attributes without one those that were chosen."""
    given = [one if isinstance(one, Mapping) else dict.fromkeys(names, one) for one in (error, drift)]
    bounded = {name for one in given for name, bound in one.items() if bound is not None}
    made = [
        {
            **{n: b for n, b in own.items() if b is not None},
            **{n: b for n, b in new.items() if n not in bounded},
        }
        for own, new in zip(given, chosen, strict=True)
    ]
    return made[0] or None, made[1] or None


def _from_pandas(frame: Any) -> pa.Table:
    if not hasattr(frame, "columns"):
        raise SessionError(f"fit: expected a pandas frame, got a {type(frame).__name__}")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as e:
        raise SessionError(f"fit: the frame has no Arrow form: {e}; give its columns one type each") from None


def _is_paths(data: Any) -> bool:
    if isinstance(data, (str, os.PathLike)):
        return True
    return isinstance(data, (list, tuple)) and all(isinstance(one, (str, os.PathLike)) for one in data)


def _format_for(paths: Any, format: str | Format | None, key: Any, time: str | None) -> Format:
    roles = {name: value for name, value in (("key", key), ("time", time)) if value is not None}
    if isinstance(format, Format):
        found = format
    else:
        first = paths if isinstance(paths, (str, os.PathLike)) else next(iter(paths), "")
        found = get_format(format or detect(os.fspath(first)), **roles)
    return found.prepare(paths)


def _plain(type_: pa.DataType, name: str) -> pa.DataType:
    return canonical_type(type_.value_type if pa.types.is_dictionary(type_) else type_, what=name)


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

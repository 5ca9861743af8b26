"""Read a predictive job from a small TOML file, or from tables as it has them.

::

    query = "select symbol, price from S where price > 100"       # or "@file.sql"
    checkpoint = "checkpoint"

    [streams.S]
    source = "files"
    path = "ticks"
    key = "symbol"
    time = "t"
    model = { price = "step" }
    error = "1%"
    horizon = "60 s"

    [sink]
    kind = "parquet"
    path = "results"

Errors name the file, the table, the key and the expected value. Paths are relative to the file. Independent of Spark.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pulse.core.errors import PulseError
from pulse.core.time import parse_duration
from pulse.operators.inversion import split_heuristics
from pulse.runtime.accents.declared_options import DeclaredKeysError, Keys, declared_keys
from pulse.runtime.jobs.spec import DEFAULT_BUCKETS, DEFAULT_LATENESS, is_path
from pulse.runtime.jobs.spec import Job as Job
from pulse.runtime.jobs.spec import SinkJob as SinkJob
from pulse.runtime.jobs.spec import StreamJob as StreamJob
from pulse.runtime.jobs.toml_tables import JobError as JobError
from pulse.runtime.jobs.toml_tables import JobTable, checked, option
from pulse.stream.accents.policy import Policy
from pulse.validation.revisions.history import BY_RADIUS

SOURCES = ("files", "kafka", "socket", "rate", "frame")
FORMATS = ("parquet", "csv", "json")
SINKS = ("console", "parquet", "kafka", "alert", "none")
ENGINES = ("spark", "local")
ON_ACCENT = ("hold", "abort")


def read_job(file: str | Path) -> Job:
    """Read a job from a TOML file."""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise JobError(f"{file}: cannot read the job: {e}") from None
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as e:  # also a number of too many digits, and too deep nesting
        raise JobError(f"{file}: not valid TOML: {e}") from None
    return job_of(values, where=str(file), folder=path.parent)


def job_of(values: Mapping[str, Any], *, where: str = "job", folder: str | Path = ".") -> Job:
    """Make a job from nested tables; relative paths are relative to ``folder``."""
    folder = Path(folder)
    top = JobTable(where, "", values, (*_names(Job, "where"), "watermark"))
    streams = {
        name: _stream(JobTable(where, f"streams.{name}", one, _names(StreamJob, "name")), name, folder)
        for name, one in top.table("streams").items()
    }
    if not streams:
        raise JobError(f"{where}: expected a table [streams.NAME] for each stream of the query, got none")
    job = Job(
        query=_query(top.text("query"), where, folder),
        streams=streams,
        sink=_sink(JobTable(where, "sink", top.table("sink"), _names(SinkJob)), folder),
        parameters=top.table("parameters"),
        checkpoint=_path(top.text("checkpoint", None), folder),
        engine=top.one_of("engine", ENGINES, "spark"),
        split=top.text("split", "restless"),
        buckets=top.whole("buckets", DEFAULT_BUCKETS),
        lateness=top.duration(
            "lateness", top.duration("watermark", parse_duration(DEFAULT_LATENESS), write=DEFAULT_LATENESS)
        ),
        trigger=top.duration("trigger", None),
        spark=checked(_settings(top.table("spark")), f"{where}, [spark]"),
        where=where,
        cell=top.size("cell"),
        on_accent=top.one_of("on_accent", ON_ACCENT, "hold"),
    )
    _check_places(job)
    if job.on_accent != "hold" and not any(one.follows for one in streams.values()):
        raise top.wrong("on_accent", "a stream with 'accents' or 'splits'", "none")
    try:
        split_heuristics.get(job.split)
    except PulseError as e:
        raise JobError(f"{where}: split: {e}") from None
    return job


def _stream(table: JobTable, name: str, folder: Path) -> StreamJob:
    source = table.one_of("source", SOURCES)
    needs_path = source == "files"
    path = table.text("path", ... if needs_path else None)
    columns = table.table("columns")
    for column, type_ in columns.items():
        if not isinstance(type_, str):
            raise table.wrong(f"columns.{column}", "a type such as 'double'", repr(type_))
    model = table.table("model", required=True)
    for attribute, truth in model.items():
        if truth not in ("step", "linear", "samples"):
            raise table.wrong(f"model.{attribute}", "one of step, linear, samples", truth)
    error = table.any("error")
    made = StreamJob(
        name=name,
        source=source,
        path=_path(path, folder),
        format=table.one_of("format", FORMATS, _format(path, source)),
        options=table.options("options"),
        columns=columns or None,
        key=table.names("key"),
        time=table.text("time"),
        model=model,
        keep=table.names("keep"),
        predict=table.one_of("predict", ("hold", "trend"), "hold"),
        memory=table.whole("memory", 8),
        max_gap=None if table.duration("max_gap", None) is None else table.any("max_gap"),
        error=error,
        horizon=table.duration_text("horizon"),
        kind=table.text("kind", None),
        revisions=_revisions(table),
        accents=_accents(table, folder),
        policy=_policy(table),
        splits=_path(table.text("splits", None), folder),
        keys=_keys(table, folder),
        adds=table.names("adds") or None,
    )
    _check_accents(table, made)
    if source in ("kafka", "socket") and not columns:
        raise table.wrong("columns", f"types by name, as {source} does not provide them", "nothing")
    return made


def _check_places(job: Job) -> None:
    """Check that names of streams can name folders, and that the job does not read its own output."""
    for name, one in job.streams.items():
        if name.startswith(".") or any(sign in name for sign in "/\\\0"):
            raise JobError(
                f"{job.where}: [streams.{name!r}]: expected a name that can also name a folder, got one with '/' or a leading '.'"
            )
        written = {"sink": job.sink.path, "checkpoint": job.checkpoint, "aside": job.sink.aside}
        for what, path in written.items():
            if path is not None and one.source == "files" and one.path is not None and _reads(one.path, path):
                raise JobError(
                    f"{job.where}: {what}: expected a path outside of {one.path}, which [streams.{name}] reads, got {path}: the "
                    "job would read its own output"
                )


def _reads(source: str, written: str) -> bool:
    """Return whether a stream's folder includes a written one; names with a leading '_' or '.' are not read."""
    if "://" in source or "://" in written:
        return False
    inside, outside = Path(written).resolve(), Path(source).resolve()
    return inside.is_relative_to(outside) and not any(
        part.startswith(("_", ".")) for part in inside.relative_to(outside).parts
    )


def _check_accents(table: JobTable, made: StreamJob) -> None:
    """Check that the keys about accents are consistent."""
    for key in ("policy", "keys", "adds"):
        if table.any(key) is not None and not made.follows:
            raise table.wrong(key, "'accents' or 'splits' beside it", "none")
    if made.splits is not None and made.accent_column is not None:
        raise table.wrong(
            "splits",
            "accents in a log or none beside it, as splits apply by time and accents in rows by position",
            f"the column '{made.accents}'",
        )
    for name in made.adds or ():
        if name not in made.model:
            raise table.wrong("adds", f"modelled attributes, {', '.join(made.model)}", repr(name))


def _keys(table: JobTable, folder: Path) -> Keys | None:
    given = table.any("keys")
    try:
        return None if given is None else declared_keys(given, table.names("key"), folder)
    except DeclaredKeysError as e:
        expected, _, got = str(e).partition(", got ")
        raise table.wrong("keys", expected, got) from None


def _accents(table: JobTable, folder: Path) -> str | None:
    given: str | None = table.text("accents", None)
    return _path(given, folder) if given is not None and is_path(given) else given


def _policy(table: JobTable) -> Any:
    given = table.any("policy")
    try:
        Policy.of(given)
    except (PulseError, AttributeError) as e:
        raise table.wrong(
            "policy", "evolve, exception or ignore, or a table by add, drop and alter", f"{given!r} ({e})"
        ) from None
    return given


def _revisions(table: JobTable) -> int | str | None:
    """Read how long tuples may be revised; with a kind column at least as long as windows reach."""
    given = table.any("revisions")
    if given == BY_RADIUS or (given is None and table.any("kind") is not None):
        return BY_RADIUS
    span: int | None = table.duration("revisions", None, write="10 min")
    return span


def _sink(table: JobTable, folder: Path) -> SinkJob:
    kind = table.one_of("kind", SINKS, "console")
    return SinkJob(
        kind,
        _path(table.text("path", ... if kind == "parquet" else None), folder),
        table.options("options"),
        _path(table.text("aside", None), folder),
    )


def _query(given: str, where: str, folder: Path) -> str:
    if not given.startswith("@"):
        return given
    try:
        return (folder / given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise JobError(f"{where}: query: cannot read {given}: {e}") from None


def _path(given: str | None, folder: Path) -> str | None:
    if given is None or "://" in given:
        return given
    return str((folder / given).absolute())


def _format(path: str | None, source: str) -> str:
    """Infer the format from the path's ending; else JSON for sources of lines, Parquet for others."""
    ending = Path(path).suffix.lstrip(".").lower() if path else ""
    if ending in FORMATS:
        return ending
    return "json" if source in ("kafka", "socket") else "parquet"


def _settings(table: Mapping[str, Any], prefix: str = "spark") -> dict[str, str]:
    """Flatten Spark's settings; nested tables stand for dots: ``spark.sql.shuffle.partitions`` with or without quotes."""
    found: dict[str, str] = {}
    for key, value in table.items():
        name = key if key == "spark" or key.startswith("spark.") else f"{prefix}.{key}"
        if isinstance(value, Mapping):
            found |= _settings(value, name)
        else:
            found[name] = option(value)
    return found


def _names(of: type, *but: str) -> tuple[str, ...]:
    """Return the keys of a table: the fields of its job class, except those a file does not set."""
    return tuple(one.name for one in fields(of) if one.name not in but)

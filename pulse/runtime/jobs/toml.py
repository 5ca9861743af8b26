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
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pulse.core.errors import PulseError
from pulse.core.time import parse_duration
from pulse.datasets.areas import is_area_file
from pulse.operators.inversion import split_heuristics
from pulse.runtime.accents.declared_options import DeclaredKeysError, Keys, declared_keys
from pulse.runtime.jobs.secrets import check_secrets
from pulse.runtime.jobs.spec import DEFAULT_LATENESS, Engine, Format, is_path
from pulse.runtime.jobs.spec import Job as Job
from pulse.runtime.jobs.spec import SinkJob as SinkJob
from pulse.runtime.jobs.spec import StreamJob as StreamJob
from pulse.runtime.jobs.toml_tables import JobError as JobError
from pulse.runtime.jobs.toml_tables import JobTable, option
from pulse.stream.accents.policy import Policy
from pulse.validation.revisions.history import BY_RADIUS

ENGINES = get_args(Engine)


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
    top = JobTable(where, "", values, Job, but="where", more=("watermark",))
    streams = {
        name: _stream(JobTable(where, f"streams.{name}", one, StreamJob, but="name"), name, folder)
        for name, one in top.table("streams").items()
    }
    if not streams:
        raise JobError(f"{where}: expected a table [streams.NAME] for each stream of the query, got none")
    watermark = top.duration("watermark", parse_duration(DEFAULT_LATENESS), write=DEFAULT_LATENESS)
    spark = _settings(top.table("spark"))
    check_secrets(spark, f"{where}, [spark]")
    job = top.typed(
        Job,
        streams=streams,
        sink=_sink(JobTable(where, "sink", top.table("sink"), SinkJob), folder),
        parameters=_parameters(top.table("parameters"), where, folder),
        lateness=top.duration("lateness", watermark),
        trigger=top.duration("trigger"),
        spark=spark,
        where=where,
    )
    job = replace(job, query=_query(job.query, where, folder), checkpoint=_path(job.checkpoint, folder))
    _check_places(job)
    if job.on_accent != "hold" and not any(one.follows for one in streams.values()):
        raise top.wrong("on_accent", "a stream with 'accents' or 'splits'", "none")
    try:
        split_heuristics.get(job.split)
    except PulseError as e:
        raise JobError(f"{where}: split: {e}") from None
    return job


def _stream(table: JobTable, name: str, folder: Path) -> StreamJob:
    made = table.typed(
        StreamJob,
        name=name,
        options=table.options("options"),
        **{"key": (), **table.listed("key", "keep", "adds")},
        keys=None,
        revisions=_revisions(table),
    )
    for key in ("horizon", "max_gap"):
        table.duration(key)
    if made.source == "files" and made.path is None:
        raise table.wrong("path", "a text", "nothing")
    if made.source in ("kafka", "socket") and not made.columns:
        raise table.wrong("columns", f"types by name, as {made.source} does not provide them", "nothing")
    _check_policy(table)
    made = replace(
        made,
        path=_path(made.path, folder),
        format=made.format if "format" in table.values else _format(made.path, made.source),
        columns=made.columns or None,
        accents=_path(made.accents, folder) if made.accents and is_path(made.accents) else made.accents,
        splits=_path(made.splits, folder),
        keys=_keys(table, made.key, folder),
        adds=made.adds or None,
    )
    _check_accents(table, made)
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
        if table.values.get(key) is not None and not made.follows:
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


def _keys(table: JobTable, key: tuple[str, ...], folder: Path) -> Keys | None:
    given = table.values.get("keys")
    try:
        return None if given is None else declared_keys(given, key, folder)
    except DeclaredKeysError as e:
        expected, _, got = str(e).partition(", got ")
        raise table.wrong("keys", expected, got) from None


def _check_policy(table: JobTable) -> None:
    given = table.values.get("policy")
    try:
        Policy.of(given)
    except (PulseError, AttributeError) as e:
        raise table.wrong(
            "policy", "evolve, exception or ignore, or a table by add, drop and alter", f"{given!r} ({e})"
        ) from None


def _revisions(table: JobTable) -> int | str | None:
    """Read how long tuples may be revised; with a kind column at least as long as windows reach."""
    given = table.values.get("revisions")
    if given == BY_RADIUS or (given is None and table.values.get("kind") is not None):
        return BY_RADIUS
    return table.duration("revisions", write="10 min")


def _sink(table: JobTable, folder: Path) -> SinkJob:
    made = table.typed(SinkJob, options=table.options("options"))
    if made.kind == "parquet" and made.path is None:
        raise table.wrong("path", "a text", "nothing")
    return replace(made, path=_path(made.path, folder), aside=_path(made.aside, folder))


def _query(given: str, where: str, folder: Path) -> str:
    if not given.startswith("@"):
        return given
    try:
        return (folder / given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise JobError(f"{where}: query: cannot read {given}: {e}") from None


def _parameters(given: Mapping[str, Any], where: str, folder: Path) -> dict[str, Any]:
    """Resolve parameters that name files of areas from the job's folder."""
    return {
        name: _area_file(value, f"{where}: [parameters] {name}", folder) if is_area_file(value) else value
        for name, value in given.items()
    }


def _area_file(given: str, where: str, folder: Path) -> str:
    found = (folder / given).absolute()
    if not found.is_file():
        besides = ""
        if Path(given).is_file():
            besides = f", though the working directory {Path.cwd()} has one: move it, or write its full path"
        raise JobError(
            f"{where}: expected the file of an area in the job's folder, from which paths are resolved: there is no {found}"
            f"{besides}"
        )
    return str(found)


def _path(given: str | None, folder: Path) -> str | None:
    if given is None or "://" in given:
        return given
    return str((folder / given).absolute())


def _format(path: str | None, source: str) -> Format:
    """Infer the format from the path's ending; else JSON for sources of lines, Parquet for others."""
    ending = Path(path).suffix.lstrip(".").lower() if path else ""
    known: dict[str, Format] = {one: one for one in get_args(Format)}
    return known.get(ending, "json" if source in ("kafka", "socket") else "parquet")


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

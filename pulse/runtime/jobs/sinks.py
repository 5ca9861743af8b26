"""Where results go: a changelog of segments, a micro-batch at a time.

Every row has ``kind`` (+I, -U, +U, -D), ``now`` (the newest event time that was seen when it was made), and ``batch`` and
``position``, which order all rows. A batch that is run again after a crash has the same number and the same rows: a sink that
replaces what it has of that batch gives every result exactly once. Files do; consoles and Kafka say it again, and ``batch`` and
``position`` tell it apart.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from pulse.core.encoding.codec import refused
from pulse.core.time import format_instant
from pulse.runtime.jobs.alerts import Alert, Alerts, Seen
from pulse.runtime.jobs.result_log import keep_columns
from pulse.runtime.jobs.result_log import read_changes as read_changes  # what a Parquet sink was given
from pulse.runtime.jobs.secrets import concealing, resolved
from pulse.runtime.jobs.toml import Job, JobError
from pulse.runtime.predict.batch_store import keep, kept_before, replace_file
from pulse.runtime.predict.state_codec import pack_state
from pulse.runtime.predict.state_schema import ALERTS
from pulse.store.errors import LinkedFileError
from pulse.store.link_checks import create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BESIDE = ("now", "batch", "position")
"""Columns of a job's changelog beside those of results and their ``kind``."""

Batch = Callable[[int, pa.Table], None]


class Sink(Protocol):
    """Takes the rows of a batch; ``now`` is the newest event time, None before any."""

    def write(self, batch: int, changes: pa.Table, now: int | None, seen: Seen | None = None) -> None:
        """Put the batch's rows in place of what is there of that batch; ``seen``: the tuples that confirm results."""


def sink_of(
    job: Job,
    keys: tuple[str, ...],
    *,
    spark: SparkSession | None = None,
    out: IO[str] | None = None,
) -> Sink:
    """The job's sink; ``keys`` are the key columns of its results."""
    kind, path = job.sink.kind, job.sink.path
    if kind == "console":
        return ConsoleSink(out)
    if kind == "parquet":
        assert path is not None
        return ParquetSink(path)
    if kind == "alert":
        state = None if job.checkpoint is None else str(Path(job.checkpoint) / "alerts")
        return AlertSink(keys, path, state, out)
    if kind == "none":
        return Silent()
    if spark is None:
        raise JobError(f"{job.where}, [sink]: a Kafka sink is Spark's; expected engine = 'spark'")
    return KafkaSink(spark, job.sink.options)


def numbered(parts: Iterable[tuple[pa.Table, int]], schema: pa.Schema, batch: int) -> pa.Table:
    """Changes with the columns that order them: of each part its rows and its ``now``."""
    tables, told = [schema.empty_table()], []
    for table, now in parts:
        tables.append(table.cast(schema) if table.schema != schema else table)
        told += [now] * table.num_rows
    whole = pa.concat_tables(tables)
    n = whole.num_rows
    whole = whole.append_column("now", pa.array(told, pa.int64()).cast(pa.timestamp("us")))
    whole = whole.append_column("batch", pa.array([batch] * n, pa.int64()))
    return whole.append_column("position", pa.array(range(n), pa.int64()))


class Silent:
    """Keeps nothing: for jobs whose results are taken by a function."""

    def write(self, batch: int, changes: pa.Table, now: int | None, seen: Seen | None = None) -> None:
        """Nothing."""


class ParquetSink:
    """A folder of ``batch=<number>`` folders, each written whole or not at all."""

    def __init__(self, path: str | Path, name: str = "changes") -> None:
        self.path, self.name = Path(path), name

    def write(self, batch: int, changes: pa.Table, now: int | None = None, seen: Seen | None = None) -> None:
        """Write the batch's file beside its place, then put it there."""
        folder = self.path / f"batch={batch}"
        file = folder / f"{self.name}.parquet"
        if folder.is_symlink():
            raise LinkedFileError(
                f"{folder}: expected a folder for the batch's rows, got a symbolic link to {folder.readlink()}, which is not "
                "followed; remove it"
            )
        if not changes.num_rows:
            file.unlink(missing_ok=True)
            keep_columns(self.path, changes)
            return
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{self.name}.parquet"
        # The folder's name is the batch; a column of that name would be there twice.
        kept = changes.drop_columns(["batch"]) if "batch" in changes.column_names else changes
        with os.fdopen(create(draft), "wb") as opened:
            pq.write_table(kept, opened)
        draft.replace(file)


class ConsoleSink:
    """A line per row."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self.out = out

    def write(self, batch: int, changes: pa.Table, now: int | None, seen: Seen | None = None) -> None:
        """Print the rows."""
        for row in changes.drop_columns(list(BESIDE)).to_pylist():
            begin, kind = row.pop("ref"), row.pop("kind")
            at = int(pa.scalar(begin, pa.timestamp("us")).cast(pa.int64()).as_py())
            lo, hi = row.pop("lo"), row.pop("hi")
            rest = " ".join(f"{name}={_short(value)}" for name, value in row.items() if value is not None)
            print(
                f"{kind} [{format_instant(at, lo)}, {format_instant(at, hi)}) {rest}",
                file=self.out or sys.stdout,
                flush=True,
            )


class KafkaSink:
    """Rows as JSON to a topic, through Spark's connector; the key is that of the result."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self.spark, self.options = spark, dict(options)

    def write(self, batch: int, changes: pa.Table, now: int | None, seen: Seen | None = None) -> None:
        """Send the rows."""
        from pulse.runtime.jobs.file_source import SourceError
        from pulse.runtime.jobs.sources import KAFKA

        if not changes.num_rows:
            return
        rows = [(as_json(row),) for row in changes.to_pylist()]
        frame = self.spark.createDataFrame(rows, "value string")
        try:
            with concealing(self.options):
                frame.write.format("kafka").options(**resolved(self.options)).save()
        except Exception as e:
            if "Failed to find data source: kafka" not in str(e) and "DATA_SOURCE_NOT_FOUND" not in str(e):
                raise
            raise SourceError(
                "[sink]: Spark's Kafka connector is not there; add to the job's [spark] table "
                f'"spark.jars.packages" = "{KAFKA}:{self.spark.version}"'
            ) from e


def as_json(row: Mapping[str, Any]) -> str:
    """A row of a changelog as JSON, which has no infinite numbers: an error that nothing bounds is null."""
    plain = {name: None if isinstance(one, float) and math.isinf(one) else one for name, one in row.items()}
    return json.dumps(plain, default=str)


class AlertSink:
    """What the results mean to somebody who waits: lines of text, and with a path a file of JSON lines per batch.

    What was said before is kept by batch in ``state``, so that a batch that is run again says the same.
    """

    def __init__(
        self,
        keys: tuple[str, ...],
        path: str | None,
        state: str | None,
        out: IO[str] | None = None,
    ) -> None:
        self.keys, self.out = keys, out
        self.path = None if path is None else Path(path)
        self.state = None if state is None else Path(state)
        self.alerts = Alerts(keys)

    def write(self, batch: int, changes: pa.Table, now: int | None, seen: Seen | None = None) -> None:
        """Say what the batch's changes mean."""
        if self.state is not None:
            self.alerts = self._before(batch)
        said = [] if now is None else self.alerts.take(changes, now, seen)
        if self.state is not None:
            keep(self.state, batch, pack_state(ALERTS, self.alerts))
        if self.path is not None:
            self._put(self.path / f"batch={batch}.jsonl", said)
        for one in said if self.path is None else ():
            print(line_of(one, self.keys), file=self.out or sys.stdout, flush=True)

    def _put(self, file: Path, said: list[Alert]) -> None:
        """A batch's lines, in place of those of a run of it that was given up."""
        if not said:
            file.unlink(missing_ok=True)
            return
        lines = "".join(json.dumps(one.as_dict(self.keys), default=str) + "\n" for one in said)
        replace_file(file, lines.encode())

    def _before(self, batch: int) -> Alerts:
        assert self.state is not None
        found = kept_before(ALERTS, self.state, batch)
        alerts = Alerts(self.keys) if found is None else found[1]
        assert isinstance(alerts, Alerts)
        keys = {len(key) for key, _ in (*alerts.held, *alerts.known)}
        if alerts.names != self.keys or not keys <= {len(self.keys)}:
            raise refused(
                f"the alerts in {self.state}", f"keys {', '.join(self.keys)}", ", ".join(alerts.names)
            )
        return alerts


def line_of(alert: Alert, names: tuple[str, ...]) -> str:
    """An alert for people."""
    who = " ".join(f"{name}={value}" for name, value in zip(names, alert.key, strict=True))
    when = f"{format_instant(alert.begin)} to {format_instant(alert.end)}"
    more = f", in {alert.until:.3g} s" if alert.until is not None else ""
    more += f", known {alert.lead:.3g} s ahead" if alert.lead is not None else ""
    sure = "" if alert.certain_from is None else f", certain from {format_instant(alert.certain_from)}"
    return f"{alert.what}: {who} {when}, {alert.certainty}{sure}{more}"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(f"{one:.6g}" for one in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

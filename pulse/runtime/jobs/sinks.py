"""Write results to sinks: a changelog of segments, a micro-batch at a time.

Every row has ``kind`` (+I, -U, +U, -D), ``now`` (the newest event time when the row was made), and ``batch`` and ``position``,
which order all rows. A batch rerun after a crash has the same number and the same rows: a sink that replaces its rows of that
batch gives every result exactly once. Files do; consoles and Kafka repeat the rows, and ``batch`` and ``position`` identify the
duplicates.
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
from pulse.runtime.jobs.file_source import no_kafka
from pulse.runtime.jobs.result_log import read_changes as read_changes  # reads a Parquet sink
from pulse.runtime.jobs.result_log import store_schema
from pulse.runtime.jobs.secrets import concealing, resolved
from pulse.runtime.jobs.toml import Job, JobError
from pulse.runtime.predict.batch_store import latest_before, put, replace_file
from pulse.runtime.predict.state_codec import pack_state
from pulse.runtime.predict.state_schema import ALERTS
from pulse.store.errors import LinkedFileError
from pulse.store.link_checks import create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGELOG_COLUMNS = ("now", "batch", "position")
"""Columns of a job's changelog beside those of results and their ``kind``."""

Batch = Callable[[int, pa.Table], None]


class Sink(Protocol):
    """A receiver of batches of rows; ``now`` is the newest event time, None before any."""

    def write(self, batch: int, changes: pa.Table, now: int | None, seen: Seen | None = None) -> None:
        """Write the batch's rows, replacing earlier ones of that batch; ``seen``: the tuples that confirm results."""


def sink_of(job: Job, keys: tuple[str, ...], *, spark: SparkSession | None = None) -> Sink:
    """Make the job's sink; ``keys`` are the key columns of its results."""
    kind, path = job.sink.kind, job.sink.path
    if kind == "console":
        return ConsoleSink()
    if kind == "parquet":
        assert path is not None
        return ParquetSink(path)
    if kind == "alert":
        state = None if job.checkpoint is None else str(Path(job.checkpoint) / "alerts")
        return AlertSink(keys, path, state)
    if kind == "none":
        return NullSink()
    if spark is None:
        raise JobError(
            f"{job.where}, [sink]: a Kafka sink needs Spark; expected engine = 'spark', got 'local'"
        )
    return KafkaSink(spark, job.sink.options)


def numbered(parts: Iterable[tuple[pa.Table, int]], schema: pa.Schema, batch: int) -> pa.Table:
    """Concatenate parts, pairs of rows and their ``now``, and append the columns that order them."""
    tables, times = [schema.empty_table()], []
    for table, now in parts:
        tables.append(table.cast(schema) if table.schema != schema else table)
        times += [now] * table.num_rows
    whole = pa.concat_tables(tables)
    n = whole.num_rows
    whole = whole.append_column("now", pa.array(times, pa.int64()).cast(pa.timestamp("us")))
    whole = whole.append_column("batch", pa.array([batch] * n, pa.int64()))
    return whole.append_column("position", pa.array(range(n), pa.int64()))


class NullSink:
    """A sink that discards everything: for jobs whose results go to a function."""

    def write(self, batch: int, changes: pa.Table, now: int | None, seen: Seen | None = None) -> None:
        """Discard the batch."""


class ParquetSink:
    """A folder of ``batch=<number>`` folders, each written atomically."""

    def __init__(self, path: str | Path, name: str = "changes") -> None:
        self.path, self.name = Path(path), name

    def write(self, batch: int, changes: pa.Table, now: int | None = None, seen: Seen | None = None) -> None:
        folder = self.path / f"batch={batch}"
        file = folder / f"{self.name}.parquet"
        if folder.is_symlink():
            raise LinkedFileError(
                f"{folder}: expected a folder for the batch's rows, got a symbolic link to {folder.readlink()}, which is not "
                "followed; remove it"
            )
        if not changes.num_rows:
            file.unlink(missing_ok=True)
            store_schema(self.path, changes)
            return
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{self.name}.parquet"
        # The folder's name gives the batch; a column of that name would occur twice.
        rows = changes.drop_columns(["batch"]) if "batch" in changes.column_names else changes
        with os.fdopen(create(draft), "wb") as opened:
            pq.write_table(rows, opened)
        draft.replace(file)


class ConsoleSink:
    """A sink that prints a line per row."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self.out = out

    def write(self, batch: int, changes: pa.Table, now: int | None, seen: Seen | None = None) -> None:
        for row in changes.drop_columns(list(CHANGELOG_COLUMNS)).to_pylist():
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
    """A sink that sends rows as JSON to a topic, through Spark's connector."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self.spark, self.options = spark, dict(options)

    def write(self, batch: int, changes: pa.Table, now: int | None, seen: Seen | None = None) -> None:
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
            raise no_kafka(self.spark.version, "[sink]") from e


def as_json(row: Mapping[str, Any]) -> str:
    """Convert a changelog row to JSON, which has no infinite numbers: an unbounded error becomes null."""
    plain = {name: None if isinstance(one, float) and math.isinf(one) else one for name, one in row.items()}
    return json.dumps(plain, default=str)


class AlertSink:
    """A sink that turns results into alerts: lines of text or, with a path, a file of JSON lines per batch.

    The alerts' state is stored per batch in ``state``, so that a rerun batch gives the same alerts.
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
        if self.state is not None:
            self.alerts = self._before(batch)
        emitted = [] if now is None else self.alerts.take(changes, now, seen)
        if self.state is not None:
            put(self.state, batch, pack_state(ALERTS, self.alerts))
        if self.path is not None:
            self._put(self.path / f"batch={batch}.jsonl", emitted)
        for one in emitted if self.path is None else ():
            print(line_of(one, self.keys), file=self.out or sys.stdout, flush=True)

    def _put(self, file: Path, alerts: list[Alert]) -> None:
        """Write a batch's lines, replacing those of an aborted run of it."""
        if not alerts:
            file.unlink(missing_ok=True)
            return
        lines = "".join(json.dumps(one.as_dict(self.keys), default=str) + "\n" for one in alerts)
        replace_file(file, lines.encode())

    def _before(self, batch: int) -> Alerts:
        assert self.state is not None
        found = latest_before(ALERTS, self.state, batch)
        alerts = Alerts(self.keys) if found is None else found[1]
        assert isinstance(alerts, Alerts)
        keys = {len(key) for key, _ in (*alerts.held, *alerts.known)}
        if alerts.names != self.keys or not keys <= {len(self.keys)}:
            raise refused(
                f"the alerts in {self.state}", f"keys {', '.join(self.keys)}", ", ".join(alerts.names)
            )
        return alerts


def line_of(alert: Alert, names: tuple[str, ...]) -> str:
    """Format an alert as a line of text."""
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

"""Run a predictive job on Structured Streaming (semantics 6): streams in, a changelog of results out, exactly once.

::

    source ──parcels──> by bucket of keys: all of the prediction ──────────────────────────────┐
                                                                                                ├──> foreachBatch: sink,
    source ──parcels──> by bucket of keys: validators ──updates──> places: continuous query ────┘    aside, status, bounds

The upper path runs if partitioning by key attributes brings all rows that must meet into one bucket, the lower path for pairs and
aggregates across keys. Proximity pairs are partitioned by grid cell over as many places as there are buckets; all other queries
have one place. State is in RocksDB under the checkpoint; an uncommitted micro-batch is rerun with the same number on the previous
state, and every sink of files replaces its files of that number. Results pass through the driver: they stem from tuples outside
their models, a small share of all.
"""

from __future__ import annotations

import re
import time as clock
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from pulse.runtime.accents.follower import JobAbortedError
from pulse.runtime.accents.log_tailer import Spool
from pulse.runtime.jobs.alerts import Seen
from pulse.runtime.jobs.checkpoint import known_columns, store_columns, write_fingerprint
from pulse.runtime.jobs.dead_letters import write_aside
from pulse.runtime.jobs.empty_results import store_result_columns
from pulse.runtime.jobs.file_source import header_error, read_error
from pulse.runtime.jobs.folders import check_links, claim_folders
from pulse.runtime.jobs.preflight import check_for_spark
from pulse.runtime.jobs.secrets import concealing
from pulse.runtime.jobs.sinks import Batch, Sink, numbered, sink_of
from pulse.runtime.jobs.source_schema import resolve_types
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.spark_lines import HEADER_MISMATCH
from pulse.runtime.jobs.spark_sources import frame_of, log_frame
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.batch_store import put
from pulse.runtime.predict.co_partitioning import partition_keys
from pulse.runtime.predict.confirmation import newest_in, parties_of
from pulse.runtime.predict.ingest import PARCELS, LinePacker, Packer, unpacked_table
from pulse.runtime.predict.pair_stages import PairStage, RouteStage, partitioning_of
from pulse.runtime.predict.solve_stage import SolveStage
from pulse.runtime.predict.spatial_partitioning import coalesced
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import ASIDE, BOUNDS, CHANGES, ENDING, ROWS, SEEN, TALLIED
from pulse.runtime.predict.stages import SingleStage, ValidateStage
from pulse.runtime.predict.state_codec import unpack_state
from pulse.runtime.predict.status import Status, Tally
from pulse.runtime.spark.arrow_frames import arrow_schema_of
from pulse.runtime.spark.errors import translated

OBSERVED = "pulse"
"""The name of the job's figures among Spark's observed metrics."""

_UNREADABLE = re.compile(
    r"(?:FAILED_READ_FILE|CANNOT_READ_FILE|while reading file)[^\n]*?file:/*(/[^\s]+?)\.?\s", re.DOTALL
)


class Running:
    """A running job."""

    def __init__(self, query: StreamingQuery, status: Status, job: Job, places: ExitStack) -> None:
        self.query, self.status, self._job, self._places = query, status, job, places

    def wait(self, seconds: int | None = None) -> bool:
        """Wait for the job's end, or for some seconds; return whether it ended. Raises the job's own error."""
        try:
            return self._wait(seconds)
        finally:
            self.active()

    def _wait(self, seconds: int | None) -> bool:
        try:
            with concealing(*self._job.options), translated():
                return (
                    bool(self.query.awaitTermination(seconds))
                    if seconds
                    else self.query.awaitTermination() is None
                )
        except JobAbortedError as e:
            raise JobAbortedError(str(e).splitlines()[0]) from e  # without Spark's additions
        except StreamingQueryException as e:
            raise _translated_error(e, self._job) from e

    def active(self) -> bool:
        """Whether the job still runs; False if Spark itself has stopped. Releases the folders of an ended job."""
        try:
            active = bool(self.query.isActive)
        except (Py4JError, OSError):
            active = False
        if not active:
            self._places.close()
        return active

    def stop(self) -> None:
        """Cancel the current micro-batch and end; the next start reruns it."""
        self.query.stop()
        self.active()


_STARTED: dict[str, Running] = {}
"""Jobs that this process has started, by checkpoint: a restart need not have waited for the end of the previous run."""


def runs_in_buckets(predictor: Predictor) -> bool:
    """Whether partitioning by key attributes brings all rows that must meet into one bucket."""
    return partition_keys(predictor) is not None


def start(
    spark: SparkSession,
    job: Job,
    *,
    once: bool = False,
    frames: Mapping[str, DataFrame] | None = None,
    sink: Sink | None = None,
    on_batch: Batch | None = None,
    on_status: Callable[[Status], None] | None = None,
) -> Running:
    """Start a job.

    Parameters
    ----------
    spark : the session
    job : its checkpoint is required
    once : whether to end after the data present, default False
    frames : by name, the streams whose source is ``frame``
    sink : receives the changes, default that of the job
    on_batch : called with each batch's number and changes
    on_status : called with the figures after each batch
    """
    frames = frames or {}
    check_for_spark(job, frames)
    assert job.checkpoint is not None
    check_links(job)
    given = {name: arrow_schema_of(frame) for name, frame in frames.items()}
    typed, types = resolve_types(job, known_columns(job), every=True)
    predictor = predictor_of(typed, given, dealt=True)
    handler = _Handler(job, predictor, sink, on_batch, on_status)
    if job.checkpoint in _STARTED:
        _STARTED[job.checkpoint].active()  # releases the folders of an ended job
    places = claim_folders(job, "spark")
    try:
        write_fingerprint(job)
        store_columns(job, types)
        store_result_columns(job, predictor)
        spool = Spool.of(job, predictor)
        spool.take()
        writer = _writer(_predicted(spark, typed, predictor, frames), job, handler, once)
        with concealing(*job.options), translated():
            running = Running(writer.start(), handler.status, job, places)
    except BaseException:
        places.close()
        raise
    _STARTED[job.checkpoint] = running
    if not once:
        spool.watch(running.active)
    return running


def _writer(rows: DataFrame, job: Job, handler: _Handler, once: bool) -> Any:
    """Configure Spark's streaming query of a job's rows."""
    assert job.checkpoint is not None
    observed = rows.observe(
        OBSERVED, *(F.sum(name).alias(name) for name in TALLIED), F.max("now").alias("now")
    )
    writer = observed.writeStream.foreachBatch(handler).outputMode("append")
    writer = writer.option("checkpointLocation", str(Path(job.checkpoint) / "spark"))
    if once:
        return writer.trigger(availableNow=True)
    return writer if job.trigger is None else writer.trigger(processingTime=f"{job.trigger} microseconds")


def _predicted(
    spark: SparkSession, job: Job, predictor: Predictor, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """The stages of the job as a frame of :data:`ROWS`."""
    parts, by_stream = [], partition_keys(predictor)
    for name, spec in predictor.specs.items():
        by = spec.schema.key_names if by_stream is None else by_stream[name]
        frame = frame_of(spark, job.streams[name], spec.schema, job.buckets, frames.get(name), by)
        stream = job.streams[name]
        key, time = spec.schema.key_names, spec.schema.time
        packer = Packer(name, stream.kind, key, stream.accent_column, job.buckets, time)
        parts.append(frame.mapInArrow(packer, PARCELS))
    for name, folder in Spool.of(job, predictor).folders.items():
        parts.append(log_frame(spark, folder).mapInArrow(LinePacker(name, job.buckets), PARCELS))
    parcels = reduce(DataFrame.union, parts)
    if by_stream is not None:
        return _stateful(parcels, SingleStage(predictor, job.lateness))
    partitioning = partitioning_of(predictor, job.buckets, job.cell)
    if partitioning is not None:
        updates = _stateful(parcels, RouteStage(predictor, job.lateness, partitioning))
        return _stateful(updates, PairStage(predictor, job.lateness, partitioning))
    assert job.checkpoint is not None
    bounds = str(Path(job.checkpoint) / "bounds")
    updates = _stateful(parcels, ValidateStage(predictor, job.lateness, bounds))
    return _stateful(updates, SolveStage(predictor, job.lateness))


def _stateful(frame: DataFrame, processor: Any) -> DataFrame:
    return frame.groupBy("place").transformWithStateInPandas(processor, ROWS, "append", "none")


# -- a micro-batch --------------------------------------------------------------------------------------------


class _Handler:
    """Handles the rows of a micro-batch on the driver."""

    def __init__(
        self,
        job: Job,
        predictor: Predictor,
        sink: Sink | None,
        on_batch: Batch | None,
        on_status: Callable[[Status], None] | None,
    ) -> None:
        self.job, self.predictor = job, predictor
        self.sink, self.on_batch, self.on_status = sink, on_batch, on_status
        self.status = Status()
        self.now: int | None = None
        in_buckets = runs_in_buckets(predictor)
        self.is_spread = not in_buckets and partitioning_of(predictor, job.buckets, job.cell) is not None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        begin = clock.perf_counter()
        rows = frame.toArrow().sort_by(
            [("channel", "ascending"), ("place", "ascending"), ("stream", "ascending")]
        )
        messages = rows.select(["channel", "stream", "place", "now", "payload"]).to_pylist()
        parts = [
            (unpacked_table(one["payload"]), one["now"]) for one in messages if one["channel"] == CHANGES
        ]
        if self.is_spread:
            parts = coalesced(parts, self.predictor.continuous)
        changes = numbered(parts, self.predictor.continuous.schema, batch)
        seen = [one["now"] for one in messages if one["now"]]
        self.now = max([*seen, *([] if self.now is None else [self.now])], default=None)
        if self.sink is None:
            self.sink = sink_of(
                self.job, self.predictor.continuous.output.key_names, spark=frame.sparkSession
            )
        self.sink.write(batch, changes, self.now, self._seen(messages))
        write_aside(self.job, batch, self._aside(messages))
        if self.on_batch is not None:
            self.on_batch(batch, changes)
        assert self.job.checkpoint is not None
        for one in messages:
            if one["channel"] == BOUNDS:
                put(Path(self.job.checkpoint) / "bounds", batch, one["payload"])
        tally = Tally(**{name: pa.compute.sum(rows.column(name)).as_py() or 0 for name in TALLIED})
        tally.changes = changes.num_rows  # moves between places are not changes
        self.status.add(tally, self.now, clock.perf_counter() - begin)
        if self.on_status is not None:
            self.on_status(self.status)
        for one in messages:
            # The batch is written completely: its results stay, and a later run ends here again.
            if one["channel"] == ENDING and (ending := unpack_state(forms.ENDING, one["payload"])).reached(
                self.now
            ):
                raise JobAbortedError(ending.reason)

    def _seen(self, messages: list[dict[str, Any]]) -> Seen:
        newest = {
            (one["stream"], one["place"]): newest_in(unpacked_table(one["payload"]))
            for one in messages
            if one["channel"] == SEEN
        }
        return Seen(parties_of(self.predictor) if self.predictor.alerting else (), newest)

    def _aside(self, messages: list[dict[str, Any]]) -> dict[str, pa.Table]:
        parts: dict[str, list[pa.Table]] = {}
        for one in messages:
            if one["channel"] == ASIDE:
                parts.setdefault(one["stream"], []).append(unpacked_table(one["payload"]))
        return {
            stream: pa.concat_tables(some, promote_options="permissive") for stream, some in parts.items()
        }


def _translated_error(error: StreamingQueryException, job: Job) -> Exception:
    """Translate a known Spark error to one of ours."""
    text = str(error)
    found = _UNREADABLE.search(text)
    if found is None:
        return error
    if HEADER_MISMATCH in text:
        return header_error(found[1])
    formats = {one.format for one in job.streams.values() if one.source == "files"}
    return read_error(found[1], " or ".join(sorted(formats)), "Spark gave up on it")


# -- Spark's listeners ----------------------------------------------------------------------------------------


def figures_of(progress: Any) -> dict[str, Any] | None:
    """The job's figures in one of Spark's progress reports; None if it has none."""
    observed = progress.observedMetrics.get(OBSERVED)
    if observed is None:
        return None
    figures = {one.name: observed[one.name] or 0 for one in fields(Tally)}
    return {
        "batch": progress.batchId,
        "seconds": progress.batchDuration / 1e3,
        **figures,
        "now": observed["now"],
    }


class Listener(StreamingQueryListener):
    """Hands every batch's figures to a function: ``spark.streams.addListener(Listener(print))``."""

    def __init__(self, take: Callable[[dict[str, Any]], None]) -> None:
        self.take = take

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Hand over the figures of a finished batch."""
        figures = figures_of(event.progress)
        if figures is not None:
            self.take(figures)

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: no batch ran."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing: the query itself reports its end."""

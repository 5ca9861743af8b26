"""A predictive job on Structured Streaming (semantics 6): streams in, a changelog of results out, exactly once.

::

    source ──parcels──> by bucket of keys: all of the prediction ──────────────────────────────┐
                                                                                                ├──> foreachBatch: sink,
    source ──parcels──> by bucket of keys: validators ──updates──> places: standing query ──────┘    aside, status, bounds

The upper way is taken where all rows that must meet lie by their stream's key, the lower for pairs and aggregates across keys.
Pairs that come near are spread by grid cell over as many places as there are buckets; for all else there is one place.
State lies in RocksDB under the checkpoint; a micro-batch that was not committed is run again with the same number on the state
before, and every sink that keeps files replaces what it has of that number. Results pass through the driver: they come of tuples
that did not agree with a model, a small share of all.
"""

from __future__ import annotations

import re
import time as clock
from collections.abc import Callable, Mapping
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
from pulse.runtime.jobs.checkpoint import keep_columns, keep_fingerprint, known_columns
from pulse.runtime.jobs.dead_letters import write_aside
from pulse.runtime.jobs.file_source import misplaced, unreadable
from pulse.runtime.jobs.folders import JobFolders, check_links, occupy
from pulse.runtime.jobs.preflight import check_for_spark
from pulse.runtime.jobs.secrets import concealing
from pulse.runtime.jobs.sinks import Batch, Sink, numbered, sink_of
from pulse.runtime.jobs.source_schema import settled
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.spark_lines import MISPLACED
from pulse.runtime.jobs.spark_sources import frame_of, log_frame
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.batch_store import keep
from pulse.runtime.predict.co_partitioning import partition_keys
from pulse.runtime.predict.confirmation import newest_in, parties_of
from pulse.runtime.predict.engine import Tally
from pulse.runtime.predict.ingest import PARCELS, LinePacker, Packer, unpacked_table
from pulse.runtime.predict.local_driver import Status
from pulse.runtime.predict.pair_stages import PairStage, RouteStage, spread_of
from pulse.runtime.predict.solve_stage import SolveStage
from pulse.runtime.predict.spatial_partitioning import coalesced
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import ASIDE, BOUNDS, CHANGES, ENDING, ROWS, SEEN, TALLIED
from pulse.runtime.predict.stages import SingleStage, ValidateStage
from pulse.runtime.predict.state_codec import unpack_state
from pulse.runtime.spark.arrow_frames import arrow_schema_of
from pulse.runtime.spark.errors import translated

OBSERVED = "pulse"
"""The name of the job's figures among Spark's observed metrics."""

_UNREADABLE = re.compile(
    r"(?:FAILED_READ_FILE|CANNOT_READ_FILE|while reading file)[^\n]*?file:/*(/[^\s]+?)\.?\s", re.DOTALL
)


class Running:
    """A job at work."""

    def __init__(self, query: StreamingQuery, status: Status, job: Job, places: JobFolders) -> None:
        self.query, self.status, self._job, self._places = query, status, job, places

    def wait(self, seconds: int | None = None) -> bool:
        """Until the job ends, or for so long; whether it ended. What went wrong is raised as what it was."""
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
            raise JobAbortedError(str(e).splitlines()[0]) from e  # without what Spark adds
        except StreamingQueryException as e:
            raise _understood(e, self._job) from e

    def active(self) -> bool:
        """Whether it is still at work; not where Spark itself has gone. Its folders are another run's to take then."""
        try:
            active = bool(self.query.isActive)
        except (Py4JError, OSError):
            active = False
        if not active:
            self._places.release()
        return active

    def stop(self) -> None:
        """End after the micro-batch that is under way was given up; the next start runs it again."""
        self.query.stop()
        self.active()


_STARTED: dict[str, Running] = {}
"""By checkpoint what this process has started: who starts it again need not have waited for the end of the run before."""


def runs_in_buckets(predictor: Predictor) -> bool:
    """Whether all rows that must meet lie in one bucket, if tuples are dealt by some of their stream's key."""
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
    """Start a job. ``once``: take what is there and end. ``frames`` are the streams whose source is ``frame``."""
    frames = frames or {}
    check_for_spark(job, frames)
    assert job.checkpoint is not None
    check_links(job)
    given = {name: arrow_schema_of(frame) for name, frame in frames.items()}
    typed, types = settled(job, known_columns(job), every=True)
    predictor = predictor_of(typed, given, dealt=True)
    handler = _Handler(job, predictor, sink, on_batch, on_status)
    if job.checkpoint in _STARTED:
        _STARTED[job.checkpoint].active()  # which lets go of the folders of one that has ended
    places = occupy(job, "spark")
    try:
        keep_fingerprint(job)
        keep_columns(job, types)
        spool = Spool.of(job, predictor)
        spool.take()
        writer = _writer(_predicted(spark, typed, predictor, frames), job, handler, once)
        with concealing(*job.options), translated():
            running = Running(writer.start(), handler.status, job, places)
    except BaseException:
        places.release()
        raise
    _STARTED[job.checkpoint] = running
    if not once:
        spool.watch(running.active)
    return running


def _writer(rows: DataFrame, job: Job, handler: _Handler, once: bool) -> Any:
    """Spark's query of a job's rows, ready to be started."""
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
    """The job's rows, as :data:`ROWS`."""
    parts, dealing = [], partition_keys(predictor)
    for name, spec in predictor.specs.items():
        by = spec.schema.key_names if dealing is None else dealing[name]
        frame = frame_of(spark, job.streams[name], spec.schema, job.buckets, frames.get(name), by)
        stream = job.streams[name]
        key, time = spec.schema.key_names, spec.schema.time
        packer = Packer(name, stream.kind, key, stream.accent_column, job.buckets, time)
        parts.append(frame.mapInArrow(packer, PARCELS))
    for name, folder in Spool.of(job, predictor).folders.items():
        parts.append(log_frame(spark, folder).mapInArrow(LinePacker(name, job.buckets), PARCELS))
    parcels = reduce(DataFrame.union, parts)
    if dealing is not None:
        return _stateful(parcels, SingleStage(predictor, job.lateness))
    spread = spread_of(predictor, job.buckets, job.cell)
    if spread is not None:
        updates = _stateful(parcels, RouteStage(predictor, job.lateness, spread))
        return _stateful(updates, PairStage(predictor, job.lateness, spread))
    assert job.checkpoint is not None
    bounds = str(Path(job.checkpoint) / "bounds")
    updates = _stateful(parcels, ValidateStage(predictor, job.lateness, bounds))
    return _stateful(updates, SolveStage(predictor, job.lateness))


def _stateful(frame: DataFrame, processor: Any) -> DataFrame:
    return frame.groupBy("place").transformWithStateInPandas(processor, ROWS, "append", "none")


# -- a micro-batch --------------------------------------------------------------------------------------------


class _Handler:
    """What is done with the rows of a micro-batch, on the driver."""

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
        self.spread = not in_buckets and spread_of(predictor, job.buckets, job.cell) is not None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        begin = clock.perf_counter()
        rows = frame.toArrow().sort_by(
            [("channel", "ascending"), ("place", "ascending"), ("stream", "ascending")]
        )
        told = rows.select(["channel", "stream", "place", "now", "payload"]).to_pylist()
        parts = [(unpacked_table(one["payload"]), one["now"]) for one in told if one["channel"] == CHANGES]
        if self.spread:
            parts = coalesced(parts, self.predictor.standing)
        changes = numbered(parts, self.predictor.standing.schema, batch)
        seen = [one["now"] for one in told if one["now"]]
        self.now = max([*seen, *([] if self.now is None else [self.now])], default=None)
        if self.sink is None:
            self.sink = sink_of(self.job, self.predictor.standing.output.key_names, spark=frame.sparkSession)
        self.sink.write(batch, changes, self.now, self._seen(told))
        write_aside(self.job, batch, self._aside(told))
        if self.on_batch is not None:
            self.on_batch(batch, changes)
        assert self.job.checkpoint is not None
        for one in told:
            if one["channel"] == BOUNDS:
                keep(Path(self.job.checkpoint) / "bounds", batch, one["payload"])
        tally = Tally(**{name: pa.compute.sum(rows.column(name)).as_py() or 0 for name in TALLIED})
        tally.changes = changes.num_rows  # what moved between places is none
        self.status.add(tally, self.now, clock.perf_counter() - begin)
        if self.on_status is not None:
            self.on_status(self.status)
        for one in told:
            # All of the batch is written: what it says stays, and a run after this one ends here again.
            if one["channel"] == ENDING and (ending := unpack_state(forms.ENDING, one["payload"])).reached(
                self.now
            ):
                raise JobAbortedError(ending.reason)

    def _seen(self, told: list[dict[str, Any]]) -> Seen:
        newest = {
            (one["stream"], one["place"]): newest_in(unpacked_table(one["payload"]))
            for one in told
            if one["channel"] == SEEN
        }
        return Seen(parties_of(self.predictor) if self.predictor.alerting else (), newest)

    def _aside(self, told: list[dict[str, Any]]) -> dict[str, pa.Table]:
        parts: dict[str, list[pa.Table]] = {}
        for one in told:
            if one["channel"] == ASIDE:
                parts.setdefault(one["stream"], []).append(unpacked_table(one["payload"]))
        return {
            stream: pa.concat_tables(some, promote_options="permissive") for stream, some in parts.items()
        }


def _understood(error: StreamingQueryException, job: Job) -> Exception:
    """What Spark says, as an error of ours where we know what it means."""
    text = str(error)
    found = _UNREADABLE.search(text)
    if found is None:
        return error
    if MISPLACED in text:
        return misplaced(found[1])
    formats = {one.format for one in job.streams.values() if one.source == "files"}
    return unreadable(found[1], " or ".join(sorted(formats)), "Spark gave up on it")


# -- Spark's listeners ----------------------------------------------------------------------------------------


def figures_of(progress: Any) -> dict[str, Any] | None:
    """The job's figures in one of Spark's progress reports; None where it has none."""
    observed = progress.observedMetrics.get(OBSERVED)
    if observed is None:
        return None
    said = {one.name: observed[one.name] or 0 for one in fields(Tally)}
    return {
        "batch": progress.batchId,
        "seconds": progress.batchDuration / 1e3,
        **said,
        "now": observed["now"],
    }


class Listener(StreamingQueryListener):
    """Hands every batch's figures to a function: ``spark.streams.addListener(Listener(print))``."""

    def __init__(self, take: Callable[[dict[str, Any]], None]) -> None:
        self.take = take

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to say yet."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is done."""
        figures = figures_of(event.progress)
        if figures is not None:
            self.take(figures)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing came."""

    def onQueryTerminated(self, event: Any) -> None:
        """Whoever waits is told by the query itself."""

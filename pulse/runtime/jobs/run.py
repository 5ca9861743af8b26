"""Run a predictive job from Python: one entry point for both engines, and one handle to its results.

::

    a TOML file, tables, a Job ──> chosen engine ──> JobRun: status, changes(), holds(), aside(); wait(), stop()

A job given as tables without a sink stores results in its checkpoint or, without one, in a temporary folder that is removed with
this process: so three lines in a notebook already give results to look at.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa

from pulse.core import html
from pulse.core.errors import SessionError
from pulse.runtime.jobs.alerts import Seen
from pulse.runtime.jobs.dead_letters import read_aside
from pulse.runtime.jobs.empty_results import no_rejects
from pulse.runtime.jobs.preflight import check_for_spark
from pulse.runtime.jobs.result_log import ResultsError, read_changes, read_holds
from pulse.runtime.jobs.sinks import Sink, sink_of
from pulse.runtime.jobs.spec import Engine
from pulse.runtime.jobs.toml import Job, SinkJob, job_of, read_job
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.status import Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JobLike = Job | Mapping[str, Any] | str | os.PathLike[str]
StartSpark = Callable[[Mapping[str, str]], "SparkSession"]

_SHOWN = ("tuples", "validated", "violations", "solves", "results", "revisions", "aside", "accents", "now")


class JobBatch(NamedTuple):
    """A batch of results as passed to ``on_batch``: its number, its rows, and the newest event time in microseconds."""

    number: int
    changes: pa.Table
    now: int | None


OnBatch = Callable[[JobBatch], None]
OnStatus = Callable[[Status], None]


class JobRun:
    """A running or finished job; :meth:`pulse.Session.run` returns it.

    ``status`` has the metrics of this run: ``status.figures()``, ``status.line()``, ``status.tally``.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.status = job, Status()
        self._work: _Thread | _Query | None = None
        self._given: Mapping[str, pa.Schema] = {}  # schemas of frames, by stream

    @property
    def active(self) -> bool:
        """Return whether the job is still running."""
        return self._work is not None and self._work.active()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the job ends, at most ``seconds``, and return whether it has ended. Raises the error that ended it."""
        return self._work is None or self._work.wait(seconds)

    def stop(self) -> None:
        """Stop the job: in process after the current batch, on Spark without it. The next run resumes from there."""
        if self._work is not None:
            self._work.stop()

    def changes(self) -> pa.Table:
        """Return the whole changelog of this checkpoint, in order, as an Arrow table; ``.to_pandas()`` makes it a frame."""
        return read_changes(self._results())

    def holds(self) -> pa.Table:
        """Return the current results, after all changes: segments by key and begin."""
        return read_holds(self._results())

    def aside(self) -> pa.Table:
        """Return all rows set aside on this checkpoint, with their streams, batches and reasons."""
        found = pa.table({}) if self.job.aside is None else read_aside(self.job.aside)
        return found if found.column_names else no_rejects(self.job, self._given)

    def _results(self) -> str:
        sink = self.job.sink
        if sink.kind != "parquet" or sink.path is None:
            raise ResultsError(
                f"{self.job.where}: the job's results went to its sink, {sink.kind!r}, and are not kept; leave the sink out, "
                "give it kind = 'parquet' and a path, or receive them with on_batch"
            )
        return sink.path

    @property
    def _state(self) -> str:
        if self.active:
            return "running"
        return "failed, wait() raises why" if self._work is not None and self._work.failed() else "done"

    def __repr__(self) -> str:
        state = self._state
        summary = self.status.line() if self.status.batches else "no tuples"
        return f"JobRun({self.job.where!r}, engine={self.job.engine!r}; {state}: {summary})"

    def _repr_html_(self) -> str:
        state = self._state
        heading = html.paragraph(f"{self.job.where}, engine {self.job.engine!r}: {state}")
        if not self.status.batches:
            return heading + html.paragraph("no tuples")
        figures = self.status.figures()
        hint = self.status.hint(self.job)
        more = "" if hint is None else html.paragraph(f"hint: {hint}")
        return heading + html.table(_SHOWN, [[figures[name] for name in _SHOWN]]) + more

    def __enter__(self) -> JobRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def run_job(
    given: JobLike,
    *,
    engine: str | None,
    spark: StartSpark,
    once: bool = True,
    folder: str | os.PathLike[str] | None = None,
    frames: Mapping[str, Any] | None = None,
    on_batch: OnBatch | None = None,
    on_status: OnStatus | None = None,
) -> JobRun:
    """Run a job and return a handle to it: :meth:`pulse.Session.run`, which describes the other parameters.

    ``engine`` is ``spark`` or ``local``, or None for the one that the job names; ``spark`` starts Spark with settings.
    """
    job = as_job(given, folder)
    job = placed(job if engine is None else replace(job, engine=cast("Engine", engine)))
    run = JobRun(job)

    def note(status: Status) -> None:
        run.status = status
        if on_status is not None:
            on_status(status)

    if job.engine == "local":
        if frames:
            raise SessionError("run: frames are Spark's; expected engine 'spark', got 'local'")
        thread = _Thread(job, None if on_batch is None else _CallbackSink(job, on_batch, None), note)
        run._work = thread
        thread.begin(once)
        return run
    from pulse.runtime.predict.spark_driver import start
    from pulse.runtime.spark.arrow_frames import arrow_schema_of

    check_for_spark(job, frames or {})
    started = _started(job, spark)
    sink = None if on_batch is None else _CallbackSink(job, on_batch, started)
    running = start(started, job, once=once, frames=frames, sink=sink, on_status=note)
    run._work = _Query(running)
    run._given = {name: arrow_schema_of(frame) for name, frame in (frames or {}).items()}
    if once:
        try:
            run.wait()
        finally:
            if run.active:  # interrupted
                run.stop()
    return run


def _started(job: Job, spark: StartSpark) -> SparkSession:
    """Start Spark with the job's settings, harmless lines of its stderr filtered out."""
    from pulse.runtime.jobs.secrets import REDACTION, concealing, resolved
    from pulse.runtime.spark.session import is_running
    from pulse.runtime.spark.stderr_filter import without_chatter

    verbose = logging.getLogger("pulse").isEnabledFor(logging.INFO)
    with concealing(job.spark), nullcontext() if verbose else without_chatter():
        return spark({**({} if is_running() else REDACTION), **resolved(job.spark)})


def as_job(given: JobLike, folder: str | os.PathLike[str] | None = None) -> Job:
    """Return the job that a TOML file, or tables as it has them, describe. Tables without a sink store results as Parquet."""
    if isinstance(given, Job):
        return given
    if isinstance(given, Mapping):
        job = job_of(given, folder=Path("." if folder is None else folder))
        return job if "sink" in given else replace(job, sink=SinkJob("parquet"))
    if isinstance(given, (str, os.PathLike)):
        if folder is not None:
            raise SessionError(
                f"run: paths in {os.fspath(given)} are relative to the file; folder is for jobs given as tables"
            )
        return read_job(Path(given))
    raise SessionError(
        f"run: expected a job: the path of a TOML file, tables as it has them, or a Job, got {type(given).__name__}"
    )


def placed(job: Job) -> Job:
    """Give the job a folder for everything it writes: temporary folders where it names none."""
    sink = job.sink
    if sink.kind == "parquet" and sink.path is None:
        where = _temporary("results") if job.checkpoint is None else str(Path(job.checkpoint) / "results")
        job = replace(job, sink=replace(sink, path=where))
    if job.engine == "spark" and job.checkpoint is None:
        job = replace(job, checkpoint=_temporary("checkpoint"))
    return job if job.aside is not None else replace(job, sink=replace(job.sink, aside=_temporary("aside")))


def _temporary(what: str) -> str:
    folder = tempfile.mkdtemp(prefix=f"pulse-{what}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class _CallbackSink:
    """The job's own sink, followed by a callback with each batch."""

    def __init__(self, job: Job, callback: OnBatch, spark: SparkSession | None) -> None:
        self.job, self.callback, self.spark = job, callback, spark
        self.sink: Sink | None = None

    def write(self, batch: int, changes: pa.Table, now: int | None, seen: Seen | None = None) -> None:
        """Write the batch, then call back."""
        if self.sink is None:
            keys = changes.column_names[: changes.column_names.index("ref")]
            self.sink = sink_of(self.job, tuple(keys), spark=self.spark)
        self.sink.write(batch, changes, now, seen)
        self.callback(JobBatch(batch, changes, now))


# The work of a run, on either engine: ``wait`` raises the error that ended it.


class _Thread:
    """A job in this process: run to its end, or in a thread of its own until it is stopped."""

    def __init__(self, job: Job, sink: Sink | None, note: OnStatus) -> None:
        self.job, self.sink, self.note = job, sink, note
        self._stopped, self._begun = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._raised = False

    def begin(self, once: bool) -> None:
        """Run to the end with ``once``, else until the run has its folders: a refusal is raised here."""
        if once:
            run_local(self.job, sink=self.sink, on_status=self.note)
            return
        self._thread = threading.Thread(target=self._run, name="pulse-job", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._error is not None:
            self.wait(None)

    def _run(self) -> None:
        try:
            run_local(
                self.job,
                once=False,
                sink=self.sink,
                on_status=self.note,
                stopped=self._stopped.is_set,
                begun=self._begun.set,
            )
        except Exception as e:  # noqa: BLE001  # any error is raised by wait()
            self._error = e
        finally:
            self._begun.set()

    def active(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def failed(self) -> bool:
        return self._error is not None

    def wait(self, seconds: float | None) -> bool:
        if self._thread is not None:
            self._thread.join(seconds)
        if self._error is not None:
            self._raised = True
            raise self._error
        return not self.active()

    def stop(self) -> None:
        """Stop after the current batch; raise the error that ended it, unless :meth:`wait` did."""
        self._stopped.set()
        if not self._raised:
            self.wait(None)


class _Query:
    """A job on Structured Streaming."""

    def __init__(self, running: Any) -> None:
        self.running = running

    def active(self) -> bool:
        return bool(self.running.active())

    def failed(self) -> bool:
        """Return whether an error ended it; False where Spark itself is gone."""
        from py4j.protocol import Py4JError

        try:
            return not self.active() and self.running.query.exception() is not None
        except (Py4JError, OSError):
            return False

    def wait(self, seconds: float | None) -> bool:
        """Wait until it ends; Spark waits for whole seconds."""
        return bool(self.running.wait(None if seconds is None else max(1, round(seconds))))

    def stop(self) -> None:
        """Stop without finishing the current micro-batch."""
        self.running.stop()

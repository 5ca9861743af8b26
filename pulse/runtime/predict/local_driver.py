"""Run a predictive job in this process: the same files, in the same batches as on Spark, through a single prediction.

For small streams and low latency, and as the reference for the Spark engine. With a checkpoint a run continues where the last one
ended, as on Spark; without one it starts with the first file. Both engines report the same figures (:class:`Status`).
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping, Sequence

from pulse.runtime.accents.follower import JobAbortedError
from pulse.runtime.accents.log_tailer import Logs
from pulse.runtime.jobs.checkpoint import Files, Progress, known_columns, store_columns
from pulse.runtime.jobs.dead_letters import write_aside
from pulse.runtime.jobs.empty_results import store_result_columns
from pulse.runtime.jobs.file_source import next_batches
from pulse.runtime.jobs.folders import check_links, claim_folders
from pulse.runtime.jobs.sinks import Batch, Sink, numbered, sink_of
from pulse.runtime.jobs.source_schema import resolve_types
from pulse.runtime.jobs.sources import predictor_of, read_batch
from pulse.runtime.jobs.toml import Job, JobError
from pulse.runtime.predict.confirmation import seen_by
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.status import Status

_PAUSE = 0.2  # seconds between two polls for new files


def run_local(
    job: Job,
    *,
    once: bool = True,
    sink: Sink | None = None,
    on_batch: Batch | None = None,
    on_status: Callable[[Status], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
    begun: Callable[[], None] = lambda: None,
) -> Prediction:
    """Run a job on the files of its streams.

    Parameters
    ----------
    job : its streams must be files
    once : whether to end after the files present, default True; otherwise poll for new ones until interrupted
    sink : receives the changes, default that of the job
    on_batch : called with each batch's number and changes
    on_status : called with the figures after each batch
    stopped : checked between batches; True ends the run
    begun : called once the run holds the job's folders, before the first batch
    """
    for stream in job.streams.values():
        if stream.source != "files":
            raise JobError(
                f"{job.where}, [streams.{stream.name}], 'source': expected files with engine 'local', got {stream.source!r}"
            )
    check_links(job)
    typed, types = resolve_types(job, known_columns(job))
    predictor = predictor_of(typed)
    with claim_folders(job, "local"):
        progress = Progress(job, predictor)
        store_columns(job, types)
        store_result_columns(job, predictor)
        begun()
        return _run(job, typed, progress, once, sink, on_batch, on_status, stopped)


def _run(
    job: Job,
    typed: Job,
    progress: Progress,
    once: bool,
    sink: Sink | None,
    on_batch: Batch | None,
    on_status: Callable[[Status], None] | None,
    stopped: Callable[[], bool],
) -> Prediction:
    """Run the batches of a job whose folders are locked; ``typed`` is the job with the types of all its columns."""
    place, prediction = progress.place, progress.prediction
    predictor = prediction.predictor
    output = predictor.continuous.output
    if sink is None:
        sink = sink_of(job, output.key_names)
    status = Status()
    schemas = {name: spec.schema for name, spec in predictor.specs.items()}
    others = {name: options.others for name, options in predictor.accent_options.items()}
    logs = Logs.of(job, predictor, progress.read)

    def step(files: Files, lines: Mapping[str, Sequence[str]]) -> None:
        begin, batch = clock.perf_counter(), progress.batch
        tables = read_batch(typed, schemas, files, others, located=job.aside is not None)
        progress.begin(files)
        emission, known = place.run(
            place.decode(tables, lines), lambda made: (made, seen_by(predictor, prediction.validators))
        )
        changes = numbered([(emission.changes, prediction.now or 0)], predictor.continuous.schema, batch)
        sink.write(batch, changes, prediction.now, known)
        write_aside(job, batch, emission.aside)
        if on_batch is not None:
            on_batch(batch, changes)
        if reason := place.follower.ended(prediction.now):
            # The batch's results stay, and a later run ends here again.
            raise JobAbortedError(reason)
        progress.commit(files, logs.read)
        status.add(emission.tally, prediction.now, clock.perf_counter() - begin)
        if on_status is not None:
            on_status(status)

    planned = progress.planned()
    while not stopped():
        for files in [planned] if planned is not None else next_batches(typed, progress.seen):
            step(files, logs.new())
            if stopped():
                return prediction
        if any((more := logs.new()).values()):
            step({}, more)
        if planned is not None:
            planned = None
        elif once:
            return prediction
        else:
            clock.sleep(_PAUSE)
    return prediction

"""Run a predictive job in this process: the same files, in the same batches as on Spark, through a single prediction.

For small streams and low latency, and as the reference for the Spark engine. With a checkpoint a run continues where the last one
ended, as on Spark; without one it starts with the first file. Both engines report the same figures (:class:`Status`).
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pulse.core.time import format_instant
from pulse.runtime.accents.follower import Follower, JobAbortedError, follow
from pulse.runtime.accents.log_tailer import Logs
from pulse.runtime.jobs.checkpoint import Files, Progress, known_columns, store_columns
from pulse.runtime.jobs.dead_letters import write_aside
from pulse.runtime.jobs.empty_results import store_result_columns
from pulse.runtime.jobs.file_source import next_batches
from pulse.runtime.jobs.folders import check_links, claimed_folders
from pulse.runtime.jobs.sinks import Batch, Sink, numbered, sink_of
from pulse.runtime.jobs.source_schema import resolve_types
from pulse.runtime.jobs.sources import newest, predictor_of, read_batch
from pulse.runtime.jobs.toml import Job, JobError
from pulse.runtime.predict.confirmation import seen_by
from pulse.runtime.predict.engine import Prediction, Tally

_PAUSE = 0.2  # seconds between two polls for new files
_MANY = 100  # tuples, the minimum for a hint
_VOLATILE = 0.5  # share of tuples that change a kept attribute, above which models are useless


@dataclass
class Status:
    """Figures of a run since its start. ``now`` is the newest event time in microseconds."""

    tally: Tally = field(default_factory=Tally)
    batches: int = 0
    now: int | None = None
    seconds: float = 0.0  # of work, over all batches
    last: float = 0.0  # of work, of the last batch
    last_tuples: int = 0

    def add(self, tally: Tally, now: int | None, seconds: float) -> None:
        """Add the figures of a finished batch."""
        self.tally.add(tally)
        self.batches += 1
        self.seconds += seconds
        self.last, self.last_tuples = seconds, tally.tuples
        if now is not None:
            self.now = now if self.now is None else max(self.now, now)

    @property
    def validated(self) -> float:
        """The share of tuples that needed no solving, 0 to 1."""
        return self.tally.validated / self.tally.tuples if self.tally.tuples else 0.0

    @property
    def lag(self) -> float | None:
        """Seconds from the newest event time to the clock; for replayed data, its age."""
        return None if self.now is None else clock.time() - self.now / 1e6

    def figures(self) -> dict[str, Any]:
        """The figures as JSON values."""
        tally = self.tally
        return {
            "batches": self.batches,
            "tuples": tally.tuples,
            "tuples_per_second": round(self.last_tuples / self.last) if self.last else 0,
            "validated": tally.validated,
            "validated_share": round(self.validated, 6),
            "violations": tally.violations,
            "changed": tally.changed,
            "updates": tally.updates,
            "solves": tally.solves,
            "results": tally.results,
            "changes": tally.changes,
            "aside": tally.aside,
            "revisions": tally.revisions,
            "absorbed": tally.absorbed,
            "accents": tally.accents,
            "beyond": tally.beyond,
            "batch_seconds": round(self.last, 3),
            "lag_seconds": None if self.lag is None else round(self.lag, 3),
            "now": None if self.now is None else format_instant(self.now),
        }

    def line(self) -> str:
        """The figures as one readable line."""
        tally = self.tally
        speed = self.last_tuples / self.last if self.last else 0.0
        aside = f", {tally.aside:,} aside" if tally.aside else ""
        revised = f", {tally.revisions:,} revisions, {tally.absorbed:,} absorbed" if tally.revisions else ""
        revised += f", {tally.accents:,} accents" if tally.accents else ""
        lag = "" if self.lag is None else f", lag {_age(self.lag)}"
        return (
            f"{tally.tuples:,} tuples, {speed:,.0f}/s, {100 * self.validated:.1f} % validated, "
            f"{tally.violations:,} violations, {tally.solves:,} solves, {tally.changes:,} results{revised}{aside}{lag}"
        )

    def hint(self, job: Job) -> str | None:
        """Advice if most tuples change a kept attribute, so that models are useless; else None."""
        tally = self.tally
        keeps = [f"{one.name} keeps {', '.join(one.keep)}" for one in job.streams.values() if one.keep]
        if tally.tuples < _MANY or tally.changed <= _VOLATILE * tally.tuples or not keeps:
            return None
        return (
            f"{100 * tally.changed / tally.tuples:.0f} % of the tuples change an attribute that is kept, and every change ends a "
            f"model ({'; '.join(keeps)}): model what changes so often, or leave it out of keep"
        )


def _age(seconds: float) -> str:
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


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
    with claimed_folders(job, "local"):
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
    prediction = progress.prediction
    predictor = prediction.predictor
    output = predictor.continuous.output
    if sink is None:
        sink = sink_of(job, output.key_names)
    status = Status()
    schemas = {name: spec.schema for name, spec in predictor.specs.items()}
    others = {name: options.others for name, options in predictor.accent_options.items()}
    follower = Follower(predictor, *(progress.accents or ()))
    logs = Logs.of(job, predictor, progress.read)

    def step(files: Files, lines: Mapping[str, Sequence[str]]) -> None:
        begin, batch = clock.perf_counter(), progress.batch
        tables = read_batch(typed, schemas, files, others, located=job.aside is not None)
        progress.begin(files)
        decoded = follower.hear(tables, lines)
        now = newest(decoded.came, predictor, prediction.now)
        watermark = None if now is None else follower.watermark(now, job.lateness)
        emission = follow(prediction, follower, decoded, watermark)
        prediction.now = now
        if watermark is not None:
            prediction.advance(watermark, decoded.drops)
        known = seen_by(predictor, prediction.validators)
        follower.settle(now, watermark, prediction.validators)
        changes = numbered([(emission.changes, prediction.now or 0)], predictor.continuous.schema, batch)
        sink.write(batch, changes, prediction.now, known)
        write_aside(job, batch, emission.aside)
        if on_batch is not None:
            on_batch(batch, changes)
        if reason := follower.ended(prediction.now):
            # The batch's results stay, and a later run ends here again.
            raise JobAbortedError(reason)
        if predictor.accent_options:
            progress.accents, progress.read = follower.snapshot, dict(logs.read)
        progress.commit(files)
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

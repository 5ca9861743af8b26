"""Check a job before its engine starts: Spark takes seconds to start, and these errors show without it."""

from __future__ import annotations

from collections.abc import Collection

from pulse.core.errors import PulseError
from pulse.operators.inversion.split_heuristics import check_known_to_workers
from pulse.runtime.jobs.checkpoint import check_fingerprint
from pulse.runtime.jobs.spec import Job
from pulse.runtime.jobs.toml_tables import JobError


def check_for_spark(job: Job, frames: Collection[str] = ()) -> None:
    """Refuse what Spark cannot run: a checkpoint of the other engine or of another job, a split that workers do not have, streams
    of source 'frame' missing from ``frames``, the names of the frames given."""
    if job.checkpoint is None:
        raise JobError(f"{job.where}: 'checkpoint': expected a folder for the state, got nothing")
    for name, one in job.streams.items():
        if one.source == "frame" and name not in frames:
            raise JobError(f"{job.where}, [streams.{name}]: source 'frame' is for frames given to start()")
    try:
        check_known_to_workers(job.split)
    except PulseError as e:
        raise JobError(f"{job.where}: {e}") from None
    check_fingerprint(job, "spark")

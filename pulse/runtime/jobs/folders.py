"""Lock and claim the folders that a job writes to: one run at a time, and results of one job only.

::

    checkpoint/_lock               held by a running job through the operating system, so it ends with the process; a job without
                                   a checkpoint locks the results folder
    checkpoint/_pulse_id           the checkpoint's random id, drawn when it is created
    results/_pulse_results.json    the owner of the results; the dead-letter folder, if the job names one, has the same

Batch numbers begin with 0 on every checkpoint. Two jobs, or two checkpoints of one job, in one folder would overwrite some of
each other's batches and leave others: so a folder belongs to the checkpoint that first wrote to it. Runs of a job without a
checkpoint all begin with the first file: the folder belongs to the job's definition.
"""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from zlib import crc32

from pulse.runtime.jobs.checkpoint import CheckpointError, check_fingerprint
from pulse.runtime.jobs.lock import LOCK, LockedError, release, take
from pulse.runtime.jobs.result_log import FINGERPRINT, RESULTS, SET_ASIDE
from pulse.runtime.jobs.spec import Job
from pulse.runtime.jobs.toml_tables import JobError
from pulse.runtime.predict.batch_store import replace_file
from pulse.store.commits import is_model
from pulse.store.link_checks import check_own

IDENTITY = "_pulse_id"
_WITHIN = ("local", "alerts", "bounds", "accents", "aside", "results")


class CheckpointInUseError(CheckpointError, BlockingIOError):
    """Another run holds the checkpoint or, for a job without one, the results folder."""


class OthersResultsError(JobError, FileExistsError):
    """A results folder that holds results of another job or another checkpoint."""


def claim_folders(job: Job, engine: str) -> ExitStack:
    """Lock and claim a job's folders for a run that is about to write; refuse folders in use or of another job.

    Leaving the returned context, or closing it, releases the lock.
    """
    with ExitStack() as folders:
        handle = _lock(job)
        if handle is not None:
            folders.callback(release, handle)
        if job.checkpoint is not None:
            check_fingerprint(job, engine)
        _claim_all(job)
        return folders.pop_all()


def check_links(job: Job) -> None:
    """Check that no symbolic link in the folders leads out of them, before anything in them is read."""
    every = {"ours": lambda name: True}
    if job.checkpoint is not None:
        check_own(job.checkpoint, _WITHIN, what="checkpoint", **every)
    for path in (job.sink.path, job.aside):
        if path is not None:
            check_own(path, ("_aside",), what="job", **every)


def _lock(job: Job) -> int | None:
    folder = job.checkpoint or job.sink.path
    if folder is None:
        return None
    _make(job, Path(folder), "checkpoint" if job.checkpoint is not None else "path")
    try:
        return take(Path(folder) / LOCK, folder, f"a run of {job.where}")
    except LockedError as e:
        what = "checkpoint" if job.checkpoint is not None else "folder of results"
        raise CheckpointInUseError(
            f"{job.where}: the {what} {folder} is in use ({e.holder}) and takes one run at a time; wait for that one or stop it, "
            "or give this one a checkpoint and a sink of its own"
        ) from None


def _make(job: Job, folder: Path, key: str) -> None:
    """Create the folder that the job names under this key, unless it exists."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        what = "a file" if folder.is_file() else f"which cannot be created ({e.strerror})"
        raise JobError(
            f"{job.where}, '{key}': expected a folder to write to, got {folder}, {what}; name another"
        ) from e


# -- ownership of results -------------------------------------------------------------------------------------


def _claim_all(job: Job) -> None:
    named = {RESULTS: job.sink.path, SET_ASIDE: job.sink.aside}
    claims = {file: Path(path) for file, path in named.items() if path is not None}
    if not claims:
        return
    mine, older = _identity(job)
    for file, folder in claims.items():
        _claim(job, folder, file, mine, adopt=older)


def _identity(job: Job) -> tuple[str, bool]:
    """Return the job's id, and whether its checkpoint predates ids."""
    if job.checkpoint is None:
        text = json.dumps(job.fingerprint(), sort_keys=True)
        return f"without a checkpoint, {crc32(text.encode()):08x}", False
    file = Path(job.checkpoint) / IDENTITY
    if file.exists():
        return file.read_text(encoding="utf-8", errors="replace").strip(), False
    drawn = uuid.uuid4().hex
    replace_file(file, drawn.encode())
    return drawn, (Path(job.checkpoint) / FINGERPRINT).exists()


def _claim(job: Job, folder: Path, file: str, mine: str, *, adopt: bool) -> None:
    """Record the job as the folder's owner, or refuse a folder of another owner."""
    record = folder / file
    what = "results" if file == RESULTS else "rows set aside"
    _make(job, folder, _key(file))
    if is_model(folder):
        raise OthersResultsError(
            f"{job.where}: {folder} is a stored model; {what} of a job would mix with its files; give this job another "
            f"'{_key(file)}' in its [sink]"
        )
    if not record.exists():
        if not adopt and folder.is_dir() and _has_batches(folder):
            raise OthersResultsError(
                f"{job.where}: {folder} holds {what} of an unknown job; those of this one would mix with them; {_advice(file)}"
            )
        about = {"id": mine, "query": job.query, "checkpoint": job.checkpoint}
        replace_file(record, json.dumps(about, indent=2).encode())
        return
    owner = _read(record)
    if owner.get("id") != mine:
        raise OthersResultsError(
            f"{job.where}: {folder} holds {what} of {_describe(job, owner)}; those of this one would mix with them; "
            f"{_advice(file)}"
        )


def _has_batches(folder: Path) -> bool:
    return any(one.name.startswith(("batch=", "stream=")) for one in folder.iterdir())


def _read(record: Path) -> dict[str, Any]:
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _describe(job: Job, owner: dict[str, Any]) -> str:
    """Describe a folder's owner by where it differs from ``job``."""
    query = " ".join(str(owner.get("query")).split())
    if query != " ".join(job.query.split()):
        return f"another job ({query if len(query) < 120 else query[:120] + '…'})"
    if owner.get("checkpoint") is None:
        return "an earlier version of the job" if job.checkpoint is None else "a run without a checkpoint"
    if owner["checkpoint"] == job.checkpoint:
        return f"an earlier checkpoint in {job.checkpoint}, since removed or replaced"
    return f"a run on another checkpoint ({owner['checkpoint']})"


def _key(file: str) -> str:
    return "path" if file == RESULTS else "aside"


def _advice(file: str) -> str:
    return f"give this one another '{_key(file)}' in its [sink], or remove that folder if it is not needed"

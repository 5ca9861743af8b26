"""Write and check a job's checkpoint: its fingerprint and, in process, state and progress (semantics 6.4).

::

    checkpoint/_pulse_job.json        everything that results depend on; a job that differs is refused
    checkpoint/_pulse_columns.json    types of columns that the job does not list, as first inferred
    checkpoint/spark                  Spark's own checkpoint, where Spark runs the job
    checkpoint/local/next             the files of the batch in progress, by stream: a restart runs it with the same files
    checkpoint/local/state            the whole prediction after the last committed batch

In process a batch commits when its state replaces the one before. A run that ended before that may have left results of the
batch; the rerun replaces them: same number, same files, same state. State is plain data, as on Spark, and is decoded as nothing
else (:mod:`pulse.core.encoding.codec`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pulse.core.errors import PulseError
from pulse.core.time import format_duration, parse_duration
from pulse.core.typed_data import typed
from pulse.runtime.jobs.result_log import FINGERPRINT
from pulse.runtime.jobs.spec import Job
from pulse.runtime.predict.batch_store import replace_file
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.micro_batch import Place
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.state_schema import CHECKPOINT, Checkpoint, SingleState, check_streams

COLUMNS = "_pulse_columns.json"
Files = Mapping[str, list[Path]]
# Fields of a job that are durations, by the unit they are stored in.
_IN_MICROSECONDS, _IN_SECONDS = ("lateness", "revisions"), ("horizon",)


class CheckpointError(PulseError, ValueError):
    """A checkpoint that belongs to another job."""


def write_fingerprint(job: Job, engine: str = "spark") -> None:
    """Write the job's fingerprint into its checkpoint; refuse a checkpoint of another job or another engine."""
    check_fingerprint(job, engine)
    assert job.checkpoint is not None
    file = Path(job.checkpoint) / FINGERPRINT
    if not file.exists():
        replace_file(file, json.dumps(job.fingerprint(), indent=2, sort_keys=True).encode())


def check_fingerprint(job: Job, engine: str) -> None:
    """Refuse a job whose checkpoint belongs to another job or another engine; write nothing."""
    assert job.checkpoint is not None
    file = Path(job.checkpoint) / FINGERPRINT
    other = "local" if engine == "spark" else "spark"
    if (Path(job.checkpoint) / other).exists():
        raise CheckpointError(
            f"{job.where}: the checkpoint {job.checkpoint} is of engine '{other}'; engine '{engine}' cannot resume its state; "
            f"run the job with engine '{other}', or as a job of its own, with a new checkpoint and {_new_sink(job)}"
        )
    if not file.exists():
        return
    stored = _read_json(file, Any)
    changed = list(_differences(stored, _without_known(job.fingerprint(), stored, known_columns(job)), ""))
    if changed:
        raise CheckpointError(
            f"{job.where}: the checkpoint {job.checkpoint} is of another job: {'; '.join(changed)}. Its state and results would "
            f"not fit; change the job back, or run it as a job of its own, with a new checkpoint and {_new_sink(job)}"
        )


def _new_sink(job: Job) -> str:
    """Advise a new sink for a new checkpoint: batch numbers start at 0 again, and batches of two jobs must not mix."""
    if job.sink.path is None:
        return "a new sink"
    return f"a new sink: the results in {job.sink.path} belong to the job as it was"


def _without_known(
    mine: dict[str, Any], stored: Any, known: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """Drop from a fingerprint the columns that the job lists now and that were inferred from its files before: no difference."""
    from pulse.runtime.jobs.source_schema import same_types

    before = stored.get("streams") if isinstance(stored, dict) else None
    for name, one in mine["streams"].items():
        own = before.get(name) if isinstance(before, dict) else None
        if "columns" in one and name in known and isinstance(own, dict) and "columns" not in own:
            follows = "accents" in one or "splits" in one  # accents may refer to any column
            if same_types(one["columns"], known[name], all_of_them=follows):
                del one["columns"]
    return mine


def known_columns(job: Job) -> dict[str, dict[str, str]]:
    """Return the column types, by stream, that earlier runs inferred and the job does not list."""
    if job.checkpoint is None or not (file := Path(job.checkpoint) / COLUMNS).exists():
        return {}
    stored = _read_json(file, dict[str, dict[str, str]])
    return {name: own for name, own in stored.items() if name in job.streams}


def store_columns(job: Job, types: Mapping[str, Mapping[str, str]]) -> None:
    """Store inferred column types for later runs; types already stored stay."""
    if job.checkpoint is None or not types:
        return
    known = known_columns(job)
    if not set(types) <= set(known):
        merged = {**types, **known}
        replace_file(Path(job.checkpoint) / COLUMNS, json.dumps(merged, indent=2).encode())


def _differences(old: Any, new: Any, at: str) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in sorted({*old, *new})
            for line in _differences(old.get(key), new.get(key), f"{at}.{key}" if at else key)
        ]
    return [] if old == new else [f"{at} was {_shown(old, at)}, is {_shown(new, at)}"]


def _shown(value: Any, at: str) -> str:
    """Format a field's value for a message: durations, stored as microseconds or as written, with their unit."""
    name = at.rpartition(".")[2]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if name in _IN_MICROSECONDS:
            return format_duration(int(value))
        if name in _IN_SECONDS:
            return format_duration(parse_duration(value))
    return repr(value)


@dataclass(frozen=True)
class _Plan:
    """The number of a batch and its files, by stream."""

    batch: int
    files: dict[str, list[str]]


class Progress:
    """A job's state and progress in process: ``batch`` is the number of the next batch, ``seen`` the files of earlier ones.

    Without a checkpoint nothing is stored.
    """

    def __init__(self, job: Job, predictor: Predictor) -> None:
        self.folder: Path | None = None
        self.batch = 0
        self.seen: dict[str, set[Path]] = {name: set() for name in predictor.specs}
        self.prediction = Prediction(predictor)
        self.place = Place.of(self.prediction, job.lateness)
        self.read: dict[str, int] = {}  # offsets in the accent logs beside the streams
        if job.checkpoint is None:
            return
        write_fingerprint(job, "local")
        self.folder = Path(job.checkpoint) / "local"
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / "state").exists():
            self._restore(self.folder / "state")

    def _restore(self, file: Path) -> None:
        try:
            snapshot: Checkpoint = unpack_state(CHECKPOINT, file.read_bytes())
            check_streams(snapshot.seen, self.prediction.predictor.specs, "seen")
            self.place = Place.of(self.prediction, self.place.lateness, snapshot.prediction)
        except PulseError as e:
            raise CheckpointError(f"{file}: {e}") from e
        self.batch, self.read = snapshot.batch, snapshot.read
        self.seen = {name: set(map(Path, files)) for name, files in snapshot.seen.items()}

    def planned(self) -> Files | None:
        """Return the files of a batch that was begun and not committed, or None."""
        if self.folder is None or not (self.folder / "next").exists():
            return None
        plan = _read_json(self.folder / "next", _Plan)
        if plan.batch != self.batch:
            return None
        return {name: [Path(one) for one in plan.files.get(name, [])] for name in self.seen}

    def begin(self, files: Files) -> None:
        """Record that a batch of these files is in progress."""
        if self.folder is not None:
            plan = _Plan(self.batch, {name: list(map(str, some)) for name, some in files.items()})
            replace_file(self.folder / "next", json.dumps(asdict(plan)).encode())

    def commit(self, files: Files, read: Mapping[str, int]) -> None:
        """Commit the batch: advance its number and store the state; ``read`` are the offsets reached in accent logs."""
        self.batch, self.read = self.batch + 1, dict(read)
        for name, some in files.items():
            self.seen[name].update(some)
        if self.folder is None:
            return
        seen = {name: sorted(map(str, some)) for name, some in self.seen.items()}
        prediction = self.place.state
        assert isinstance(prediction, SingleState)
        snapshot = Checkpoint(self.batch, seen, prediction, self.read)
        replace_file(self.folder / "state", pack_state(CHECKPOINT, snapshot))


def _read_json(file: Path, kind: Any) -> Any:
    try:
        return typed(json.loads(file.read_text(encoding="utf-8")), kind)
    except (ValueError, RecursionError) as e:
        raise CheckpointError(
            f"{file}: corrupt checkpoint file ({type(e).__name__}: {e}); restore it, or give the job a new checkpoint and a "
            "new sink"
        ) from e

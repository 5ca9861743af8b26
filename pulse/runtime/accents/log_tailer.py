"""Logs of accents beside running streams: files that may grow while a job runs.

Only whole lines are read: one that is being written waits for its end. On Spark the driver puts what is new into a folder of
files that never change, in the checkpoint, which is a stream like any other: what a micro-batch has heard is in its offsets.
"""

from __future__ import annotations

import json
import logging
import threading
import time as clock
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.datasets.splits import split_rows
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict.batch_store import replace_file
from pulse.runtime.predict.spec import Predictor
from pulse.stream.accents.accents import AccentError

_log = logging.getLogger(__name__)
_SPLITS = "splits of "
_PAUSE = 0.5  # seconds between two looks at a log


@dataclass
class Logs:
    """Files by stream, and how many bytes of each were read. A file that is not there yet says nothing."""

    files: Mapping[str, Path]
    read: dict[str, int] = field(default_factory=dict)
    splits: Mapping[str, tuple[Path, StreamSchema, tuple[str, ...]]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _shrunk: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, job: Job, predictor: Predictor, read: Mapping[str, int] | None = None) -> Logs:
        """The logs and tables of splits of a job's streams, as far as they were ``read`` before."""
        files, splits = {}, {}
        for name, hears in predictor.hears.items():
            stream = job.streams[name]
            if stream.accent_log is not None:
                files[name] = Path(stream.accent_log)
            if stream.splits is not None:
                splits[name] = Path(stream.splits), predictor.specs[name].schema, hears.attributes
        return cls(files, dict(read or {}), splits)

    @property
    def streams(self) -> tuple[str, ...]:
        """Those that have any."""
        return tuple(dict.fromkeys((*self.files, *self.splits)))

    def new(self) -> dict[str, list[str]]:
        """The lines that came since, by stream; rows of a table of splits as lines. With an error nothing was read."""
        found: dict[str, list[str]] = {}
        read = dict(self.read)
        for stream, (file, schema, attributes) in self.splits.items():
            before, seen = self.read.get(_SPLITS + stream, 0), stream in self._seen
            try:
                lines = _split_lines(file, schema, attributes, before > 0 or seen, seen)
            except (PulseError, OSError, UnicodeDecodeError) as e:
                if not before and not seen:
                    raise
                _log.warning("splits: %s; the job goes on, and looks again", e)
                continue
            self._seen.add(stream)
            self._tell_shorter(_SPLITS + stream, file, len(lines), before, "alterations")
            if len(lines) > before:
                found[stream] = lines[before:]
                read[_SPLITS + stream] = len(lines)
        for stream, file in self.files.items():
            try:
                data = file.read_bytes() if file.exists() else b""
            except OSError as e:
                raise AccentError(f"{file}: cannot read the accents of stream {stream}: {e}") from None
            before = self.read.get(stream, 0)
            whole = len(data) if _ends(data) else data.rfind(b"\n") + 1
            self._tell_shorter(stream, file, len(data), before, "bytes")
            if whole > before:
                text = data[before:whole].decode("utf-8", errors="replace").removeprefix("\ufeff")
                found.setdefault(stream, []).extend(line for line in text.splitlines() if line.strip())
                read[stream] = whole
        self.read = read
        return found

    def _tell_shorter(self, mark: str, file: Path, count: int, before: int, what: str) -> None:
        """Say once that less is there than was read."""
        if count < before and mark not in self._shrunk:
            self._shrunk.add(mark)
            _log.warning(
                "%s: expected accents to be appended, got %d %s where %d were read before; nothing more is heard of it until "
                "it is longer than that",
                *(file, count, what, before),
            )


@dataclass
class Spool:
    """What logs have gained, as files by stream. Each is named by how far the log was read, so that a restart goes on there."""

    logs: Logs
    folders: Mapping[str, Path]
    _busy: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, job: Job, predictor: Predictor) -> Spool:
        """The logs of a job's streams, with a folder in its checkpoint for each."""
        assert job.checkpoint is not None
        logs = Logs.of(job, predictor)
        folders = {name: Path(job.checkpoint) / "accents" / name for name in logs.streams}
        for name, folder in folders.items():
            folder.mkdir(parents=True, exist_ok=True)
            last = max((one.stem for one in folder.glob("[0-9]*")), default="0")
            read, _, splits = last.partition("-")
            logs.read[name], logs.read[_SPLITS + name] = int(read), int(splits or 0)
        return cls(logs, folders)

    def take(self) -> None:
        """Put what is new into a file; written beside its place and put there whole."""
        with self._busy:
            before = self.logs.read
            found = self.logs.new()
            reached = self.logs.read
            self.logs.read = dict(before)  # what is not in its place yet is looked for again
            for stream, lines in found.items():
                marks = {one: reached[one] for one in (stream, _SPLITS + stream) if one in reached}
                read, splits = marks.get(stream, 0), marks.get(_SPLITS + stream, 0)
                folder = self.folders[stream]
                name = f"{read:015d}-{splits:09d}.txt" if splits else f"{read:015d}.txt"
                replace_file(folder / name, ("\n".join(lines) + "\n").encode())
                self.logs.read |= marks

    def watch(self, while_: Callable[[], bool]) -> None:
        """Look every now and then, as long as a job runs."""
        if not self.folders:
            return

        def look() -> None:
            while while_():
                try:
                    self.take()
                except (PulseError, OSError) as e:
                    _log.warning("accents: %s; the job goes on, and looks again", e)
                clock.sleep(_PAUSE)

        threading.Thread(target=look, name="pulse-accents", daemon=True).start()


def _split_lines(
    file: Path, schema: StreamSchema, attributes: tuple[str, ...], running: bool, ended: bool
) -> list[str]:
    """The accents that a table of splits stands for, in the order of its rows. A row that is no split keeps a job from being
    started; of one that is ``running`` it is a line that is no accent, and so is set aside: those after it count. ``ended``:
    the last row needs its end, for half of ``1:10`` is a ratio, too."""
    lines: list[str] = []
    for row in split_rows(file, schema, attributes=attributes, ended=ended):
        if row.wrong is not None and not running:
            raise row.wrong
        if row.wrong is not None:
            lines.append(f"split {row.text}: {row.wrong}".replace("\n", " "))
            lines.extend(
                ["#"] * (row.altered - 1)
            )  # as many as if it were one: rows after it stay where they are
        lines.extend(json.dumps(one.to_json()) for one in row.accents)
    return lines


def _ends(data: bytes) -> bool:
    """Whether the last line is whole, though nothing ends it."""
    last = data[data.rfind(b"\n") + 1 :].strip()
    if not last.startswith(b"{"):
        said = last[last.find(b"[") :]
        return said.endswith(b"]]" if said.startswith(b"[[") else b"]")
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        return False
    return True

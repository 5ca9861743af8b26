"""Tail the accent logs of running streams: files that may grow while a job runs.

Only complete lines are read. On Spark the driver copies new lines to a folder of immutable files in the checkpoint, which is
read as a stream like any other: its offsets record the lines of each micro-batch.
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
_PAUSE = 0.5  # seconds between two polls of a log


@dataclass
class Logs:
    """Log files by stream, and the bytes of each that were read. A missing file counts as empty."""

    files: Mapping[str, Path]
    read: dict[str, int] = field(default_factory=dict)
    splits: Mapping[str, tuple[Path, StreamSchema, tuple[str, ...]]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _shrunk: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, job: Job, predictor: Predictor, read: Mapping[str, int] | None = None) -> Logs:
        """Find the logs and split tables of a job's streams; ``read`` gives the positions reached before."""
        files, splits = {}, {}
        for name, options in predictor.accent_options.items():
            stream = job.streams[name]
            if stream.accent_log is not None:
                files[name] = Path(stream.accent_log)
            if stream.splits is not None:
                splits[name] = Path(stream.splits), predictor.specs[name].schema, options.attributes
        return cls(files, dict(read or {}), splits)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that have a log or a split table."""
        return tuple(dict.fromkeys((*self.files, *self.splits)))

    def new(self) -> dict[str, list[str]]:
        """Read the new lines by stream, rows of split tables as lines; an error leaves all positions unchanged."""
        found: dict[str, list[str]] = {}
        read = dict(self.read)
        for stream, (file, schema, attributes) in self.splits.items():
            before, seen = self.read.get(_SPLITS + stream, 0), stream in self._seen
            try:
                lines = _split_lines(file, schema, attributes, before > 0 or seen, seen)
            except (PulseError, OSError, UnicodeDecodeError) as e:
                if not before and not seen:
                    raise
                _log.warning("splits: %s; the job continues and tries again", e)
                continue
            self._seen.add(stream)
            self._warn_if_shorter(_SPLITS + stream, file, len(lines), before, "alterations")
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
            self._warn_if_shorter(stream, file, len(data), before, "bytes")
            if whole > before:
                text = data[before:whole].decode("utf-8", errors="replace").removeprefix("\ufeff")
                found.setdefault(stream, []).extend(line for line in text.splitlines() if line.strip())
                read[stream] = whole
        self.read = read
        return found

    def _warn_if_shorter(self, mark: str, file: Path, count: int, before: int, what: str) -> None:
        """Warn once that a log is shorter than the part already read."""
        if count < before and mark not in self._shrunk:
            self._shrunk.add(mark)
            _log.warning(
                "%s: expected accents to be appended, got %d %s where %d were read before; the log is skipped until it is "
                "longer than that",
                *(file, count, what, before),
            )


@dataclass
class Spool:
    """New log lines as files by stream, each named by the position reached in the log, where a restart continues."""

    logs: Logs
    folders: Mapping[str, Path]
    _busy: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, job: Job, predictor: Predictor) -> Spool:
        """Open the logs of a job's streams, with a folder in its checkpoint for each."""
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
        """Write new lines to a file, atomically."""
        with self._busy:
            before = self.logs.read
            found = self.logs.new()
            reached = self.logs.read
            self.logs.read = dict(before)  # lines whose file is not written yet are read again
            for stream, lines in found.items():
                marks = {one: reached[one] for one in (stream, _SPLITS + stream) if one in reached}
                read, splits = marks.get(stream, 0), marks.get(_SPLITS + stream, 0)
                folder = self.folders[stream]
                name = f"{read:015d}-{splits:09d}.txt" if splits else f"{read:015d}.txt"
                replace_file(folder / name, ("\n".join(lines) + "\n").encode())
                self.logs.read |= marks

    def watch(self, while_: Callable[[], bool]) -> None:
        """Poll the logs in a thread while a job runs."""
        if not self.folders:
            return

        def look() -> None:
            while while_():
                try:
                    self.take()
                except (PulseError, OSError) as e:
                    _log.warning("accents: %s; the job continues and tries again", e)
                clock.sleep(_PAUSE)

        threading.Thread(target=look, name="pulse-accents", daemon=True).start()


def _split_lines(
    file: Path, schema: StreamSchema, attributes: tuple[str, ...], running: bool, ended: bool
) -> list[str]:
    """Convert a table of splits to accents, in the order of its rows.

    An invalid row keeps a job from starting; in a ``running`` job it becomes an invalid line, which is rejected, and later rows
    still count. With ``ended`` the last row needs a line end, since half of ``1:10`` is a ratio, too.
    """
    lines: list[str] = []
    for row in split_rows(file, schema, attributes=attributes, ended=ended):
        if row.wrong is not None and not running:
            raise row.wrong
        if row.wrong is not None:
            lines.append(f"split {row.text}: {row.wrong}".replace("\n", " "))
            # As many lines as a valid row has: later rows keep their positions.
            lines.extend(["#"] * (row.altered - 1))
        lines.extend(json.dumps(one.to_json()) for one in row.accents)
    return lines


def _ends(data: bytes) -> bool:
    """Whether the last line is complete even without a line end."""
    last = data[data.rfind(b"\n") + 1 :].strip()
    if not last.startswith(b"{"):
        body = last[last.find(b"[") :]
        return body.endswith(b"]]" if body.startswith(b"[[") else b"]")
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        return False
    return True

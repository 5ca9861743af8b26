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

from pulse.runtime.predictive_accents import Hears
from pulse.runtime.predictive_job import Job
from pulse.stream.accents import AccentError

_log = logging.getLogger(__name__)
_PAUSE = 0.5  # seconds between two looks at a log


@dataclass
class Logs:
    """Files by stream, and how many bytes of each were read. A file that is not there yet says nothing."""

    files: Mapping[str, Path]
    read: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Job, hears: Mapping[str, Hears], read: Mapping[str, int] | None = None) -> Logs:
        """The logs of a job's streams, as far as they were ``read`` before."""
        named = {name: job.streams[name].accent_log for name in hears}
        return cls({name: Path(path) for name, path in named.items() if path is not None}, dict(read or {}))

    def new(self) -> dict[str, list[str]]:
        """The lines that came since, by stream."""
        found = {}
        for stream, file in self.files.items():
            try:
                data = file.read_bytes() if file.exists() else b""
            except OSError as e:
                raise AccentError(f"{file}: cannot read the accents of stream {stream}: {e}") from None
            before = self.read.get(stream, 0)
            whole = len(data) if _ends(data) else data.rfind(b"\n") + 1
            if whole > before:
                text = data[before:whole].decode("utf-8", errors="replace")
                found[stream] = [line for line in text.splitlines() if line.strip()]
                self.read[stream] = whole
        return found


@dataclass
class Spool:
    """What logs have gained, as files by stream. Each is named by how far the log was read, so that a restart goes on there."""

    logs: Logs
    folders: Mapping[str, Path]
    _busy: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, job: Job, hears: Mapping[str, Hears]) -> Spool:
        """The logs of a job's streams, with a folder in its checkpoint for each."""
        assert job.checkpoint is not None
        logs = Logs.of(job, hears)
        folders = {name: Path(job.checkpoint) / "accents" / name for name in logs.files}
        for name, folder in folders.items():
            folder.mkdir(parents=True, exist_ok=True)
            logs.read[name] = max((int(one.stem) for one in folder.glob("[0-9]*")), default=0)
        return cls(logs, folders)

    def take(self) -> None:
        """Put what is new into a file; written beside its place and put there whole."""
        with self._busy:
            for stream, lines in self.logs.new().items():
                folder, name = self.folders[stream], f"{self.logs.read[stream]:015d}.txt"
                draft = folder / f".{name}"
                draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
                draft.replace(folder / name)

    def watch(self, while_: Callable[[], bool]) -> None:
        """Look every now and then, as long as a job runs."""
        if not self.folders:
            return

        def look() -> None:
            while while_():
                try:
                    self.take()
                except (AccentError, OSError) as e:
                    _log.warning("accents: %s; the job goes on, and looks again", e)
                clock.sleep(_PAUSE)

        threading.Thread(target=look, name="pulse-accents", daemon=True).start()


def _ends(data: bytes) -> bool:
    """Whether the last line is whole, though nothing ends it."""
    last = data[data.rfind(b"\n") + 1 :].strip()
    if not last.startswith(b"{"):
        return last.endswith(b"]]")
    try:
        json.loads(last)
    except ValueError:
        return False
    return True

"""Logs of accents beside running streams: files that may grow while a job runs.

Only whole lines are read: one that is being written waits for its end. On Spark the driver puts what is new into a folder of
files that never change, in the checkpoint, which is a stream like any other: what a micro-batch has heard is in its offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pulse.runtime.predictive_accents import Hears
from pulse.runtime.predictive_job import Job
from pulse.stream.accents import AccentError


@dataclass
class Logs:
    """Files by stream, and how many bytes of each were read. A file that is not there yet says nothing."""

    files: Mapping[str, Path]
    read: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Job, hears: Mapping[str, Hears]) -> Logs:
        """The logs of a job's streams."""
        named = {name: job.streams[name].accent_log for name in hears}
        return cls({name: Path(path) for name, path in named.items() if path is not None})

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

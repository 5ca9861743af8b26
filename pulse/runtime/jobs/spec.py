"""What a predictive job is: streams, query, bounds, horizon, sink and checkpoint. Nothing here knows Spark.

How it is written is read in :mod:`pulse.runtime.jobs.toml`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulse.core.time import parse_duration
from pulse.runtime.accents.declared_options import Keys
from pulse.validation.revisions.history import Retention

DEFAULT_BUCKETS = 8
DEFAULT_LATENESS = "10 s"

OTHER_UNITS = 1e-12
"""To how much, of the largest value of a key, old values of revisions match that were said in other units than the tuple was."""


@dataclass(frozen=True)
class StreamJob:
    """Where a stream's tuples come from and how they become models. ``columns``: types by name, for sources that tell none."""

    name: str
    source: str
    key: tuple[str, ...]
    time: str
    model: Mapping[str, str]
    horizon: str | float
    path: str | None = None
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] | None = None
    keep: tuple[str, ...] = ()
    predict: str = "hold"
    memory: int = 8
    max_gap: str | float | None = None  # a longer silence is a hole; None: none is
    error: Any = None
    kind: str | None = None  # the column that tells revisions from tuples
    accents: str | None = None  # the column whose texts are accents, or the file of a log of them
    policy: Any = None  # what is done at accents: evolve, exception, ignore; or by primitive
    splits: str | None = None  # a table of stock splits, which are accents
    keys: Keys | None = None  # the values that key columns may have, by column; None: any
    adds: tuple[str, ...] | None = None  # modelled attributes that are not there until an accent adds them
    revisions: int | str | None = (
        None  # how long tuples may be revised: microseconds, or "radius"; None: never
    )

    @property
    def follows(self) -> bool:
        """Whether accents come with the stream."""
        return self.accents is not None or self.splits is not None

    @property
    def accent_log(self) -> str | None:
        """The file of accents beside the stream."""
        return self.accents if self.accents is not None and is_path(self.accents) else None

    @property
    def accent_column(self) -> str | None:
        """The column of accents in the stream."""
        return None if self.accents is None or is_path(self.accents) else self.accents

    @property
    def retention(self) -> Retention | None:
        """What is kept for revisions."""
        if self.revisions is None:
            return None
        span = None if isinstance(self.revisions, str) else self.revisions
        return Retention(span, self.kind, 0.0 if self.accent_column is None else OTHER_UNITS)


@dataclass(frozen=True)
class SinkJob:
    """Where results go. ``aside`` is a folder for tuples that were set aside; without one, they lie with the checkpoint."""

    kind: str = "console"
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    aside: str | None = None


@dataclass(frozen=True)
class Job:
    """All of a job. ``lateness`` and ``trigger`` are in microseconds; ``where`` names the file for messages.

    ``cell`` is the side of the grid cells by which pairs that come near are spread, in units of their positions.
    """

    query: str
    streams: Mapping[str, StreamJob]
    sink: SinkJob = SinkJob()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    engine: str = "spark"
    split: str = "restless"
    buckets: int = DEFAULT_BUCKETS
    lateness: int = parse_duration(DEFAULT_LATENESS)
    trigger: int | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    where: str = "job"
    cell: float | None = None
    on_accent: str = "hold"  # or abort: where an operator would have to hold an accent, the job ends

    @property
    def aside(self) -> str | None:
        """The folder for tuples that were set aside; None where nothing of the job has one."""
        if self.sink.aside is not None:
            return self.sink.aside
        if self.checkpoint is not None:
            return str(Path(self.checkpoint) / "aside")
        return None if self.sink.path is None else str(Path(self.sink.path) / "_aside")

    @property
    def options(self) -> tuple[Mapping[str, str], ...]:
        """All that Spark and its connectors are told, as it is written: see :mod:`pulse.runtime.jobs.secrets`."""
        return self.spark, self.sink.options, *(one.options for one in self.streams.values())

    def fingerprint(self) -> dict[str, Any]:
        """What must not change between two runs on one checkpoint: all that results depend on."""
        streams = {
            name: {
                key: value
                for key, value in vars(one).items()
                if key not in ("name", "options") and value is not None
            }
            for name, one in sorted(self.streams.items())
        }
        made = {
            "query": " ".join(self.query.split()),
            "parameters": dict(self.parameters),
            "streams": streams,
            "buckets": self.buckets,
            "lateness": self.lateness,
            "split": self.split,
            "cell": self.cell,
        }
        if self.on_accent != "hold":
            made["on_accent"] = self.on_accent
        read: dict[str, Any] = json.loads(json.dumps(made, default=str, sort_keys=True))
        return read


def is_path(given: str) -> bool:
    """Whether accents are in a file: columns are plain names."""
    return "." in given or "/" in given

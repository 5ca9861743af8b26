"""Specify a predictive job: streams, query, bounds, horizon, sink and checkpoint; independent of Spark.

:mod:`pulse.runtime.jobs.toml` reads it from a file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from pulse.core.time import parse_duration
from pulse.runtime.accents.declared_options import Keys
from pulse.validation.revisions.history import Retention

DEFAULT_BUCKETS = 8
DEFAULT_LATENESS = "10 s"

Source = Literal["files", "kafka", "socket", "rate", "frame"]
Format = Literal["parquet", "csv", "json"]
Sink = Literal["console", "parquet", "kafka", "alert", "none"]
Engine = Literal["spark", "local"]
Text = Annotated[str, Meta(pattern=r"\S", description="a text")]
Whole = Annotated[int, Meta(ge=1, description="a whole number above 0")]
Size = Annotated[float, Meta(gt=0.0, le=sys.float_info.max, description="a number above 0")]
Names = Annotated[
    tuple[Annotated[str, Meta(min_length=1, description="a name")], ...],
    Meta(description="a name or a list of names"),
]
Horizon = Annotated[str | float, Meta(description="a duration such as '60 s': how far models reach ahead")]
Model = Annotated[
    Mapping[str, Literal["step", "linear", "samples"]], Meta(min_length=1, description="a table")
]
Columns = Annotated[
    Mapping[str, Annotated[str, Meta(description="a type such as 'double'")]], Meta(description="a table")
]

OTHER_UNITS = 1e-12
"""Tolerance, relative to a key's largest value, for old values of revisions given in other units than the tuple's."""


@dataclass(frozen=True)
class StreamJob:
    """A stream's source and how its tuples become models. ``columns``: types by name, for sources without types."""

    name: str
    source: Source
    key: Names
    time: Text
    model: Model
    horizon: Horizon
    path: Text | None = None
    format: Format = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    columns: Columns | None = None
    keep: Names = ()
    predict: Literal["hold", "trend"] = "hold"
    memory: Whole = 8
    max_gap: str | float | None = None  # a longer silence is a hole; None: no holes
    error: Any = None
    kind: Text | None = None  # the column that distinguishes revisions from tuples
    accents: Text | None = None  # the column of accents, or the file of an accent log
    policy: Any = None  # the reaction to accents: evolve, exception, ignore; or by primitive
    splits: Text | None = None  # a table of stock splits, read as accents
    keys: Keys | None = None  # the values that key columns may have, by column; None: any
    adds: Names | None = None  # modelled attributes absent until an accent adds them
    revisions: int | str | None = None  # how long tuples may be revised (µs), or "radius"; None: never

    @property
    def follows(self) -> bool:
        """Return whether the stream has accents."""
        return self.accents is not None or self.splits is not None

    @property
    def accent_log(self) -> str | None:
        """Return the file of accents beside the stream."""
        return self.accents if self.accents is not None and is_path(self.accents) else None

    @property
    def accent_column(self) -> str | None:
        """Return the column of accents in the stream."""
        return None if self.accents is None or is_path(self.accents) else self.accents

    @property
    def retention(self) -> Retention | None:
        """Return how long tuples are retained for revisions; None without revisions."""
        if self.revisions is None:
            return None
        span = None if isinstance(self.revisions, str) else self.revisions
        return Retention(span, self.kind, 0.0 if self.accent_column is None else OTHER_UNITS)


@dataclass(frozen=True)
class SinkJob:
    """The destination of results. ``aside``: the dead-letter folder; None: a folder in the checkpoint."""

    kind: Sink = "console"
    path: Text | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    aside: Text | None = None


@dataclass(frozen=True)
class Job:
    """A predictive job. ``lateness`` and ``trigger`` are in microseconds; ``where`` names the file for messages.

    ``cell`` is the side of the grid cells that partition proximity joins, in units of the positions.
    """

    query: Text
    streams: Mapping[str, StreamJob]
    sink: SinkJob = SinkJob()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Text | None = None
    engine: Engine = "spark"
    split: Text = "restless"
    buckets: Whole = DEFAULT_BUCKETS
    lateness: int = parse_duration(DEFAULT_LATENESS)
    trigger: int | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    where: str = "job"
    cell: Size | None = None
    on_accent: Literal["hold", "abort"] = (
        "hold"  # or abort: the job ends where an operator would have to hold an accent
    )

    @property
    def aside(self) -> str | None:
        """Return the dead-letter folder; None where the job has no folder at all."""
        if self.sink.aside is not None:
            return self.sink.aside
        if self.checkpoint is not None:
            return str(Path(self.checkpoint) / "aside")
        return None if self.sink.path is None else str(Path(self.sink.path) / "_aside")

    @property
    def options(self) -> tuple[Mapping[str, str], ...]:
        """Return all options for Spark and its connectors, as written: see :mod:`pulse.runtime.jobs.secrets`."""
        return self.spark, self.sink.options, *(one.options for one in self.streams.values())

    def fingerprint(self) -> dict[str, Any]:
        """Return everything that results depend on: it must not change between two runs on one checkpoint."""
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
    """Return whether ``accents`` names a file rather than a column: columns are plain names."""
    return "." in given or "/" in given

"""The rows of a run, from pytest-benchmark's JSON, in which :func:`pulse.benchmarks.recording.record` put them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulse.benchmarks.processes import Peak
from pulse.benchmarks.recording import FLOOR, OURS, OURS_ON_SPARK, Accuracy
from pulse.benchmarks.report.words import seconds

ADDED = "pulse"
"""What a run records beside pytest-benchmark's own: facts, failures, what was timed apart."""


@dataclass(frozen=True)
class Row:
    """One contender's rounds at one task."""

    name: str
    group: str
    contender: str
    work: float
    unit: str
    seconds: tuple[float, ...]
    cpu: tuple[float, ...]
    accuracy: Accuracy
    figure: str = ""
    x: float | None = None
    x_label: str = ""
    memory: Peak | None = None
    facts: Mapping[str, str | float] = field(default_factory=dict)
    aims: Mapping[str, float] = field(default_factory=dict)
    """What some of the facts were to be at most."""
    drawn: tuple[str, ...] = ()
    """Facts that are plotted over x, beside the throughput."""

    @property
    def chapter(self) -> str:
        """The benchmark's file: ``fit`` of ``benchmarks/bench_fit.py::test_kernel``."""
        return Path(self.name.partition("::")[0]).stem.removeprefix("bench_")

    @property
    def ours(self) -> bool:
        return is_ours(self.contender)

    @property
    def peer(self) -> bool:
        """Neither Pulse nor a floor."""
        return not self.ours and not self.contender.startswith(FLOOR)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def cpu_median(self) -> float:
        return statistics.median(self.cpu)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Of the rounds; of one round it is that twice."""
        if len(self.seconds) < 2:
            return self.seconds[0], self.seconds[0]
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, as a share of the median."""
        low, high = self.quartiles
        return (high - low) / 2 / self.median if self.median else 0.0

    @property
    def per_unit(self) -> float:
        """Median seconds a unit of work."""
        return self.median / self.work

    @property
    def rate(self) -> float:
        """Units of work a second, at the median."""
        return self.work / self.median


@dataclass(frozen=True)
class Run:
    """All rows of a run, and what there is to know of the rest."""

    rows: tuple[Row, ...]
    date: str = ""
    quick: bool = False
    complete: bool = True
    ahead: str = ""
    """What was running, or next, when a run that is not complete was written."""
    facts: Mapping[str, str] = field(default_factory=dict)
    apart: Mapping[str, Sequence[float]] = field(default_factory=dict)
    chapters: Mapping[str, str] = field(default_factory=dict)
    took: Mapping[str, float] = field(default_factory=dict)
    failures: Sequence[Mapping[str, str]] = ()
    skipped: Sequence[Mapping[str, str]] = ()

    def groups(self) -> dict[str, list[Row]]:
        """Rows by group, in the order they ran in."""
        return gathered(self.rows, lambda row: row.group)

    def tables(self) -> dict[str, list[Row]]:
        """Rows by what they are shown under: their figure if they stand over an x, else their group."""
        found = gathered(self.rows, lambda row: row.figure if row.figure and row.x is not None else row.group)
        return {
            name: sorted(rows, key=lambda row: (row.x is not None, row.x or 0.0, row.per_unit))
            for name, rows in found.items()
        }

    def figures(self) -> dict[str, list[Row]]:
        """Rows that stand over an x, by figure."""
        return gathered(
            (row for row in self.rows if row.figure and row.x is not None), lambda row: row.figure
        )


def is_ours(contender: str) -> bool:
    """Whether it is Pulse in some form: ``pulse``, or ``pulse, …``."""
    return contender == OURS or contender.startswith(f"{OURS},")


def ours_of(rows: Iterable[Row]) -> Row | None:
    """The row that peers are held against: ``pulse``, or else ``pulse, Spark``, or else Pulse's fastest."""
    by = {row.contender: row for row in rows if row.ours}
    fastest = min(by.values(), key=lambda row: row.per_unit, default=None)
    return by.get(OURS) or by.get(OURS_ON_SPARK) or fastest


def strongest_peer(rows: Iterable[Row]) -> Row | None:
    """The fastest contender that is neither Pulse nor a floor."""
    return min((row for row in rows if row.peer), key=lambda row: row.per_unit, default=None)


def about(run: Run) -> dict[str, str]:
    """The machine, and what was timed apart from all rows, in words."""
    apart = {
        f"{name}, apart": ", ".join(seconds(one) for one in stored) for name, stored in run.apart.items()
    }
    took = ", ".join(f"{name} {seconds(one)}" for name, one in run.took.items())
    return {
        **run.facts,
        **apart,
        **({"time of whole chapters, set-up and checks included": took} if took else {}),
    }


def gathered(rows: Iterable[Row], key: Any) -> dict[str, list[Row]]:
    """Rows by a key, in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def read(path: Path) -> Run:
    """A run from its file."""
    try:
        stored = json.loads(path.read_text("utf-8"))
    except ValueError as e:
        raise ValueError(f"{path}: expected the JSON of a run, which this is not ({e})") from e
    if not isinstance(stored, dict) or not isinstance(stored.get("benchmarks"), list):
        raise ValueError(f"{path}: expected pytest-benchmark's JSON, with a list of benchmarks")
    return run_of(stored)


def run_of(stored: Mapping[str, Any]) -> Run:
    """A run from its JSON. What has no accuracy is no row: it stands among the failures."""
    rows, failures = [], list(stored.get(ADDED, {}).get("failures", ()))
    for one in stored["benchmarks"]:
        row = row_of(one)
        if row is not None:
            rows.append(row)
        else:
            failures.append({"name": one["fullname"], "message": "recorded without its accuracy"})
    added = stored.get(ADDED, {})
    return Run(
        rows=tuple(rows),
        date=str(stored.get("datetime", "")),
        quick=bool(added.get("quick", False)),
        complete=bool(added.get("complete", True)),
        ahead=str(added.get("ahead", "")),
        facts=added.get("facts", {}),
        apart=added.get("apart", {}),
        chapters=added.get("chapters", {}),
        took=added.get("took", {}),
        failures=tuple(failures),
        skipped=tuple(added.get("skipped", ())),
    )


def row_of(one: Mapping[str, Any]) -> Row | None:
    """A row from its JSON, or None where the accuracy is not stored."""
    stored = one["extra_info"]
    if not isinstance(stored.get("accuracy"), dict):
        return None
    seconds = one["stats"].get("data") or [one["stats"]["median"]]
    return Row(
        name=one["fullname"],
        group=one["group"] or one["name"],
        contender=stored["contender"],
        work=stored["work"],
        unit=stored["unit"],
        seconds=tuple(seconds),
        cpu=tuple(stored["cpu"]) or tuple(seconds),
        accuracy=Accuracy(**stored["accuracy"]),
        figure=stored.get("figure", ""),
        x=stored.get("x"),
        x_label=stored.get("x_label", ""),
        memory=Peak(**stored["memory"]) if stored.get("memory") else None,
        facts=stored.get("facts", {}),
        aims=stored.get("aims", {}),
        drawn=tuple(stored.get("drawn", ())),
    )

"""Count the work of a job, and report it as figures, as a line and as a hint."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from pulse.core.time import format_instant

if TYPE_CHECKING:
    from pulse.runtime.jobs.spec import Job

_MANY = 100  # tuples, the minimum for a hint
_VOLATILE = 0.5  # share of tuples that change a kept attribute, above which models are useless


@dataclass
class Tally:
    """Counters of a prediction's work."""

    tuples: int = 0
    validated: int = 0
    violations: int = 0
    updates: int = 0
    solves: int = 0
    results: int = 0
    changes: int = 0
    aside: int = 0
    beyond: int = 0  # results whose stated error is above the query's own bound
    revisions: int = 0  # of earlier tuples, including late insertions
    absorbed: int = 0  # revisions that changed no result
    accents: int = 0  # admitted ones
    changed: int = 0  # tuples that ended a model by changing a kept attribute

    def add(self, other: Tally) -> None:
        """Add the counters of another tally."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass
class Status:
    """Figures of a run since its start. ``now`` is the newest event time in microseconds."""

    tally: Tally = field(default_factory=Tally)
    batches: int = 0
    now: int | None = None
    seconds: float = 0.0  # of work, over all batches
    last: float = 0.0  # of work, of the last batch
    last_tuples: int = 0

    def add(self, tally: Tally, now: int | None, seconds: float) -> None:
        """Add the figures of a finished batch."""
        self.tally.add(tally)
        self.batches += 1
        self.seconds += seconds
        self.last, self.last_tuples = seconds, tally.tuples
        if now is not None:
            self.now = now if self.now is None else max(self.now, now)

    @property
    def validated(self) -> float:
        """The share of tuples that needed no solving, 0 to 1."""
        return self.tally.validated / self.tally.tuples if self.tally.tuples else 0.0

    @property
    def lag(self) -> float | None:
        """Seconds from the newest event time to the clock; for replayed data, its age."""
        return None if self.now is None else clock.time() - self.now / 1e6

    def figures(self) -> dict[str, Any]:
        """The figures as JSON values."""
        tally = self.tally
        return {
            "batches": self.batches,
            "tuples": tally.tuples,
            "tuples_per_second": round(self.last_tuples / self.last) if self.last else 0,
            "validated": tally.validated,
            "validated_share": round(self.validated, 6),
            "violations": tally.violations,
            "changed": tally.changed,
            "updates": tally.updates,
            "solves": tally.solves,
            "results": tally.results,
            "changes": tally.changes,
            "aside": tally.aside,
            "revisions": tally.revisions,
            "absorbed": tally.absorbed,
            "accents": tally.accents,
            "beyond": tally.beyond,
            "batch_seconds": round(self.last, 3),
            "lag_seconds": None if self.lag is None else round(self.lag, 3),
            "now": None if self.now is None else format_instant(self.now),
        }

    def line(self) -> str:
        """The figures as one readable line."""
        tally = self.tally
        speed = self.last_tuples / self.last if self.last else 0.0
        aside = f", {tally.aside:,} aside" if tally.aside else ""
        revised = f", {tally.revisions:,} revisions, {tally.absorbed:,} absorbed" if tally.revisions else ""
        revised += f", {tally.accents:,} accents" if tally.accents else ""
        lag = "" if self.lag is None else f", lag {_age(self.lag)}"
        return (
            f"{tally.tuples:,} tuples, {speed:,.0f}/s, {100 * self.validated:.1f} % validated, "
            f"{tally.violations:,} violations, {tally.solves:,} solves, {tally.changes:,} results{revised}{aside}{lag}"
        )

    def hint(self, job: Job) -> str | None:
        """Advice if most tuples change a kept attribute, so that models are useless; else None."""
        tally = self.tally
        keeps = [f"{one.name} keeps {', '.join(one.keep)}" for one in job.streams.values() if one.keep]
        if tally.tuples < _MANY or tally.changed <= _VOLATILE * tally.tuples or not keeps:
            return None
        return (
            f"{100 * tally.changed / tally.tuples:.0f} % of the tuples change an attribute that is kept, and every change ends a "
            f"model ({'; '.join(keeps)}): model what changes so often, or leave it out of keep"
        )


def _age(seconds: float) -> str:
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"

"""One run against an earlier one: which of Pulse's rows got slower or less accurate.

A row is slower when its median is, by more than a stated share, and its rounds lie beyond those of the earlier run: the
quartiles of the two do not overlap. Machines differ, and so does the same one from hour to hour, so each also has its
ratio to the strongest peer of its group in both runs: where that did not get worse, the peer has become slower as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pulse.benchmarks.report.rows import Row, Run, strongest_peer
from pulse.benchmarks.report.words import number, percent, seconds, several, share, times

SLOWER = 0.1
"""By how much more time, as a share, a row is slower."""
LOSS = 0.001
"""Of precision or recall."""
WIDER = 0.01
"""By how much more, as a share, an answer's certified error is worse."""


@dataclass(frozen=True)
class Change:
    """A row in both runs; ``peer`` is the strongest of its group in the earlier run, where the later one has it, too."""

    old: Row
    new: Row
    peer: tuple[Row, Row] | None = None
    share: float = SLOWER

    @property
    def factor(self) -> float:
        return self.new.median / self.old.median

    @property
    def slower(self) -> bool:
        return self.factor > 1 + self.share and self.new.quartiles[0] > self.old.quartiles[1]

    @property
    def faster(self) -> bool:
        return 1 / self.factor > 1 + self.share and self.new.quartiles[1] < self.old.quartiles[0]

    @property
    def worse(self) -> list[str]:
        """In what the answer became less accurate, in words."""
        old, new, found = self.old.accuracy, self.new.accuracy, []
        for name in ("precision", "recall"):
            before, now = getattr(old, name), getattr(new, name)
            if now < before - LOSS:
                found.append(f"{name} {share(before)} → {share(now)}")
        wide, wider = old.certified, new.certified
        if wide is not None and wider is not None and wider > wide * (1 + WIDER):
            found.append(f"certified error {number(wide)} → {number(wider)}")
        return found

    @property
    def flagged(self) -> bool:
        """Only Pulse's rows are: a slower peer means a slower machine."""
        return self.new.ours and (self.slower or bool(self.worse))

    @property
    def ratios(self) -> tuple[float, float] | None:
        """The strongest peer's time to ours, then and now: more is better."""
        if self.peer is None:
            return None
        return self.peer[0].per_unit / self.old.per_unit, self.peer[1].per_unit / self.new.per_unit

    @property
    def worse_than_peer(self) -> bool:
        """Whether the ratio to the strongest peer got worse by more than the stated share; yes where there is none."""
        return self.ratios is None or self.ratios[1] < self.ratios[0] / (1 + self.share)

    @property
    def against_peer(self) -> str:
        """Whether the ratio to the strongest peer got worse as well, in words."""
        if self.ratios is None or self.peer is None:
            return "no peer in its group to hold it against"
        then, now = self.ratios
        compared_with = f"{self.peer[0].contender}'s time to ours: {times(then)} → {times(now)}"
        if self.worse_than_peer:
            return f"{compared_with}: worse as well"
        return f"{compared_with}: no worse, so the machine may be the slower one"

    def words(self) -> str:
        """A line of its own."""
        parts = []
        if self.slower:
            spread = f"{percent(self.old.spread)}, now {percent(self.new.spread)}"
            if min(len(self.old.seconds), len(self.new.seconds)) < 2:
                spread = "of one round, whose spread is not known"
            parts.append(
                f"{times(self.factor)} the time ({seconds(self.old.median)} → {seconds(self.new.median)}; {spread})"
            )
            idle = self.new.cpu_median <= self.old.cpu_median * (1 + self.share)
            more = ", no more: it may have waited for a core" if idle else ""
            parts.append(f"CPU {seconds(self.old.cpu_median)} → {seconds(self.new.cpu_median)}{more}")
            parts.append(self.against_peer)
        parts += self.worse
        return f"{self.new.group}: {self.new.contender}: {'; '.join(parts)}"


@dataclass(frozen=True)
class Comparison:
    """What became of every row."""

    changes: Sequence[Change]
    added: Sequence[Row]
    missing: Sequence[Row]
    resized: Sequence[Change]
    """Rows whose amount of work is another: not compared."""
    old_date: str = ""
    other_machine: bool = False

    @property
    def flagged(self) -> list[Change]:
        """Those whose ratio to the strongest peer got worse as well come first."""
        return sorted((one for one in self.changes if one.flagged), key=lambda one: not one.worse_than_peer)

    @property
    def faster(self) -> list[Change]:
        return [change for change in self.changes if change.new.ours and change.faster]

    @property
    def slower_peers(self) -> list[Change]:
        return [change for change in self.changes if change.new.peer and change.slower]

    def summary(self) -> str:
        """A sentence or two."""
        ours = sum(change.new.ours for change in self.changes)
        peers = sum(change.new.peer for change in self.changes)
        text = (
            f"Against the run of {self.old_date or 'an unknown date'}: of {several(ours, 'row')} of Pulse "
            f"{len(self.flagged)} slower or less accurate, {len(self.faster)} faster; "
            f"of {several(peers, 'row')} of peers {len(self.slower_peers)} slower."
        )
        if self.other_machine:
            text += " The two were made on different machines: look at the ratios to peers."
        if self.resized:
            text += f" {several(len(self.resized), 'row')} of another size not compared."
        if self.missing:
            text += f" {several(len(self.missing), 'row')} of then not run now."
        if self.added:
            text += f" {several(len(self.added), 'new row')}."
        return text


def compare(new: Run, old: Run, *, slower: float = SLOWER) -> Comparison:
    """Hold a run against an earlier one."""
    before, now = _by_key(old), _by_key(new)
    both = [(before[key], row) for key, row in now.items() if key in before]
    alike = [pair for pair in both if pair[0].work == pair[1].work and pair[0].unit == pair[1].unit]
    machines = [{name: run.facts.get(name) for name in ("processor", "cores")} for run in (old, new)]
    return Comparison(
        changes=[Change(then, row, _peer(row, new, old), slower) for then, row in alike],
        added=[row for key, row in now.items() if key not in before],
        missing=[row for key, row in before.items() if key not in now],
        resized=[Change(*pair) for pair in both if pair not in alike],
        old_date=old.facts.get("date", old.date),
        other_machine=machines[0] != machines[1],
    )


def _by_key(run: Run) -> dict[tuple[str, str, str, float | None], Row]:
    return {(row.figure, row.group, row.contender, row.x): row for row in run.rows}


def _peer(row: Row, new: Run, old: Run) -> tuple[Row, Row] | None:
    """The strongest peer of a row's group then, and the same one now."""
    then = strongest_peer(one for one in old.rows if one.group == row.group)
    if then is None:
        return None
    now = (one for one in new.rows if one.group == row.group and one.contender == then.contender)
    return next(((then, one) for one in now if one.work == then.work), None)

"""The findings of a run, in sentences: where Pulse is faster, where tuples win, how sure the answers are, what failed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from pulse.benchmarks.recording import BY_HAND, OURS
from pulse.benchmarks.report.crossover import Crossover, crossover
from pulse.benchmarks.report.rows import Row, Run, gathered, ours_of, strongest_peer
from pulse.benchmarks.report.words import fact, number, seconds, several, share, times

PAPER = {"Fig. 5 i": ("1,050", 10.0), "Fig. 5 ii": ("120–180", 3.0), "Fig. 5 iii": ("1.45", 1.2)}
"""Tuples a segment from which the paper's segments are cheaper than its tuples, and from which ours are to be, at most, than
the hand-written tuple operator."""
DUCK = 2.0
"""The same of DuckDB, everywhere."""


@dataclass(frozen=True)
class Duel:
    """Pulse against the strongest peer of a group; ``ratio`` above 1 is Pulse's advantage."""

    group: str
    ours: Row
    peer: Row

    @property
    def ratio(self) -> float:
        return self.peer.per_unit / self.ours.per_unit


@dataclass(frozen=True)
class Crossing:
    """One of Pulse's series of a figure against one of a peer."""

    figure: str
    x_label: str
    ours: str
    peer: str
    found: Crossover

    @property
    def paper(self) -> str:
        return _of_paper(self.figure)[0]

    @property
    def aim(self) -> float | None:
        """Of figures that the paper has, against the two peers that aims were set for."""
        aim = _of_paper(self.figure)[1]
        if aim is None or not self.peer.startswith((BY_HAND, "DuckDB")):
            return None
        return aim if self.peer.startswith(BY_HAND) else DUCK

    @property
    def reached(self) -> bool | None:
        """Whether Pulse itself, segments alone, reaches the aim; None where there is none.

        Its other forms, such as with validation, stand beside it: aims were not set for what they do more.
        """
        if self.aim is None or self.ours != OURS:
            return None
        return self.found.x is not None and self.found.x <= self.aim


def duels(run: Run) -> list[Duel]:
    """One of each group in which both take part. Figures are summed up by where their lines cross."""
    found = []
    for group, rows in run.groups().items():
        if rows[0].figure and rows[0].x is not None:
            continue
        ours, peer = ours_of(rows), strongest_peer(rows)
        if ours is not None and peer is not None:
            found.append(Duel(group, ours, peer))
    return found


def crossings(run: Run) -> list[Crossing]:
    """Of every figure whose x is above 0: each of Pulse's series with each peer's."""
    found = []
    for figure, rows in run.figures().items():
        series = gathered(rows, lambda row: row.contender)
        costs = {name: {row.x: row.per_unit for row in some if row.x} for name, some in series.items()}
        peers = [name for name, some in series.items() if some[0].peer]
        for ours in (name for name, some in series.items() if some[0].ours):
            met = ((peer, crossover(costs[ours], costs[peer])) for peer in peers)
            found += [Crossing(figure, rows[0].x_label, ours, peer, where) for peer, where in met if where]
    return found


def sentences(run: Run) -> list[str]:
    """The plain reading, most important first."""
    return [*_standing(run), *_speed(run), *_crossing(run), *_further_aims(run), *_accuracy(run)]


def _standing(run: Run) -> Iterator[str]:
    if not run.complete:
        where = f" It got as far as {run.ahead}." if run.ahead else ""
        yield f"This run did not reach its end: what follows is what had been measured, {several(len(run.rows), 'row')}.{where}"
    if run.failures:
        yield f"{several(len(run.failures), 'benchmark')} failed, without a row: see the list below."
    if run.quick:
        yield "Sizes are small (QUICK=1): good for finding regressions, not for judging engines, whose fixed costs show."


def _speed(run: Run) -> Iterator[str]:
    met = duels(run)
    if not met:
        return
    won = [duel for duel in met if duel.ratio > 1]
    lost = sorted((duel for duel in met if duel.ratio <= 1), key=lambda duel: duel.ratio)
    middle = math.exp(statistics.fmean(math.log(duel.ratio) for duel in met))
    yield (
        f"Pulse takes less time per unit of work than the strongest peer in {len(won)} of {several(len(met), 'comparison')}; "
        f"over all of them, the strongest peer takes {times(middle)} Pulse's time (geometric mean)."
    )
    if won:
        best = max(won, key=lambda duel: duel.ratio)
        yield (
            f"The widest lead: {best.group}, where {best.peer.contender} takes {times(best.ratio)} Pulse's time "
            f"({seconds(best.peer.per_unit)} against {seconds(best.ours.per_unit)})."
        )
    if lost:
        some = "; ".join(
            f"{one.group} ({one.peer.contender}, {times(1 / one.ratio)} as fast)" for one in lost[:6]
        )
        more = f"; and {len(lost) - 6} more" if len(lost) > 6 else ""
        yield f"Where a peer wins: {some}{more}."


def aims(run: Run) -> dict[tuple[str, str], bool]:
    """By figure and family of peers, hand-written or DuckDB: whether Pulse itself reaches the aim against all of the family."""
    found: dict[tuple[str, str], bool] = {}
    for one in crossings(run):
        if one.reached is not None:
            key = one.figure, BY_HAND if one.peer.startswith(BY_HAND) else "DuckDB"
            found[key] = found.get(key, True) and one.reached
    return found


def _crossing(run: Run) -> Iterator[str]:
    wanted = aims(run)
    if not wanted:
        return
    missed = [f"{figure} against {peer}" for (figure, peer), reached in wanted.items() if not reached]
    text = (
        f"Segments are cheaper than tuples from as few tuples a segment on as was aimed at in {len(wanted) - len(missed)} of "
        f"{several(len(wanted), 'case')}"
    )
    yield f"{text}; not in {'; '.join(missed)}." if missed else f"{text}."


def _further_aims(run: Run) -> Iterator[str]:
    """Of facts that were to be at most so much; what is no number has missed its aim."""
    wanted = [(row, name, aim) for row in run.rows for name, aim in row.aims.items()]
    if not wanted:
        return
    missed = [
        f"{row.group}, {row.contender}: {name} {fact(row.facts[name])}, aim {number(aim)}"
        for row, name, aim in wanted
        if not _at_most(row.facts[name], aim)
    ]
    text = f"{len(wanted) - len(missed)} of {several(len(wanted), 'further aim')} reached"
    yield f"{text}; not: {'; '.join(missed)}." if missed else f"{text}."


def _at_most(value: str | float, aim: float) -> bool:
    return isinstance(value, float) and value <= aim


def _accuracy(run: Run) -> Iterator[str]:
    ours = [row for row in run.rows if row.ours]
    if not ours:
        return
    precise, recalling = min(row.accuracy.precision for row in ours), min(row.accuracy.recall for row in ours)
    used = [row.accuracy.observed / row.accuracy.certified for row in ours if row.accuracy.certified]
    text = (
        f"Every answer was checked before its time counted. Of Pulse's {several(len(ours), 'row')}, the lowest precision is "
        f"{share(precise)} and the lowest recall {share(recalling)}; no value is further off than certified"
    )
    yield text + (
        f", and the typical one uses {100 * statistics.median(used):.0f} % of its bound." if used else "."
    )


def _of_paper(figure: str) -> tuple[str, float | None]:
    """By the longest name that the figure's begins with, as a word of its own."""
    for name in sorted(PAPER, key=len, reverse=True):
        if figure == name or figure.startswith((f"{name}:", f"{name},", f"{name} ")):
            return PAPER[name]
    return "", None

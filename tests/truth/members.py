"""Aggregates across keys that passed a filter, from the tuples, in fractions: the truth alone decides who takes part.

Times are microseconds. A key's truth is the straight line from tuple to tuple, or the last value (``step``); of equal stamps the
last rules. On a cell between two neighbouring cuts (tuples, crossings of the threshold) the same keys pass throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

HOLDS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<>": lambda a, b: a != b,
}

Line = tuple[Fraction, Fraction, Fraction, Fraction]
"""``begin, end, value at begin, limit at end``."""


@dataclass(frozen=True)
class Member:
    """One key: its lines of the attribute that is aggregated and of the one that is compared, over the same times."""

    group: Any
    values: tuple[Line, ...]
    compared: tuple[Line, ...]


def lines(times: Sequence[int], values: Sequence[float], kind: str) -> tuple[Line, ...]:
    """The truth of one attribute of one key."""
    last = {t: Fraction(v) for t, v in zip(times, values, strict=True)}  # of equal stamps the last
    first: dict[int, Fraction] = {}
    for t, v in zip(times, values, strict=True):
        first.setdefault(t, Fraction(v))
    return tuple(
        (Fraction(a), Fraction(b), last[a], first[b] if kind == "linear" else last[a])
        for a, b in pairwise(sorted(last))
    )


def value_at(line: Line, t: Fraction) -> Fraction:
    """The value, or the limit, of a line at an instant."""
    begin, end, first, last = line
    return first + (last - first) * (t - begin) / (end - begin)


def _on(track: tuple[Line, ...], begin: Fraction, end: Fraction) -> Line | None:
    """The line that holds the range."""
    return next((line for line in track if line[0] <= begin and end <= line[1]), None)


@dataclass(frozen=True)
class Cell:
    """A range on which the same members pass, and the aggregate at its begin and its end: a line between."""

    begin: Fraction
    end: Fraction
    first: Fraction
    last: Fraction


def cells(members: Sequence[Member], function: str, relation: str, level: float) -> list[Cell]:
    """The ranges on which some member of these passes, in time, and what the function of those is."""
    bound, holds = Fraction(level), HOLDS[relation]
    cuts = {t for one in members for line in (*one.values, *one.compared) for t in line[:2]}
    for one in members:
        cuts |= {t for line in one.compared for t in _crossing(line, bound)}
    found: list[Cell] = []
    for begin, end in pairwise(sorted(cuts)):
        middle = (begin + end) / 2
        passing = []
        for one in members:
            line, other = _on(one.values, begin, end), _on(one.compared, begin, end)
            if line is not None and other is not None and holds(value_at(other, middle), bound):
                passing.append(line)
        if passing:
            found += _of(passing, begin, end, function)
    return found


def _crossing(line: Line, level: Fraction) -> list[Fraction]:
    begin, end, first, last = line
    if first == last:
        return []
    t = begin + (level - first) * (end - begin) / (last - first)
    return [t] if begin < t < end else []


def _of(passing: list[Line], begin: Fraction, end: Fraction, function: str) -> list[Cell]:
    if function in ("sum", "avg"):
        n = len(passing) if function == "avg" else 1
        first, last = (sum((value_at(line, t) for line in passing), Fraction(0)) / n for t in (begin, end))
        return [Cell(begin, end, first, last)]
    best = min if function == "min" else max
    cuts = {begin, end}
    for i, a in enumerate(passing):
        for b in passing[:i]:
            at = tuple(value_at(a, t) - value_at(b, t) for t in (begin, end))
            cuts |= set(_crossing((begin, end, *at), Fraction(0)))
    found = []
    for x, y in pairwise(sorted(cuts)):
        winner = best(passing, key=lambda line: value_at(line, (x + y) / 2))
        found.append(Cell(x, y, value_at(winner, x), value_at(winner, y)))
    return found


def aggregate_at(parts: Sequence[Cell], t: Fraction) -> Fraction | None:
    """The aggregate at an instant inside a cell, or None where there is none."""
    for one in parts:
        if one.begin <= t < one.end:
            return value_at((one.begin, one.end, one.first, one.last), t)
    return None


def window_at(parts: Sequence[Cell], function: str, begin: Fraction, end: Fraction) -> Fraction | None:
    """Sum (value seconds), avg, min or max over ``[begin, end)`` of an aggregate; None where it has a hole there."""
    total, reached = Fraction(0), begin
    extremes: list[Fraction] = []
    for one in parts:
        a, b = max(one.begin, begin), min(one.end, end)
        if a >= b:
            continue
        if a > reached:
            return None
        line = (one.begin, one.end, one.first, one.last)
        ends = value_at(line, a), value_at(line, b)
        extremes += ends
        total += (ends[0] + ends[1]) / 2 * (b - a)
        reached = b
    if reached < end:
        return None
    if function in ("min", "max"):
        return (min if function == "min" else max)(extremes)
    seconds = total / 1_000_000
    return seconds if function == "sum" else total / (end - begin)

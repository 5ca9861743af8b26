"""Sets of time ranges by key: where a predicate holds on the truth, and how two such sets differ.

Instants are extended-precision microseconds since the epoch: at 1.6e15 that resolves 1e-4 microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.truth.pieces import Long, Track

HOLDS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "!=": np.not_equal,
}


@dataclass(frozen=True)
class Ranges:
    """``[begin, end)`` of ``key`` (any hashable); they may touch, and may overlap where that does no harm."""

    key: list[Hashable]
    begin: Any
    end: Any

    @classmethod
    def gather(cls, parts: Mapping[Hashable, tuple[Any, Any]]) -> Ranges:
        """From begins and ends by key."""
        keys: list[Hashable] = []
        for key, (begin, _) in parts.items():
            keys += [key] * len(begin)
        if not keys:
            return cls([], np.zeros(0, dtype=Long), np.zeros(0, dtype=Long))
        begins = np.concatenate([np.asarray(b, dtype=Long) for b, _ in parts.values()])
        ends = np.concatenate([np.asarray(e, dtype=Long) for _, e in parts.values()])
        return cls(keys, begins, ends)

    def filter(self, keep: Any) -> Ranges:
        """Those that ``keep`` says."""
        where = np.flatnonzero(keep)
        return Ranges([self.key[i] for i in where], self.begin[where], self.end[where])


def holding(track: Track, name: str, relation: str, c: float) -> tuple[Any, Any]:
    """Begins and ends of the parts of pieces on which ``x R c`` holds, up to single instants."""
    first, last = track.first[name].astype(Long), track.last[name].astype(Long)
    begin, end = track.begin.astype(Long), track.end.astype(Long)
    if relation in ("=", "!="):
        flat = (first == c) & (last == c)
        keep = flat if relation == "=" else ~flat
        return begin[keep], end[keep]
    sign = 1 if relation in (">", ">=") else -1
    u, v = (first - c) * sign, (last - c) * sign  # to be positive
    flat = (u == 0) & (v == 0)
    whole = (u >= 0) & (v >= 0) & (~flat | (relation in (">=", "<=")))
    rising, falling = (u < 0) & (v > 0), (u > 0) & (v < 0)
    cut = begin + np.where(rising | falling, u / np.where(u == v, 1, u - v), 0) * (end - begin)
    keep = whole | rising | falling
    return np.where(rising, cut, begin)[keep], np.where(falling, cut, end)[keep]


def covered(track: Track) -> tuple[Any, Any]:
    """Where there is a truth at all."""
    begin, end = track.runs
    return begin.astype(Long), end.astype(Long)


@dataclass(frozen=True)
class Cells:
    """Time cut at all ends of several sets: between two cuts of a key each set covers all or nothing."""

    key: list[Hashable]
    of: Any  # number of the key, per cell
    begin: Any
    end: Any
    inside: Mapping[str, Any]

    @property
    def length(self) -> Any:
        """Microseconds."""
        return self.end - self.begin

    @property
    def middle(self) -> Any:
        """An instant inside each."""
        return self.begin + (self.end - self.begin) / 2


def cells(sets: Mapping[str, Ranges]) -> Cells:
    """Cut time at all ends. Empty ranges (points) count for nothing."""
    numbers: dict[Hashable, int] = {}
    of, at, name_of, step = [], [], [], []
    for n, ranges in enumerate(sets.values()):
        code = np.array([numbers.setdefault(key, len(numbers)) for key in ranges.key], dtype=np.int64)
        some = ranges.end > ranges.begin
        for when, by in ((ranges.begin, 1), (ranges.end, -1)):
            of.append(code[some])
            at.append(when[some])
            name_of.append(np.full(int(some.sum()), n))
            step.append(np.full(int(some.sum()), by))
    code, when = np.concatenate(of), np.concatenate(at)
    which, by = np.concatenate(name_of), np.concatenate(step)
    order = np.lexsort((when, code))
    code, when, which, by = code[order], when[order], which[order], by[order]
    real = (
        np.append((code[1:] == code[:-1]) & (when[1:] > when[:-1]), False) if len(code) else np.zeros(0, bool)
    )
    depth = {name: np.cumsum(np.where(which == n, by, 0)) for n, name in enumerate(sets)}
    here = np.flatnonzero(real)
    return Cells(
        list(numbers), code[here], when[here], when[np.minimum(here + 1, max(len(when) - 1, 0))],
        {name: d[here] > 0 for name, d in depth.items()},
    )  # fmt: skip


def combine(sets: Mapping[str, Ranges], rule: Callable[..., Any]) -> Ranges:
    """Where ``rule`` of the sets' coverage holds: AND, OR, NOT as set operations."""
    cut = cells(sets)
    keep = np.flatnonzero(rule(**cut.inside))
    return Ranges([cut.key[int(i)] for i in cut.of[keep]], cut.begin[keep], cut.end[keep])

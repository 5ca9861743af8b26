"""Alerts: what a changelog of predicted results says to somebody who waits for them.

::

    now ──────────────────────────────> event time
     |  predicted      begin  ├───────── the condition holds ─────
     └── seconds until ───────┘
              └ withdrawn, or moved, if a later prediction says so;
                "came true" once event time has passed the begin and it still holds: the lead is begin - first predicted;
                withdrawn also after that, if the tuples of a key that lags say that it was not so

A condition is a key of the results together with a stretch of time without a hole. All instants are event time in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.time import format_instant

PREDICTED, MOVED, CAME_TRUE, WITHDRAWN, HOLDS = "predicted", "moved", "came true", "withdrawn", "holds"
_TOUCHING = 2  # microseconds between two ranges that are one: what rounding leaves
_MOVED = 0.01  # of the time that is left: a begin that moves by less is not worth a word

Key = tuple[object, ...]
Range = tuple[int, int]


@dataclass(frozen=True)
class Alert:
    """What is to be said of a condition. ``until``: seconds to its begin; ``lead``: seconds it was known ahead."""

    what: str
    key: Key
    begin: int
    end: int
    now: int
    until: float | None = None
    lead: float | None = None

    def as_dict(self, names: Iterable[str]) -> dict[str, Any]:
        """For JSON."""
        said = {"alert": self.what, **dict(zip(names, self.key, strict=True))}
        said |= {
            "begin": format_instant(self.begin),
            "end": format_instant(self.end),
            "now": format_instant(self.now),
        }
        if self.until is not None:
            said["until"] = self.until
        if self.lead is not None:
            said["lead"] = self.lead
        return said


@dataclass
class Condition:
    """A condition that was spoken of: where it was last seen, when first predicted, and whether it has come true."""

    begin: int
    end: int
    predicted: int
    true: bool = False


@dataclass
class Alerts:
    """Follows a changelog. ``held`` are the stretches of results by key, ``known`` what was said of them. Picklable."""

    names: tuple[str, ...]
    held: dict[Key, list[Range]] = field(default_factory=dict)
    known: dict[Key, list[Condition]] = field(default_factory=dict)
    newest: int | None = (
        None  # event time goes on, also where a run that was started again begins with keys that lag
    )

    def take(self, changes: pa.Table, now: int) -> list[Alert]:
        """What has to be said after these changes, at event time ``now``."""
        now = self.newest = now if self.newest is None else max(now, self.newest)
        before: dict[Key, list[Range]] = {}
        for key, kind, one in _stretches(changes, self.names):
            held = self.held.get(key, [])
            spoken = before.setdefault(key, held)
            if kind == "+U" and one[1] <= now and not _met(spoken, one):
                continue  # what has ended was spoken of; a correction of it is none of ours
            self.held[key] = _united([*held, one]) if kind.startswith("+") else _without(held, one)
        return [
            alert for key in sorted({*self.held, *self.known}, key=repr) for alert in self._compare(key, now)
        ]

    def _compare(self, key: Key, now: int) -> list[Alert]:
        """Conditions that hold against those that were spoken of."""
        left = list(self.known.get(key, []))
        kept: list[Condition] = []
        said: list[Alert] = []
        for begin, end in self.held.get(key, []):
            old = next((one for one in left if one.begin <= end and begin <= one.end), None)
            if old is not None:
                left.remove(old)
            said += self._speak(key, old, (begin, end), now, kept)
        holding = self.held.get(key, [])
        for gone in left:
            if gone.end > gone.begin and not _met(holding, (gone.begin, gone.end)):
                said.append(Alert(WITHDRAWN, key, gone.begin, gone.end, now))
        self.known[key] = kept
        self.held[key] = [one for one in self.held.get(key, []) if one[1] > now]
        self.known[key] = [one for one in kept if one.end > now]
        for kind in (self.held, self.known):
            if not kind[key]:
                del kind[key]
        return said

    def _speak(
        self, key: Key, old: Condition | None, at: Range, now: int, kept: list[Condition]
    ) -> list[Alert]:
        begin, end = at
        if old is None:
            kept.append(Condition(begin, end, now, begin <= now))
            if begin <= now:
                return [Alert(HOLDS, key, begin, end, now, lead=0.0)]
            return [Alert(PREDICTED, key, begin, end, now, until=(begin - now) / 1e6)]
        if old.true and begin <= now:
            kept.append(Condition(min(old.begin, begin), end, old.predicted, True))
            return []
        if old.true:
            kept.append(Condition(begin, end, now))
            gone = Alert(WITHDRAWN, key, old.begin, old.end, now)
            return [gone, Alert(PREDICTED, key, begin, end, now, until=(begin - now) / 1e6)]
        if begin <= now:
            kept.append(Condition(begin, end, old.predicted, True))
            return [Alert(CAME_TRUE, key, begin, end, now, lead=max(begin - old.predicted, 0) / 1e6)]
        moved = abs(begin - old.begin) > _MOVED * (old.begin - now)
        kept.append(Condition(begin if moved else old.begin, end, old.predicted))
        return [Alert(MOVED, key, begin, end, now, until=(begin - now) / 1e6)] if moved else []


def _stretches(changes: pa.Table, names: tuple[str, ...]) -> list[tuple[Key, str, Range]]:
    """Key, kind and stretch of every row."""
    if not changes.num_rows:
        return []
    ref = changes.column("ref").cast(pa.int64()).to_numpy()
    begin = ref + np.round(changes.column("lo").to_numpy() * 1e6).astype(np.int64)
    end = ref + np.round(changes.column("hi").to_numpy() * 1e6).astype(np.int64)
    keys = list(zip(*(changes.column(name).to_pylist() for name in names), strict=True)) or [()] * len(ref)
    kinds = changes.column("kind").to_pylist()
    return list(zip(keys, kinds, zip(begin.tolist(), end.tolist(), strict=True), strict=True))


def _met(ranges: Iterable[Range], one: Range) -> bool:
    """Whether some range shares more than an end with one."""
    return any(begin < one[1] and one[0] < end for begin, end in ranges)


def _united(ranges: list[Range]) -> list[Range]:
    out: list[Range] = []
    for begin, end in sorted(ranges):
        if out and begin <= out[-1][1] + _TOUCHING:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def _without(ranges: list[Range], gone: Range) -> list[Range]:
    out = []
    for begin, end in ranges:
        if begin < min(end, gone[0]):
            out.append((begin, min(end, gone[0])))
        if max(begin, gone[1]) < end:
            out.append((max(begin, gone[1]), end))
    return [one for one in out if one[1] - one[0] > _TOUCHING]

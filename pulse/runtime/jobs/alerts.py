"""Alerts: what a changelog of predicted results says to somebody who waits for them.

::

    now ──────────────────────────────> event time
     |  predicted      begin  ├───────── the condition holds ─────
     └── seconds until ───────┘
              └ withdrawn, or moved, if a later prediction says so;
                "came true" once tuples of every key it speaks of have passed the begin and it still holds: the lead is
                begin - first predicted;
                "unconfirmed" if such tuples never came and the prediction has expired;
                withdrawn also after it came true, if the tuples of a key that lags say that it was not so

A condition is a key of the results together with a stretch of time without a hole. What is only possible is one of its own:
it *may* hold. All instants are event time in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.certainty import CERTAIN, LIKELY, NAMES, POSSIBLE
from pulse.core.time import format_instant

PREDICTED, MOVED, CAME_TRUE, WITHDRAWN, HOLDS = "predicted", "moved", "came true", "withdrawn", "holds"
UNCONFIRMED, MAY_HOLD = "unconfirmed", "may hold"
_TOUCHING = 2  # microseconds between two ranges that are one: what rounding leaves
_MOVED = 0.01  # of the time that is left: a begin that moves by less is not worth a word
_NEVER = -(1 << 62)

Key = tuple[object, ...]
Range = tuple[int, int]
Lane = tuple[Key, bool]
"""A key of the results, and whether what it has there is only possible."""

Party = tuple[str, tuple[tuple[int, int], ...]]
"""A stream that results come from, and which of its key columns are which of theirs."""

Newest = Mapping[tuple[str, int], Mapping[Key, int]]
"""By stream, and place of some of its keys, the newest tuple of each, in microseconds."""


class Seen(NamedTuple):
    """The tuples that confirm results: the streams these come from, and the newest tuples where any came."""

    parties: tuple[Party, ...]
    newest: Newest


@dataclass(frozen=True)
class Alert:
    """What is to be said of a condition. ``until``: seconds to its begin; ``lead``: seconds it was known ahead.

    ``certainty`` is that of the whole stretch; ``certain_from``: where a part of one that is likely begins to be certain.
    """

    what: str
    key: Key
    begin: int
    end: int
    now: int
    until: float | None = None
    lead: float | None = None
    certainty: str = NAMES[CERTAIN]
    certain_from: int | None = None

    def as_dict(self, names: Iterable[str]) -> dict[str, Any]:
        """For JSON."""
        said = {"alert": self.what, **dict(zip(names, self.key, strict=True))}
        said |= {
            "certainty": self.certainty,
            "begin": format_instant(self.begin),
            "end": format_instant(self.end),
            "now": format_instant(self.now),
        }
        if self.certain_from is not None:
            said["certain_from"] = format_instant(self.certain_from)
        if self.until is not None:
            said["until"] = self.until
        if self.lead is not None:
            said["lead"] = self.lead
        return said


@dataclass
class Condition:
    """A condition that was spoken of: where and how sure it was last seen, when first predicted, and whether it has come true."""

    begin: int
    end: int
    predicted: int
    true: bool = False
    certainty: str = NAMES[CERTAIN]


@dataclass
class Alerts:
    """Follows a changelog. ``held``: stretches of results, ``sure``: those that are certain; ``known``: what was said of them.

    The tuples of ``parties`` confirm a condition: of all of their keys that have the values that the result's key names; ``seen``
    is the newest tuple of each. Without parties it is as true as event time says. Picklable.
    """

    names: tuple[str, ...]
    held: dict[Lane, list[Range]] = field(default_factory=dict)
    sure: dict[Key, list[Range]] = field(default_factory=dict)
    known: dict[Lane, list[Condition]] = field(default_factory=dict)
    parties: tuple[Party, ...] = ()
    seen: dict[tuple[str, int], dict[Key, int]] = field(default_factory=dict)
    newest: int | None = (
        None  # event time goes on, also where a run that was started again begins with keys that lag
    )

    def take(self, changes: pa.Table, now: int, seen: Seen | None = None) -> list[Alert]:
        """What has to be said after these changes, at event time ``now``, and what tuples confirm by now."""
        now = self.newest = now if self.newest is None else max(now, self.newest)
        if seen is not None:
            self.parties = seen.parties
            self.seen |= {place: dict(keys) for place, keys in seen.newest.items()}
        before: dict[Lane, list[Range]] = {}
        for key, kind, one, certainty in _stretches(changes, self.names):
            lane = key, certainty <= POSSIBLE
            held = self.held.get(lane, [])
            spoken = before.setdefault(lane, held)
            if kind == "+U" and one[1] <= now and not _met(spoken, one):
                continue  # what has ended was spoken of; a correction of it is none of ours
            put = kind.startswith("+")
            self.held[lane] = _united([*held, one]) if put else _without(held, one)
            if certainty == CERTAIN:
                sure = self.sure.get(key, [])
                self.sure[key] = _united([*sure, one]) if put else _without(sure, one)
        lanes = sorted({*self.held, *self.known}, key=repr)
        return [alert for lane in lanes for alert in self._compare(lane, now)]

    def confirmed(self, key: Key) -> int | None:
        """Up to when tuples of every key that a result's key speaks of have come; None where nobody asks."""
        if not self.parties:
            return None
        found = []
        for stream, columns in self.parties:
            some = [keys for (name, _), keys in self.seen.items() if name == stream]
            found += [
                at for keys in some for own, at in keys.items() if all(own[i] == key[j] for i, j in columns)
            ] or [_NEVER]
        return min(found)

    def _certainty(self, lane: Lane, at: Range) -> str:
        key, possible = lane
        if possible:
            return NAMES[POSSIBLE]
        whole = any(begin <= at[0] and at[1] <= end for begin, end in self.sure.get(key, []))
        return NAMES[CERTAIN if whole else LIKELY]

    def _certain_from(self, lane: Lane, at: Range) -> int | None:
        some = [max(begin, at[0]) for begin, end in self.sure.get(lane[0], []) if _met([at], (begin, end))]
        return min(some, default=None)

    def _compare(self, lane: Lane, now: int) -> list[Alert]:
        """Conditions that hold against those that were spoken of."""
        key = lane[0]
        left = list(self.known.get(lane, []))
        waiting = any(one.begin <= now for one in left) or any(b <= now for b, _ in self.held.get(lane, []))
        known = self.confirmed(key) if waiting else now
        known = now if known is None else min(known, now)
        kept: list[Condition] = []
        said: list[Alert] = []
        for begin, end in self.held.get(lane, []):
            old = next((one for one in left if one.begin <= end and begin <= one.end), None)
            if old is not None:
                left.remove(old)
            said += self._speak(lane, old, (begin, end), now, known, kept)
        holding = self.held.get(lane, [])
        for gone in left:
            if gone.end > gone.begin and not _met(holding, (gone.begin, gone.end)):
                expired = not gone.true and gone.begin <= now and known < gone.begin
                what = UNCONFIRMED if expired else WITHDRAWN
                said.append(Alert(what, key, gone.begin, gone.end, now, certainty=gone.certainty))
        self._keep(lane, kept, now)
        return said

    def _keep(self, lane: Lane, kept: list[Condition], now: int) -> None:
        """Let go of what has ended and was spoken of for the last time: what waits for tuples stays."""
        waiting = [(one.begin, one.end) for one in kept if not one.true]
        self.held[lane] = [one for one in self.held.get(lane, []) if one[1] > now or _met(waiting, one)]
        self.known[lane] = [one for one in kept if one.end > now or not one.true]
        for kind in (self.held, self.known):
            if not kind[lane]:
                del kind[lane]
        key = lane[0]
        if (key, False) not in self.held:
            self.sure.pop(key, None)

    def _speak(
        self, lane: Lane, old: Condition | None, at: Range, now: int, known: int, kept: list[Condition]
    ) -> list[Alert]:
        """What is to be said of a stretch that holds; ``known``: up to when tuples tell of it."""
        (key, possible), (begin, end) = lane, at
        certainty = self._certainty(lane, at)
        sure = self._certain_from(lane, at) if certainty == NAMES[LIKELY] else None
        until = max(begin - now, 0) / 1e6
        if old is None:
            kept.append(Condition(begin, end, now, begin <= known, certainty))
            if begin <= known:
                what = MAY_HOLD if possible else HOLDS
                return [Alert(what, key, begin, end, now, lead=0.0, certainty=certainty, certain_from=sure)]
            return [
                Alert(PREDICTED, key, begin, end, now, until=until, certainty=certainty, certain_from=sure)
            ]
        if old.true and begin <= now:
            kept.append(Condition(min(old.begin, begin), end, old.predicted, True, certainty))
            return []
        if old.true:
            kept.append(Condition(begin, end, now, certainty=certainty))
            gone = Alert(WITHDRAWN, key, old.begin, old.end, now, certainty=old.certainty)
            return [
                gone,
                Alert(PREDICTED, key, begin, end, now, until=until, certainty=certainty, certain_from=sure),
            ]
        if begin <= known:
            kept.append(Condition(begin, end, old.predicted, True, certainty))
            lead = max(begin - old.predicted, 0) / 1e6
            what = MAY_HOLD if possible else CAME_TRUE
            return [Alert(what, key, begin, end, now, lead=lead, certainty=certainty, certain_from=sure)]
        moved = abs(begin - old.begin) > _MOVED * max(old.begin - now, _TOUCHING)
        kept.append(Condition(begin if moved else old.begin, end, old.predicted, certainty=certainty))
        return (
            [Alert(MOVED, key, begin, end, now, until=until, certainty=certainty, certain_from=sure)]
            if moved
            else []
        )


def _stretches(changes: pa.Table, names: tuple[str, ...]) -> list[tuple[Key, str, Range, int]]:
    """Key, kind, stretch and certainty of every row."""
    if not changes.num_rows:
        return []
    ref = changes.column("ref").cast(pa.int64()).to_numpy()
    begin = ref + np.round(changes.column("lo").to_numpy() * 1e6).astype(np.int64)
    end = ref + np.round(changes.column("hi").to_numpy() * 1e6).astype(np.int64)
    keys = list(zip(*(changes.column(name).to_pylist() for name in names), strict=True)) or [()] * len(ref)
    kinds, certainty = changes.column("kind").to_pylist(), [CERTAIN] * len(ref)
    if "certainty" in changes.column_names:
        certainty = [NAMES.index(one) for one in changes.column("certainty").to_pylist()]
    return list(zip(keys, kinds, zip(begin.tolist(), end.tolist(), strict=True), certainty, strict=True))


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

"""Derive alerts from the changelog of predicted results.

::

    now ──────────────────────────────> event time
     |  predicted      begin  ├───────── the condition holds ─────
     └── seconds until ───────┘
              └ withdrawn, or moved, if a later prediction differs;
                "came true" once tuples of every key in the result have passed the begin and it still holds: the lead is
                begin - first predicted;
                "unconfirmed" if such tuples never arrived and the prediction has expired;
                withdrawn also after it came true, if the tuples of a lagging key refute it

A condition is a key of the results together with a time range without a hole. Possible ranges form conditions of their own:
these *may* hold. All instants are event time in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from pulse.core.certainty import CERTAIN, LIKELY, NAMES, POSSIBLE
from pulse.core.segment.columns import row_ranges
from pulse.core.time import EARLIEST, format_instant

PREDICTED, MOVED, CAME_TRUE, WITHDRAWN, HOLDS = "predicted", "moved", "came true", "withdrawn", "holds"
UNCONFIRMED, MAY_HOLD = "unconfirmed", "may hold"
_TOUCHING = 2  # microseconds: ranges this close count as one, since rounding can leave such a gap
_MOVED = 0.01  # fraction of the remaining time: a begin that moves by less raises no alert

Key = tuple[object, ...]
Range = tuple[int, int]
Lane = tuple[Key, bool]
"""A key of the results, and whether its results in this lane are only possible."""

Party = tuple[str, tuple[tuple[int, int], ...]]
"""A stream that results come from, and pairs (its key column, the results' key column)."""

Newest = Mapping[tuple[str, int], Mapping[Key, int]]
"""The newest tuple of each key, in microseconds, by (stream, partition of its keys)."""


class Seen(NamedTuple):
    """The tuples that confirm results: the streams that results come from, and the newest tuples per key."""

    parties: tuple[Party, ...]
    newest: Newest


@dataclass(frozen=True)
class Alert:
    """A message about a condition. ``until``: seconds to its begin; ``lead``: seconds it was known ahead.

    ``certainty`` is that of the whole range; ``certain_from``: where a likely range first becomes certain.
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
        """Convert to a dictionary for JSON, with the key's values under ``names``."""
        record = {"alert": self.what, **dict(zip(names, self.key, strict=True))}
        record |= {
            "certainty": self.certainty,
            "begin": format_instant(self.begin),
            "end": format_instant(self.end),
            "now": format_instant(self.now),
        }
        if self.certain_from is not None:
            record["certain_from"] = format_instant(self.certain_from)
        if self.until is not None:
            record["until"] = self.until
        if self.lead is not None:
            record["lead"] = self.lead
        return record


@dataclass
class Condition:
    """A condition already reported: its last range and certainty, when it was first predicted, and whether it has come true."""

    begin: int
    end: int
    predicted: int
    true: bool = False
    certainty: str = NAMES[CERTAIN]


@dataclass
class Alerts:
    """Turns a changelog into alerts. ``held``: ranges of results, ``sure``: the certain ones; ``known``: conditions reported.

    A condition is confirmed by tuples of ``parties``: of all their keys that match the values in the result's key; ``seen``
    is the newest tuple of each. Without parties, event time alone confirms it. Picklable.
    """

    names: tuple[str, ...]
    held: dict[Lane, list[Range]] = field(default_factory=dict)
    sure: dict[Key, list[Range]] = field(default_factory=dict)
    known: dict[Lane, list[Condition]] = field(default_factory=dict)
    parties: tuple[Party, ...] = ()
    seen: dict[tuple[str, int], dict[Key, int]] = field(default_factory=dict)
    newest: int | None = None  # the newest event time: it never goes back, not even in a restarted run

    def take(self, changes: pa.Table, now: int, seen: Seen | None = None) -> list[Alert]:
        """Apply changes at event time ``now`` and return the alerts that result, given the tuples in ``seen``."""
        now = self.newest = now if self.newest is None else max(now, self.newest)
        if seen is not None:
            self.parties = seen.parties
            self.seen |= {place: dict(keys) for place, keys in seen.newest.items()}
        before: dict[Lane, list[Range]] = {}
        for key, kind, one, certainty in _ranges(changes, self.names):
            lane = key, certainty <= POSSIBLE
            held = self.held.get(lane, [])
            earlier = before.setdefault(lane, held)
            if kind == "+U" and one[1] <= now and not _met(earlier, one):
                continue  # a correction of a range that has ended and was reported already raises no alert
            put = kind.startswith("+")
            self.held[lane] = _united([*held, one]) if put else _without(held, one)
            if certainty == CERTAIN:
                sure = self.sure.get(key, [])
                self.sure[key] = _united([*sure, one]) if put else _without(sure, one)
        lanes = sorted({*self.held, *self.known}, key=repr)
        return [alert for lane in lanes for alert in self._compare(lane, now)]

    def confirmed(self, key: Key) -> int | None:
        """Return the time up to which tuples of every key in a result's key have arrived; None without parties."""
        if not self.parties:
            return None
        found = []
        for stream, columns in self.parties:
            some = [keys for (name, _), keys in self.seen.items() if name == stream]
            found += [
                at for keys in some for own, at in keys.items() if all(own[i] == key[j] for i, j in columns)
            ] or [EARLIEST]
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
        """Compare the conditions that hold with those already reported."""
        key = lane[0]
        left = list(self.known.get(lane, []))
        waiting = any(one.begin <= now for one in left) or any(b <= now for b, _ in self.held.get(lane, []))
        known = self.confirmed(key) if waiting else now
        known = now if known is None else min(known, now)
        kept: list[Condition] = []
        alerts: list[Alert] = []
        for begin, end in self.held.get(lane, []):
            old = next((one for one in left if one.begin <= end and begin <= one.end), None)
            if old is not None:
                left.remove(old)
            alerts += self._report(lane, old, (begin, end), now, known, kept)
        current = self.held.get(lane, [])
        for gone in left:
            if gone.end > gone.begin and not _met(current, (gone.begin, gone.end)):
                expired = not gone.true and gone.begin <= now and known < gone.begin
                what = UNCONFIRMED if expired else WITHDRAWN
                alerts.append(Alert(what, key, gone.begin, gone.end, now, certainty=gone.certainty))
        self._prune(lane, kept, now)
        return alerts

    def _prune(self, lane: Lane, kept: list[Condition], now: int) -> None:
        """Drop conditions that have ended and been reported for the last time; keep those that wait for tuples."""
        waiting = [(one.begin, one.end) for one in kept if not one.true]
        self.held[lane] = [one for one in self.held.get(lane, []) if one[1] > now or _met(waiting, one)]
        self.known[lane] = [one for one in kept if one.end > now or not one.true]
        for kind in (self.held, self.known):
            if not kind[lane]:
                del kind[lane]
        key = lane[0]
        if (key, False) not in self.held:
            self.sure.pop(key, None)

    def _report(
        self, lane: Lane, old: Condition | None, at: Range, now: int, known: int, kept: list[Condition]
    ) -> list[Alert]:
        """Return the alerts about a range that holds; ``known``: the time up to which tuples confirm it."""
        (key, possible), (begin, end) = lane, at
        certainty = self._certainty(lane, at)
        sure = self._certain_from(lane, at) if certainty == NAMES[LIKELY] else None
        until = max(begin - now, 0) / 1e6
        about = partial(Alert, key=key, begin=begin, end=end, now=now, certainty=certainty, certain_from=sure)
        if old is None:
            kept.append(Condition(begin, end, now, begin <= known, certainty))
            if begin <= known:
                return [about(MAY_HOLD if possible else HOLDS, lead=0.0)]
            return [about(PREDICTED, until=until)]
        if old.true and begin <= now:
            kept.append(Condition(min(old.begin, begin), end, old.predicted, True, certainty))
            return []
        if old.true:
            kept.append(Condition(begin, end, now, certainty=certainty))
            gone = Alert(WITHDRAWN, key, old.begin, old.end, now, certainty=old.certainty)
            return [gone, about(PREDICTED, until=until)]
        if begin <= known:
            kept.append(Condition(begin, end, old.predicted, True, certainty))
            lead = max(begin - old.predicted, 0) / 1e6
            return [about(MAY_HOLD if possible else CAME_TRUE, lead=lead)]
        moved = abs(begin - old.begin) > _MOVED * max(old.begin - now, _TOUCHING)
        kept.append(Condition(begin if moved else old.begin, end, old.predicted, certainty=certainty))
        return [about(MOVED, until=until)] if moved else []


def _ranges(changes: pa.Table, names: tuple[str, ...]) -> list[tuple[Key, str, Range, int]]:
    """Return key, kind, range and certainty of every row."""
    if not changes.num_rows:
        return []
    begin, end = row_ranges(changes)
    keys = list(zip(*(changes.column(name).to_pylist() for name in names), strict=True)) or [()] * len(begin)
    kinds, certainty = changes.column("kind").to_pylist(), [CERTAIN] * len(begin)
    if "certainty" in changes.column_names:
        certainty = [NAMES.index(one) for one in changes.column("certainty").to_pylist()]
    return list(zip(keys, kinds, zip(begin.tolist(), end.tolist(), strict=True), certainty, strict=True))


def _met(ranges: Iterable[Range], one: Range) -> bool:
    """Return whether any range shares more than an endpoint with ``one``."""
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

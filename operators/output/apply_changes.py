"""Apply a changelog of result segments: compute the segments after all of its rows (semantics 6.3, 7.1).

A row concerns only its own range ``[ref + lo, ref + hi)``, not the whole row that first inserted it. One with ``+`` adds its
segment there. One with ``-`` retracts earlier rows with the same key, unmodelled attributes and certainty there: they are
cut, and their parts before and after stay::

    +I            ├──────────── a ────────────┤
    -U +U                ├─ a ─┤ → ├─ b ─┤
    result        ├─ a ──┼─ b ─┼───── a ──────┤

Retracted values match within rounding, not bit by bit: results that were solved again and came out equal are not
emitted again. If several rows of one key hold at the same time (a query that does not select all of its keys), the nearest in
value is cut. Only points retract points (``lo = hi``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pulse.core.elements import ElementKind
from pulse.core.errors import PulseError, unknown_column
from pulse.kernels.instants import GRAIN

_ORDER = ("now", "batch", "position")
_PLACED = ("ref", "lo", "hi", "kind", *_ORDER)
_ULPS = 4 * 2.0**-52
_MICROSECOND = 1e-6
_KINDS = tuple(kind.value for kind in ElementKind)


class ChangelogError(PulseError, ValueError):
    """The rows are not a changelog from its beginning."""


@dataclass(frozen=True, order=True)
class _LiveRange:
    """A range of a row that currently holds; ``begin``, in seconds since 1970, is only for sorting."""

    begin: float
    row: int
    lo: float = field(compare=False)
    hi: float = field(compare=False)


@dataclass
class _Lane:
    """The live ranges of one identity, sorted by begin; none is longer than ``longest``."""

    live: list[_LiveRange] = field(default_factory=list)
    longest: float = 0.0


def apply_changes(changes: pa.Table) -> pa.Table:
    """Replay a changelog from its beginning; return the current segments, sorted by key and begin.

    ``changes`` has the columns of segments and ``kind``; ``batch`` and ``position``, if present, give its order, else
    rows apply as they stand. A table without columns, as a sink has before its first batch,
    stays as it is. A row that retracts a range that is not present raises :class:`ChangelogError`.
    """
    if not changes.column_names:  # no batch yet
        return changes
    for name in ("ref", "lo", "hi", "kind"):
        if name not in changes.column_names:
            raise unknown_column(name, changes.column_names, "apply_changes")
    if {"batch", "position"} <= set(changes.column_names):
        changes = changes.sort_by([("batch", "ascending"), ("position", "ascending")])
    log = _Log(changes)
    lanes: dict[tuple[object, ...], _Lane] = {}
    for row, kind in enumerate(changes.column("kind").to_pylist()):
        lane = lanes.setdefault(log.identity[row], _Lane())
        if kind not in _KINDS:
            raise ChangelogError(
                f"apply_changes: row {row}: expected a kind of {', '.join(_KINDS)}, got {kind!r}"
            )
        if kind.startswith("+"):
            log.put(lane, row, float(log.lo[row]), float(log.hi[row]))
        else:
            log.retract(lane, row)
    return log.to_segments([one for lane in lanes.values() for one in lane.live])


class _Log:
    """The rows of a changelog as arrays."""

    def __init__(self, changes: pa.Table) -> None:
        self.changes = changes
        self.ref = changes.column("ref").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
        self.lo, self.hi = changes.column("lo").to_numpy(), changes.column("hi").to_numpy()
        modelled = [
            one.name for one in changes.schema if pa.types.is_list(one.type) and one.name != "lineage"
        ]
        computed = {*modelled, *(f"{name}{end}" for name in modelled for end in ("_err", "_drift"))}
        skipped = {*_PLACED, *computed, "segment_id", "lineage"}
        self.plain = [name for name in changes.column_names if name not in skipped]
        columns = [changes.column(name).to_pylist() for name in self.plain]
        self.identity = list(zip(*columns, strict=True)) if columns else [()] * len(self.ref)
        self.models = [changes.column(name).to_pylist() for name in modelled]

    def put(self, lane: _Lane, row: int, lo: float, hi: float) -> None:
        """Add a range of a row to a lane."""
        insort(lane.live, _LiveRange(self.ref[row] / 1e6 + lo, row, lo, hi))
        lane.longest = max(lane.longest, hi - lo)

    def retract(self, lane: _Lane, row: int) -> None:
        """Cut a row's range out of the live ranges, the nearest in value first."""
        left = [(float(self.lo[row]), float(self.hi[row]))]
        near = self._near(lane, row)
        middle = 0.5 * (self.lo[row] + self.hi[row])
        for one in sorted(near, key=lambda other: self._distance(other.row, row, middle)):
            by = float(self.ref[row] - self.ref[one.row]) / 1e6
            slack = GRAIN + _ULPS * max(abs(by), abs(one.lo), abs(one.hi))
            pieces, rest = [one], []
            for lo, hi in left:
                cut, missed = _cut(pieces, lo + by, hi + by, slack)
                pieces = cut
                rest += [(a - by, b - by) for a, b in missed]
            if not any(piece is one for piece in pieces):
                del lane.live[bisect_left(lane.live, one)]
                for piece in pieces:
                    self.put(lane, one.row, piece.lo, piece.hi)
            left = rest
            if not left:
                return
        if any(hi - lo > _MICROSECOND or lo == hi for lo, hi in left):
            missing = {**dict(zip(self.plain, self.identity[row], strict=True)), "range": left[0]}
            raise ChangelogError(
                f"apply_changes: row {row} retracts a range that is not present: {missing}; apply a changelog from its first row"
            )

    def _near(self, lane: _Lane, row: int) -> list[_LiveRange]:
        """Find the live ranges of a lane that can meet a row's range."""
        at = self.ref[row] / 1e6
        first = bisect_left(lane.live, _LiveRange(at + self.lo[row] - lane.longest - 1e-3, -1, 0.0, 0.0))
        last = bisect_left(lane.live, _LiveRange(at + self.hi[row] + 1e-3, -1, 0.0, 0.0))
        return lane.live[first:last]

    def _distance(self, other: int, row: int, at: float) -> float:
        """Sum the differences of two rows' values at an instant, relative to the second's ``ref``."""
        by = float(self.ref[row] - self.ref[other]) / 1e6
        return sum(
            abs(_value(model[other], at + by) - _value(model[row], at))
            for model in self.models
            if model[other] is not None and model[row] is not None
        )

    def to_segments(self, live: list[_LiveRange]) -> pa.Table:
        """Return the live ranges as segments, sorted by key and begin."""
        live = sorted(live)
        table = self.changes.take(pa.array([one.row for one in live], pa.int64()))
        for name in ("lo", "hi"):
            place = table.column_names.index(name)
            values = pa.array([getattr(one, name) for one in live], pa.float64())
            table = table.set_column(place, table.schema.field(name), values)
        table = table.drop_columns([name for name in ("kind", *_ORDER) if name in table.column_names])
        keys = table.select([name for name in self.plain if name != "certainty"])
        keys = keys.append_column("begin", pa.array(np.arange(len(live))))
        return table.take(pa.compute.sort_indices(keys, [(name, "ascending") for name in keys.column_names]))


def _cut(
    pieces: Sequence[_LiveRange], lo: float, hi: float, slack: float
) -> tuple[list[_LiveRange], list[tuple[float, float]]]:
    """Cut ``[lo, hi)`` out of pieces of one row; also return the part that none covered. Remainders up to ``slack`` vanish."""
    remaining: list[_LiveRange] = []
    missed = [(lo, hi)]
    for one in pieces:
        point = one.lo == one.hi
        if point or lo == hi:
            same = point and lo == hi and abs(one.lo - lo) <= slack and bool(missed)
            missed = [] if same else missed
            remaining += [] if same else [one]
            continue
        if min(hi, one.hi) - max(lo, one.lo) <= slack:
            # So short a range goes only if the cut covers it.
            tiny = one.hi - one.lo <= slack and lo - slack <= one.lo and one.hi <= hi + slack
            remaining += [] if tiny else [one]
            continue
        remaining += [
            replace(one, lo=a, hi=b)
            for a, b in ((one.lo, max(one.lo, lo)), (min(one.hi, hi), one.hi))
            if b - a > slack
        ]
        missed = [
            part
            for a, b in missed
            for part in ((a, min(b, max(a, one.lo))), (max(a, min(b, one.hi)), b))
            if part[1] - part[0] > slack
        ]
    return remaining, missed


def _value(coefficients: Sequence[float], at: float) -> float:
    found = 0.0
    for one in reversed(coefficients):
        found = found * at + one
    return found

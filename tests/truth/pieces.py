"""The truth of a stream as pieces: one straight line per attribute between two neighbouring instants of a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

Long = np.longdouble
SECOND = 1_000_000


@dataclass(frozen=True)
class Track:
    """One key's truth: pieces ``[begin, end)`` in microseconds, ascending, disjoint.

    ``first[a]`` is the value at a piece's begin, ``last[a]`` its limit at the end; a run is a stretch without a hole.
    ``points`` are instants that only a single value stands for: the last tuple of a run, where no piece carries it.
    """

    key: Any
    begin: Any
    end: Any
    run: Any
    first: Mapping[str, Any]
    last: Mapping[str, Any]
    points: Mapping[int, Mapping[str, float]]

    @property
    def runs(self) -> tuple[Any, Any]:
        """Begin and end of each run, microseconds."""
        if not len(self.begin):
            return self.begin, self.end
        opens = np.flatnonzero(np.append(True, self.run[1:] != self.run[:-1]))
        return self.begin[opens], self.end[np.append(opens[1:], len(self.run)) - 1]

    def at(self, name: str, t: Any) -> tuple[Any, Any]:
        """Values at instants (whole or parts of microseconds), and whether there is one; 0 where there is none."""
        t = np.asarray(t)
        value = np.zeros(len(t), dtype=Long)
        there = np.zeros(len(t), dtype=bool)
        if len(self.begin):
            i = np.maximum(np.searchsorted(self.begin, t, side="right") - 1, 0)
            there = (t >= self.begin[i]) & (t < self.end[i])
            value[there] = self.inside(name, i[there], t[there])
        for j in np.flatnonzero(~there) if self.points else ():
            if t[j] == int(t[j]) and int(t[j]) in self.points:
                value[j], there[j] = self.points[int(t[j])][name], True
        return value, there

    def inside(self, name: str, piece: Any, t: Any) -> Any:
        """Values on the lines of these pieces."""
        part = (t - self.begin[piece]).astype(Long) / (self.end[piece] - self.begin[piece])
        first, last = self.first[name][piece].astype(Long), self.last[name][piece].astype(Long)
        return first + (last - first) * part


def tracks(
    table: pa.Table,
    attributes: Mapping[str, str],
    *,
    key: str | None = None,
    time: str = "t",
    max_gap: int | None = None,
) -> dict[Any, Track]:
    """The truth of each key. ``attributes`` names the truth of each: step or linear; ``max_gap`` in microseconds.

    Tuples of a key are in order of time. Of equal timestamps the last rules, and for linear the line before ends at
    the first of them: a jump.
    """
    t = (
        table.column(time)
        .cast(pa.timestamp("us"), safe=False)
        .to_numpy()
        .astype("datetime64[us]")
        .view(np.int64)
    )
    values = {name: table.column(name).cast(pa.float64()).to_numpy() for name in attributes}
    if key is None:
        codes, names = np.zeros(len(t), dtype=np.int64), [None]
    else:
        column = table.column(key)
        encoded = (
            column.combine_chunks()
            if pa.types.is_dictionary(column.type)
            else column.combine_chunks().dictionary_encode()
        )
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        codes, names = encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    found = {}
    for i, name in enumerate(names):
        rows = order[cuts[i] : cuts[i + 1]]
        if len(rows):
            found[name] = _track(name, t[rows], {a: v[rows] for a, v in values.items()}, attributes, max_gap)
    return found


def _track(key: Any, t: Any, values: dict[str, Any], kinds: Mapping[str, str], max_gap: int | None) -> Track:
    if (np.diff(t) < 0).any():
        raise ValueError(f"expected the tuples of {key!r} in order of time")
    opens = np.flatnonzero(np.append(True, np.diff(t) != 0))
    closes = np.append(opens[1:], len(t)) - 1  # last tuple of each instant
    at = t[opens]
    hole = np.zeros(max(len(at) - 1, 0), dtype=bool) if max_gap is None else np.diff(at) > max_gap
    piece = np.flatnonzero(~hole)
    run = np.append(0, np.cumsum(hole))
    first = {a: v[closes[piece]] for a, v in values.items()}
    last = {a: v[opens[piece + 1]] if kinds[a] == "linear" else first[a] for a, v in values.items()}
    ends = np.append(np.flatnonzero(hole), len(at) - 1)  # last instant of each run
    starts = np.append(0, ends[:-1] + 1)
    straight = all(kind == "linear" for kind in kinds.values())
    points = {}
    for start, stop in zip(starts, ends, strict=True):
        jump = any(v[opens[stop]] != v[closes[stop]] for v in values.values())
        if start == stop or jump or not straight:
            points[int(at[stop])] = {a: float(v[closes[stop]]) for a, v in values.items()}
    return Track(key, at[piece], at[piece + 1], run[piece], first, last, points)

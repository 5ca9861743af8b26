"""Join the rows of an answer about pairs to stretches: which two objects, from when to when.

A query for pairs (near each other, following each other) answers with many rows of one pair: an instant each, or a range each.
The stretches show when the pair began and when it ended::

    t      id1  id2                    id1  id2  start  end
    10:01  1    2
    10:02  1    2          ──>         1    2    10:01  10:03
    10:03  1    2
    10:09  1    2                      1    2    10:09  10:09

Episodes are such stretches already, of pairs or of single objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.arrow_types import is_text
from pulse.core.errors import unknown_column
from pulse.core.segment.columns import row_ranges
from pulse.core.time import to_microseconds
from pulse.plot.errors import PlotError

_TOUCHING = 2  # µs between two consecutive ranges
_NO_KEYS = ("certainty", "kind", "cores")
_EPISODES = ("start", "end", "start_latest", "end_earliest", "duration", "certainty", "cores")


class Together(NamedTuple):
    """A stretch in which two objects were together, from ``start`` to ``end`` (µs since 1970, or timestamps).

    ``certain`` is the share of that time, or of its instants, at which the answer is certain, if that is known.
    """

    one: Any
    other: Any
    start: Any
    end: Any
    certain: float | None = None


class Episode(NamedTuple):
    """A stretch in which a condition held for one object, from ``start`` to ``end`` (µs since 1970); ``certain`` as for pairs."""

    key: Any
    start: int
    end: int
    certain: float | None = None


_Stretch = TypeVar("_Stretch", Together, Episode)


def together(found: pa.Table, *, pair: tuple[str, str] | None = None) -> list[Together]:
    """Join the rows of an answer about pairs to unbroken stretches, the longest first.

    Tuples are joined if they are no more than the rate apart (the smallest step between any two instants of the answer), segments
    if they touch; episodes are stretches already. ``pair`` names the columns of the two objects: by default the first two that
    hold whole numbers or texts. A row of (2, 1) is of the same pair as one of (1, 2). Rows that are only ``possible`` do not
    count.
    """
    if "certainty" in found.column_names:
        held = np.array([word != "possible" for word in found.column("certainty").to_pylist()], dtype=bool)
        found = found.filter(pa.array(held))
    one, other = (found.column(name).to_pylist() for name in _pair(found, pair))
    if _are_episodes(found):
        return _longest_first(map(Together, one, other, *_stretches_of_episodes(found)))
    start, end, step = _ranges(found)
    sure = np.ones(found.num_rows, dtype=bool)
    if "certainty" in found.column_names:
        sure = np.array([word == "certain" for word in found.column("certainty").to_pylist()], dtype=bool)
    names: dict[frozenset[Any], tuple[Any, Any]] = {}
    rows: dict[frozenset[Any], list[int]] = {}
    for i, both in enumerate(zip(one, other, strict=True)):
        names.setdefault(frozenset(both), both)
        rows.setdefault(frozenset(both), []).append(i)
    made = [
        Together(*names[key], *stretch)
        for key, of in rows.items()
        for stretch in _stretches(start[of], end[of], sure[of], step)
    ]
    return _longest_first(made)


def episodes(found: pa.Table) -> list[Episode]:
    """Return the rows of a file of episodes, the longest first; the object is the first column of whole numbers or texts.

    Raises
    ------
    PlotError
        If the table is none of episodes, or has no such column.
    """
    if not _are_episodes(found):
        raise PlotError(
            "episodes: expected the columns 'start', 'end' and 'duration', as pulse query --episodes writes them; "
            f"got {', '.join(found.column_names) or 'no columns'}"
        )
    names = _of_objects(found)
    if not names:
        raise PlotError(
            "episodes: expected rows that name an object, in a column of whole numbers or texts; "
            f"got {', '.join(found.column_names)}"
        )
    return _longest_first(map(Episode, found.column(names[0]).to_pylist(), *_stretches_of_episodes(found)))


def pairs_of(given: Sequence[Together] | pa.Table) -> list[Together]:
    """Return the given pairs, or those of an answer's rows."""
    return together(given) if isinstance(given, pa.Table) else list(given)


def _pair(found: pa.Table, pair: tuple[str, str] | None) -> tuple[str, str]:
    if pair is not None:
        for name in pair:
            if name not in found.column_names:
                raise unknown_column(name, found.column_names, "pairs")
        return pair
    names = _of_objects(found)
    if len(names) < 2:
        raise PlotError(
            "pairs: expected rows that name two objects, in the first two columns of whole numbers or texts; "
            f"got {', '.join(found.column_names) or 'no columns'}"
        )
    return names[0], names[1]


def _of_objects(found: pa.Table) -> list[str]:
    """Return the columns that may name objects: those of whole numbers or texts."""
    return [
        field.name
        for field in found.schema
        if field.name not in _NO_KEYS and (pa.types.is_integer(field.type) or is_text(field.type))
    ]


def _are_episodes(found: pa.Table) -> bool:
    return set(_EPISODES) <= set(found.column_names)


def _stretches_of_episodes(found: pa.Table) -> tuple[list[int], list[int], list[float | None]]:
    """Return start and end of each episode in µs, and the share of it that is certain, None where several cores are."""
    start, end, latest, earliest = (
        to_microseconds(found.column(name).fill_null(0)) for name in _EPISODES[:4]
    )
    shares: list[float | None] = []
    for i, (word, cores) in enumerate(
        zip(found.column("certainty").to_pylist(), found.column("cores").to_pylist(), strict=True)
    ):
        if word == "certain" or cores == 0:
            shares.append(float(word == "certain"))
        elif cores > 1 or end[i] == start[i]:
            shares.append(None)
        else:
            shares.append(max(int(earliest[i] - latest[i]), 0) / int(end[i] - start[i]))
    return start.tolist(), end.tolist(), shares


def _longest_first(stretches: Iterable[_Stretch]) -> list[_Stretch]:
    return sorted(stretches, key=lambda stretch: stretch.start - stretch.end)


def _ranges(found: pa.Table) -> tuple[IntArray, IntArray, int]:
    """Return the range of each row in µs, and how far apart two rows of one stretch may be."""
    if {"ref", "lo", "hi"} <= set(found.column_names):
        return *row_ranges(found), _TOUCHING
    times = [field.name for field in found.schema if pa.types.is_timestamp(field.type)]
    if not times:
        raise PlotError(
            f"pairs: expected rows with a time, or with 'ref', 'lo' and 'hi'; got {', '.join(found.column_names)}"
        )
    at = to_microseconds(found.column(times[0]))
    steps = np.diff(np.unique(at))
    return at, at, int(steps.min()) if len(steps) else 0


def _stretches(start: IntArray, end: IntArray, sure: BoolArray, step: int) -> list[tuple[int, int, float]]:
    """Return the stretches of one pair: start, end, and the share that is certain."""
    order = np.argsort(start, kind="stable")
    start, end, sure = start[order], end[order], sure[order]
    reached = np.maximum.accumulate(end)
    begins = np.flatnonzero(np.r_[True, start[1:] > reached[:-1] + step])
    weights: FloatArray = np.maximum(end - start, 0).astype(np.float64)
    if not weights.any():  # each instant counts as one
        weights = np.ones(len(start))
    found = []
    for a, b in zip(begins.tolist(), [*begins[1:].tolist(), len(start)], strict=True):
        whole = float(weights[a:b].sum())
        share = float(weights[a:b][sure[a:b]].sum()) / whole if whole else float(sure[a:b].mean())
        found.append((int(start[a]), int(reached[b - 1]), share))
    return found

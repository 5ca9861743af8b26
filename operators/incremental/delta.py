"""Represent deltas: the rows that a revision changes on an arc, and the content around them.

Keys of an arc have numbers (its **codes**). A **stretch** is a code with a time range. The rows of an arc around stretches,
before and after a revision, are its **content**; the rows that differ are its **delta**. Both are row ranges of one relation, so
that an operator processes old and new in one pass::

    relation   | rows of stretch 0 before | after | rows of stretch 1, the same before and after | …

Rows stay whole where possible: a row cut at a region's border would get new bounds and show a change where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.columns import Columns
from pulse.core.regions import Regions
from pulse.core.time import EARLIEST, LATEST
from pulse.kernels.pieces.diff import diff_runs
from pulse.kernels.pieces.range_lookup import merge_ranges
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import extents
from pulse.operators.output.diff import TOLERANCE

END_MARGIN = 2
"""Margin of reads, in microseconds: ends of rows are real numbers, regions whole microseconds."""


@dataclass(frozen=True, eq=False)
class Changed:
    """A revision of an arc: all its rows in these regions, before and after. Rows lie within the regions."""

    regions: Regions
    old: Relation
    new: Relation


@dataclass(frozen=True, eq=False)
class KeyRanges:
    """Ranges ``[start, end)`` (microseconds) of keys, by their codes."""

    code: IntArray
    start: IntArray
    end: IntArray

    def __len__(self) -> int:
        return len(self.code)

    @classmethod
    def concat(cls, parts: Sequence[KeyRanges]) -> KeyRanges:
        """Concatenate ranges."""
        columns = (np.concatenate([getattr(one, name) for one in parts]) for name in ("code", "start", "end"))
        return cls(*columns)

    def take(self, rows: IntArray | BoolArray) -> KeyRanges:
        """Select ranges."""
        return KeyRanges(self.code[rows], self.start[rows], self.end[rows])

    def widened(self, before: int, after: int) -> KeyRanges:
        """Extend each range at its ends."""
        if not (before or after):
            return self
        return KeyRanges(
            self.code,
            np.maximum(self.start, EARLIEST + before) - before,
            np.minimum(self.end, LATEST - after) + after,
        )

    def merged(self) -> KeyRanges:
        """Sort by code and time, merging ranges that overlap or touch."""
        return KeyRanges(*merge_ranges(self.code, self.start, self.end))


@dataclass(frozen=True, eq=False)
class BeforeAfter:
    """The rows of an arc around stretches: group ``before[s]`` of the relation for stretch ``s``, ``after[s]`` once revised.

    Where both are one group nothing was revised. Every row that overlaps a stretch is included, whole; there may be more.
    """

    stretches: KeyRanges
    relation: Relation
    before: IntArray
    after: IntArray

    def within(self, relation: Relation) -> BeforeAfter:
        """Return the same groups of an operator's output."""
        return replace(self, relation=relation)


@dataclass(frozen=True, eq=False)
class Delta:
    """Changed rows: in stretch ``s``, ``new[s, 0]:new[s, 1]`` of the relation replace the rows ``old[s, 0]:old[s, 1]``.

    Stretches ascend, do not overlap, and just cover their rows. ``held``: the positions of the old rows in the arc's connection
    point.
    """

    stretches: KeyRanges
    relation: Relation
    old: IntArray
    new: IntArray
    held: IntArray | None = None
    absorbed: int = 0  # stretches compared and found unchanged

    def __len__(self) -> int:
        return len(self.stretches)

    def content(self) -> BeforeAfter:
        """Return the changed rows alone, old and new groups by stretch: enough for operators that work row by row."""
        n = len(self)
        made = by_ranges(
            self.relation, np.concatenate([self.old, self.new]), np.concatenate([self.groups] * 2)
        )
        return BeforeAfter(self.stretches, made, np.arange(n), np.arange(n, 2 * n))

    @property
    def groups(self) -> IntArray:
        """Return the group of each stretch's rows, for its key."""
        some = np.where(self.old[:, 1] > self.old[:, 0], self.old[:, 0], self.new[:, 0])
        return self.relation.group[some]

    @property
    def old_rows(self) -> Relation:
        """Return the withdrawn rows, a group per stretch."""
        return by_ranges(self.relation, self.old, self.groups)

    @property
    def new_rows(self) -> Relation:
        """Return the replacing rows, a group per stretch."""
        return by_ranges(self.relation, self.new, self.groups)


def extend_to_rows(content: BeforeAfter, of: IntArray, start: IntArray, end: IntArray) -> None:
    """Extend ranges in place to all rows of a content: its stretch ``s`` is in range ``of[s]``."""
    first, last = extents(content.relation)
    offsets = content.relation.offsets
    for groups in (content.before, content.after):
        begin, stop = offsets[groups], offsets[groups + 1]
        some = np.flatnonzero(stop > begin)
        np.minimum.at(start, of[some], first[begin[some]])
        np.maximum.at(end, of[some], last[stop[some] - 1])


def nothing(columns: Columns, absorbed: int = 0) -> Delta:
    """Return an empty delta."""
    none, ranges = np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
    return Delta(
        KeyRanges(none, none, none), Relation.empty(columns), ranges, ranges, ranges, absorbed=absorbed
    )


def by_ranges(relation: Relation, ranges: IntArray, groups: IntArray) -> Relation:
    """Select the rows ``ranges[i, 0]:ranges[i, 1]`` as group ``i``, with the key of ``groups[i]``."""
    rows, offsets = concat_ranges(ranges)
    return relation._pick(rows, keys_at(relation.keys, groups), offsets)


def keys_at(keys: tuple[pa.Array, ...], groups: IntArray) -> tuple[pa.Array, ...]:
    """Take key columns at positions; a single one without a copy."""
    if len(groups) == 1:
        at = int(groups[0])
        return tuple(column.slice(at, 1) for column in keys)
    chosen = pa.array(groups)
    return tuple(column.take(chosen) for column in keys)


def concat_ranges(ranges: IntArray) -> tuple[IntArray, IntArray]:
    """Concatenate the numbers of all ranges, and return where each begins among them.

    >>> [values.tolist() for values in concat_ranges(np.array([[5, 7], [1, 1], [2, 4]]))]
    [[5, 6, 2, 3], [0, 2, 2, 4]]
    """
    counts = ranges[:, 1] - ranges[:, 0]
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return np.repeat(ranges[:, 0] - offsets[:-1], counts) + np.arange(offsets[-1]), offsets


# -- which rows changed -----------------------------------------------------------------------------------------


def changed_rows(content: BeforeAfter, least: float = TOLERANCE) -> Delta:
    """Find the rows of a content that differ before and after, in runs (:mod:`pulse.kernels.pieces.diff`).

    Rows are unchanged if values, bounds, drift, certainty and unmodelled attributes agree to ``least`` at the same times. The
    stretches of the content ascend.
    """
    some = np.flatnonzero(content.before != content.after)
    offsets = content.relation.offsets
    old, new = np.empty((len(some), 2), np.int64), np.empty((len(some), 2), np.int64)
    for ranges, groups in ((old, content.before[some]), (new, content.after[some])):
        ranges[:, 0], ranges[:, 1] = offsets[groups], offsets[groups + 1]
    return diff_rows(content.relation, content.stretches.code[some], old, new, least)


def changed_apart(
    evaluate: Callable[[KeyRanges], BeforeAfter], affected: KeyRanges
) -> tuple[BeforeAfter, Delta]:
    """Evaluate affected stretches and find what changed in them, such that no row is part of two stretches.

    A content may hold rows beyond its stretch, which differ before and after where another stretch changed. Where changed
    stretches of a key overlap for that reason, all of the key's are evaluated again as one.
    """
    content = evaluate(affected)
    delta = changed_rows(content)
    code, start, end = delta.stretches.code, delta.stretches.start, delta.stretches.end
    shared = np.unique(code[1:][(code[1:] == code[:-1]) & (start[1:] < end[:-1])])
    if not len(shared):
        return content, delta
    chosen = np.isin(affected.code, shared)
    codes, first = np.unique(affected.code[chosen], return_index=True)
    whole = KeyRanges(
        np.concatenate([affected.code[~chosen], codes]),
        np.concatenate([affected.start[~chosen], affected.start[chosen][first]]),
        np.concatenate([affected.end[~chosen], np.maximum.reduceat(affected.end[chosen], first)]),
    ).merged()
    content = evaluate(whole)
    return content, changed_rows(content)


def diff_rows(
    relation: Relation, code: IntArray, old: IntArray, new: IntArray, least: float = TOLERANCE
) -> Delta:
    """Return the delta between rows ``old[s, 0]:old[s, 1]`` and ``new[s, 0]:new[s, 1]`` of code ``code[s]``."""
    pieces = relation.ref, relation.lo, relation.hi, _marks(relation)
    runs = diff_runs(pieces, _values(relation), old, new, least)
    absorbed = len(code) - (min(len(runs.of), 1) if len(code) == 1 else len(np.unique(runs.of)))
    stretches = KeyRanges(code[runs.of], runs.start, runs.end)
    return Delta(stretches, relation, runs.old, runs.new, absorbed=absorbed)


def _values(relation: Relation) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return coefficients side by side, where each attribute begins, and all bounds."""
    models = list(relation.models.values())
    limits = [*relation.err.values(), *relation.drift.values()]
    n = len(relation)
    widths = [c.shape[1] for c in models]
    c = np.concatenate(models, axis=1) if len(models) > 1 else models[0] if models else np.zeros((n, 0))
    return (
        np.ascontiguousarray(c),
        np.array([0, *np.cumsum(widths)], np.int64),
        np.stack(limits, axis=1) if limits else np.zeros((n, 0)),
    )


def _marks(relation: Relation) -> IntArray:
    """Number each row's combination of certainty and unmodelled attributes."""
    marks = relation.certainty.astype(np.int64)
    for column in relation.unmodelled.values():
        encoded = column.dictionary_encode()
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        marks = np.unique(marks * (len(encoded.dictionary) + 1) + codes, return_inverse=True)[1]
    return marks


def hull(relation: Relation, old: IntArray, new: IntArray) -> tuple[IntArray, IntArray]:
    """Return where the old and new rows of each stretch begin and end, in whole microseconds."""
    start, end = extents(relation)
    start, end = np.append(start, LATEST), np.append(end, EARLIEST)
    none = len(relation)

    def first(ranges: IntArray) -> IntArray:
        return np.where(ranges[:, 1] > ranges[:, 0], ranges[:, 0], none)

    def last(ranges: IntArray) -> IntArray:
        return np.where(ranges[:, 1] > ranges[:, 0], ranges[:, 1] - 1, none)

    return (
        np.minimum(start[first(old)], start[first(new)]),
        np.maximum(end[last(old)], end[last(new)]),
    )

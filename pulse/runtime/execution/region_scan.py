"""Read the segments of a stored model around given times, to recompute what a correction there changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.columns import Columns
from pulse.core.keys import key_ranks, keys_filter
from pulse.core.regions import Regions
from pulse.core.time import EARLIEST, LATEST, to_scalar
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import extents
from pulse.store.model import Model
from pulse.store.read_units import ReadUnit, read_unit

Spans = Sequence[tuple[int, int]]
"""Ranges ``[start, end)`` in microseconds, ascending and disjoint."""


def spans_of(regions: Sequence[Regions]) -> tuple[tuple[int, int], ...]:
    """Return the time spans of regions of any key."""
    none = np.zeros(0, np.int64)
    start = np.concatenate([none, *(one.start for one in regions)])
    end = np.concatenate([none, *(one.end for one in regions)])
    merged = Regions((), start, end).merged()
    return tuple(zip(merged.start.tolist(), merged.end.tolist(), strict=True))


def overlapping(relation: Relation, spans: Spans) -> Relation:
    """Return the whole rows that overlap one of the spans."""
    start, end = extents(relation)
    rows = np.flatnonzero(meets(start, end, spans))
    return relation if len(rows) == len(relation) else relation.take(rows).without_empty_groups()


def meets(start: IntArray, end: IntArray, spans: Spans | IntArray) -> BoolArray:
    """Return which ranges overlap one of the spans."""
    spans = np.asarray(spans, np.int64).reshape(-1, 2)
    at = np.searchsorted(spans[:, 1], start, side="right")
    begins = np.append(spans[:, 0], LATEST)[at]
    found: BoolArray = begins < end
    return found


def near_regions(relation: Relation, regions: Regions) -> Relation:
    """Return the whole rows that overlap a region of their own key; regions are merged."""
    return relation.take(np.flatnonzero(reaching(relation, regions))).without_empty_groups()


def reaching(relation: Relation, regions: Regions) -> BoolArray:
    """Return which rows overlap a region of their own key; regions are merged."""
    names = list(regions.keys)
    joined = [pa.concat_arrays([a, b.cast(a.type)]) for a, b in zip(relation.keys, names, strict=True)]
    ranks = key_ranks(joined, relation.groups + len(regions))
    of_group, of_region = ranks[: relation.groups], ranks[relation.groups :]
    order = np.lexsort((regions.start, of_region))
    spans, of_region = np.stack([regions.start, regions.end], axis=1)[order], of_region[order]
    first, last = (np.searchsorted(of_region, of_group, side) for side in ("left", "right"))
    start, end = extents(relation)
    kept = np.zeros(len(relation), bool)
    for g in np.flatnonzero(last > first).tolist():
        rows = slice(int(relation.offsets[g]), int(relation.offsets[g + 1]))
        kept[rows] = meets(start[rows], end[rows], spans[first[g] : last[g]])
    return kept


def read_around(model: Model, columns: Columns, spans: Spans, regions: Regions | None = None) -> Relation:
    """Read the segments that overlap the spans; with ``regions`` only those that overlap a region of their own key."""
    if not spans:
        return Relation.empty(columns)
    names = [name for name in columns.segment_schema().names if name != "certainty"]
    files = ReadUnit(tuple(file.name for file in model.manifest.files))
    condition = _since(model, spans)
    keys = None if regions is None else keys_filter(model.schema.key_names, regions.keys)
    condition = condition if keys is None else condition & keys
    relation = Relation.from_table(read_unit(model, files, names, condition), columns)
    if regions is not None and regions.keys:
        return near_regions(relation, regions)
    return overlapping(relation, spans)


def _since(model: Model, spans: Spans) -> Any:
    """Return a filter for segments that begin early enough to reach into the spans, with a reference late enough."""
    longest = int(model.manifest.statistics.get("longest_microseconds") or 0) + 1_000_000
    start, end = spans[0][0] - longest, spans[-1][1] + longest
    condition = pc.scalar(True)
    if start > EARLIEST // 2:
        condition = condition & (pc.field("ref") >= to_scalar(start))
    if end < LATEST // 2:
        condition = condition & (pc.field("ref") <= to_scalar(end))
    return condition

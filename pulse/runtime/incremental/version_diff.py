"""Diff a query's results between two versions of its models (semantics 7): prepared once, computed in pieces.

::

    touched regions of each stream  ──widened by what windows reach──>  segments of both versions around them
    ──unshared ones──>  incremental view  ──>  +I  -U +U  -D

Only what may have changed is read and evaluated. Where a plan of one stream is separable by key, that is the touched keys, and a
piece of work is some of them; else it is all keys at the touched times, and a piece of work some of these. Picklable: workers get
it whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.core.instants import ceil_microsecond, floor_microsecond
from pulse.core.regions import Regions
from pulse.core.time import LATEST, parse_instant
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import clip
from pulse.operators.node import Node, PlanError
from pulse.operators.output.diff import change_schema, difference
from pulse.operators.output.tuple_diff import tuple_difference
from pulse.operators.reach import Reach
from pulse.operators.relational.scan import Scan, change_scans, scans
from pulse.plan.exchanges import place_exchanges
from pulse.plan.fragments import fragments
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.plan.radius import farthest
from pulse.plan.versions import checked
from pulse.runtime.accents.query_units import AS_STORED, NO_ACCENTS, Evolution, JobAccents, job_accents
from pulse.runtime.execution.bound_plan import BoundPlan, RateError, at_versions, prepare
from pulse.runtime.execution.region_scan import Spans, meets, read_around, spans_of
from pulse.store.model_ref import ModelRef
from pulse.store.versions.changed_regions import changed_regions, everywhere

READ_MARGIN = 2_000_000
"""Microseconds read beyond the windows' reach: ends of segments are real numbers."""

PIECE = 256
"""The maximum number of regions in a piece of work."""


@dataclass(frozen=True)
class VersionDiff:
    """The diff of a bound query's results between model references ``old`` and ``new``, one version each per stream.

    ``regions``: what may differ, by stream. ``rate``: that of tuples, None for segments. ``accents``: the unit maps of both
    sides, made with ``evolution``; results of either side are in the units in force on that side.
    """

    query: Query
    old: Mapping[str, ModelRef]
    new: Mapping[str, ModelRef]
    rate: int | None
    regions: Mapping[str, Regions] = field(default_factory=dict)
    mode: str | None = None
    evolution: Evolution = AS_STORED
    accents: tuple[JobAccents, JobAccents] = (NO_ACCENTS, NO_ACCENTS)

    def check_end(self, emitted: Any) -> None:
        """Raise the error of a query that ends at an accent, with what changed before it."""
        for one in reversed(self.accents):
            one.check_end(emitted)

    @property
    def same_units(self) -> bool:
        """Return whether both sides have the same unit maps."""
        return self.accents[0] == self.accents[1]

    @cached_property
    def plan(self) -> Node:
        """Return the plan as evaluated: in one place, without exchanges."""
        return optimise(self.query.plan)

    @cached_property
    def by_key(self) -> bool:
        """Return whether no result depends on more than one key of one stream."""
        cut = fragments(place_exchanges(self.plan))
        return len(cut) == 1 and cut[0].stream is not None

    @cached_property
    def reach(self) -> Reach:
        """Return how far before and after an input change results can change."""
        return farthest(self.plan)

    @property
    def columns(self) -> Columns:
        """Return the columns of results."""
        return self.query.output(self.plan.columns)

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the changes: the results' columns, and ``kind``."""
        columns = self.columns
        if self.rate is None:
            return change_schema(columns.segment_schema())
        return change_schema(columns.tuple_schema(self.query.select))

    @cached_property
    def results(self) -> Spans:
        """Return the times of results that may differ."""
        before, after = self.reach
        return spans_of(
            [one.widened(before + READ_MARGIN, after + READ_MARGIN) for one in self.regions.values()]
        )

    @cached_property
    def inputs(self) -> Spans:
        """Return the times of segments that these depend on."""
        return spans_of([self._around(one) for one in self.regions.values()])

    def _around(self, regions: Regions) -> Regions:
        """Widen regions to what is read. Where segments are converted to base units on reading, everything before is needed:
        bounds of integrals carry on."""
        far = 2 * (max(self.reach) + READ_MARGIN)
        converted = any(one.alters for side in self.accents for one in side.input_units.values())
        return regions.widened(LATEST if converted else far, far)

    def pieces(self) -> list[VersionDiff]:
        """Split the work into independent parts: keys of the one stream, or times of all keys; all at once if units differ."""
        if not any(map(len, self.regions.values())):
            return []
        if not self.same_units:
            return [self]
        if not self.by_key:
            return self._pieces_in_time()
        ((stream, regions),) = self.regions.items()
        starts = range(0, len(regions), PIECE)
        ends = [_end_of_key(regions, min(start + PIECE, len(regions))) for start in starts]
        cuts = sorted({0, *ends})
        return [
            replace(self, regions={stream: regions.take(np.arange(a, b))})
            for a, b in itertools.pairwise(cuts)
        ]

    def _pieces_in_time(self) -> list[VersionDiff]:
        """Split where the segments to read of two parts do not overlap. Segments that differ lie within regions, whole."""
        ends = np.array([end for _, end in self.inputs])
        spans = {name: np.searchsorted(ends, one.start, side="right") for name, one in self.regions.items()}
        counts = np.bincount(np.concatenate(list(spans.values())), minlength=len(ends))
        part = (np.cumsum(counts) - counts) // PIECE
        return [
            replace(
                self,
                regions={
                    name: one.take(np.flatnonzero(part[spans[name]] == number))
                    for name, one in self.regions.items()
                },
            )
            for number in np.unique(part)
        ]

    def sides(self) -> Iterator[tuple[dict[str, Relation], JobAccents]]:
        """Yield the streams before and after, each with their unit maps."""
        for stored, accents in zip((self.old, self.new), self.accents, strict=True):
            yield self._streams(stored, accents), accents

    def _streams(self, stored: Mapping[str, ModelRef], accents: JobAccents) -> dict[str, Relation]:
        """Read the segments of every stream around what may differ, by plain names, in the units of evaluation."""
        found = {}
        for scan in scans(self.plan):
            if scan.stream not in found:
                regions = None
                if self.by_key:
                    regions = self._around(self.regions[scan.stream]).merged()
                columns = self.stored_columns(scan.stream)
                rows = read_around(stored[scan.stream].open(), columns, self.inputs, regions)
                to_base = accents.input_units.get(scan.stream)
                found[scan.stream] = rows if to_base is None else to_base.segments(rows)
        return found

    def answers(self) -> Iterator[BoundPlan]:
        """Yield the query of either side, over all segments around what may differ."""
        for stored in (self.old, self.new):
            bound = prepare(self.query, stored, tuples=self.rate is not None, evolution=self.evolution)
            yield replace(bound, spans=self.inputs)

    def stored_columns(self, stream: str) -> Columns:
        """Return the stream's columns as stored."""
        return next(scan.stored for scan in scans(self.query.plan) if scan.stream == stream)


def prepare_revised(
    query: Query,
    paths: Mapping[str, str | ModelRef],
    since: Any,
    *,
    tuples: bool,
    version: int | None = None,
    as_of: Any = None,
    mode: str | None = None,
    evolution: Evolution = AS_STORED,
) -> VersionDiff:
    """Prepare the diff between ``since`` and now, or a later version or time.

    Streams that the query itself reads as of some moment do not take part. Where the two sides have different unit maps (accents
    came in between, or keys by which an operator holds), all results may differ.

    Parameters
    ----------
    query : the bound query
    paths : where its streams are stored, by name
    since : a version, a mapping of streams to versions, or a time
    tuples : whether the results are tuples, else segments
    version : the later version, default the newest
    as_of : the later time, instead of ``version``
    mode : the mode of the incremental view, reported then; None: upstream
    evolution : how accents are treated
    """
    rate = query.rate if tuples else None
    if tuples and rate is None:
        points = query.plan.columns.points
        raise RateError(
            "query: revisions of points are segments of one instant each; ask for segments (--segments)"
            if points
            else "query: revisions as tuples need a rate; end the query with SAMPLE EVERY 1 s, or ask for segments (--segments)"
        )
    old, new = compared_models(query, paths, since, version=version, as_of=as_of)
    known = [one.as_of for one in (*old.values(), *new.values()) if one.as_of is not None]
    if known:  # data unknown at that time is new, not revised
        query = replace(query, plan=change_scans(query.plan, lambda scan: _until(scan, min(known))))
    query, fixed = at_versions(query, paths)
    names = sorted({scan.stream for scan in scans(query.plan)})
    old = {name: old.get(name, fixed[name]).pinned() for name in names}
    new = {name: new.get(name, fixed[name]).pinned() for name in names}
    accents = job_accents(query.plan, old, evolution), job_accents(query.plan, new, evolution)
    regions = {name: changed_regions(old[name].open(), new[name].open()) for name in names}
    if accents[0] != accents[1]:
        regions = {name: everywhere(old[name].open(), new[name].open()) for name in names}
    if known:
        regions = {name: _before(one, min(known)) for name, one in regions.items()}
    return VersionDiff(query, old, new, rate, regions, mode, evolution, accents)


def compare(job: VersionDiff, old: pa.Table, new: pa.Table) -> pa.Table:
    """Diff two answers, or the parts of them with the same keys."""
    columns = job.columns
    schema = columns.segment_schema() if job.rate is None else columns.tuple_schema(job.query.select)
    old, new = (side.select(schema.names).cast(schema) for side in (old, new))
    if job.rate is None:
        before, after = (Relation.from_table(side, columns).merged() for side in (old, new))
        made = difference(within_spans(before, job.results), within_spans(after, job.results)).table
    else:
        keys = [name for name in job.query.select if name in columns.key_names]
        made = tuple_difference(old, new, keys, columns.time)
    return made.cast(job.schema)


def within(table: pa.Table, job: VersionDiff) -> pa.Table:
    """Drop results, or changes of them, outside the times that may differ."""
    if job.rate is None:
        ref = _microseconds(table.column("ref"))
        start = floor_microsecond(ref, table.column("lo").to_numpy())
        end = ceil_microsecond(ref, table.column("hi").to_numpy())
    else:
        start = end = _microseconds(table.column(job.columns.time))
    return table.filter(pa.array(meets(start, np.maximum(end, start + 1), job.results)))


def _microseconds(column: pa.ChunkedArray) -> IntArray:
    found: IntArray = column.cast(pa.int64()).to_numpy()
    return found


def within_spans(relation: Relation, spans: Spans) -> Relation:
    """Clip rows to these times."""
    parts = [clip(relation, start, end) for start, end in spans]
    return Relation.concat(parts).merged() if parts else Relation.empty(relation.columns)


def compared_models(
    query: Query,
    paths: Mapping[str, str | ModelRef],
    since: Any,
    *,
    version: int | None = None,
    as_of: Any = None,
) -> tuple[dict[str, ModelRef], dict[str, ModelRef]]:
    """Return the models of both sides of a diff (:func:`prepare_revised`), by stream; without streams read as of some moment."""
    own = {scan.stream for scan in scans(query.plan) if scan.at is None}
    if version is not None and as_of is not None:
        raise PlanError("revisions: up to a version, or as of a time; give one of them")
    new = {name: ModelRef.of(paths[name]) for name in own}
    if version is not None:
        new = {name: ModelRef(one.path, checked(version)) for name, one in new.items()}
    elif as_of is not None:
        new = {name: ModelRef(one.path, None, _instant(as_of)) for name, one in new.items()}
    if isinstance(since, Mapping):
        for name in since:
            if name not in own:
                raise PlanError(
                    f"revisions since a version of '{name}': the query reads no stream of that name as of now, only "
                    f"{', '.join(sorted(own))}"
                )
        return {**new, **{n: ModelRef(new[n].path, checked(one)) for n, one in since.items()}}, new
    if isinstance(since, int) and not isinstance(since, bool):
        if len({one.path for one in new.values()}) > 1:
            raise PlanError(
                f"revisions since version {since}: of which stream? The query reads {', '.join(sorted(own))}; "
                "name it: {'" + min(own) + f"': {since}}} (--revised-from {min(own)}={since})"
            )
        return {name: ModelRef(one.path, checked(since)) for name, one in new.items()}, new
    return {name: ModelRef(one.path, None, _instant(since)) for name, one in new.items()}, new


def _instant(given: Any) -> int:
    return given if isinstance(given, int) and not isinstance(given, bool) else parse_instant(given)


def _until(scan: Scan, end: int) -> Scan:
    if scan.at is not None:
        return scan
    return replace(scan, end=end if scan.end is None else min(scan.end, end))


def _before(regions: Regions, end: int) -> Regions:
    some = regions.take(np.flatnonzero(regions.start < end))
    return replace(some, end=np.minimum(some.end, end))


def _end_of_key(regions: Regions, at: int) -> int:
    """Return the first region, from a position on, of another key than the one before it; regions are ordered by key."""
    while at < len(regions) and all(column[at] == column[at - 1] for column in regions.keys):
        at += 1
    return at

"""Bind a query to the models it reads: planned and cut into fragments. Picklable, since workers get it whole."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from pulse.core.bounds import ErrorBound
from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.core.expression import TRUE, Constant, Expression, Parameter
from pulse.operators.node import Node, PlanError, walk
from pulse.operators.output.episodes import EpisodeError
from pulse.operators.output.episodes import schema as episode_schema
from pulse.operators.output.sampling import OWN_INSTANTS
from pulse.operators.output.summary import schema as summary_schema
from pulse.operators.relational.exchange import Exchange, Grid, exchanges_among
from pulse.operators.relational.scan import Scan, change_scans, scans
from pulse.operators.relational.spatial_grid import ResolvedGrid, cell_size
from pulse.plan.closings import exchanged_instants
from pulse.plan.exchanges import place_exchanges
from pulse.plan.fragments import Fragment, fragments
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.accents.query_units import AS_STORED, NO_ACCENTS, Evolution, JobAccents, job_accents
from pulse.runtime.execution.scan import Reading, as_scanned, keys_of, read, reading
from pulse.runtime.results.geo_columns import GeoColumns
from pulse.store.model_ref import ModelRef
from pulse.store.read_units import ROWS, ReadUnit, units

_BUCKETS = 32  # of time, for a pair join: enough to keep a cluster busy, few enough to keep margins cheap


class RateError(PulseError, ValueError):
    """A query without a rate cannot be sampled into tuples."""


@dataclass(frozen=True)
class BoundPlan:
    """A bound query whose plan has exchanges, with the models it reads.

    ``rate`` is None for segments and episodes; with ``summary`` the result is partial summaries
    (:mod:`pulse.operators.output.summary`) of segments or tuples. With ``saved`` the result has also the possible segments, which
    queries on it need. With ``spans`` only segments that overlap these times
    (microseconds) are read.
    """

    query: Query
    paths: Mapping[str, ModelRef]
    rate: int | None
    lineage: bool = False
    summary: bool = False
    episodes: bool = False
    saved: bool = False
    geo: GeoColumns | None = None
    grids: Mapping[Exchange, ResolvedGrid] = field(default_factory=dict)
    spans: Sequence[tuple[int, int]] | None = None
    accents: JobAccents = NO_ACCENTS

    @cached_property
    def fragments(self) -> tuple[Fragment, ...]:
        """Return the fragments in an order in which they can run; the last yields the result."""
        return fragments(self.query.plan)

    @property
    def columns(self) -> Columns:
        """Return the plan's columns, with only the selected keys."""
        of_plan = self.query.plan.columns
        kept = tuple((name, type_) for name, type_ in of_plan.key if name in self.query.select)
        return replace(of_plan, key=kept)

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the result."""
        if self.summary:
            return summary_schema(self.columns.modelled)
        if self.rate is None and not self.episodes:
            return self.columns.segment_schema(lineage=self.lineage)
        select = self.query.select
        made = episode_schema(self.columns, select) if self.episodes else self.columns.tuple_schema(select)
        return made if self.geo is None else self.geo.schema(made, episodes=self.episodes)

    def check_end(self, emitted: Any) -> None:
        """Raise if the results end at an accent, with those ``emitted``."""
        self.accents.check_end(emitted)

    def producers(self, fragment: Fragment) -> tuple[tuple[int, Exchange, Fragment], ...]:
        """Return each exchange that the fragment reads, its arc, and the fragment that feeds it; twins are fed once."""
        by_root = {one.root: one for one in self.fragments}
        twins = self.twins(fragment)
        return tuple(
            (arc, leaf, by_root[leaf.input])
            for arc, leaf in enumerate(fragment.exchanges)
            if arc not in twins
        )

    def twins(self, fragment: Fragment) -> dict[int, int]:
        """Map arcs to earlier arcs that carry the same rows under other names: a stream paired with itself."""
        leaves = fragment.exchanges
        alike = (
            (arc, first)
            for arc, leaf in enumerate(leaves)
            for first in reversed(range(arc))
            if self._alike(leaves[first], leaf)
        )
        return dict(alike)  # the earliest comes last

    def _alike(self, one: Exchange, other: Exchange) -> bool:
        """Return whether two exchanges send the same rows to the same places, except for names."""
        here, there = self.grids.get(one), self.grids.get(other)
        names = one.input.names_in(other.input)
        if names is None or here is None or there is None:
            return False
        position = None if here.position is None else tuple(names[name] for name in here.position)
        return position == there.position and replace(here, position=None) == replace(there, position=None)

    def reading(self, fragment: Fragment) -> Reading:
        """Return what a fragment over scans reads."""
        own = fragment.scans
        input_units = self.accents.input_units.get(own[0].stream)
        return reading(
            self.paths[own[0].stream],
            own[0].stored,
            own,
            lineage=self.lineage,
            input_units=input_units,
            squares=self.squares,
        )

    @cached_property
    def squares(self) -> bool:
        """Return whether a window function of the plan uses certified squared errors."""
        return any(node.uses_squares for node in walk(self.query.plan))

    def keys(self, fragment: Fragment) -> Expression:
        """Return the predicate on keys that the fragment reads: those that any of its scans needs."""
        return keys_of(fragment.scans)

    def units(self, fragment: Fragment, at_least: int = 1) -> tuple[ReadUnit, ...]:
        """Return the units that a fragment over scans reads, one per worker."""
        model = self.reading(fragment).stored.open()
        return units(model, at_least=at_least, shared=self.keys(fragment) == TRUE)

    @cached_property
    def instants(self) -> frozenset[Exchange]:
        """Return the exchanges that carry points at the query's rate."""
        if self.rate is None or self.query.plan.columns.points:
            return frozenset()
        return exchanged_instants(self.fragments[-1].root)

    @cached_property
    def places(self) -> int:
        """Return how many places an exchange by keys scatters to: each gets about as much as a unit."""
        rows = sum(stored.open().manifest.segments for stored in self.paths.values())
        return max(16, math.ceil(2 * rows / ROWS))

    @property
    def errors(self) -> tuple[tuple[str | None, ErrorBound], ...]:
        """Return the bounds that the query states."""
        return tuple((name, bound) for name, bound in self.query.errors if isinstance(bound, ErrorBound))

    def possible(self, exchanged: bool) -> bool:
        """Return whether a fragment must find possible ranges: the query wants them, or episodes or a merge above need them."""
        return (
            self.query.possible
            or self.episodes
            or self.saved
            or (exchanged and any(node.combines_keys for node in walk(self.query.plan)))
        )


def prepare(
    query: Query,
    paths: Mapping[str, str | ModelRef],
    *,
    tuples: bool,
    lineage: bool = False,
    summary: bool = False,
    episodes: bool = False,
    saved: bool = False,
    geo: bool = False,
    evolution: Evolution = AS_STORED,
) -> BoundPlan:
    """Plan a bound query over stored models; pin each model without a version to its newest one."""
    rate = rate_of_tuples(query) if tuples else None
    query, paths = at_versions(query, paths)
    plan = place_exchanges(optimise(query.plan), by_key=episodes)
    used = {scan.stream for scan in scans(plan)}
    pinned = {name: ModelRef.of(paths[name]).pinned() for name in sorted(used)}
    accents = job_accents(query.plan, pinned, evolution)
    if episodes:
        _check_units(accents)
    places = GeoColumns.of(query) if geo and (tuples or episodes) else None
    job = BoundPlan(
        replace(query, plan=plan), pinned, rate, lineage, summary, episodes, saved, places, accents=accents
    )
    return replace(job, grids=_grids(plan, job.paths))


def _check_units(accents: JobAccents) -> None:
    """Reject episodes of attributes whose unit changes: values of one episode could not be compared."""
    steps = {} if accents.output_units is None else accents.output_units.alter.steps
    altered = [name for name, one in steps.items() if not one.is_empty]
    if altered:
        raise EpisodeError(
            f"episodes: accents alter {', '.join(altered)}, so that the values of one episode have several units; "
            "ask for segments or tuples, or ignore these accents (--policy alter=ignore)"
        )


def rate_of_tuples(query: Query) -> int:
    """Return the rate at which a bound query is sampled into tuples; for points, the rate that returns them as they are."""
    if query.plan.columns.points:
        return OWN_INSTANTS
    if query.rate is None:
        raise RateError(
            "query: tuples of a selective query need a rate; end it with SAMPLE EVERY 1 s, or ask for segments (--segments)"
        )
    return query.rate


def at_versions(query: Query, paths: Mapping[str, str | ModelRef]) -> tuple[Query, dict[str, ModelRef]]:
    """Give every stream its own name for each moment that it is read as of; return the query and the models by these names."""
    found = {name: ModelRef.of(path) for name, path in paths.items()}

    def change(scan: Scan) -> Scan:
        if scan.at is None:
            return scan
        version, time = scan.at.version, scan.at.time
        assert not isinstance(version, Parameter)
        assert not isinstance(time, Parameter)
        name = f"{scan.stream} {scan.at}"
        here = found[scan.stream]
        found[name] = ModelRef(here.path, version or (here.version if time is None else None), time)
        return replace(scan, stream=name, at=None)

    return replace(query, plan=change_scans(query.plan, change)), found


def _grids(plan: Node, paths: Mapping[str, ModelRef]) -> dict[Exchange, ResolvedGrid]:
    """Return the grid of each pair join, the same for both of its sides."""
    found: dict[Exchange, ResolvedGrid] = {}
    for node in walk(plan):
        sides = [one for one in exchanges_among(node.inputs) if isinstance(one.by, Grid)]
        if sides:
            found |= _resolved(sides, paths)
    return found


def _resolved(sides: list[Exchange], paths: Mapping[str, ModelRef]) -> dict[Exchange, ResolvedGrid]:
    """Choose buckets and cells from the models alone, so that every engine cuts alike.

    Buckets are long compared with the windows above, whose margins are solved twice. Cells of space are only used where a bucket
    would hold more than a unit.
    """
    models = {scan.stream: paths[scan.stream].open() for side in sides for scan in scans(side)}
    bounds = [model.manifest.bounds for model in models.values()]
    starts, ends = ([at for one in bounds for at in one[side]] for side in (0, 1))
    span = max(ends) - min(starts) if starts else 0
    grids = [side.by for side in sides if isinstance(side.by, Grid)]
    margin = max(sum(one for one in grid.margin if isinstance(one, int)) for grid in grids)
    least = max(grid.bucket for grid in grids if isinstance(grid.bucket, int))
    bucket = max(least, math.ceil(span / _BUCKETS / 1_000_000) * 1_000_000)
    every = sum(file.rows for model in models.values() for file in model.manifest.files)
    rows = every / max(1.0, span / bucket)
    spread = rows > ROWS and all(grid.position is not None for grid in grids)
    cell = (
        max(_cell(side, grid, paths, bucket) for side, grid in zip(sides, grids, strict=True))
        if spread
        else 1.0
    )
    return {
        side: ResolvedGrid(grid.position, _reach(grid), bucket, margin, cell, math.ceil(2 * rows / ROWS))
        if spread
        else ResolvedGrid(None, 0.0, bucket, margin, 1.0)
        for side, grid in zip(sides, grids, strict=True)
    }


def _cell(side: Exchange, grid: Grid, paths: Mapping[str, ModelRef], bucket: int) -> float:
    """Return the size of a cell from a sample of what is exchanged: the first unit of a stream with its positions unaltered."""
    assert grid.position is not None
    for scan in scans(side):
        if all(name in scan.columns.modelled for name in grid.position) and not scan.models:
            wanted = reading(paths[scan.stream], scan.stored, (scan,), lineage=False)
            first = units(wanted.stored.open())[0]
            return cell_size(as_scanned(read(wanted, first), scan), grid.position, _reach(grid), bucket)
    return 20.0 * _reach(grid)


def _reach(grid: Grid) -> float:
    reach = grid.reach
    if reach is None:
        return 0.0
    if not isinstance(reach, Constant) or isinstance(reach.value, (str, bool)):
        raise PlanError(f"query: the distance {reach} is not a number")
    return float(reach.value) * grid.stretch

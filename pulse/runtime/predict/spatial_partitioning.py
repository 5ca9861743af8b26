"""Partition proximity pairs over places by grid cell: the cells of each key, and the part of a query that one place solves.

The recent segments of a bucket's keys are kept beside its validators. A key's **range** is the rectangle of cells that the
bounding box of these segments touches, from as far back as windows extend to the end of its newest model, grown by errors and
half the reach. Cells are assigned to a fixed number of places (:func:`~pulse.operators.relational.spatial_grid.cell_place`).
Every update carries the key's new range, to the places of its old range and of the new one::

    in both        the update
    new only       all recent segments of the key: it enters
    old only       a notice that it left

A pair is solved in the place of its *home*, the first cell that both ranges share. Each place has the current ranges of its keys,
so all places agree on it. An update changes a pair from its start on: from there the old home retracts its results, and the new
home emits the current ones; earlier results stay. A place that a key has left holds none of its pairs from then on, so it needs
no later updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.core.expression import Constant
from pulse.core.time import LATEST
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import (
    apply_updates,
    ending_after,
    first_begins,
    group_keys,
    keys_in,
    replaced,
)
from pulse.operators.node import Node
from pulse.operators.output.diff import difference
from pulse.operators.relational.join import Join, joins
from pulse.operators.relational.scan import Scan, scans
from pulse.operators.relational.spatial_grid import (
    PairHome,
    averaged_reach,
    places,
    places_of_cells,
)
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import as_scanned
from pulse.runtime.incremental.continuous_query import (
    RETENTION_MARGIN,
    ContinuousQuery,
    followed,
)
from pulse.runtime.incremental.continuous_view import ContinuousView, Solved
from pulse.validation.revisions.replay import KeyRevision

Key = tuple[object, ...]
Range = tuple[int, int, int, int]
"""Cells ``(ix0, ix1, iy0, iy1)``, ends included."""

CELL_PER_REACH = 20.0
"""Default side of a cell, in units of the distance in the query."""


@dataclass(frozen=True)
class KeyNotice:
    """A notice to a place about a key: since when it changed, its range (None: it left), and whether it enters.

    ``revised``: its past changed as well; results behind the watermark are final.
    """

    key: Key
    since: int
    range: Range | None
    enters: bool
    revised: bool = False


@dataclass(frozen=True)
class SpatialPartitioning:
    """The partitioning of a continuous query with one pair join of two streams over ``places`` places."""

    query: ContinuousQuery
    join: Join
    cell: float
    places: int

    @classmethod
    def of(cls, query: ContinuousQuery, places: int, cell: float | None = None) -> SpatialPartitioning | None:
        """Build a partitioning; None if the plan has no proximity join, depends on more than two keys, or hides one."""
        found = joins(query.plan)
        if len(found) != 1 or not query.separates_keys or found[0].near is None or found[0].equal:
            return None
        join = found[0]
        reach = join.near.reach if join.near is not None else None
        if not isinstance(reach, Constant) or any(len(scans(side)) != 1 for side in join.inputs):
            return None
        for leaf in scans(query.plan):
            names = _key_names(leaf, query)
            output = [followed(query.plan, name) for name in names]
            if not names or any(one not in query.plan.columns.key_names for one in output):
                return None
        return cls(query, join, cell or CELL_PER_REACH * abs(float(reach.value)) or 1.0, places)

    @property
    def reach(self) -> float:
        """The distance by which boxes are grown, half on either side."""
        assert self.join.near is not None
        assert isinstance(self.join.near.reach, Constant)
        return max(float(self.join.near.reach.value), 0.0) * self.join.near.stretch

    def sides(self) -> Iterator[tuple[Node, Scan, tuple[str, str]]]:
        """Yield for either side of the join its plan, its scan and its position columns."""
        near = self.join.near
        assert near is not None
        for side, position in zip(self.join.inputs, (near.left, near.right), strict=True):
            yield side, next(iter(scans(side))), position

    def ranges(self, stream: str, relation: Relation) -> dict[Key, Range]:
        """The cells of each key of a stream; keys that never reach the join have none."""
        found: dict[Key, Range] = {}
        for side, leaf, position in self.sides():
            if leaf.stream != stream:
                continue
            evaluation = FragmentEvaluation(
                {leaf: as_scanned(relation, leaf)}, possible=self.query.query.possible
            )
            moving = evaluation.segments(side).without_empty_groups()
            reach = self.reach
            if self.join.near is not None and self.join.near.window:
                reach = averaged_reach(moving, position, reach)
            cells = places(moving, position, reach, self.cell).tolist()
            for key, (x0, x1, y0, y1) in zip(self.keys_at(moving, leaf, side), cells, strict=True):
                a = found.get(key, (x0, x1, y0, y1))
                found[key] = min(a[0], x0), max(a[1], x1), min(a[2], y0), max(a[3], y1)
        return found

    def keys_at(self, relation: Relation, leaf: Scan, node: Node) -> list[Key]:
        """The scan's key of each group of a node's output."""
        own = relation.columns.key_names
        names = [followed(node, name) for name in _key_names(leaf, self.query)]
        columns = [relation.keys[own.index(name)].to_pylist() for name in names if name is not None]
        return list(zip(*columns, strict=True))

    def of_range(self, cells: Range | None) -> frozenset[int]:
        """The places of a range."""
        return frozenset() if cells is None else places_of_cells(cells, self.places)


@dataclass
class CellRegistry:
    """The recent segments and ranges of a bucket's keys, by stream."""

    held: dict[str, Relation] = field(default_factory=dict)
    ranges: dict[str, dict[Key, Range]] = field(default_factory=dict)

    def take(
        self,
        partitioning: SpatialPartitioning,
        stream: str,
        updates: Relation,
        revised: KeyRevision | None = None,
    ) -> dict[int, tuple[Relation, tuple[KeyNotice, ...]]]:
        """Record a stream's updates and return the message to each place: segments and notices.

        Every place gets a notice of a revised key, since any may hold results of its earlier positions; the places of its range
        get all its recent segments.
        """
        updates = updates.without_empty_groups().merged()
        if not len(updates) and revised is None:
            return {}
        held = self.held.get(stream, Relation.empty(updates.columns))
        if revised is not None:
            held = replaced(held, revised.keys, revised.start, revised.segments)
        rest, changed = apply_updates(held, updates)
        if revised is not None and rest.groups:
            changed |= keys_in(rest.keys, revised.keys)
        self.held[stream] = rest
        recent = rest.select_groups(np.flatnonzero(changed))
        now, before = partitioning.ranges(stream, recent), self.ranges.setdefault(stream, {})
        at = {key: group for group, key in enumerate(group_keys(recent))}
        notices: dict[int, list[tuple[KeyNotice, int]]] = {}
        for group, (key, since) in enumerate(
            zip(group_keys(updates), first_begins(updates)[1].tolist(), strict=True)
        ):
            old, new = before.pop(key, None), now.get(key)
            come_from, go_to = partitioning.of_range(old), partitioning.of_range(new)
            for place in sorted(come_from | go_to):
                notice = KeyNotice(key, since, new if place in go_to else None, place not in come_from)
                notices.setdefault(place, []).append((notice, group))
            if new is not None:
                before[key] = new
        for key, since in _revised_starts(revised):
            before.pop(key, None)
            new = now.get(key)
            go_to = partitioning.of_range(new)
            for place in range(partitioning.places):
                notice = KeyNotice(key, since, new if place in go_to else None, place in go_to, revised=True)
                notices.setdefault(place, []).append((notice, -1))
            if new is not None:
                before[key] = new
        made = {}
        for place, some in notices.items():
            stay = [group for notice, group in some if notice.range is not None and not notice.enters]
            enter = [at[notice.key] for notice, _ in some if notice.enters]
            parts = [updates.select_groups(_ints(stay)), recent.select_groups(_ints(enter))]
            made[place] = Relation.concat(parts), tuple(notice for notice, _ in some)
        return made

    def forget(self, partitioning: SpatialPartitioning, watermark: int) -> None:
        """Free segments and ranges that no result from the watermark on depends on."""
        oldest = watermark - partitioning.query.radius - RETENTION_MARGIN
        for stream, relation in self.held.items():
            self.held[stream] = ending_after(relation, oldest)
            left = set(group_keys(self.held[stream]))
            self.ranges[stream] = {key: one for key, one in self.ranges[stream].items() if key in left}


@dataclass
class PlaceSolver:
    """The part of a continuous query that one place solves: its keys' segments and ranges, and the results of its pairs."""

    partitioning: SpatialPartitioning
    place: int
    view: ContinuousView
    ranges: dict[str, dict[Key, Range]] = field(default_factory=dict)

    def take(self, messages: Iterable[tuple[str, Relation, tuple[KeyNotice, ...]]]) -> Solved:
        """Apply messages of buckets, each about its own keys, and solve the changes."""
        view = self.view
        since: dict[str, dict[Key, int]] = {}
        for stream, relation, notices in messages:
            floor = view.watermark  # results behind the watermark are final
            mine = since.setdefault(stream, {})
            for one in notices:  # a key that is revised and then ended has two notices
                mine[one.key] = min(max(one.since, floor), mine.get(one.key, LATEST))
            ranges = self.ranges.setdefault(stream, {})
            gone = {one.key for one in notices if one.range is None or one.enters}
            for one in notices:
                ranges.pop(one.key, None)
                if one.range is not None:
                    ranges[one.key] = one.range
            named, _ = _instants(dict.fromkeys((one.key for one in notices), 0), relation.columns)
            held = view.segments(stream, named)
            stays = [group for group, key in enumerate(group_keys(held)) if key not in gone]
            view.replace_keys(stream, named, apply_updates(held.select_groups(_ints(stays)), relation)[0])
        starts = {stream: _instants(keys, view.query.columns[stream]) for stream, keys in since.items()}
        solved = view.solve(starts, home=self._home)
        view.commit()
        return solved

    def advance(self, watermark: int) -> None:
        """Free segments and ranges that no result from the watermark on depends on."""
        self.view.advance(watermark)
        for stream, ranges in self.ranges.items():
            left = set(group_keys(self.view.segments(stream)))
            self.ranges[stream] = {key: one for key, one in ranges.items() if key in left}

    def _home(self, left: Relation, right: Relation) -> PairHome:
        cells = []
        for relation, (side, leaf, _) in zip((left, right), self.partitioning.sides(), strict=True):
            ranges = self.ranges[leaf.stream]
            found = [ranges[key] for key in self.partitioning.keys_at(relation, leaf, side)]
            cells.append(np.array(found, np.int64).reshape(-1, 4))
        return PairHome(self.place, self.partitioning.places, *cells)


def coalesced(parts: Iterable[tuple[pa.Table, int]], query: ContinuousQuery) -> list[tuple[pa.Table, int]]:
    """Merge the changes of several places: a retraction in one and an insertion in another become a replacement, or nothing.

    Each part carries the newest time of its place; merged changes carry the newest of all.
    """
    parts = list(parts)
    moved, rest = [], []
    for table, now in parts:
        kinds = table.column("kind").to_numpy(zero_copy_only=False)
        alone = (kinds == "-D") | (kinds == "+I")
        moved.append(table.filter(pa.array(alone)))
        rest.append((table.filter(pa.array(~alone)), now))
    if len(parts) < 2:
        return parts
    whole = pa.concat_tables(moved)
    kinds = whole.column("kind").to_numpy(zero_copy_only=False)
    old, new = (
        Relation.from_table(whole.filter(pa.array(kinds == kind)).drop_columns(["kind"]), query.output)
        for kind in ("-D", "+I")
    )
    changes = difference(old, new).table
    return [(changes, max(now for _, now in parts)), *rest]


def _key_names(leaf: Scan, query: ContinuousQuery) -> list[str]:
    return [f"{leaf.alias}.{name}" for name in query.columns[leaf.stream].key_names]


def _instants(known: Mapping[Key, int], columns: Columns) -> tuple[tuple[pa.Array, ...], IntArray]:
    """Keys as columns, and the instant of each."""
    values = zip(*known, strict=True) if known else ((),) * len(columns.key)
    keys = tuple(pa.array(list(one), type_) for one, (_, type_) in zip(values, columns.key, strict=True))
    return keys, np.array(list(known.values()), np.int64)


def _revised_starts(revised: KeyRevision | None) -> list[tuple[Key, int]]:
    """Revised keys, each with the instant since which it changed."""
    if revised is None:
        return []
    keys = zip(*(column.to_pylist() for column in revised.keys), strict=True)
    return list(zip(keys, revised.since.tolist(), strict=True))


def _ints(values: list[int]) -> IntArray:
    return np.array(values, np.int64)

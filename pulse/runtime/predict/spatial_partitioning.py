"""Pairs that come near, spread over places by grid cell: which cells a key touches, and the part of a query one place answers.

With the validators of a bucket lie their keys' recent segments. A key's **range** is the rectangle of cells that the box of all
of these touches, from as far back as windows reach to the end of its newest model, grown by errors and half the reach. Cells are
dealt to a fixed number of places (:func:`~pulse.operators.relational.spatial_grid.folded`). With every update goes the key's new
range, to the places of its old range and of the new one::

    in both        the update
    new only       all recent segments of the key: it enters
    old only       that it left

A pair is solved in the place of its *home*, the first cell that both ranges share. Each place has the ranges of its keys as
they are now, so all agree on it. What an update changes of a pair lies from its start on: from there the old home takes back what
it said, and the new home says what holds; before, nothing moves. A place that a key has left holds nothing of its pairs from
then on, so later updates need not reach it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.expression import Constant
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import apply_updates, begins, ending_after, keys_in
from pulse.operators.output.diff import difference
from pulse.operators.relational.spatial_grid import (
    PairHome,
    averaged_reach,
    folded_places,
    places,
    within_each,
)
from pulse.plan.nodes import Join, Node, Scan, scans, walk
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import as_scanned
from pulse.runtime.incremental.continuous_query import (
    FAR,
    GRACE,
    ContinuousQuery,
    ContinuousQueryState,
    Solved,
    followed,
    selected,
)
from pulse.validation.revisions.replay import KeyRevision, replaced

Key = tuple[object, ...]
Range = tuple[int, int, int, int]
"""Cells ``(ix0, ix1, iy0, iy1)``, ends included."""

CELL_PER_REACH = 20.0
"""The side of a cell where the job states none, in units of the distance that the query asks for."""


@dataclass(frozen=True)
class KeyNotice:
    """What a place is told of a key: from when on it changed, its range (None: it left), and whether it enters.

    ``revised``: what it did before is another; results that are no longer held stay as they were.
    """

    key: Key
    since: int
    range: Range | None
    enters: bool
    revised: bool = False


@dataclass(frozen=True)
class SpatialPartitioning:
    """How a standing query with one pair join of two streams is spread over ``places`` places."""

    standing: ContinuousQuery
    join: Join
    cell: float
    places: int

    @classmethod
    def of(
        cls, standing: ContinuousQuery, places: int, cell: float | None = None
    ) -> SpatialPartitioning | None:
        """None where the plan cannot be spread: what meets is not near, or depends on more than two keys, or hides one."""
        joins = [node for node in walk(standing.plan) if isinstance(node, Join)]
        if len(joins) != 1 or not standing.treats_keys_apart or joins[0].near is None or joins[0].equal:
            return None
        join = joins[0]
        reach = join.near.reach if join.near is not None else None
        if not isinstance(reach, Constant) or any(len(scans(side)) != 1 for side in join.inputs):
            return None
        for leaf in scans(standing.plan):
            names = _key_names(leaf, standing)
            output = [followed(standing.plan, name) for name in names]
            if not names or any(one not in standing.plan.columns.key_names for one in output):
                return None
        return cls(standing, join, cell or CELL_PER_REACH * abs(float(reach.value)) or 1.0, places)

    @property
    def reach(self) -> float:
        """What boxes are grown by, half on either side."""
        assert self.join.near is not None
        assert isinstance(self.join.near.reach, Constant)
        return max(float(self.join.near.reach.value), 0.0) * self.join.near.stretch

    def sides(self) -> Iterator[tuple[Node, Scan, tuple[str, str]]]:
        """Of either side of the join its plan, its scan and the columns of its position."""
        near = self.join.near
        assert near is not None
        for side, position in zip(self.join.inputs, (near.left, near.right), strict=True):
            yield side, next(iter(scans(side))), position

    def ranges(self, stream: str, relation: Relation) -> dict[Key, Range]:
        """The cells of each key of a stream; keys that never come to the join have none."""
        found: dict[Key, Range] = {}
        for side, leaf, position in self.sides():
            if leaf.stream != stream:
                continue
            evaluation = FragmentEvaluation(
                {leaf: as_scanned(relation, leaf)}, possible=self.standing.query.possible
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
        """The key of a scan that each group of a node's output came from."""
        own = relation.columns.key_names
        names = [followed(node, name) for name in _key_names(leaf, self.standing)]
        columns = [relation.keys[own.index(name)].to_pylist() for name in names if name is not None]
        return list(zip(*columns, strict=True))

    def of_range(self, cells: Range | None) -> frozenset[int]:
        """The places of a range."""
        return frozenset() if cells is None else folded_places(cells, self.places)


@dataclass
class CellRegistry:
    """Where the keys of a bucket are: their recent segments and ranges, by stream."""

    held: dict[str, Relation] = field(default_factory=dict)
    ranges: dict[str, dict[Key, Range]] = field(default_factory=dict)

    def take(
        self, spread: SpatialPartitioning, stream: str, updates: Relation, revised: KeyRevision | None = None
    ) -> dict[int, tuple[Relation, tuple[KeyNotice, ...]]]:
        """What each place is to be told of a stream's updates: segments, and what they are of.

        Of a key that is revised every place is told, since any may hold results of where it was: those of its range get all its
        recent segments.
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
        now, before = spread.ranges(stream, recent), self.ranges.setdefault(stream, {})
        at = {key: group for group, key in enumerate(_keys(recent))}
        told: dict[int, list[tuple[KeyNotice, int]]] = {}
        for group, (key, since) in enumerate(_starts(updates)):
            old, new = before.pop(key, None), now.get(key)
            come_from, go_to = spread.of_range(old), spread.of_range(new)
            for place in sorted(come_from | go_to):
                said = KeyNotice(key, since, new if place in go_to else None, place not in come_from)
                told.setdefault(place, []).append((said, group))
            if new is not None:
                before[key] = new
        for key, since in _sinces(revised):
            before.pop(key, None)
            new = now.get(key)
            go_to = spread.of_range(new)
            for place in range(spread.places):
                said = KeyNotice(key, since, new if place in go_to else None, place in go_to, revised=True)
                told.setdefault(place, []).append((said, -1))
            if new is not None:
                before[key] = new
        made = {}
        for place, some in told.items():
            stay = [group for said, group in some if said.range is not None and not said.enters]
            enter = [at[said.key] for said, _ in some if said.enters]
            parts = [updates.select_groups(_ints(stay)), recent.select_groups(_ints(enter))]
            made[place] = Relation.concat(parts), tuple(said for said, _ in some)
        return made

    def forget(self, spread: SpatialPartitioning, watermark: int) -> None:
        """Free what no result from the watermark on depends on."""
        oldest = watermark - spread.standing.radius - GRACE
        for stream, relation in self.held.items():
            self.held[stream] = ending_after(relation, oldest).without_empty_groups()
            left = set(_keys(self.held[stream]))
            self.ranges[stream] = {key: one for key, one in self.ranges[stream].items() if key in left}


@dataclass
class PlaceSolver:
    """The part of a standing query that one place answers: its keys' segments and ranges, and the results of its pairs."""

    spread: SpatialPartitioning
    place: int
    state: ContinuousQueryState
    ranges: dict[str, dict[Key, Range]] = field(default_factory=dict)

    def take(self, news: Iterable[tuple[str, Relation, tuple[KeyNotice, ...]]]) -> Solved:
        """What is told by buckets, each of its own keys; what it changes."""
        standing = self.spread.standing
        streams, changed = dict(self.state.streams), {}
        since: dict[str, dict[Key, int]] = {}
        for stream, relation, told in news:
            floor = self.state.watermark  # what is no longer held stays as it was said
            mine = since.setdefault(stream, {})
            for one in told:  # of a key that is revised and then ended there are two
                mine[one.key] = min(max(one.since, floor), mine.get(one.key, FAR))
            ranges = self.ranges.setdefault(stream, {})
            gone = {one.key for one in told if one.range is None or one.enters}
            for one in told:
                ranges.pop(one.key, None)
                if one.range is not None:
                    ranges[one.key] = one.range
            held = streams[stream]
            stays = [group for group, key in enumerate(_keys(held)) if key not in gone]
            streams[stream], _ = apply_updates(held.select_groups(_ints(stays)), relation)
        for stream, keys in since.items():
            changed[stream] = np.array([key in keys for key in _keys(streams[stream])], bool)
        first = min((at for keys in since.values() for at in keys.values()), default=FAR)
        found, solved, _ = standing.solve(streams, changed, first, self._home)
        touched, begins = self._since(self.state.results, since)
        before = self.state.results.select_groups(np.flatnonzero(touched))
        begins = begins[touched]
        _, new_begins = self._since(found, since)
        new = within_each(found, new_begins, np.full(found.groups, FAR))
        old = within_each(before, begins, np.full(before.groups, FAR))
        changes = difference(selected(old, standing.output), selected(new, standing.output))
        kept = [
            self.state.results.select_groups(np.flatnonzero(~touched)),
            within_each(before, np.full(before.groups, -FAR), begins),
            new,
        ]
        self.state = ContinuousQueryState(streams, Relation.concat(kept).merged(), self.state.watermark)
        return Solved(changes, solved, new)

    def advance(self, watermark: int) -> None:
        """Free what no result from the watermark on depends on."""
        self.state = self.spread.standing.advance(self.state, watermark)
        for stream, ranges in self.ranges.items():
            left = set(_keys(self.state.streams[stream]))
            self.ranges[stream] = {key: one for key, one in ranges.items() if key in left}

    def _home(self, left: Relation, right: Relation) -> PairHome:
        cells = []
        for relation, (side, leaf, _) in zip((left, right), self.spread.sides(), strict=True):
            ranges = self.ranges[leaf.stream]
            found = [ranges[key] for key in self.spread.keys_at(relation, leaf, side)]
            cells.append(np.array(found, np.int64).reshape(-1, 4))
        return PairHome(self.place, self.spread.places, *cells)

    def _since(self, results: Relation, since: Mapping[str, Mapping[Key, int]]) -> tuple[BoolArray, IntArray]:
        """Which pairs have a key that changed, and from when on the first of the two did."""
        begin = np.full(results.groups, FAR)
        for _, leaf, _ in self.spread.sides():
            known = since.get(leaf.stream, {})
            keys = self.spread.keys_at(results, leaf, self.spread.standing.plan)
            begin = np.minimum(begin, np.array([known.get(key, FAR) for key in keys], np.int64))
        return begin < FAR, begin


def coalesced(parts: Iterable[tuple[pa.Table, int]], standing: ContinuousQuery) -> list[tuple[pa.Table, int]]:
    """Changes of several places as if of one: what one takes back and another says is a replacement, or nothing.

    Each with the newest time that was known there; what is of two places has the newer.
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
        Relation.from_table(whole.filter(pa.array(kinds == kind)).drop_columns(["kind"]), standing.output)
        for kind in ("-D", "+I")
    )
    changes = difference(old, new).table
    return [(changes, max(now for _, now in parts)), *rest]


def _key_names(leaf: Scan, standing: ContinuousQuery) -> list[str]:
    return [f"{leaf.alias}.{name}" for name in standing.columns[leaf.stream].key_names]


def _keys(relation: Relation) -> list[Key]:
    return list(zip(*(column.to_pylist() for column in relation.keys), strict=True))


def _starts(updates: Relation) -> list[tuple[Key, int]]:
    """The keys of updates, and when the first of each begins."""
    if not len(updates):
        return []
    starts = np.minimum.reduceat(begins(updates), updates.offsets[:-1]).tolist()
    return list(zip(_keys(updates), starts, strict=True))


def _sinces(revised: KeyRevision | None) -> list[tuple[Key, int]]:
    """Revised keys, and from when on each is another."""
    if revised is None:
        return []
    keys = zip(*(column.to_pylist() for column in revised.keys), strict=True)
    return list(zip(keys, revised.since.tolist(), strict=True))


def _ints(values: list[int]) -> IntArray:
    return np.array(values, np.int64)

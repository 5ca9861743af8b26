"""Maintain a continuous query: hold the current models of its streams, and solve again the results that an update affects.

State is explicit: the live segments of every stream, and their results. An update (semantics 1.4) changes results only from its
start on. So the plan is solved again over the changed keys, from as far back as windows reach; the results are compared with the
earlier ones, and only the differences are emitted (:mod:`pulse.operators.output.diff`)::

    updates ──apply──> segments of the streams ──plan, on changed keys──> new results ──difference──> +I  -U +U  -D

A plan that is separable by key (no aggregate across keys) is evaluated once per scan: that scan over the changed keys, scans
before it over the unchanged, scans after it over all; so every combination with a changed key is evaluated exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.certainty import LIKELY
from pulse.core.columns import Columns
from pulse.core.time import EARLIEST, LATEST
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import (
    apply_updates,
    clip,
    clip_groups,
    ending_after,
    first_begins,
    in_other,
    keys_in,
    present,
    replaced,
)
from pulse.operators.inversion.needs import positions
from pulse.operators.node import Node, walk
from pulse.operators.output.diff import Changes, change_schema, difference
from pulse.operators.relational.scan import Scan, scans
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.execution.evaluator import FragmentEvaluation, Homes
from pulse.runtime.execution.scan import as_scanned
from pulse.runtime.predict.unknown_keys import Ends, bounded_only, ends_known, ends_of, without_bound
from pulse.runtime.predict.unknown_keys import followed as followed
from pulse.validation.revisions.replay import KeyRevision

RETENTION_MARGIN = 1_000_000  # microseconds kept beyond the windows' reach, against rounding at their ends


@dataclass(frozen=True)
class ContinuousQueryState:
    """The state of a continuous query. ``streams``: the live segments at rest, by plain names. ``results``: the current results,
    from the watermark on; of lagging keys, if these are known, from their newest tuple on."""

    streams: Mapping[str, Relation]
    results: Relation
    watermark: int = EARLIEST
    lagging: bool = False  # whether results of lagging keys are included


Instants = Mapping[str, tuple[tuple[pa.Array, ...], IntArray]]
"""Keys by stream, each with an instant in microseconds."""


@dataclass(frozen=True)
class Solved:
    """The outcome of an update."""

    changes: Changes
    solved: int  # keys solved again, over all scans
    fresh: Relation  # computed result segments
    evaluation: FragmentEvaluation | None = None  # of the whole plan over the changed keys, if single

    @property
    def results(self) -> int:
        """Return the number of computed result segments."""
        return len(self.fresh)


@dataclass(frozen=True)
class ContinuousQuery:
    """A bound query over streams with these columns. Immutable; the state is passed in and out."""

    query: Query
    columns: Mapping[str, Columns]
    plan: Node = field(init=False)

    def __post_init__(self) -> None:
        # Mirroring pairs would be wrong: scans hold changed and unchanged keys, and either may have the smaller key.
        object.__setattr__(self, "plan", optimise(self.query.plan, mirror=False))

    @property
    def radius(self) -> int:
        """Return how far back, in microseconds, a result can depend on its inputs: all windows down the longest path."""
        return _radius(self.plan)

    @property
    def output(self) -> Columns:
        """Return the columns of results."""
        return self.query.output(self.plan.columns)

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of changes."""
        return change_schema(self.output.segment_schema())

    def start(self) -> ContinuousQueryState:
        """Return the empty state."""
        return ContinuousQueryState(
            {stream: Relation.empty(columns) for stream, columns in self.columns.items()},
            Relation.empty(self.plan.columns),
        )

    def update(
        self, state: ContinuousQueryState, updates: Mapping[str, Relation]
    ) -> tuple[ContinuousQueryState, Solved]:
        """Apply new segments, by stream; return the new state and the changes."""
        some = {stream: one for stream, one in updates.items() if len(one)}
        if not some:
            return state, Solved(Changes(self.schema.empty_table()), 0, Relation.empty(self.plan.columns))
        streams = dict(state.streams)
        changed: dict[str, BoolArray] = {}
        for stream, one in some.items():
            streams[stream], changed[stream] = apply_updates(streams[stream], one, voids=True)
        results, solved = self._updated(state, state.results, streams, changed, some)
        return replace(state, streams=streams, results=results), solved

    def _updated(
        self,
        state: ContinuousQueryState,
        results: Relation,
        streams: Mapping[str, Relation],
        changed: Mapping[str, BoolArray],
        updates: Mapping[str, Relation],
    ) -> tuple[Relation, Solved]:
        """Return the results after updates, each key's from its first update on; dropped results are not reported."""
        starts = {stream: first_begins(one) for stream, one in updates.items()}
        if not self.separates_keys:  # keys that are known again changed from when they became unknown
            for stream, (keys, at) in starts.items():
                before = ends_known(state.streams[stream])
                starts[stream] = keys, np.minimum(at, _known(keys, before, LATEST, len(at)))
        if not (self.separates_keys and state.lagging):
            starts = {
                stream: (keys, np.maximum(at, state.watermark)) for stream, (keys, at) in starts.items()
            }
        since = min(int(at.min()) for _, at in starts.values())
        named = {stream: one.without_empty_groups().keys for stream, one in updates.items()}
        return self.solve_again(results, streams, changed, (since, LATEST), named, starts)

    def revise(
        self, state: ContinuousQueryState, revised: Mapping[str, KeyRevision], updates: Mapping[str, Relation]
    ) -> tuple[ContinuousQueryState, Solved]:
        """Apply corrected segments of some keys and new ones of others; return the changes of the results still held.

        Only results of corrected keys are solved again, from the first difference until windows have passed the last.
        """
        streams, keys, changed = dict(state.streams), {}, {}
        for stream, one in revised.items():
            streams[stream] = replaced(streams[stream], one.keys, one.start, one.segments, voids=True)
            keys[stream] = one.keys
        some = {stream: one for stream, one in updates.items() if len(one)}
        for stream, new in some.items():
            streams[stream], changed[stream] = apply_updates(streams[stream], new, voids=True)
        since = max(min(int(one.since.min()) for one in revised.values()), state.watermark)
        last = max(int(one.until.max()) for one in revised.values())
        until = min(last, LATEST - self.radius - RETENTION_MARGIN) + self.radius + RETENTION_MARGIN
        marks = {
            stream: positions(streams[stream].keys, one.keys, streams[stream].groups, len(one)) >= 0
            for stream, one in revised.items()
        }
        results, solved = self.solve_again(state.results, streams, marks, (since, max(since, until)), keys)
        if some:
            # All segments are already final, so this does not change the results solved above.
            results, more = self._updated(state, results, streams, changed, some)
            both = Changes(pa.concat_tables([solved.changes.table, more.changes.table]))
            fresh = Relation.concat([solved.fresh, more.fresh])
            solved = Solved(both, solved.solved + more.solved, fresh)
        return replace(state, streams=streams, results=results), replace(solved, evaluation=None)

    def solve_again(
        self,
        results: Relation,
        streams: Mapping[str, Relation],
        changed: Mapping[str, BoolArray],
        span: tuple[int, int],
        keys: Mapping[str, tuple[pa.Array, ...]],
        starts: Instants | None = None,
        home: Homes | None = None,
    ) -> tuple[Relation, Solved]:
        """Solve again the results in a time span that depend on changed keys; return all results and the changes.

        ``keys``: the changed ones, of which some may have no segments left; ``starts``: from when on each has changed. ``home``
        selects the pairs of a pair join to solve here; None: all.
        """
        since, until = span
        new, count, evaluation = self.solve(streams, changed, since, home, until=until)
        touched = self._touched(results, new, keys)
        held = results.select_groups(np.flatnonzero(touched))
        old_from, new_from = (self._firsts(one, starts or {}, since, since) for one in (held, new))
        new = clip_groups(new, new_from, np.full(new.groups, until))
        before = clip_groups(held, old_from, np.full(held.groups, until))
        changes = difference(selected(before, self.output), selected(new, self.output))
        stays = [
            results.select_groups(np.flatnonzero(~touched)),
            clip_groups(held, np.full(held.groups, EARLIEST), old_from),
            *([clip(held, until, LATEST)] if until < LATEST else []),
        ]
        return Relation.concat([*stays, new]).merged(), Solved(changes, count, new, evaluation)

    def advance(
        self, state: ContinuousQueryState, watermark: int, lagging: Instants | None = None
    ) -> ContinuousQueryState:
        """Advance the watermark, behind which nothing more arrives: drop segments that no result from it on depends on.

        ``lagging``: the keys whose newest tuple lies before it, and when that was. The next tuple of such a key, in order, may
        show that the truth left the model right after that: results from there on, and their inputs, are kept. In plans across
        keys, so are segments that a yet unknown key may combine with: validators take it as far back as windows reach.
        """
        if watermark <= state.watermark:
            return state
        some = {stream: one for stream, one in (lagging or {}).items() if len(one[1])}
        first = min(
            [watermark - self.radius - 2 * RETENTION_MARGIN, *(int(last.min()) for _, last in some.values())]
        )
        alone = self.alone
        streams = {}
        for stream, relation in state.streams.items():
            floor = np.full(relation.groups, watermark if alone else first)
            if alone and stream in some:
                floor = _known(relation.keys, some[stream], watermark, relation.groups)
            streams[stream] = ending_after(
                relation, floor - self.radius - RETENTION_MARGIN, newest=not self.separates_keys
            )
        results = ending_after(state.results, self._firsts(state.results, some, watermark, first))
        reached = watermark if self.separates_keys else max(first, state.watermark)
        return ContinuousQueryState(streams, results, reached, lagging is not None)

    def of_keys(self, relation: Relation, updates: Relation) -> Relation:
        """Filter a stream's segments to the keys of updates."""
        return relation.select_groups(np.flatnonzero(in_other(relation, updates)))

    def recent(self, relation: Relation, instant: int) -> Relation:
        """Return the segments that results from an instant on depend on."""
        return clip(relation, instant - self.radius - RETENTION_MARGIN, LATEST).without_empty_groups()

    # -- solving again --------------------------------------------------------------------------------------

    def solve(
        self,
        streams: Mapping[str, Relation],
        changed: Mapping[str, BoolArray],
        since: int,
        home: Homes | None = None,
        *,
        until: int = LATEST,
    ) -> tuple[Relation, int, FragmentEvaluation | None]:
        """Solve the results from ``since`` on that depend on changed keys.

        Returns the results, the number of keys solved, and the evaluation if there was a single one. ``home`` selects the pairs
        of a pair join to solve here; None: all.
        """
        recent = {
            stream: present(clip(relation, since - self.radius - RETENTION_MARGIN, until))
            for stream, relation in streams.items()
        }
        marks = {stream: _marked(recent[stream], streams[stream], changed.get(stream)) for stream in recent}
        leaves = tuple(dict.fromkeys(scans(self.plan)))
        if not self.separates_keys:
            inputs: dict[Node, Relation] = {leaf: as_scanned(recent[leaf.stream], leaf) for leaf in leaves}
            unknown: dict[Node, Ends] = {leaf: ends_of(streams[leaf.stream], leaf) for leaf in leaves}
            found, evaluation = self._evaluated(inputs, home, unknown)
            return clip(found, since, until), sum(one.groups for one in inputs.values()), evaluation
        parts, solved = [], 0
        whole: FragmentEvaluation | None = None
        for place, leaf in enumerate(leaves):
            if not marks[leaf.stream].any():
                continue
            inputs = {}
            for other_place, other in enumerate(leaves):
                mark = marks[other.stream]
                if other_place == place:
                    chosen = np.flatnonzero(mark)
                elif other_place < place:
                    chosen = np.flatnonzero(~mark)
                else:
                    chosen = np.arange(len(mark))
                inputs[other] = as_scanned(recent[other.stream].select_groups(chosen), other)
            solved += inputs[leaf].groups
            found, evaluation = self._evaluated(inputs, home)
            parts.append(clip(found, since, until))
            whole = evaluation if len(leaves) == 1 else None
        return Relation.concat(parts or [Relation.empty(self.plan.columns)]), solved, whole

    def _evaluated(
        self, inputs: Mapping[Node, Relation], home: Homes | None, unknown: Mapping[Node, Ends] | None = None
    ) -> tuple[Relation, FragmentEvaluation]:
        evaluation = FragmentEvaluation(
            inputs,
            possible=self.query.possible,
            home=home,
            unknown=unknown,
            bounded_only=unknown is not None and bounded_only(self.plan),
        )
        found = evaluation.segments(self.plan)
        if not self.query.possible:
            found = found.take(np.flatnonzero(found.certainty >= LIKELY))
        return without_bound(found.without_empty_groups()), evaluation

    @property
    def separates_keys(self) -> bool:
        """Return whether no result depends on keys other than its own."""
        return all(node.separates_keys for node in walk(self.plan))

    @property
    def alone(self) -> bool:
        """Return whether every result depends on one key of one scan."""
        return self.separates_keys and len(dict.fromkeys(scans(self.plan))) == 1

    def _touched(
        self, results: Relation, new: Relation, keys: Mapping[str, tuple[pa.Array, ...]]
    ) -> BoolArray:
        """Return which groups of the old results are solved again: all, or those with a changed key among their keys."""
        if not self.separates_keys or not results.groups:
            return np.ones(results.groups, bool)
        touched = in_other(results, new)
        for stream, changed in keys.items():
            for leaf in scans(self.plan):
                if leaf.stream == stream:
                    touched |= self._has_key(results, leaf, changed)
        return touched

    def _has_key(self, results: Relation, leaf: Scan, keys: tuple[pa.Array, ...]) -> BoolArray:
        """Return which result groups have one of these keys in the key columns from this scan."""
        columns = self._keys_of(results, leaf)
        return np.ones(results.groups, bool) if columns is None else keys_in(columns, keys)

    def _keys_of(self, results: Relation, leaf: Scan) -> tuple[pa.Array, ...] | None:
        """Return the results' key columns that come from a scan; None where some are missing."""
        plain = self.columns[leaf.stream].key_names
        names = [followed(self.plan, f"{leaf.alias}.{name}") for name in plain]
        own = results.columns.key_names
        if not names or any(name is None or name not in own for name in names):
            return None
        return tuple(results.keys[own.index(name)] for name in names if name is not None)

    def _firsts(self, results: Relation, instants: Instants, other: int, unknown: int) -> IntArray:
        """Return per result group the first instant of its keys: ``other`` where none has one, ``unknown`` where its input keys
        cannot be derived from it."""
        if not self.separates_keys:
            return np.full(results.groups, unknown)
        found = np.full(results.groups, LATEST)
        for leaf in dict.fromkeys(scans(self.plan)):
            if leaf.stream in instants:
                columns = self._keys_of(results, leaf)
                one = np.full(results.groups, unknown)
                if columns is not None:
                    one = _known(columns, instants[leaf.stream], LATEST, results.groups)
                found = np.minimum(found, one)
        return np.where(found == LATEST, other, found)


def _radius(node: Node) -> int:
    return node.looks_back + max((_radius(one) for one in node.inputs), default=0)


def _known(
    keys: tuple[pa.Array, ...], instants: tuple[tuple[pa.Array, ...], IntArray], other: int, n: int
) -> IntArray:
    """Look up the instant of each of ``n`` keys, ``other`` where there is none."""
    place = positions(keys, instants[0], n, len(instants[1]))
    return np.append(instants[1], other)[place]


def _marked(recent: Relation, whole: Relation, marks: BoolArray | None) -> BoolArray:
    """Restrict marks of a stream's keys to those with recent segments."""
    if marks is None:
        return np.zeros(recent.groups, bool)
    return in_other(recent, whole.select_groups(np.flatnonzero(marks)))


def selected(relation: Relation, columns: Columns) -> Relation:
    """Project a relation to the keys in ``columns``."""
    names = relation.columns.key_names
    keys = tuple(relation.keys[names.index(name)] for name in columns.key_names)
    return replace(relation, columns=columns, keys=keys)

"""A standing query: it keeps the current models of its streams, and when one changes solves again what depends on it.

State is explicit: the segments that still matter of every stream, and the results they gave. An update (semantics 1.4) changes
results only from its start on. So what is solved again is the plan over the keys that changed, from as far back as windows reach;
the results are compared with those given before, and only the differences are emitted (:mod:`pulse.operators.output.diff`)::

    updates ──settle──> segments of the streams ──plan, on what changed──> new results ──difference──> +I  -U +U  -D

A plan that treats keys apart (no aggregate across keys) is evaluated once for each of its scans: that scan over the changed
keys, scans before it over the unchanged, scans after it over all; every combination with a changed key is met exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.certainty import ABSENT, LIKELY
from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import apply_updates, begins, ends, in_other, is_over, keys_in
from pulse.operators.output.diff import Changes, change_schema, difference
from pulse.operators.relational.spatial_grid import clip, within_each
from pulse.plan.nodes import Across, Node, Scan, Union, Window, scans, walk
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.execution.evaluator import FragmentEvaluation, Homes
from pulse.runtime.execution.scan import as_scanned
from pulse.runtime.predict.unknown_keys import Ends, bounded_only, ends_known, ends_of, without_bound
from pulse.runtime.predict.unknown_keys import followed as followed
from pulse.validation.inversion.key_matching import positions
from pulse.validation.revisions.replay import KeyRevision, replaced

FAR = 1 << 62
GRACE = 1_000_000  # microseconds that are kept beyond what windows reach, against rounding at their ends


@dataclass(frozen=True)
class ContinuousQueryState:
    """``streams``: the segments at rest that still matter, by plain names. ``results``: what holds now, from the watermark on,
    and of keys that lag behind it, if it is known which, from their newest tuple on."""

    streams: Mapping[str, Relation]
    results: Relation
    watermark: int = -FAR
    lagging: bool = False  # whether results of keys that lag are there


Instants = Mapping[str, tuple[tuple[pa.Array, ...], IntArray]]
"""Keys by stream, each with an instant in microseconds."""


@dataclass(frozen=True)
class Solved:
    """What an update led to."""

    changes: Changes
    solved: int  # keys that were solved again, over all scans
    fresh: Relation  # result segments that were computed
    evaluation: FragmentEvaluation | None = (
        None  # of the whole plan over the changed keys, where that was all there was to do
    )

    @property
    def results(self) -> int:
        """How many result segments were computed."""
        return len(self.fresh)


@dataclass(frozen=True)
class ContinuousQuery:
    """A bound query over streams with these columns. Immutable; the state is passed in and out."""

    query: Query
    columns: Mapping[str, Columns]
    plan: Node = field(init=False)

    def __post_init__(self) -> None:
        # One way round would not do: scans are of changed and unchanged keys, and either may have the smaller key.
        object.__setattr__(self, "plan", optimise(self.query.plan, mirror=False))

    @property
    def radius(self) -> int:
        """How far back, in microseconds, a result can depend on its inputs: all windows down the longest path."""
        return _radius(self.plan)

    @property
    def output(self) -> Columns:
        """The columns of results."""
        return self.query.output(self.plan.columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns of changes."""
        return change_schema(self.output.segment_schema())

    def start(self) -> ContinuousQueryState:
        """Nothing known yet."""
        return ContinuousQueryState(
            {stream: Relation.empty(columns) for stream, columns in self.columns.items()},
            Relation.empty(self.plan.columns),
        )

    def update(
        self, state: ContinuousQueryState, updates: Mapping[str, Relation]
    ) -> tuple[ContinuousQueryState, Solved]:
        """Take new segments in, by stream; what they change."""
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
        """The results after updates, each key's from its own first one on; nothing is said of what is no longer held."""
        starts = {stream: _starts(one) for stream, one in updates.items()}
        if not self.treats_keys_apart:  # since when keys were unknown that are known again
            for stream, (keys, at) in starts.items():
                before = ends_known(state.streams[stream])
                starts[stream] = keys, np.minimum(at, _known(keys, before, FAR, len(at)))
        if not (self.treats_keys_apart and state.lagging):
            starts = {
                stream: (keys, np.maximum(at, state.watermark)) for stream, (keys, at) in starts.items()
            }
        since = min(int(at.min()) for _, at in starts.values())
        named = {stream: one.without_empty_groups().keys for stream, one in updates.items()}
        return self._solved(results, streams, changed, (since, FAR), named, starts)

    def revise(
        self, state: ContinuousQueryState, revised: Mapping[str, KeyRevision], updates: Mapping[str, Relation]
    ) -> tuple[ContinuousQueryState, Solved]:
        """Take in corrected segments of some keys, and new ones of others; what that changes of the results still held.

        Only results of corrected keys are solved again, from the first difference on until windows have passed the last.
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
        until = min(last, FAR - self.radius - GRACE) + self.radius + GRACE
        marks = {stream: _among(streams[stream], one) for stream, one in keys.items()}
        results, solved = self._solved(state.results, streams, marks, (since, max(since, until)), keys)
        if some:
            # All segments are as they are at the end: what was solved above is not solved into something else.
            results, more = self._updated(state, results, streams, changed, some)
            both = Changes(pa.concat_tables([solved.changes.table, more.changes.table]))
            fresh = Relation.concat([solved.fresh, more.fresh])
            solved = Solved(both, solved.solved + more.solved, fresh)
        return replace(state, streams=streams, results=results), replace(solved, evaluation=None)

    def _solved(
        self,
        results: Relation,
        streams: Mapping[str, Relation],
        changed: Mapping[str, BoolArray],
        span: tuple[int, int],
        keys: Mapping[str, tuple[pa.Array, ...]] | None = None,
        starts: Instants | None = None,
    ) -> tuple[Relation, Solved]:
        """The results with those of a span of time that depend on changed keys solved again, and what that changes.

        ``keys`` are the changed ones where some may have no segments left; ``starts`` says from when on each has changed.
        """
        since, until = span
        new, count, evaluation = self.solve(streams, changed, since, until=until)
        if keys is None:
            keys = {stream: _chosen(streams[stream], marks) for stream, marks in changed.items()}
        touched = self._touched(results, new, keys)
        held = results.select_groups(np.flatnonzero(touched))
        old_from, new_from = (self._firsts(one, starts or {}, since, since) for one in (held, new))
        new = within_each(new, new_from, np.full(new.groups, until))
        before = within_each(held, old_from, np.full(held.groups, until))
        changes = difference(selected(before, self.output), selected(new, self.output))
        stays = [
            results.select_groups(np.flatnonzero(~touched)),
            within_each(held, np.full(held.groups, -FAR), old_from),
            *([clip(held, until, FAR)] if until < FAR else []),
        ]
        return Relation.concat([*stays, new]).merged(), Solved(changes, count, new, evaluation)

    def advance(
        self, state: ContinuousQueryState, watermark: int, lagging: Instants | None = None
    ) -> ContinuousQueryState:
        """Nothing before the watermark comes any more: forget what no result from it on depends on.

        ``lagging``: the keys whose newest tuple lies before it, and when that was. The next one of such a key, which is in order,
        may tell that the truth left the model right after that: from there on its results, and what they depend on, are kept.
        Where keys meet, so is what a key that is not known yet may meet: validators take it as far back as windows reach.
        """
        if watermark <= state.watermark:
            return state
        some = {stream: one for stream, one in (lagging or {}).items() if len(one[1])}
        first = min([watermark - self.radius - 2 * GRACE, *(int(last.min()) for _, last in some.values())])
        alone = self.alone
        streams = {}
        for stream, relation in state.streams.items():
            floor = np.full(relation.groups, watermark if alone else first)
            if alone and stream in some:
                floor = _known(relation.keys, some[stream], watermark, relation.groups)
            streams[stream] = _ending_after(
                relation, floor - self.radius - GRACE, newest=not self.treats_keys_apart
            )
        results = _ending_after(state.results, self._firsts(state.results, some, watermark, first))
        reached = watermark if self.treats_keys_apart else max(first, state.watermark)
        return ContinuousQueryState(streams, results, reached, lagging is not None)

    def of_keys(self, relation: Relation, updates: Relation) -> Relation:
        """The segments of a stream of those keys only that updates are of."""
        return relation.select_groups(np.flatnonzero(in_other(relation, updates)))

    def recent(self, relation: Relation, instant: int) -> Relation:
        """What results from an instant on depend on."""
        return clip(relation, instant - self.radius - GRACE, FAR).without_empty_groups()

    # -- solving again --------------------------------------------------------------------------------------

    def solve(
        self,
        streams: Mapping[str, Relation],
        changed: Mapping[str, BoolArray],
        since: int,
        home: Homes | None = None,
        *,
        until: int = FAR,
    ) -> tuple[Relation, int, FragmentEvaluation | None]:
        """The results from ``since`` on that depend on what changed; how many keys were solved for them, and how if at once.

        ``home`` tells which pairs of a pair join are solved here; without it, all.
        """
        recent = {
            stream: _present(clip(relation, since - self.radius - GRACE, until))
            for stream, relation in streams.items()
        }
        marks = {stream: _marked(recent[stream], streams[stream], changed.get(stream)) for stream in recent}
        leaves = tuple(dict.fromkeys(scans(self.plan)))
        if not self.treats_keys_apart:
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
    def treats_keys_apart(self) -> bool:
        """Whether no result depends on keys other than those it names."""
        return not any(isinstance(node, (Across, Union)) for node in walk(self.plan))

    @property
    def alone(self) -> bool:
        """Whether every result depends on one key of one scan."""
        return self.treats_keys_apart and len(dict.fromkeys(scans(self.plan))) == 1

    def _touched(
        self, results: Relation, new: Relation, keys: Mapping[str, tuple[pa.Array, ...]]
    ) -> BoolArray:
        """Which groups of the old results are solved again: all, or those with a changed key of a stream among their keys."""
        if not self.treats_keys_apart or not results.groups:
            return np.ones(results.groups, bool)
        touched = in_other(results, new)
        for stream, changed in keys.items():
            for leaf in scans(self.plan):
                if leaf.stream == stream:
                    touched |= self._has_key(results, leaf, changed)
        return touched

    def _has_key(self, results: Relation, leaf: Scan, keys: tuple[pa.Array, ...]) -> BoolArray:
        """Result groups whose key columns that came from this scan name one of its keys."""
        columns = self._keys_of(results, leaf)
        return np.ones(results.groups, bool) if columns is None else keys_in(columns, keys)

    def _keys_of(self, results: Relation, leaf: Scan) -> tuple[pa.Array, ...] | None:
        """The key columns of results that came from a scan; None where not all of them are there."""
        plain = self.columns[leaf.stream].key_names
        names = [followed(self.plan, f"{leaf.alias}.{name}") for name in plain]
        own = results.columns.key_names
        if not names or any(name is None or name not in own for name in names):
            return None
        return tuple(results.keys[own.index(name)] for name in names if name is not None)

    def _firsts(self, results: Relation, instants: Instants, other: int, unknown: int) -> IntArray:
        """Per group of results the first of the instants of its keys: ``other`` where none has one, ``unknown`` where the group
        does not tell which keys are behind it."""
        if not self.treats_keys_apart:
            return np.full(results.groups, unknown)
        found = np.full(results.groups, FAR)
        for leaf in dict.fromkeys(scans(self.plan)):
            if leaf.stream in instants:
                columns = self._keys_of(results, leaf)
                one = np.full(results.groups, unknown)
                if columns is not None:
                    one = _known(columns, instants[leaf.stream], FAR, results.groups)
                found = np.minimum(found, one)
        return np.where(found == FAR, other, found)


def _radius(node: Node) -> int:
    own = node.size if isinstance(node, Window) and isinstance(node.size, int) else 0
    return own + max((_radius(one) for one in node.inputs), default=0)


def _starts(updates: Relation) -> tuple[tuple[pa.Array, ...], IntArray]:
    """The keys of updates, and when the first of each begins."""
    some = updates.without_empty_groups()
    return some.keys, np.minimum.reduceat(begins(some), some.offsets[:-1])


def _known(
    keys: tuple[pa.Array, ...], instants: tuple[tuple[pa.Array, ...], IntArray], other: int, n: int
) -> IntArray:
    """The instant that is known of each of ``n`` keys, ``other`` where none is."""
    place = positions(keys, instants[0], n, len(instants[1]))
    return np.append(instants[1], other)[place]


def _ending_after(relation: Relation, instants: IntArray, *, newest: bool = False) -> Relation:
    """The rows that end at an instant or later, which each group has its own of; with ``newest`` also the last of each group,
    which tells from when on its key is unknown, unless that is over."""
    over = is_over(relation)
    stays = np.where(over, begins(relation), ends(relation)) >= instants[relation.group]
    if newest and len(relation):
        last = relation.without_empty_groups().offsets[1:] - 1
        stays[last[~over[last]]] = True
    return relation.take(np.flatnonzero(stays)).without_empty_groups()


def _present(relation: Relation) -> Relation:
    """Without rows of times in which a key is unknown or over."""
    absent = relation.certainty == ABSENT
    return relation.take(np.flatnonzero(~absent)).without_empty_groups() if absent.any() else relation


def _marked(recent: Relation, whole: Relation, marks: BoolArray | None) -> BoolArray:
    """Marks of a stream's keys, for those that have something recent."""
    if marks is None:
        return np.zeros(recent.groups, bool)
    return in_other(recent, whole.select_groups(np.flatnonzero(marks)))


def _chosen(relation: Relation, marks: BoolArray) -> tuple[pa.Array, ...]:
    """The keys that are marked."""
    mask = pa.array(marks)
    return tuple(column.filter(mask) for column in relation.keys)


def _among(relation: Relation, keys: tuple[pa.Array, ...]) -> BoolArray:
    """Which groups have one of these keys."""
    return keys_in(relation.keys, keys) if relation.keys else np.ones(relation.groups, bool)


def selected(relation: Relation, columns: Columns) -> Relation:
    """With those of its keys that ``columns`` has."""
    names = relation.columns.key_names
    keys = tuple(relation.keys[names.index(name)] for name in columns.key_names)
    return replace(relation, columns=columns, keys=keys)

"""A standing query: it keeps the current models of its streams, and when one changes solves again what depends on it.

State is explicit: the segments that still matter of every stream, and the results they gave. An update (semantics 1.4) changes
results only from its start on. So what is solved again is the plan over the keys that changed, from as far back as windows reach;
the results are compared with those given before, and only the differences are emitted (:mod:`pulse.operators.difference`)::

    updates ──settle──> segments of the streams ──plan, on what changed──> new results ──difference──> +I  -U +U  -D

A plan that treats keys apart (no aggregate across keys) is evaluated once for each of its scans: that scan over the changed
keys, scans before it over the unchanged, scans after it over all; every combination with a changed key is met exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray
from pulse.core.certainty import LIKELY
from pulse.core.columns import Columns
from pulse.operators.at_rest import begins, ending_after, in_other, listed, settled
from pulse.operators.difference import Changes, change_schema, difference
from pulse.operators.grid import within
from pulse.operators.relation import Relation
from pulse.plan.nodes import Across, Node, Scan, Union, Window, scans, walk
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.evaluate import Evaluation, Homes
from pulse.runtime.scan import as_scanned
from pulse.validation.replay import Revised, replaced

FAR = 1 << 62
GRACE = 1_000_000  # microseconds that are kept beyond what windows reach, against rounding at their ends


@dataclass(frozen=True)
class StandingState:
    """``streams``: the segments at rest that still matter, by plain names. ``results``: what holds now, from the watermark on."""

    streams: Mapping[str, Relation]
    results: Relation
    watermark: int = -FAR


@dataclass(frozen=True)
class Solved:
    """What an update led to."""

    changes: Changes
    solved: int  # keys that were solved again, over all scans
    fresh: Relation  # result segments that were computed
    evaluation: Evaluation | None = (
        None  # of the whole plan over the changed keys, where that was all there was to do
    )

    @property
    def results(self) -> int:
        """How many result segments were computed."""
        return len(self.fresh)


@dataclass(frozen=True)
class Standing:
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

    def start(self) -> StandingState:
        """Nothing known yet."""
        return StandingState(
            {stream: Relation.empty(columns) for stream, columns in self.columns.items()},
            Relation.empty(self.plan.columns),
        )

    def update(self, state: StandingState, updates: Mapping[str, Relation]) -> tuple[StandingState, Solved]:
        """Take new segments in, by stream; what they change."""
        some = {stream: one for stream, one in updates.items() if len(one)}
        if not some:
            return state, Solved(Changes(self.schema.empty_table()), 0, Relation.empty(self.plan.columns))
        since = min(_first_instant(one) for one in some.values())
        streams = dict(state.streams)
        changed: dict[str, BoolArray] = {}
        for stream, one in some.items():
            streams[stream], changed[stream] = settled(streams[stream], one)
        results, solved = self._solved(state.results, streams, changed, (since, FAR))
        return StandingState(streams, results, state.watermark), solved

    def revise(
        self, state: StandingState, revised: Mapping[str, Revised], updates: Mapping[str, Relation]
    ) -> tuple[StandingState, Solved]:
        """Take in corrected segments of some keys, and new ones of others; what that changes of the results still held.

        Only results of corrected keys are solved again, from the first difference on until windows have passed the last.
        """
        streams, keys, changed = dict(state.streams), {}, {}
        for stream, one in revised.items():
            streams[stream] = replaced(streams[stream], one.keys, one.start, one.segments)
            keys[stream] = one.keys
        some = {stream: one for stream, one in updates.items() if len(one)}
        for stream, new in some.items():
            streams[stream], changed[stream] = settled(streams[stream], new)
        since = max(min(int(one.since.min()) for one in revised.values()), state.watermark)
        last = max(int(one.until.max()) for one in revised.values())
        until = min(last, FAR - self.radius - GRACE) + self.radius + GRACE
        marks = {stream: _among(streams[stream], one) for stream, one in keys.items()}
        results, solved = self._solved(state.results, streams, marks, (since, max(since, until)), keys)
        if some:
            # All segments are as they are at the end: what was solved above is not solved into something else.
            first = min(_first_instant(one) for one in some.values())
            results, more = self._solved(results, streams, changed, (first, FAR))
            both = Changes(pa.concat_tables([solved.changes.table, more.changes.table]))
            fresh = Relation.concat([solved.fresh, more.fresh])
            solved = Solved(both, solved.solved + more.solved, fresh)
        return StandingState(streams, results, state.watermark), replace(solved, evaluation=None)

    def _solved(
        self,
        results: Relation,
        streams: Mapping[str, Relation],
        changed: Mapping[str, BoolArray],
        span: tuple[int, int],
        keys: Mapping[str, tuple[pa.Array, ...]] | None = None,
    ) -> tuple[Relation, Solved]:
        """The results with those of a span of time that depend on changed keys solved again, and what that changes.

        ``keys`` are the changed ones where some may have no segments left.
        """
        since, until = span
        new, count, evaluation = self.solve(streams, changed, since, until=until)
        if keys is None:
            keys = {stream: _chosen(streams[stream], marks) for stream, marks in changed.items()}
        touched = self._touched(results, new, keys)
        before = within(results.select_groups(np.flatnonzero(touched)), since, until)
        changes = difference(selected(before, self.output), selected(new, self.output))
        kept = Relation.concat([_except(results, touched, since, until), new]).merged()
        return kept, Solved(changes, count, new, evaluation)

    def advance(self, state: StandingState, watermark: int) -> StandingState:
        """Nothing before the watermark comes any more: forget what no result from it on depends on."""
        if watermark <= state.watermark:
            return state
        oldest = watermark - self.radius - GRACE
        streams = {
            stream: ending_after(relation, oldest).without_empty_groups()
            for stream, relation in state.streams.items()
        }
        results = ending_after(state.results, watermark).without_empty_groups()
        return StandingState(streams, results, watermark)

    def of_keys(self, relation: Relation, updates: Relation) -> Relation:
        """The segments of a stream of those keys only that updates are of."""
        return relation.select_groups(np.flatnonzero(in_other(relation, updates)))

    def recent(self, relation: Relation, instant: int) -> Relation:
        """What results from an instant on depend on."""
        return within(relation, instant - self.radius - GRACE, FAR).without_empty_groups()

    # -- solving again --------------------------------------------------------------------------------------

    def solve(
        self,
        streams: Mapping[str, Relation],
        changed: Mapping[str, BoolArray],
        since: int,
        home: Homes | None = None,
        *,
        until: int = FAR,
    ) -> tuple[Relation, int, Evaluation | None]:
        """The results from ``since`` on that depend on what changed; how many keys were solved for them, and how if at once.

        ``home`` tells which pairs of a pair join are solved here; without it, all.
        """
        recent = {
            stream: within(relation, since - self.radius - GRACE, until)
            for stream, relation in streams.items()
        }
        marks = {stream: _marked(recent[stream], streams[stream], changed.get(stream)) for stream in recent}
        leaves = tuple(dict.fromkeys(scans(self.plan)))
        if not self.treats_keys_apart:
            inputs: dict[Node, Relation] = {leaf: as_scanned(recent[leaf.stream], leaf) for leaf in leaves}
            found, evaluation = self._evaluated(inputs, home)
            return within(found, since, until), sum(one.groups for one in inputs.values()), evaluation
        parts, solved = [], 0
        whole: Evaluation | None = None
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
            parts.append(within(found, since, until))
            whole = evaluation if len(leaves) == 1 else None
        return Relation.concat(parts or [Relation.empty(self.plan.columns)]), solved, whole

    def _evaluated(self, inputs: Mapping[Node, Relation], home: Homes | None) -> tuple[Relation, Evaluation]:
        evaluation = Evaluation(inputs, possible=self.query.possible, home=home)
        found = evaluation.segments(self.plan)
        if not self.query.possible:
            found = found.take(np.flatnonzero(found.certainty >= LIKELY))
        return found.without_empty_groups(), evaluation

    @property
    def treats_keys_apart(self) -> bool:
        """Whether no result depends on keys other than those it names."""
        return not any(isinstance(node, (Across, Union)) for node in walk(self.plan))

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
        plain = self.columns[leaf.stream].key_names
        names = [followed(self.plan, f"{leaf.alias}.{name}") for name in plain]
        own = results.columns.key_names
        if not names or any(name is None or name not in own for name in names):
            return np.ones(results.groups, bool)
        columns = tuple(results.keys[own.index(name)] for name in names if name is not None)
        return listed(columns, keys)


def followed(plan: Node, name: str) -> str | None:
    """What the output calls a key column of a scan; None where it is lost."""
    from pulse.core.expression import Column
    from pulse.plan.nodes import Project

    if isinstance(plan, Scan):
        return name if name in plan.columns.key_names else None
    for below in plan.inputs:
        found = followed(below, name)
        if found is None:
            continue
        if isinstance(plan, Project):
            for new, expression in plan.outputs:
                if expression == Column(found):
                    return new
        return found if found in plan.columns.key_names else None
    return None


def _radius(node: Node) -> int:
    own = node.size if isinstance(node, Window) and isinstance(node.size, int) else 0
    return own + max((_radius(one) for one in node.inputs), default=0)


def _first_instant(relation: Relation) -> int:
    return int(begins(relation).min())


def _marked(recent: Relation, whole: Relation, marks: BoolArray | None) -> BoolArray:
    """Marks of a stream's keys, for those that have something recent."""
    if marks is None:
        return np.zeros(recent.groups, bool)
    return in_other(recent, whole.select_groups(np.flatnonzero(marks)))


def _except(results: Relation, touched: BoolArray, since: int, until: int) -> Relation:
    """The results that stay: of untouched keys all, of touched ones what lies before and after."""
    stays = results.select_groups(np.flatnonzero(~touched))
    rest = results.select_groups(np.flatnonzero(touched))
    after = [within(rest, until, FAR)] if until < FAR else []
    return Relation.concat([stays, within(rest, -FAR, since), *after])


def _chosen(relation: Relation, marks: BoolArray) -> tuple[pa.Array, ...]:
    """The keys that are marked."""
    mask = pa.array(marks)
    return tuple(column.filter(mask) for column in relation.keys)


def _among(relation: Relation, keys: tuple[pa.Array, ...]) -> BoolArray:
    """Which groups have one of these keys."""
    return listed(relation.keys, keys) if relation.keys else np.ones(relation.groups, bool)


def selected(relation: Relation, columns: Columns) -> Relation:
    """With those of its keys that ``columns`` has."""
    names = relation.columns.key_names
    keys = tuple(relation.keys[names.index(name)] for name in columns.key_names)
    return replace(relation, columns=columns, keys=keys)

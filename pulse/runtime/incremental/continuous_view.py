"""Run a continuous query: hold the models of its streams and its results, and solve again what a change of models affects.

::

    updates ──replace keys──> arrangements of the streams ──plan, on changed keys──> new results ──difference──> +I  -U +U  -D
                                                                                         └──> arrangement of the results

An update (semantics 1.4) changes results only from its start on. So the plan is evaluated for the changed keys, from as far back
as windows reach, and compared with the stored results. A plan that is separable by key (no aggregate across keys) is evaluated
once per scan: that scan over the changed keys, scans before it over the unchanged, scans after it over all; so every combination
with a changed key is evaluated exactly once.

Changes are pending until they are committed: a batch whose bounds were too loose is solved again from the state before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.certainty import LIKELY
from pulse.core.time import EARLIEST, LATEST
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import (
    apply_updates,
    clip,
    clip_groups,
    first_begins,
    keys_in,
    present,
    replaced,
)
from pulse.operators.incremental.arrangement import ConnectionPoint
from pulse.operators.incremental.key_arrangement import KeyArrangement
from pulse.operators.inversion.needs import positions
from pulse.operators.node import Node
from pulse.operators.output.diff import Changes, difference
from pulse.runtime.execution.evaluator import FragmentEvaluation, Homes
from pulse.runtime.execution.scan import as_scanned
from pulse.runtime.incremental.continuous_query import (
    RETENTION_MARGIN,
    ContinuousQuery,
    ContinuousQueryState,
    Instants,
    Keys,
    selected,
)
from pulse.runtime.incremental.view import View
from pulse.runtime.predict.unknown_keys import Ends, bounded_only, ends_known, ends_of, without_bound
from pulse.validation.revisions.replay import KeyRevision


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


class ContinuousView(View):
    """A running continuous query, from saved state if given."""

    def __init__(self, query: ContinuousQuery, state: ContinuousQueryState | None = None) -> None:
        super().__init__(query)
        state = state or query.empty_state
        self.query, self.watermark, self.lagging = query, state.watermark, state.lagging
        self._streams = {stream: KeyArrangement(state.streams[stream]) for stream in query.columns}
        self._results = KeyArrangement(state.results)

    # -- state ----------------------------------------------------------------------------------------------

    @property
    def streams(self) -> dict[str, Relation]:
        """Return the live segments of every stream."""
        return {stream: one.relation for stream, one in self._streams.items()}

    @property
    def results(self) -> Relation:
        """Return the current results."""
        return self._results.relation

    @property
    def state(self) -> ContinuousQueryState:
        """Return the state as data."""
        return ContinuousQueryState(self.streams, self.results, self.watermark, self.lagging)

    def segments(self, stream: str, keys: Keys | None = None) -> Relation:
        """Return the live segments of a stream; of some keys, if given."""
        point = self._streams[stream]
        return point.relation if keys is None else point.of_keys(keys, _count(keys))

    @property
    def points(self) -> list[ConnectionPoint]:
        return [*self._streams.values(), self._results]

    # -- changes --------------------------------------------------------------------------------------------

    def update(
        self, updates: Mapping[str, Relation], revised: Mapping[str, KeyRevision] | None = None
    ) -> Solved:
        """Apply new segments, by stream, and corrected segments of some keys; the changes of results are pending.

        Only results of corrected keys are solved again from the first difference until windows have passed the last.
        """
        self.drop()
        query, corrected = self.query, revised or {}
        some = {stream: one for stream, one in updates.items() if len(one)}
        starts = {stream: self._starts(stream, one) for stream, one in some.items()}
        for stream, one in corrected.items():
            held = self.segments(stream, one.keys)
            self.replace_keys(stream, one.keys, replaced(held, one.keys, one.start, one.segments, voids=True))
        for stream, new in some.items():
            held = self.segments(stream, new.keys)
            self.replace_keys(stream, new.keys, apply_updates(held, new, voids=True)[0])
        parts = []
        if corrected:
            since = max(min(int(one.since.min()) for one in corrected.values()), self.watermark)
            last = max(int(one.until.max()) for one in corrected.values())
            until = min(last, LATEST - query.radius - RETENTION_MARGIN) + query.radius + RETENTION_MARGIN
            spans = {stream: (one.keys, np.full_like(one.since, since)) for stream, one in corrected.items()}
            parts.append(self.solve(spans, max(since, until)))
        if some:
            # All segments are already final, so this does not change the results solved above.
            parts.append(self.solve(starts))
        if some and not corrected:
            return parts[0]
        changes = pa.concat_tables([self.schema.empty_table(), *(one.changes.table for one in parts)])
        fresh = Relation.concat([Relation.empty(query.plan.columns), *(one.fresh for one in parts)])
        return Solved(Changes(changes), sum(one.solved for one in parts), fresh)

    def _starts(self, stream: str, updates: Relation) -> tuple[Keys, IntArray]:
        """Return the updated keys of a stream, and from when on the results of each change."""
        keys, at = first_begins(updates)
        if not self.query.separates_keys:  # keys that are known again changed from when they became unknown
            known, ends = ends_known(self.segments(stream, keys))
            at = np.minimum(at, np.append(ends, LATEST)[positions(keys, known, len(at), len(ends))])
        if not (self.query.separates_keys and self.lagging):
            at = np.maximum(at, self.watermark)
        return keys, at

    def replace_keys(self, stream: str, keys: Keys, segments: Relation) -> None:
        """Replace the segments of keys of a stream."""
        point = self._streams[stream]
        point.replace_keys(point.codes(keys, _count(keys), add=True), segments)

    def solve(self, starts: Instants, until: int = LATEST, home: Homes | None = None) -> Solved:
        """Solve again the results that depend on changed keys, of which some may have no segments left; pending.

        ``starts``: the changed keys by stream, and from when on each has changed; ``until``: the end of all changes. ``home``
        selects the pairs of a pair join to solve here; None: all.
        """
        since = min((int(at.min()) for _, at in starts.values() if len(at)), default=until)
        new, count, evaluation = self._evaluated(starts, since, until, home)
        results, output = self._results, self.output
        fresh = results.codes(new.keys, new.groups, add=True)
        first = self._firsts(starts, since)
        code = np.union1d(np.flatnonzero(first < LATEST), fresh)
        first = np.where(first < LATEST, first, since)
        held = results.of_codes(code)
        new = clip_groups(new, first[fresh], np.full(new.groups, until))
        before = clip_groups(held, first[code], np.full(held.groups, until))
        changes = difference(selected(before, output), selected(new, output))
        stays = [
            clip_groups(held, np.full(held.groups, EARLIEST), first[code]),
            *([clip(held, until, LATEST)] if until < LATEST else []),
        ]
        results.replace_keys(code, Relation.concat([*stays, new]).merged())
        return Solved(changes, count, new, evaluation)

    def advance(self, watermark: int, lagging: Instants | None = None) -> None:
        """Advance the watermark, behind which nothing more arrives: drop segments that no result from it on depends on.

        ``lagging``: the keys whose newest tuple lies before it, and when that was. The next tuple of such a key, in order, may
        show that the truth left the model right after that: results from there on, and their inputs, are kept. In plans across
        keys, so are segments that a yet unknown key may combine with: validators take it as far back as windows reach.
        """
        if watermark <= self.watermark:
            return
        query = self.query
        some = {stream: one for stream, one in (lagging or {}).items() if len(one[1])}
        first = min(
            [watermark - query.radius - 2 * RETENTION_MARGIN, *(int(at.min()) for _, at in some.values())]
        )
        for stream, point in self._streams.items():
            floor = np.full(point.groups, watermark if query.alone else first)
            if query.alone and stream in some:
                keys, at = some[stream]
                code = point.codes(keys, len(at))
                floor[code[code >= 0]] = at[code >= 0]
            point.drop_before(floor - query.radius - RETENTION_MARGIN, newest=not query.separates_keys)
        self._results.drop_before(np.minimum(self._firsts(some, first), watermark))
        self.watermark = watermark if query.separates_keys else max(first, self.watermark)
        self.lagging = lagging is not None

    # -- solving again --------------------------------------------------------------------------------------

    def _firsts(self, given: Instants, hidden: int) -> IntArray:
        """Return for each code of results the first instant of its keys, :data:`LATEST` where none has one.

        ``hidden``: that of all results where the keys they depend on are not among their own.
        """
        results, query = self._results, self.query
        found = np.full(results.groups, LATEST)
        for leaf in query.leaves:
            places = query.key_places[leaf]
            if not query.separates_keys or (leaf.stream in given and places is None):
                return np.full(results.groups, hidden)
            if places is None or leaf.stream not in given:
                continue
            keys, at = given[leaf.stream]
            if places == tuple(range(len(results.keys))):
                code = results.codes(keys, len(at))
                np.minimum.at(found, code[code >= 0], at[code >= 0])
            else:
                own = tuple(results.keys[place] for place in places)
                of = positions(own, keys, results.groups, len(at))
                found = np.minimum(found, np.append(at, LATEST)[of])
        return found

    def _evaluated(
        self, starts: Instants, since: int, until: int, home: Homes | None
    ) -> tuple[Relation, int, FragmentEvaluation | None]:
        """Evaluate the results in a time span that depend on changed keys.

        Returns the results, the number of keys solved, and the evaluation if there was a single one.
        """
        query = self.query
        if not query.separates_keys:
            streams = self.streams
            inputs: dict[Node, Relation] = {
                leaf: as_scanned(self._recent(streams[leaf.stream], since, until), leaf)
                for leaf in query.leaves
            }
            unknown: dict[Node, Ends] = {leaf: ends_of(streams[leaf.stream], leaf) for leaf in query.leaves}
            found, evaluation = self._run(inputs, home, unknown)
            return clip(found, since, until), sum(one.groups for one in inputs.values()), evaluation
        changed = {
            stream: self._recent(self.segments(stream, some), since, until)
            for stream, (some, _) in starts.items()
        }
        parts, solved = [Relation.empty(query.plan.columns)], 0
        whole: FragmentEvaluation | None = None
        for place, leaf in enumerate(query.leaves):
            if leaf.stream not in changed or not changed[leaf.stream].groups:
                continue
            inputs = {leaf: as_scanned(changed[leaf.stream], leaf)}
            for other_place, other in enumerate(query.leaves):
                if other_place != place:
                    rest = self._recent(self.segments(other.stream), since, until)
                    if other_place < place and other.stream in starts:
                        among = keys_in(rest.keys, starts[other.stream][0])
                        rest = rest.select_groups(np.flatnonzero(~among))
                    inputs[other] = as_scanned(rest, other)
            solved += inputs[leaf].groups
            found, evaluation = self._run(inputs, home)
            parts.append(clip(found, since, until))
            whole = evaluation if query.alone else None
        return Relation.concat(parts), solved, whole

    def _recent(self, relation: Relation, since: int, until: int) -> Relation:
        return present(clip(relation, since - self.query.radius - RETENTION_MARGIN, until))

    def _run(
        self, inputs: Mapping[Node, Relation], home: Homes | None, unknown: Mapping[Node, Ends] | None = None
    ) -> tuple[Relation, FragmentEvaluation]:
        query = self.query
        evaluation = FragmentEvaluation(
            inputs,
            possible=query.query.possible,
            home=home,
            unknown=unknown,
            bounded_only=unknown is not None and bounded_only(query.plan),
        )
        found = evaluation.segments(query.plan)
        if not query.query.possible:
            found = found.take(np.flatnonzero(found.certainty >= LIKELY))
        return without_bound(found.without_empty_groups()), evaluation


def _count(keys: Keys) -> int:
    return len(keys[0]) if keys else 1

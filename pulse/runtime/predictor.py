"""Predictive processing of one query (semantics 6): validators, the standing query above them, and bounds that flow back.

::

    tuples ──validator──> updates ──standing query──> changes of results
                ^                        |
                └── allotted bounds <── inverter

Everything that happens depends on the tuples and the order in which they are pushed, on no clock. The same object runs in
this process and inside Spark's workers; its state pickles at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray
from pulse.core.bounds import ErrorBound
from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.core.expression import Column, Expression, transform
from pulse.core.schema import StreamSchema
from pulse.operators.at_rest import begins
from pulse.operators.predict import PredictSpec
from pulse.operators.relation import Relation
from pulse.plan import nodes
from pulse.plan.nodes import Node, Scan, scans
from pulse.plan.query import Query
from pulse.runtime.evaluate import Evaluation
from pulse.runtime.predictive_accents import Hears
from pulse.runtime.predictive_restating import Parties, after, parties, restated, together
from pulse.runtime.predictive_revisions import (
    forget,
    histories_of,
    kept_behind,
    resolved,
    solve,
    take,
    updates_of,
)
from pulse.runtime.scan import as_scanned
from pulse.runtime.standing import Solved, Standing, StandingState
from pulse.stream.state import Mode
from pulse.validation.allotment import Allotment
from pulse.validation.history import History, Retention, Taken
from pulse.validation.inverter import absolute_bounds, invert
from pulse.validation.restating import loose
from pulse.validation.restlessness import expected_violations, pooled
from pulse.validation.validator import Counts, Validator, ValidatorState

DEFAULT_SPLIT = "restless"
Tuples = Mapping[str, pa.Table | pa.RecordBatch]


class PredictorError(PulseError, ValueError):
    """A query that cannot be asked of the future."""


@dataclass(frozen=True)
class Predictor:
    """A bound query over streams of tuples. ``specs`` says per stream how tuples become models that reach ahead.

    Made by :meth:`of`, which moves MODEL clauses on attributes that tuples carry from the query to the specs: there they are
    validated. ``split`` shares out the bounds that the query states (ERROR WITHIN); without any, the specs' own hold.
    """

    standing: Standing
    specs: Mapping[str, PredictSpec]
    split: str = DEFAULT_SPLIT
    retentions: Mapping[str, Retention] = field(default_factory=dict)  # of streams that may be revised
    hears: Mapping[str, Hears] = field(default_factory=dict)  # how accents come, of streams that have any
    mode: Mode = "accumulate"  # whether operators may hold accents, or the job ends where they would

    @classmethod
    def of(
        cls,
        query: Query,
        specs: Mapping[str, PredictSpec],
        *,
        split: str = DEFAULT_SPLIT,
        retentions: Mapping[str, Retention] | None = None,
    ) -> Predictor:
        """From a query as it was parsed and bound, and specs without formulas."""
        used = {scan.stream for scan in scans(query.plan)}
        missing = sorted(used - set(specs))
        if missing:
            raise PredictorError(
                f"predict: nothing is said of the streams {', '.join(missing)}; add them to the job"
            )
        formulas = {stream: _formulas(query.plan, stream, specs[stream].schema) for stream in used}
        plan = nodes.transform(query.plan, lambda node: _without_formulas(node, formulas))
        chosen = {
            stream: replace(
                specs[stream],
                models=tuple(formulas[stream].items()) or specs[stream].models,
                bounds=_first_bounds(specs[stream], query),
            )
            for stream in sorted(used)
        }
        columns = {stream: Columns.of(spec.schema) for stream, spec in chosen.items()}
        standing = Standing(replace(query, plan=plan), columns)
        return cls(standing, chosen, split, resolved(retentions or {}, chosen, standing.radius))

    @property
    def bounds(self) -> dict[str | None, ErrorBound]:
        """The bounds that the query states on its output."""
        return {name: bound for name, bound in self.standing.query.errors if isinstance(bound, ErrorBound)}


@dataclass
class Tally:
    """What a prediction has done so far."""

    tuples: int = 0
    validated: int = 0
    violations: int = 0
    updates: int = 0
    solves: int = 0
    results: int = 0
    changes: int = 0
    aside: int = 0
    beyond: int = 0  # results whose stated error is above the query's own bound
    revisions: int = 0  # of tuples that had come before, late ones among them
    absorbed: int = 0  # of these, those that moved nothing
    accents: int = 0  # that were taken

    def add(self, other: Tally) -> None:
        """Add another's."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(frozen=True)
class Emission:
    """What tuples led to: rows of a changelog of result segments, tuples set aside by stream, and figures."""

    changes: pa.Table
    aside: Mapping[str, pa.Table]
    tally: Tally


@dataclass
class Prediction:
    """A predictor at work. ``now`` is the newest time that was seen."""

    predictor: Predictor
    validators: dict[str, Validator] = field(default_factory=dict)
    state: StandingState | None = None
    allotted: dict[str, Allotment] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    now: int | None = None
    histories: dict[str, History] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.histories = self.histories or histories_of(self.predictor)
        if not self.validators:
            self.validators = {stream: Validator(spec) for stream, spec in self.predictor.specs.items()}
        if self.state is None:
            self.state = self.predictor.standing.start()

    def push(self, tuples: Tuples) -> Emission:
        """Take tuples in, by stream, in the order of their arrival; what they change.

        Where it turns out that the bounds in force were too loose for the results to keep the query's own, because there
        were none yet or values have moved since, models from before are restated and the same tuples validated again,
        against the tighter ones.
        """
        pushed, solved = self._bounded(tuples) if self.predictor.bounds else self._taken(tuples)
        updates = updates_of(pushed)
        counts, aside = Counts(), {}
        for stream, one in pushed.items():
            counts.add(one.counts)
            if one.aside is not None and one.aside.num_rows:
                aside[stream] = one.aside
            if stream in tuples:
                self._note_time(tuples[stream], self.predictor.specs[stream].schema.time)
        tally = Tally(
            tuples=counts.tuples,
            validated=counts.validated,
            violations=counts.violated,
            updates=sum(map(len, updates.values())),
            solves=solved.solved,
            results=solved.results,
            changes=len(solved.changes),
            aside=sum(one.num_rows for one in aside.values()),
            beyond=int(self._beyond(solved.fresh).sum()),
            revisions=sum(one.revisions for one in pushed.values()),
            absorbed=sum(one.absorbed for one in pushed.values()),
        )
        self.tally.add(tally)
        return Emission(solved.changes.table, aside, tally)

    def _taken(
        self, tuples: Tuples, state: StandingState | None = None, first: Mapping[str, Relation] | None = None
    ) -> tuple[dict[str, Taken], Solved]:
        """Validate tuples and solve what they change, in this state of results and after these segments if given."""
        pushed = after(first or {}, take(self.validators, self.histories, tuples))
        before = self.state if state is None else state
        assert before is not None
        self.state, solved = solve(self.predictor.standing, before, pushed)
        return pushed, solved

    def _bounded(self, tuples: Tuples) -> tuple[dict[str, Taken], Solved]:
        """The same, again with the bounds that flow back while these are tighter than what was validated against."""
        standing, state = self.predictor.standing, self.state
        kept = {stream: _copied(one.state) for stream, one in self.validators.items()}
        past = {stream: one.copied() for stream, one in self.histories.items()}
        asked: Parties = {}
        segments: dict[str, Relation] = {}
        for attempt in range(ATTEMPTS):
            pushed, solved = self._taken(tuples, state, segments)
            updates = updates_of(pushed)
            if not any(map(len, updates.values())):
                break
            beyond = self._beyond(solved.fresh)
            if self.allotted and not beyond.any():
                self._flow_back(updates, solved.evaluation)
                break
            # What these tuples must keep depends on all results from the first of them on, what comes on those from now on.
            self._flow_back(updates, solved.evaluation, _oldest(updates))
            asked = together(asked, parties(standing, solved.fresh.take(np.flatnonzero(beyond))))
            again = {stream: self._as_before(stream, one) for stream, one in kept.items()}
            looser = any(self._too_loose(stream, one) for stream, one in updates.items())
            looser |= any(len(loose(again[stream], keys)) > 0 for stream, keys in asked.items())
            if attempt == ATTEMPTS - 1 or not looser:
                self._flow_back(updates, solved.evaluation)
                break
            self.validators |= again
            self.histories |= {stream: one.copied() for stream, one in past.items()}
            segments = restated(self.validators, self.histories, asked)
        return pushed, solved

    def advance(self, watermark: int) -> None:
        """Nothing before the watermark comes any more: free what it keeps."""
        assert self.state is not None
        forget(self.predictor, self.validators, self.histories, watermark)
        oldest = watermark - kept_behind(self.predictor)
        lagging = {stream: one.lagging(oldest) for stream, one in self.validators.items()}
        self.state = self.predictor.standing.advance(self.state, oldest, lagging)

    def results(self) -> pa.Table:
        """What holds now, as far ahead as the models reach."""
        assert self.state is not None
        table = pa.Table.from_batches([self.state.results.to_segments()])
        return table.select(self.predictor.standing.output.segment_schema().names)

    # -- bounds flow back -----------------------------------------------------------------------------------

    def _flow_back(
        self,
        updates: Mapping[str, Relation],
        evaluation: Evaluation | None = None,
        since: int | None = None,
    ) -> None:
        """Allot what the query's bounds leave to the inputs, anew for what changed.

        Where keys are treated apart and one scan is all there is, only the keys that changed are looked at, if given as they
        were just evaluated; else all, from now or from ``since`` on.
        """
        if not self.predictor.bounds:
            return
        assert self.state is not None
        standing = self.predictor.standing
        leaves = tuple(dict.fromkeys(scans(standing.plan)))
        alone = standing.treats_keys_apart and len(leaves) == 1
        if evaluation is None or not alone:
            now = since
            if now is None:
                now = max((_newest(one) for one in self.state.streams.values() if len(one)), default=0)
            inputs: dict[Node, Relation] = {}
            for leaf in leaves:
                relation = self.state.streams[leaf.stream]
                chosen = standing.of_keys(relation, updates[leaf.stream]) if alone else relation
                inputs[leaf] = as_scanned(standing.recent(chosen, now), leaf)
            evaluation = Evaluation(inputs, possible=standing.query.possible)
        found = self._shared_out(evaluation, alone)
        for stream, allotment in found.items():
            before = self.allotted.get(stream)
            whole = allotment if before is None or not alone else _renewed(before, allotment)
            self.allotted[stream] = whole
            self.validators[stream].allot(whole)

    def _shared_out(self, evaluation: Evaluation, alone: bool) -> dict[str, Allotment]:
        """What the split gives. Of ours, where outputs share inputs, the one of three that clearly promises fewest violations.

        Its shares are the best for each output by itself. Where a key takes part in many, only the smallest of its shares counts,
        and what others gave up for it is lost. Then it may be better to tell streams and attributes apart, not keys, or
        nothing at all; and rates are estimates of what comes from what was.
        """
        rates = self._restlessness()
        if self.predictor.split != "restless" or alone:
            return self._inverted(evaluation, self.predictor.split, rates)
        best = self._inverted(evaluation, "equi", rates)
        least = CLEARLY * expected_violations(best, rates)
        for known in (pooled(rates), rates):
            found = self._inverted(evaluation, "restless", known)
            expected = expected_violations(found, rates)
            if expected < least:
                best, least = found, CLEARLY * expected
        return best

    def _inverted(
        self, evaluation: Evaluation, split: str, rates: Mapping[str, Allotment]
    ) -> dict[str, Allotment]:
        return invert(
            self.predictor.standing.plan,
            self.predictor.bounds,
            evaluation.segments,
            split=split,
            restlessness=rates,
        )

    def _beyond(self, results: Relation) -> BoolArray:
        """Which results may be further from the truth than the query asks for, as they state themselves."""
        beyond = np.zeros(len(results), bool)
        for name, bound in self.predictor.bounds.items():
            for one in results.columns.modelled if name is None else (name,):
                allowed = absolute_bounds(results, one, bound)
                # What is relative may become anything next to zero: there no bound but 0 would do.
                beyond |= (results.err[one] > allowed * (1.0 + 1e-9)) & (allowed > 0.0)
        return beyond

    def _too_loose(self, stream: str, updates: Relation) -> bool:
        """Whether models were begun with bounds above those that are allotted now."""
        allotted = self.allotted.get(stream)
        if allotted is None or not len(updates):
            return False
        bounds = allotted.of(updates.keys, updates.groups)
        return any(
            bool((updates.err[name] > values[updates.group] * (1.0 + 1e-9)).any())
            for name, values in bounds.items()
        )

    def _as_before(self, stream: str, state: ValidatorState) -> Validator:
        """A stream's validator as it was before a push, with what is allotted now."""
        made = Validator(self.predictor.specs[stream])
        made.state = _copied(state)
        made.allot(self.allotted[stream])
        if state.allotted is not None:  # a share that has grown may be used once those that shrank are kept
            made.tighten(state.allotted)
        return made

    def _restlessness(self) -> dict[str, Allotment]:
        found = {}
        for stream, validator in self.validators.items():
            rates = validator.restlessness()
            found[stream] = Allotment(stream, validator.keys, rates, dict.fromkeys(rates, 0.0))
        return found

    def _note_time(self, table: pa.Table | pa.RecordBatch, time: str) -> None:
        column = table.column(time)
        newest = pa.compute.max(column)
        if newest.is_valid:
            at = int(newest.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).as_py())
            self.now = at if self.now is None else max(self.now, at)


ATTEMPTS = 3
"""How often the same tuples are validated at most, while bounds turn out to be too loose for what the query asks."""

CLEARLY = 0.8
"""What part of the expected violations unequal shares must come down to, to be taken instead of more equal ones."""

FIRST_SHARE = 0.25
"""Of the query's own bound, what an input is held to before there are models to invert it through."""


def _copied(state: ValidatorState) -> ValidatorState:
    """State that a push does not change."""
    return replace(state, ids=dict(state.ids), whole=state.whole.copy(), real=state.real.copy())


def _newest(relation: Relation) -> int:
    """When the newest segment of a stream began."""
    return int((relation.ref + np.floor(relation.lo * 1e6).astype(np.int64)).max())


def _oldest(updates: Mapping[str, Relation]) -> int:
    """When the first of some updates begins."""
    return min(int(begins(one).min()) for one in updates.values() if len(one))


def _first_bounds(spec: PredictSpec, query: Query) -> tuple[ErrorBound | None, ...]:
    """The stream's own bounds; where it has none, a share of what the query states."""
    stated = [bound for _, bound in query.errors if isinstance(bound, ErrorBound)]
    first = stated[0].scaled(FIRST_SHARE) if stated else None
    if first is None and any(bound is None for bound in spec.bounds):
        open_ = [n for n, bound in zip(spec.schema.modelled_names, spec.bounds, strict=True) if bound is None]
        raise PredictorError(
            f"predict: nothing bounds {', '.join(open_)}; give the stream an error, or end the query with ERROR WITHIN"
        )
    return tuple(first if bound is None else bound for bound in spec.bounds)


def _renewed(before: Allotment, new: Allotment) -> Allotment:
    """The newer bounds for the keys they list, the older ones for the rest; the smaller default."""
    kept = pa.array(~_listed(before.keys, new.keys))
    keys = tuple(
        pa.concat_arrays([a.filter(kept), b.cast(a.type)]) for a, b in zip(before.keys, new.keys, strict=True)
    )
    mask = kept.to_numpy(zero_copy_only=False)
    bounds = {
        name: np.concatenate([before.bounds.get(name, np.full(len(before), np.inf))[mask], values])
        for name, values in new.bounds.items()
    }
    default = {
        name: min(value, new.default.get(name, np.inf))
        for name, value in {**new.default, **before.default}.items()
    }
    return Allotment(new.stream, keys, bounds, default)


def _listed(
    keys: tuple[pa.Array, ...], among: tuple[pa.Array, ...]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    from pulse.core.keys import key_ranks

    if not keys:
        return np.ones(1, bool)
    n, m = len(keys[0]), len(among[0])
    ranks = key_ranks(
        [pa.concat_arrays([a, b.cast(a.type)]) for a, b in zip(keys, among, strict=True)], n + m
    )
    return np.isin(ranks[:n], ranks[n:])


def _formulas(plan: Node, stream: str, schema: StreamSchema) -> dict[str, Expression]:
    """The MODEL clauses on attributes that the stream's tuples carry, over plain names."""
    found: dict[str, Expression] = {}
    for scan in scans(plan):
        if scan.stream != stream:
            continue
        for name, formula in scan.models:
            if name not in schema.modelled_names:
                continue
            plain = _plain(formula, scan.alias)
            if found.setdefault(name, plain) != plain:
                raise PredictorError(
                    f"predict: '{stream}.{name}' has two models, {found[name]} and {plain}; a stream of tuples has one"
                )
    return found


def _plain(formula: Expression, alias: str) -> Expression:
    prefix = f"{alias}."
    return transform(formula, lambda e: Column(e.name.removeprefix(prefix)) if isinstance(e, Column) else e)


def _without_formulas(node: Node, formulas: Mapping[str, Mapping[str, Expression]]) -> Node:
    if not isinstance(node, Scan):
        return node
    moved = formulas.get(node.stream, {})
    return replace(node, models=tuple((name, formula) for name, formula in node.models if name not in moved))

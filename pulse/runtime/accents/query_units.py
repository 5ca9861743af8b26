"""Derive the unit maps of a query's inputs and output from its streams' accents (semantics 8.2-8.5, 8.8).

The driver sends them to workers with the job, so each worker applies all accents, whatever data it reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pulse.core.certainty import ABSENT
from pulse.core.errors import PulseError
from pulse.core.schema import Truth
from pulse.core.segment.order import Ranges, narrow
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.node import Node, walk
from pulse.operators.relational.scan import scans
from pulse.operators.units.apply_maps import Alter, Presence
from pulse.operators.units.to_base_units import UndoneRounding
from pulse.plan.accents.query_effects import Accented, accented
from pulse.store.accent_log import log_from, unknown
from pulse.store.model import Model
from pulse.store.model_ref import ModelRef
from pulse.stream.accents.accents import AccentError
from pulse.stream.accents.admissibility import UnsupportedAccentError
from pulse.stream.accents.log import AccentLog
from pulse.stream.accents.policy import Policy
from pulse.stream.descriptions.description import Domain
from pulse.stream.propagation.receive import AbortedError
from pulse.stream.propagation.state import Mode
from pulse.stream.units.step_maps import Located

AS_OF = " as of "


class QueryAbortedError(AbortedError):
    """The query met an accent after which it cannot continue; ``emitted`` is its answer before that instant, still valid."""

    emitted: Any = None


def aborted(reason: str, emitted: Any) -> QueryAbortedError:
    """The error that ends a query, with the answer so far."""
    error = QueryAbortedError(reason)
    error.emitted = emitted
    return error


@dataclass(frozen=True)
class Evolution:
    """The accent options of a query.

    Parameters
    ----------
    logs : by stream, the log of a model that was fitted without it
    policies : by stream, the policy at accents
    mode : whether operators hold accents whose description their output cannot express (``accumulate``) or abort
    later : whether the logs follow those that the models already hold, to preview their effect
    """

    logs: Mapping[str, AccentLog] = field(default_factory=dict)
    policies: Mapping[str, Policy] = field(default_factory=dict)
    mode: Mode = "accumulate"
    later: bool = False


@dataclass(frozen=True)
class InputUnits:
    """The unit maps applied to a stream's segments on reading; ``name`` identifies them."""

    alters: tuple[Alter, ...] = field(compare=False)
    name: str = ""
    # Where an attribute is absent, even if a model continues across it.
    presence: Presence = field(default=Presence({}), compare=False)
    # The rounding of tuples that the fit converted to base units.
    rounding: UndoneRounding | None = field(default=None, compare=False)

    @property
    def columns(self) -> set[str]:
        """The columns that the descriptions compare."""
        found = {name for alter in self.alters for steps in alter.steps.values() for name in steps.columns}
        found |= {name for one in self.presence.absences.values() for name in one.columns}
        return found if self.rounding is None else found | self.rounding.columns

    def segments(self, relation: Relation) -> Relation:
        """Convert segments to the units that the query is evaluated in."""
        if self.rounding is not None:
            relation = self.rounding.segments(relation)
        relation = self.presence.segments(relation)  # before alterations cut what the fit made
        for alter in self.alters:
            relation = alter.segments(relation)
        return relation


@dataclass(frozen=True)
class OutputUnits:
    """The unit maps applied to an answer. ``end`` is the instant at which the query ends, and ``reason`` why."""

    alter: Alter
    presence: Presence
    end: int | None = None
    reason: str = ""

    def segments(self, relation: Relation) -> Relation:
        """Convert segments to the units in force at each instant, up to the end."""
        relation = self.alter.segments(self.presence.segments(relation))
        if self.end is None:
            return relation
        keep, lo, hi = narrow(Ranges(relation.group, relation.ref, relation.lo, relation.hi), None, self.end)
        rows = keep.nonzero()[0]
        return relation.take(rows, lo=lo[rows], hi=hi[rows])

    def samples(self, samples: Samples) -> Samples:
        """Convert samples likewise."""
        return self._ended(self.alter.samples(self.presence.samples(samples)))

    def on_stretches(self, samples: Samples) -> tuple[Samples, dict[str, Located] | None]:
        """Convert samples likewise; also return the maps left to apply while they become tuples, or None."""
        found = self.alter.on_stretches(samples)
        if found is None:
            return self.samples(samples), None
        return self._ended(self.presence.samples(samples)), found

    def _ended(self, samples: Samples) -> Samples:
        if self.end is None:
            return samples
        late = samples.times >= self.end
        return replace(samples, certainty=np.where(late, np.uint8(ABSENT), samples.certainty))


@dataclass(frozen=True)
class JobAccents:
    """The input units of a plan's streams, by scan name, and its output units. Picklable."""

    input_units: Mapping[str, InputUnits] = field(default_factory=dict)
    output_units: OutputUnits | None = None

    @property
    def ends(self) -> str:
        """The reason why the query ends at an accent; empty if it continues."""
        return "" if self.output_units is None or self.output_units.end is None else self.output_units.reason

    def check_end(self, emitted: Any) -> None:
        """Raise the error of a query that ends at an accent, with the answer so far."""
        if self.ends:
            raise aborted(self.ends, emitted)


NO_ACCENTS = JobAccents()
AS_STORED = Evolution()


def logs_of(plan: Node, paths: Mapping[str, ModelRef], evolution: Evolution) -> dict[str, AccentLog]:
    """The logs of the streams that a plan reads, stored with their models or given."""
    found: dict[str, AccentLog] = {}
    for name in sorted({scan.stream for scan in scans(plan)}):
        stored = paths[name].open().accents
        given = evolution.logs.get(name, evolution.logs.get(name.partition(AS_OF)[0]))
        if stored is not None and given is not None and evolution.later:
            stored = stored + unknown(stored, given)
        elif stored is not None and given is not None:
            raise AccentError(
                f"accents of stream {name}: its model was fitted with {len(stored)} accents and holds them already; "
                "give a log only for a model that was fitted without"
            )
        log = stored if stored is not None else given
        if log is not None:
            found[name] = log
    return found


def follow(
    plan: Node,
    paths: Mapping[str, ModelRef],
    evolution: Evolution,
    *,
    trace: bool = False,
    first: int | None = None,
    logs: Mapping[str, AccentLog] | None = None,
) -> Accented:
    """Propagate the accents of a plan's streams, all or the first ones of each; the plan is not rewritten yet.

    Parameters
    ----------
    plan : the query's plan
    paths : by stream, its model
    evolution : the accent options of the query
    trace : whether to trace the outcome of every accent, default False
    first : number of accents per stream, default all
    logs : the streams' logs, default those of :func:`logs_of`
    """
    logs = logs_of(plan, paths, evolution) if logs is None else logs
    if first is not None:
        logs = {name: log[:first] for name, log in logs.items()}
    policies = {name: _policy(evolution, name) for name in logs}
    domains = {name: _domain(paths[name].open(), log) for name, log in logs.items() if _loses_keys(plan)}
    return accented(plan, logs, policies=policies, domains=domains, mode=evolution.mode, trace=trace)


def job_accents(plan: Node, paths: Mapping[str, ModelRef], evolution: Evolution) -> JobAccents:
    """The unit maps that a job's workers apply, cached by plan, policies and models."""
    logs = logs_of(plan, paths, evolution)
    if not logs:
        return NO_ACCENTS
    if any(name in evolution.logs or name.partition(AS_OF)[0] in evolution.logs for name in logs):
        return _derive(plan, paths, evolution, logs)
    policies = tuple((name, _policy(evolution, name)) for name in sorted(logs))
    content = tuple((name, paths[name], paths[name].open().stamp) for name in sorted(logs))
    key = plan, evolution.mode, policies, content
    known = plan_cache.get(key)
    if known is None:
        if len(plan_cache) >= _CACHED:
            plan_cache.clear()
        known = plan_cache[key] = _derive(plan, paths, evolution, logs)
    return known


_CACHED = 32  # plans in the cache
plan_cache: dict[Any, JobAccents] = {}


def _derive(
    plan: Node, paths: Mapping[str, ModelRef], evolution: Evolution, logs: Mapping[str, AccentLog]
) -> JobAccents:
    found = follow(plan, paths, evolution, logs=logs)
    inputs = {
        name: one
        for name, log in logs.items()
        if (one := _input_units(paths[name].open(), log, _policy(evolution, name))) is not None
    }
    if found.is_empty:
        return JobAccents(inputs)
    output = OutputUnits(Alter(found.steps()), Presence(found.absences()), found.aborted_at, found.reason)
    return JobAccents(inputs, output)


def _policy(evolution: Evolution, name: str) -> Policy:
    return evolution.policies.get(name, evolution.policies.get(name.partition(AS_OF)[0], Policy()))


def _input_units(model: Model, log: AccentLog, policy: Policy) -> InputUnits | None:
    """The maps from stored segments to the units of evaluation: those of the stream's start, except for ignored accents."""
    time = model.schema.time
    evolving = Alter(log.evolving(policy).steps(time)).inverse()
    presence = Presence(log.evolving(policy).for_segments(model.schema).gaps(model.schema), stored=True)
    if model.manifest.accents is None:
        for name in sorted({*evolving.steps} & {*model.schema.flow_names}):
            raise UnsupportedAccentError(
                f"{model.path}: '{name}' is a flow, and the model has its total in the units as recorded, mixed after the "
                "accent; fit the model with these accents"
            )
        # A tuple before the accent holds until the next one: only segments that begin after the accent are surely in its units.
        held, lines = (
            frozenset(name for name, truth in model.schema.modelled if truth is one)
            for one in (Truth.STEP, Truth.LINEAR)
        )
        alters: tuple[Alter, ...] = (replace(evolving, held=held, lines=lines),)
    else:
        rounding = UndoneRounding.of(log, model.schema)
        if not log.ignored(policy).steps(time):
            there = presence.absences or rounding is not None
            return InputUnits((), _name(log, policy), presence, rounding) if there else None
        if log.needs_tuples(model.schema):
            raise UnsupportedAccentError(
                f"{model.path}: its fit undid accents that depend on tuples' values, so values as recorded, which the policy to "
                "ignore alter data needs, are lost; fit the tuples without these accents"
            )
        return InputUnits((Alter(log.steps(time)), evolving), _name(log, policy), presence, rounding)
    return InputUnits(alters, _name(log, policy), presence)


def _name(log: AccentLog, policy: Policy) -> str:
    return hashlib.sha256(json.dumps([log.to_json(), repr(policy)]).encode()).hexdigest()


def _loses_keys(plan: Node) -> bool:
    return any(node.combines_keys for node in walk(plan))


def _domain(model: Model, log: AccentLog) -> Domain:
    """The values of a model's key columns that descriptions use: a stored model gains no other keys."""
    described = {name for one in log.controls for name in one.description.attributes}
    named = [name for name in model.schema.key_names if name in described]
    if not named:
        return Domain()
    keys = model.keys()
    if not keys.num_rows:
        return Domain()
    return Domain.of(**{name: set(keys.column(name).to_pylist()) for name in named})


class EvolutionError(PulseError, ValueError):
    """Accents or policies of streams that a query does not have."""


def evolution_of(
    schemas: Mapping[str, Any], accents: Any, policies: Any, *, accumulate: bool = True, later: bool = False
) -> Evolution:
    """Build the accent options from user arguments: logs and policies by stream, or one for the only stream."""
    logs = {
        name: log
        for name, given in _by_stream(accents, schemas, "accents").items()
        if (log := log_from(given, None, schemas[name], raw=later)) is not None
    }
    chosen = {name: Policy.of(given) for name, given in _by_stream(policies, schemas, "policy", True).items()}
    return Evolution(logs, chosen, "accumulate" if accumulate else "abort", later)


def _by_stream(given: Any, schemas: Mapping[str, Any], what: str, every: bool = False) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping) and not (every and set(given) <= {"add", "drop", "alter"}):
        for name in given:
            if name not in schemas:
                raise EvolutionError(f"{what}: there is no stream {name!r}; there are {', '.join(schemas)}")
        return dict(given)
    if every or len(schemas) == 1:
        return dict.fromkeys(schemas, given)
    raise EvolutionError(f"{what}: name the stream, one of {', '.join(schemas)}: {what}={{'NAME': …}}")

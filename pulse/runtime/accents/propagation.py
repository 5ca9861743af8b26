"""Propagate accents through the plan of a running job (semantics 8.2-8.5), one after the other.

Alter data that passes the plan unchanged, regardless of earlier accents, takes the route of its kind: only its composed map is
kept (:mod:`pulse.runtime.accents.compacted_maps`). The first other control sets up the plan's operators, through which all later
controls go. Controls that are not compacted yet stay in a tail beside them: a log may add an earlier instant later, and then the
tail is replayed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pulse.core.instants import EARLIEST
from pulse.operators.node import Node
from pulse.operators.units.apply_maps import Alter, Presence
from pulse.plan.accents.derived import described
from pulse.plan.accents.operators import Operators, OperatorState
from pulse.plan.accents.routes import route
from pulse.plan.accents.trace import ended
from pulse.runtime.accents.compacted_maps import COMPACT_AT, CompactedMaps, steps_of, union_of
from pulse.runtime.accents.query_units import OutputUnits
from pulse.stream.accents.accents import Accent, AddAttribute, AlterData, Control, Punctuation
from pulse.stream.descriptions.description import FALSE, Description
from pulse.stream.propagation.state import Mode
from pulse.stream.units.affine import Affine
from pulse.stream.units.step_maps import Alteration

if TYPE_CHECKING:
    from pulse.runtime.predict.spec import Predictor


class Ending(NamedTuple):
    """The instant at which a job ends, why, and whether the accent is in the stream itself: then the job ends at its row."""

    end: int
    reason: str
    inside: bool

    def reached(self, now: int | None) -> bool:
        """Whether event time has reached the end."""
        return self.inside or (now is not None and now >= self.end)


@lru_cache(maxsize=64)
def _routes(plan: Node, mode: Mode) -> dict[Any, Any]:
    """A cache of routes by kind of alteration, shared by all jobs of a plan in this process."""
    return {}


@dataclass
class AccentPropagation:
    """The effect of all streams' accents on a job's results. Picklable."""

    altered: dict[str, CompactedMaps] = field(default_factory=dict)  # by attribute of the answer
    ends: dict[str, CompactedMaps] = field(default_factory=dict)
    # Compacted alter data, by stream and attribute, and punctuation, by stream.
    inputs: dict[tuple[str, str], CompactedMaps] = field(default_factory=dict)
    closed: dict[str, Description] = field(default_factory=dict)
    tail: list[tuple[str, Control]] = field(default_factory=list)
    before: tuple[OperatorState, ...] | None = (
        None  # state of the operators before the tail; None: not set up yet
    )
    after: tuple[OperatorState, ...] | None = None
    ending: Ending | None = None

    def add(self, predictor: Predictor, new: Iterable[tuple[str, Control]]) -> None:
        """Add controls, each after earlier ones of its instant."""
        more = sorted(new, key=lambda pair: pair[1].position)
        if not more:
            return
        routes = _routes(predictor.continuous.query.plan, predictor.mode) if self.before is None else {}
        if self.before is None and all(self._take_route(predictor, routes, *one) for one in more):
            self.tail += more
            return
        self.tail += more
        if self.before is None:
            self.before = self._set_up(predictor)
            self._replay(predictor)
        elif len(self.tail) > len(more) and self.tail[-len(more) - 1][1].position > more[0][1].position:
            self._replay(predictor)
        elif self.ending is None:
            self.after = self._push(predictor, self.after, more)

    @property
    def size(self) -> int:
        """The number of maps and of controls kept."""
        return sum(map(len, (*self.altered.values(), *self.ends.values()))) + len(self.tail)

    def compact(self, predictor: Predictor, horizon: int) -> None:
        """Compact the effect of controls up to the horizon, before which no result is needed.

        Controls that leave the tail are not replayed: all their results must be compacted with them, however few.
        """
        if sum(pair[1].position <= horizon for pair in self.tail) < COMPACT_AT:
            return
        time = predictor.continuous.query.plan.columns.time
        results = (*self.altered.values(), *self.ends.values())
        horizon = min((one.compactable_until(horizon, time) for one in results), default=horizon)
        self.tail.sort(key=lambda pair: pair[1].position)
        old = [pair for pair in self.tail if pair[1].position <= horizon]
        self.tail = self.tail[len(old) :]
        if self.before is None:
            for stream, one in old:
                if isinstance(one, Accent) and isinstance(one.primitive, AlterData):
                    change = Alteration(one.position, one.description, one.primitive.alpha)
                    self.inputs.setdefault((stream, one.attribute), CompactedMaps()).add([change])
                elif isinstance(one, Punctuation):
                    self.closed[stream] = union_of([self.closed.get(stream, FALSE), one.description])
            for (stream, _), maps in self.inputs.items():
                maps.compact(horizon, predictor.specs[stream].schema.time)
        else:
            operators = self._operators(predictor, self.before)
            for stream, one in old:
                operators.push(stream, one)
            self.before = operators.state
        for maps in results:
            maps.compact(horizon, time)

    def forget(self, rows: Description) -> None:
        """Free the maps of rows, described by the answer's columns, that have no more results."""
        for one in (*self.altered.values(), *self.ends.values()):
            one.forget(rows)

    def output_units(self, time: str) -> OutputUnits | None:
        """The output units of results; None if nothing is altered, dropped or ended."""
        alter, cease = steps_of(self.altered, time), steps_of(self.ends, time)
        if not alter and not cease and self.ending is None:
            return None
        end, reason = (None, "") if self.ending is None else self.ending[:2]
        return OutputUnits(Alter(alter), Presence(cease), end, reason)

    # -- by route -------------------------------------------------------------------------------------------

    def _take_route(
        self, predictor: Predictor, routes: dict[Any, Any], stream: str, control: Control
    ) -> bool:
        """Apply a control by its route; False if it has none and must go through the operators."""
        if isinstance(control, Punctuation):
            return True
        options = predictor.accent_options[stream]
        if not isinstance(control.primitive, AlterData) or options.policy.choice(control) == "exception":
            return False
        plan, columns = predictor.continuous.query.plan, control.description.attributes
        key = stream, control.attribute, control.primitive.alpha, columns
        if key not in routes:
            routes[key] = route(plan, *key, predictor.mode)
        found = routes[key]
        if found is None:
            return False
        for out, map, names in found:
            one = Alteration(control.position, described(control.description, names), map)
            self.altered.setdefault(out, CompactedMaps()).add([one])
        return True

    # -- through the operators ------------------------------------------------------------------------------

    def _operators(self, predictor: Predictor, state: tuple[OperatorState, ...] | None) -> Operators:
        domains = {name: one.domain for name, one in predictor.accent_options.items()}
        plan = predictor.continuous.query.plan
        # The next description may use an altered attribute, whatever came before.
        return Operators(
            plan,
            domains=domains,
            mode=predictor.mode,
            state=state,
            careful=frozenset(predictor.accent_options),
        )

    def _set_up(self, predictor: Predictor) -> tuple[OperatorState, ...]:
        """The operators' state after all compacted controls; their output is already recorded."""
        operators = self._operators(predictor, None)
        for (stream, name), maps in self.inputs.items():
            for at, where, map in maps.alterations():
                operators.push(stream, Accent.of(where, AlterData(name, map), position=at))
        for stream, where in self.closed.items():
            operators.push(stream, Punctuation(position=EARLIEST, description=where))
        self.inputs, self.closed = {}, {}
        return operators.state

    def _replay(self, predictor: Predictor) -> None:
        """Replay the tail through the operators."""
        self.tail.sort(key=lambda pair: pair[1].position)
        self.ending = None
        for one in (*self.altered.values(), *self.ends.values()):
            one.recent = []
        self.after = self._push(predictor, self.before, self.tail)

    def _push(
        self,
        predictor: Predictor,
        state: tuple[OperatorState, ...] | None,
        controls: Iterable[tuple[str, Control]],
    ) -> tuple[OperatorState, ...]:
        operators = self._operators(predictor, state)
        out: tuple[Control, ...] = ()
        for stream, one in controls:
            options = predictor.accent_options[stream]
            if isinstance(one, Accent) and options.policy.choice(one) == "exception":
                message = f"stream {stream}: the policy is to stop at {one} on '{one.attribute}'"
                reason = ended(one, message)
            else:
                out, reason = operators.push(stream, one)
            if reason:
                self.ending = Ending(one.position, reason, options.column is not None)
                break
            self._record(out)
        return operators.state

    def _record(self, out: Iterable[Control]) -> None:
        for one in out:
            if not isinstance(one, Accent):
                continue
            if isinstance(one.primitive, AlterData):
                maps, map = self.altered, one.primitive.alpha
            else:
                added = isinstance(one.primitive, AddAttribute)
                maps, map = self.ends, Affine("1/2") if added else Affine(2)
            change = Alteration(one.position, one.description, map)
            maps.setdefault(one.attribute, CompactedMaps()).add([change])

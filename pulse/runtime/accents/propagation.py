"""Accents on their way through the plan of a running job (semantics 8.2-8.5), one after the other.

Alter data that passes the plan as it is, whatever came before, takes the route of its kind: nothing is kept of it but what it
comes to (:mod:`pulse.runtime.accents.compacted_maps`). With the first control that does not, the plan's operators are set up, and
all go through them. Those that are not settled yet are kept beside them: a log may speak of an earlier instant later, and then
they go again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pulse.operators.units.apply_maps import Alter, Presence
from pulse.plan.accents.derived import described
from pulse.plan.accents.operators import Known, Operators
from pulse.plan.accents.routes import route
from pulse.plan.accents.trace import ended
from pulse.plan.nodes import Node
from pulse.runtime.accents.compacted_maps import BEFORE_ALL, FEW, CompactedMaps, steps_of, together
from pulse.runtime.accents.query_units import OutputUnits
from pulse.stream.accents.accents import Accent, AddAttribute, AlterData, Control, Punctuation
from pulse.stream.descriptions.description import FALSE, Description
from pulse.stream.propagation.state import Mode
from pulse.stream.units.affine import Affine
from pulse.stream.units.step_maps import Alteration

if TYPE_CHECKING:
    from pulse.runtime.predict.spec import Predictor


class Ending(NamedTuple):
    """The instant at which a job ends, why, and whether the accent is in the stream itself: then it ends where that stands."""

    end: int
    reason: str
    inside: bool

    def reached(self, now: int | None) -> bool:
        """Whether event time has come there."""
        return self.inside or (now is not None and now >= self.end)


@lru_cache(maxsize=64)
def _routes(plan: Node, mode: Mode) -> dict[Any, Any]:
    """Routes by kind of alteration, as they are found: the same for all that run a plan in this process."""
    return {}


@dataclass
class AccentPropagation:
    """What accents of all streams have done to a job's results. Picklable."""

    altered: dict[str, CompactedMaps] = field(default_factory=dict)  # by attribute of the answer
    ends: dict[str, CompactedMaps] = field(default_factory=dict)
    inputs: dict[tuple[str, str], CompactedMaps] = field(
        default_factory=dict
    )  # settled alter data, by its route
    closed: dict[str, Description] = field(default_factory=dict)  # settled punctuation, likewise
    tail: list[tuple[str, Control]] = field(default_factory=list)
    before: tuple[Known, ...] | None = (
        None  # what the operators know before the tail; None: there are none yet
    )
    after: tuple[Known, ...] | None = None
    ending: Ending | None = None

    def add(self, predictor: Predictor, new: Iterable[tuple[str, Control]]) -> None:
        """Controls, each after those of its instant."""
        more = sorted(new, key=lambda pair: pair[1].position)
        if not more:
            return
        routes = _routes(predictor.standing.query.plan, predictor.mode) if self.before is None else {}
        if self.before is None and all(self._take_route(predictor, routes, *one) for one in more):
            self.tail += more
            return
        self.tail += more
        if self.before is None:
            self.before = self._set_up(predictor)
            self._again(predictor)
        elif len(self.tail) > len(more) and self.tail[-len(more) - 1][1].position > more[0][1].position:
            self._again(predictor)
        elif self.ending is None:
            self.after = self._push(predictor, self.after, more)

    @property
    def size(self) -> int:
        """How much is known of what is altered and where it ends."""
        return sum(map(len, (*self.altered.values(), *self.ends.values()))) + len(self.tail)

    def settle(self, predictor: Predictor, horizon: int) -> None:
        """No result before the horizon is asked for any more.

        What leaves the tail does not go through again: all that came of it has to be settled with it, few or many.
        """
        if sum(pair[1].position <= horizon for pair in self.tail) < FEW:
            return
        time = predictor.standing.query.plan.columns.time
        results = (*self.altered.values(), *self.ends.values())
        horizon = min((one.settles_until(horizon, time) for one in results), default=horizon)
        self.tail.sort(key=lambda pair: pair[1].position)
        old = [pair for pair in self.tail if pair[1].position <= horizon]
        self.tail = self.tail[len(old) :]
        if self.before is None:
            for stream, one in old:
                if isinstance(one, Accent) and isinstance(one.primitive, AlterData):
                    change = Alteration(one.position, one.description, one.primitive.alpha)
                    self.inputs.setdefault((stream, one.attribute), CompactedMaps()).add([change])
                elif isinstance(one, Punctuation):
                    self.closed[stream] = together([self.closed.get(stream, FALSE), one.description])
            for (stream, _), turns in self.inputs.items():
                turns.settle(horizon, predictor.specs[stream].schema.time)
        else:
            operators = self._operators(predictor, self.before)
            for stream, one in old:
                operators.push(stream, one)
            self.before = operators.state
        for turns in results:
            turns.settle(horizon, time)

    def forget(self, rows: Description) -> None:
        """No result of these rows is asked for any more; they are told by the names of the answer."""
        for one in (*self.altered.values(), *self.ends.values()):
            one.forget(rows)

    def restating(self, time: str) -> OutputUnits | None:
        """What is done to results."""
        alter, cease = steps_of(self.altered, time), steps_of(self.ends, time)
        if not alter and not cease and self.ending is None:
            return None
        end, reason = (None, "") if self.ending is None else self.ending[:2]
        return OutputUnits(Alter(alter), Presence(cease), end, reason)

    # -- by route -------------------------------------------------------------------------------------------

    def _take_route(
        self, predictor: Predictor, routes: dict[Any, Any], stream: str, control: Control
    ) -> bool:
        """Whether a control passes whatever came before; then what comes of it is noted."""
        if isinstance(control, Punctuation):
            return True
        hears = predictor.hears[stream]
        if not isinstance(control.primitive, AlterData) or hears.policy.choice(control) == "exception":
            return False
        plan, said = predictor.standing.query.plan, control.description.attributes
        key = stream, control.attribute, control.primitive.alpha, said
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

    def _operators(self, predictor: Predictor, state: tuple[Known, ...] | None) -> Operators:
        domains = {name: one.domain for name, one in predictor.hears.items()}
        plan = predictor.standing.query.plan
        # Whatever came before, the next description may speak of what was altered.
        return Operators(
            plan, domains=domains, mode=predictor.mode, state=state, careful=frozenset(predictor.hears)
        )

    def _set_up(self, predictor: Predictor) -> tuple[Known, ...]:
        """What the operators know once all that is settled went through; what comes out is known already."""
        operators = self._operators(predictor, None)
        for (stream, name), turns in self.inputs.items():
            for at, where, map in turns.alterations():
                operators.push(stream, Accent.of(where, AlterData(name, map), position=at))
        for stream, where in self.closed.items():
            operators.push(stream, Punctuation(position=BEFORE_ALL, description=where))
        self.inputs, self.closed = {}, {}
        return operators.state

    def _again(self, predictor: Predictor) -> None:
        """Send the tail through once more."""
        self.tail.sort(key=lambda pair: pair[1].position)
        self.ending = None
        for one in (*self.altered.values(), *self.ends.values()):
            one.recent = []
        self.after = self._push(predictor, self.before, self.tail)

    def _push(
        self,
        predictor: Predictor,
        state: tuple[Known, ...] | None,
        controls: Iterable[tuple[str, Control]],
    ) -> tuple[Known, ...]:
        operators = self._operators(predictor, state)
        out: tuple[Control, ...] = ()
        for stream, one in controls:
            hears = predictor.hears[stream]
            if isinstance(one, Accent) and hears.policy.choice(one) == "exception":
                said = f"stream {stream}: the policy is to stop at {one} on '{one.attribute}'"
                reason = ended(one, said)
            else:
                out, reason = operators.push(stream, one)
            if reason:
                self.ending = Ending(one.position, reason, hears.column is not None)
                break
            self._note(out)
        return operators.state

    def _note(self, out: Iterable[Control]) -> None:
        for one in out:
            if not isinstance(one, Accent):
                continue
            if isinstance(one.primitive, AlterData):
                turns, map = self.altered, one.primitive.alpha
            else:
                added = isinstance(one.primitive, AddAttribute)
                turns, map = self.ends, Affine("1/2") if added else Affine(2)
            change = Alteration(one.position, one.description, map)
            turns.setdefault(one.attribute, CompactedMaps()).add([change])

"""Propagate accents through the plan of a running job (semantics 8.2-8.5), one after the other.

Alter data that passes the plan unchanged, regardless of earlier accents, takes the route of its kind: only its composed map is
kept (:mod:`pulse.runtime.accents.unit_history`). The first other control sets up the plan's operators, through which all later
controls go. Controls that are not compacted yet stay in a tail beside them: a log may add an earlier instant later, and then the
tail is replayed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pulse.core.time import EARLIEST
from pulse.operators.units.apply_maps import Alter, Presence
from pulse.plan.accents.operators import Operators, OperatorState
from pulse.plan.accents.routes import straight
from pulse.plan.accents.trace import ended
from pulse.runtime.accents.query_units import OutputUnits
from pulse.runtime.accents.unit_history import COMPACT_AT, UnitHistory
from pulse.stream.accents.accents import Accent, Control, Punctuation
from pulse.stream.accents.policy import Policy
from pulse.stream.descriptions.description import FALSE, Description, any_of

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


@dataclass
class AccentPropagation:
    """The effect of all streams' accents on a job's results. Picklable."""

    output: UnitHistory = field(default_factory=UnitHistory)  # of the answer's attributes
    # Compacted alter data and punctuation, by stream.
    inputs: dict[str, UnitHistory] = field(default_factory=dict)
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
        self.tail += more
        if self.before is None:
            plan, policies = predictor.continuous.query.plan, _policies(predictor)
            routed = straight(plan, more, policies, predictor.mode)
            if routed is not None:
                self.output.add(routed)
                return
            self.before = self._set_up(predictor)
            self._replay(predictor)
        elif len(self.tail) > len(more) and self.tail[-len(more) - 1][1].position > more[0][1].position:
            self._replay(predictor)
        elif self.ending is None:
            self.after = self._push(predictor, self.after, more)

    @property
    def size(self) -> int:
        """The number of maps and of controls kept."""
        return len(self.output) + len(self.tail)

    def compact(self, predictor: Predictor, horizon: int) -> None:
        """Compact the effect of controls up to the horizon, before which no result is needed.

        Controls that leave the tail are not replayed: all their results must be compacted with them, however few.
        """
        if sum(pair[1].position <= horizon for pair in self.tail) < COMPACT_AT:
            return
        time = predictor.continuous.query.plan.columns.time
        horizon = self.output.compactable_until(horizon, time)
        self.tail.sort(key=lambda pair: pair[1].position)
        old = [pair for pair in self.tail if pair[1].position <= horizon]
        self.tail = self.tail[len(old) :]
        if self.before is None:
            for stream in {stream for stream, _ in old}:
                own = [one for name, one in old if name == stream]
                known = self.inputs.setdefault(stream, UnitHistory())
                known.add(one for one in own if isinstance(one, Accent))
                known.compact(horizon, predictor.specs[stream].schema.time)
                closed = [one.description for one in own if isinstance(one, Punctuation)]
                if closed:
                    self.closed[stream] = any_of([self.closed.get(stream, FALSE), *closed])
        else:
            operators = self._operators(predictor, self.before)
            for stream, one in old:
                operators.push(stream, one)
            self.before = operators.state
        self.output.compact(horizon, time)

    def output_units(self, time: str) -> OutputUnits | None:
        """The output units of results; None if nothing is altered, dropped or ended."""
        if self.output.is_empty and self.ending is None:
            return None
        units = self.output.units(time, by=time)
        end, reason = (None, "") if self.ending is None else self.ending[:2]
        return OutputUnits(Alter(units.steps), Presence(units.absent), end, reason)

    # -- through the operators ------------------------------------------------------------------------------

    def _operators(self, predictor: Predictor, state: tuple[OperatorState, ...] | None) -> Operators:
        domains = {name: one.domain for name, one in predictor.accent_options.items()}
        plan = predictor.continuous.query.plan
        # The next description may use an altered attribute, whatever came before.
        return Operators(
            plan,
            policies=_policies(predictor),
            domains=domains,
            mode=predictor.mode,
            state=state,
            careful=frozenset(predictor.accent_options),
        )

    def _set_up(self, predictor: Predictor) -> tuple[OperatorState, ...]:
        """The operators' state after all compacted controls; their output is already recorded."""
        operators = self._operators(predictor, None)
        for stream, known in self.inputs.items():
            for one in known.accents():
                operators.push(stream, one)
        for stream, where in self.closed.items():
            operators.push(stream, Punctuation(position=EARLIEST, description=where))
        self.inputs, self.closed = {}, {}
        return operators.state

    def _replay(self, predictor: Predictor) -> None:
        """Replay the tail through the operators."""
        self.tail.sort(key=lambda pair: pair[1].position)
        self.ending = None
        self.output.recent = []
        self.after = self._push(predictor, self.before, self.tail)

    def _push(
        self,
        predictor: Predictor,
        state: tuple[OperatorState, ...] | None,
        controls: Iterable[tuple[str, Control]],
    ) -> tuple[OperatorState, ...]:
        operators = self._operators(predictor, state)
        passed: list[Accent] = []
        for stream, one in controls:
            out, why = operators.push(stream, one)
            if why:
                inside = predictor.accent_options[stream].column is not None
                self.ending = Ending(one.position, ended(one, why), inside)
                break
            passed += [one for one in out if isinstance(one, Accent)]
        self.output.add(passed)
        return operators.state


def _policies(predictor: Predictor) -> dict[str, Policy]:
    return {name: one.policy for name, one in predictor.accent_options.items()}

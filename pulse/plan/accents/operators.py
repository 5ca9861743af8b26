"""Propagate accents through the operators of a plan (semantics 8.2-8.5): each passes an accent, holds it, or ends the query.

An operator's state is that of its signature (:mod:`pulse.stream.propagation.receive`) and, where its output is computed by
expressions, their units (:mod:`pulse.plan.accents.derived`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from pulse.operators.node import Node
from pulse.plan.accents.derived import Derived, renamed
from pulse.plan.accents.trace import Verdict, verdict_words
from pulse.stream.accents.accents import Accent, Control, is_alteration
from pulse.stream.accents.policy import Policy
from pulse.stream.descriptions.description import NO_PROMISES, Domain
from pulse.stream.propagation.receive import receive
from pulse.stream.propagation.state import Mode, Side, State, Where
from pulse.stream.units.unit_map import Units


class Abort(Exception):
    """An operator cannot continue: the query ends here."""


class OperatorState(NamedTuple):
    """The accent state of an operator, without what its plan implies. ``derived``: the units of its derived outputs' inputs,
    and of these outputs.
    """

    sides: tuple[Side, ...]
    units: Units
    exists: Where
    domain: Domain
    derived: tuple[Units, Units] | None


class Operator:
    """A node of the plan with its accent state, and those below it; every accent of ``careful`` streams updates the state."""

    def __init__(
        self,
        node: Node,
        domains: Mapping[str, Domain],
        mode: Mode,
        careful: frozenset[str] = frozenset(),
    ) -> None:
        self._how = node.handling()
        self.inputs = [Operator(one, domains, mode, careful) for one in node.inputs]
        self.stream, self.label = self._how.stream, node.label
        # Descriptions may use attributes with units: every accent updates the state.
        self._careful = self.stream in careful
        self._derived = Derived(self._how.outputs) if self._how.outputs is not None else None
        self.straight = True  # whether every accent so far passed unchanged, regardless of earlier ones
        self._state: State | None = None
        self.domain = domains.get(self.stream, NO_PROMISES)
        signature = self._how.signature
        if signature is not None:
            promised = [one.domain for one in self.inputs] or [self.domain]
            schemas = [(*one.names, one.time) for one in node.read_columns]
            self._state = State.start(
                replace(signature, operator=self.label),
                *schemas,
                domain=signature.common(*promised),
                mode=mode,
            )
            self.domain = signature.domain(*promised)
        names = self._how.names
        self.domain = Domain.from_values(
            {names.get(name, name): values for name, values in self.domain.promises}
        )

    def walk(self) -> Iterator[Operator]:
        """Yield the operator and all below it, from the top."""
        yield self
        for one in self.inputs:
            yield from one.walk()

    def push(self, stream: str, control: Control, verdicts: list[Verdict] | None) -> list[Control]:
        """Return the accents that come out when an accent of a stream comes in."""
        came = [[control]] if self.stream == stream else []
        came = came or [one.push(stream, control, verdicts) for one in self.inputs]
        if not any(came):
            return []
        out: list[Control] = []
        for side, some in enumerate(came):
            for one in some:
                out += self._receive(side, one, verdicts)
        held = len(out) > 0
        if self._derived is not None:
            out = self._derived.push(out)
            held = held and self._derived.stays
            self.straight = self.straight and not self._derived.stays
        out = [renamed(one, self._how.names) for one in out]
        if verdicts is not None:
            all_came = [one for some in came for one in some]
            verdicts.append(Verdict(self.label, verdict_words(self._how, all_came, out, held)))
        return out

    def _receive(self, side: int, control: Control, verdicts: list[Verdict] | None) -> tuple[Control, ...]:
        if self._state is None:
            return (control,)
        if self._passes_plainly(side, control):
            if self._careful:  # later descriptions are translated through it
                self._state, _ = receive(self._state, side, control)
            return (control,)
        if (
            not self._careful
            and is_alteration(control)
            and control.attribute in self._state.signature.ignored
        ):
            return ()
        self.straight = False
        self._state, step = receive(self._state, side, control)
        if step.abort:
            if verdicts is not None:
                verdicts.append(Verdict(self.label, f"aborts at {control}"))
            raise Abort(step.abort)
        return step.passed

    @property
    def known(self) -> OperatorState:
        """Return the accent state so far."""
        own, state = self._derived, self._state
        derived = None if own is None else (own.inputs, own.units)
        if state is None:
            return OperatorState((), Units(), {}, NO_PROMISES, derived)
        return OperatorState(state.sides, state.units, state.exists, state.domain, derived)

    def recall(self, known: OperatorState) -> None:
        """Restore a state; raise a ``ValueError`` if it belongs to another operator."""
        sides, units, exists, domain, derived = known
        own = 0 if self._state is None else len(self._state.sides)
        if len(sides) != own or (derived is None) != (self._derived is None):
            raise ValueError(f"{self.label}: expected the state of {own} inputs, got that of {len(sides)}")
        if self._state is not None:
            self._state = replace(self._state, sides=sides, units=units, exists=exists, domain=domain)
        if self._derived is not None and derived is not None:
            self._derived.inputs, self._derived.units = derived

    def _passes_plainly(self, side: int, control: Control) -> bool:
        """Check whether alter data passes unchanged, regardless of earlier accents: after scans, descriptions use no attributes
        with units.
        """
        assert self._state is not None
        signature = self._state.signature
        if not is_alteration(control):
            return False
        name, named = control.attribute, control.description.attributes
        if self._careful and named & self._state.sides[side].units.cells.keys():
            return False
        lost = signature.accumulator.among(named) or (
            signature.window and signature.window.attribute in named
        )
        special = name in signature.merge or name in signature.ignored or name in signature.absorbed
        return not lost and not special and name not in self._state.sides[side].paths


class Operators:
    """A plan's operators while accents arrive in the order of their instants.

    ``state`` is picklable; operators built with it continue where others stopped. Descriptions of ``careful`` streams may use
    attributes with units: every accent of them updates the state.
    """

    def __init__(
        self,
        plan: Node,
        *,
        policies: Mapping[str, Policy],
        domains: Mapping[str, Domain] | None = None,
        mode: Mode = "accumulate",
        state: tuple[OperatorState, ...] | None = None,
        careful: frozenset[str] = frozenset(),
    ) -> None:
        self._policies = policies
        self._root = Operator(plan, domains or {}, mode, careful)
        if state is not None:
            # The state of another plan is an error: the number of operators differs.
            for one, known in zip(self._root.walk(), state, strict=True):
                one.recall(known)

    @property
    def state(self) -> tuple[OperatorState, ...]:
        """Return the state of the operators, from the top."""
        return tuple(one.known for one in self._root.walk())

    def push(
        self, stream: str, control: Control, verdicts: list[Verdict] | None = None
    ) -> tuple[tuple[Control, ...], str]:
        """Return the controls that come out when one of a stream comes in, and why the query ends there, if it does."""
        if isinstance(control, Accent) and self._policies[stream].choice(control) == "exception":
            return (), f"stream {stream}: the policy is to stop at {control} on '{control.attribute}'"
        try:
            return tuple(self._root.push(stream, control, verdicts)), ""
        except Abort as e:
            return (), str(e)

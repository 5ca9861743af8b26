"""The operators of a plan as accents meet them (semantics 8.2-8.5): each passes an accent, holds it, or ends the query.

What an operator knows is the state of its signature's machine (:mod:`pulse.stream.propagation.receive`), and where its output is
made of expressions, the units of these (:mod:`pulse.plan.accents.derived`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from pulse.plan.accents.derived import Derived, renamed
from pulse.plan.accents.signatures import Handling, handling
from pulse.plan.accents.trace import Verdict, ended, verdict_words
from pulse.plan.nodes import Node, Scan
from pulse.plan.show import line
from pulse.stream.accents.accents import Control, is_alteration
from pulse.stream.descriptions.description import NO_PROMISES, Domain
from pulse.stream.propagation.receive import receive
from pulse.stream.propagation.state import Mode, Side, State, Where
from pulse.stream.units.unit_map import Units


class Abort(Exception):
    """An operator cannot go on: the query ends here."""


class Known(NamedTuple):
    """What an operator knows of accents; what its plan says is not in it. ``derived``: the units of what its outputs are made of,
    and of these."""

    sides: tuple[Side, ...]
    units: Units
    exists: Where
    domain: Domain
    derived: tuple[Units, Units] | None


class Operator:
    """A node of the plan and what it knows of accents."""

    def __init__(
        self,
        node: Node,
        inputs: list[Operator],
        domain: Domain,
        mode: Mode,
        stream: str = "",
        careful: bool = False,
    ) -> None:
        self._careful = (
            careful  # whether descriptions may speak of what has units: then nothing passes unseen
        )
        self.inputs, self.stream, self.label = inputs, stream, line(node)
        self._how: Handling = handling(node)
        self._derived = Derived(self._how.outputs) if self._how.outputs is not None else None
        self.straight = True  # whether all that came passed as it is, whatever came before
        self._state: State | None = None
        self.domain = domain
        signature = self._how.signature
        if signature is not None:
            domains = [one.domain for one in inputs] or [domain]
            common = domains[0]
            for other in domains[1:]:
                common = common.and_(other) if signature.exclusive else common.or_(other)
            read = [one.columns for one in node.inputs] or [
                node.stored if isinstance(node, Scan) else node.columns
            ]
            schemas = [(*one.names, one.time) for one in read]
            self._state = State.start(
                replace(signature, operator=self.label), *schemas, domain=common, mode=mode
            )
            self.domain = signature.domain(*domains)
        names = self._how.names
        self.domain = Domain.from_values(
            {names.get(name, name): values for name, values in self.domain.promises}
        )

    def push(self, stream: str, control: Control, verdicts: list[Verdict] | None) -> list[Control]:
        """What comes out when an accent of a stream comes in."""
        came = [[control]] if self.stream == stream and not self.inputs else []
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
            if self._careful:  # what a later description speaks of is carried through it
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
    def known(self) -> Known:
        """What is known of the accents so far."""
        derived, state = None if self._derived is None else self._derived.units, self._state
        if state is None:
            return Known((), Units(), {}, NO_PROMISES, derived)
        return Known(state.sides, state.units, state.exists, state.domain, derived)

    def recall(self, known: Known) -> None:
        """Go on from what was known; a ``ValueError`` where that is another operator's."""
        sides, units, exists, domain, derived = known
        own = 0 if self._state is None else len(self._state.sides)
        if len(sides) != own or (derived is None) != (self._derived is None):
            raise ValueError(f"{self.label}: expected what is known of {own} inputs, got of {len(sides)}")
        if self._state is not None:
            self._state = replace(self._state, sides=sides, units=units, exists=exists, domain=domain)
        if self._derived is not None and derived is not None:
            self._derived.units = derived

    def _passes_plainly(self, side: int, control: Control) -> bool:
        """Whether alter data passes as it is, whatever came before: after scans, descriptions never speak of what has units."""
        assert self._state is not None
        signature = self._state.signature
        if not is_alteration(control):
            return False
        name, said = control.attribute, control.description.attributes
        if self._careful and said & self._state.sides[side].units.cells.keys():
            return False
        lost = signature.accumulator.among(said) or (signature.window and signature.window.attribute in said)
        special = name in signature.merge or name in signature.ignored or name in signature.absorbed
        return not lost and not special and name not in self._state.sides[side].paths


def operator_of(
    node: Node, domains: Mapping[str, Domain], mode: Mode, careful: frozenset[str] = frozenset()
) -> Operator:
    """The operators of a plan, from its top; of ``careful`` streams nothing passes unseen."""
    inputs = [operator_of(one, domains, mode, careful) for one in node.inputs]
    stream = str(getattr(node, "stream", ""))
    return Operator(node, inputs, domains.get(stream, NO_PROMISES), mode, stream, stream in careful)


def every_operator(root: Operator) -> Iterator[Operator]:
    """An operator and all below it, from the top."""
    yield root
    for one in root.inputs:
        yield from every_operator(one)


class Operators:
    """A plan's operators while accents come one after the other, in the order of their instants.

    ``state`` is what they know, and picklable; operators made with it go on where others were. Descriptions of ``careful``
    streams may speak of what has units: nothing of them passes unseen.
    """

    def __init__(
        self,
        plan: Node,
        *,
        domains: Mapping[str, Domain] | None = None,
        mode: Mode = "accumulate",
        state: tuple[Known, ...] | None = None,
        careful: frozenset[str] = frozenset(),
    ) -> None:
        self._root = operator_of(plan, domains or {}, mode, careful)
        if state is not None:
            # What operators of another plan knew is an error: there are more of them, or fewer.
            for one, known in zip(every_operator(self._root), state, strict=True):
                one.recall(known)

    @property
    def state(self) -> tuple[Known, ...]:
        """What the operators know, from the top."""
        return tuple(one.known for one in every_operator(self._root))

    def push(self, stream: str, control: Control) -> tuple[tuple[Control, ...], str]:
        """What comes out when a control of a stream comes in, and why the query ends there, if it does."""
        try:
            return tuple(self._root.push(stream, control, None)), ""
        except Abort as e:
            return (), ended(control, str(e))

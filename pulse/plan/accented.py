"""What accents do to a query: its operators' signatures run over the accents of its streams, before any data (semantics 8.2-8.5).

::

    accents of S ──scan──> S.price ──window──> ap ──join──> S.ap, L.ap ──project──> diff ──> accents of the answer
                                                     │
                                                     └── passes, holds (and undoes meanwhile), or aborts

The query itself is evaluated once, in the units of its streams' starts. The answer is then restated by the accents that come
out: each value is in the units in force at its instant. What an operator holds is undone in that it is not restated. An accent
that the query cannot survive ends it at its instant: what comes before stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from pulse.core.time import format_instant
from pulse.plan.derived import Derived, described, renamed
from pulse.plan.nodes import Node, Scan
from pulse.plan.show import line
from pulse.plan.signatures import Handling, handling
from pulse.stream.accents import Accent, AddAttribute, AlterData, Control, DropAttribute
from pulse.stream.affine import Affine
from pulse.stream.description import NO_PROMISES, Description, Domain
from pulse.stream.log import AccentLog
from pulse.stream.machine import receive
from pulse.stream.policy import Policy
from pulse.stream.signature import Signature
from pulse.stream.state import Mode, State
from pulse.stream.steps import Alteration, Steps
from pulse.stream.values import ValueSet


@dataclass(frozen=True)
class Verdict:
    """What one operator does with an accent."""

    operator: str
    does: str

    def __str__(self) -> str:
        return f"{self.operator}: {self.does}"


@dataclass(frozen=True)
class Fate:
    """What becomes of one accent of a stream, operator by operator; ``aborts`` says why the query ends, if it does."""

    stream: str
    accent: Control
    verdicts: tuple[Verdict, ...]
    passed: tuple[Control, ...] = ()
    aborts: str = ""

    @property
    def outcome(self) -> str:
        """In a word. An accent that is neither passed nor held changes nothing: of an attribute that the answer does not have."""
        if self.aborts or self.passed:
            return "aborts" if self.aborts else "passes"
        said = [one.does.partition(" ")[0] for one in self.verdicts]
        return (
            "is held" if "holds" in said or not said else "is left out" if "leaves" in said else "is absorbed"
        )

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.stream} at {format_instant(self.accent.position)}: {self.accent} {self.outcome}"
        yield from (f"  {one}" for one in self.verdicts)
        if self.passed:
            yield f"  answer: {', '.join(map(str, self.passed))}"


@dataclass(frozen=True)
class Accented:
    """The accents of a query's answer, in the order of their instants. ``time`` is the name of its time."""

    time: str
    passed: tuple[Accent, ...] = ()
    altered: tuple[
        tuple[str, Alteration], ...
    ] = ()  # alter data that passes straight through, by attribute; instead of the above
    aborted_at: int | None = None
    reason: str = ""
    fates: tuple[Fate, ...] = field(default=(), compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether the answer stays as it is."""
        return not self.passed and not self.altered and self.aborted_at is None

    def steps(self) -> dict[str, Steps]:
        """How the answer is restated, by attribute."""
        found: dict[str, list[Alteration]] = {}
        for name, alteration in self.altered:
            found.setdefault(name, []).append(alteration)
        for one in self.passed:
            if isinstance(one.primitive, AlterData):
                found.setdefault(one.attribute, []).append(
                    Alteration(one.position, one.description, one.primitive.alpha)
                )
        return {name: Steps.of(own, time=self.time) for name, own in found.items()}

    def ends(self) -> dict[str, Steps]:
        """Where attributes of the answer end, and begin again: the scale is above 1 where they are not."""
        found: dict[str, list[Alteration]] = {}
        for one in self.passed:
            if not isinstance(one.primitive, AlterData):
                map = Affine("1/2") if isinstance(one.primitive, AddAttribute) else Affine(2)
                found.setdefault(one.attribute, []).append(Alteration(one.position, one.description, map))
        return {name: Steps.of(own, time=self.time) for name, own in found.items()}

    def lines(self) -> list[str]:
        """What becomes of every accent, for people."""
        return [text for fate in self.fates for text in fate.lines()]


class _Abort(Exception):
    """Inside this file: an operator cannot go on."""


class _Operator:
    """A node of the plan and what it knows of accents."""

    def __init__(
        self,
        node: Node,
        inputs: list[_Operator],
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
            verdicts.append(Verdict(self.label, _said(self._how, all_came, out, held)))
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
            and _is_alteration(control)
            and control.attribute in self._state.signature.ignored
        ):
            return ()
        self.straight = False
        self._state, step = receive(self._state, side, control)
        if step.abort:
            if verdicts is not None:
                verdicts.append(Verdict(self.label, f"aborts at {control}"))
            raise _Abort(step.abort)
        return step.passed

    @property
    def known(self) -> object:
        """What is known of the accents so far."""
        return self._state, None if self._derived is None else self._derived.units

    def recall(self, known: object) -> None:
        """Go on from what was known."""
        assert isinstance(known, tuple)
        self._state, units = known
        if self._derived is not None:
            self._derived.units = units

    def _passes_plainly(self, side: int, control: Control) -> bool:
        """Whether alter data passes as it is, whatever came before: after scans, descriptions never speak of what has units."""
        assert self._state is not None
        signature = self._state.signature
        if not _is_alteration(control):
            return False
        name, said = control.attribute, control.description.attributes
        if self._careful and said & self._state.sides[side].units.cells.keys():
            return False
        lost = signature.accumulator.among(said) or (signature.window and signature.window.attribute in said)
        special = name in signature.merge or name in signature.ignored or name in signature.absorbed
        return not lost and not special and name not in self._state.sides[side].paths


def _is_alteration(control: Control) -> TypeGuard[Accent]:
    return isinstance(control, Accent) and isinstance(control.primitive, AlterData)


def _said(how: Handling, came: list[Control], out: list[Control], stays: bool) -> str:
    """A verdict in words."""
    if out:
        same = [str(one) for one in came] == [str(one) for one in out]
        return "passes it" if same else f"passes {', '.join(map(str, out))}"
    names = {one.attribute for one in came if isinstance(one, Accent)}
    if names and how.signature is not None and all(name in how.signature.ignored for name in names):
        return "leaves it out: its output has no such attribute"
    if stays:
        return f"holds it: {how.held}"
    if how.signature is not None and how.signature.operator == "scan" and names:
        return _at_scan(how.signature, came, names)
    if (
        how.outputs is not None
        and how.signature is not None
        and not how.signature.accumulator.among(name for one in came for name in one.description.attributes)
    ):
        return "absorbs it: its output is the same in both units"
    if all(isinstance(one, Accent) and isinstance(one.primitive, AlterData) for one in came):
        return "holds it, and undoes it meanwhile: its output cannot say yet for which rows"
    if all(isinstance(one, Accent) and isinstance(one.primitive, DropAttribute) for one in came):
        return "holds it: other rows behind its output have it still"
    return "absorbs it"


def _at_scan(signature: Signature, came: list[Control], names: set[str]) -> str:
    """What a scan does with an accent that it does not pass."""
    if any(isinstance(one, Accent) and isinstance(one.primitive, AddAttribute) for one in came):
        return "absorbs it: what is modelled begins with it"
    if all(name in signature.absorbed for name in names):
        return "holds it for good: the fit undid it, and the answer has it in the units of the start"
    lost = sorted({name for one in came for name in signature.accumulator.among(one.description.attributes)})
    if lost:
        return (
            f"holds it: the fit undid it, and a model cannot tell by {', '.join(lost)} for which rows; the answer stays in the "
            "units it has until all rows are covered"
        )
    return "absorbs it"


def accented(
    plan: Node,
    logs: Mapping[str, AccentLog],
    *,
    policies: Mapping[str, Policy] | None = None,
    domains: Mapping[str, Domain] | None = None,
    mode: Mode = "accumulate",
    told: bool = False,
) -> Accented:
    """What becomes of the accents of a plan's streams (before rewriting), by the names that its scans give them.

    ``domains`` promise the values of key columns, by their own names: an operator that loses a key waits until all are covered.
    With ``told`` every operator's verdict is kept, in words.
    """
    chosen = {name: (policies or {}).get(name, Policy()) for name in logs}
    if not told and (straight := _straight(plan, logs, chosen, mode)) is not None:
        return Accented(plan.columns.time, altered=straight)
    root = _build(plan, domains or {}, mode, frozenset(name for name, log in logs.items() if log.entangled))
    passed: list[Accent] = []
    fates: list[Fate] = []
    for name, control in _in_order(logs, chosen):
        verdicts: list[Verdict] | None = [] if told else None
        try:
            if isinstance(control, Accent) and chosen[name].choice(control) == "exception":
                raise _Abort(f"stream {name}: the policy is to stop at {control} on '{control.attribute}'")
            out = root.push(name, control, verdicts)
        except _Abort as e:
            fates.append(Fate(name, control, tuple(verdicts or ()), aborts=str(e)))
            return Accented(
                plan.columns.time,
                tuple(passed),
                aborted_at=control.position,
                reason=ended(control, str(e)),
                fates=tuple(fates),
            )
        if told:
            fates.append(Fate(name, control, tuple(verdicts or ()), tuple(out)))
        passed += [one for one in out if isinstance(one, Accent)]
    return Accented(plan.columns.time, tuple(passed), fates=tuple(fates))


def _in_order(logs: Mapping[str, AccentLog], policies: Mapping[str, Policy]) -> Iterator[tuple[str, Control]]:
    """The accents of all streams by instant, without those that are ignored."""
    every = [(name, one) for name, log in logs.items() for one in log.evolving(policies[name]).controls]
    yield from sorted(every, key=lambda pair: pair[1].position)


def _build(
    node: Node, domains: Mapping[str, Domain], mode: Mode, careful: frozenset[str] = frozenset()
) -> _Operator:
    inputs = [_build(one, domains, mode, careful) for one in node.inputs]
    stream = str(getattr(node, "stream", ""))
    return _Operator(node, inputs, domains.get(stream, NO_PROMISES), mode, stream, stream in careful)


_Route = tuple[tuple[str, Affine, Mapping[str, str]], ...]
"""What an alteration becomes: attributes of the answer, their maps, and by what names its description speaks of rows there."""


def _straight(
    plan: Node, logs: Mapping[str, AccentLog], policies: Mapping[str, Policy], mode: Mode
) -> tuple[tuple[str, Alteration], ...] | None:
    """All alterations of the answer, if every accent passes the plan as it is, whatever came before and whatever values it names.

    Then one of each kind (attribute, map, what is compared) is sent through, and all others take its route. An output that
    followed every alteration so far follows the next one by its own map: maps of an expression compose as those of its inputs.
    """
    routes: dict[tuple[str, str, Affine, frozenset[str]], _Route | None] = {}
    found: list[tuple[str, Alteration]] = []
    for name, control in _in_order(logs, policies):
        if not isinstance(control, Accent) or not isinstance(control.primitive, AlterData):
            return None
        if policies[name].choice(control) == "exception":
            return None
        said = control.description
        key = name, control.attribute, control.primitive.alpha, said.attributes
        if key not in routes:
            routes[key] = route(plan, *key, mode)
        way = routes[key]
        if way is None:
            return None
        found += [(out, Alteration(control.position, described(said, names), map)) for out, map, names in way]
    return tuple(found)


def route(
    plan: Node, stream: str, attribute: str, alpha: Affine, said: frozenset[str], mode: Mode = "accumulate"
) -> _Route | None:
    """What alter data of one kind becomes, if it passes the plan as it is whatever came before; ``said``: what it compares."""
    marks = {name: ValueSet.of(i) for i, name in enumerate(sorted(said))}
    probe = Accent.of(Description.where(**marks), AlterData(attribute, alpha))
    root = _build(plan, {}, mode)
    try:
        out = root.push(stream, probe, None)
    except _Abort:
        return None
    if not all(one.straight for one in _operators(root)):
        return None
    found = []
    for one in out:
        assert isinstance(one, Accent)
        assert isinstance(one.primitive, AlterData)
        boxes = one.description.boxes
        names = {mark: name for name, mark in boxes[0]} if len(boxes) == 1 else {}
        if set(names) != set(marks.values()):
            return None
        found.append((one.attribute, one.primitive.alpha, {own: names[mark] for own, mark in marks.items()}))
    return tuple(found)


def _operators(root: _Operator) -> Iterator[_Operator]:
    yield root
    for one in root.inputs:
        yield from _operators(one)


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
        state: tuple[object, ...] | None = None,
        careful: frozenset[str] = frozenset(),
    ) -> None:
        self._root = _build(plan, domains or {}, mode, careful)
        if state is not None:
            for one, known in zip(_operators(self._root), state, strict=True):  # of another plan: an error
                one.recall(known)

    @property
    def state(self) -> tuple[object, ...]:
        """What the operators know, from the top."""
        return tuple(one.known for one in _operators(self._root))

    def push(self, stream: str, control: Control) -> tuple[tuple[Control, ...], str]:
        """What comes out when a control of a stream comes in, and why the query ends there, if it does."""
        try:
            return tuple(self._root.push(stream, control, None)), ""
        except _Abort as e:
            return (), ended(control, str(e))


def ended(control: Control, why: str) -> str:
    """The reason of a query that ends at a control."""
    return f"query: ends at {format_instant(control.position)}: {why}; what it gave for earlier times stays"

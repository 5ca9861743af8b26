"""Compute the effects of accents on a query: run its operators' signatures over its streams' accents, before any data
(8.2-8.5).

::

    accents of S ──scan──> S.price ──window──> ap ──join──> S.ap, L.ap ──project──> diff ──> accents of the answer
                                                     │
                                                     └── passes, holds (and undoes meanwhile), or aborts

The query itself is evaluated once, in the units of its streams' starts. The answer is then converted by the accents that come
out: each value is in the units in force at its instant. Accents that an operator holds are not applied to the answer. An accent
that the query cannot survive ends it at its instant: earlier results stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pulse.operators.node import Node
from pulse.plan.accents.operators import Operators
from pulse.plan.accents.routes import straight
from pulse.plan.accents.trace import AccentTrace, Verdict, ended
from pulse.stream.accents.accents import Accent, Control
from pulse.stream.accents.log import AccentLog
from pulse.stream.accents.policy import Policy
from pulse.stream.descriptions.description import Domain
from pulse.stream.propagation.state import Mode
from pulse.stream.units.step_maps import Absences, Steps, absences_of, steps_of


@dataclass(frozen=True)
class Accented:
    """The accents of a query's answer, in the order of their instants. ``time`` is the name of its time."""

    time: str
    passed: tuple[Accent, ...] = ()
    aborted_at: int | None = None
    reason: str = ""
    traces: tuple[AccentTrace, ...] = field(default=(), compare=False)

    @property
    def is_empty(self) -> bool:
        """Check whether the answer stays unchanged."""
        return not self.passed and self.aborted_at is None

    def steps(self) -> dict[str, Steps]:
        """Return the unit maps of the answer, by attribute."""
        return steps_of(self.passed, self.time)

    def absences(self) -> dict[str, Absences]:
        """Return where attributes of the answer end, and begin again."""
        return absences_of(self.passed, self.time)

    def lines(self) -> list[str]:
        """Return the trace of every accent as text."""
        return [text for trace in self.traces for text in trace.lines()]


def accented(
    plan: Node,
    logs: Mapping[str, AccentLog],
    *,
    policies: Mapping[str, Policy] | None = None,
    domains: Mapping[str, Domain] | None = None,
    mode: Mode = "accumulate",
    trace: bool = False,
) -> Accented:
    """Propagate the accents of a plan's streams (before rewriting), by the names that its scans give them.

    ``domains`` promise the values of key columns, by their own names: an operator that loses a key waits until all are covered.
    With ``trace`` every operator's verdict is recorded as text.
    """
    chosen = {name: (policies or {}).get(name, Policy()) for name in logs}
    controls = _in_order(logs, chosen)
    time = plan.columns.time
    if not trace and (altered := straight(plan, controls, chosen, mode)) is not None:
        return Accented(time, tuple(altered))
    careful = frozenset(name for name, log in logs.items() if log.interdependent)
    operators = Operators(plan, policies=chosen, domains=domains, mode=mode, careful=careful)
    passed: list[Accent] = []
    traces: list[AccentTrace] = []
    for name, control in controls:
        verdicts: list[Verdict] | None = [] if trace else None
        out, why = operators.push(name, control, verdicts)
        if trace or why:
            traces.append(AccentTrace(name, control, tuple(verdicts or ()), out, why))
        if why:
            return Accented(time, tuple(passed), control.position, ended(control, why), tuple(traces))
        passed += [one for one in out if isinstance(one, Accent)]
    return Accented(time, tuple(passed), traces=tuple(traces))


def _in_order(logs: Mapping[str, AccentLog], policies: Mapping[str, Policy]) -> list[tuple[str, Control]]:
    """Return the accents of all streams by instant, without ignored ones."""
    every = [(name, one) for name, log in logs.items() for one in log.evolving(policies[name]).controls]
    return sorted(every, key=lambda pair: pair[1].position)

"""Explain a query: its plan before and after rewriting, its equation systems, exchanges, and handling of revisions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pulse.core import html
from pulse.core.time import format_duration
from pulse.operators.labels import duration
from pulse.operators.node import Node
from pulse.operators.symbols import Degrees
from pulse.plan.equations import equation_systems
from pulse.plan.exchanges import place_exchanges
from pulse.plan.fragments import Fragment, fragments
from pulse.plan.modes import explain_modes
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.plan.show import show

LONGEST_VALUE = 120
"""Characters of a parameter that are shown."""


class Explanation(str):
    """An explanation of a query as text; ``sections`` are its lines by title."""

    sections: dict[str, list[str]]

    @classmethod
    def of(cls, sections: dict[str, list[str]]) -> Explanation:
        """Build an explanation from lines by title."""
        text = "\n\n".join(
            "\n".join([title, *(f"  {text}".rstrip() for text in lines)]) for title, lines in sections.items()
        )
        made = cls(text)
        made.sections = sections
        return made

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return "".join(html.folded(title, "\n".join(lines)) for title, lines in self.sections.items())


def explain(
    query: Query,
    degrees: Degrees | None = None,
    accents: Sequence[str] = (),
    *,
    given: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Explanation:
    """Explain how a query is answered. Its parameters may be open, or bound to the values ``given``.

    With ``degrees``, the highest degree of each stored attribute, equations are written out. ``accents`` are lines about those
    of its streams (:mod:`pulse.plan.accents.query_effects`), ``notes`` are limitations of the answer.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Comparison, Constant
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.scan import Scan
    >>> high = Filter(Scan("S", "S", Columns((), ("x",))), Comparison(">", Column("S.x"), Constant(5)))
    >>> print(explain(Query(high, ("S.x",), every=2_000_000)))
    logical plan
      Filter S.x > 5
        Scan S as S
    <BLANKLINE>
    rewritten plan
      the same
    <BLANKLINE>
    equation systems
      S.x > 5
      S.x - 5 > 0
      S.x(t) - 5 > 0
      Σ S.x[i]·tⁱ - 5 > 0
    <BLANKLINE>
    fragments and exchanges
      1: reads S; no exchange
        Filter S.x > 5
          Scan S as S
    <BLANKLINE>
    revisions
      radius: none; a result depends on its own instant alone
      Scan S as S: its connection point; the anchor of everything above
      Filter S.x > 5: stateless; a revised row is all it needs
    <BLANKLINE>
    answer
      columns: S.x
      tuples: every 2 s (SAMPLE EVERY)
    """
    rewritten = optimise(query.plan)
    sections = {
        "logical plan": show(query.plan).splitlines(),
        "rewritten plan": ["the same"] if rewritten == query.plan else show(rewritten).splitlines(),
        "equation systems": list(_equations(rewritten, degrees)) or ["none: nothing is solved or aggregated"],
        "fragments and exchanges": list(_fragments(place_exchanges(rewritten))),
        "revisions": list(explain_modes(optimise(query.plan, mirror=False))),
        **({"accents": list(accents)} if accents else {}),
        "answer": list(_answer(query, given or {})),
        **({"notes": list(notes)} if notes else {}),
    }
    return Explanation.of(sections)


def _equations(plan: Node, degrees: Degrees | None) -> Iterator[str]:
    for i, system in enumerate(equation_systems(plan, degrees)):
        if i:
            yield ""
        yield from system.lines


def _fragments(plan: Node) -> Iterator[str]:
    parts = fragments(plan)
    number = {fragment.root: i for i, fragment in enumerate(parts, 1)}
    for fragment in parts:
        alone = "; no exchange" if len(parts) == 1 else ""
        yield f"{number[fragment.root]}: {_source(fragment, number)}{alone}"
        yield from _tree(fragment.root, number, "  ")


def _source(fragment: Fragment, number: dict[Node, int]) -> str:
    if fragment.stream is not None:
        return f"reads {fragment.stream}"
    shuffled = "; ".join(f"{number[one.input]} {one.partitions}" for one in fragment.exchanges)
    return f"takes shuffled input: {shuffled}"


def _tree(node: Node, number: dict[Node, int], indent: str) -> Iterator[str]:
    if node.is_leaf and node.inputs:
        yield f"{indent}from {number[node.inputs[0]]}"
        return
    yield indent + node.label
    for one in node.inputs:
        yield from _tree(one, number, indent + "  ")


def _answer(query: Query, given: Mapping[str, Any]) -> Iterator[str]:
    yield f"columns: {', '.join(query.select)}"
    yield f"tuples: {_rate(query)}"
    if given:
        yield f"parameters: {', '.join(f':{name} = {_shortened(value)}' for name, value in given.items())}"
    if query.parameters:
        yield f"parameters: {', '.join(f':{name}' for name in query.parameters)}"
    for name, bound in query.errors:
        yield f"error within {bound} on {name or 'every modelled column'}"
    if query.possible:
        yield "possible ranges are given as well"


def _rate(query: Query) -> str:
    if query.plan.columns.points:
        return "at their own instants, as they are points"
    if query.every is not None:
        return f"every {duration(query.every)} (SAMPLE EVERY)"
    advances = tuple(dict.fromkeys(query.plan.advances))
    known = [one for one in advances if isinstance(one, int)]
    if not advances:
        return "none without a rate: no window advances; add SAMPLE EVERY, or ask for segments"
    if len(known) < len(advances):
        return f"at common multiples of {', '.join(map(duration, advances))}"
    return f"every {format_duration(math.lcm(*known))}, as its windows advance"


def _shortened(value: Any) -> str:
    """Return the text of a parameter's value, the beginning of a long one such as an area."""
    text = str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"

"""Plans of several operators on accented streams of rows: a tree, fed element by element (semantics 8.2, 8.5).

The reference that the engine on segments is compared with; see :mod:`tests.oracles.algebra`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pulse.stream.accents.accents import Accent, Punctuation
from pulse.stream.descriptions.description import NO_PROMISES, Domain
from pulse.stream.propagation.receive import AbortedError, receive
from pulse.stream.propagation.state import Mode, State
from tests.oracles.algebra import Operator
from tests.oracles.content import StreamElement


class Source:
    """A leaf: an input stream, by its first schema and what is promised of it."""

    def __init__(self, name: str, attributes: Collection[str], domain: Domain = NO_PROMISES) -> None:
        self.name, self.attributes, self.domain = name, tuple(attributes), domain

    def push(self, name: str, element: StreamElement) -> list[StreamElement]:
        """Its own elements as they are."""
        return [element] if name == self.name else []

    def finish(self) -> list[StreamElement]:
        """Nothing is kept."""
        return []


class Node:
    """An operator over nodes and sources; ``attributes`` are those of its output at the beginning.

    >>> from tests.oracles.algebra import Select
    >>> query = Node(Select("t", "<", 100), Source("sensors", ["s", "t"]))
    >>> [str(out) for out in run(query, [("sensors", Accent.parse("[[true, alter(t, y + 50)]]")), ("sensors", {"t": 149})])]
    ['[[true, alter(t, y + 50, y - 50)]]', "{'t': 149}"]
    """

    def __init__(self, operator: Operator, *inputs: Node | Source, mode: Mode = "accumulate") -> None:
        self.operator, self.inputs = operator, inputs
        signature = operator.signature()
        schemas, domains = [one.attributes for one in inputs], [one.domain for one in inputs]
        self.attributes: tuple[str, ...] = signature.attributes(*schemas)
        self.domain: Domain = signature.domain(*domains)
        self.state = State.start(signature, *schemas, domain=signature.common(*domains), mode=mode)
        self.memory = operator.begin()

    def push(self, name: str, element: StreamElement) -> list[StreamElement]:
        """What comes out when an element of a source comes in."""
        return [
            out
            for side, one in enumerate(self.inputs)
            for inner in one.push(name, element)
            for out in self._take(side, inner)
        ]

    def finish(self) -> list[StreamElement]:
        """What comes out at the end of all sources."""
        found = [
            out
            for side, one in enumerate(self.inputs)
            for inner in one.finish()
            for out in self._take(side, inner)
        ]
        return [*found, *self.operator.flushed(self.memory, lambda row: True)]

    def _take(self, side: int, element: StreamElement) -> list[StreamElement]:
        if not isinstance(element, (Accent, Punctuation)):
            return list(self.operator.row(self.memory, self.state, side, element))
        if isinstance(element, Accent):
            self.operator.arrived(self.memory, self.state, side, element)
        self.state, step = receive(self.state, side, element)
        if step.abort:
            raise AbortedError(step.abort)
        found: list[StreamElement] = []
        for out in step.passed:
            if isinstance(out, Accent):
                self.operator.passed(self.memory, self.state, out)
            else:
                found += self.operator.flushed(self.memory, out.description.matches)
            found.append(out)
        return found


def run(query: Node, elements: Iterable[tuple[str, StreamElement]]) -> list[StreamElement]:
    """What a query gives for elements of its sources, in their order of arrival, to the end.

    An :class:`AbortedError` names operator, attribute and accent where the query cannot go on.
    """
    found: list[StreamElement] = []
    for name, element in elements:
        found += query.push(name, element)
    return [*found, *query.finish()]

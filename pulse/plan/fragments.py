"""Split a plan with exchanges into fragments: each runs as one unit of work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pulse.operators.node import Node
from pulse.operators.relational.exchange import Exchange
from pulse.operators.relational.scan import Scan


@dataclass(frozen=True)
class Fragment:
    """The nodes from ``root`` down to its ``inputs``: scans of one stream, or exchanges (whose input is another's root)."""

    root: Node
    inputs: tuple[Exchange | Scan, ...]

    @property
    def stream(self) -> str | None:
        """Return the stream it reads; None if its input is exchanged."""
        return next((leaf.stream for leaf in self.inputs if isinstance(leaf, Scan)), None)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Return the exchanges it reads; none if it reads a stream."""
        return tuple(leaf for leaf in self.inputs if isinstance(leaf, Exchange))


def leaves(root: Node) -> tuple[Exchange | Scan, ...]:
    """Return the scans and exchanges that a fragment ends at, from left to right, each once."""
    return tuple(dict.fromkeys(_leaves(root)))


def _leaves(node: Node) -> Iterator[Exchange | Scan]:
    if isinstance(node, (Exchange, Scan)):
        yield node
        return
    for one in node.inputs:
        yield from _leaves(one)


def fragments(plan: Node) -> tuple[Fragment, ...]:
    """Return all fragments, each after its inputs, the plan's root last. Equal ones come once.

    >>> import pyarrow as pa
    >>> from pulse.core.columns import Columns
    >>> from pulse.plan.exchanges import place_exchanges
    >>> from pulse.operators.across.across import Across
    >>> prices = Scan("S", "S", Columns((("symbol", pa.string()),), ("price",)))
    >>> [one.stream for one in fragments(place_exchanges(Across(prices, "max", "S.price", "top", ())))]
    ['S', None]
    """
    found: dict[Node, Fragment] = {}

    def visit(root: Node) -> None:
        if root in found:
            return
        inputs = leaves(root)
        for leaf in inputs:
            if isinstance(leaf, Exchange):
                visit(leaf.input)
        found[root] = Fragment(root, inputs)

    visit(plan)
    return tuple(found.values())

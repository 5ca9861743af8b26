"""Split a plan with exchanges into fragments: each runs as one unit of work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pulse.operators.node import Node
from pulse.operators.relational.exchange import Exchange, exchanges_among
from pulse.operators.relational.scan import Scan, scans_among


@dataclass(frozen=True)
class Fragment:
    """The nodes from ``root`` down to its ``inputs``: scans of one stream, or exchanges (whose input is another's root)."""

    root: Node
    inputs: tuple[Node, ...]

    @property
    def stream(self) -> str | None:
        """Return the stream it reads; None if its input is exchanged."""
        return next((leaf.stream for leaf in self.scans), None)

    @property
    def scans(self) -> tuple[Scan, ...]:
        """Return the scans of the stream it reads; none if its input is exchanged."""
        return scans_among(self.inputs)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Return the exchanges it reads; none if it reads a stream."""
        return exchanges_among(self.inputs)


def leaves(root: Node) -> tuple[Node, ...]:
    """Return the scans and exchanges that a fragment ends at, from left to right, each once."""
    return tuple(dict.fromkeys(_leaves(root)))


def _leaves(node: Node) -> Iterator[Node]:
    if node.is_leaf:
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
            for below in leaf.inputs:
                visit(below)
        found[root] = Fragment(root, inputs)

    visit(plan)
    return tuple(found.values())

"""Exchange: change the partitions of rows, by key columns or by a space-time grid.

1 Transforms: no row. A grid repeats rows in every place that may need them, and each result is computed in one place only
  (:mod:`pulse.operators.relational.spatial_grid`).
2 Bounds: stay.
3 Inverts: passes the bound on.
4 Revises: passes revisions on.
5 Accents: have been propagated before exchanges are placed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from pulse.core.expression import Expression
from pulse.operators.inversion.fit import Fit
from pulse.operators.labels import duration
from pulse.operators.node import Duration, Node, Unary, plan_node, walk
from pulse.operators.parameters import NodePart
from pulse.operators.placement import Pairs, Placement

SHORTEST_BUCKET = 1_800_000_000
"""Half an hour: the shortest time range of a grid cell."""
BUCKET_PER_MARGIN = 3
"""The minimum ratio of a bucket to its margin, so that the next bucket repeats at most a third of the work."""


@dataclass(frozen=True)
class Grid(NodePart):
    """A space-time grid: a key's model between two bucket edges goes to all cells its bounding box touches.

    ``position`` are the two modelled columns; None: by time only. ``bucket`` and ``margin`` in microseconds: a bucket
    ``[B, B + bucket)`` covers the closing times in it and receives the data in ``[B - margin, B + bucket)``. ``reach`` is the
    distance within which pairs matter.
    """

    position: tuple[str, str] | None
    reach: Expression | None
    bucket: Duration
    margin: tuple[Duration, ...]  # summed: the windows above
    stretch: float = 1.0  # of the reach, as in :class:`Near`

    durations: ClassVar = {"bucket": "bucket", "margin": "window size"}

    @classmethod
    def below(
        cls,
        windows: tuple[Duration, ...],
        position: tuple[str, str] | None = None,
        reach: Expression | None = None,
        stretch: float = 1.0,
    ) -> Grid:
        """Return a grid below windows; its buckets are long compared with their sizes, as far as these are known."""
        known = sum(size for size in windows if isinstance(size, int))
        return cls(position, reach, max(SHORTEST_BUCKET, BUCKET_PER_MARGIN * known), windows, stretch)


@plan_node
class Exchange(Unary):
    """A change of partitions: ``by`` names the key columns that bring rows together (none: all to one), or a grid."""

    by: tuple[str, ...] | Grid

    # -- evaluation -----------------------------------------------------------------------------------------

    is_leaf = True

    @property
    def of_one_instant(self) -> bool:
        return not isinstance(self.by, Grid)

    # -- rewriting ------------------------------------------------------------------------------------------

    def prune_columns(self, wanted: set[str]) -> Node:
        return self.with_inputs((self.input.prune_columns(wanted),))

    # -- inversion ------------------------------------------------------------------------------------------

    def input_fit(self, fit: Fit) -> Fit:
        return fit

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        return f"Exchange {self.partitions}"

    @property
    def partitions(self) -> str:
        """Describe the columns or the grid that rows are partitioned by."""
        if not isinstance(self.by, Grid):
            return f"by {', '.join(self.by)}" if self.by else "all to one"
        grid = self.by
        text = "by time" if grid.position is None else f"by time and ({', '.join(grid.position)})"
        text += f" in buckets of {duration(grid.bucket)}"
        if grid.margin:
            text += f" after {' + '.join(map(duration, grid.margin))}"
        return text if grid.reach is None else f"{text}, reach {grid.reach}"


def by_equal_keys(
    left: tuple[Node, Placement], right: tuple[Node, Placement], equal: Pairs
) -> tuple[tuple[Node, Node], Placement]:
    """Bring rows with ``equal`` keys of two placed inputs together, with exchanges of those that are not.

    An exchanged side whose columns are all among the equal ones stays in place; the other is exchanged to match.
    """
    (a, at), (b, other) = left, right
    together = at.joined(other, equal)
    if together is not None:
        return (a, b), together
    pairs = at.matching(equal)
    swapped = other.matching(tuple((there, here) for here, there in equal))
    if pairs is not None:
        b = Exchange(b, tuple(there for _, there in pairs))
    elif swapped is not None:
        pairs = tuple((here, there) for there, here in swapped)
        a = Exchange(a, tuple(here for here, _ in pairs))
    else:
        pairs = equal
        a, b = Exchange(a, tuple(here for here, _ in pairs)), Exchange(b, tuple(there for _, there in pairs))
    return (a, b), Placement(None, tuple(frozenset(pair) for pair in pairs))


def exchanges(node: Node) -> tuple[Exchange, ...]:
    """Return the exchanges of a plan, from left to right."""
    return exchanges_among(walk(node))


def exchanges_among(nodes: Iterable[Node]) -> tuple[Exchange, ...]:
    """Return those of the nodes that are exchanges."""
    return tuple(one for one in nodes if isinstance(one, Exchange))

"""Place :class:`~pulse.operators.relational.exchange.Exchange` nodes where rows must change partitions.

A **fragment** is what lies between exchanges. Its leaves are either scans of one single stream, which the workers read key by
key, or only exchanges. ::

    Project                              one fragment; its leaves are exchanges
      Window                             (a window on pairs keeps the pairs: no exchange)
        Join
          Exchange by grid               -- cut --
            Scan objects as R            one fragment: whole keys of one stream
          Exchange by grid               -- cut --
            Scan objects as S            one fragment

The placement of rows decides. A **place** lists the key columns that bring rows together: a stored stream is partitioned by its
stored key, exchanged rows by the exchange's columns. Rows that must meet and are partitioned by the same columns need no
exchange (MACD: both windows are of one stream, joined by its whole key). A grid brings together what is near, not equal keys,
so above it only work per key is in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pulse.core.expression import Column, columns_of
from pulse.operators.across.across import Across
from pulse.operators.node import Duration, Node, PlanError, walk
from pulse.operators.relational.exchange import Exchange, Grid
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.mirror import Mirror
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window

SHORTEST_BUCKET = 1_800_000_000
"""Half an hour: the shortest time range of a grid cell."""

BUCKET_PER_MARGIN = 3
"""The minimum ratio of a bucket to its margin, so that the next bucket repeats at most a third of the work."""


@dataclass(frozen=True)
class Placement:
    """Which rows lie together: those with equal values in all of ``parts``.

    Each part is a set of key columns with the same value, by their names here. ``source`` is the stream whose stored layout it
    is, None for exchanged rows. ``parts`` is None for a grid.
    """

    source: str | None
    parts: tuple[frozenset[str], ...] | None

    def holds(self, by: tuple[str, ...]) -> bool:
        """Check whether rows with equal ``by`` lie together."""
        return self.parts is not None and all(part & set(by) for part in self.parts)


def place_exchanges(plan: Node) -> Node:
    """Insert exchanges where rows must meet that do not lie together.

    The plan must be bound and optimised. (With open parameters a grid's bucket counts the known sizes only.)

    >>> import pyarrow as pa
    >>> from pulse.core.columns import Columns
    >>> from pulse.plan.show import show
    >>> prices = Scan("S", "S", Columns((("symbol", pa.string()),), ("price",)))
    >>> print(show(place_exchanges(Across(prices, "max", "S.price", "top", ()))))
    Across top = max(S.price) [merge]
      Exchange all to one
        Across top = max(S.price) [partial]
          Scan S as S
    """
    return _place(plan, ())[0]


def _place(node: Node, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
    """Return a subtree with its exchanges, and its placement. ``above`` are the windows up to the root of its fragment."""
    if isinstance(node, Scan):
        stored = node.stored.key_names
        source = (
            node.stream if node.at is None else f"{node.stream} {node.at}"
        )  # versions may be partitioned differently
        return node, Placement(source, tuple(frozenset({f"{node.alias}.{name}"}) for name in stored))
    if isinstance(node, Filter):
        below, place = _place(node.input, above)
        return node.with_inputs((below,)), place
    if isinstance(node, Window):
        below, place = _place(node.input, (*above, node.size))
        return node.with_inputs((below,)), place
    if isinstance(node, Project):
        below, place = _place(node.input, above)
        return node.with_inputs((below,)), _projected(place, node)
    if isinstance(node, Mirror):
        # A mirrored row lies with its original, regardless of its own keys: as on a grid.
        below, _ = _place(node.input, above)
        return node.with_inputs((below,)), Placement(None, None)
    if isinstance(node, Across):
        return _across(node)
    if isinstance(node, Join):
        return _join(node, above)
    if isinstance(node, Union):
        return _union(node)
    raise PlanError(f"plan: no exchanges can be placed around {type(node).__name__}; it has them already")


def _projected(place: Placement, node: Project) -> Placement:
    if place.parts is None:
        return place
    named = [(name, e.name) for name, e in node.outputs if isinstance(e, Column)]
    renamed = {old for _, old in named} | {name for name, _ in node.hidden}
    return Placement(
        place.source,
        tuple(
            frozenset({new for new, old in named if old in part} | (part - renamed)) for part in place.parts
        ),
    )


def _exchanged(by: tuple[str, ...]) -> Placement:
    return Placement(None, tuple(frozenset({name}) for name in by))


def _across(node: Across) -> tuple[Node, Placement]:
    """Aggregate partially below the exchange and merge above it; neither where a group already lies together.

    A mean of rows chosen by a predicate on models has no partial results: its bound where some rows are in doubt depends on
    their values, not on partial sums and counts, whose combined bounds are far wider.
    """
    below, place = _place(node.input, ())
    if place.parts is not None and place.holds(node.by):
        kept = tuple(part & frozenset(node.by) for part in place.parts)
        return node.with_inputs((below,)), Placement(place.source, kept)
    if node.function == "avg" and _chosen_by_models(node.input):
        return node.with_inputs((Exchange(below, node.by),)), _exchanged(node.by)
    partial = replace(node, input=below, phase="partial")
    return replace(node, input=Exchange(partial, node.by), phase="merge"), _exchanged(node.by)


def _chosen_by_models(node: Node) -> bool:
    """Check whether a predicate on modelled attributes lies below: then the set of rows may be in doubt."""
    for one in walk(node):
        if isinstance(one, Filter) and columns_of(one.predicate) & set(one.input.columns.modelled):
            return True
        if isinstance(one, Join) and columns_of(one.condition) & {
            *one.left.columns.modelled,
            *one.right.columns.modelled,
        }:
            return True
    return False


def _join(node: Join, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
    (left, at), (right, other) = _place(node.left, ()), _place(node.right, ())
    if _meet(at, other, node.equal):
        assert at.parts is not None
        assert other.parts is not None
        parts = tuple(a | b for a, b in zip(at.parts, other.parts, strict=True))
        return node.with_inputs((left, right)), Placement(at.source, parts)
    if not node.equal:
        return node.with_inputs(_on_grid(node, left, right, above)), Placement(None, None)
    # An exchanged side whose columns are all joined on stays in place; the other is exchanged to match.
    pairs = _matching(at, node.equal)
    swapped = _matching(other, tuple((b, a) for a, b in node.equal))
    if pairs is None and swapped is not None:
        pairs = tuple((a, b) for b, a in swapped)
        left = Exchange(left, tuple(a for a, _ in pairs))
    elif pairs is not None:
        right = Exchange(right, tuple(b for _, b in pairs))
    else:
        pairs = node.equal
        left, right = Exchange(left, tuple(a for a, _ in pairs)), Exchange(right, tuple(b for _, b in pairs))
    return node.with_inputs((left, right)), Placement(None, tuple(frozenset(pair) for pair in pairs))


def _meet(at: Placement, other: Placement, equal: tuple[tuple[str, str], ...]) -> bool:
    """Check whether rows of two placements that agree in ``equal`` lie together: equal pairs for all parts of both."""
    if at.source != other.source or at.parts is None or other.parts is None:
        return False
    return len(at.parts) == len(other.parts) and all(
        any(a in here and b in there for a, b in equal)
        for here, there in zip(at.parts, other.parts, strict=True)
    )


def _matching(at: Placement, equal: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...] | None:
    """Return the pair of ``equal`` for each part of an exchanged placement; None if one is missing."""
    if at.source is not None or not at.parts:
        return None
    found = [next((pair for pair in equal if pair[0] in part), None) for part in at.parts]
    pairs = tuple(pair for pair in found if pair is not None)
    return pairs if len(pairs) == len(found) else None


def _on_grid(node: Join, left: Node, right: Node, above: tuple[Duration, ...]) -> tuple[Node, Node]:
    known = sum(size for size in above if isinstance(size, int))
    bucket = max(SHORTEST_BUCKET, BUCKET_PER_MARGIN * known)
    near = node.near
    if near is None:
        return Exchange(left, Grid(None, None, bucket, above)), Exchange(
            right, Grid(None, None, bucket, above)
        )
    return (
        Exchange(left, Grid(near.left, near.reach, bucket, above, near.stretch)),
        Exchange(right, Grid(near.right, near.reach, bucket, above, near.stretch)),
    )


def _union(node: Union) -> tuple[Node, Placement]:
    """Leave members in place if all are of one stream and name its stored key by the same columns; else exchange them by key."""
    placed = [_place(member, ()) for member in node.members]
    first = placed[0][1]
    by_position = [_positions(place, member) for member, place in placed]
    if (
        first.source is not None
        and all(place.source == first.source for _, place in placed)
        and by_position[0] is not None
        and all(positions == by_position[0] for positions in by_position)
    ):
        return node.with_inputs(tuple(member for member, _ in placed)), first
    members = tuple(Exchange(member, member.columns.key_names) for member, _ in placed)
    return node.with_inputs(members), _exchanged(members[0].columns.key_names)


def _positions(place: Placement, node: Node) -> tuple[frozenset[int], ...] | None:
    """Return the positions in the key of each part's columns."""
    if place.parts is None:
        return None
    names = node.columns.key_names
    return tuple(frozenset(names.index(name) for name in part) for part in place.parts)

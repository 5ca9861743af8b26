"""The nodes of a logical plan: immutable, typed by :class:`~pulse.core.columns.Columns`, compared by structure.

Equal nodes are the same computation: a fragment evaluates a scan once that a query names twice, and a sweep shares a window
among variants. Keys are never projected away before the end: modelled attributes depend on key and time everywhere in a plan
(semantics 1.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, dataclass_transform

import pyarrow as pa

from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.core.expression import TRUE, Column, Constant, Expression, Parameter
from pulse.core.schema import Role
from pulse.core.time import format_instant

FUNCTIONS = ("min", "max", "sum", "avg")

N = TypeVar("N")

Duration = int | Parameter
"""Microseconds, or a parameter for them."""


class PlanError(PulseError, ValueError):
    """A syntactically valid query without a meaning."""


@dataclass_transform(frozen_default=True)
def _node(cls: type[N]) -> type[N]:
    """Make a frozen dataclass that caches its hash: nodes are often looked up, and hash their whole plan."""
    made = dataclass(frozen=True)(cls)
    plain = made.__hash__

    def cached(self: N) -> int:
        known = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = plain(self)
        return int(known)

    made.__hash__ = cached  # type: ignore[method-assign, assignment]
    return made


@_node
class Node:
    """A node of a plan."""

    def __getstate__(self) -> dict[str, Any]:
        """Omit the hash: texts hash differently in another process."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Return the nodes whose output this one takes."""
        return ()

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        """Return the same node over other inputs."""
        assert not inputs
        return self

    @property
    def columns(self) -> Columns:
        """Return the columns of the node's output."""
        raise NotImplementedError


@dataclass(frozen=True)
class AsOf:
    """The state of a stored stream to read: a version of its model, or a known time (microseconds); one of the two."""

    version: int | Parameter | None = None
    time: int | Parameter | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"as of version {self.version}"
        return (
            f"as of {self.time}"
            if isinstance(self.time, Parameter)
            else f"as of '{format_instant(self.time or 0)}'"
        )


@_node
class Scan(Node):
    """A stored stream, its attributes named ``alias.attribute``.

    ``stored`` are all attributes by their own names; ``attributes`` those (modelled or unmodelled) that are read, None for all.
    Only ``[start, end)`` (microseconds) is read, and only keys that satisfy ``keys`` (a predicate over ``alias.key`` columns).
    ``models`` is the MODEL clause: attribute (own name) and its expression, over ``alias.attribute`` columns and
    :class:`~pulse.core.expression.Elapsed`. ``at`` is the AS OF clause; without it the stream is read as it is now.
    """

    stream: str
    alias: str
    stored: Columns
    models: tuple[tuple[str, Expression], ...] = ()
    attributes: tuple[str, ...] | None = None
    start: int | None = None
    end: int | None = None
    keys: Expression = TRUE
    at: AsOf | None = None

    @cached_property
    def columns(self) -> Columns:
        own = self.stored
        made = tuple(name for name, _ in self.models)
        modelled = (*(n for n in own.modelled if n not in made), *made)
        unmodelled = tuple((n, type_) for n, type_ in own.unmodelled if n not in made)
        if self.attributes is not None:
            modelled = tuple(n for n in modelled if n in self.attributes)
            unmodelled = tuple((n, type_) for n, type_ in unmodelled if n in self.attributes)
        return Columns(own.key, modelled, unmodelled, own.time, own.points).prefixed(self.alias)


@_node
class _Unary(Node):
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, input=inputs[0])


@_node
class Filter(_Unary):
    """The times at which ``predicate`` holds."""

    predicate: Expression

    @property
    def columns(self) -> Columns:
        return self.input.columns


@_node
class Project(_Unary):
    """New names and expressions; a key that no output names is carried through under its old name.

    An output that is a column keeps its role; a text constant is a key; any other expression is modelled. ``time`` is the name
    of the time attribute from here on. ``hidden`` keys are not carried: they are pairs of a key and an equal one that is.
    """

    outputs: tuple[tuple[str, Expression], ...]
    time: str
    hidden: tuple[tuple[str, str], ...] = ()

    @cached_property
    def columns(self) -> Columns:
        before = self.input.columns
        key: list[tuple[str, pa.DataType]] = []
        modelled: list[str] = []
        unmodelled: list[tuple[str, pa.DataType]] = []
        named: set[str] = set()
        for name, expression in self.outputs:
            role = before.role(expression.name) if isinstance(expression, Column) else None
            if isinstance(expression, Column) and role is Role.KEY:
                key.append((name, before.type_of(expression.name)))
                named.add(expression.name)
            elif isinstance(expression, Column) and role is Role.UNMODELLED:
                unmodelled.append((name, before.type_of(expression.name)))
            elif isinstance(expression, Constant) and isinstance(expression.value, str):
                key.append((name, pa.string()))
            else:
                modelled.append(name)
        gone = named | {name for name, _ in self.hidden}
        carried = tuple((name, type_) for name, type_ in before.key if name not in gone)
        return Columns((*key, *carried), tuple(modelled), tuple(unmodelled), self.time, before.points)


@dataclass(frozen=True)
class Near:
    """Two positions that a predicate requires within ``reach`` of each other, for the grid of a pair join.

    ``left`` and ``right`` are the columns (x, y) of each side. ``window`` is 0 where the predicate bounds the distance at the
    instant itself; else microseconds: it bounds the average over a window that long, so the smallest distance in it.
    ``stretch`` is the factor by which the plane of the positions may lengthen a distance (:class:`pulse.core.plane.Plane`).
    """

    left: tuple[str, str]
    right: tuple[str, str]
    reach: Expression
    window: Duration = 0
    stretch: float = 1.0


@_node
class Join(Node):
    """The common times of two inputs (semantics 3.4) with the keys in ``equal`` equal, where the condition holds.

    ``equal`` pairs key columns (left, right); both are kept. ``condition`` may compare keys, modelled and unmodelled attributes
    of both. ``near``, set by a rewrite rule, limits the pairs that can matter.
    """

    left: Node
    right: Node
    equal: tuple[tuple[str, str], ...] = ()
    condition: Expression = TRUE
    near: Near | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, left=inputs[0], right=inputs[1])

    @cached_property
    def columns(self) -> Columns:
        a, b = self.left.columns, self.right.columns
        modelled, unmodelled = (*a.modelled, *b.modelled), (*a.unmodelled, *b.unmodelled)
        return Columns((*a.key, *b.key), modelled, unmodelled, a.time, a.points or b.points)


@_node
class Union(Node):
    """The segments of all inputs, which have the same columns. A key that two inputs have at the same time is an error."""

    members: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.members

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return Union(inputs)

    @property
    def columns(self) -> Columns:
        return self.members[0].columns


@_node
class Intersect(Node):
    """The times at which both inputs, which have the same columns, have the same row: equal keys and equal attributes."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return Intersect(*inputs)

    @property
    def columns(self) -> Columns:
        return self.left.columns


@_node
class Across(_Unary):
    """``function`` of ``argument`` over all keys that share ``by``, at each instant: envelope, sum or mean of those present.

    ``each``, of points, leaves them unchanged: a window above is over the tuples of all these keys.

    The output is named ``output``. ``by`` are key columns of the input. With ``partial`` the input holds partial results of the
    same function (for ``avg``: sums and counts), which are merged.
    """

    function: str
    argument: str
    output: str
    by: tuple[str, ...]
    phase: str = "whole"  # or "partial" (below an exchange) and "merge" (above it)

    @cached_property
    def columns(self) -> Columns:
        before = self.input.columns
        key = tuple((name, type_) for name, type_ in before.key if name in self.by)
        modelled = (
            (self.output, f"{self.output}#count")
            if self.phase == "partial" and self.function == "avg" and not before.points
            else (self.output,)
        )
        return Columns(key, modelled, (), before.time, before.points)


@_node
class Window(_Unary):
    """``function`` of ``argument`` per key over ``[t - size, t)``, as a function of the closing time ``t`` (3.5, 3.6).

    Over points it aggregates the tuples in the window (7.8), and may be ``count``.
    """

    function: str
    argument: str
    output: str
    size: Duration
    advance: Duration | None

    @cached_property
    def columns(self) -> Columns:
        before = self.input.columns
        return Columns(before.key, (self.output,), (), before.time)


@_node
class Mirror(_Unary):
    """The input's rows, and the same rows with the two columns of each of ``swaps`` exchanged; other columns stay.

    The columns of a swap have one role and type. After the exchange no key of the input may equal another's, or its own: the
    pairs of a stream with itself are solved one way round, ``R.id < S.id``, and mirrored.
    """

    swaps: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> Columns:
        return self.input.columns

    @property
    def exchanged(self) -> dict[str, str]:
        """Return for each column of a swap the other."""
        return dict(self.swaps) | {b: a for a, b in self.swaps}


@dataclass(frozen=True)
class Grid:
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


@_node
class Exchange(_Unary):
    """A change of partitions: ``by`` names the key columns that bring rows together (none: all to one), or a grid."""

    by: tuple[str, ...] | Grid

    @property
    def columns(self) -> Columns:
        return self.input.columns


def transform(node: Node, change: Callable[[Node], Node]) -> Node:
    """Apply ``change`` to every node of a plan, inputs first."""
    inputs = tuple(transform(one, change) for one in node.inputs)
    return change(node if inputs == node.inputs else node.with_inputs(inputs))


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all below it."""
    yield node
    for one in node.inputs:
        yield from walk(one)


def as_of(node: Node, at: AsOf) -> Node:
    """Read all streams without their own AS OF clause at the given state.

    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> as_of(Join(scan, as_of(scan, AsOf(version=2))), AsOf(version=5)).right.at
    AsOf(version=2, time=None)
    """

    def change(one: Node) -> Node:
        return replace(one, at=at) if isinstance(one, Scan) and one.at is None else one

    return transform(node, change)


def scans(node: Node) -> tuple[Scan, ...]:
    """Return the scans of a plan, from left to right."""
    return tuple(one for one in walk(node) if isinstance(one, Scan))

"""Describe the attributes on an arc of a plan by role, without the rules of a stored stream.

Inside a plan an attribute is prefixed by its alias, ``R.x``, so that both sides of a join stay distinct; the last
projection gives the names that the user sees. Unlike a :class:`~pulse.core.schema.StreamSchema` an arc may have no
modelled attribute: a query may select only keys and times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from pulse.core.arrow_types import COEFFICIENTS, REF
from pulse.core.errors import unknown_column
from pulse.core.plane import Plane
from pulse.core.schema import LINEAGE, UNDECLARED, Role, StreamClock, StreamSchema


@dataclass(frozen=True)
class Columns:
    """Attributes by role, in order. ``key`` and ``unmodelled`` are (name, Arrow type) pairs; ``time`` is the time of tuples.

    ``points``: values are defined only at single instants, as are the tuples of a stream that is kept as points.
    ``flows``: the modelled attributes that are running totals, each with whether it counts the tuples. ``instants``: those that
    are instants, in seconds from the row's own time; tuples show them as timestamps. Of a stored stream only:
    ``plane``, the plane that its positions were projected to, ``certainty``, whether its segments have a certainty of their own,
    and ``clock``, its zone and exchange.
    """

    key: tuple[tuple[str, pa.DataType], ...]
    modelled: tuple[str, ...]
    unmodelled: tuple[tuple[str, pa.DataType], ...] = ()
    time: str = "t"
    points: bool = False
    plane: Plane | None = field(default=None, compare=False)
    flows: tuple[tuple[str, bool], ...] = field(default=(), compare=False)
    instants: tuple[str, ...] = field(default=(), compare=False)
    certainty: bool = False
    clock: StreamClock = field(default=UNDECLARED, compare=False)

    @classmethod
    def of(cls, schema: StreamSchema) -> Columns:
        """Return the attributes of a stored stream, by their own names."""
        flows = tuple((name, schema.counts_tuples(name)) for name in schema.flow_names)
        return cls(
            schema.key,
            schema.modelled_names,
            schema.unmodelled,
            schema.time,
            schema.points,
            schema.plane,
            flows,
            certainty=schema.certainty,
            clock=schema.clock,
        )

    @cached_property
    def flow_names(self) -> tuple[str, ...]:
        """Return the attributes that are running totals."""
        return tuple(name for name, _ in self.flows)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Return the key's columns, in order."""
        return tuple(name for name, _ in self.key)

    @cached_property
    def unmodelled_names(self) -> tuple[str, ...]:
        """Return the unmodelled attributes, in order."""
        return tuple(name for name, _ in self.unmodelled)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return key, modelled and unmodelled attributes; not the time."""
        return (*self.key_names, *self.modelled, *self.unmodelled_names)

    def role(self, name: str) -> Role:
        """Return the attribute's role; raise :func:`~pulse.core.errors.unknown_column` if there is none of this name."""
        if name in self.key_names:
            return Role.KEY
        if name in self.modelled:
            return Role.MODELLED
        if name in self.unmodelled_names:
            return Role.UNMODELLED
        if name == self.time:
            return Role.TIME
        raise unknown_column(name, self.names, "query")

    def type_of(self, name: str) -> pa.DataType:
        """Return the Arrow type of a key or unmodelled attribute, float64 of a modelled one."""
        for other, type_ in (*self.key, *self.unmodelled):
            if other == name:
                return type_
        self.role(name)
        return pa.float64()

    def prefixed(self, alias: str) -> Columns:
        """Return the same attributes as ``alias.name``.

        >>> Columns((), ("x",)).prefixed("R").modelled
        ('R.x',)
        """
        return Columns(
            tuple((f"{alias}.{name}", type_) for name, type_ in self.key),
            tuple(f"{alias}.{name}" for name in self.modelled),
            tuple((f"{alias}.{name}", type_) for name, type_ in self.unmodelled),
            f"{alias}.{self.time}",
            self.points,
            flows=tuple((f"{alias}.{name}", counts) for name, counts in self.flows),
            instants=tuple(f"{alias}.{name}" for name in self.instants),
        )

    def key_text(self, keys: Sequence[pa.Array], group: int) -> str:
        """Format a group's key for errors, without columns that a plan adds (``S.symbol#2``), which equal others.

        >>> arc = Columns((("S.symbol", pa.string()), ("S.symbol#2", pa.string())), ())
        >>> arc.key_text([pa.array(["a"]), pa.array(["a"])], 0)
        "S.symbol='a'"
        """
        parts = zip(self.key_names, keys, strict=True)
        shown = [f"{name}={column[group].as_py()!r}" for name, column in parts if "#" not in name]
        return ", ".join(shown) or "the stream"

    def segment_schema(self, *, lineage: bool = False) -> pa.Schema:
        """Return the columns of result segments: those of a stored stream, and ``certainty``."""
        fields = [*self.key, ("ref", REF), ("lo", pa.float64()), ("hi", pa.float64()), *self.unmodelled]
        for name in self.modelled:
            fields += [(name, COEFFICIENTS), (f"{name}_err", pa.float64()), (f"{name}_drift", pa.float64())]
        fields.append(("certainty", pa.string()))
        return pa.schema([*fields, ("lineage", LINEAGE)] if lineage else fields)

    def tuple_schema(self, select: tuple[str, ...]) -> pa.Schema:
        """Return the columns of sampled tuples: time, the selected attributes, ``a_err`` per modelled one, ``certainty``."""
        types = {name: REF if name in self.instants else self.type_of(name) for name in select}
        fields = [(self.time, REF), *types.items()]
        fields += [(f"{name}_err", pa.float64()) for name in select if name in self.modelled]
        return pa.schema([*fields, ("certainty", pa.string())])

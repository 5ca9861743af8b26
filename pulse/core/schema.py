"""Define the schema of a stream: every attribute is key, time, modelled or unmodelled (semantics 1.3).

The schema is also the only definition of the columns of a batch of segments, in this order::

    key…  ref  lo  hi  unmodelled…  (a  a_err  a_drift  a_err2) per modelled a   [segment_id  lineage  kind  point  certainty]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from pulse.core.arrow_types import COEFFICIENTS, REF, canonical_type
from pulse.core.errors import (
    ColumnTypeError,
    SchemaError,
    SchemaMismatchError,
    UnknownColumnError,
    unknown_column,
)
from pulse.core.plane import Plane

LINEAGE = pa.list_(
    pa.struct(
        [
            ("segment_id", pa.int64()),
            ("key", pa.string()),
            ("ref", REF),
            ("lo", pa.float64()),
            ("hi", pa.float64()),
        ]
    )
)
BOOKKEEPING: dict[str, pa.DataType] = {
    "segment_id": pa.int64(),
    "lineage": LINEAGE,
    "kind": pa.string(),
    "point": pa.bool_(),
    "certainty": pa.string(),
}
RESERVED = ("ref", "lo", "hi", *BOOKKEEPING)


class Truth(StrEnum):
    """The values of a modelled attribute between its tuples (semantics 2.2)."""

    LINEAR = "linear"
    STEP = "step"
    SAMPLES = "samples"
    FLOW = "flow"
    """What adds up: the attribute's model is the running total of the key's values, a step function."""


class Role(StrEnum):
    """The role of an attribute in its stream."""

    KEY = "key"
    TIME = "time"
    MODELLED = "modelled"
    UNMODELLED = "unmodelled"


class StreamClock(NamedTuple):
    """The name of a time zone and the code of an exchange; empty where none is declared.

    >>> StreamClock("America/New_York").to_json()
    {'zone': 'America/New_York'}
    """

    zone: str = ""
    session: str = ""

    @classmethod
    def of(cls, zone: str | None, session: str | None) -> StreamClock:
        """Check the names and return the clock.

        Args:
            zone: The name of a time zone, None for none.
            session: The code of an exchange that has a calendar, None for none.
        """
        from pulse.core.calendar import session_codes  # loads kernels, which reading a schema does not need

        if zone is not None:
            try:
                ZoneInfo(zone)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise SchemaError(
                    f"zone: expected the name of a time zone such as 'America/New_York', got {zone!r}"
                ) from None
        if session is not None and session not in session_codes():
            raise SchemaError(
                f"session: expected the code of an exchange that has a calendar, such as 'XNYS', got {session!r}"
            )
        return cls(zone or "", session or "")

    def to_json(self) -> dict[str, Any]:
        """Encode the names that are declared."""
        return {name: value for name, value in self._asdict().items() if value}


UNDECLARED = StreamClock()
"""The clock of a stream that was declared without any."""


@dataclass(frozen=True)
class StreamSchema:
    """The attributes of a stream by role. Immutable; built by :meth:`of`.

    ``key`` and ``unmodelled`` are (name, Arrow type) pairs, ``modelled`` (name, truth) pairs, in order; ``time`` is the
    name of the time attribute in the source and in samples. Without a key the stream is one single model.
    With ``points`` every tuple is kept as a point (semantics 1.2), and aggregates over time are over tuples: all is ``samples``.
    ``flows`` are the modelled attributes with truth ``flow`` that are computed, with their arithmetic over columns of the source.
    With ``certainty`` each segment has one of its own (semantics 3.9), as those of a saved answer do.
    ``plane`` bounds the distortion of distances between projected positions ``x, y``, ``clock`` is the declared zone and
    exchange; equality of schemas ignores both. Names are unique ignoring case, since Spark does not distinguish ``Price`` from
    ``price``.
    """

    key: tuple[tuple[str, pa.DataType], ...]
    time: str
    modelled: tuple[tuple[str, Truth], ...]
    unmodelled: tuple[tuple[str, pa.DataType], ...] = ()
    points: bool = False
    flows: tuple[tuple[str, str], ...] = ()
    plane: Plane | None = field(default=None, compare=False)
    certainty: bool = False
    clock: StreamClock = field(default=UNDECLARED, compare=False)

    @classmethod
    def of(
        cls,
        *,
        time: str,
        modelled: Mapping[str, str],
        key: Mapping[str, pa.DataType | str] | None = None,
        unmodelled: Mapping[str, pa.DataType | str] | None = None,
        points: bool = False,
        flows: Mapping[str, str] | None = None,
    ) -> StreamSchema:
        """Build a schema from names and types; types may be given by name.

        Computed ``flows`` are modelled, too, and need not be in ``modelled``.

        >>> StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
        StreamSchema(key symbol: string; time t; modelled price: step)
        """
        truths = {**modelled, **{name: modelled.get(name, Truth.FLOW) for name in flows or ()}}
        return cls(
            key=tuple((name, canonical_type(type_, what=name)) for name, type_ in (key or {}).items()),
            time=time,
            modelled=tuple((name, _truth(name, truth)) for name, truth in truths.items()),
            unmodelled=tuple(
                (name, canonical_type(type_, what=name)) for name, type_ in (unmodelled or {}).items()
            ),
            points=points,
            flows=tuple((flows or {}).items()),
        )

    def __post_init__(self) -> None:
        if not self.modelled:
            raise SchemaError("stream schema: at least one attribute must be modelled; name it and its truth")
        for name, type_ in self.key:
            if pa.types.is_floating(type_):
                raise SchemaError(
                    f"stream schema: key '{name}' is {type_}; floats cannot identify a key, cast it to integers or text"
                )
        for name, truth in self.modelled if self.points else ():
            if truth is not Truth.SAMPLES:
                raise SchemaError(
                    f"stream schema: '{name}' is {truth}, so it holds between its tuples; points are for samples"
                )
        for name, _ in self.flows:
            if self.truth(name) is not Truth.FLOW:
                raise SchemaError(
                    f"stream schema: '{name}' is computed as a flow, and modelled as {self.truth(name)}; leave out one of the two"
                )
        _check_names([*self.names, *(c for a, _ in self.modelled for c in certificates(a))])

    @property
    def names(self) -> tuple[str, ...]:
        """Return all attributes: key, time, modelled, unmodelled."""
        return (*self.key_names, self.time, *self.modelled_names, *(name for name, _ in self.unmodelled))

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return the key's columns, in order."""
        return tuple(name for name, _ in self.key)

    @property
    def modelled_names(self) -> tuple[str, ...]:
        """Return the modelled attributes, in order."""
        return tuple(name for name, _ in self.modelled)

    @property
    def unmodelled_names(self) -> tuple[str, ...]:
        """Return the unmodelled attributes, in order."""
        return tuple(name for name, _ in self.unmodelled)

    def role(self, name: str) -> Role:
        """Return the attribute's role.

        >>> StreamSchema.of(time="t", modelled={"price": "step"}).role("price")
        <Role.MODELLED: 'modelled'>
        """
        if name == self.time:
            return Role.TIME
        if name in self.key_names:
            return Role.KEY
        if name in self.modelled_names:
            return Role.MODELLED
        if name in self.unmodelled_names:
            return Role.UNMODELLED
        raise unknown_column(name, self.names, "stream schema")

    @property
    def flow_names(self) -> tuple[str, ...]:
        """Return the modelled attributes whose running totals are modelled, in order."""
        return tuple(name for name, truth in self.modelled if truth is Truth.FLOW)

    def counts_tuples(self, name: str) -> bool:
        """Return whether an attribute is a flow of 1 per tuple, so that its total is the number of tuples."""
        return any(own == name and _is_one(of) for own, of in self.flows)

    def truth(self, name: str) -> Truth:
        """Return the truth of a modelled attribute."""
        for other, truth in self.modelled:
            if other == name:
                return truth
        raise unknown_column(name, self.modelled_names, "modelled attributes")

    def arrow_schema(self, bookkeeping: Iterable[str] = ()) -> pa.Schema:
        """Return the columns of a batch of segments, with these of ``segment_id``, ``lineage``, ``kind``, ``point``,
        ``certainty``.
        """
        fields = [*self.key, ("ref", REF), ("lo", pa.float64()), ("hi", pa.float64()), *self.unmodelled]
        for name in self.modelled_names:
            fields += [(name, COEFFICIENTS), *((one, pa.float64()) for one in certificates(name))]
        requested = set(bookkeeping)
        for name in requested - set(BOOKKEEPING):
            raise unknown_column(name, BOOKKEEPING, "bookkeeping columns")
        return pa.schema(fields + [(name, type_) for name, type_ in BOOKKEEPING.items() if name in requested])

    @property
    def stored_columns(self) -> list[str]:
        """Return the columns of a stored model's files: those of segments, with ``certainty`` where they have one."""
        return list(self.arrow_schema(("certainty",) if self.certainty else ()).names)

    def check(self, schema: pa.Schema) -> None:
        """Check that columns are exactly those of a batch of this stream, in any order; an error names all that differ."""
        wanted = self.arrow_schema(name for name in BOOKKEEPING if name in schema.names)
        self.check_names(schema.names)
        wrong = [
            f"'{field.name}' is {schema.field(field.name).type}, expected {field.type}"
            for field in wanted
            if field.name in schema.names and schema.field(field.name).type != field.type
        ]
        if wrong:
            raise ColumnTypeError(f"segments: {'; '.join(wrong)}; cast such columns first")

    def check_names(self, names: list[str]) -> None:
        """Check the names alone, as :meth:`check` does."""
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SchemaError(
                f"segments: the columns {_listed(twice)} occur more than once; rename or drop them"
            )
        required = self.arrow_schema().names
        optional = {f"{name}_err2" for name in self.modelled_names}
        missing = [name for name in required if name not in names and name not in optional]
        unknown = [name for name in names if name not in required and name not in BOOKKEEPING]
        if len(missing) == 1 and not unknown:
            raise unknown_column(missing[0], names, "segments")
        if missing or unknown:
            parts = [f"missing {_listed(missing)}"] if missing else []
            parts += [f"not in the schema {_listed(unknown)}"] if unknown else []
            raise UnknownColumnError(
                f"segments: {'; '.join(parts)}; expected {_listed(required)} and optionally {_listed(BOOKKEEPING)}; "
                "rename, add or drop columns"
            )

    def check_same(self, other: StreamSchema) -> None:
        """Check that two batches may be combined."""
        if self != other:
            raise SchemaMismatchError(f"cannot combine batches of different streams: {self!r} and {other!r}")

    def to_json(self) -> str:
        """Return the schema as text for a manifest; Arrow types by name."""
        parts: dict[str, Any] = {
            "key": [[name, str(type_)] for name, type_ in self.key],
            "time": self.time,
            "modelled": [[name, str(truth)] for name, truth in self.modelled],
            "unmodelled": [[name, str(type_)] for name, type_ in self.unmodelled],
        }
        parts |= {"points": True} if self.points else {}
        parts |= {"flows": [[name, of] for name, of in self.flows]} if self.flows else {}
        parts |= {"certainty": True} if self.certainty else {}
        parts |= {} if self.plane is None else {"plane": self.plane.to_list()}
        parts |= self.clock.to_json()
        return json.dumps(parts, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> StreamSchema:
        """Read the schema that :meth:`to_json` wrote."""
        try:
            parts = json.loads(text)
            pairs = {role: [(str(name), str(what)) for name, what in parts[role]] for role in _PAIRED}
            time, points = parts["time"], bool(parts.get("points", False))
            flows = {str(name): str(text) for name, text in parts.get("flows", ())}
            certainty = bool(parts.get("certainty", False))
            plane = None if parts.get("plane") is None else Plane.of(parts["plane"])
            clock = StreamClock(str(parts.get("zone", "")), str(parts.get("session", "")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise SchemaError(f"stream schema: not the JSON of one ({e!r}): {text[:200]!r}") from None
        for role, of_role in pairs.items():  # a mapping would silently drop a duplicate name
            _check_names([name for name, _ in of_role], where=f"stream schema, {role}")
        made = cls.of(
            time=time, points=points, flows=flows, **{role: dict(of_role) for role, of_role in pairs.items()}
        )
        return replace(made, plane=plane, certainty=certainty, clock=clock)

    def __repr__(self) -> str:
        parts = [f"key {_described(self.key)}" if self.key else "no key", f"time {self.time}"]
        parts.append(f"modelled {_described(self.modelled)}{' as points' if self.points else ''}")
        if self.unmodelled:
            parts.append(f"unmodelled {_described(self.unmodelled)}")
        return f"StreamSchema({'; '.join(parts)})"


def certificates(name: str) -> tuple[str, str, str]:
    """Return the columns of a modelled attribute's certificates; models of older fits lack the last."""
    return f"{name}_err", f"{name}_drift", f"{name}_err2"


_PAIRED = ("key", "modelled", "unmodelled")


def _is_one(text: str) -> bool:
    try:
        return float(text) == 1.0
    except ValueError:
        return False


def _truth(name: str, truth: str) -> Truth:
    try:
        return Truth(truth)
    except ValueError:
        kinds = ", ".join(Truth)
        raise SchemaError(
            f"stream schema: the truth of '{name}' must be one of {kinds}, got {truth!r}"
        ) from None


def _check_names(names: list[Any], where: str = "stream schema") -> None:
    """Check that every name is a non-empty text, not reserved, and unique ignoring case."""
    seen: dict[str, str] = {reserved: reserved for reserved in RESERVED}
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise SchemaError(f"{where}: every attribute needs a name, got {name!r}")
        folded = name.casefold()
        if folded in RESERVED:
            raise SchemaError(
                f"{where}: '{name}' is the name of a segment's own column; rename the attribute"
            )
        if folded in seen:
            raise SchemaError(
                f"{where}: '{name}' clashes with '{seen[folded]}': names are unique whatever their case, and each "
                "modelled a also has columns a_err, a_drift and a_err2; rename one"
            )
        seen[folded] = name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _described(pairs: tuple[tuple[str, Any], ...]) -> str:
    return ", ".join(f"{name}: {what}" for name, what in pairs)

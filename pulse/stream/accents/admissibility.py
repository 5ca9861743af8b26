"""Check accents against a stream's schema (semantics 8.1, 8.6): matching kinds, models that can follow, no duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from pulse.core.schema import Role, StreamSchema
from pulse.core.time import format_instant
from pulse.stream.accents.accents import Accent, AccentError, AlterData, Control, DropAttribute, is_alteration
from pulse.stream.descriptions.description import Description


class UnsupportedAccentError(AccentError):
    """A valid accent that models and segments cannot follow."""


def check_fit(control: Control, schema: StreamSchema, raw: bool) -> None:
    """Check that a control's values have the right kinds and, without ``raw`` tuples, that segments can follow it.

    Segments are distinguished by keys, unmodelled attributes and time only, and only models have units.
    """
    types = dict((*schema.key, *schema.unmodelled))
    for name, values in (pair for box in control.description.boxes for pair in box):
        if name in schema.modelled_names and not raw:
            raise UnsupportedAccentError(
                f"{control}: its description refers to '{name}', which is modelled; segments cannot separate tuples within "
                f"their error; expected keys, unmodelled attributes and the time ({', '.join((*types, schema.time))}), or fit "
                "the tuples with these accents (fit --accents)"
            )
        kind = "number" if name == schema.time or name in schema.modelled_names else values.kind
        expected = kind_of(types[name]) if name in types else kind
        if values.kind and values.kind != expected:
            raise AccentError(
                f"{control}: '{name}' is {types.get(name, 'a time' if name == schema.time else 'modelled')}, "
                f"expected a {expected}, got a {values.kind}"
            )
    if isinstance(control, Accent) and control.attribute in schema.names:
        _check_primitive_fit(control, schema, raw)


def _check_primitive_fit(accent: Accent, schema: StreamSchema, raw: bool) -> None:
    if isinstance(accent.primitive, AlterData) and accent.primitive.weight:
        raise UnsupportedAccentError(
            f"{accent}: expected a map of '{accent.attribute}' alone, got one per '{accent.primitive.weight}', which only "
            "sums have"
        )
    role, types = schema.role(accent.attribute), dict((*schema.key, *schema.unmodelled))
    if role is Role.MODELLED:
        return
    subject = f"{accent}: '{accent.attribute}' is {_article(role)}"
    if isinstance(accent.primitive, AlterData):
        if not raw:
            raise UnsupportedAccentError(
                f"{subject}; in segments only modelled attributes can be undone ({', '.join(schema.modelled_names)}); fit the "
                "tuples with these accents (fit --accents)"
            )
        if role is not Role.TIME and not _is_alterable(types[accent.attribute]):
            raise AccentError(
                f"{subject}, {types[accent.attribute]}; expected numbers, as only they can be altered"
            )
    if isinstance(accent.primitive, DropAttribute) and role in (Role.KEY, Role.TIME) and not raw:
        raise UnsupportedAccentError(
            f"{subject} of the model, which needs it; fit the tuples with these accents (fit --accents)"
        )


def _is_alterable(type_: pa.DataType) -> bool:
    """Check whether unmodelled values of a type can be mapped back to values of the same type."""
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_timestamp(type_))


def _article(role: Role) -> str:
    return {"key": "a key", "time": "the time"}.get(role.value, f"an {role.value} attribute")


def kind_of(type_: pa.DataType) -> str:
    """Return the kind that descriptions assign to values of a type."""
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "string"
    return "boolean" if pa.types.is_boolean(type_) else "number"


def check_doubles(controls: Iterable[Control], lines: Iterable[str]) -> None:
    """Reject duplicate and contradicting alterations: those of one instant and attribute that cover common rows."""
    groups: dict[tuple[int, str], list[tuple[Accent, str]]] = {}
    for one, line in zip(controls, lines, strict=True):
        if is_alteration(one):
            groups.setdefault((one.position, one.attribute), []).append((one, line))
    for group in groups.values():
        for (one, line), (other, before) in _overlapping(group):
            subject = f"{line}: {one} at {format_instant(one.position)}"
            if one.primitive == other.primitive and one.description.equivalent(other.description):
                raise AccentError(f"{subject} is the same as {before}; expected every accent once")
            raise AccentError(
                f"{subject} contradicts {before}, {other}: expected one alteration of '{one.attribute}' at an instant, "
                "got two for the same elements; compose them into one"
            )


_Pair = tuple[tuple[Accent, str], tuple[Accent, str]]


def _overlapping(group: list[tuple[Accent, str]]) -> Iterator[_Pair]:
    """Yield pairs that cover common rows; where all name values of one column, compare only those with the same value."""
    by_value: dict[Any, list[tuple[Accent, str]]] = {}
    for entry in group:
        values = _named(entry[0].description)
        near = (
            group[: group.index(entry)]
            if values is None
            else [e for v in values for e in by_value.get(v, [])]
        )
        if values is not None:
            near = [*near, *by_value.get(None, [])]
        yield from ((entry, other) for other in near if entry[0].description.overlaps(other[0].description))
        for value in values if values is not None else (None,):
            by_value.setdefault(value, []).append(entry)


def _named(description: Description) -> list[Any] | None:
    """Return the values of the first column that a conjunction names, if they are listed."""
    if len(description.boxes) != 1 or not description.boxes[0]:
        return None
    name, values = description.boxes[0][0]
    members = values.listed_texts
    return None if members is None else [(name, member) for member in sorted(members)]

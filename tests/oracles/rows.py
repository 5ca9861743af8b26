"""Accents on rows, one by one and exactly: what the engine on segments and batches of tuples is compared with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeAlias

from pulse.stream.accents.accents import Accent, AccentError, AlterData, Control, Punctuation
from pulse.stream.accents.validity import Existence
from pulse.stream.descriptions.description import Description, Domain
from pulse.stream.descriptions.value_sets import scalar
from pulse.stream.units.affine import IDENTITY, Affine
from pulse.stream.units.unit_map import Units

Row: TypeAlias = Mapping[str, Any]


def forward(primitive: AlterData, row: Row) -> dict[str, Any]:
    """Map a row from before alter data to its form after it."""
    return _mapped(primitive, row, primitive.alpha)


def backward(primitive: AlterData, row: Row) -> dict[str, Any]:
    """Map a row from after alter data to its form before it.

    >>> backward(AlterData("t", Affine.parse("(y - 32) * 5/9")), {"t": 25})
    {'t': 77}
    """
    return _mapped(primitive, row, primitive.beta)


def _mapped(primitive: AlterData, row: Row, map: Affine) -> dict[str, Any]:
    value = scalar(row.get(primitive.attribute))
    if value is None:
        return dict(row)
    if isinstance(value, (bool, str)):
        raise AccentError(f"{primitive}: expected a number in '{primitive.attribute}', got {value!r}")
    count = Fraction(scalar(row.get(primitive.weight)) or 0) if primitive.weight else 1
    return {**row, primitive.attribute: scalar(map.a * value + map.b * count)}


def altered(accent: Accent, row: Row) -> dict[str, Any]:
    """Map a row from before the accent to its form after it: alpha where it matches; adding and dropping change no row."""
    primitive = accent.primitive
    matched = isinstance(primitive, AlterData) and accent.description.matches(row)
    return forward(primitive, row) if isinstance(primitive, AlterData) and matched else dict(row)


def undone(accent: Accent, row: Row) -> dict[str, Any]:
    """Map a row from after the accent to its form before it: beta where it matches.

    >>> accent = Accent.parse("[[s = 2, alter(t, (y - 32) * 5/9, y * 9/5 + 32)]]")
    >>> undone(accent, {"s": 2, "t": 25}), undone(accent, {"s": 1, "t": 25})
    ({'s': 2, 't': 77}, {'s': 1, 't': 25})
    """
    primitive = accent.primitive
    matched = isinstance(primitive, AlterData) and accent.description.matches(row)
    return backward(primitive, row) if isinstance(primitive, AlterData) and matched else dict(row)


def carried_back(accent: Accent, description: Description) -> Description:
    """Translate a description from after the accent to before it."""
    primitive = accent.primitive
    if not isinstance(primitive, AlterData):
        return description
    inverse = AlterData(primitive.attribute, primitive.beta, weight=primitive.weight)
    return replace(accent, primitive=inverse).carried(description)


def map_at(units: Units, attribute: str, first_row: Row) -> Affine:
    """Return the map of an attribute for a row in first units."""
    cells = units.cells.get(attribute, {}).items()
    return next((map for map, where in cells if where.matches(first_row)), IDENTITY)


def forward_row(units: Units, row: Row) -> dict[str, Any]:
    """Map a row from first to present units.

    >>> here = Units().then(Accent.parse("[[s = 2, alter(t, (y - 32) * 5/9)]]"))
    >>> forward_row(here, {"s": 2, "t": 77}), back_row(here, {"s": 2, "t": 25})
    ({'s': 2, 't': 25}, {'s': 2, 't': 77})
    """
    now = dict(row)
    for attribute in units.cells:
        one = AlterData(attribute, map_at(units, attribute, row), weight=units.weights.get(attribute, ""))
        now[attribute] = forward(one, row).get(attribute)
        if now[attribute] is None:
            del now[attribute]
    return now


def back_row(units: Units, row: Row) -> dict[str, Any]:
    """Map a row from present to first units."""
    return forward_row(units.inverse, row)


def check_row(existence: Existence, row: Row) -> None:
    """Raise an :class:`AccentError` if a row does not fit the accents and punctuation before it."""
    for name, value in row.items():
        if scalar(value) is not None and not existence[name].matches(row):
            raise AccentError(f"row {dict(row)}: '{name}' has a value, but does not exist for this row")
    if existence.closed.matches(row):
        raise AccentError(f"row {dict(row)}: an earlier punctuation promised that no such row comes any more")
    if not existence.domain.description.matches(row):
        raise AccentError(
            f"row {dict(row)}: expected one of the declared domain, {existence.domain.description}"
        )


def check_stream(
    elements: Iterable[Control | Row],
    attributes: Collection[str],
    domain: Domain | None = None,
    *,
    strict: bool = True,
) -> Existence:
    """Return the existence at the end of a stream; raise an :class:`AccentError` at the first element that does not fit.

    Use ``strict=False`` for the output of operators: a held accent may mention an attribute that is gone when it is passed.

    >>> stream = [Accent.parse("[[s = 2, add(p)]]"), {"s": 2, "p": 7}, Accent.parse("[[s = 2, drop(p)]]")]
    >>> check_stream(stream, ["s", "t"]).attributes
    ('s', 't')
    """
    here = Existence.of(attributes, domain, strict=strict)
    for element in elements:
        if isinstance(element, (Accent, Punctuation)):
            here = here.after(element)
        else:
            check_row(here, element)
    return here

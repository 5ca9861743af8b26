"""Encode descriptions as JSON: boxes as mappings, exact numbers (whole ones as such, others as text ``5/9``)."""

from __future__ import annotations

from typing import Any

from pulse.stream.descriptions.boxes import box_of
from pulse.stream.descriptions.description import Description
from pulse.stream.descriptions.value_sets import DEFINED, NOTHING, UNDEFINED, Cut, DescriptionError, ValueSet
from pulse.stream.units.affine import AffineError, exact

_FORMS = "expected numbers, strings, except, booleans, values or null"


def set_to_json(values: ValueSet) -> dict[str, Any]:
    """Encode a set of values; ``null`` where it includes undefined.

    >>> set_to_json(ValueSet.compare("<", 5))
    {'numbers': [[None, False, 5, False]]}
    """
    found: dict[str, Any] = {}
    if values.kind == "number":
        found["numbers"] = [[*_low(low), *_high(high)] for low, high in values.intervals()]
    elif values.kind == "string":
        found["except" if values.rest else "strings"] = sorted(map(str, values.members))
    elif values.kind == "boolean":
        found["booleans"] = sorted(values.members)
    elif values.rest:
        found["values"] = "all"
    return {**found, "null": True} if values.null else found


def set_from_json(value: Any) -> ValueSet:
    """Decode the output of :func:`set_to_json`."""
    if not isinstance(value, dict) or not value or set(value) - _READERS.keys() - {"null"}:
        raise DescriptionError(f"set of values: {_FORMS}, got {value!r}")
    found = UNDEFINED if value.get("null") else NOTHING
    for name in value.keys() - {"null"}:
        found = found.union(_READERS[name](value[name]))
    return found


def description_from_json(value: Any) -> Description:
    """Decode the output of ``Description.to_json``; boxes may overlap."""
    if not isinstance(value, list) or not all(isinstance(box, dict) for box in value):
        raise DescriptionError(f"description: expected a text or a list of boxes, got {value!r}")
    boxes = (box_of({str(name): set_from_json(values) for name, values in box.items()}) for box in value)
    return Description.of(box for box in boxes if box is not None)


def _number(value: Any) -> Any:
    return value if isinstance(value, int) else str(value)


def _low(cut: Cut | None) -> list[Any]:
    return [None, False] if cut is None else [_number(cut[0]), cut[1] == 0]


def _high(cut: Cut | None) -> list[Any]:
    return [None, False] if cut is None else [_number(cut[0]), cut[1] == 1]


def _numbers(value: Any) -> ValueSet:
    found = NOTHING
    try:
        for low, low_in, high, high_in in value:
            first = None if low is None else (exact(low), 0 if low_in else 1)
            last = None if high is None else (exact(high), 1 if high_in else 0)
            found = found.union(ValueSet.from_cuts(first, last))
    except (TypeError, ValueError, AffineError):
        raise DescriptionError(
            f"numbers: expected [low, closed, high, closed] for each interval, got {value!r}"
        ) from None
    return found


def _strings(value: Any) -> ValueSet:
    return _members(value, str, "strings: expected a list of strings")


def _booleans(value: Any) -> ValueSet:
    return _members(value, bool, "booleans: expected a list of true and false")


def _members(value: Any, kind: type[Any], expected: str) -> ValueSet:
    if not isinstance(value, list) or not all(isinstance(one, kind) for one in value):
        raise DescriptionError(f"{expected}, got {value!r}")
    return ValueSet.of(*value)


def _values(value: Any) -> ValueSet:
    if value != "all":
        raise DescriptionError(f"values: expected 'all', got {value!r}")
    return DEFINED


_READERS = {
    "numbers": _numbers,
    "strings": _strings,
    "except": lambda value: DEFINED.minus(_strings(value)),
    "booleans": _booleans,
    "values": _values,
}

"""Split the attributes of a fit by what reports may lack: each optional attribute gets a model of its own.

A segment holds all attributes of its model together, so a tuple is modelled with all of them or not at all. In models apart, a
report that lacks its course costs that model a tuple, and the others none; a join brings them together where both are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pulse.core.errors import SessionError, unknown_column


class FitPart(NamedTuple):
    """One of the fits: where its model goes, what it models, and its bounds."""

    out: Path
    model: dict[str, str]
    error: Any
    drift: Any


def parts_of(
    out: Path, model: Mapping[str, str], optional: Sequence[str], error: Any, drift: Any
) -> dict[str, FitPart]:
    """Return the fits by the name of their optional attribute; that of all others comes first, under an empty name.

    >>> parts = parts_of(Path("vessels"), {"x": "linear", "cog": "step"}, ["cog"], {"x": 10, "cog": 5}, None)
    >>> [(name, str(part.out), part.error) for name, part in parts.items()]
    [('', 'vessels', {'x': 10}), ('cog', 'vessels-cog', {'cog': 5})]
    """
    for name in optional:
        if name not in model:
            raise unknown_column(name, list(model), "optional: the modelled attributes")
    rest = {name: truth for name, truth in model.items() if name not in optional}
    if not rest:
        raise SessionError(
            f"fit, optional: expected some attributes that every report has, got {', '.join(optional)} alone; fit them without "
            "optional"
        )
    groups = {"": rest, **{name: {name: model[name]} for name in dict.fromkeys(optional)}}
    parts = {}
    for name, own in groups.items():
        others = {*bounded(error), *bounded(drift), *model} - {*own} if name else {*optional}
        folder = out.with_name(f"{out.name}-{name}") if name else out
        parts[name] = FitPart(folder, own, _of(error, others), _of(drift, others))
    return parts


def bounded(bounds: Any) -> set[str]:
    """Return the attributes that bounds are given for, by name."""
    return set(bounds) if isinstance(bounds, Mapping) else set()


def _of(bounds: Any, others: set[str]) -> Any:
    """Return the bounds of one part, where they are given by attribute: those of others are left out."""
    if not isinstance(bounds, Mapping):
        return bounds
    return {name: bound for name, bound in bounds.items() if name not in others} or None

"""Summarise a stored model in a line, and as an HTML table for notebooks; both from its manifest alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse.core import html
from pulse.core.time import format_instant

if TYPE_CHECKING:
    from pulse.store.model import Model


def summary(model: Model) -> str:
    """Summarise the contents, size, bounds and end of a model in a line."""
    manifest, schema = model.manifest, model.schema
    which = f"version {manifest.version}" if manifest.version > 1 or manifest.kept else ""
    known = "" if model.as_of is None else f"as of {format_instant(model.as_of)}"
    parts = [part for part in (which, known, _size(model)) if part]
    bounds = "; ".join(f"{name}: {truth}, {_requested(model, name)}" for name, truth in schema.modelled)
    key = f"by {', '.join(schema.key_names)}" if schema.key else "no key"
    end = "" if manifest.end is None else f", until {format_instant(manifest.end)}"
    return f"{', '.join(parts)}; {bounds}; {key}, time {schema.time}{end}"


def html_of(model: Model) -> str:
    """Summarise a model as a table: a row for each attribute, with the requested bound and the worst certified one."""
    schema = model.schema
    achieved = model.manifest.statistics.get("attributes", {})
    rows: list[tuple[Any, ...]] = [(name, "key", str(type_), "", "", "") for name, type_ in schema.key]
    rows.append((schema.time, "time", "", "", "", ""))
    for name, truth in schema.modelled:
        worst = achieved.get(name, {})
        drift = None if model.manifest.drift_is_void else worst.get("worst_drift")
        rows.append(
            (name, "modelled", str(truth), _requested(model, name), worst.get("worst_err", ""), drift)
        )
    rows += [(name, "kept", str(type_), "", "", "") for name, type_ in schema.unmodelled]
    header = ["attribute", "role", "type or truth", "asked", "worst error", "worst drift"]
    notes = [f"{model.path}: {_size(model)}"]
    if model.manifest.end is not None:
        notes.append(f"until {format_instant(model.manifest.end)}")
    if model.as_of is not None:
        notes.append(f"as of {format_instant(model.as_of)}")
    kept = model.manifest.kept
    also = f", also kept: {', '.join(map(str, kept))}" if kept else ""
    notes.append(f"version {model.version}{also}")
    if model.manifest.accents is not None:
        notes.append("with accents, in the units of the stream's start")
    return html.paragraph("; ".join(notes)) + html.table(header, rows)


def _size(model: Model) -> str:
    manifest = model.manifest
    if manifest.derived:
        of = "of a saved answer" if manifest.derived.get("from") == "query" else "made elsewhere"
        points = f" and {manifest.points:,} points" if manifest.points else ""
        return f"{manifest.segments:,} segments{points} {of}"
    if model.schema.points:
        return f"{manifest.modelled:,} tuples kept as points"
    per = f", {manifest.modelled / manifest.segments:.1f} a segment" if manifest.segments else ""
    return f"{manifest.segments:,} segments of {manifest.modelled:,} tuples{per}"


def _requested(model: Model, name: str) -> str:
    """Return the bounds that the fit was given."""
    fit = model.manifest.fit
    bounds = [
        f"{what} {fit[what][name]}" for what in ("error", "drift") if fit.get(what, {}).get(name) is not None
    ]
    return ", ".join(bounds) or "no bound"

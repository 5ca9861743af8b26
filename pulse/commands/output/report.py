"""Describe a model in words: at the end of a fit, and in ``pulse info``."""

from __future__ import annotations

import json
from typing import Any

from pulse.core.time import format_instant
from pulse.runtime.fit.rejects import advice_for, lacking, share
from pulse.store.manifest import Manifest

_SHOWN = 10  # newest versions that are listed
_MANY = 1000  # tuples: with fewer, the fixed size of a file dominates
_RESTLESS = 0.5  # share of the tuples: a kept attribute should change less often
_OUTSIDE = 0.5  # share of the rows: fewer lie outside of the sessions of the exchange that they are of


Answered = list[tuple[int | None, int | None]]


def facts(manifest: Manifest, answered: Answered | None = None) -> dict[str, Any]:
    """Return the figures of a model, for programs. ``answered``: when AS OF can be answered
    (:func:`pulse.store.versions.as_of_spans.as_of_spans`).
    """
    whole = sum(source.bytes for source in manifest.sources)
    known = all(source.modelled is not None for source in manifest.sources)
    before = sum(source.modelled or 0 for source in manifest.sources) if known else whole
    after = sum(file.bytes + sum(layer.bytes for layer in file.layers) for file in manifest.files)
    segments = manifest.segments
    return {
        "schema": json.loads(manifest.schema.to_json()),
        "fit": manifest.fit,
        "tuples": manifest.modelled,
        "segments": segments,
        "points": manifest.points,
        "tuples_per_segment": manifest.modelled / segments if segments else None,
        "bytes_before": before,
        "bytes_before_are": "columns" if known else "files",
        "bytes_of_sources": whole,
        "bytes_after": after,
        "counts": manifest.counts,
        "statistics": manifest.statistics,
        "sources": [source.path for source in manifest.sources],
        "files": len(manifest.files),
        "created": manifest.created,
        "pulse_version": manifest.pulse_version,
        "statements": list(manifest.statements),
        "version": manifest.version,
        "versions_kept": list(manifest.kept),
        "known_since": None if manifest.since is None else format_instant(manifest.since),
        "as_of": None if answered is None else [[_instant(at) for at in one] for one in answered],
        "revised": revised(manifest),
        "changes": list(manifest.changes),
        "accents": manifest.accents,
        "where": None if manifest.where is None else manifest.where["text"],
        "derived": manifest.derived,
        **manifest.schema.clock.to_json(),
    }


def revised(manifest: Manifest) -> dict[str, int]:
    """Sum the counts of all revisions so far: in, absorbed, patched, refitted, set aside."""
    counts = [change.get("counts", {}) for change in manifest.changes if change.get("what") == "revised"]
    names = ("revisions", "absorbed", "patched", "refitted", "aside")
    return {name: sum(int(one.get(name, 0)) for one in counts) for name in names} if counts else {}


def lines(manifest: Manifest, answered: Answered | None = None) -> list[str]:
    """Return the same as text, for people."""
    found = facts(manifest)
    counts = manifest.counts
    rows = [("stream", repr(manifest.schema).removeprefix("StreamSchema(").removesuffix(")"))]
    rows.append(("asked", ", ".join(_bounds(manifest))))
    per = f", {found['tuples_per_segment']:,.1f} tuples per segment" if found["segments"] else ""
    if manifest.derived:
        rows += _derived(manifest)
    made = "kept as points" if manifest.schema.points else f"in {found['segments']:,} segments{per}"
    if not manifest.derived:
        rows.append(("model", f"{manifest.modelled:,} tuples {made}"))
    if any(manifest.schema.clock):
        declared = manifest.schema.clock.to_json().items()
        rows.append(("clock", ", ".join(f"{name} {value}" for name, value in declared)))
    if manifest.where is not None:
        left, of = counts.get("filtered") or 0, counts.get("rows_read") or 0
        rows.append(
            ("filter", f"{manifest.where['text']}; {left:,} of {of:,} rows ({share(left, of)}) filtered")
        )
    rows += _size(found)
    for name, worst in manifest.statistics.get("attributes", {}).items():
        void = worst["worst_drift"] is None or manifest.drift_is_void
        drift = "" if void else f", drift {worst['worst_drift']:.6g} value·s"
        rows.append(("achieved", f"{name}: error {worst['worst_err']:.6g}{drift} at worst"))
    for what, why in (
        ("late", "set aside, out of order"),
        ("not_finite", "set aside, not finite"),
        ("superseded", "superseded at their own instant"),
    ):
        if counts.get(what):
            first = counts.get(f"first_{what}")
            more = "" if first is None else f"; first: {first}"
            if what == "late" and manifest.late_put_in:
                more = f"; {manifest.late_put_in:,} late ones put in since"
            if what == "not_finite" and lacking(counts):
                more += f"; {lacking(counts)}"
            part = "" if what == "superseded" else f"; {share(counts[what], counts['tuples'])} of all"
            rows.append(("note", f"{counts[what]:,} tuples {why}{more}{part}"))
    if counts.get("missed"):
        missed = f"{counts['missed']:,} segments could not keep the requested bound; see the achieved error"
        rows.append(("note", missed))
    for why, n in counts.get("removed", {}).items():
        rows.append(
            ("note", f"{n:,} {'positions set aside' if _is_unreachable(why) else 'rows removed'}: {why}")
        )
    rows += [("note", f"{n:,} rows {why}") for why, n in counts.get("remarked", {}).items()]
    rows += _hints(manifest, found)
    if counts.get("truncated"):
        rows.append(("note", f"{counts['truncated']:,} times rounded down to the microsecond"))
    rows += [("reading", statement) for statement in manifest.statements]
    if manifest.accents:
        rows.append(("accents", f"in {manifest.accents}; segments are in the units of the stream's start"))
    rows += _versions(manifest, answered)
    width = max(len(name) for name, _ in rows)
    return [f"{name:{width}}  {text}" for name, text in rows]


def _is_unreachable(reason: str) -> bool:
    return reason.startswith("unreachable ")


def _size(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the sizes of the data and the model; of the data the modelled columns, where their size is known."""
    before, after = found["bytes_before"], found["bytes_after"]
    if not before:
        return [("size", f"{size(after)}")]
    of = "its columns" if found["bytes_before_are"] == "columns" else "whole files"
    return [("size", f"{size(before)} before ({of}), {size(after)} after")]


def _hints(manifest: Manifest, found: dict[str, Any]) -> list[tuple[str, str]]:
    """Advise where a model is of little use: larger than its data, or cut at every change of a kept attribute."""
    rows = []
    for name, count in manifest.counts.get("changing", {}).items():
        if manifest.tuples and count > _RESTLESS * manifest.tuples:
            rows.append(
                f"{name}, which is kept, changes at {100 * count / manifest.tuples:.0f} % of the tuples, and every change ends a "
                f"segment: model it (--model {name}:step), or leave it out of --keep"
            )
    # Whole files, too, are more than the modelled columns.
    larger = 0 < found["bytes_before"] < found["bytes_after"]
    if not rows and larger and manifest.modelled >= _MANY and not manifest.schema.points:
        rows.append(
            "the model is larger than its data: allow a larger --error or --drift, give --model a truth that the data follow, "
            "or query the data themselves"
        )
    if advice := advice_for(manifest.counts, manifest.schema, str(manifest.fit.get("nonfinite"))):
        rows.append(advice)
    return [("hint", text) for text in [*rows, *_filter_hint(manifest)]]


def _filter_hint(manifest: Manifest) -> list[str]:
    """Advise where a filter passes few rows or none, or sessions seem to be those of another clock."""
    left, of = manifest.counts.get("filtered") or 0, manifest.counts.get("rows_read") or 0
    session = manifest.schema.clock.session
    if session and left > _OUTSIDE * of:
        return [
            f"{share(left, of)} of the rows lie outside of the sessions of {session}, or are filtered: times without a zone are "
            "read as UTC; if they are of the exchange's clock, convert them first"
        ]
    if manifest.where is not None and left == of > 0:
        return ["no row passes the filter, and the model is empty: correct the condition (--where)"]
    return []


def _versions(manifest: Manifest, answered: Answered | None) -> list[tuple[str, str]]:
    """List the version and the changes that led to it, once there is more than the first."""
    if not manifest.changes:
        return []
    kept = f"; also kept: {', '.join(map(str, manifest.kept))}" if manifest.kept else ""
    since = f"; AS OF {', '.join(map(_stretch, answered))}" if answered else ""
    rows = [("version", f"{manifest.version}{kept}{since}")]
    for change in manifest.changes[-_SHOWN:]:
        counts = change.get("counts", {})
        what = f"{change['what']} {change['at']}"
        if change["what"] == "revised":
            what += (
                f": {counts.get('revisions', 0):,} revisions, {counts.get('absorbed', 0):,} absorbed, "
                f"{counts.get('patched', 0) + counts.get('refitted', 0):,} moved segments, {counts.get('aside', 0):,} set aside"
            )
        rows.append(("", f"{change['version']}: {what}"))
    return rows


def _instant(at: int | None) -> str | None:
    return None if at is None else format_instant(at)


def _stretch(one: tuple[int | None, int | None]) -> str:
    start, end = map(_instant, one)
    if end is None:
        return "at any time" if start is None else f"from {start} on"
    return f"up to {end}" if start is None else f"from {start} to {end}"


def _bounds(manifest: Manifest) -> list[str]:
    fit = manifest.fit
    bounds = [
        f"{what} {bound} on {name}"
        for what in ("error", "drift")
        for name, bound in fit[what].items()
        if bound is not None
    ]
    return [
        *bounds,
        f"degree {fit['degree']}",
        *([f"max gap {fit['max_gap']}"] if fit.get("max_gap") else []),
    ]


def _derived(manifest: Manifest) -> list[tuple[str, str]]:
    """Describe a model that was not fitted to tuples: its size, and the query and models it was saved from."""
    derived = manifest.derived
    points = f" and {manifest.points:,} points" if manifest.points else ""
    rows = [("model", f"{manifest.segments:,} segments{points}")]
    if derived.get("query"):
        rows.append(("query", " ".join(str(derived["query"]).split())))
    if derived.get("parameters"):
        rows.append(("given", ", ".join(f"{name}={value}" for name, value in derived["parameters"].items())))
    for one in derived.get("inputs", ()):
        at = "" if one["as_of"] is None else f" as of {format_instant(one['as_of'])}"
        rows.append(("input", f"{one['stream']} = {one['path']}, version {one['version']}{at}"))
    return rows


def size(bytes: int) -> str:
    """Return a number of bytes as people read it: 1.5 MB."""
    value, unit = float(bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:,.1f} {unit}" if unit != "B" else f"{bytes} B"

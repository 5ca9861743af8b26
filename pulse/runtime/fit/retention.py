"""Retain tuples with a model, so that they can be revised (:mod:`pulse.store.tuples.tuple_history`): which, and for how long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pulse.core.errors import PulseError
from pulse.core.time import parse_duration
from pulse.store.model import Model

ALL, NONE = "all", "none"
Keep = str | int | None
"""Tuples to keep: all, those of so many microseconds before the newest, none; None: as in the model that is appended to."""


class KeepError(PulseError, ValueError):
    """The retention is neither ``all``, ``none`` nor a duration."""


def parse_keep(given: bool | str | float | None) -> Keep:
    """Parse how much to keep, as users write it: True or ``"all"``, a duration, False or ``"none"``; None if not given.

    >>> parse_keep("2 h"), parse_keep(True), parse_keep(False), parse_keep(None)
    (7200000000, 'all', 'none', None)
    """
    if given is None or isinstance(given, bool):
        return None if given is None else ALL if given else NONE
    if isinstance(given, str) and given.strip().lower() in (ALL, NONE):
        return given.strip().lower()
    keep = parse_duration(given)
    if keep <= 0:
        raise KeepError(f"keep_tuples: expected 'all', 'none' or a duration above zero, got {given!r}")
    return keep


def keeps(keep: Keep) -> bool:
    """Return whether any tuple is kept."""
    return keep not in (None, NONE)


def history_of(progress: Path, keep: Keep, source: dict[str, Any], old: Model | None) -> dict[str, Any]:
    """Return the manifest's record of the tuples, without those that have expired."""
    own: dict[str, Any] = {"tuples": _recorded(progress) if keeps(keep) else None, "source": source}
    if old is None:
        fits = [own]
    elif "fits" in old.manifest.history:
        fits = [*old.manifest.history["fits"], own]
    else:
        return {}  # written before histories were recorded
    history: dict[str, Any] = {"keep": keep, "since": None, "fits": fits}
    return _limited(history) if isinstance(keep, int) else history


def _recorded(progress: Path) -> list[dict[str, Any]]:
    """Return the files of tuples that the units wrote, in the units' order."""
    notes = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(progress.glob("unit-*.json"))]
    return [note["kept"] for note in notes if note["kept"] is not None]


def _limited(history: dict[str, Any]) -> dict[str, Any]:
    files = [one for fit in history["fits"] for one in fit["tuples"] or ()]
    if not files:
        return history
    since = max(one["end"] for one in files) - history["keep"]
    if since <= min(one["start"] for one in files):
        return history
    fits = [
        {**fit, "tuples": fit["tuples"] and [one for one in fit["tuples"] if one["end"] >= since]}
        for fit in history["fits"]
    ]
    return {**history, "since": since, "fits": fits}

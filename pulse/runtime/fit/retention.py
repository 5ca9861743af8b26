"""Tuples that stay with a model, for revisions of them (:mod:`pulse.store.tuples.tuple_history`): which, and for how long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pulse.core import parse_duration
from pulse.core.errors import PulseError
from pulse.runtime.fit.append import link
from pulse.store.model import Model

ALL, NONE = "all", "none"
Keep = str | int | None
"""What stays: everything, so many microseconds before the newest tuple, nothing; None: as in the model that is appended to."""


class KeepError(PulseError, ValueError):
    """A retention that is none."""


def parse_keep(given: bool | str | float | None) -> Keep:
    """How much to keep, as users write it: True or ``"all"``, a duration, False or ``"none"``; or nothing said.

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
    """Whether any tuple stays."""
    return keep not in (None, NONE)


def history_of(
    staging: Path, progress: Path, keep: Keep, source: dict[str, Any], old: Model | None
) -> dict[str, Any]:
    """What the manifest says of the tuples; those that need not be kept any more are taken away from the staging folder.

    The old model's are linked into it.
    """
    own: dict[str, Any] = {"tuples": _recorded(progress) if keeps(keep) else None, "source": source}
    if old is None:
        fits = [own]
    elif "fits" in old.manifest.history:
        fits = [*old.manifest.history["fits"], own]
    else:
        return {}  # of a time when nobody took note
    for name in [one["name"] for told in fits[:-1] for one in told["tuples"] or ()]:
        assert old is not None
        link(old.path / name, staging / name)
    history: dict[str, Any] = {"keep": keep, "since": None, "fits": fits}
    return _limited(history, staging) if isinstance(keep, int) else history


def _recorded(progress: Path) -> list[dict[str, Any]]:
    """The files of tuples that the units noted, in the units' order."""
    notes = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(progress.glob("unit-*.json"))]
    return [note["kept"] for note in notes if note["kept"] is not None]


def _limited(history: dict[str, Any], staging: Path) -> dict[str, Any]:
    files = [one for told in history["fits"] for one in told["tuples"] or ()]
    if not files:
        return history
    since = max(one["end"] for one in files) - history["keep"]
    if since <= min(one["start"] for one in files):
        return history
    for one in files:
        if one["end"] < since:
            (staging / one["name"]).unlink()
    fits = [
        {**told, "tuples": told["tuples"] and [one for one in told["tuples"] if one["end"] >= since]}
        for told in history["fits"]
    ]
    return {**history, "since": since, "fits": fits}

"""Compute the time spans for which AS OF is answered, from the manifests of a model's versions."""

from __future__ import annotations

import math
from pathlib import Path

from pulse.store.errors import StoreError
from pulse.store.manifest import Manifest


def as_of_spans(folder: str | Path, newest: Manifest) -> list[tuple[int | None, int | None]]:
    """Return the spans for which AS OF is answered: by the newest version from an instant on, by kept ones up to their end.

    None means unbounded. Spans are in order of time; adjacent ones are merged.
    """
    found: list[tuple[float, float]] = [(-math.inf if newest.since is None else newest.since, math.inf)]
    for version in newest.kept if newest.since is not None else ():
        try:
            older = Manifest.read(folder, version)
        except StoreError:  # reported when it is opened
            continue
        if older.end is not None:
            found.append((-math.inf if older.since is None else older.since, older.end))
    joined: list[tuple[float, float]] = []
    for start, end in sorted(one for one in found if one[0] <= one[1]):
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return [
        (None if start == -math.inf else int(start), None if end == math.inf else int(end))
        for start, end in joined
    ]

"""Keep readers of plain Parquet from a folder that is not one table: a file that is no Parquet makes them fail, not miss rows.

Such readers see all files in the folder whose names have no underscore: also those that a writer has not committed yet, that
a later commit has superseded, or that layers correct.
"""

from __future__ import annotations

import re
from pathlib import Path

from pulse.store.commits import write_through
from pulse.store.manifest import Manifest

GUARD = "part-not-a-table-read-with-pulse-or-vacuum"
LEGACY_GUARD = "corrections-are-not-merged-read-with-pulse-or-compact.parquet"
_GUARD = re.compile(rf"{GUARD}-.*\.parquet|{re.escape(LEGACY_GUARD)}")

_TEXT = b"""This is no Parquet file, so that reading the folder as a table fails: some files are not committed, are
superseded, or lack corrections that lie beside them. Read it with Pulse; or make it one table again, by merging corrections
and removing what is superseded: pulse revise MODEL --merge; pulse vacuum MODEL --retain 0s
"""


def is_guard(name: str) -> bool:
    """Check whether a file is there to make plain readers fail."""
    return _GUARD.fullmatch(name) is not None


def put_guard(folder: Path, tag: str) -> None:
    """Make plain readers fail."""
    path = folder / f"{GUARD}-{tag}.parquet"
    if not path.exists():
        write_through(path, _TEXT)


def remove_guard(folder: Path, tag: str) -> None:
    """Remove a writer's guard."""
    (folder / f"{GUARD}-{tag}.parquet").unlink(missing_ok=True)


def is_visible(name: str) -> bool:
    """Check whether plain readers see a file of a model."""
    return not name.startswith("_")


def supersedes(new: Manifest, old: Manifest | None) -> bool:
    """Check whether a folder in which ``new`` follows ``old`` holds more, or other, than one table."""
    gone = () if old is None else (name for name in old.data if is_visible(name) and name not in new.data)
    return not new.is_plain or any(gone)

"""Publish a version, and delete files that no version needs, such as those of a killed revision.

Files that only an older version needs move to ``_old``, so that the folder, read by any tool, is the newest version.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pulse.store.errors import StoreError
from pulse.store.manifest import ASIDE, FILE, OLD, Manifest, manifest_path
from pulse.store.model import UNMERGED, version_of
from pulse.store.writers import TEMPORARY, write_text

_SEGMENTS = re.compile(r"(part|closing)-\d+(v\d+)?-\d+\.parquet|_layer-\d+-.*\.parquet")
_LOG = re.compile(r"_revisions-\d+-\d+\.parquet")
_VERSIONED = re.compile(r"_revised-ends-(\d+)-\d+\.parquet")
_DRAFT = re.compile(rf"_.*{re.escape(TEMPORARY)}")
_MANIFEST = re.compile(r"_pulse-(\d+)\.json")

_WARNING = """This is no Parquet file, so that reading the folder as a table fails: its files lack corrections
that lie beside them. Read it with Pulse, or merge the corrections first: pulse revise MODEL --merge
(in Python: pulse.store.versions.compact.compact(folder)).
"""


def forbid_plain_reading(folder: Path) -> None:
    """Make readers that do not support layers fail rather than miss them."""
    if not (folder / UNMERGED).exists():
        write_text(folder / UNMERGED, _WARNING)


def publish(folder: Path, old: Manifest, new: Manifest) -> None:
    """Replace the manifest, the one step that makes a version the newest; then clean up the folder.

    The old manifest is hard-linked under another name, so that caches recognise it.
    """
    path = manifest_path(folder, old.version)
    path.unlink(missing_ok=True)
    try:
        os.link(folder / FILE, path)
    except OSError:
        write_text(path, old.to_json())
    write_text(folder / FILE, new.to_json())
    sweep(folder, new)


def sweep(folder: Path, manifest: Manifest) -> None:
    """Clean up the folder. Call it only while holding the model's lock: it deletes the drafts of other processes, too.

    The previous version stays readable until the next change, so that its readers can finish.
    """
    stay = {*manifest.kept, manifest.version - 1}
    older: set[str] = set()
    for path in sorted(folder.iterdir()):
        found = _MANIFEST.fullmatch(path.name)
        if found and int(found[1]) not in stay:
            path.unlink()
        elif found:
            older |= _names(folder, int(found[1]))
    for path in sorted([*folder.iterdir(), *((folder / OLD).iterdir() if (folder / OLD).is_dir() else ())]):
        _clean_up(folder, path, manifest, older)
    for path in sorted((folder / ASIDE).glob("*")):
        if _DRAFT.fullmatch(path.name) or version_of(path.name) > manifest.version:
            path.unlink()
    if (folder / OLD).is_dir() and not any((folder / OLD).iterdir()):
        (folder / OLD).rmdir()
    if manifest.is_plain:
        (folder / UNMERGED).unlink(missing_ok=True)


def _names(folder: Path, version: int) -> set[str]:
    """Return the files of an older version; none where its manifest cannot be read, which is reported when it is opened."""
    try:
        return Manifest.read(folder, version).names
    except StoreError:
        return set()


def _clean_up(folder: Path, path: Path, manifest: Manifest, older: set[str]) -> None:
    name = path.name
    if _DRAFT.fullmatch(name):
        path.unlink(missing_ok=True)
    elif found := _VERSIONED.fullmatch(name):
        if int(found[1]) > manifest.version:
            path.unlink()
    elif _LOG.fullmatch(name):
        if name not in manifest.log:
            path.unlink()
    elif _SEGMENTS.fullmatch(name) and name not in manifest.names:
        if name not in older:
            path.unlink()
        elif path.parent == folder and not name.startswith("_"):
            (folder / OLD).mkdir(exist_ok=True)
            path.replace(folder / OLD / name)

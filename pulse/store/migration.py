"""Migrate a model of earlier versions of Pulse, which were published by renames, to the log of commits.

Their newest manifest is ``_pulse.json``, older ones are ``_pulse-VVV.json``, and files that only those need lie in ``_old``. No
file is moved or written anew: a commit of each version names the files where they are, with their checksums. As long as
``_pulse.json`` is there it is the model; removing it, at the end, makes the log the model. A migration that is killed before is
done again by the next write.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from pulse.core.time import to_microseconds
from pulse.store.checksums import DataFile, seal
from pulse.store.commits import LEGACY, LOG, commit_path, create, sync_folder
from pulse.store.errors import StoreError
from pulse.store.manifest import ASIDE, OLD, Manifest

MIGRATED = "migrated"
_REVISED = re.compile(r"revisions-(\d+)-.*")


def migrate(folder: Path) -> Manifest:
    """Return the newest commit of a model; make commits of its manifests first if it has none."""
    newest = Manifest.read(folder)
    if newest.commit:
        return newest
    (folder / LOG).mkdir(exist_ok=True)
    for place in (folder, folder / OLD, folder / ASIDE):
        if place.is_dir():
            sync_folder(place)
    sealed: dict[str, DataFile] = {}
    commits: dict[str, int] = {}
    for number, version in enumerate([*newest.kept, newest.version], 1):
        manifest = replace(
            Manifest.read(folder, version),
            commit=number,
            parent=number - 1,
            reason=MIGRATED,
            committed=int(to_microseconds(newest.created)[0]),
            commits=dict(commits),
        )
        names = legacy_files(folder, manifest)
        for name in names:
            if name not in sealed:
                sealed[name] = _sealed(folder, name)
        manifest = replace(manifest, data={name: sealed[name] for name in names})
        _create(folder, manifest)
        commits[str(version)] = number
    (folder / LEGACY).unlink(missing_ok=True)
    sync_folder(folder)
    return Manifest.read(folder)


def _create(folder: Path, manifest: Manifest) -> None:
    if create(folder, manifest.commit, manifest.document()):
        return
    there = Manifest.read(folder, commit=manifest.commit)  # of a migration that was killed, or runs
    if there != manifest:
        raise StoreError(
            f"{commit_path(folder, manifest.commit)}: expected a commit of version {manifest.version}, which is to be migrated, "
            f"got another; remove the folder {folder / LOG} if {LEGACY} is the model"
        )


def _sealed(folder: Path, name: str) -> DataFile:
    return seal(folder / name) if (folder / name).exists() else seal(folder / OLD / name, OLD)


def legacy_files(folder: Path, manifest: Manifest) -> list[str]:
    """Return the files of a manifest that has no list of them."""
    names = manifest.needed | {one.name for one in folder.glob("_ends-*.parquet")}
    names |= {name for change in manifest.changes for name in change.get("counts", {}).get("ends_files", ())}
    return sorted(name for name in names if _exists(folder, name)) + legacy_asides(folder, manifest)


def legacy_asides(folder: Path, manifest: Manifest) -> list[str]:
    """Return the files of tuples and revisions that were set aside until a version."""
    found = sorted((folder / ASIDE).glob("*.parquet")) if (folder / ASIDE).is_dir() else []
    return [f"{ASIDE}/{one.name}" for one in found if _version_of(one.name) <= manifest.version]


def _exists(folder: Path, name: str) -> bool:
    return (folder / name).exists() or (folder / OLD / name).exists()


def _version_of(name: str) -> int:
    """Return the version in the name of a file of rejected revisions; 0 for other names."""
    found = _REVISED.fullmatch(name)
    return int(found[1]) if found else 0

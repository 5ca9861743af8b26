"""The manifest of a stored model: everything about it except the segments.

It is the newest document of the log of commits (:mod:`pulse.store.commits`): the whole state, with the number of the commit, its
parent, why it was made, and the checksum of every data file. Readers ignore unknown fields and reject a higher
``format_version``.

A model has versions: the first fit is 1, every revision and every ``--append`` makes the next. Commits that change no segment
(rows set aside, a vacuum) keep the version. ``commits`` has the last commit of each older version.

Models of earlier versions of Pulse have their manifest in ``_pulse.json``, and those of older versions in ``_pulse-VVV.json``;
they are read as they are, and migrated by the first write (:mod:`pulse.store.migration`).
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pulse._version import VERSION
from pulse.core.errors import SchemaError
from pulse.core.plane import UNBOUNDED, Plane
from pulse.core.schema import StreamSchema
from pulse.core.typed_data import typed
from pulse.store.checksums import DataFile
from pulse.store.commits import LEGACY, LOG, check_signed, commit_path, numbers, signed
from pulse.store.errors import DamagedModelError, ModelNotFoundError, StoreError, VersionGoneError
from pulse.store.link_checks import check_own
from pulse.store.manifest_schema import Count, DataName, FigureFields, Name, OpenFields, Whole

FORMAT, FORMAT_VERSION = "pulse-model", 4
_LOOKS = 5  # attempts to read the newest commit, which a migration may have moved, or a vacuum removed
_OPTIONAL = ("accents", "where", "derived")  # fields that are left out where there is nothing to state
OLD, ASIDE = "_old", "_aside"
"""Subfolders of a model: files of older versions that earlier versions of Pulse have moved, and rejected tuples."""
FOLDERS = (OLD, ASIDE, LOG)
_DISTORTION = re.compile(r"x, y: metres, (.*): distances within ([0-9.e+-]+) %")


@dataclass(frozen=True)
class Source:
    """A file that was modelled. ``modelled``: the bytes of its modelled columns; None where unknown."""

    path: str
    bytes: Count
    rows: Count
    modelled: Count | None = None


@dataclass(frozen=True)
class LayerFile:
    """A file of corrections to a part: how many segments it withdraws and inserts, and the points among both."""

    name: Name
    version: Count
    withdrawn: Count
    put: Count
    points: Whole  # inserted less withdrawn
    keys: Count
    bytes: Count
    start: Whole | None
    end: Whole | None
    known: Whole | None  # the newest known time in it


@dataclass(frozen=True)
class PartFile:
    """A file of segments, with statistics that let a query skip it unopened; they ignore layers."""

    name: Name
    segments: Count
    points: Count
    keys: Count
    bytes: Count
    start: Whole | None  # microseconds since the epoch, rounded outwards
    end: Whole | None
    layers: tuple[LayerFile, ...] = ()  # corrections to it, oldest first

    @property
    def rows(self) -> int:
        """Return the number of segments after all corrections, points included."""
        return self.segments + sum(layer.put - layer.withdrawn for layer in self.layers)

    @property
    def points_left(self) -> int:
        """Return the number of points among :attr:`rows`."""
        return self.points + sum(layer.points for layer in self.layers)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the file and its layers."""
        return (self.name, *(layer.name for layer in self.layers))


@dataclass(frozen=True)
class Manifest:
    """The contents, origin and quality of a model."""

    schema: StreamSchema
    fit: dict[str, Any]
    sources: tuple[Source, ...]
    files: tuple[PartFile, ...]
    counts: dict[str, Any]  # tuples, late, not_finite, superseded, …
    statistics: dict[str, Any]  # per attribute: worst achieved err and drift
    created: str
    statements: tuple[str, ...] = ()  # notes on what the reader did to the source
    pulse_version: str = VERSION
    fits: Count = 1  # number of fits: the first, and those appended
    version: Count = 1
    kept: tuple[Count, ...] = ()  # older versions that are kept on request
    since: Whole | None = None  # AS OF is answered from this instant on; None: from the beginning
    changes: tuple[dict[str, Any], ...] = ()  # one per version after the first: version, at, what, counts
    log: tuple[Name, ...] = ()  # files of applied revisions since the first fit, in order
    history: dict[str, Any] = field(
        default_factory=dict
    )  # where the tuples are: see pulse.store.tuples.tuple_history
    stale: bool = False  # files hold drifts that a revision has invalidated
    accents: Name | None = None  # the file of the stream's accents; the model is in the units of its start
    where: dict[str, Any] | None = None  # the filter of rows: its text and its tree; None: all rows count
    derived: dict[str, Any] = field(
        default_factory=dict
    )  # of a model that is not fitted to tuples: see pulse.store.derived
    commit: Count = 0  # the number of the commit; 0: none, or of an earlier version of Pulse
    parent: Count = 0  # the commit that this one changes; 0: none
    reason: str = ""  # why it was made, such as "appended"
    committed: Whole = 0  # when, in microseconds
    commits: dict[Name, Count] = field(default_factory=dict)  # by older version: its last commit
    data: dict[DataName, DataFile] = field(default_factory=dict)  # all files of this state
    removed: tuple[DataName, ...] = ()  # those that a vacuum removes after this commit

    @property
    def segments(self) -> int:
        """Return the number of segments, without points."""
        return sum(file.rows - file.points_left for file in self.files)

    @property
    def points(self) -> int:
        """Return the number of points."""
        return sum(file.points_left for file in self.files)

    @property
    def has_layers(self) -> bool:
        """Check whether some file is corrected by another."""
        return any(file.layers for file in self.files)

    @property
    def is_plain(self) -> bool:
        """Check whether the files alone are the model."""
        return not self.has_layers and not self.stale

    @property
    def revised(self) -> bool:
        """Check whether tuples have been revised since the first fit."""
        return any(change["what"] == "revised" for change in self.changes)

    @property
    def drift_is_void(self) -> bool:
        """Check whether no drift is certified any more: the model was revised, and the fit had no bound on drift (semantics
        7.2).
        """
        return self.revised and not any(self.fit.get("drift", {}).values())

    @property
    def end(self) -> int | None:
        """Return the end of the newest segment, rounded up to the microsecond."""
        return max(self.bounds[1], default=None)

    @property
    def bounds(self) -> tuple[list[int], list[int]]:
        """Return the starts of the files' and layers' first segments, and the ends of their last ones."""
        files: list[PartFile | LayerFile] = []
        for file in self.files:
            files += [file, *file.layers]
        return (
            [one.start for one in files if one.start is not None],
            [one.end for one in files if one.end is not None],
        )

    @property
    def names(self) -> set[str]:
        """Return the files of segments: all parts and layers."""
        return {name for file in self.files for name in file.names}

    @property
    def needed(self) -> set[str]:
        """Return every file that this manifest names, whatever for."""
        own = {*self.names, *self.log, *([] if self.accents is None else [self.accents])}
        return own | {one["name"] for fit in self.history.get("fits", ()) for one in fit["tuples"] or ()}

    @property
    def tuples(self) -> int:
        """Return the number of tuples that fits have read, modelled or rejected, plus and minus those of revisions."""
        return int(self.counts.get("tuples") or 0)

    @property
    def modelled(self) -> int:
        """Return the number of modelled tuples: without those that fits rejected, unless a revision inserted them."""
        return self.tuples - sum(int(self.counts.get(name) or 0) for name in ("late", "not_finite"))

    @property
    def late_put_in(self) -> int:
        """Return the number of late tuples that revisions have inserted."""
        return sum(int(change.get("counts", {}).get("late") or 0) for change in self.changes)

    @property
    def content(self) -> Manifest:
        """Return what a commit publishes, without what it records of itself: no other where rows are set aside, or vacuumed."""
        return replace(self, commit=0, parent=0, reason="", committed=0, commits={}, data={}, removed=())

    def with_prefix(self, prefix: str) -> list[str]:
        """Return the files of this state whose names begin so, in order."""
        return sorted(name for name in self.data if name.startswith(prefix))

    def to_json(self) -> str:
        """Return the text of a commit, without its checksum."""
        fields: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **{name: value for name, value in vars(self).items() if name not in _OPTIONAL or value},
            "schema": json.loads(self.schema.to_json()),
            "sources": [asdict(source) for source in self.sources],
            "files": [asdict(file) for file in self.files],
            "data": {name: _present(vars(self.data[name])) for name in sorted(self.data)},
        }
        for file in fields["files"]:
            if not file["layers"]:
                del file["layers"]
        return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"

    def document(self) -> bytes:
        """Return the content of a commit."""
        return signed(self.to_json())

    @classmethod
    def read(cls, folder: str | Path, version: int | None = None, commit: int | None = None) -> Manifest:
        """Read the newest manifest of the model in this folder, that of an older version, or of one commit."""
        if commit:
            return cls._of_commit(folder, commit)
        newest = cls._newest(folder)
        if version is None or version == newest.version:
            return newest
        path = commit_path(folder, newest.commits.get(str(version), 0))
        if not newest.commit:
            path = Path(folder) / f"_pulse-{version:03d}.json"
        content = path.read_bytes() if path.is_file() else b""
        if not content:  # a vacuum leaves an empty document
            raise VersionGoneError(
                f"{folder}: there is no version {version}; the newest is {newest.version}, kept are "
                f"{', '.join(map(str, newest.kept)) or 'no others'}; old versions are kept by `pulse revise --keep`"
            )
        return cls.parse(path, content)

    @classmethod
    def _newest(cls, folder: str | Path) -> Manifest:
        for _ in range(_LOOKS):
            check_own(folder, FOLDERS)
            legacy = Path(folder) / LEGACY  # while it is there, it is the model (pulse.store.migration)
            found = [] if legacy.is_file() else numbers(folder)
            path = commit_path(folder, found[-1]) if found else legacy
            try:
                return cls.parse(path, path.read_bytes())
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
        kind = "the folder has no commit" if Path(folder).exists() else "there is no such folder"
        raise ModelNotFoundError(
            f"{folder}: not a stored model: {kind}; make one with `pulse fit … --out {folder}`"
        )

    @classmethod
    def _of_commit(cls, folder: str | Path, number: int) -> Manifest:
        path = commit_path(folder, number)
        content = path.read_bytes() if path.is_file() else b""
        if not content:
            raise VersionGoneError(
                f"{folder}: commit {number} is gone; `pulse vacuum` removes commits past their retention"
            )
        return cls.parse(path, content)

    @classmethod
    def parse(cls, path: Path, content: bytes) -> Manifest:
        """Build a manifest from the content of a file, which errors name."""
        logged = path.name != LEGACY and path.parent.name == LOG
        if logged:
            check_signed(path, content)
        try:
            fields = json.loads(content.decode("utf-8"))
            version = fields["format_version"]
            if fields["format"] != FORMAT or version > FORMAT_VERSION:
                raise StoreError(
                    f"{path}: format {fields['format']} version {version}; "
                    f"this is Pulse {VERSION}, which reads {FORMAT} up to {FORMAT_VERSION}"
                )
            typed(fields, OpenFields)
            typed(fields, FigureFields)
            schema = StreamSchema.from_json(json.dumps(fields["schema"]))
            made = typed({"pulse_version": None, **fields, "schema": schema}, cls)
            if logged and path != commit_path(path.parent.parent, made.commit):
                raise DamagedModelError(
                    f"{path}: the document is that of commit {made.commit}; restore the right one"
                )
            return replace(made, schema=_with_plane(schema, made.statements))
        except (ValueError, KeyError, TypeError, RecursionError, SchemaError) as e:
            if isinstance(e, StoreError):
                raise
            raise StoreError(
                f"{path}: not a manifest ({type(e).__name__}: {e}); restore it, or fit the model anew"
            ) from e


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _with_plane(schema: StreamSchema, statements: tuple[str, ...]) -> StreamSchema:
    """Add the plane of its positions to the schema, with the projection of its reader's note.

    For a model from before planes were recorded the distortion is the note's, too: rounded to two digits, and it covers nearly
    all positions; those outside are assumed to be no better.
    """
    found = [one for one in map(_DISTORTION.match, statements) if one is not None]
    if not found or not {"x", "y"} <= {*schema.modelled_names}:
        return schema
    projections = {one[1] for one in found}
    crs = found[0][1] if len(projections) == 1 else ""
    if schema.plane is not None:
        return replace(schema, plane=schema.plane._replace(crs=crs))
    worst = max(float(one[2]) for one in found)
    return replace(schema, plane=Plane(min(1.05 * worst / 100.0, UNBOUNDED), UNBOUNDED, crs=crs))

"""The manifest of a stored model: everything about it that is not a segment.

``_pulse.json`` in the model's directory. Fields that a reader does not know are kept out of its way, a higher
``format_version`` is refused. A model whose files are corrected by layers (:mod:`pulse.store.versions.layers`) has the format
version 2, so that a reader that knows nothing of layers refuses it; without layers it is 1, as ever.

A model has versions: the first fit is 1, every revision and every ``--append`` makes the next. The manifest of an older
version lies in ``_pulse-VVV.json``, as long as the version is kept.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pulse._version import VERSION
from pulse.core.errors import SchemaError
from pulse.core.plane import Plane
from pulse.core.schema import StreamSchema
from pulse.store.errors import ModelNotFoundError, StoreError, VersionGoneError
from pulse.store.link_checks import check_own
from pulse.store.manifest_schema import check_manifest
from pulse.store.staging import recover

FILE = "_pulse.json"
FORMAT, FORMAT_VERSION = "pulse-model", 2
_LOOKS = 5  # for a manifest that was there and is not, while others replace the model
PLAIN_VERSION = 1  # of models without layers
OLD, ASIDE = FOLDERS = "_old", "_aside"
"""Folders in that of a model: files that only older versions need, and tuples that had no place in it."""
_DISTORTION = re.compile(r"x, y: metres, .*: distances within ([0-9.e+-]+) %")


@dataclass(frozen=True)
class Source:
    """A file that was modelled. ``modelled``: how many of its bytes are of columns in the model; None where nobody knows."""

    path: str
    bytes: int
    rows: int
    modelled: int | None = None


@dataclass(frozen=True)
class LayerFile:
    """A file of corrections to a part: how many segments it withdraws and puts in, points among both."""

    name: str
    version: int
    withdrawn: int
    put: int
    points: int  # put in, less those withdrawn
    keys: int
    bytes: int
    start: int | None
    end: int | None
    known: int | None  # the newest instant at which something in it came to be known


@dataclass(frozen=True)
class PartFile:
    """A file of segments, and what a query can tell from it without opening it; the figures are the file's own."""

    name: str
    segments: int
    points: int
    keys: int
    bytes: int
    start: int | None  # microseconds since the epoch, rounded outwards
    end: int | None
    layers: tuple[LayerFile, ...] = ()  # that correct it, the oldest first

    @property
    def rows(self) -> int:
        """Segments that are left after all corrections, points included."""
        return self.segments + sum(layer.put - layer.withdrawn for layer in self.layers)

    @property
    def points_left(self) -> int:
        """Points among :attr:`rows`."""
        return self.points + sum(layer.points for layer in self.layers)

    @property
    def names(self) -> tuple[str, ...]:
        """The file and its layers."""
        return (self.name, *(layer.name for layer in self.layers))

    def to_fields(self) -> dict[str, Any]:
        """For JSON; a file without layers looks as it did before there were any."""
        fields = asdict(self)
        if not self.layers:
            del fields["layers"]
        return fields

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> PartFile:
        """What :meth:`to_fields` gave."""
        layers = tuple(LayerFile(**layer) for layer in fields.get("layers", ()))
        return cls(**{**fields, "layers": layers})


@dataclass(frozen=True)
class Manifest:
    """What a model is of, how it was made, and how good it is."""

    schema: StreamSchema
    fit: dict[str, Any]
    sources: tuple[Source, ...]
    files: tuple[PartFile, ...]
    counts: dict[str, Any]  # tuples, late, not_finite, superseded, …
    statistics: dict[str, Any]  # per attribute: worst achieved err and drift
    created: str
    statements: tuple[str, ...] = ()  # what reading the source did beyond reading
    pulse_version: str = VERSION
    fits: int = 1  # how many it is made of: the first, and those appended
    version: int = 1
    kept: tuple[int, ...] = ()  # older versions that are kept on request
    since: int | None = None  # AS OF is answered from this instant on; None: from the beginning
    changes: tuple[dict[str, Any], ...] = ()  # one per version after the first: version, at, what, counts
    log: tuple[str, ...] = ()  # files of applied revisions since the first fit, in order
    history: dict[str, Any] = field(
        default_factory=dict
    )  # where the tuples are: see pulse.store.tuples.tuple_history
    stale: bool = False  # files hold drifts that a revision has made void
    accents: str | None = None  # the file of the stream's accents: the model is in the units of its start

    @property
    def segments(self) -> int:
        """Ranges, points left out."""
        return sum(file.rows - file.points_left for file in self.files)

    @property
    def points(self) -> int:
        """Points."""
        return sum(file.points_left for file in self.files)

    @property
    def has_layers(self) -> bool:
        """Whether some file is corrected by another."""
        return any(file.layers for file in self.files)

    @property
    def is_plain(self) -> bool:
        """Whether the files by themselves are the model."""
        return not self.has_layers and not self.stale

    @property
    def revised(self) -> bool:
        """Whether tuples have been revised since the first fit."""
        return any(change["what"] == "revised" for change in self.changes)

    @property
    def drift_is_void(self) -> bool:
        """Whether no drift is certified any more: the model was revised, and nobody asked for a bound on it (semantics 7.2)."""
        return self.revised and not any(self.fit.get("drift", {}).values())

    @property
    def end(self) -> int | None:
        """Where the newest segment ends, rounded up to the microsecond."""
        return max(self.bounds[1], default=None)

    @property
    def bounds(self) -> tuple[list[int], list[int]]:
        """Where the files' and layers' first segments begin, and where their last ones end."""
        files: list[PartFile | LayerFile] = []
        for file in self.files:
            files += [file, *file.layers]
        return (
            [one.start for one in files if one.start is not None],
            [one.end for one in files if one.end is not None],
        )

    @property
    def names(self) -> set[str]:
        """Every file that reading this version may open."""
        return {name for file in self.files for name in file.names}

    @property
    def tuples(self) -> int:
        """Tuples that fits have read, whether modelled or set aside, with what revisions put in or took away."""
        return int(self.counts.get("tuples") or 0)

    @property
    def modelled(self) -> int:
        """Tuples that the model is of: without those that fits set aside, unless a revision put them in."""
        return self.tuples - sum(int(self.counts.get(name) or 0) for name in ("late", "not_finite"))

    @property
    def late_put_in(self) -> int:
        """Late tuples that revisions have put in after all."""
        return sum(int(change.get("counts", {}).get("late") or 0) for change in self.changes)

    def to_json(self) -> str:
        """The file's text."""
        fields = {
            "format": FORMAT,
            "format_version": PLAIN_VERSION if self.is_plain else FORMAT_VERSION,
            "pulse_version": self.pulse_version,
            "created": self.created,
            "fits": self.fits,
            "schema": json.loads(self.schema.to_json()),
            "fit": self.fit,
            "sources": [asdict(source) for source in self.sources],
            "statements": list(self.statements),
            "counts": self.counts,
            "statistics": self.statistics,
            "files": [file.to_fields() for file in self.files],
            "version": self.version,
            "kept": list(self.kept),
            "since": self.since,
            "changes": list(self.changes),
            "log": list(self.log),
            "history": self.history,
            "stale": self.stale,
            **({"accents": self.accents} if self.accents else {}),
        }
        return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: str | Path, version: int | None = None) -> Manifest:
        """The manifest of the model in this folder, of the newest version or of an older one that is kept."""
        newest = cls._read(folder, Path(folder) / FILE)
        if version is None or version == newest.version:
            return newest
        path = manifest_path(folder, version)
        if not path.is_file():
            raise VersionGoneError(
                f"{folder}: there is no version {version}; the newest is {newest.version}, "
                f"kept are {', '.join(map(str, newest.kept)) or 'no others'}; old versions are kept by `pulse revise --keep`"
            )
        return cls._read(folder, path)

    @classmethod
    def _read(cls, folder: str | Path, path: Path) -> Manifest:
        text = _text(folder, path)
        if text is None:
            kind = "there is no such folder" if not Path(folder).exists() else f"the folder has no {FILE}"
            raise ModelNotFoundError(
                f"{folder}: not a stored model: {kind}; make one with `pulse fit … --out {folder}`"
            )
        try:
            fields = json.loads(text.decode("utf-8"))
            version = fields["format_version"]
            if fields["format"] != FORMAT or version > FORMAT_VERSION:
                raise StoreError(
                    f"{path}: format {fields['format']} version {version}; "
                    f"this is Pulse {VERSION}, which reads {FORMAT} up to {FORMAT_VERSION}"
                )
            check_manifest(fields)
            statements = tuple(fields.get("statements", ()))
            return cls(
                schema=_with_plane(StreamSchema.from_json(json.dumps(fields["schema"])), statements),
                fit=fields["fit"],
                sources=tuple(Source(**source) for source in fields["sources"]),
                files=tuple(PartFile.of_fields(file) for file in fields["files"]),
                counts=fields["counts"],
                statistics=fields["statistics"],
                created=fields["created"],
                statements=statements,
                pulse_version=fields["pulse_version"],
                fits=fields.get("fits", 1),
                version=fields.get("version", 1),
                kept=tuple(fields.get("kept", ())),
                since=fields.get("since"),
                changes=tuple(fields.get("changes", ())),
                log=tuple(fields.get("log", ())),
                history=fields.get("history", {}),
                stale=fields.get("stale", False),
                accents=fields.get("accents"),
            )
        except (ValueError, KeyError, TypeError, RecursionError, SchemaError) as e:
            if isinstance(e, StoreError):
                raise
            raise StoreError(
                f"{path}: not a manifest ({type(e).__name__}: {e}); restore it, or fit the model anew"
            ) from e


def _text(folder: str | Path, path: Path) -> bytes | None:
    """What a manifest's file holds; None where there is none. One that is being replaced may be away at the first look."""
    for _ in range(_LOOKS):
        check_own(folder, FOLDERS)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            recover(Path(folder).absolute())
    return None


def _with_plane(schema: StreamSchema, statements: tuple[str, ...]) -> StreamSchema:
    """The schema with the plane of its positions; of a model from before that was noted, as the statement of its reader has it.

    That is rounded to two digits, and speaks of nearly all positions: what is outside is taken to be no better.
    """
    if schema.plane is not None:
        return schema
    found = [one for one in map(_DISTORTION.match, statements) if one is not None]
    if not found or not {"x", "y"} <= {*schema.modelled_names}:
        return schema
    worst = max(float(one[1]) for one in found)
    return replace(schema, plane=Plane(min(1.05 * worst / 100.0, 1.0), 1.0))


def manifest_path(folder: str | Path, version: int) -> Path:
    """Where the manifest of an older version lies."""
    return Path(folder) / f"_pulse-{version:03d}.json"

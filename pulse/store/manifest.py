"""The manifest of a stored model: everything about it that is not a segment.

``_pulse.json`` in the model's directory. Fields that a reader does not know are kept out of its way, a higher
``format_version`` is refused.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pulse._version import VERSION
from pulse.core import StreamSchema
from pulse.core.errors import SchemaError
from pulse.store.errors import ModelNotFoundError, StoreError

FILE = "_pulse.json"
FORMAT, FORMAT_VERSION = "pulse-model", 1


@dataclass(frozen=True)
class Source:
    """A file that was modelled."""

    path: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class PartFile:
    """A file of segments, and what a query can tell from it without opening it."""

    name: str
    segments: int
    points: int
    keys: int
    bytes: int
    start: int | None  # microseconds since the epoch, rounded outwards
    end: int | None


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

    @property
    def segments(self) -> int:
        """Ranges, points left out."""
        return sum(file.segments - file.points for file in self.files)

    @property
    def tuples(self) -> int:
        """Tuples that were modelled or set aside."""
        return int(self.counts.get("tuples", 0))

    def to_json(self) -> str:
        """The file's text."""
        fields = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "pulse_version": self.pulse_version,
            "created": self.created,
            "fits": self.fits,
            "schema": json.loads(self.schema.to_json()),
            "fit": self.fit,
            "sources": [asdict(source) for source in self.sources],
            "statements": list(self.statements),
            "counts": self.counts,
            "statistics": self.statistics,
            "files": [asdict(file) for file in self.files],
        }
        return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: str | Path) -> Manifest:
        """The manifest of the model in this folder."""
        path = Path(folder) / FILE
        if not path.is_file():
            kind = "there is no such folder" if not Path(folder).exists() else f"the folder has no {FILE}"
            raise ModelNotFoundError(
                f"{folder}: not a stored model: {kind}; make one with `pulse fit … --out {folder}`"
            )
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            version = fields["format_version"]
            if fields["format"] != FORMAT or version > FORMAT_VERSION:
                raise StoreError(
                    f"{path}: format {fields['format']} version {version}; "
                    f"this is Pulse {VERSION}, which reads {FORMAT} up to {FORMAT_VERSION}"
                )
            for name in ("fit", "counts", "statistics"):
                if not isinstance(fields[name], dict):
                    raise TypeError(f"'{name}' is {fields[name]!r}")
            return cls(
                schema=StreamSchema.from_json(json.dumps(fields["schema"])),
                fit=fields["fit"],
                sources=tuple(Source(**source) for source in fields["sources"]),
                files=tuple(PartFile(**file) for file in fields["files"]),
                counts=fields["counts"],
                statistics=fields["statistics"],
                created=fields["created"],
                statements=tuple(fields.get("statements", ())),
                pulse_version=fields["pulse_version"],
                fits=fields.get("fits", 1),
            )
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, SchemaError) as e:
            raise StoreError(
                f"{path}: not a manifest ({type(e).__name__}: {e}); restore it, or fit the model anew"
            ) from e

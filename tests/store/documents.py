"""Commits as text, for tests that look into them or change them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pulse.store.checksums import seal
from pulse.store.commits import commit_path, numbers, signed


def document(folder: Path) -> Path:
    """The newest commit of a model."""
    return commit_path(folder, numbers(folder)[-1])


def fields_of(folder: Path) -> dict[str, Any]:
    """The content of the newest commit."""
    fields: dict[str, Any] = json.loads(document(folder).read_text(encoding="utf-8"))
    return fields


def rewrite(folder: Path, fields: Any) -> None:
    """Replace the newest commit of a model, or make its first, by JSON with a checksum that fits."""
    path = document(folder) if numbers(folder) else commit_path(folder, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_document(fields))


def as_document(fields: Any) -> bytes:
    """A commit with a checksum that fits; what is no object has none."""
    if not isinstance(fields, dict):
        return json.dumps(fields).encode()
    text = json.dumps({name: value for name, value in fields.items() if name != "checksum"}, indent=2)
    return signed(text if fields.keys() - {"checksum"} else "{\n}")


def reseal(folder: Path) -> None:
    """Let the newest commit have the checksums of its files as they are now."""
    fields = fields_of(folder)
    for name, file in fields["data"].items():
        sealed = seal(folder / name)
        file |= {"bytes": sealed.bytes, "checksum": sealed.checksum, "footer": sealed.footer}
    rewrite(folder, fields)

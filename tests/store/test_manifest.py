"""The manifest: everything survives the file, and what is no manifest says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pulse.core.schema import StreamSchema
from pulse.operators.fit.spec import FitSpec
from pulse.store.commits import commit_path
from pulse.store.errors import ModelNotFoundError, StoreError
from pulse.store.manifest import FORMAT_VERSION, Manifest, PartFile, Source
from tests.store.documents import rewrite

SCHEMA = StreamSchema.of(
    key={"symbol": "string", "id": "int32"},
    time="t",
    modelled={"price": "step", "x": "linear"},
    unmodelled={"run": "string"},
)


def manifest(**changed: Any) -> Manifest:
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "fit": FitSpec.of(SCHEMA, error="0.05%").to_json(),
        "sources": (Source("/data/ticks é.parquet", 10, 4), Source("more", 0, 0)),
        "files": (
            PartFile("part-000-00000.parquet", 3, 1, 2, 99, -5, 7),
            PartFile("closing", 1, 1, 1, 9, None, None),
        ),
        "counts": {"tuples": 4, "removed": {"no price": 2}},
        "statistics": {"attributes": {"price": {"worst_err": 0.1 + 0.2, "worst_drift": None}}},
        "created": "2024-01-01T00:00:00+00:00",
        "statements": ("times are UTC",),
        "fits": 3,
        "commit": 1,
    }
    return Manifest(**{**fields, **changed})


def test_it_survives_the_file(tmp_path: Path) -> None:
    rewrite(tmp_path, json.loads(manifest().to_json()))
    again = Manifest.read(tmp_path)
    assert again == manifest()
    assert (again.segments, again.tuples, again.schema.key_names) == (2, 4, ("symbol", "id"))


def test_fields_that_are_not_known_yet_do_no_harm(tmp_path: Path) -> None:
    fields = json.loads(manifest().to_json())
    fields["colour"] = "blue"
    rewrite(tmp_path, fields)
    assert Manifest.read(tmp_path) == manifest()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    fields = json.loads(manifest().to_json())
    fields["format_version"] = FORMAT_VERSION + 1
    rewrite(tmp_path, fields)
    with pytest.raises(
        StoreError, match=rf"version {FORMAT_VERSION + 1}; this is Pulse .* up to {FORMAT_VERSION}"
    ):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"format": "pulse-model", "format_version": "1"}',
        "\xff\xfe",
        '{"format": 1}',
    ],
)
def test_a_damaged_manifest(tmp_path: Path, text: str) -> None:
    path = commit_path(tmp_path, 1)
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreError, match=path.name):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("field", ["schema", "fit", "files", "sources", "counts", "statistics"])
@pytest.mark.parametrize("damage", [None, 7, "gone"])
def test_a_manifest_with_a_damaged_field(tmp_path: Path, field: str, damage: Any) -> None:
    fields = json.loads(manifest().to_json())
    if damage == "gone":
        del fields[field]
    else:
        fields[field] = damage
    rewrite(tmp_path, fields)
    with pytest.raises(StoreError, match="restore it, or fit the model anew"):
        Manifest.read(tmp_path)


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="there is no such folder; make one with `pulse fit"):
        Manifest.read(tmp_path / "nowhere")
    with pytest.raises(ModelNotFoundError, match="the folder has no commit"):
        Manifest.read(tmp_path)

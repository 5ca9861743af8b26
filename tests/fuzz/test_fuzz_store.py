"""Stored models that were damaged: manifests of any shape, names that lead elsewhere, files cut short, gone or of other bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import PulseError
from pulse.core.regions import Regions
from pulse.session import Session
from pulse.store.errors import StoreError
from pulse.store.manifest import Manifest
from pulse.store.model import Model
from pulse.store.read_units import read_unit, units
from pulse.store.tuples.tuple_history import TupleHistory
from pulse.store.versions.revision_log import log_rows
from pulse.stream.accents.log import AccentLog
from tests.fuzz.harness import a_share, answer, damaged_bytes, damaged_tree, json_values
from tests.store.documents import fields_of, rewrite
from tests.store.revising import fitted

ACCENTS = AccentLog.parse(["2020-09-13T12:26:50 [[k = 'a', alter(x, y / 4)]]"], times=["t"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with layers, a log, tuples, accents and an older version."""
    folder = tmp_path_factory.mktemp("model") / "m"
    fitted(folder, "ab", 6, keep_tuples="all", accents=ACCENTS)
    model = Model(folder)
    at = model.read(key="b").ref[1]
    value = float(model.read(key="b").coefficients("x")[1, 0])
    changes = pa.table(
        {
            "kind": ["-U", "+U"],
            "k": ["b", "b"],
            "t": pa.array([int(at)] * 2, pa.int64()).cast(pa.timestamp("us")),
            "x": [value, value + 100.0],
        }
    )
    Session(engine="local").revise(folder, changes, keep=True)
    return folder


@pytest.fixture
def model(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "m"))


def use(folder: Path) -> None:
    """All that reads a model."""
    model = answer(Model, folder)
    if isinstance(model, PulseError):
        return
    answer(repr, model)
    answer(len, model)
    answer(model.read)
    answer(model.read, key="a", recorded=True)
    answer(model.read, start=1_600_000_010_000_000, end=1_600_000_030_000_000)
    answer(model.keys)
    answer(model.aside)
    answer(lambda: list(model.batches()))
    answer(
        lambda: [
            read_unit(model, unit, model.schema.arrow_schema().names) for unit in units(model, at_least=2)
        ]
    )
    answer(log_rows, model)
    answer(lambda: TupleHistory(model).read(Regions((pa.array(["a"]),), np.array([0]), np.array([1 << 60]))))
    answer(
        lambda: (
            Session(engine="local").sql("select k, x from S where x > 3", streams={"S": folder}).segments()
        )
    )
    answer(
        lambda: (
            Session(engine="local")
            .sql("select k, avg(x) from S[size 20 s advance 10 s] group by k", streams={"S": folder})
            .to_arrow()
        )
    )
    for version in (1, 2):
        answer(lambda version=version: Model(folder, version=version).read())


def test_the_good_one_is_read(whole: Path) -> None:
    model = Model(whole)
    assert model.manifest.has_layers
    assert model.accents is not None
    assert model.manifest.kept
    assert len(model.read())


@a_share
@given(data=st.data())
def test_a_damaged_manifest_is_read_or_refused(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    good = fields_of(whole)
    tree = data.draw(damaged_tree(good))
    rewrite(folder, tree)
    use(folder)


@given(json_values)
def test_json_that_is_no_manifest_is_refused(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    folder = tmp_path_factory.getbasetemp()
    rewrite(folder, value)
    assert isinstance(answer(Manifest.read, folder), StoreError)
    rewrite(folder, {"format": "pulse-model", "format_version": value})
    assert isinstance(answer(Manifest.read, folder), StoreError)


@a_share
@given(data=st.data())
def test_a_model_with_a_damaged_file_is_read_or_refused(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    files = sorted(str(one.relative_to(whole)) for one in whole.rglob("*") if one.is_file())
    name = data.draw(st.sampled_from(files))
    (folder / name).write_bytes(data.draw(damaged_bytes((whole / name).read_bytes())))
    use(folder)


def test_a_model_without_one_of_its_files_is_read_or_refused(whole: Path, tmp_path: Path) -> None:
    for one in sorted(whole.rglob("*")):
        folder = Path(shutil.copytree(whole, tmp_path / "m"))
        gone = folder / one.relative_to(whole)
        if one.is_file():
            gone.unlink()
            use(folder)
            gone.mkdir()
            use(folder)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "../m/part-000-00000.parquet",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a/b",
        "a\\b",
        "a\0b",
        5,
        None,
        "n" * 300,
    ],
)
def test_names_that_lead_out_of_the_folder_are_refused(model: Path, name: Any) -> None:
    good = json.dumps(fields_of(model))
    places = [
        lambda m: m["files"][0].update(name=name),
        lambda m: next(one for one in m["files"] if one.get("layers"))["layers"][0].update(name=name),
        lambda m: m["log"].__setitem__(0, name),
        lambda m: m["history"]["fits"][0]["tuples"][0].update(name=name),
        *([lambda m: m.update(accents=name)] if name is not None else []),
    ]
    for change in places:
        manifest = json.loads(good)
        change(manifest)
        rewrite(model, manifest)
        with pytest.raises(StoreError, match="expected the name of a file in the model's folder"):
            Model(model)

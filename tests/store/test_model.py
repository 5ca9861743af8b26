"""Stored models: who can read them, how they are laid out, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.core.errors import UnknownColumnError
from pulse.core.segment.order import find_overlap
from pulse.core.time import format_instant
from pulse.store.errors import ModelNotFoundError, StoreError
from pulse.store.manifest import FORMAT_VERSION
from pulse.store.model import Model
from tests.operators.fit.fitting import EPOCH, tuples
from tests.store.documents import fields_of

ASKED: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}, "error": 0.5}


def walk(n: int = 2000, keys: str = "dbca", seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.integers(-1, 2, n)) * 0.25
    return tuples(np.cumsum(rng.random(n)), k=rng.choice(list(keys), n), u=rng.choice(["p", "q"], n), x=x)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    out = tmp_path_factory.mktemp("stored") / "model"
    return pulse.Session(engine="local").fit(walk(), **ASKED, keep="u", out=out)


def test_opening_reads_the_manifest_only(stored: Model) -> None:
    again = Model(stored.path)
    assert again.manifest == stored.manifest
    assert again.schema == stored.schema
    assert len(again) == len(again.read())
    assert " a segment; " in repr(again)


def test_arrow_reads_the_folder_as_one_table(stored: Model) -> None:
    table = ds.dataset(stored.path).to_table()
    assert table.num_rows == len(stored)
    assert table.column_names == ["k", "ref", "lo", "hi", "u", "x", "x_err", "x_drift", "x_err2"]
    assert table.schema.field("ref").type == pa.timestamp("us")
    assert table.schema.field("x").type == pa.list_(pa.float64())
    assert pq.read_table(stored.path).num_rows == len(stored)


def test_spark_reads_the_folder_as_one_table(stored: Model, spark: SparkSession) -> None:
    frame = spark.read.parquet(str(stored.path))
    assert frame.count() == len(stored)
    assert {f.name: f.dataType.simpleString() for f in frame.schema} == {
        "k": "string", "ref": "timestamp_ntz", "lo": "double", "hi": "double", "u": "string",
        "x": "array<double>", "x_err": "double", "x_drift": "double", "x_err2": "double",
    }  # fmt: skip
    first = frame.orderBy("k", "ref", "lo").first()
    assert first is not None
    assert first["ref"] == stored.read().column("ref")[0].as_py()


def test_files_are_by_key_and_time(stored: Model) -> None:
    for file in stored.manifest.files:
        table = pq.read_table(stored.path / file.name)
        rows = list(
            zip(table["k"].to_pylist(), table["ref"].to_pylist(), table["lo"].to_pylist(), strict=True)
        )
        assert rows == sorted(rows)
        assert (table.num_rows, len(set(table["k"].to_pylist()))) == (file.segments, file.keys)
    assert find_overlap(stored.read().ranges) is None


def test_reading_is_by_key_and_time(stored: Model) -> None:
    assert stored.read().is_sorted
    assert stored.keys().column("k").to_pylist() == ["a", "b", "c", "d"]
    total = sum(len(stored.read(key=k)) for k in "abcd")
    assert total == len(stored)
    assert stored.read(key={"k": "b"}).to_arrow().equals(stored.read(key="b").to_arrow())
    assert len(stored.read(key="nobody")) == 0
    assert sum(len(batch) for batch in stored.batches()) == len(stored)


def test_reading_some_time(stored: Model) -> None:
    start, end = EPOCH + 100_000_000, EPOCH + 300_000_000
    some = stored.read(start=start, end=end)
    wanted = stored.read().restrict(start, end)
    assert some.to_arrow().equals(wanted.to_arrow())
    assert 0 < len(some) < len(stored)
    written = {name: format_instant(at) for name, at in (("start", start), ("end", end))}
    assert stored.read(**written).to_arrow().equals(wanted.to_arrow())
    late = stored.read(key="a", start=end)
    assert len(late) == len(stored.read(key="a").restrict(end, None))


def test_a_key_that_cannot_be(stored: Model) -> None:
    with pytest.raises(UnknownColumnError, match="key: there is no column 'j'"):
        stored.read(key={"j": 1})
    with pytest.raises(StoreError, match="key 'k': expected string, got 7"):
        stored.read(key=7)


def test_a_value_alone_names_no_column_of_two(tmp_path: Path) -> None:
    asked = {**ASKED, "key": ["k", "u"]}
    model = pulse.Session(engine="local").fit(walk(50), **asked)
    with pytest.raises(UnknownColumnError, match="names no column"):
        model.read(key="a")
    assert len(model.read(key={"k": "a", "u": "p"})) > 0
    assert model.keys().num_rows == 8


def test_an_empty_model(tmp_path: Path, spark: SparkSession) -> None:
    model = pulse.Session(engine="local").fit(walk(0), **ASKED, out=tmp_path / "model")
    assert (len(model), len(model.read()), model.keys().num_rows) == (0, 0, 0)
    assert ds.dataset(model.path).to_table().num_rows == 0
    assert spark.read.parquet(str(model.path)).count() == 0
    assert model.aside() is None
    assert "0 segments" in repr(model)


def test_a_model_without_keys(tmp_path: Path) -> None:
    model = pulse.Session(engine="local").fit(walk(50), **{**ASKED, "key": None})
    assert model.keys().num_columns == 0
    assert model.read().is_sorted


def test_what_was_set_aside_is_there_with_its_reason(tmp_path: Path) -> None:
    pq.write_table(tuples([0, 5, 3, 6, 7], u="p", x=[1, 2, 3, None, 4]), tmp_path / "f.parquet")
    model = pulse.Session(engine="local").fit(tmp_path / "f.parquet", **ASKED, keep="u", late="aside")
    aside = model.aside()
    assert aside is not None
    assert aside.select(["k", "x", "u", "reason"]).to_pylist() == [
        {"k": "a", "x": 3.0, "u": "p", "reason": "late"},
        {"k": "a", "x": None, "u": "p", "reason": "not finite"},
    ]
    counts = model.manifest.counts
    assert (counts["tuples"], counts["late"], counts["not_finite"]) == (5, 1, 1)
    assert "x = nan of k 'a'" in counts["first_not_finite"]


def test_statistics_are_the_worst_achieved(stored: Model) -> None:
    worst = stored.manifest.statistics["attributes"]["x"]
    segments = stored.read()
    assert worst["worst_err"] == segments.err("x").max() <= 0.5 + 1e-8  # instants are known to a grain
    assert worst["worst_drift"] == segments.drift("x").max()
    details = fields_of(stored.path)
    assert details["fit"]["error"] == {"x": "0.5"}
    assert details["format_version"] == FORMAT_VERSION


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="not a stored model"):
        Model(tmp_path)

"""Spark against the engine in this process: the same segments, counts and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.core.errors import NullKeyError, UnknownColumnError
from pulse.datasets.errors import DatasetError
from pulse.datasets.plain_csv import PlainCsv
from pulse.operators.fit.spec import FitSpec
from pulse.runtime.fit.spark_driver import partitions_for
from pulse.store.model import Model
from tests import certificates
from tests.operators.fit.fitting import tuples

ASKED: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}, "error": 0.5, "keep": "u"}


@pytest.fixture
def sessions(spark: SparkSession) -> tuple[pulse.Session, pulse.Session]:
    return pulse.Session(spark=spark), pulse.Session(engine="local")


def walk(n: int = 3000, keys: str = "abcdefg", seed: int = 1, start: float = 0.0) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = 100 + np.cumsum(rng.integers(-1, 2, n)) * 0.25
    u = np.where(np.arange(n) // 400 % 2, "p", "q")
    return tuples(start + np.cumsum(rng.random(n)), k=rng.choice(list(keys), n), u=u, x=x)


def files(folder: Path, table: pa.Table, cuts: list[int]) -> list[str]:
    places, paths = [0, *cuts, table.num_rows], []
    folder.mkdir(exist_ok=True)
    for i in range(len(places) - 1):
        path = folder / f"f{i}.parquet"
        pq.write_table(table.slice(places[i], places[i + 1] - places[i]), path, row_group_size=700)
        paths.append(str(path))
    return paths


def same(a: Model, b: Model) -> None:
    assert a.read().to_arrow().equals(b.read().to_arrow())
    assert a.manifest.counts == b.manifest.counts
    assert a.manifest.statistics == b.manifest.statistics
    assert (a.aside() is None) == (b.aside() is None)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"error": None, "drift": 1},
        {"model": {"x": "linear"}, "degree": "auto"},
        {"key": None},
        {"key": ["k", "u"], "keep": ()},
    ],
)
def test_files_give_the_same_segments(sessions: Any, tmp_path: Path, asked: dict[str, Any]) -> None:
    on_spark, local = sessions
    paths = files(tmp_path, walk(), [1000, 1001, 2500])
    details = {**ASKED, **asked}
    same(on_spark.fit(paths, **details), local.fit(paths, **details))


def test_superseded_tuples_are_counted_alike(sessions: Any, tmp_path: Path) -> None:
    table = walk(2000)
    seconds = table["t"].cast("int64").to_numpy() // 4_000_000 * 4_000_000
    table = table.set_column(0, "t", pa.array(seconds).cast(pa.timestamp("us")))
    paths, details = files(tmp_path, table, [500, 501, 1700]), {**ASKED, "keep": ()}
    models = [session.fit(paths, **details) for session in sessions]
    expected = 2000 - len(set(zip(table["k"].to_pylist(), seconds.tolist(), strict=True)))
    assert [model.manifest.counts["superseded"] for model in models] == [expected, expected]


def test_byte_ranges_give_the_same_segments(sessions: Any, tmp_path: Path) -> None:
    on_spark, local = sessions
    table = walk()
    csv = tmp_path / "f.csv"
    table.to_pandas().to_csv(csv, index=False)
    how = {"format": PlainCsv(key=("k",), time="t", range_bytes=20_000)}
    model = on_spark.fit(csv, **ASKED, **how)
    same(model, local.fit(csv, **ASKED, **how))
    assert certificates.problems(table, model.read(), FitSpec.of(model.schema, error=0.5)) == []


def test_overlapping_files_and_bad_values_give_the_same(sessions: Any, tmp_path: Path) -> None:
    on_spark, local = sessions
    one, two = walk(900), walk(900, seed=2, start=200)
    x = np.where(np.arange(900) % 100 == 7, np.nan, two.column("x").to_numpy())
    two = two.set_column(two.column_names.index("x"), "x", pa.array(x))
    paths = [*files(tmp_path / "a", one, []), *files(tmp_path / "b", two, [450])]
    for nonfinite in ("reject", "hole"):
        details = {**ASKED, "nonfinite": nonfinite, "late": "aside"}
        model = on_spark.fit(paths, **details)
        same(model, local.fit(paths, **details))
        counts = model.manifest.counts
        aside = model.aside()
        assert aside is not None
        assert aside.num_rows == counts["late"] + counts["not_finite"]
        assert counts["not_finite"] == 9
        assert "x = nan of k '" in counts["first_not_finite"]


def test_appending_gives_the_same(sessions: Any, tmp_path: Path) -> None:
    on_spark, local = sessions
    table = walk()
    one, two = files(tmp_path / "in", table, [1500])
    models = []
    for session, name in ((on_spark, "spark"), (local, "local")):
        session.fit(one, **ASKED, out=tmp_path / name)
        models.append(session.fit(two, **ASKED, out=tmp_path / name, append=True))
    same(*models)
    assert certificates.problems(table, models[0].read(), FitSpec.of(models[0].schema, error=0.5)) == []


def test_a_dataframe_is_sorted_by_time(sessions: Any, spark: SparkSession) -> None:
    on_spark, local = sessions
    table = walk(800)
    frame = spark.createDataFrame(table.to_pandas()).repartition(4, "x")
    got, wanted = on_spark.fit(frame, **ASKED), local.fit(table, **ASKED)
    assert got.read().to_arrow().equals(wanted.read().to_arrow())
    empty = on_spark.fit(frame.limit(0), **ASKED)
    assert (len(empty), empty.manifest.tuples) == (0, 0)


def test_a_dataframe_is_appended_to_what_files_gave(
    sessions: Any, spark: SparkSession, tmp_path: Path
) -> None:
    on_spark, _ = sessions
    table = walk(800)
    on_spark.fit(files(tmp_path / "in", table.slice(0, 500), []), **ASKED, out=tmp_path / "model")
    rest = spark.createDataFrame(table.slice(450).to_pandas())
    model = on_spark.fit(rest, **ASKED, out=tmp_path / "model", append=True, late="aside")
    # Tuples at the newest instant itself are not late: they come again, and the last rules.
    assert model.manifest.counts["late"] >= 50 - len("abcdefg")
    assert certificates.problems(table, model.read(), FitSpec.of(model.schema, error=0.5)) == []


def test_errors_come_out_of_the_workers_as_they_are(
    sessions: Any, spark: SparkSession, tmp_path: Path
) -> None:
    on_spark, _ = sessions
    out = tmp_path / "model"
    nobody = spark.createDataFrame(tuples([0, 1], k=["a", None], u="p", x=[1, 2]).to_pandas())
    with pytest.raises(NullKeyError, match="key column 'k': 1 nulls"):
        on_spark.fit(nobody, **ASKED, out=out)
    one, two = files(tmp_path / "in", walk(100), [50])
    pq.write_table(pq.read_table(two).drop_columns(["u"]), two)
    with pytest.raises(UnknownColumnError, match="there is no column 'u'"):
        on_spark.fit([one, two], **ASKED, out=out)
    data = bytearray(Path(one).read_bytes())
    data[100:400] = b"\0" * 300
    Path(one).write_bytes(data)
    with pytest.raises(DatasetError, match=r"f0\.parquet"):
        on_spark.fit(one, **ASKED, out=out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_partitions_grow_with_the_rows() -> None:
    assert partitions_for(1000, 4) == 4
    assert partitions_for(10**9, 4) == 125

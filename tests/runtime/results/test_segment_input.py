"""Segments made elsewhere: every form they come in, queried as any model, and every row that is none refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from scipy.interpolate import CubicSpline, PPoly, make_interp_spline

import pulse
from pulse.core.errors import PulseError, SessionError
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.store.model import Model
from tests.runtime.execution.asking import local, prices

SCHEMA = StreamSchema.of(key={"k": "string"}, time="t", modelled={"x": "linear"})
START = 1_600_000_000_000_000


def rows(**changes: Any) -> pa.Table:
    """Three segments of two keys, with columns changed."""
    columns: dict[str, Any] = {
        "k": ["a", "a", "b"],
        "ref": pa.array([START, START, START], pa.timestamp("us")),
        "lo": [0.0, 10.0, 0.0],
        "hi": [10.0, 20.0, 30.0],
        "x": pa.array([[1.0, 0.5], [6.0], [2.0, 0.0, 0.1]], pa.list_(pa.float64())),
        "x_err": [0.1, 0.2, 0.3],
    }
    return pa.table({**columns, **changes})


def test_a_table_is_queried_with_its_bounds(tmp_path: Path) -> None:
    model = local().segments(rows(), SCHEMA, out=tmp_path / "m")
    found = local().sql("select k, x from S where x > 5", streams={"S": model}).segments()
    assert found.column("certainty").to_pylist() == ["likely", "certain", "certain", "likely", "certain"]
    edges = [
        8.0,
        8.2,
        10.0,
        np.sqrt(30),
        np.sqrt(33),
    ]  # where the model crosses 5, and where it does with its bound
    assert found.column("lo").to_pylist() == pytest.approx(edges)
    asked = local().sql("select * from S", streams={"S": Model(tmp_path / "m")}).segments()
    assert asked.column("x_err").to_pylist() == [0.1, 0.2, 0.3]
    assert set(asked.column("certainty").to_pylist()) == {"certain"}
    assert model.manifest.derived == {"from": "segments"}
    assert "made elsewhere" in repr(model)


def test_the_schema_is_inferred_from_the_order_of_columns() -> None:
    assert local().segments(rows()).schema == SCHEMA
    without = rows().drop_columns(["k"]).slice(2)
    assert local().segments(without).schema.key == ()


@pytest.mark.parametrize("form", ["batch", "pandas", "polars", "file", "folder"])
def test_forms(form: str, tmp_path: Path) -> None:
    table = rows(x_drift=pa.array([None, 0.5, None], pa.float64()))
    expected = SegmentBatch.from_arrow(table, SCHEMA)
    data: Any
    if form == "batch":
        data = expected
    elif form == "pandas":
        data = table.to_pandas()
    elif form == "polars":
        data = pytest.importorskip("polars").from_arrow(table)
    else:
        data = tmp_path / "x.parquet" if form == "file" else tmp_path
        pq.write_table(table, tmp_path / "x.parquet")
    assert local().segments(data, SCHEMA).read().equals(expected)


def test_an_answer_and_its_file_are_inputs(tmp_path: Path) -> None:
    stored = prices(tmp_path / "prices")
    answer = local().sql(
        "select symbol, price, venue from S where price > 20.1 sample every 1 s", streams={"S": stored}
    )
    answer.write(str(tmp_path / "x.parquet"), tuples=False)
    wanted = (
        local()
        .sql("select * from Q where price < 21", streams={"Q": answer.save(tmp_path / "saved")})
        .segments()
    )
    for data in (answer.segments(), answer, tmp_path / "x.parquet"):
        model = local().segments(data)
        assert model.schema.unmodelled_names == ("venue",)
        found = local().sql("select * from Q where price < 21", streams={"Q": model}).segments()
        assert found.equals(wanted)
        assert "likely" in found.column("certainty").to_pylist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hi": [10.5, 20.0, 30.0]}, r"row 1 \(k='a', from .*: begins before row 0 of the same key ends"),
        ({"hi": [10.0, 9.0, 30.0]}, r"row 1 .*hi 9.0 is below lo 10.0"),
        ({"lo": [float("nan"), 10.0, 0.0]}, r"row 0 .*'lo' is nan"),
        ({"x_err": [0.1, -0.2, 0.3]}, r"row 1 .*'x_err' is -0.2; a bound is not negative"),
        ({"x_err": [0.1, 0.2, float("inf")]}, r"row 2 .*'x_err' is inf"),
        ({"x": pa.array([[1.0], [], [2.0]], pa.list_(pa.float64()))}, r"row 1 .*'x' has no coefficient"),
        ({"x": pa.array([[1.0], [2.0], [np.nan]], pa.list_(pa.float64()))}, r"row 2 .*all must be finite"),
        ({"k": pa.array(["a", None, "b"])}, r"row 1 .*'k' is null"),
        (
            {"certainty": ["certain", "sure", "certain"]},
            r"row 1 .*'certainty' is 'sure'; expected possible, likely, certain",
        ),
        ({"kind": ["+I", "-D", "+I"]}, "a changelog"),
    ],
)
def test_a_row_that_is_no_segment_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(PulseError, match=message):
        local().segments(rows(**changes), SCHEMA, out=tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_the_segments_of_a_stored_model_are_inputs_and_its_folder_is_refused(tmp_path: Path) -> None:
    model = local().segments(rows(), out=tmp_path / "m")
    table = pa.Table.from_batches([model.read().to_arrow()])
    assert "x_err2" in table.column_names  # a certificate, not an attribute
    assert local().segments(table).schema == SCHEMA
    with pytest.raises(SessionError, match="m is a stored model already; query it as it is"):
        local().segments(tmp_path / "m")
    with pytest.raises(
        SessionError, match=r"none\.parquet: there is no such file; give Parquet files of segments"
    ):
        local().segments(tmp_path / "none.parquet")


def test_columns_that_are_missing_are_named() -> None:
    with pytest.raises(PulseError, match="'hi'"):
        local().segments(rows().drop_columns(["hi"]))
    with pytest.raises(PulseError, match="x_err"):
        local().segments(rows().drop_columns(["x_err"]), SCHEMA)


def test_splines() -> None:
    t = np.linspace(0.0, 60.0, 13)
    values = np.sin(t / 9)
    schema = StreamSchema.of(key={"k": "string"}, time="t", modelled={"x": "linear"})
    at = START + (np.arange(1, 60) * 1_000_000)
    for spline in (
        CubicSpline(t, values),
        make_interp_spline(t, values, k=3),
        PPoly(np.array([[1.0], [2.0]]), [0.0, 60.0]),
    ):
        model = local().segments(spline, schema, origin=START, err=0.01, keys={"k": "a"})
        assert model.read().evaluate("x", at).tolist() == pytest.approx(
            spline(np.arange(1, 60)).tolist(), abs=1e-9
        )
        found = local().sql("select k, x from S where x > 0.5", streams={"S": model}).segments()
        assert found.num_rows
    with pytest.raises(SessionError, match="need schema, origin"):
        local().segments(CubicSpline(t, values), schema)
    with pytest.raises(SessionError, match="origin, err and keys go with splines"):
        local().segments(rows(), schema, origin=START)
    with pytest.raises(SessionError, match="one modelled attribute"):
        local().segments(CubicSpline(t, values))


def test_spark_checks_and_stores_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    session = pulse.Session(spark=spark)
    table = rows(certainty=["certain", "likely", "possible"])
    model = session.segments(spark.createDataFrame(table), SCHEMA, out=tmp_path / "m")
    here = local().segments(table, SCHEMA)
    assert model.read().sort().equals(here.read().sort())
    with pytest.raises(PulseError, match=r"'x_err' is -0.2; a bound is not negative"):
        session.segments(spark.createDataFrame(rows(x_err=[0.1, -0.2, 0.3])), SCHEMA, out=tmp_path / "n")
    assert not (tmp_path / "n").exists()

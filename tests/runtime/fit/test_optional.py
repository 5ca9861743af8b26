"""Optional attributes: a missing course costs the course, not the position; models apart, joined by queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.core.errors import SessionError, UnknownColumnError
from pulse.operators.fit.spec import FitSpec
from tests import certificates

LOCAL = pulse.Session(engine="local")
ASKED: dict[str, Any] = {
    "key": "mmsi",
    "time": "t",
    "model": {"x": "linear", "sog": "step"},
    "optional": "sog",
    "error": {"x": 5, "sog": 0.5},
}


def reports(n: int = 60, start: int = 0) -> pa.Table:
    """Two vessels; every third report lacks its speed, one of them as NaN, and the second vessel never has one."""
    i = range(start, start + n)
    lacks = [None, float("nan")]
    return pa.table(
        {
            "mmsi": pa.array([j % 2 for j in i]),
            "t": pa.array([j * 10_000_000 for j in i], pa.timestamp("us")),
            "x": pa.array([float(j * j) for j in i]),
            "sog": pa.array([lacks[j % 2] if j % 3 == 0 or j % 2 else float(j % 7) for j in i]),
        }
    )


def known(table: pa.Table) -> pa.Table:
    rows = [row for row in table.to_pylist() if row["sog"] is not None and row["sog"] == row["sog"]]
    return pa.Table.from_pylist(rows, schema=table.schema)


def check(models: dict[str, pulse.Model], table: pa.Table) -> None:
    bounds = (("", 5.0, table), ("sog", 0.5, known(table)))
    for name, bound, tuples in bounds:
        spec = FitSpec.of(models[name].schema, error=bound)
        assert certificates.problems(tuples, models[name].read(), spec) == []
        assert models[name].manifest.modelled == tuples.num_rows


def test_positions_keep_all_reports(tmp_path: Path) -> None:
    models = LOCAL.fit_apart(reports(), out=tmp_path / "v", **ASKED)
    assert {name: one.path.name for name, one in models.items()} == {"": "v", "sog": "v-sog"}
    check(models, reports())
    answer = LOCAL.sql(
        "select v.mmsi, v.x, s.sog from v join s on v.mmsi = s.mmsi sample every 10 s",
        streams={"v": models[""], "s": models["sog"]},
    )
    assert set(answer.tuples().column("mmsi").to_pylist()) == {0}


def test_what_is_appended(tmp_path: Path) -> None:
    LOCAL.fit_apart(reports(), out=tmp_path / "v", **ASKED)
    models = LOCAL.fit_apart(reports(30, 60), out=tmp_path / "v", append=True, **ASKED)
    check(models, reports(90))


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UnknownColumnError, match="cog"):
        LOCAL.fit_apart(reports(), out=tmp_path / "v", **{**ASKED, "optional": ["cog"]})
    with pytest.raises(
        SessionError, match="expected some attributes that every report has, got x, sog alone"
    ):
        LOCAL.fit_apart(reports(), out=tmp_path / "v", **{**ASKED, "optional": ["x", "sog"]})


def test_spark_fits_them_apart(spark: Any, tmp_path: Path) -> None:
    pq.write_table(reports(), tmp_path / "f.parquet", row_group_size=25)
    models = pulse.Session(spark=spark).fit_apart(tmp_path / "f.parquet", out=tmp_path / "v", **ASKED)
    check(models, reports())

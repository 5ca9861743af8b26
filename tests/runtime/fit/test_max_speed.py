"""``max_speed`` at a fit: impossible positions are set aside, whatever the cut, from files, tables and frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.commands.output.report import lines
from pulse.operators.fit.spec import FitSpec
from pulse.operators.fit.speed_limit import SpeedError
from pulse.store.errors import StoreError
from tests import certificates

LOCAL = pulse.Session(engine="local")
ASKED: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "linear", "y": "linear"}, "error": 1}
SPEED: dict[str, Any] = {**ASKED, "max_speed": "60 kn"}
WRONG = (0, 1, 57, 58, 59, 151)  # rows; the first of either key among them


def tracks(n: int = 200, start: int = 0) -> pa.Table:
    """Two vessels in turn at 10 m/s, a few of their positions far away."""
    i = np.arange(start, start + n)
    x = np.where(np.isin(i, WRONG), 5e6, 10.0 * i + 1000 * (i % 2))
    return pa.table(
        {
            "k": pa.array(["ab"[j % 2] for j in i]),
            "t": pa.array(i * 1_000_000, pa.timestamp("us")),
            "x": pa.array(x),
            "y": pa.array(np.sin(i / 9.0)),
        }
    )


def right(table: pa.Table, start: int = 0) -> pa.Table:
    return table.take(pa.array([i for i in range(table.num_rows) if i + start not in WRONG]))


def problems(table: pa.Table, model: pulse.Model) -> list[str]:
    return certificates.problems(table, model.read(), FitSpec.of(model.schema, error=1))


def test_a_table_is_fitted_without_impossible_positions() -> None:
    model = LOCAL.fit(tracks(), **SPEED)
    assert problems(right(tracks()), model) == []
    assert model.manifest.counts["removed"] == {"unreachable at 60 kn": len(WRONG)}
    aside = model.aside()
    assert aside is not None
    assert sorted(aside.column("t").cast(pa.int64()).to_numpy() // 10**6) == list(WRONG)
    assert "6 positions set aside: unreachable at 60 kn" in "\n".join(lines(model.manifest))
    assert model.read().to_arrow().equals(LOCAL.fit(right(tracks()), **ASKED).read().to_arrow())


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 60, 200])
def test_the_cut_of_files_does_not_count(tmp_path: Path, rows: int) -> None:
    pq.write_table(tracks(), tmp_path / "f.parquet", row_group_size=rows)
    model = LOCAL.fit(tmp_path / "f.parquet", **SPEED)
    assert problems(right(tracks()), model) == []
    assert model.manifest.counts["removed"] == {"unreachable at 60 kn": len(WRONG)}
    assert model.manifest.modelled == 200 - len(WRONG)


@pytest.mark.parametrize("keep_tuples", [None, True])
def test_revisions_find_the_tuples_that_count(tmp_path: Path, keep_tuples: bool | None) -> None:
    table = tracks()
    pq.write_table(table.slice(0, 120), tmp_path / "f.parquet", row_group_size=50)
    pq.write_table(table.slice(120), tmp_path / "g.parquet")
    out = tmp_path / "m"
    LOCAL.fit(tmp_path / "f.parquet", out=out, keep_tuples=keep_tuples, **SPEED)
    LOCAL.fit(tmp_path / "g.parquet", out=out, append=True, **SPEED)
    gone = table.take(pa.array([56, 60, 150])).append_column("kind", pa.array(["-D"] * 3))
    assert LOCAL.revise(out, gone).counts["aside"] == 0
    left = table.take(pa.array([i for i in range(200) if i not in (*WRONG, 56, 60, 150)]))
    assert [one for one in problems(left, pulse.Model(out)) if "unknown drift" not in one] == []
    wrong = table.take(pa.array([58])).append_column("kind", pa.array(["-D"]))
    assert LOCAL.revise(out, wrong).counts["aside"] == 1  # not among the tuples


def test_what_is_appended_continues_from_the_last_kept_position(tmp_path: Path) -> None:
    first = tracks().slice(0, 58)  # ends with a wrong position of either key
    LOCAL.fit(first, out=tmp_path / "m", **SPEED)
    model = LOCAL.fit(tracks().slice(58), out=tmp_path / "m", append=True, **SPEED)
    assert model.manifest.counts["removed"] == {"unreachable at 60 kn": len(WRONG)}
    assert problems(right(tracks()), model) == []
    with pytest.raises(StoreError, match="use the same options"):
        LOCAL.fit(tracks(50, 200), out=tmp_path / "m", append=True, **ASKED)


def test_refusals() -> None:
    with pytest.raises(SpeedError, match="expected a speed such as '60 kn'"):
        LOCAL.fit(tracks(), **{**ASKED, "max_speed": "60"})
    with pytest.raises(SpeedError, match="expected positions to be modelled"):
        LOCAL.fit(tracks(), **{**SPEED, "model": {"x": "linear"}})
    with pytest.raises(SpeedError, match="accents change the units of positions"):
        LOCAL.fit(tracks(), accents=["1970-01-01 [[k = 'a', alter(x, y / 4)]]"], **SPEED)


def test_spark_sets_the_same_positions_aside(spark: Any, tmp_path: Path) -> None:
    pq.write_table(tracks(), tmp_path / "f.parquet", row_group_size=30)
    session = pulse.Session(spark=spark)
    of_files = session.fit(tmp_path / "f.parquet", out=tmp_path / "m", **SPEED)
    of_frame = session.fit(spark.read.parquet(str(tmp_path / "f.parquet")), **SPEED)
    for model in (of_files, of_frame):
        assert model.manifest.counts["removed"] == {"unreachable at 60 kn": len(WRONG)}
        assert problems(right(tracks()), model) == []
    more = tracks(20, 200)
    far = more.set_column(2, "x", pa.array(np.full(20, 9e6)))
    pq.write_table(far, tmp_path / "g.parquet")
    appended = session.fit(tmp_path / "g.parquet", out=tmp_path / "m", append=True, **SPEED)
    assert appended.manifest.counts["removed"] == {"unreachable at 60 kn": len(WRONG) + 20}

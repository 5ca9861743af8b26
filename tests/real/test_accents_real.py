"""MACD over recorded trades with an inserted 4:1 split of AIG: the same diffs, rescaled after it, and no false signal."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.core.time import parse_instant
from pulse.operators.output.apply_changes import apply_changes
from pulse.runtime.jobs.toml import job_of
from pulse.runtime.predict.local_driver import run_local
from pulse.store.model import Model
from tests.runtime.execution.asking import rows_of
from tests.runtime.jobs.streams import ONE_FILE, file_stream

FILE = "trades_us_equities_20131007_09.parquet"
SPLIT = parse_instant("2013-10-08T11:00:00")
SECOND = 1_000_000
LONG = 60
FILES = 6
_WHOLE = pa.schema(
    [("ref", pa.int64()), ("lo", pa.float64()), ("hi", pa.float64()), ("diff", pa.list_(pa.float64()))]
)
MACD = """select symbol, S.ap - L.ap as diff from
    (select symbol, avg(price) as ap from stream S[size 10 advance 2]) as S
    join (select symbol, avg(price) as ap from stream S[size 60 advance 2]) as L
    on (S.symbol = L.symbol) {}"""
UP, EVERY = MACD.format("where S.ap > L.ap"), MACD.format("")


def fit(data: Any, **asked: Any) -> Model:
    details = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": "0.05%"}
    return pulse.Session(engine="local").fit(data, **details, **asked)


@pytest.fixture(scope="module")
def files(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The trades as they are and with the split, and a table that says so."""
    folder = tmp_path_factory.mktemp("split")
    columns = ["symbol", "t", "price", "size"]
    whole = pq.read_table(recorded / FILE, columns=columns, filters=[("symbol", "in", ["AIG", "IBM"])])
    late = pc.and_(pc.equal(whole["symbol"], "AIG"), pc.greater_equal(whole["t"].cast(pa.int64()), SPLIT))
    split = whole.set_column(2, "price", pc.if_else(late, pc.divide(whole["price"], 4.0), whole["price"]))
    split = split.set_column(3, "size", pc.if_else(late, pc.multiply(whole["size"], 4.0), whole["size"]))
    for name, table in (("plain", whole), ("split", split)):
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=50_000)
    (folder / "splits.csv").write_text("symbol,t,ratio\nAIG,2013-10-08T11:00:00,4:1\n", encoding="utf-8")
    return {name: str(folder / name) for name in ("plain.parquet", "split.parquet", "splits.csv")}


@pytest.fixture(scope="module")
def models(files: dict[str, Any]) -> dict[str, Model]:
    return {
        "plain": fit(files["plain.parquet"]),
        "accented": fit(files["split.parquet"], splits=files["splits.csv"]),
        "raw": fit(files["split.parquet"]),
    }


def tuples(model: Model, query: str, **asked: Any) -> pa.Table:
    return pulse.Session(engine="local").sql(query, streams={"S": model}, **asked).tuples()


def rescaled(table: pa.Table) -> pa.Table:
    late = pc.and_(pc.equal(table["symbol"], "AIG"), pc.greater_equal(table["t"].cast(pa.int64()), SPLIT))
    for name in ("diff", "diff_err"):
        place = table.column_names.index(name)
        table = table.set_column(place, name, pc.if_else(late, pc.divide(table[name], 4.0), table[name]))
    return table


def near(table: pa.Table) -> tuple[Any, Any]:
    """Instants and diffs of AIG while some window reaches over the split."""
    at = table["t"].cast(pa.int64())
    close = pc.and_(pc.greater(at, SPLIT), pc.less_equal(at, SPLIT + LONG * SECOND))
    some = table.filter(pc.and_(close, pc.equal(table["symbol"], "AIG")))
    return some["t"].to_pylist(), some["diff"].to_numpy()


@pytest.mark.parametrize("query", [UP, EVERY])
def test_the_diffs_are_those_without_the_split_rescaled(models: dict[str, Model], query: str) -> None:
    expected, got = rescaled(tuples(models["plain"], query)), tuples(models["accented"], query)
    assert expected.num_rows > 50_000
    assert got.equals(expected)  # to the last bit: a quarter is exact


def test_signals_at_the_split_are_those_without_it(models: dict[str, Model]) -> None:
    """Without the accent the short average falls below the long one by dollars: a signal that never was."""
    instants, true = near(tuples(models["plain"], EVERY))
    assert len(instants) == LONG // 2
    _, accented = near(tuples(models["accented"], EVERY))
    _, false = near(tuples(models["raw"], EVERY))
    assert np.array_equal(accented, true / 4)
    assert np.abs(true).max() < 0.5
    assert false.min() < -20
    assert near(tuples(models["accented"], UP))[0] == near(tuples(models["plain"], UP))[0]


def test_a_log_given_with_the_query_mends_a_model_fitted_without(models: dict[str, Model]) -> None:
    """The fit with 0.05 % of a quarter of the price is another one, so that answers agree within their certificates."""
    line = "2013-10-08T11:00:00 [[symbol = 'AIG', alter(price, y / 4)]]"
    got, expected = tuples(models["raw"], EVERY, accents=[line]), tuples(models["accented"], EVERY)
    assert got.select(["symbol", "t"]).equals(expected.select(["symbol", "t"]))
    apart = np.abs(got["diff"].to_numpy() - expected["diff"].to_numpy())
    assert (apart <= got["diff_err"].to_numpy() + expected["diff_err"].to_numpy() + 1e-9).all()


def test_spark_agrees(spark: Any, files: dict[str, Any], models: dict[str, Model]) -> None:
    session = pulse.Session(spark=spark)
    model = session.fit(
        files["split.parquet"], key="symbol", time="t", model={"price": "step"}, error="0.05%", splits=files["splits.csv"]
    )  # fmt: skip
    assert model.read().to_arrow().equals(models["accented"].read().to_arrow())
    here, there = tuples(models["accented"], UP), session.sql(UP, streams={"S": model}).tuples()
    assert rows_of(there) == rows_of(here)


def job_over(folder: Path, table: pa.Table, **more: Any) -> pa.Table:
    """What holds of AIG in the end, of a job over files that arrive one after the other."""
    (folder / "in").mkdir(parents=True)
    for number in range(FILES):
        a, b = len(table) * number // FILES, len(table) * (number + 1) // FILES
        pq.write_table(table.slice(a, b - a), folder / "in" / f"{number}.parquet")
        os.utime(folder / "in" / f"{number}.parquet", (1e9 + number, 1e9 + number))
    own = {"error": "0.05%", "horizon": "5 min", "options": ONE_FILE}
    stream = file_stream("symbol", {"price": "step"}, **own | more)
    parts: list[pa.Table] = []
    job = job_of({"query": EVERY, "streams": {"S": stream}, "sink": {"kind": "none"}}, folder=folder)
    run_local(job, on_batch=lambda _, changes: parts.append(changes))
    held = apply_changes(pa.concat_tables(parts))
    return held.filter(pc.equal(held["symbol"], "AIG"))


def diffs_at(held: pa.Table, seconds: Any) -> Any:
    """Diffs at seconds from the split; NaN where nothing is reported."""
    found = np.full(len(seconds), np.nan)
    for row in held.select(["ref", "lo", "hi", "diff"]).cast(_WHOLE).to_pylist():
        begin = (row["ref"] - SPLIT) / 1e6
        inside = (begin + row["lo"] <= seconds) & (seconds < begin + row["hi"])
        found[inside] = np.polyval(row["diff"][::-1], seconds[inside] - begin)
    return found


def test_a_running_job_goes_on_over_the_split(files: dict[str, Any], tmp_path: Path) -> None:
    """The same diffs a quarter from the split on, in the same job; without the accent a signal that never was."""
    near_it = [
        ("t", ">=", datetime.fromtimestamp(SPLIT / 1e6 - 300, UTC).replace(tzinfo=None)),
        ("t", "<", datetime.fromtimestamp(SPLIT / 1e6 + 300, UTC).replace(tzinfo=None)),
    ]
    plain, split = (
        pq.read_table(files[f"{name}.parquet"], filters=near_it).select(["symbol", "t", "price"])
        for name in ("plain", "split")
    )
    seconds = np.arange(-200.0, 280.0) + 0.25
    true = diffs_at(job_over(tmp_path / "plain", plain), seconds)
    accented = diffs_at(job_over(tmp_path / "accented", split, splits=files["splits.csv"]), seconds)
    false = diffs_at(job_over(tmp_path / "raw", split), seconds)
    assert not np.isnan(true).any()
    assert np.allclose(accented, np.where(seconds > 0, true / 4, true), rtol=1e-9, atol=1e-9)
    close = (seconds > 0) & (seconds < LONG)
    assert np.abs(true[close]).max() < 0.5
    assert false[close].min() < -20

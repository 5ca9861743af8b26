"""Windows over recorded ticks, each tuple counted once, against DuckDB's RANGE windows over the same tuples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import pulse

duckdb = pytest.importorskip("duckdb")

TRADES = "trades_us_equities_20131007_09"
SIZE, ADVANCE = 60, 20  # seconds

# The window that closes at t holds [t - size, t): closing times are rows of their own, after the tuples of earlier microseconds.
IN_DUCKDB = f"""
with closings as (
    select distinct symbol, {ADVANCE * 1_000_000} * (floor(us / {ADVANCE * 1_000_000}) + 1 + i)::bigint as us
    from tuples, range({SIZE // ADVANCE}) as r(i)),
rows as (
    select symbol, us, price, false as closing from tuples union all
    select symbol, us - 1, null, true from closings)
select symbol, us + 1 as t, s, a, l, h, n from (
    select symbol, us, closing, sum(price) over w as s, avg(price) over w as a, min(price) over w as l,
        max(price) over w as h, count(price) over w as n
    from rows window w as (partition by symbol order by us range between {SIZE * 1_000_000 - 1} preceding and current row))
where closing and n > 0 order by symbol, t
"""


@pytest.fixture(scope="module")
def ticks(recorded: Path) -> pa.Table:
    """Half an hour of a few symbols; many of them in one microsecond."""
    table = pq.read_table(recorded / f"{TRADES}.parquet", columns=["symbol", "t", "price"])
    first = pc.min(table.column("t")).as_py()
    until = pa.scalar(first, table.column("t").type).cast(pa.int64()).as_py()
    unit = {"us": 1_000_000, "ns": 1_000_000_000, "ms": 1000}[table.column("t").type.unit]
    times = table.column("t").cast(pa.int64())
    some = table.filter(pc.less(times, until + 1800 * unit))
    return some.filter(pc.is_in(some.column("symbol"), pc.unique(some.column("symbol")).slice(0, 4)))


def test_windows_are_duckdbs(ticks: pa.Table) -> None:
    model = pulse.Session(engine="local").fit(
        ticks, key="symbol", time="t", model={"price": "samples"}, points=True
    )
    counts = model.manifest.counts
    assert len(model) + counts["late"] == ticks.num_rows
    aggregates = "sum(price) as s, avg(price) as a, min(price) as l, max(price) as h, count(*) as n"
    query = f"select symbol, {aggregates} from S[size {SIZE} advance {ADVANCE}]"
    mine = pulse.Session(engine="local").sql(query, streams={"S": model}).tuples()
    kept = model.read().to_arrow()
    tuples = pa.table(
        {
            "symbol": kept.column("symbol"),
            "us": kept.column("ref").cast(pa.int64()),
            "price": pc.list_element(kept.column("price"), 0),
        }
    )
    with duckdb.connect() as duck:
        duck.register("tuples", tuples)
        theirs = duck.sql(IN_DUCKDB).to_arrow_table()
    mine = mine.sort_by([("symbol", "ascending"), ("t", "ascending")])
    assert mine.column("symbol").to_pylist() == theirs.column("symbol").to_pylist()
    assert mine.column("t").cast(pa.int64()).to_pylist() == theirs.column("t").to_pylist()
    for name in "lhn":
        np.testing.assert_array_equal(_numbers(mine, name), _numbers(theirs, name))
    for name in "sa":
        np.testing.assert_allclose(_numbers(mine, name), _numbers(theirs, name), rtol=1e-12)
    assert mine.num_rows > 100
    instants = tuples.group_by(["symbol", "us"]).aggregate([])
    assert instants.num_rows < len(model)  # some share their instant, and all of them counted


def _numbers(table: pa.Table, name: str) -> Any:
    return table.column(name).cast(pa.float64()).to_numpy()

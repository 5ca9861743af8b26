"""Chains of saved answers over recorded files: what the nested query gives, with bounds and certainty."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import pulse
from pulse.store.model import Model

SESSION = pulse.Session(engine="local")


def chain(steps: tuple[str, ...], stored: Model, folder: Path) -> tuple[pa.Table, pa.Table]:
    """The last step's answer over saved answers, and that of the nested query."""
    at, nested = stored, "S"
    for number, step in enumerate(steps[:-1]):
        at = SESSION.sql(step.format(q="Q"), streams={"Q": at}).save(folder / str(number))
        nested = f"({step.format(q=nested)})"
    saved = SESSION.sql(steps[-1].format(q="Q"), streams={"Q": at}, possible=True).segments()
    return saved, SESSION.sql(steps[-1].format(q=nested), streams={"S": stored}, possible=True).segments()


def assert_same(saved: pa.Table, nested: pa.Table, attribute: str) -> None:
    """Row for row: rewriting moves predicates below projections, so that numbers may differ by rounding."""
    assert saved.num_rows == nested.num_rows > 100
    assert saved.column("certainty").equals(nested.column("certainty"))
    for name in ("lo", "hi", f"{attribute}_err"):
        np.testing.assert_allclose(
            saved.column(name).to_numpy(), nested.column(name).to_numpy(), rtol=1e-9, atol=1e-9
        )


def test_recorded_trades(recorded: Path, tmp_path: Path) -> None:
    table = pq.read_table(
        recorded / "trades_us_equities_20131007_09.parquet", columns=["symbol", "t", "price"]
    )
    table = table.filter(pc.is_in(table["symbol"], value_set=pa.array(("SPY", "IBM"), table["symbol"].type)))
    fitted = SESSION.fit(
        table, key="symbol", time="t", model={"price": "step"}, max_gap="1 h", drift="0.005%"
    )
    steps = (
        "select symbol, avg(price) as price from {q}[size 600 advance 60]",
        "select symbol, price - 170 as above from {q}",
        "select symbol, above from {q} where above > 0",
    )
    assert_same(*chain(steps, fitted, tmp_path), "above")


def test_a_recorded_room(recorded: Path, tmp_path: Path) -> None:
    table = pq.read_table(recorded / "sensors_room_climate_2016_17.parquet").slice(0, 50_000)
    fitted = SESSION.fit(
        table, key="id", time="t", model={"temp": "linear"}, error=0.05, max_gap="10 min", late="aside"
    )
    steps = (
        "select id, temp as value from {q} where temp > 21",
        "select id, avg(value) as value from {q}[size 600 advance 60]",
    )
    assert_same(*chain(steps, fitted, tmp_path), "value")

"""Functions of time in jobs, on Spark, under revisions and where units change mid-stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.runtime.jobs.sinks import read_changes
from tests.runtime.execution.asking import local, prices, rows_of, ticks
from tests.runtime.jobs.running_jobs import final, in_process, object_job, objects, ran, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving

OF_OBJECTS = {
    "course": "select id, course(x, y, 4 s) as v from O where speed(x, y, 4 s) > 2",
    "angle": "select id, angle_between(course(x, y, 4 s), 90) as v from O where angle_between(course(x, y, 4 s), 90) < 60",
    "floor": "select id, floor(x / 50) as v from O where floor(y / 50) > -1",
    "derivative": "select id, derivative(x) as v from O model x = x + vx * t, y = y + vy * t where derivative(y) > 1",
}
SPLIT = {
    "lag": ("lag(price, 5 s)", True),
    "rate": ("rate(price, 5 s)", True),
    "ema": ("ema(price, 5 s)", True),
    "case": ("case when price > lag(price, 5 s) then price else 0 end", True),
    "least": ("least(price, lag(price, 5 s))", True),
    "greatest": ("greatest(price, ema(price, 5 s))", True),
    "sign": ("sign(price - lag(price, 5 s))", False),
    "floor": ("floor(price)", False),
    "speed": ("speed(price, price, 5 s)", True),
    "course": ("course(price, 2 * price, 5 s)", False),
    "angle_between": ("angle_between(course(price, 2 * price, 5 s), 20)", False),
}
"""By function an expression, and whether it scales as the price does."""


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_a_job_gives_what_is_given_in_process(spark: SparkSession, tmp_path: Path, name: str) -> None:
    objects(tmp_path / "in")
    job = object_job(tmp_path, OF_OBJECTS[name], "O")
    assert ran(spark, job).tally.tuples == 180
    found = final(read_changes(tmp_path / "out"), ("id",), "v")
    assert len(found) > 20
    assert found == final(in_process(job), ("id",), "v")


def test_a_derivative_in_a_job_is_the_speed_that_arrived(tmp_path: Path) -> None:
    objects(tmp_path / "in")
    job = object_job(tmp_path, OF_OBJECTS["derivative"].split(" where")[0], "O")
    found = final(in_process(job), ("id",), "v")
    sent = pd.concat([pd.read_parquet(one) for one in sorted((tmp_path / "in").glob("*.parquet"))])
    at = {(row.id, int(row.t.timestamp())): row.vx for row in sent.itertuples()}
    known = [
        (value[1], at[key[0], second])
        for key, value in found.items()
        if (key[0], second := key[1] // 2) in at
    ]
    assert len(known) > 100
    assert np.mean([abs(mine - theirs) < 1e-6 for mine, theirs in known]) > 0.9


@pytest.mark.parametrize(
    "text", ["floor(price)", "floor(price / 3) + sign(price - 20)", "greatest(price, floor(price))"]
)
def test_floors_on_spark(spark: SparkSession, text: str) -> None:
    streams = {"S": prices()}
    asked = f"select symbol, {text} as v from S where floor(price) > 18"
    here, there = local().sql(asked, streams=streams), pulse.Session(spark=spark).sql(asked, streams=streams)
    assert rows_of(there.segments()) == rows_of(here.segments())
    assert len(rows_of(here.segments())) > 20


def test_floors_in_a_job(spark: SparkSession, tmp_path: Path) -> None:
    arriving(tmp_path / "in")
    job = tick_job(tmp_path, "select symbol, floor(price / 2) as v, price from S where floor(price / 2) > 50")
    assert ran(spark, job).tally.tuples == 480
    found = final(read_changes(tmp_path / "out"), ("symbol",), "v")
    assert len(found) > 20
    assert found == final(in_process(job), ("symbol",), "v")


def split_prices() -> tuple[Any, Any, int, str]:
    """Prices, the same halved from an instant on, that instant, and the accent that tells of it."""
    data = ticks(symbols="a", count=80)
    t = data["t"].to_numpy().astype("datetime64[us]").astype(np.int64)
    split = int(t[40])
    halved = data.set_column(2, "price", [np.where(t >= split, 0.5, 1.0) * data["price"].to_numpy()])
    accent = f"{pd.Timestamp(split, unit='us').isoformat()} [[symbol = 'a', alter(price, y / 2, y * 2)]]"
    return data, halved, split, accent


@pytest.mark.parametrize("name", SPLIT)
def test_a_change_of_units_mid_stream(name: str) -> None:
    """What scales with the price is given in the units in force, all else as if nothing had changed."""
    data, halved, split, accent = split_prices()
    expression, scales = SPLIT[name]
    text = f"select symbol, {expression} as v from S where price > 0 sample every 1 s"
    asked = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0}
    plain = local().sql(text, streams={"S": local().fit(data, **asked)}).to_pandas()
    found = local().sql(text, streams={"S": local().fit(halved, accents=[accent], **asked)}).to_pandas()
    assert len(found) == len(plain) > 20
    scale = np.where(found["t"] >= pd.Timestamp(split, unit="us"), 0.5, 1.0) if scales else 1.0
    assert np.allclose(found["v"], scale * plain["v"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", SPLIT)
def test_a_revision_gives_what_a_fit_of_the_revised_tuples_gives(name: str, tmp_path: Path) -> None:
    """A stored model, one of whose tuples is replaced: the query over its next version is that over a fit from scratch."""
    data = ticks(symbols="a", count=80)
    expression, _ = SPLIT[name]
    text = f"select symbol, {expression} as v from S sample every 1 s"
    asked = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0}
    model = local().fit(data, **asked, out=tmp_path / "m", keep_tuples=True)
    price = data["price"].to_pylist()
    row = data.slice(30, 1).to_pylist()[0]
    revisions = pd.DataFrame([{"kind": "-U", **row}, {"kind": "+U", **row, "price": row["price"] + 7.0}])
    local().revise(model, revisions)
    price[30] += 7.0
    corrected = data.set_column(2, "price", [price])
    found = local().sql(text, streams={"S": str(tmp_path / "m")}).to_pandas()
    wanted = local().sql(text, streams={"S": local().fit(corrected, **asked)}).to_pandas()
    assert len(found) == len(wanted) > 20
    assert np.allclose(found["v"], wanted["v"], rtol=0, atol=1e-9)
    assert np.allclose(found["v_err"], wanted["v_err"], rtol=0, atol=1e-9)


def test_spark_gives_the_same_of_a_stream_whose_units_changed(spark: SparkSession) -> None:
    """All functions at once, before and after the change."""
    _, halved, _, accent = split_prices()
    asked = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0}
    streams = {"S": local().fit(halved, accents=[accent], **asked)}
    values = ", ".join(f"{expression} as v{i}" for i, (expression, _) in enumerate(SPLIT.values()))
    text = f"select symbol, {values} from S sample every 1 s"
    here, there = (
        one.sql(text, streams=streams).to_pandas().sort_values("t", ignore_index=True)
        for one in (local(), pulse.Session(spark=spark))
    )
    assert len(here) > 20
    pd.testing.assert_frame_equal(there, here, check_exact=False, rtol=0, atol=1e-12)

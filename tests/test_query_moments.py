"""Deviations, correlations and regressions in queries: stored, predicted, revised, in process and on Spark, against the ticks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.runtime.jobs.sinks import read_changes
from tests.runtime.execution.asking import local, prices, rows_of
from tests.runtime.jobs.running_jobs import final, in_process, ran, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving
from tests.truth import windows
from tests.truth.pieces import Track

SECOND = 1_000_000
START = 1_380_000_000 * SECOND
TWO = ("covar", "corr", "regr_slope", "regr_intercept")
ALL = """
select symbol, stddev(price) as s, variance(price) as v, covar(price, price * price) as c
from S[size 8 advance 4] group by symbol
"""
DEVIATION = "select symbol, stddev(price) as s from S[size 10 advance 2] group by symbol"


def walk(seed: int = 0, n: int = 300, *, level: float = 100.0) -> pd.DataFrame:
    """Ticks of two attributes that move together."""
    random = np.random.default_rng(seed)
    t = START + np.cumsum(random.integers(50_000, 2 * SECOND, n))
    x = level + np.cumsum(random.normal(size=n)) * 0.01
    y = 50.0 + 0.5 * (x - level) + np.cumsum(random.normal(size=n)) * 0.004
    return pd.DataFrame({"k": "a", "t": pd.to_datetime(t, unit="us"), "x": x, "y": y})


def track_of(frame: pd.DataFrame, truth: str) -> Track:
    t = frame["t"].to_numpy().astype("datetime64[us]").astype(np.int64)
    values = {name: frame[name].to_numpy() for name in ("x", "y")}
    first = {name: one[:-1] for name, one in values.items()}
    last = first if truth == "step" else {name: one[1:] for name, one in values.items()}
    return Track("a", t[:-1], t[1:], np.zeros(len(t) - 1, int), first, last, {})


def asked(function: str, size: str = "20") -> str:
    names = {"corr": "x, y", "covar": "x, y", "regr_slope": "y, x", "regr_intercept": "y, x"}.get(
        function, "x"
    )
    return f"select k, {function}({names}) as v from S[size {size} advance 3] group by k"


@pytest.mark.parametrize("truth", ["step", "linear"])
@pytest.mark.parametrize("error", [0.0, 0.002, 0.02])
@pytest.mark.parametrize("level", [100.0, 1.7e9])
def test_no_value_lies_outside_its_bound(truth: str, error: float, level: float) -> None:
    frame = walk(level=level)
    model = local().fit(frame, key="k", time="t", model={"x": truth, "y": truth}, error=error)
    track = track_of(frame, truth)
    for function in ("stddev", "variance", *TWO):
        found = local().sql(asked(function), streams={"S": model}).tuples().to_pandas()
        t = found["t"].to_numpy().astype("datetime64[us]").astype(np.int64)
        names = ("y", "x") if function.startswith("regr") else ("x", "y")
        want = windows.statistic_of(
            function, *windows.moments_over([(track, name) for name in names], t - 20 * SECOND, t)
        )
        off = np.abs(found["v"].to_numpy() - want)
        assert (off <= found["v_err"] + 1e-16 * np.abs(want)).all()
        if function not in TWO or error < 0.01:
            assert len(found) == len(windows.closing_times(track, 20 * SECOND, 3 * SECOND))
        if error == 0.0 and truth == "step" and function in ("stddev", "corr"):
            assert (found["v_err"] < 1e-9).all()


def test_a_flat_market_ends_no_query() -> None:
    frame = walk()
    frame.loc[100:200, "x"] = 100.0
    model = local().fit(frame, key="k", time="t", model={"x": "step", "y": "step"}, error=0.0)
    counts = {}
    for function in ("stddev", *TWO):
        found = local().sql(asked(function), streams={"S": model}).tuples().to_pandas()
        counts[function] = len(found)
        if function == "stddev":
            assert (found["v"] == 0.0).sum() > 10
            assert (found.loc[found["v"] == 0.0, "v_err"] == 0.0).all()
    assert (
        counts["corr"]
        == counts["regr_slope"]
        == counts["regr_intercept"]
        < counts["stddev"]
        == counts["covar"]
    )
    made = local().sql(asked("regr_slope"), streams={"S": model}).segments().to_pandas()
    assert len(made) > 10
    assert np.isfinite(made["v_err"]).all()


def test_rolling_volatility_of_returns_has_a_bound_worth_having() -> None:
    frame = walk()
    model = local().fit(frame, key="k", time="t", model={"x": "step", "y": "step"}, error=0.002)
    text = """select k, stddev(r) as v from (select k, x / lag(x, 10 s) - 1 as r from S)[size 1 min advance 10 s] as R
    group by k"""
    found = local().sql(text, streams={"S": model}).tuples().to_pandas()
    assert len(found) > 10
    assert (found["v_err"] < 0.25 * found["v"]).all()


def test_beta_over_a_join() -> None:
    frame = walk()
    frames = [
        frame[["t"]].assign(k=key, price=frame[name].to_numpy()) for key, name in (("M", "x"), ("A", "y"))
    ]
    model = local().fit(pd.concat(frames), key="k", time="t", model={"price": "step"}, error=0.001)
    text = """select A.k, regr_slope(A.price, M.price) as beta from S as A[size 20 advance 3] join S as M on (A.k <> M.k)
    where M.k = 'M' group by A.k, M.k"""
    found = local().sql(text, streams={"S": model}).tuples().to_pandas()
    track = track_of(frame, "step")
    t = found["t"].to_numpy().astype("datetime64[us]").astype(np.int64)
    want = windows.statistic_of(
        "regr_slope", *windows.moments_over([(track, "y"), (track, "x")], t - 20 * SECOND, t)
    )
    assert len(found) > 80
    assert (np.abs(found["beta"].to_numpy() - want) <= found["beta_err"]).all()


def test_a_bound_on_a_deviation_chooses_the_fit_and_is_checked() -> None:
    settings: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}}
    frame, text = walk()[["k", "t", "x"]], f"{asked('stddev')} error within 0.004"
    model = local().fit(frame, for_query=text, stream="S", **settings)
    assert (local().sql(text, streams={"S": model}).tuples().to_pandas()["v_err"] <= 0.004).all()
    loose = local().fit(frame, error=0.1, **settings)
    with pytest.raises(pulse.PulseError, match="the query requires 0"):
        local().sql(text, streams={"S": loose}).tuples()


def test_a_sweep_of_sizes_is_that_of_each() -> None:
    model = local().fit(walk(), key="k", time="t", model={"x": "step", "y": "step"}, error=0.002)
    text = asked("corr", ":size")
    swept = local().sweep(text, streams={"S": model}, size=[10, 20]).tuples()
    swept = (swept if isinstance(swept, pa.Table) else swept.toArrow()).to_pandas()
    for size in (10, 20):
        alone = local().sql(text, streams={"S": model}, size=size).tuples().to_pandas()
        own = swept[swept["size"] == size]
        assert own["v"].tolist() == alone["v"].tolist()
        assert own["v_err"].tolist() == alone["v_err"].tolist()


def test_a_revision_gives_what_a_fit_of_the_corrected_ticks_gives(tmp_path: Path) -> None:
    frame = walk()
    settings: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step", "y": "step"}, "error": 0.002}
    model = local().fit(frame, out=tmp_path / "model", keep_tuples=True, **settings)
    before = {
        name: rows_of(local().sql(asked(name), streams={"S": model}).tuples()) for name in ("stddev", "corr")
    }
    row = frame.iloc[[150]]
    change = pd.concat([row.assign(kind="-U"), row.assign(kind="+U", x=row["x"] + 0.5)])
    local().revise(model, change)
    revised = pulse.Model(tmp_path / "model")
    for name in ("stddev", "corr"):
        text = asked(name)
        changes = local().revised(text, streams={"S": revised}, since=1).tuples()
        changes = (changes if isinstance(changes, pa.Table) else changes.toArrow()).to_pandas()
        assert 0 < len(changes) < 2 * len(before[name])
        assert rows_of(local().sql(text, streams={"S": revised}).tuples()) != before[name]


def test_engines_agree(spark: SparkSession) -> None:
    model = prices()
    streams = {"streams": {"S": model}}
    here, there = local().sql(ALL, **streams), pulse.Session(spark=spark).sql(ALL, **streams)
    assert rows_of(there.tuples()) == rows_of(here.tuples())
    assert rows_of(there.segments()) == rows_of(here.segments())


def test_a_job_gives_what_is_given_in_process(spark: SparkSession, tmp_path: Path) -> None:
    arriving(tmp_path / "in")
    job = tick_job(tmp_path, DEVIATION)
    assert ran(spark, job).tally.tuples == 480
    found = final(read_changes(tmp_path / "out"), ("symbol",), "s")
    assert len(found) > 100
    assert found == final(in_process(job), ("symbol",), "s")

"""Real corrections: a cancelled trade, and reports that came late, from the files they are recorded in to a revised model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.datasets.arrivals import read_arrivals
from pulse.datasets.taq.corrections import read_corrections
from pulse.store.model import Model
from tests.runtime.incremental.revising import wrong

LOCAL = pulse.Session(engine="local")


def test_the_real_cancellation_of_a_trade(tmp_path: Path, recorded: Path) -> None:
    path = recorded / "trades_taq_xxx_corr_20180102_03.parquet"
    schema_of = {"model": {"price": "step"}, "key": "symbol", "time": "t", "error": 0.01}
    probe = LOCAL.fit(pq.read_table(path).slice(0, 2), **schema_of)
    found = read_corrections(str(path), probe.schema)
    assert found.tuples is not None
    pq.write_table(found.tuples, tmp_path / "trades.parquet")
    model = LOCAL.fit(str(tmp_path / "trades.parquet"), out=tmp_path / "model", **schema_of)
    outcome = LOCAL.revise(model, str(path), reader="taq", keep=True)
    assert (outcome.counts["deleted"], outcome.counts["aside"]) == (1, 0)
    there = pq.read_table(path)
    regular = there.filter(pa.array(np.isin(there.column("corr").to_numpy(), [0, 1]))).select(
        ["symbol", "t", "price"]
    )
    assert wrong(regular, outcome.model) == []
    moment = int(found.revisions.known[0])
    instant = int(found.revisions.times[0])
    now, then = (Model(model.path, as_of=at) for at in (moment, moment - 1))
    assert _value(then, instant) == pytest.approx(157.04, abs=0.0101)
    assert abs(_value(now, instant) - 157.04) > 0.02


def test_the_real_lateness_of_reports(tmp_path: Path, recorded: Path) -> None:
    path = recorded / "ais_sbchannel_20180601_04.parquet"
    asked = {
        "model": {"lat": "linear", "lon": "linear"},
        "key": "mmsi",
        "time": "t",
        "error": 0.0005,
        "max_gap": "30 min",
    }
    probe = LOCAL.fit(pq.read_table(path).slice(0, 2), **asked)
    found = read_arrivals(str(path), probe.schema)
    assert found.tuples is not None
    pq.write_table(found.tuples, tmp_path / "reports.parquet")
    model = LOCAL.fit(str(tmp_path / "reports.parquet"), out=tmp_path / "model", **asked)
    outcome = LOCAL.revise(model, str(path), reader="ais")
    assert (outcome.counts["inserted"], len(found.revisions)) == (2_057, 2_059)
    assert outcome.reasons == {"already recorded": 2}  # the same reports, received twice
    assert outcome.counts["absorbed"] > 0
    late = found.revisions.table.drop_columns(["kind", "known"])
    every = pa.concat_tables([found.tuples.select(late.column_names).cast(late.schema), late])
    assert wrong(every.sort_by([("mmsi", "ascending"), ("t", "ascending")]), outcome.model) == []


def test_what_a_fit_set_aside_as_late_is_put_in(tmp_path: Path, recorded: Path) -> None:
    table = pq.read_table(recorded / "ais_sbchannel_20180601_04.parquet").select(
        ["mmsi", "t", "lat", "t_recv"]
    )
    arrived = table.take(pa.array(np.argsort(table.column("t_recv").to_numpy(), kind="stable")))
    arrived = arrived.slice(0, 60_000).drop_columns(["t_recv"])
    pq.write_table(arrived, tmp_path / "reports.parquet", row_group_size=20_000)
    asked = {"model": {"lat": "linear"}, "key": "mmsi", "time": "t", "error": 0.0005, "max_gap": "30 min"}
    model = LOCAL.fit(str(tmp_path / "reports.parquet"), out=tmp_path / "model", **asked)
    late = model.manifest.counts["late"]
    assert late > 100
    outcome = LOCAL.revise(model, str(model.path / "_aside" / "fit-*"), reader="late")
    again = outcome.reasons.get("already recorded", 0)
    assert again < 0.05 * late
    assert (outcome.counts["inserted"], outcome.counts["aside"]) == (late - again, again)
    assert outcome.model.manifest.modelled == arrived.num_rows - again
    ordered = arrived.sort_by([("mmsi", "ascending"), ("t", "ascending")])
    assert wrong(ordered, outcome.model) == []


def _value(model: Model, instant: int) -> float:
    batch = model.read(start=np.datetime64(int(instant), "us"), end=np.datetime64(int(instant) + 1, "us"))
    some = batch.filter(~batch.is_point)
    at = (instant - some.ref[0]) / 1e6
    return float(np.polynomial.polynomial.polyval(at, some.coefficients("price")[0]))

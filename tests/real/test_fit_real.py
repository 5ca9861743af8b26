"""Fits of recorded data, checked by the independent checker: no instant lies outside its certificate.

A subset runs with the suite; ``PULSE_FULL=1`` runs every file at every bound, with both truths and both kinds of bounds.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.datasets.registry import get_format
from pulse.operators.data.tuple_columns import needed_columns
from pulse.operators.fit.spec import FitSpec
from pulse.store.model import Model
from tests import certificates

FULL = bool(os.environ.get("PULSE_FULL"))
PERCENT = ("0", "0.01%", "0.05%", "0.3%", "1%")
HOURS = 3600 * 10**6


class Case(NamedTuple):
    """A fit of one file: what is asked, and whether the suite runs it every time."""

    file: str
    model: dict[str, str]
    asked: dict[str, Any]
    quick: bool = False
    format: str = "parquet"
    key: str = "symbol"

    def __str__(self) -> str:
        reported = " ".join(f"{k}={v}" for k, v in self.asked.items())
        return f"{self.file.split('_2')[0]} {','.join(f'{a}:{t}' for a, t in self.model.items())} {reported}"


def _cases() -> list[Case]:
    cases = []
    quick_trades = {("step", "error", "0.05%"), ("step", "drift", "0.05%"), ("linear", "error", "0.3%")}
    for file in ("trades_taq_xxx_corr_20180102_03", "trades_us_equities_20131007_09"):
        for truth in ("step", "linear"):
            for what in ("error", "drift"):
                for bound in PERCENT:
                    quick = "taq" in file or (truth, what, bound) in quick_trades
                    cases.append(Case(file, {"price": truth}, {what: bound}, quick))
        cases.append(Case(file, {"price": "step"}, {"error": "1%", "drift": "0.05%"}, "taq" in file))
        cases.append(
            Case(file, {"price": "step"}, {"error": "0.05%", "degree": 0, "keep": "exchange"}, "taq" in file)
        )
        cases.append(Case(file, {"price": "step"}, {"error": "0.05%", "degree": "auto"}, "taq" in file))
    for file in ("ais_sbchannel_20180601_04", "ais_nyharbor_20201201_07", "ais_us_20220103_0000_0029"):
        for bound in ("0", "5", "20", "100"):
            asked = {"error": bound, "max_gap": "10 min"}
            quick = bound == "20" or (bound == "0" and "sbchannel" in file)
            cases.append(Case(file, {"x": "linear", "y": "linear"}, asked, quick, "ais", "mmsi"))
        cases.append(Case(file, {"x": "linear", "y": "linear"}, {"drift": "20"}, "us" in file, "ais", "mmsi"))
    sensors = "sensors_room_climate_2016_17"
    for truth in ("linear", "step"):
        for what in ("error", "drift"):
            for bound in PERCENT:
                asked = {what: bound, "max_gap": "2 h"}
                quick = bound == "0.3%" and truth == "linear"
                cases.append(Case(sensors, {"temp": truth}, asked, quick, key="id"))
    cases += [
        Case(sensors, {"temp": "linear"}, {"error": 0.5, "max_gap": "2 h", "degree": d}, d == 2, key="id")
        for d in (2, 3, 5)
    ]
    both = {"temp": "linear", "rh": "step"}
    asked = {"error": 0.5, "max_gap": "2 h", "keep": "run", "nonfinite": "hole"}
    cases.append(Case(sensors, {"temp": "linear"}, asked, True, key="id"))
    cases.append(Case(sensors, both, {**asked, "degree": "auto"}, False, key="id"))
    return cases


CASES = [case for case in _cases() if FULL or case.quick]


@cache
def tuples_of(path: str, format: str, key: str, columns: tuple[str, ...]) -> pa.Table:
    """The tuples as the format reads them, in order."""
    roles = {"key": (key,), "time": "t"} if format == "parquet" else {}
    reader = get_format(format, **roles).prepare(path)
    return pa.Table.from_batches(
        [b for unit in reader.units(path) for b in reader.batches(unit, list(columns))]
    )


def fitted(session: pulse.Session, case: Case, path: Path) -> tuple[Model, FitSpec]:
    roles = {"key": case.key, "time": "t"} if case.format == "parquet" else {}
    model = session.fit(path, model=case.model, format=case.format, **roles, **case.asked)
    bounds = {name: case.asked.get(name) for name in ("error", "drift")}
    gap = {"10 min": HOURS // 6, "2 h": 2 * HOURS}.get(case.asked.get("max_gap", ""))
    nonfinite = case.asked.get("nonfinite", "reject")
    return model, FitSpec.of(model.schema, **bounds, max_gap=gap, nonfinite=nonfinite)


def check(model: Model, spec: FitSpec, case: Case, path: Path) -> None:
    columns = tuple(needed_columns(model.schema))
    tuples = tuples_of(str(path), case.format, case.key, columns)
    assert model.manifest.tuples == tuples.num_rows
    assert certificates.problems(tuples, model.read(), spec) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_instant_lies_outside_its_certificate(recorded: Path, case: Case) -> None:
    path = recorded / f"{case.file}.parquet"
    model, spec = fitted(pulse.Session(engine="local"), case, path)
    check(model, spec, case, path)
    assert model.manifest.segments < model.manifest.tuples


@pytest.mark.parametrize(
    "case",
    [
        Case("trades_taq_xxx_corr_20180102_03", {"price": "step"}, {"drift": "0.005%"}),
        Case(
            "ais_nyharbor_20201201_07", {"x": "linear", "y": "linear"}, {"error": "20"}, True, "ais", "mmsi"
        ),
    ],
    ids=str,
)
def test_spark_gives_the_segments_of_this_process(recorded: Path, spark: Any, case: Case) -> None:
    path = recorded / f"{case.file}.parquet"
    model, spec = fitted(pulse.Session(spark=spark), case, path)
    check(model, spec, case, path)
    here, _ = fitted(pulse.Session(engine="local"), case, path)
    assert model.read().to_arrow().equals(here.read().to_arrow())
    assert model.manifest.counts == here.manifest.counts


@pytest.mark.parametrize("asked", [{"drift": "0.005%"}, {"error": "0.05%"}], ids=str)
def test_fifty_row_groups(recorded: Path, tmp_path: Path, asked: dict[str, str]) -> None:
    """Boundaries are added at the cuts, some per cut; the drift that is handed on stays within the bound."""
    source = recorded / "trades_taq_xxx_corr_20180102_03.parquet"
    tuples = pq.read_table(source, columns=["symbol", "t", "price"])
    pq.write_table(tuples, tmp_path / "cut.parquet", row_group_size=tuples.num_rows // 50)
    session, details = (
        pulse.Session(engine="local"),
        {"key": "symbol", "time": "t", "model": {"price": "step"}, **asked},
    )
    whole, cut = session.fit(source, **details), session.fit(tmp_path / "cut.parquet", **details)
    assert certificates.problems(tuples, cut.read(), FitSpec.of(cut.schema, **asked)) == []
    assert whole.manifest.segments <= cut.manifest.segments <= whole.manifest.segments + 51 * 8
    assert cut.manifest.counts["missed"] == 0


def test_vessels_in_order_of_arrival(recorded: Path, tmp_path: Path) -> None:
    """Santa Barbara as it was received: real out-of-order tuples, set aside and counted, whatever the cuts."""
    tuples = pq.read_table(
        recorded / "ais_sbchannel_20180601_04.parquet", columns=["mmsi", "t", "lat", "t_recv"]
    ).sort_by("t_recv")
    details = {"key": "mmsi", "time": "t", "model": {"lat": "linear"}, "error": "0.0001", "max_gap": "10 min"}
    models = []
    for rows in (tuples.num_rows, 20_000):
        pq.write_table(tuples, tmp_path / f"{rows}.parquet", row_group_size=rows)
        model = pulse.Session(engine="local").fit(tmp_path / f"{rows}.parquet", **details)
        spec = FitSpec.of(model.schema, error="0.0001", max_gap=HOURS // 6)
        assert certificates.problems(tuples, model.read(), spec) == []
        models.append(model)
    one, many = models
    assert one.manifest.counts["late"] == many.manifest.counts["late"] > 1000
    for model in models:
        aside = model.aside()
        assert aside is not None
        assert aside.num_rows == model.manifest.counts["late"]

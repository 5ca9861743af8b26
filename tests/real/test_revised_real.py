"""Real corrections through queries: what they change of results, where, and what was known when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.datasets.arrivals import read_arrivals
from pulse.datasets.taq.corrections import read_corrections
from pulse.store.model import Model
from tests.commands.running import LOCAL as IN_PROCESS
from tests.commands.running import Run, runner
from tests.runtime.execution.asking import MACD
from tests.runtime.incremental.revising import wrong
from tests.runtime.results.test_answer_diff import check_segments, check_tuples, without_bounds
from tests.truth import windows
from tests.truth.measure import assess_tuples
from tests.truth.pieces import tracks

LOCAL = pulse.Session(engine="local")
SECOND = 1_000_000
TRADES = "trades_taq_xxx_corr_20180102_03.parquet"
VESSELS = "ais_sbchannel_20180601_04.parquet"
SPIKE = 157.04
LONG = 60


@pytest.fixture(scope="module")
def cancelled(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Any, pa.Table]:
    """A model of the trades as first recorded, corrected by the file's own records; these; and the trades that stand."""
    folder = tmp_path_factory.mktemp("taq")
    asked: dict[str, Any] = {"model": {"price": "step"}, "key": "symbol", "time": "t", "drift": "0.005%"}
    probe = LOCAL.fit(pq.read_table(recorded / TRADES).slice(0, 2), **asked)
    found = read_corrections(str(recorded / TRADES), probe.schema)
    assert found.tuples is not None
    pq.write_table(found.tuples, folder / "trades.parquet")
    model = LOCAL.fit(str(folder / "trades.parquet"), out=folder / "model", **asked)
    details = LOCAL.revise(model, str(recorded / TRADES), reader="taq", keep=True)
    assert (details.counts["deleted"], details.counts["aside"]) == (1, 0)
    every = pq.read_table(recorded / TRADES)
    regular = every.filter(pc.is_in(every.column("corr"), pa.array([0, 1], every.schema.field("corr").type)))
    return details.model, found.revisions, regular.select(["symbol", "t", "price"])


def spike(model: Model, around: int, **when: Any) -> list[float]:
    """The prices below 157.1 in the minutes around the cancelled trade: others were at 157.25 and more."""
    text = "select symbol, price from S where price < 157.1 sample every 1 s"
    table = LOCAL.sql(text, streams={"S": model.path}, **when).tuples()
    near = np.abs(table.column("t").cast(pa.int64()).to_numpy() - around) < 120 * SECOND
    return [float(price) for price in table.column("price").to_numpy()[near]]


def test_the_spike_is_gone(cancelled: tuple[Model, Any, pa.Table]) -> None:
    model, revisions, _ = cancelled
    instant = int(revisions.times[0])
    assert spike(model, instant) == []
    before = spike(model, instant, version=1)
    assert len(before) == 20  # seconds until the next trade
    assert before == pytest.approx([SPIKE] * 20, abs=0.1)


def test_what_was_known_when(cancelled: tuple[Model, Any, pa.Table]) -> None:
    """Until the cancel record came the trade stood, and after it it never was."""
    model, revisions, _ = cancelled
    (moment,), (instant, *_) = revisions.known.tolist(), revisions.times.tolist()
    assert moment > instant
    just = [np.datetime_as_string(np.datetime64(at, "us")) for at in (moment - 1, moment + 1)]
    assert [len(spike(model, instant, as_of=at)) for at in just] == [20, 0]
    text = "select symbol, min(price) as low from S[size 20 advance 1] as of '{}'"
    lows = []
    for at in just:
        table = LOCAL.sql(text.format(at.replace("T", " ")), streams={"S": model.path}).tuples()
        t = table.column("t").cast(pa.int64()).to_numpy()
        assert t.max() <= moment + 1, "what came later was not known"
        low = table.column("low").to_numpy()[np.abs(t - instant) < 60 * SECOND]
        lows.append(float(low.min()))
    assert lows[0] == pytest.approx(SPIKE, abs=0.05)
    assert lows[1] > SPIKE + 0.1


def test_only_averages_around_it_are_revised(cancelled: tuple[Model, Any, pa.Table]) -> None:
    model, revisions, regular = cancelled
    asked: dict[str, Any] = {"streams": {"S": model.path}, "parameters": {"short": 10, "long": LONG}}
    table = LOCAL.revised(MACD, 1, **asked).tuples()
    assert table.num_rows
    instant = int(revisions.times[0])
    traded = np.sort(regular.column("t").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy())
    following = int(traded[np.searchsorted(traded, instant, side="right")])  # until then the price stood
    t = table.column("t").cast(pa.int64()).to_numpy()
    assert t.min() >= instant
    assert t.max() <= following + LONG * SECOND
    old, new = (LOCAL.sql(MACD, version=version, **asked) for version in (1, 2))
    check_tuples(*(without_bounds(one) for one in (old.tuples(), table, new.tuples())), ["t", "symbol"])
    reported = {
        mode: LOCAL.revised(MACD, 1, mode=mode, **asked) for mode in ("upstream", "downstream", "adaptive")
    }
    for answer in reported.values():
        changes = [without_bounds(one.segments()) for one in (old, answer, new)]
        check_segments(*changes, old)
        assert answer.report is not None
        assert answer.report.streams == {"S": 1}


def test_results_lie_within_their_certificates_of_what_was_traded(
    cancelled: tuple[Model, Any, pa.Table],
) -> None:
    """Minute by minute, against the trades that stand."""
    model, _, regular = cancelled
    text = "select symbol, avg(price) as v from S[size 300 advance 60] group by symbol"
    answer = LOCAL.sql(text, streams={"S": model.path}, possible=True).tuples()
    truth = tracks(regular, {"price": "step"}, key="symbol")
    parts = (
        (k, *windows.window_averages(one, "price", 300 * SECOND, 60 * SECOND)) for k, one in truth.items()
    )
    found = assess_tuples(answer, windows.table(parts, "symbol"), keys=["symbol"], value="v", rounding=1e-9)
    assert found.faults == {}
    assert found.true > 500


def test_on_the_command_line(
    cancelled: tuple[Model, Any, pa.Table],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run: Run = runner(monkeypatch, capsys)
    model = cancelled[0]
    text = "select symbol, price from S where price < 157.1 sample every 1 s"
    done = run("query", text, "--stream", f"S={model.path}", "--revised-from", 1, "--json", *IN_PROCESS)
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert len(rows) == 20
    assert {row["kind"] for row in rows} == {"-D"}
    assert [row["price"] for row in rows] == pytest.approx([SPIKE] * 20, abs=0.1)


@pytest.mark.parametrize(
    ("format", "fitted", "deleted"), [("taq-parquet", 77_262, 1), ("parquet", 77_263, 2)]
)
def test_the_file_itself_on_the_command_line(
    recorded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    format: str,
    fitted: int,
    deleted: int,
) -> None:
    """Fitted and revised as it is, without a word of Python: the trades that stand, whether the record was one or not."""
    run: Run = runner(monkeypatch, capsys)
    out, file = tmp_path / "model", recorded / TRADES
    asked = ("--key", "symbol", "--time", "t", "--model", "price:step", "--error", "0.01", "--out", out)
    how = () if format == "taq-parquet" else ("--format", format)  # what a file of trades is taken for
    done = run("fit", file, *asked, *how, *IN_PROCESS)
    assert done.code == 0, done.err
    assert f"{fitted:,} tuples" in done.out
    assert ("1 rows removed: record of a correction" in done.out) == (format == "taq-parquet")
    assert ("1 rows later cancelled" in done.out) == (format == "taq-parquet")
    done = run("revise", out, "--revisions", file, "--reader", "taq", "--keep", "--json", *IN_PROCESS)
    assert done.code == 0, done.err
    counts = json.loads(done.out)["counts"]
    assert (counts["deleted"], counts["aside"]) == (deleted, 0)
    model = Model(out)
    assert model.manifest.modelled == 77_261
    every = pq.read_table(file)
    stand = every.filter(pc.is_in(every.column("corr"), pa.array([0, 1], pa.int16())))
    assert wrong(stand.select(["symbol", "t", "price"]), model) == []


# -- late reports -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def belated(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, pa.Table]:
    """Reports as they arrived in order, then those that came late; the model, and all reports by vessel and time."""
    folder = tmp_path_factory.mktemp("ais")
    asked: dict[str, Any] = {
        "model": {"lat": "linear", "lon": "linear"},
        "key": "mmsi",
        "time": "t",
        "error": 0.0005,
        "max_gap": "30 min",
    }
    probe = LOCAL.fit(pq.read_table(recorded / VESSELS).slice(0, 2), **asked)
    found = read_arrivals(str(recorded / VESSELS), probe.schema)
    assert found.tuples is not None
    pq.write_table(found.tuples, folder / "reports.parquet")
    model = LOCAL.fit(str(folder / "reports.parquet"), out=folder / "model", **asked)
    details = LOCAL.revise(model, str(recorded / VESSELS), reader="ais", keep=True)
    assert (details.counts["inserted"], details.counts["aside"]) == (2_057, 2)  # two were received before
    late = found.revisions.table.drop_columns(["kind", "known"])
    every = pa.concat_tables([found.tuples.select(late.column_names).cast(late.schema), late])
    return details.model, every.sort_by([("mmsi", "ascending"), ("t", "ascending")])


def test_late_reports_revise_results(belated: tuple[Model, pa.Table]) -> None:
    """Where vessels were, every 10 min: what the late reports change leads from what was reported first to what is right."""
    model, every = belated
    text = "select mmsi, lat from S where lat < 34.25 sample every 600 s"
    old, new = (LOCAL.sql(text, streams={"S": model.path}, version=version) for version in (1, 2))
    changes = LOCAL.revised(text, 1, streams={"S": model.path}).tuples()
    kinds = set(changes.column("kind").to_pylist())
    assert {"+I", "-U", "+U"} <= kinds
    check_tuples(*(without_bounds(one) for one in (old.tuples(), changes, new.tuples())), ["t", "mmsi"])
    share = changes.num_rows / new.tuples().num_rows
    assert share < 0.2, "most of the week stays as it was"
    truth = tracks(every, {"lat": "linear"}, key="mmsi", max_gap=1800 * SECOND)
    table = LOCAL.sql(text, streams={"S": model.path}, possible=True).tuples()
    outside = 0
    times = table.column("t").cast(pa.int64()).to_numpy()
    who = table.column("mmsi").to_numpy()
    lat, err = table.column("lat").to_numpy(), table.column("lat_err").to_numpy()
    for vessel in np.unique(who):
        mine = who == vessel
        value, there = truth[vessel].at("lat", times[mine])
        off = np.abs(lat[mine] - value.astype(float))
        outside += int((there & (off > err[mine] + 1e-9)).sum()) + int((~there).sum())
    assert outside == 0

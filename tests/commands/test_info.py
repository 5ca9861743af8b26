"""``pulse info``: what a stored model is of, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import pulse
from pulse import cli
from pulse.commands.output import report
from pulse.datasets.taq.monthly import TaqMonthly
from pulse.store.model import Model
from tests.operators.fit.fitting import tuples
from tests.store.documents import fields_of, rewrite


@pytest.fixture
def stored(tmp_path: Path) -> Model:
    pq.write_table(tuples([0, 1, 5, 3, 6, 7, 7], x=[1, 1, 2, 3, None, 4, 5]), tmp_path / "f.parquet")
    return pulse.Session(engine="local").fit(
        tmp_path / "f.parquet",
        key="k",
        time="t",
        model={"x": "step"},
        error="1%",
        drift=2,
        max_gap="1 h",
        late="aside",
        out=tmp_path / "model",
    )


def info(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["info", *map(str, arguments)])
    return result.exit_code, result.output


def test_for_people(stored: Model) -> None:
    code, output = info(stored.path)
    assert code == 0
    lines = output.splitlines()
    assert lines[0].startswith("stream    key k: string; time t; modelled x: step")
    assert "asked     error 1% on x, drift 2 on x, degree auto, max gap 1 h" in lines
    for reported in (
        "5 tuples in ",
        "1 tuples set aside, out of order; first: a tuple of k 'a' at 2023-11-14T22:13:23.000000Z; 14.29 % of all",
        "1 tuples set aside, not finite; first: x = nan of k 'a'",
        "1 tuples superseded at their own instant",
        f"source    {stored.manifest.sources[0].path}",
        f"by Pulse {pulse.__version__}",
    ):
        assert reported in output


def test_for_programs(stored: Model) -> None:
    code, output = info(stored.path, "--json")
    details = json.loads(output)
    assert code == 0
    assert (details["tuples"], details["segments"]) == (5, stored.manifest.segments)
    assert details["counts"]["late"] == 1
    assert details["fit"]["drift"] == {"x": "2"}
    assert details["tuples_per_segment"] == 5 / details["segments"]
    assert details["schema"]["time"] == "t"


def fitted(table: pa.Table, out: Path, **options: Any) -> Model:
    asked = {"key": "k", "time": "t", "model": {"x": "step"}, "error": 0, "out": out, **options}
    return pulse.Session(engine="local").fit(table, **asked)


def wide(n: int = 5000) -> pa.Table:
    """Tuples of which only a small part is modelled."""
    noise = np.random.default_rng(1).random((3, n))
    table = tuples(range(n), x=np.arange(n) // 100)
    for i, column in enumerate(noise):
        table = table.append_column(f"noise{i}", pa.array(column))
    return table


@pytest.mark.parametrize("kind", ["parquet", "csv", "table"])
def test_the_size_before_is_that_of_the_columns_in_the_model(tmp_path: Path, kind: str) -> None:
    table = wide()
    own = table.select(["t", "k", "x"])
    data: Any = table
    if kind != "table":
        data = tmp_path / f"data.{kind}"
        alone = tmp_path / f"alone.{kind}"
        for one, path in ((table, data), (own, alone)):
            pq.write_table(one, path) if kind == "parquet" else csv.write_csv(one, path)
    stored = fitted(data, tmp_path / "model")
    details = json.loads(info(stored.path, "--json")[1])
    whole = table.nbytes if kind == "table" else data.stat().st_size
    wanted = own.nbytes if kind == "table" else alone.stat().st_size
    assert (details["bytes_of_sources"], details["bytes_before_are"]) == (whole, "columns")
    assert details["bytes_before"] == pytest.approx(wanted, rel=0.1)
    assert details["bytes_before"] < 0.5 * whole
    assert " before (its columns), " in info(stored.path)[1]


def ais(n: int) -> pa.Table:
    """Positions at random, with columns that no position needs."""
    rng = np.random.default_rng(3)
    times = np.datetime64("2023-11-14T00:00:00", "us") + np.arange(n) * np.timedelta64(1, "s")
    own = {"MMSI": 900_000_000 + np.arange(n) % 3, "BaseDateTime": times}
    own |= {"LAT": 50 + rng.random(n), "LON": 1 + rng.random(n)}
    return pa.table({**own, "SOG": rng.random(n), "COG": 90 * rng.random(n), "Heading": rng.random(n)})


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_size_before_of_projected_positions_is_that_of_their_columns(tmp_path: Path, kind: str) -> None:
    table = ais(3000)
    file, alone = tmp_path / f"ais.{kind}", tmp_path / f"alone.{kind}"
    for one, path in ((table, file), (table.select(["MMSI", "BaseDateTime", "LAT", "LON"]), alone)):
        pq.write_table(one, path) if kind == "parquet" else csv.write_csv(one, path)
    out = tmp_path / "vessels"
    pulse.Session(engine="local").fit(
        file, format="ais", model={"x": "linear", "y": "linear"}, error=0.001, out=out
    )
    details = json.loads(info(out, "--json")[1])
    assert details["bytes_before_are"] == "columns"
    assert details["bytes_before"] == pytest.approx(alone.stat().st_size, rel=0.1)
    assert details["bytes_before"] < 0.8 * file.stat().st_size
    text = info(out)[1]
    assert " before (its columns), " in text
    larger = details["bytes_after"] > details["bytes_before"]
    assert larger == (kind == "parquet")
    assert ("hint      the model is larger than its data: allow a larger --error" in text) == larger


def test_the_size_before_of_trades_is_that_of_their_columns(tmp_path: Path) -> None:
    header = "SYMBOL,DATE,TIME,PRICE,SIZE,G127,CORR,COND,EX\n"
    row = "IBM,20230103,9:30:00,100.25,1000000000,0,0,,N\n"
    file = tmp_path / "trades.csv"
    file.write_text(header + 100 * row, encoding="utf-8")
    own = len("IBM,20230103,9:30:00,100.25,") / len(row)
    found = TaqMonthly().bytes_of(str(file), ["symbol", "t", "price"])
    assert found == pytest.approx(own * file.stat().st_size, rel=0.02)


def test_where_the_columns_sizes_are_unknown_whole_files_are_compared(tmp_path: Path) -> None:
    n = 3000
    restless = tuples(range(n), x=np.random.default_rng(2).random(n))
    pq.write_table(restless, tmp_path / "restless.parquet")
    stored = fitted(tmp_path / "restless.parquet", tmp_path / "large", model={"x": "linear"}, error=1e-6)
    manifest = stored.manifest
    unknown = replace(manifest, sources=tuple(replace(one, modelled=None) for one in manifest.sources))
    assert report.facts(unknown)["bytes_before_are"] == "files"
    text = "\n".join(report.lines(unknown))
    assert " before (whole files), " in text
    assert "the model is larger than its data" in text


def test_a_model_larger_than_its_data_is_reported_with_what_to_do(tmp_path: Path) -> None:
    n = 3000
    restless = tuples(range(n), x=np.random.default_rng(2).random(n))
    pq.write_table(restless, tmp_path / "restless.parquet")
    lines = {"model": {"x": "linear"}, "error": 1e-6}
    stored = fitted(tmp_path / "restless.parquet", tmp_path / "large", **lines)
    details = json.loads(info(stored.path, "--json")[1])
    assert details["bytes_after"] > details["bytes_before"]
    assert "hint      the model is larger than its data: allow a larger --error" in info(stored.path)[1]
    pq.write_table(wide(), tmp_path / "wide.parquet")
    small = fitted(tmp_path / "wide.parquet", tmp_path / "small")
    assert "hint" not in info(small.path)[1]


@pytest.mark.parametrize("chunks", [1, 3])
def test_what_is_kept_and_changes_with_every_tuple_is_hinted_at(tmp_path: Path, chunks: int) -> None:
    n = 2000
    table = tuples(range(n), u=[str(i) for i in range(n)], x=np.ones(n)).append_column(
        "calm", pa.array(["yes"] * n)
    )
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=-(-n // chunks))
    stored = fitted(tmp_path / "data.parquet", tmp_path / "model", keep=["u", "calm"])
    code, output = info(stored.path)
    assert code == 0
    assert (
        "hint      u, which is kept, changes at 100 % of the tuples, and every change ends a segment"
        in output
    )
    assert "model it (--model u:step), or leave it out of --keep" in output
    assert "calm, which" not in output
    kept = fitted(tmp_path / "data.parquet", tmp_path / "calm", keep=["calm"])
    assert "hint" not in info(kept.path)[1]


def test_an_empty_model(tmp_path: Path) -> None:
    asked = {"time": "t", "model": {"x": "step"}, "error": 1}
    pulse.Session(engine="local").fit(tuples([], x=[]), **asked, out=tmp_path / "model")
    code, output = info(tmp_path / "model")
    assert code == 0
    assert "0 tuples in 0 segments" in output


def test_bounds_that_were_missed_are_reported(stored: Model) -> None:
    fields = fields_of(stored.path)
    fields["counts"]["missed"] = 3
    rewrite(stored.path, fields)
    code, output = info(stored.path)
    assert code == 0
    assert "3 segments could not keep the requested bound" in output


def test_many_sources_are_not_all_listed(stored: Model) -> None:
    fields = fields_of(stored.path)
    fields["sources"] *= 12
    rewrite(stored.path, fields)
    _, output = info(stored.path)
    assert output.count("source    ") == 10
    assert "and 2 more" in output


def test_what_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["pulse", "info", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    details = capsys.readouterr()
    assert details.out == ""
    assert details.err.startswith(f"pulse: {tmp_path}: not a stored model")


def test_a_filter_that_passes_nothing_and_sessions_by_another_clock_are_hinted_at(tmp_path: Path) -> None:
    opening = np.datetime64(
        "2024-01-03T09:31", "us"
    )  # a Wednesday; by the clock of New York trading has begun
    minutes = np.arange(300).astype("timedelta64[m]")

    def hints(name: str, begin: Any, **options: Any) -> list[str]:
        data = pa.table({"t": pa.array(begin + minutes), "x": np.ones(300)})
        fit = pulse.Session(engine="local").fit
        made = fit(data, time="t", model={"x": "step"}, error=1, out=tmp_path / name, **options)
        lines = info(made.path)[1].splitlines()
        return [line.removeprefix("hint").strip() for line in lines if line.startswith("hint")]

    assert hints("all", opening) == hints("some", opening, where="x > 0") == []
    assert hints("none", opening, where="x > 1") == [
        "no row passes the filter, and the model is empty: correct the condition (--where)"
    ]
    (hint,) = hints("local", opening, session="XNYS")
    assert hint.startswith(
        "99.67 % of the rows lie outside of the sessions of XNYS, or are filtered: times without a zone"
    )
    assert hints("utc", opening + np.timedelta64(5, "h"), session="XNYS") == []

"""Results whose instants are shown in a time zone: the same instants, in every form and on either engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.runtime.io.time_zone import ZoneError
from tests.commands.running import refused, runner
from tests.runtime.execution.asking import local

NEW_YORK = "America/New_York"
TEXT = "select symbol, price from S sample every 1 h"


def model(out: Path | None = None, **asked: Any) -> Any:
    """Prices over the end of summer time in New York, 2013-11-03 06:00 UTC."""
    hours = pd.date_range("2013-11-03 03:00", periods=8, freq="1h")
    data = pd.DataFrame({"symbol": "a", "t": hours.as_unit("us"), "price": [float(i % 3) for i in range(8)]})
    return local().fit(data, key="symbol", time="t", model={"price": "step"}, error=0, out=out, **asked)


def ask(text: str = TEXT, session: Any = None, **streams: Any) -> Any:
    return (session or local()).sql(text, streams=streams or {"S": model()})


def test_tuples_have_the_zones_clock_over_the_end_of_summer_time() -> None:
    answer = ask()
    plain, shown = answer.to_arrow(), answer.to_arrow(zone=NEW_YORK)
    assert plain.schema.field("t").type == pa.timestamp("us")
    assert shown.schema.field("t").type == pa.timestamp("us", NEW_YORK)
    assert shown.column("t").cast(pa.int64()).to_pylist() == plain.column("t").cast(pa.int64()).to_pylist()
    assert shown.drop_columns(["t"]).equals(plain.drop_columns(["t"]))
    clock = [one.strftime("%H:%M %z") for one in shown.column("t").to_pylist()]
    assert clock[:5] == ["23:00 -0400", "00:00 -0400", "01:00 -0400", "01:00 -0500", "02:00 -0500"]
    frame = answer.to_pandas(zone=NEW_YORK)
    assert str(frame["t"].dt.tz) == NEW_YORK
    assert (frame["t"].dt.tz_convert(None) == answer.to_pandas()["t"]).all()


def test_segments_episodes_head_and_readers_have_it() -> None:
    answer = ask("select symbol, price from S where price > 0").in_zone(NEW_YORK)
    zoned = pa.timestamp("us", NEW_YORK)
    assert answer.segments().schema.field("ref").type == zoned
    assert answer.to_arrow().schema.field("ref").type == zoned
    episodes = answer.episodes()
    for name in ("start", "end", "start_earliest", "end_latest", "price_min_at"):
        assert episodes.schema.field(name).type == zoned
    assert [one.hour for one in episodes.column("start").to_pylist()] == [0, 2, 5]
    assert answer.head(1, episodes=True)[0].schema.field("start").type == zoned
    assert answer.reader().read_all().equals(answer.to_arrow())
    assert answer.in_zone(None).segments().schema.field("ref").type == pa.timestamp("us")
    assert answer.causes().num_rows > 0


def test_sweeps_and_revisions_have_it(tmp_path: Path) -> None:
    stored = model(tmp_path / "S", keep_tuples=True)
    swept = local().sweep(
        "select symbol, price + :by as p from S sample every 1 h", streams={"S": stored}, by=[1, 2]
    )
    assert str(swept.to_pandas(zone=NEW_YORK)["t"].dt.tz) == NEW_YORK
    assert swept.in_zone(NEW_YORK).summary().equals(swept.summary())
    late = pa.table(
        {
            "kind": ["+I"],
            "symbol": ["a"],
            "t": pa.array([pd.Timestamp("2013-11-03 05:30").value // 1000], pa.timestamp("us")),
            "price": [9.0],
        }
    )
    local().revise(stored, late, keep=True)
    changes = local().revised(TEXT.replace("1 h", "30 min"), 1, streams={"S": stored})
    shown = changes.to_pandas(zone=NEW_YORK).query("kind == '+U'")
    assert [str(one) for one in shown["t"]] == ["2013-11-03 01:30:00-04:00"]


def test_the_zone_of_the_stream(tmp_path: Path) -> None:
    S = model(zone=NEW_YORK)
    assert ask(S=S).to_arrow(zone="stream").schema.field("t").type.tz == NEW_YORK
    with pytest.raises(ZoneError, match="S was fitted without --zone; name one"):
        ask().to_arrow(zone="stream")
    both = "select A.price from S A join B on (A.symbol = B.symbol)"
    with pytest.raises(ZoneError, match="different zones: S in America/New_York, B in Europe/Berlin"):
        ask(both, S=S, B=model(zone="Europe/Berlin")).in_zone("stream")
    assert ask(both, S=S, B=model()).in_zone("stream").to_arrow().schema.field("ref").type.tz == NEW_YORK


def test_a_zone_that_does_not_exist() -> None:
    with pytest.raises(ZoneError, match="got 'America/NewYork'; did you mean 'America/New_York'"):
        ask().in_zone("America/NewYork")


def test_files_have_it(tmp_path: Path) -> None:
    answer = ask().in_zone(NEW_YORK)
    assert answer.write(str(tmp_path / "a.parquet")) == 8
    read = pq.read_table(tmp_path / "a.parquet").column("t")
    assert read.type == pa.timestamp("us", NEW_YORK)
    answer.write(str(tmp_path / "a.csv"))
    text = (tmp_path / "a.csv").read_text().splitlines()[3]
    assert text.startswith("2013-11-03 01:00:00.000000-0400")
    again = pacsv.read_csv(tmp_path / "a.csv").column("t").cast(pa.timestamp("us", "UTC"))
    assert again.cast(pa.int64()).to_pylist() == read.cast(pa.int64()).to_pylist()


def test_spark_gives_what_is_given_in_process(spark: SparkSession, tmp_path: Path) -> None:
    stored = {"S": model(tmp_path / "S", zone=NEW_YORK)}
    here, there = ask(**stored), ask(session=pulse.Session(spark=spark), **stored)
    assert there.to_arrow(zone="stream").sort_by("t").equals(here.to_arrow(zone="stream").sort_by("t"))
    zoned = there.in_zone("stream")
    zoned.write(str(tmp_path / "a.parquet"))
    assert (
        pq.read_table(tmp_path / "a.parquet").sort_by("t").equals(here.to_arrow(zone="stream").sort_by("t"))
    )
    assert zoned.tuples().count() == 8
    with pytest.raises(ZoneError, match="Spark's workers write folders"):
        zoned.write(f"{tmp_path}/folder/")


def test_commands_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(monkeypatch, capsys)
    stored = model(tmp_path / "S", zone=NEW_YORK).path
    asked = ("query", "--stream", f"S={stored}", TEXT, "--engine", "local")
    shown = run(*asked, "--zone", "stream").out
    assert "2013-11-03 01:00:00-04:00" in shown
    assert "2013-11-03 01:00:00-05:00" in shown
    rows = [json.loads(line) for line in run(*asked, "--zone", NEW_YORK, "--json").out.splitlines()]
    assert rows[0]["t"] == "2013-11-02 23:00:00-04:00"
    assert json.loads(run(*asked, "--json").out.splitlines()[0])["t"] == "2013-11-03 03:00:00"
    refused(run(*asked, "--zone", "Mars/Base"), "expected the name of a time zone")
    refused(run(*asked, "--zone", NEW_YORK, "--save", tmp_path / "saved"), "--save does not go with --zone")
    out = tmp_path / "swept.parquet"
    text = "select symbol, price + :by as p from S sample every 1 h"
    options = ("--param", "by=1,2", "--engine", "local", "--out", out, "--zone", "stream")
    assert run("sweep", "--stream", f"S={stored}", text, *options).code == 0
    assert pq.read_table(out).schema.field("t").type.tz == NEW_YORK

"""``pulse query`` on the command line: rows for people and programs, files, and every way to get it wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pulse.store.model import Model
from tests.commands.running import LOCAL, Run, refused
from tests.runtime.execution.asking import MACD, SECOND, START, local, rows_of, table

SAMPLED = "select symbol, price from S where price > 20 sample every 1 s"
BOUND = ("--param", "short=4", "--param", "long=12")


def test_help(run: Run) -> None:
    done = run("query", "--help")
    assert done.code == 0
    for reported in ("Answer a query on stored models", "--stream", "--possible", "@macd.sql", "NAME=DIR"):
        assert reported in done.out
    assert "query" in run("--help").out


def test_rows_are_shown(run: Run, s: tuple[str, ...]) -> None:
    done = run("query", SAMPLED, *s, "--limit", 3)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].split() == ["t", "symbol", "price", "price_err", "certainty"]
    assert len(lines) == 5
    assert lines[-1] == "… more rows; --limit 6 shows more, --out keeps all"
    assert lines[1].startswith("2020-09-13 12:26:4")


def test_all_rows_are_counted_when_they_fit(run: Run, s: tuple[str, ...]) -> None:
    done = run("query", "select symbol from S where symbol = 'a' and price < -5 sample every 1 s", *s)
    assert done.out.splitlines() == ["t  symbol  certainty", "0 rows"]


def test_rows_as_json(run: Run, s: tuple[str, ...], stored: Model) -> None:
    rows = [
        json.loads(line) for line in run("query", SAMPLED, *s, "--json", "--limit", 10000).out.splitlines()
    ]
    wanted = local().sql(SAMPLED, streams={"S": stored}).tuples().to_pylist()
    assert [row["price"] for row in rows] == [row["price"] for row in wanted]
    assert list(rows[0]) == ["t", "symbol", "price", "price_err", "certainty"]
    done = run("query", SAMPLED, *s, "--json", "--segments", "--lineage", "--limit", 1)
    (row,) = map(json.loads, done.out.splitlines())
    assert list(row) == [
        "symbol",
        "ref",
        "lo",
        "hi",
        "price",
        "price_err",
        "price_drift",
        "certainty",
        "lineage",
    ]
    assert {"segment_id", "key", "ref", "lo", "hi"} == set(row["lineage"][0])


@pytest.mark.parametrize("segments", [False, True])
def test_into_a_file(run: Run, s: tuple[str, ...], stored: Model, tmp_path: Path, segments: bool) -> None:
    (tmp_path / "macd.sql").write_text(MACD)
    out = tmp_path / "out.parquet"
    options = ("--segments",) if segments else ()
    done = run("query", f"@{tmp_path / 'macd.sql'}", *s, *BOUND, *options, "--out", out)
    answer = local().sql(MACD, streams={"S": stored}, short=4, long=12)
    wanted = answer.segments() if segments else answer.tuples()
    assert rows_of(pq.read_table(out)) == rows_of(wanted)
    what = "segments" if segments else "tuples"
    assert done.out.startswith(f"{wanted.num_rows:,} {what} written to {out} in ")
    assert done.code == 0


def test_what_was_written_as_json(run: Run, s: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    details = json.loads(run("query", SAMPLED, *s, "--out", out, "--json").out)
    assert set(details) == {"out", "rows", "seconds", "notes"}
    assert details["rows"] == pacsv.read_csv(out).num_rows > 0
    assert details["out"] == str(out)


def test_possible_ranges(run: Run, s: tuple[str, ...]) -> None:
    def found(*options: str) -> set[str]:
        done = run("query", SAMPLED, *s, "--json", "--limit", 10000, *options)
        return {json.loads(line)["certainty"] for line in done.out.splitlines()}

    assert found() == {"certain", "likely"}
    assert found("--possible") == {"certain", "likely", "possible"}


def test_on_spark(run: Run, stored: Model, spark: SparkSession, tmp_path: Path) -> None:
    """The session that runs already is used, and left running."""
    out = tmp_path / "out.parquet"
    done = run("query", SAMPLED, "--stream", f"S={stored.path}", "--out", out)
    assert done.code == 0
    assert rows_of(pq.read_table(out)) == rows_of(local().sql(SAMPLED, streams={"S": stored}).tuples())
    assert spark.range(1).count() == 1


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (
            ["select symbol, price from S where price > 20"],
            "SAMPLE EVERY 1 s, or ask for segments (--segments)",
        ),
        (["select cost from S sample every 1 s"], "there is no column 'cost'"),
        (["select price from T sample every 1 s"], "'T'"),
        (["selekt"], "query, line 1, column 1"),
        (["@gone.sql"], "@gone.sql: cannot read the query"),
        ([MACD], "no value for :short, :long; give it as a keyword (--param short=…)"),
        ([MACD, *BOUND, "--param", "wide=3"], "there is no parameter :wide"),
        ([MACD, "--param", "short=soon", "--param", "long=12"], "expected a duration"),
        ([SAMPLED, "--param", "short"], "--param short: expected NAME=VALUE, such as short=10"),
        ([SAMPLED, "--stream", "prices"], "--stream prices: expected NAME=DIR, such as S=prices"),
        ([SAMPLED, "--stream", "S=twice"], "--stream: 'S' is named twice"),
        ([SAMPLED, "--out", "out.txt"], "expected a name that ends in .parquet, .csv, .geojson"),
        ([SAMPLED, "--out", "no/out.csv"], "there is no folder"),
        ([SAMPLED, "--out", "folder/"], "only Spark writes folders"),
        (
            [SAMPLED, "--out", "out.csv", "--segments"],
            "CSV cannot hold price; write Parquet, or ask for tuples",
        ),
        ([f"{SAMPLED.replace(' sample', ' error within 0.001 sample')}"], "is certain to"),
        ([SAMPLED, "--engine", "dask"], "engine: expected 'spark' or 'local', got 'dask'"),
    ],
)
def test_what_is_wrong_is_reported(
    run: Run,
    s: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    reported: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(run("query", *s, *arguments), reported)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_none(run: Run, tmp_path: Path) -> None:
    refused(run("query", SAMPLED, "--stream", f"S={tmp_path}", *LOCAL), "not a stored model")


def test_a_file_that_is_there_is_only_replaced_if_asked(run: Run, s: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    out.write_text("mine")
    refused(run("query", SAMPLED, *s, "--out", out), "it is there already")
    assert out.read_text() == "mine"
    assert run("query", SAMPLED, *s, "--out", out, "--overwrite").code == 0
    assert pq.read_table(out).num_rows > 0


def test_usage(run: Run, s: tuple[str, ...]) -> None:
    for arguments in (("query", *s), ("query", SAMPLED), ("query", SAMPLED, *s, "--limit", "0")):
        done = run(*arguments)
        assert done.code == 2
        assert "pulse query [OPTIONS] {query}" in done.err


@pytest.fixture
def corrected(tmp_path: Path) -> tuple[str, ...]:
    """--stream S= a model of two versions: a price of 'a' went from 10 to 12."""
    rows = {
        "symbol": ["a"] * 5,
        "t": [START + i * SECOND for i in range(5)],
        "price": [9.0, 10.0, 9.0, 9.5, 9.0],
    }
    pq.write_table(table(rows, symbol=pa.string(), price=pa.float64()), tmp_path / "ticks.parquet")
    model = local().fit(
        str(tmp_path / "ticks.parquet"),
        key="symbol",
        time="t",
        model={"price": "step"},
        error=0,
        drift=0.1,
        out=tmp_path / "model",
    )
    changelog = {"kind": ["-U", "+U"], "symbol": ["a"] * 2, "t": [START + SECOND] * 2, "price": [10.0, 12.0]}
    given = table(changelog, kind=pa.string(), symbol=pa.string(), price=pa.float64())
    local().revise(model.path, given, keep=True)
    return ("--stream", f"S={model.path}", *LOCAL)


MEAN = "select symbol, max(price) as m from S[size 2 advance 1]"


def test_versions_and_what_changed_between_them(run: Run, corrected: tuple[str, ...], tmp_path: Path) -> None:
    def reported(*more: object) -> list[tuple[object, ...]]:
        done = run("query", MEAN, *corrected, "--json", *more)
        assert done.code == 0, done.err
        rows = [json.loads(line) for line in done.out.splitlines()]
        return [(row["t"][-2:], row["m"], *([row["kind"]] if "kind" in row else [])) for row in rows]

    assert reported() == [("42", 12.0), ("43", 12.0), ("44", 9.5)]
    assert reported("--version", 1) == [("42", 10.0), ("43", 10.0), ("44", 9.5)]
    assert reported("--as-of", "2020-09-13 12:26:43") == [("42", 10.0), ("43", 10.0)]
    revised = [("42", 10.0, "-U"), ("42", 12.0, "+U"), ("43", 10.0, "-U"), ("43", 12.0, "+U")]
    assert reported("--revised-from", 1) == revised
    assert reported("--revised-from", "S=1") == revised
    assert reported("--revised-from", "2020-09-13 12:26:43") == revised
    assert reported("--revised-from", 2) == []
    out = tmp_path / "revisions.parquet"
    done = run("query", MEAN, *corrected, "--revised-from", 1, "--out", out)
    assert "4 revisions written to" in done.out
    assert pq.read_table(out).column("kind").to_pylist() == ["-U", "+U", "-U", "+U"]


def test_a_question_as_of_a_time_notes_what_counts_as_known(
    run: Run, corrected: tuple[str, ...], tmp_path: Path
) -> None:
    """When tuples of the fit arrived is not kept: they count as known at their own times."""
    done = run("query", MEAN, *corrected, "--as-of", "2020-09-13 12:26:43")
    assert "note: S as of 2020-09-13T12:26:43" in done.err
    assert "the tuples of the fit count as known at their own times" in done.err
    assert "note" not in done.out
    out = tmp_path / "rows.parquet"
    done = run("query", MEAN, *corrected, "--as-of", "2020-09-13 12:26:43", "--out", out, "--json")
    assert len(json.loads(done.out)["notes"]) == 1
    assert run("query", MEAN, *corrected, "--version", 1).err == ""
    assert (
        json.loads(run("query", MEAN, *corrected, "--out", out, "--json", "--overwrite").out)["notes"] == []
    )


def test_the_way_of_revisions_is_chosen_and_reported(
    run: Run, corrected: tuple[str, ...], tmp_path: Path
) -> None:
    old = tmp_path / "old.parquet"
    assert run("query", MEAN, *corrected, "--version", 1, "--segments", "--out", old).code == 0
    asked = ("query", MEAN, *corrected, "--revised-from", 1, "--segments", "--json")
    plain = run(*asked)
    for more in (("--mode", "upstream"), ("--mode", "adaptive"), ("--results", old)):
        done = run(*asked, *more)
        assert done.code == 0, done.err
        assert len(done.out.splitlines()) == len(plain.out.splitlines())
        assert "rows of changes" in done.err


@pytest.mark.parametrize(
    ("more", "reported"),
    [
        (("--version", 7), "there is no version 7; the newest is 2"),
        (("--as-of", "noon"), "cannot read 'noon'"),
        (("--as-of", "2020-09-13", "--version", 1), "give one of them"),
        (("--revised-from", 7), "there is no version 7"),
        (("--revised-from", "S=x"), "expected STREAM=VERSION"),
        (("--revised-from", "T=1"), "the query reads no stream of that name as of now, only S"),
        (("--revised-from", "1,2"), "expected one version or time"),
        (("--revised-from", 1, "--lineage"), "--lineage does not go with"),
        (("--mode", "upstream"), "go with --revised-from"),
        (("--revised-from", 1, "--mode", "sideways"), "expected one of adaptive"),
    ],
)
def test_versions_that_make_no_sense_are_refused(
    run: Run, corrected: tuple[str, ...], more: tuple[object, ...], reported: str
) -> None:
    refused(run("query", MEAN, *corrected, *more), reported)


def test_the_engine_may_come_from_the_environment(
    run: Run, stored: Model, s: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSE_ENGINE", "abacus")
    asked = ("query", SAMPLED, "--stream", f"S={stored.path}")
    refused(run(*asked), "expected 'spark' or 'local', got 'abacus'")
    assert run("query", SAMPLED, *s).code == 0  # an explicit option wins


def test_episodes_are_shown_and_written(run: Run, s: tuple[str, ...], stored: Model, tmp_path: Path) -> None:
    text = "select symbol, price from S where price > 20"
    wanted = local().sql(text, streams={"S": stored}).episodes()
    done = run("query", text, *s, "--episodes", "--limit", 2)
    assert done.code == 0
    assert done.out.splitlines()[0].split()[:5] == ["symbol", "start", "end", "duration", "certainty"]
    rows = [
        json.loads(line)
        for line in run("query", text, *s, "--episodes", "--json", "--limit", 999).out.splitlines()
    ]
    assert [row["duration"] for row in rows] == wanted.column("duration").to_pylist()
    out = tmp_path / "episodes.parquet"
    assert f"{wanted.num_rows} episodes written to" in run("query", text, *s, "--episodes", "--out", out).out
    assert pq.read_table(out).equals(wanted)
    refused(run("query", text, *s, "--episodes", "--segments"), "--episodes does not go with --segments")
    refused(run("query", text, *s, "--episodes", "--lineage"), "--episodes does not go with --lineage")
    refused(
        run("query", text, *s, "--episodes", "--revised-from", 1), "--episodes does not go with --revised"
    )


def test_positions_in_degrees_need_a_projection(run: Run, s: tuple[str, ...], tmp_path: Path) -> None:
    refused(run("query", SAMPLED, *s, "--geo"), "no projection on record")
    refused(run("query", SAMPLED, *s, "--geo", "--segments"), "--geo does not go with --segments")
    refused(
        run("query", SAMPLED, *s, "--out", tmp_path / "a.geojson"),
        "GeoJSON needs positions in degrees; add --geo",
    )


def test_saved_as_a_model(run: Run, s: tuple[str, ...], tmp_path: Path) -> None:
    text = "select symbol, price from S where price > 20"
    done = run("query", text, *s, "--save", tmp_path / "high")
    assert done.code == 0
    assert "segments saved in" in done.out
    shown = run(
        "query", "select * from Q", "--stream", f"Q={tmp_path / 'high'}", *LOCAL, "--segments", "--limit", 2
    )
    assert shown.code == 0
    assert "certainty" in shown.out
    told = run("info", tmp_path / "high").out
    assert text in told
    assert "input" in told
    assert "tuples" not in told
    assert run("query", text, *s, "--save", tmp_path / "high").code != 0
    again = run("query", text, *s, "--save", tmp_path / "high", "--overwrite", "--json")
    assert json.loads(again.out)["segments"] == len(Model(tmp_path / "high"))
    refused(
        run("query", text, *s, "--save", tmp_path / "x", "--segments"), "--save does not go with --segments"
    )

"""``pulse sweep`` on the command line: the summary, rows of all variants, a picture, and every way to get it wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from pulse.store.model import Model
from tests.commands.running import Run, refused
from tests.runtime.execution.asking import MACD, local, rows_of

GRID = ("--param", "short=2,4", "--param", "long=8:16:4")


def test_help(run: Run) -> None:
    done = run("sweep", "--help")
    assert done.code == 0
    for reported in ("all combinations", "--heatmap", "--summary", "FROM:TO:STEP"):
        assert reported in done.out


def test_the_summary_is_shown(run: Run, s: tuple[str, ...]) -> None:
    done = run("sweep", MACD, *s, *GRID)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    names = "short long ranges seconds certain_seconds diff_mean diff_min diff_max"
    assert lines[0].split() == names.split()
    assert [line.split()[:2] for line in lines[1:7]] == [[a, b] for a in "24" for b in ("8", "12", "16")]
    assert lines[7].startswith("6 variants in ")


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_sweep_as_of_a_time_has_the_note_of_an_answer(
    run: Run, s: tuple[str, ...], more: tuple[str, ...]
) -> None:
    text = "select symbol, price from S where price > :p sample every 1 s as of '2020-09-13 12:27:00'"
    done = run("sweep", text, *s, "--param", "p=1,2", *more)
    assert done.code == 0
    (line,) = done.err.splitlines()
    assert line.startswith("note: S as of 2020-09-13T12:27:00")


def test_many_variants_are_not_all_shown(run: Run, s: tuple[str, ...]) -> None:
    many = ("--param", "short=2,4", "--param", "long=8:30:2")
    lines = run("sweep", MACD, *s, *many).out.splitlines()
    assert len(lines) == 1 + 20 + 2
    assert lines[-2] == "… 4 more variants; --limit 24 shows all, --summary keeps them"
    assert lines[-1].startswith("24 variants in ")
    assert len(run("sweep", MACD, *s, *many, "--limit", 24).out.splitlines()) == 1 + 24 + 1
    assert [one.split()[:2] for one in run("sweep", MACD, *s, *many, "--limit", 1).out.splitlines()[1:3]] == [
        ["2", "8"],
        ["…", "23"],
    ]
    assert len(run("sweep", MACD, *s, *many, "--json", "--limit", 1).out.splitlines()) == 24


def test_the_summary_as_json_and_in_a_file(
    run: Run, s: tuple[str, ...], stored: Model, tmp_path: Path
) -> None:
    file = tmp_path / "summary.csv"
    rows = [
        json.loads(line)
        for line in run("sweep", MACD, *s, *GRID, "--json", "--summary", file).out.splitlines()
    ]
    wanted = local().sweep(MACD, streams={"S": stored}, short=[2, 4], long=[8, 12, 16]).summary()
    assert rows == wanted.to_pylist()
    assert pacsv.read_csv(file).column_names == wanted.column_names
    assert pacsv.read_csv(file).column("seconds").to_pylist() == wanted.column("seconds").to_pylist()


@pytest.mark.parametrize("segments", [False, True])
def test_rows_of_all_variants(
    run: Run, s: tuple[str, ...], stored: Model, tmp_path: Path, segments: bool
) -> None:
    (tmp_path / "macd.sql").write_text(MACD)
    out = tmp_path / "out.parquet"
    done = run(
        "sweep", f"@{tmp_path / 'macd.sql'}", *s, *GRID, "--out", out, *(["--segments"] if segments else [])
    )
    swept = local().sweep(MACD, streams={"S": stored}, short=[2, 4], long=[8, 12, 16])
    wanted = swept.segments() if segments else swept.tuples()
    assert rows_of(pq.read_table(out)) == rows_of(wanted)
    assert done.out.splitlines()[-1] == f"{wanted.num_rows:,} rows written to {out}"


def test_a_heat_map(run: Run, s: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "macd.svg"
    assert run("sweep", MACD, *s, *GRID, "--heatmap", picture, "--value", "diff_mean").code == 0
    assert "<svg" in picture.read_text()
    refused(run("sweep", MACD, *s, *GRID, "--heatmap", picture), "macd.svg: it is there already")
    assert run("sweep", MACD, *s, *GRID, "--heatmap", picture, "--overwrite").code == 0
    refused(
        run("sweep", MACD, *s, *GRID, "--heatmap", tmp_path / "macd.doc"),
        "expected a name that ends in one of",
    )
    refused(run("sweep", MACD, *s, *GRID, "--heatmap", tmp_path / "no" / "macd.png"), "there is no folder")
    done = run("sweep", MACD, *s, *GRID, "--heatmap", tmp_path / "other.png", "--value", "beauty")
    assert done.code == 2
    assert "the summary has no column 'beauty' to show; it has ranges, seconds" in done.err
    assert "6 variants in" in done.out  # the summary is not lost


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ([MACD, "--param", "short=2,4"], "no value for :long"),
        ([MACD, *GRID, "--param", "wide=1"], "there is no parameter :wide"),
        ([MACD, "--param", "short=2,soon", "--param", "long=8"], "values of parameter :short"),
        ([MACD, "--param", "short=soon", "--param", "long=8"], "expected a duration"),
        ([MACD, "--param", "short=9:1", "--param", "long=8"], "has no values; FROM must not exceed TO"),
        ([MACD, "--param", "short=", "--param", "long=8"], "expected NAME=VALUES, such as short=5,10,20"),
        ([MACD, *GRID, "--out", "out.txt"], "expected a name that ends in"),
        ([MACD, *GRID, "--out", "out/"], "only Spark writes folders"),
        ([MACD, *GRID, "--out", "out.csv", "--segments"], "CSV cannot hold diff"),
        ([MACD, *GRID, "--summary", "summary/"], "only Spark writes folders"),
        (["@gone.sql", *GRID], "cannot read the query"),
        (
            ["select price from S where price > :lo", "--param", "lo=1,2", "--out", "out.parquet"],
            "lo is a parameter and a column of the answer; rename one",
        ),
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
    refused(run("sweep", *s, *arguments), reported)
    assert list(tmp_path.iterdir()) == []


def test_usage(run: Run, s: tuple[str, ...]) -> None:
    done = run("sweep", MACD, *s)
    assert done.code == 2
    assert "Missing option '--param'" in done.err

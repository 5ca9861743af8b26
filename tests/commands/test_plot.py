"""``pulse plot``: pictures and pages of models, answers, sweeps, lineage and tracks; what is refused, and how."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.store.model import Model
from tests.commands.running import LOCAL, Run, refused
from tests.plot.pages import check_page
from tests.runtime.asking import MACD, local, ticks, vessels

pytest.importorskip("matplotlib")

PARAMETERS = ("--param", "short=4", "--param", "long=12")


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def test_help_has_examples(run: Run) -> None:
    for command in ("model", "query", "sweep", "lineage", "tracks"):
        done = run("plot", command, "--help")
        assert done.code == 0
        assert f"pulse plot {command} " in done.out
        assert "--out" in done.out
    assert "pulse plot model prices" in run("plot", "--help").out


def test_a_model(run: Run, stored: Model, tmp_path: Path) -> None:
    pq.write_table(ticks(), tmp_path / "ticks.parquet")
    more = ("--key", "b", "--from", "2020-09-13 12:26:45", "--to", "2020-09-13 12:27:00")
    out = tmp_path / "model.png"
    done = run("plot", "model", stored.path, *more, "--tuples", tmp_path / "ticks.parquet", "--out", out)
    assert (done.code, done.out) == (0, f"written to {out}\n")
    assert is_png(out)
    refused(run("plot", "model", stored.path, "--out", out), "it is there already")
    assert run("plot", "model", stored.path, "--keys", 1, "--out", out, "--overwrite").code == 0
    assert run("plot", "model", stored.path, "--key", "symbol=a", "--out", tmp_path / "a.svg").code == 0


def test_a_page(run: Run, stored: Model, tmp_path: Path) -> None:
    out = tmp_path / "model.html"
    assert run("plot", "model", stored.path, "--keys", 2, "--out", out).code == 0
    parsed = check_page(out.read_text(encoding="utf-8"))
    assert len(parsed.all("img")) == len(parsed.all("source")) == 1
    assert "segments drawn" in out.read_text(encoding="utf-8")


def test_an_answer(run: Run, s: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "macd.html"
    done = run("plot", "query", MACD, *s, *PARAMETERS, "--possible", "--key", "b", "--out", out)
    assert done.code == 0, done.err
    text = out.read_text(encoding="utf-8")
    check_page(text)
    assert "certain" in text
    high = "select symbol, price from S where price > 20"
    assert run("plot", "query", high, *s, "--out", tmp_path / "high.png").code == 0
    assert is_png(tmp_path / "high.png")


def test_a_sweep_and_its_summary(run: Run, s: tuple[str, ...], tmp_path: Path) -> None:
    grid = ("--param", "short=2,4", "--param", "long=8:16:4")
    out = tmp_path / "macd.png"
    assert run("plot", "sweep", MACD, *s, *grid, "--value", "diff_mean", "--out", out).code == 0
    assert is_png(out)
    for kind in ("parquet", "csv"):
        written = tmp_path / f"summary.{kind}"
        assert run("sweep", MACD, *s, *grid, "--summary", written).code == 0
        page = tmp_path / f"{kind}.html"
        assert run("plot", "sweep", written, "--value", "ranges", "--out", page).code == 0
        assert len(check_page(page.read_text(encoding="utf-8")).all("td")) == 6 * 8


def test_lineage(run: Run, s: tuple[str, ...], stored: Model, tmp_path: Path) -> None:
    high = tmp_path / "high.parquet"
    asked = "select symbol, price from S where price > 20"
    assert run("query", asked, *s, "--segments", "--lineage", "--out", high).code == 0
    assert run("plot", "lineage", high, "--out", tmp_path / "bars.png").code == 0
    with_model = ("--row", 1, "--model", f"S={stored.path}")
    assert run("plot", "lineage", high, *with_model, "--out", tmp_path / "curves.html").code == 0
    check_page((tmp_path / "curves.html").read_text(encoding="utf-8"))
    refused(run("plot", "lineage", high, "--row", 100_000, "--out", tmp_path / "no.png"), "expected a row of")


def test_tracks(run: Run, tmp_path: Path) -> None:
    local().fit(
        vessels(),
        key="id",
        time="t",
        model={"x": "linear", "y": "linear"},
        error=1,
        out=tmp_path / "vessels",
    )
    assert run("plot", "tracks", tmp_path / "vessels", "--out", tmp_path / "map.png").code == 0
    one = ("--key", "3", "--out", tmp_path / "one.pdf")
    assert run("plot", "tracks", tmp_path / "vessels", *one).code == 0


def test_tracks_of_pairs_are_drawn_and_listed(run: Run, tmp_path: Path) -> None:
    fitted = local().fit(
        vessels(),
        key="id",
        time="t",
        model={"x": "linear", "y": "linear"},
        error=1,
        out=tmp_path / "vessels",
    )
    found = local().sql(
        "select A.id as one, B.id as other from S as A join S as B on (A.id < B.id) "
        "where distance(A.x, A.y, B.x, B.y) < 1e9",
        streams={"S": fitted},
    )
    near = tmp_path / "near.parquet"
    found.write(str(near))
    asked = ("plot", "tracks", tmp_path / "vessels", "--pairs", near, "--most", 1)
    drawn = run(*asked, "--out", tmp_path / "map.html")
    assert drawn.code == 0, drawn.err
    header, row, count = drawn.out.splitlines()[1:]
    assert header.split() == ["one", "other", "from", "to", "minutes", "certain"]
    assert row.split()[-2:] == ["100", "%"]
    assert count.endswith("; the 1 longest are shown (--most)")
    assert len(check_page((tmp_path / "map.html").read_text(encoding="utf-8")).all("td")) == 6
    for name, table, expected in (
        (
            "strange",
            pa.table({"t": pa.array([0], pa.timestamp("us")), "a": ["x"], "b": ["y"]}),
            "has tracks here",
        ),
        ("single", pa.table({"t": pa.array([0], pa.timestamp("us")), "a": ["x"]}), "that name two objects"),
    ):
        pq.write_table(table, tmp_path / f"{name}.parquet")
        pairs = ("--pairs", tmp_path / f"{name}.parquet", "--out", tmp_path / "a.png")
        refused(run("plot", "tracks", tmp_path / "vessels", *pairs), expected)


def test_what_is_refused(run: Run, stored: Model, s: tuple[str, ...], tmp_path: Path) -> None:
    out = ("--out", tmp_path / "a.png")
    refused(
        run("plot", "model", stored.path, "--out", tmp_path / "a.doc"), "expected a name that ends in one of"
    )
    refused(run("plot", "model", stored.path, "--out", tmp_path / "no" / "a.png"), "there is no folder")
    refused(run("plot", "model", stored.path, "--key", "zzz", *out), "no segments of key")
    refused(run("plot", "model", stored.path, "--key", "who=1,x=2", *out), "no segments of key")
    refused(
        run("plot", "model", stored.path, "--from", "yesterday", *out), "--from yesterday: expected a time"
    )
    refused(run("plot", "model", stored.path, "--attribute", "cost", *out), "no modelled attribute 'cost'")
    refused(run("plot", "model", stored.path, "--tuples", tmp_path / "no.parquet", *out), "no.parquet")
    refused(run("plot", "model", tmp_path, *out), str(tmp_path))
    refused(run("plot", "sweep", MACD, *LOCAL, *out), "--stream NAME=DIR and --param NAME=VALUES are missing")
    refused(run("plot", "sweep", tmp_path / "no.parquet", *out), "cannot read the results")
    refused(run("plot", "lineage", tmp_path / "no.parquet", *out), "cannot read the results")
    refused(run("plot", "tracks", stored.path, *out), "a map needs two modelled attributes")
    refused(
        run("plot", "query", MACD, *s, *PARAMETERS, "--attribute", "cost", *out), "no modelled column 'cost'"
    )
    pq.write_table(ticks(), tmp_path / "plain.parquet")
    refused(run("plot", "sweep", tmp_path / "plain.parquet", *out), "this is no summary of a sweep")
    refused(run("plot", "lineage", tmp_path / "plain.parquet", *out), "carry no lineage")
    assert not (tmp_path / "a.png").exists()

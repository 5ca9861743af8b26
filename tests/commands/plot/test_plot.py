"""``pulse plot``: pictures and pages of models, answers, sweeps, lineage and tracks; what is refused, and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.store.model import Model
from tests.commands.running import LOCAL, Run, refused
from tests.plot.pages import check_page
from tests.runtime.execution.asking import MACD, local, ticks, vessels

pytest.importorskip("matplotlib")

PARAMETERS = ("--param", "short=4", "--param", "long=12")


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def details(run: Run, *arguments: object) -> dict[str, Any]:
    """What a command says to programs."""
    done = run(*arguments, "--json")
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    out = Path(found["out"])
    assert found["bytes"] == out.stat().st_size
    assert found["seconds"] > 0
    return found


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


def test_a_model_for_programs(run: Run, stored: Model, tmp_path: Path) -> None:
    pq.write_table(ticks(), tmp_path / "ticks.parquet")
    batch = stored.read(key="b")
    asked = ("plot", "model", stored.path, "--key", "b", "--tuples", tmp_path / "ticks.parquet")
    found = details(run, *asked, "--out", tmp_path / "b.png")
    assert (found["keys"], found["segments"], found["tuples"]) == (1, len(batch), 60)
    assert (found["attributes"], found["version"]) == (["price"], 1)
    assert found["largest_error"] == {"price": float(batch.err("price").max())}
    assert (found["from"], found["to"]) == ("2020-09-13T12:26:40.000000Z", "2020-09-13T12:27:39.000000Z")
    few = details(run, "plot", "model", stored.path, "--keys", 2, "--out", tmp_path / "few.html")
    assert (few["keys"], few["tuples"]) == (2, None)


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


def test_an_answer_for_programs(run: Run, s: tuple[str, ...], stored: Model, tmp_path: Path) -> None:
    wanted = local().sql(MACD, streams={"S": stored}, short=4, long=12, possible=True).to_arrow()
    found = details(run, "plot", "query", MACD, *s, *PARAMETERS, "--possible", "--out", tmp_path / "a.png")
    assert (found["query"], found["parameters"]) == (MACD, {"short": 4, "long": 12})
    assert found["rows"] == wanted.num_rows == sum(found["certainty"].values())
    assert found["certainty"]["possible"] == wanted.column("certainty").to_pylist().count("possible")
    assert found["largest_error"] == {"diff": max(wanted.column("diff_err").to_pylist())}
    high = "select symbol, price from S where price > 20"
    asked = details(run, "plot", "query", high, *s, "--segments", "--key", "a", "--out", tmp_path / "h.svg")
    assert asked["from"] < asked["to"]
    none = "select symbol, price from S where price > 1e9"
    empty = details(run, "plot", "query", none, *s, "--segments", "--out", tmp_path / "n.svg")
    assert (empty["rows"], empty["from"], empty["largest_error"]) == (0, None, {"price": None})


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


def test_a_sweep_for_programs_and_a_summary_that_says_what_was_asked(
    run: Run, s: tuple[str, ...], tmp_path: Path
) -> None:
    grid = ("--param", "short=2,4", "--param", "long=8:16:4")
    asked = ("plot", "sweep", MACD, *s, *grid, "--value", "ranges")
    found = details(run, *asked, "--out", tmp_path / "a.png")
    assert (found["query"], found["variants"], found["value"]) == (MACD, 6, "ranges")
    assert found["parameters"] == {"short": [2, 4], "long": [8, 12, 16]}
    assert 0 <= found["smallest"] <= found["largest"]
    for kind, query in (("parquet", MACD), ("csv", None)):
        written = tmp_path / f"summary.{kind}"
        assert run("sweep", MACD, *s, *grid, "--summary", written).code == 0
        out = tmp_path / f"{kind}.html"
        again = details(run, "plot", "sweep", written, "--value", "ranges", "--out", out)
        assert again["query"] == query
        assert {name: again[name] for name in ("parameters", "largest")} == {
            name: found[name] for name in ("parameters", "largest")
        }
        assert ("avg(price) as ap" in out.read_text(encoding="utf-8")) == (query is not None)


def test_lineage(run: Run, s: tuple[str, ...], stored: Model, tmp_path: Path) -> None:
    high = tmp_path / "high.parquet"
    asked = "select symbol, price from S where price > 20"
    assert run("query", asked, *s, "--segments", "--lineage", "--out", high).code == 0
    assert run("plot", "lineage", high, "--out", tmp_path / "bars.png").code == 0
    with_model = ("--row", 1, "--model", f"S={stored.path}")
    assert run("plot", "lineage", high, *with_model, "--out", tmp_path / "curves.html").code == 0
    check_page((tmp_path / "curves.html").read_text(encoding="utf-8"))
    found = details(run, "plot", "lineage", high, *with_model, "--out", tmp_path / "again.png")
    assert (found["row"], found["causes"], found["keys"]) == (1, 1, 1)
    assert found["segments"]["S"] > 0
    assert found["error"]["price"] <= 0.3
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
    reported = details(run, *asked, "--out", tmp_path / "map.png")
    assert (reported["keys"], reported["together"], len(reported["pairs"])) == (8, 28, 1)
    assert set(reported["largest_error"]) == {"x", "y"}
    assert reported["pairs"][0]["certain"] == 1.0
    assert reported["from"] == reported["pairs"][0]["from"] == "2020-09-13T12:26:40.000000Z"
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


def test_a_wild_position_is_outside_the_map_and_reported(run: Run, tmp_path: Path) -> None:
    """Keys are printed as they are, without separators between their digits."""
    table = vessels()
    wild = pa.table(
        {
            "id": pa.array([229_988_000] * 3, table.schema.field("id").type),
            "t": pa.array(
                [1_600_000_000_000_000 + i * 10_000_000 for i in range(3)], pa.timestamp("us")
            ).cast(table.schema.field("t").type),
            "x": [0.0, 9e7, 1.0],
            "y": [0.0, 9e7, 1.0],
        }
    )
    more = [name for name in table.column_names if name not in wild.column_names]
    local().fit(
        pa.concat_tables(
            [table.drop_columns(more), wild.select([n for n in table.column_names if n not in more])]
        ),
        key="id",
        time="t",
        model={"x": "linear", "y": "linear"},
        error=1,
        out=tmp_path / "vessels",
    )
    asked = ("plot", "tracks", tmp_path / "vessels", "--out")
    done = run(*asked, tmp_path / "map.png")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[1] == (
        "2 segments of 1 track lead outside the map: 229988000; --whole draws them, too"
    )
    assert details(run, *asked, tmp_path / "b.png")["outside"] == {"segments": 2, "keys": [229_988_000]}
    assert details(run, *asked, tmp_path / "c.png", "--whole")["outside"] == {"segments": 0, "keys": []}
    page = tmp_path / "map.html"
    assert run(*asked, page).code == 0
    assert "2 segments of 1 track lead outside the map: 229988000." in page.read_text(encoding="utf-8")


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
    refused(run("plot", "sweep", tmp_path / "plain.parquet", *out), "expected a summary of a sweep")
    refused(run("plot", "lineage", tmp_path / "plain.parquet", *out), "carry no lineage")
    assert not (tmp_path / "a.png").exists()

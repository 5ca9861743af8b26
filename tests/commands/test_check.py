"""``pulse check``, and accents on the command line of fit and query."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.core.time import format_instant
from pulse.store.model import Model
from tests.commands.running import LOCAL, Run, refused
from tests.runtime.accents.test_query_units import LINE, SPLIT, split
from tests.runtime.execution.asking import MACD, prices, ticks

WINDOWS = ("--param", "short=5", "--param", "long=20")
DROP = f"{format_instant(SPLIT)} [[true, drop(price)]]"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return prices(tmp_path_factory.mktemp("check") / "s", split(ticks(count=120)))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").write_text(LINE + "\n")
    (tmp_path / "drop").write_text(DROP + "\n")
    return tmp_path / "log"


def test_help(run: Run) -> None:
    done = run("check", "--help")
    assert done.code == 0
    assert "operator by operator" in done.out


def test_it_says_what_passes(run: Run, model: Model, log: Path) -> None:
    done = run("check", MACD, "--stream", f"S={model.path}", "--accents", log, *WINDOWS)
    assert (done.code, done.err) == (0, "")
    assert "[[symbol = 'b', alter(price, y / 4, y * 4)]] passes" in done.out
    assert "Join on S.symbol = L.symbol: passes" in done.out
    assert done.out.endswith("1 accent: 1 passes\n")


def test_it_says_what_aborts_and_where(run: Run, model: Model, log: Path) -> None:
    stream = ("--stream", f"S={model.path}", "--accents", f"S={log.with_name('drop')}")
    done = run("check", MACD, *stream, *WINDOWS)
    assert done.code == 1
    assert "cannot do without 'S.ap'" in done.out
    found = json.loads(run("check", MACD, *stream, *WINDOWS, "--json").out)
    assert not found["survives"]
    assert found["accents"][0]["outcome"] == "aborts"
    assert found["accents"][0]["operators"][-1]["does"].startswith("aborts at")
    assert run("check", MACD, *stream, *WINDOWS, "--policy", "S=drop=ignore").code == 0
    assert run("check", MACD, "--stream", f"S={model.path}", *WINDOWS).out == "0 accents: none\n"


def test_a_lost_key_is_held_or_aborts(run: Run, model: Model, log: Path) -> None:
    asked = ("check", "select max(price) as m from S", "--stream", f"S={model.path}", "--accents", log)
    held = run(*asked)
    assert held.code == 0
    assert "holds it, and undoes it meanwhile" in held.out
    assert run(*asked, "--abort").code == 1


def test_attributes_of_the_tuples_that_no_model_has_are_named_or_known_from_the_fit(
    run: Run, model: Model, log: Path, tmp_path: Path
) -> None:
    log.write_text(f"{format_instant(SPLIT)} [[lot = 1, alter(price, y / 4)]]\n")
    asked = ("check", MACD, *WINDOWS, "--accents", log, "--stream")
    refused(run(*asked, f"S={model.path}"), "refers to 'lot'")
    for named in ("lot", "S=board,lot"):
        done = run(*asked, f"S={model.path}", "--attributes", named)
        assert done.code == 0
        assert "a model cannot select its rows by lot" in done.out
    for wrong in ("S=", "R=lot"):
        refused(
            run(*asked, f"S={model.path}", "--attributes", wrong), f"--attributes {wrong}: expected names"
        )
    data = split(ticks(count=120))
    pq.write_table(data.append_column("lot", pa.array([7] * data.num_rows)), tmp_path / "with_lot.parquet")
    fit = ("fit", tmp_path / "with_lot.parquet", "--key", "symbol", "--time", "t", "--model", "price:step")
    (tmp_path / "own").write_text(LINE + "\n")
    more = ("--error", "0", "--accents", tmp_path / "own", "--out", tmp_path / "lots", *LOCAL)
    assert run(*fit, *more).code == 0
    known = run(*asked, f"S={tmp_path / 'lots'}")
    assert known.code == 0
    assert known.out.endswith("2 accents: 1 passes, 1 is held\n")


def test_fit_and_query_take_them(run: Run, model: Model, log: Path, tmp_path: Path) -> None:
    pq.write_table(split(ticks(count=120)), tmp_path / "t.parquet")
    fit = (
        "fit",
        tmp_path / "t.parquet",
        "--key",
        "symbol",
        "--time",
        "t",
        "--model",
        "price:step",
        "--error",
        "0",
    )
    assert run(*fit, "--accents", log, "--out", tmp_path / "m", *LOCAL).code == 0
    (tmp_path / "splits.csv").write_text(f"symbol,t,ratio\nb,{format_instant(SPLIT)},4:1\n")
    assert run(*fit, "--splits", tmp_path / "splits.csv", "--out", tmp_path / "n", *LOCAL).code == 0
    assert run(*fit, "--out", tmp_path / "raw", *LOCAL).code == 0
    outs = []
    for name, more in (("m", ()), ("n", ()), ("raw", ("--accents", log))):
        out = tmp_path / f"{name}.parquet"
        done = run("query", MACD, "--stream", f"S={tmp_path / name}", *WINDOWS, *more, "--out", out, *LOCAL)
        assert done.code == 0
        outs.append(pq.read_table(out).select(["t", "symbol"]))
    assert outs[0].equals(outs[1])
    assert outs[0].equals(outs[2])
    later = run(
        "check", MACD, "--stream", f"S={tmp_path / 'm'}", *WINDOWS, "--accents", log.with_name("drop")
    )
    assert later.code == 1
    assert "alter(price" in later.out
    again = run("check", MACD, "--stream", f"S={tmp_path / 'm'}", *WINDOWS, "--accents", log)
    assert again.out.endswith("1 accent: 1 passes\n")  # the model holds it already


def test_a_query_that_ends_shows_what_came_before_and_the_error(
    run: Run, model: Model, log: Path, tmp_path: Path
) -> None:
    asked = (
        "query",
        "select symbol, price from S where price > 0",
        "--stream",
        f"S={model.path}",
        "--segments",
        *LOCAL,
    )
    more = ("--accents", log.with_name("drop"))
    done = run(*asked, *more, "--limit", 10_000)
    assert done.code == 2
    assert " rows" in done.out
    assert done.err.startswith("pulse: query: ends at")
    written = run(*asked, *more, "--out", tmp_path / "o.parquet")
    assert written.code == 2
    assert pq.read_metadata(tmp_path / "o.parquet").num_rows > 0
    stopped = run(*asked, "--accents", log, "--policy", "exception", "--out", tmp_path / "p.parquet")
    assert stopped.code == 2
    assert "the policy is to stop" in stopped.err


def test_what_is_wrong_is_reported(run: Run, model: Model, log: Path) -> None:
    stream = ("--stream", f"S={model.path}")
    refused(
        run("check", MACD, *stream, *WINDOWS, "--accents", log.with_name("gone")),
        "no such accent file",
    )
    refused(run("check", MACD, *stream, *WINDOWS, "--accents", "S="), "--accents S=: expected NAME=FILE")
    refused(
        run("check", MACD, *stream, *WINDOWS, "--policy", "S=sometimes"),
        "expected one of evolve, exception, ignore",
    )
    refused(run("check", MACD, *stream, *WINDOWS, "--policy", "S=", "--policy", "x"), "expected NAME=POLICY")
    log.write_text("soon [[true, drop(price)]]")
    refused(run("check", MACD, *stream, *WINDOWS, "--accents", log), "line 1: expected an instant")

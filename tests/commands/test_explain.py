"""``pulse explain`` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulse.store.model import Model
from tests.commands.running import Run, refused
from tests.runtime.execution.asking import COLLISION, MACD, local, prices, tracks


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("explain")
    return {"S": prices(folder / "s"), "V": tracks(folder / "v")}


def test_help(run: Run) -> None:
    done = run("explain", "--help")
    assert done.code == 0
    assert "equation systems" in done.out


def test_parameters_may_stay_open(run: Run, models: dict[str, Model], tmp_path: Path) -> None:
    (tmp_path / "macd.sql").write_text(MACD)
    stream = ("--stream", f"S={models['S'].path}")
    done = run("explain", f"@{tmp_path / 'macd.sql'}", *stream)
    assert (done.code, done.err) == (0, "")
    assert done.out == local().explain(MACD, streams={"S": models["S"]}) + "\n"
    assert ":short" in done.out
    bound = run("explain", MACD, *stream, "--param", "short=4", "--param", "long=12")
    assert ":short" not in bound.out.partition("\n\n")[2] or "over 4 s" in bound.out
    assert "over 12 s" in bound.out


def test_what_is_shuffled_is_reported(run: Run, models: dict[str, Model]) -> None:
    done = run("explain", COLLISION, "--stream", f"V={models['V'].path}", "--param", "c=60")
    assert done.code == 0
    assert "takes shuffled input: 1 by time and (R.x, R.y) in buckets of" in done.out
    plain = run("explain", "select price from S where price > 5", "--stream", f"S={models['S'].path}")
    assert "1: reads S; no exchange" in plain.out


def test_what_is_wrong_is_reported(run: Run, models: dict[str, Model]) -> None:
    stream = ("--stream", f"S={models['S'].path}")
    refused(run("explain", "select cost from S", *stream), "there is no column 'cost'")
    refused(run("explain", "@gone.sql", *stream), "cannot read the query")
    refused(
        run("explain", MACD, *stream, "--param", "short=soon", "--param", "long=12"), "expected a duration"
    )

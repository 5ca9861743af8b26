"""``pulse lineage``: from a result to its inputs, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from pulse.cli import app
from pulse.core.errors import PulseError
from pulse.session import Session


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lineage")
    times = pa.array([0, 10_000_000, 20_000_000, 30_000_000], pa.timestamp("us"))
    table = pa.table({"k": ["a"] * 4, "t": times, "x": [1.0, 5.0, 2.0, 6.0]})
    session = Session(engine="local")
    session.fit(table, key="k", time="t", model={"x": "step"}, error=0, out=folder / "model")
    out = folder / "high.parquet"
    session.sql("select k, x from S where x > 3", streams={"S": folder / "model"}, lineage=True).write(
        str(out)
    )
    return out


def ask(*arguments: str) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, ["lineage", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_inputs_of_a_result_and_the_results_of_an_input(results: Path) -> None:
    (cause,) = ask(str(results), "--row", "0")
    assert (cause["key"], cause["ref"]) == ("a", "1970-01-01 00:00:10")
    (effect,) = ask(str(results), f"--segment={cause['segment_id']}")
    assert effect["x"][0] == 5.0  # type: ignore[index]
    assert "lineage" not in effect
    assert len(ask(str(results))) == 2


def test_for_people_it_is_a_table_with_a_count(results: Path) -> None:
    result = CliRunner().invoke(app, ["lineage", str(results), "--limit", "1"])
    assert "segment_id" in result.stdout.splitlines()[0]
    assert result.stdout.splitlines()[-1] == "2 causes, 1 shown"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--row", "9"], "expected a row of the 2 results, got 9"),
        (["--row", "0", "--segment", "1"], "give one of them"),
    ],
)
def test_questions_that_have_no_answer(results: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(PulseError, match=message):
        CliRunner().invoke(app, ["lineage", str(results), *arguments], catch_exceptions=False)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(PulseError, match="cannot read the results"):
        CliRunner().invoke(app, ["lineage", str(tmp_path / "no.parquet")], catch_exceptions=False)

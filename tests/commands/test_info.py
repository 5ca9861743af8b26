"""``pulse info``: what a stored model is of, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pulse
from pulse import cli
from pulse.store.manifest import FILE
from pulse.store.model import Model
from tests.operators.fitting import tuples


@pytest.fixture
def stored(tmp_path: Path) -> Model:
    table = tuples([0, 1, 5, 3, 6, 7, 7], x=[1, 1, 2, 3, None, 4, 5])
    return pulse.Session(engine="local").fit(
        table,
        key="k",
        time="t",
        model={"x": "step"},
        error="1%",
        drift=2,
        max_gap="1 h",
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
    assert "asked     error 1% on x, drift 2 on x, degree 1, max gap 1 h" in lines
    for said in (
        "5 tuples in ",
        "1 tuples set aside, out of order",
        "1 tuples set aside, not finite; first: x = nan of k 'a'",
        "1 tuples superseded at their own instant",
        "source    the table",
        f"by Pulse {pulse.__version__}",
    ):
        assert said in output


def test_for_programs(stored: Model) -> None:
    code, output = info(stored.path, "--json")
    told = json.loads(output)
    assert code == 0
    assert (told["tuples"], told["segments"]) == (5, stored.manifest.segments)
    assert told["counts"]["late"] == 1
    assert told["fit"]["drift"] == {"x": "2"}
    assert told["tuples_per_segment"] == 5 / told["segments"]
    assert told["schema"]["time"] == "t"


def test_an_empty_model(tmp_path: Path) -> None:
    asked = {"time": "t", "model": {"x": "step"}, "error": 1}
    pulse.Session(engine="local").fit(tuples([], x=[]), **asked, out=tmp_path / "model")
    code, output = info(tmp_path / "model")
    assert code == 0
    assert "0 tuples in 0 segments" in output


def test_bounds_that_were_missed_are_told(stored: Model) -> None:
    manifest = stored.path / FILE
    manifest.write_text(manifest.read_text().replace('"missed": 0', '"missed": 3'))
    code, output = info(stored.path)
    assert code == 0
    assert "3 segments could not keep the asked bound" in output


def test_many_sources_are_not_all_listed(stored: Model) -> None:
    fields = json.loads((stored.path / FILE).read_text())
    fields["sources"] *= 12
    (stored.path / FILE).write_text(json.dumps(fields))
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
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"pulse: {tmp_path}: not a stored model")

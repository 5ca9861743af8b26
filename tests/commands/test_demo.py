"""``pulse demo``: runs, keeps its promises about certificates, and leaves models that can be opened."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from pulse.cli import app
from pulse.store.model import Model


def test_the_demo_runs_and_no_certain_answer_is_wrong(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["demo", "--engine", "local", "--rows", "200k", "--out", str(tmp_path / "demo")]
    )
    assert result.exit_code == 0, result.output
    said = result.stdout
    assert "wrong among the certain: 0" in said
    assert "outside its certificate: 0" in said
    answers = re.search(r"every 2 s: ([\d,]+) answers", said)
    assert answers is not None
    assert int(answers[1].replace(",", "")) > 1000
    precision = re.search(r"precision ([\d.]+), recall ([\d.]+)", said)
    assert precision is not None
    assert min(float(precision[1]), float(precision[2])) > 0.9
    for name in ("prices", "prices-drift", "prices-exact", "vessels"):
        assert len(Model(tmp_path / "demo" / name)) > 0

"""``pulse vacuum``: what it removes, what it would, and what it verifies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulse.store.model import Model
from tests.commands.running import Run, refused
from tests.store.revising import fitted


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """A model with one file that an append has superseded, and its ends."""
    fitted(tmp_path / "m", "ab", 5)
    return fitted(tmp_path / "m", "ab", 3, start=5, append=True)


def test_what_is_young_stays(run: Run, model: Model) -> None:
    code, output, _ = run("vacuum", model.path)
    assert (code, output) == (0, f"removed 0 files, 0 B, and 0 commits of {model.path}\n")


def test_a_dry_run_says_what_would_go(run: Run, model: Model) -> None:
    before = sorted(model.path.rglob("*"))
    _, output, _ = run("vacuum", model.path, "--retain", "none", "--dry-run", "--json")
    facts = json.loads(output)
    assert sorted(name.split("-")[0] for name in facts["files"]) == ["_ends", "closing", "part"]
    assert (facts["commits"], facts["dry_run"], facts["verified"]) == ([1], True, None)
    assert sorted(model.path.rglob("*")) == before


def test_what_stays_is_verified(run: Run, model: Model) -> None:
    code, output, _ = run("vacuum", model.path, "--retain", "none", "--verify")
    assert code == 0
    assert (
        output.splitlines()[-1] == f"verified {len(model.manifest.data)} files: all are as they were written"
    )
    path = model.file(model.manifest.files[0].name)
    path.write_bytes(path.read_bytes()[:-1])
    refused(run("vacuum", model.path, "--verify"), f"{path}: it has")


def test_options_that_make_no_sense(run: Run, model: Model) -> None:
    refused(run("vacuum", model.path, "--verify", "--dry-run"), "exclude each other")
    refused(run("vacuum", model.path, "--retain", "soon"), "duration")
    refused(run("vacuum", model.path.parent), "not a stored model")

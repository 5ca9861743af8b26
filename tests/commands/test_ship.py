"""``pulse ship``: an archive, and how it is used; never over something that is there."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pulse.cli import app
from pulse.core.errors import PulseError
from pulse.runtime.spark import packaging as shipping


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the packages, which are hundreds of megabytes."""
    monkeypatch.setattr(shipping, "needed", list)


def test_an_archive_and_how_it_is_used(tmp_path: Path) -> None:
    out = tmp_path / "pulse.tar.gz"
    done = CliRunner().invoke(app, ["ship", str(out), "--no-kernels"], catch_exceptions=False)
    assert done.exit_code == 0
    assert f"--conf spark.archives={out}#environment" in done.output
    assert f"PULSE_ENVIRONMENT={out}" in done.output
    with tarfile.open(out) as archive:
        names = archive.getnames()
    assert "bin/python" in names
    assert "packages/pulse/kernels/polynomial/arithmetic.py" in names
    assert [path.name for path in tmp_path.iterdir()] == ["pulse.tar.gz"]


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "pulse.tar.gz"
    out.write_bytes(b"mine")
    with pytest.raises(PulseError, match="--overwrite"):
        CliRunner().invoke(app, ["ship", str(out), "--no-kernels"], catch_exceptions=False)
    assert out.read_bytes() == b"mine"
    with pytest.raises(PulseError, match=r"\.tar\.gz"):
        CliRunner().invoke(app, ["ship", str(tmp_path / "pulse.zip")], catch_exceptions=False)

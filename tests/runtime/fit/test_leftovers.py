"""What a fit leaves behind when workers were killed, or when it was given a place that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

import pulse
from pulse.runtime.fit import local_driver
from pulse.runtime.fit.pipeline import FitOutcome
from pulse.runtime.fit.worker import FileJob
from pulse.store.writers import temporary_beside
from tests.runtime.fit.test_spark_driver import ASKED, files, same, walk


def test_files_of_killed_workers_are_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = files(tmp_path / "in", walk(), [])
    real = local_driver.fit_files

    def littering(job: FileJob, *more: object) -> FitOutcome:
        for stem in ("part-000-00000", "_aside/fit-000-unit-000001"):
            half = temporary_beside(job.path(stem))
            half.parent.mkdir(exist_ok=True)
            half.write_bytes(b"PAR1")
        return real(job, *more)

    wanted = pulse.Session(engine="local").fit(paths, **ASKED)
    monkeypatch.setattr(local_driver, "fit_files", littering)
    model = pulse.Session(engine="local").fit(paths, **ASKED, out=tmp_path / "model")
    same(model, wanted)
    assert [path.name for path in model.path.rglob("*.tmp")] == []


def test_two_machines_never_write_to_the_same_name(tmp_path: Path) -> None:
    """Their processes may have the same number."""
    assert temporary_beside(tmp_path / "part.parquet") != temporary_beside(tmp_path / "part.parquet")


def test_a_model_in_an_object_store_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="s3a://bucket/model: models lie in folders"):
        pulse.Session(engine="local").fit(walk(), **ASKED, out="s3a://bucket/model")
    assert list(tmp_path.iterdir()) == []

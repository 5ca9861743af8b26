"""Files that a model holds already are not appended again: recognised by name, size and time, or by size and checksum."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pulse.session import Session
from pulse.store.checksums import checksum
from pulse.store.errors import HeldAlreadyError, StoreError
from pulse.store.model import Model
from tests.commands.running import LOCAL, runner
from tests.store.documents import document, fields_of, rewrite
from tests.store.revising import ticks

POINTS: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "samples"}, "points": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of points of ``first.parquet``, with ``more.parquet`` to append."""
    pq.write_table(ticks("ab", 3), tmp_path / "first.parquet")
    pq.write_table(ticks("ab", 3, start=3), tmp_path / "more.parquet")
    fit(tmp_path, "first.parquet")
    return tmp_path


def fit(folder: Path, *names: str, **options: Any) -> Model:
    return Session(engine="local").fit(
        [folder / name for name in names], **POINTS, out=folder / "m", **options
    )


def test_the_same_file_again_changes_nothing_and_it_is_reported(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = fit(folder, "more.parquet", append=True)
    before = document(folder / "m").read_bytes()
    with caplog.at_level(logging.WARNING, logger="pulse"):
        again = fit(folder, "more.parquet", append=True)
    assert "the model holds " in caplog.text
    assert "more.parquet already; nothing was appended" in caplog.text
    assert (again.version, again.manifest.tuples, len(again)) == (2, 12, len(wanted))
    assert document(folder / "m").read_bytes() == before


def test_a_copy_under_another_name_is_the_same_file(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copyfile(folder / "first.parquet", folder / "copy.parquet")
    with caplog.at_level(logging.WARNING, logger="pulse"):
        assert fit(folder, "copy.parquet", append=True).version == 1
    assert f"copy.parquet (as {folder / 'first.parquet'})" in caplog.text


def test_a_file_that_is_held_among_new_ones_is_refused(folder: Path) -> None:
    with pytest.raises(
        HeldAlreadyError, match=r"holds .*first.parquet already, .* count twice; append .*more.parquet alone"
    ):
        fit(folder, "first.parquet", "more.parquet", append=True)
    assert Model(folder / "m").version == 1


def test_another_file_of_the_same_name_and_size_is_appended(folder: Path) -> None:
    name, size = folder / "first.parquet", (folder / "first.parquet").stat().st_size
    time = name.stat().st_mtime_ns
    pq.write_table(ticks("ab", 3, start=3), name)
    assert name.stat().st_size == size
    os.utime(name, ns=(time + 1, time + 1))
    assert fit(folder, "first.parquet", append=True).manifest.tuples == 12


def test_a_model_without_checksums_knows_its_files_by_name_size_and_time(folder: Path) -> None:
    manifest = fields_of(folder / "m")
    for file in manifest["history"]["fits"][0]["source"]["files"]:
        del file["checksum"]
    rewrite(folder / "m", manifest)
    assert fit(folder, "first.parquet", append=True).version == 1


def test_a_file_that_has_grown_since_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("k,t,x\na,2020-01-01 00:00:00,1\n")
    fit(tmp_path, "log.csv")
    with log.open("a") as file:
        file.writelines(f"a,2020-01-01 00:{i // 60:02}:{i % 60:02},{i}\n" for i in range(1, 600))
    with pytest.raises(
        HeldAlreadyError, match=r"the first 30 bytes of .*log\.csv already, which has grown to"
    ):
        fit(tmp_path, "log.csv", append=True)
    assert Model(tmp_path / "m").manifest.tuples == 1


def test_another_file_of_the_same_name_that_is_longer_is_appended(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("k,t,x\na,2020-01-01 00:00:00,1\n")
    fit(tmp_path, "log.csv")
    log.write_text("k,t,x\na,2020-01-02 00:00:00,1\na,2020-01-03 00:00:00,1\n")
    assert fit(tmp_path, "log.csv", append=True).manifest.tuples == 3


def test_a_file_that_is_held_is_not_done_already_for_another_fit(folder: Path) -> None:
    asked: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}, "error": 0}
    with pytest.raises(StoreError, match=r"--append: the model is of .* fit it into a model of its own"):
        Session(engine="local").fit(folder / "first.parquet", **asked, out=folder / "m", append=True)


def test_the_command_says_that_it_is_done_already(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(monkeypatch, capsys)
    asked = [
        "--key",
        "k",
        "--time",
        "t",
        "--model",
        "x:samples",
        "--points",
        "--out",
        folder / "m",
        "--append",
    ]
    first = run("fit", folder / "more.parquet", *asked, *LOCAL)
    assert (first.code, "written to" in first.out) == (0, True)
    again = run("fit", folder / "more.parquet", *asked, *LOCAL)
    assert again.code == 0
    assert "nothing was appended" in again.err
    assert "m stays as it was: version 2" in again.out


def test_a_checksum_is_of_every_byte(tmp_path: Path) -> None:
    data = bytearray(3 << 20)
    (tmp_path / "a").write_bytes(data)
    data[1_500_000] = 1
    (tmp_path / "b").write_bytes(data)
    assert checksum(tmp_path / "a") != checksum(tmp_path / "b")
    assert checksum(tmp_path / "a") == checksum(tmp_path / "a")

"""Logs of accents beside a stream: what could not be read or kept is read again, and none of it is lost."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from pulse.runtime.accents.log_tailer import Logs, Spool
from pulse.runtime.jobs.sources import predictor_of
from pulse.stream.accents.accents import AccentError
from tests.runtime.accents.accented_jobs import LINE, files, the_job, ticks

SPLITS = "symbol,t,ratio\ns1,1970-01-01T00:01:00,4:1\n"


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    files(tmp_path / "in", ticks(10), [])
    (tmp_path / "splits.csv").write_text(SPLITS, encoding="utf-8")
    stream = {"accents": "log.jsonl", "splits": "splits.csv"}
    job = the_job(tmp_path, stream=stream, checkpoint="checkpoint")
    return Spool.of(job, predictor_of(job))


def reported(folder: Path) -> list[str]:
    return [line for one in sorted(folder.glob("[0-9]*")) for line in one.read_text().splitlines()]


def test_splits_wait_for_a_log_that_cannot_be_read(tmp_path: Path, spool: Spool) -> None:
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(AccentError, match=r"log\.jsonl: cannot read the accents of stream S"):
        spool.take()
    (tmp_path / "log.jsonl").rmdir()
    spool.take()
    assert len(reported(spool.folders["S"])) == 2  # of price and size


def test_lines_wait_for_a_folder_that_cannot_be_written(tmp_path: Path, spool: Spool) -> None:
    (tmp_path / "log.jsonl").write_text(f"{LINE}\n", encoding="utf-8")
    folder = spool.folders["S"]
    shutil.rmtree(folder)
    folder.write_text("in the way")
    with pytest.raises(OSError, match="exists"):
        spool.take()
    folder.unlink()
    spool.take()
    spool.take()
    assert reported(folder)[-1:] == [LINE]
    assert len(reported(folder)) == 3


def test_a_log_that_became_shorter_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(f"{LINE}\n{LINE}\n", encoding="utf-8")
    logs = Logs({"S": log})
    assert logs.new() == {"S": [LINE, LINE]}
    log.write_text(f"{LINE}\n", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert (logs.new(), logs.new()) == ({}, {})
    assert [one.getMessage() for one in caplog.records] == [
        f"{log}: expected accents to be appended, got {len(LINE) + 1} bytes where {2 * len(LINE) + 2} were read before; "
        "the log is skipped until it is longer than that"
    ]


def test_a_bad_row_of_splits_that_is_corrected_in_its_place_is_not_received_by_half(
    tmp_path: Path, spool: Spool
) -> None:
    table, folder = tmp_path / "splits.csv", spool.folders["S"]
    spool.take()
    table.write_text(f"{SPLITS}s2,1970-01-01T00:01:00,much\n", encoding="utf-8")
    spool.take()
    table.write_text(f"{SPLITS}s2,1970-01-01T00:01:00,2:1\n", encoding="utf-8")
    spool.take()
    assert [line[:9] for line in reported(folder)[2:]] == ["split s2,", "#"]
    table.write_text(f"{SPLITS}s2,1970-01-01T00:01:00,2:1\ns2,1970-01-01T00:01:00,2:1\n", encoding="utf-8")
    spool.take()
    assert ["size" in line for line in reported(folder)[4:]] == [False, True]

"""Tables of splits beside a running stream: rows that are added, and rows that are no splits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.status import Status
from tests.runtime.accents.accented_jobs import (
    EVERY,
    Run,
    at,
    close,
    files,
    held,
    rescaled,
    split,
    the_job,
    ticks,
)


def test_a_table_of_splits_may_gain_rows(tmp_path: Path) -> None:
    data = split(split(ticks(60), at(20)), at(40), key="s2")
    files(tmp_path / "in", data, [60, 120])
    table = tmp_path / "splits.csv"
    table.write_text("symbol,t,ratio\ns1,1970-01-01T00:00:20,4:1\n")

    def gain(batch: int, _: pa.Table) -> None:
        if batch == 0:
            table.write_text(table.read_text() + "s2,1970-01-01T00:00:40,4:1\n")

    found = run_local(the_job(tmp_path, EVERY, stream={"splits": "splits.csv"}), on_batch=gain)
    assert found.tally.aside == 0
    plain = Run(predictor_of(the_job(tmp_path, EVERY)))
    plain.take({"S": ticks(60)})
    expected = rescaled(rescaled(held(plain.changes), at(20)), at(40), key="s2")
    assert close(held(read_changes(tmp_path / "out")), expected)


def test_a_row_that_is_no_split_is_set_aside_and_half_a_row_waits(tmp_path: Path) -> None:
    data = split(split(ticks(60), at(20)), at(40), key="s2", by=16.0)
    files(tmp_path / "in", data, [60, 80, 120])
    table = tmp_path / "splits.csv"
    table.write_text("symbol,t,ratio\ns1,1970-01-01T00:00:20,4:1\n")
    grown = ["s2,1970-01-01T00:00:30,much\ns2,1970-01-01T00:00:40,1", "6:1\n", ""]

    def gain(batch: int, _: pa.Table) -> None:
        table.write_text(table.read_text() + grown.pop(0) if grown else table.read_text())

    reported: list[Status] = []
    run_local(
        the_job(tmp_path, EVERY, stream={"splits": "splits.csv"}), on_batch=gain, on_status=reported.append
    )
    assert reported[-1].tally.aside == 1
    assert reported[-1].tally.accents == 4
    (refused,) = (tmp_path / "out" / "_aside" / "stream=S").glob("*/*.parquet")
    assert "splits.csv, line 3: expected a ratio" in pq.ParquetFile(refused).read()["reason"][0].as_py()
    plain = Run(predictor_of(the_job(tmp_path, EVERY)))
    plain.take({"S": ticks(60)})
    expected = rescaled(rescaled(held(plain.changes), at(20)), at(40), key="s2", by=16.0)
    assert close(held(read_changes(tmp_path / "out")), expected)


def test_a_table_of_splits_that_is_none(tmp_path: Path) -> None:
    files(tmp_path / "in", ticks(10), [])
    with pytest.raises(pulse.PulseError, match="no such file of splits"):
        run_local(the_job(tmp_path, EVERY, stream={"splits": "nowhere.csv"}))
    (tmp_path / "splits.csv").write_text("symbol,t,ratio\ns1,1970-01-01T00:00:20,much\n")
    shutil.rmtree(tmp_path / "out", ignore_errors=True)  # results belong to the job as it was written
    with pytest.raises(pulse.PulseError, match=r"splits.csv, line 2.*expected a ratio such as 4:1"):
        run_local(the_job(tmp_path, EVERY, stream={"splits": "splits.csv"}))

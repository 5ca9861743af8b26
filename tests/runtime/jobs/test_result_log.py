"""What a job has emitted, read again: in order, in pieces, and only what is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pulse.operators.output.apply_changes import apply_changes
from pulse.runtime.jobs import result_log
from pulse.runtime.jobs.result_log import (
    ResultsError,
    change_batches,
    read_changes,
    read_holds,
    replay_changes,
    results_folder,
    rows_between,
)
from pulse.runtime.jobs.sinks import ParquetSink
from pulse.runtime.predict.local_driver import run_local
from tests.runtime.jobs.test_checkpoint import job, part

SECOND = 1_000_000


def rows(*reported: tuple[str, float, float], key: str = "a") -> pa.Table:
    """A changelog of one key whose value is 1."""
    kinds, lo, hi = zip(*reported, strict=True)
    n = len(reported)
    return pa.table(
        {
            "id": [key] * n,
            "ref": pa.array([0] * n, pa.timestamp("us")),
            "lo": pa.array(lo, pa.float64()),
            "hi": pa.array(hi, pa.float64()),
            "x": pa.array([[1.0]] * n, pa.list_(pa.float64())),
            "x_err": [0.1] * n,
            "certainty": ["certain"] * n,
            "kind": kinds,
            "now": pa.array([0] * n, pa.timestamp("us")),
            "position": list(range(n)),
        }
    )


def written(folder: Path, *batches: pa.Table) -> Path:
    for number, batch in enumerate(batches):
        ParquetSink(folder).write(number, batch)
    return folder


def test_batches_come_in_order_and_from_the_end(tmp_path: Path) -> None:
    reported = [rows(("+I", i, i + 1)) for i in range(12)]
    folder = written(tmp_path / "out", *reported)
    forth = [part.column("batch").to_pylist() for part in change_batches(folder)]
    assert forth == [[i] for i in range(12)]
    assert [part.column("batch").to_pylist() for part in change_batches(folder, newest_first=True)] == forth[
        ::-1
    ]
    assert read_changes(folder).column("lo").to_pylist() == list(range(12))


def test_a_file_that_is_being_written_is_no_part_of_the_results(tmp_path: Path) -> None:
    folder = written(tmp_path / "out", rows(("+I", 0, 1)))
    (folder / "batch=0" / ".changes.parquet").write_bytes(b"PAR1 and half of the re")
    (folder / "batch=1").mkdir()
    (folder / "batch=1" / ".changes.parquet").write_bytes(b"PAR1")
    (folder / "batch=x").mkdir()
    assert read_changes(folder).num_rows == 1
    (folder / "batch=1" / "changes.parquet").write_bytes(b"PAR1")
    with pytest.raises(ResultsError, match=r"batch=1/changes\.parquet: cannot be read as Parquet"):
        read_changes(folder)


@pytest.mark.parametrize("fold", [1, 3, 1 << 16])
def test_what_holds_is_the_same_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fold: int) -> None:
    """Of a job with revisions and windows, whose rows are cut, taken back and replaced."""
    for number in range(4):
        part(tmp_path / "in", number)
    run_local(job(tmp_path / "mine"))
    folder = tmp_path / "mine" / "out"
    expected = apply_changes(read_changes(folder))
    monkeypatch.setattr(result_log, "_FOLD", fold)
    found = read_holds(folder)
    assert 10 < found.num_rows < read_changes(folder).num_rows
    assert found.equals(expected)


def test_what_was_taken_back_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a changelog is, what is held beside what holds is one piece of it."""
    monkeypatch.setattr(result_log, "_FOLD", 10)
    sizes: list[int] = []

    def counted(changes: pa.Table) -> pa.Table:
        sizes.append(changes.num_rows)
        return apply_changes(changes)

    monkeypatch.setattr(result_log, "apply_changes", counted)
    reported = [rows(("+I", 0, 1), ("-D", 0, 1)) for _ in range(50)] + [rows(("+I", 0, 1))]
    assert replay_changes(iter(reported)).num_rows == 1
    assert len(sizes) > 5
    assert max(sizes) <= 12


def test_nothing_was_reported_yet(tmp_path: Path) -> None:
    assert read_changes(tmp_path).num_columns == read_holds(tmp_path).num_columns == 0


def test_rows_of_a_stretch_of_time() -> None:
    reported = rows(("+I", 0, 2), ("+I", 2, 4), ("+I", 4, 4), ("+I", 4, 6))

    def lo(*bounds: Any) -> list[float]:
        return [float(one) for one in rows_between(reported, *bounds).column("lo").to_pylist()]

    assert lo(None, None) == [0, 2, 4, 4]
    assert lo(2 * SECOND, None) == [2, 4, 4]
    assert lo(None, 2 * SECOND) == [0]
    assert lo(3 * SECOND, 4 * SECOND) == [2]
    assert lo(4 * SECOND, 4 * SECOND + 1) == [4, 4]


def test_places_where_no_results_are(tmp_path: Path) -> None:
    def refused(what: Path, message: str) -> None:
        with pytest.raises(ResultsError, match=message):
            results_folder(what)

    refused(tmp_path / "nowhere", "nowhere: expected the folder of a job's results, .* got nothing")
    refused(tmp_path, "expected results of a job, folders batch=<number>, got an empty folder")
    (tmp_path / "batch=0").mkdir()
    refused(tmp_path, "the job has emitted nothing yet")
    (tmp_path / "batch=0").rmdir()
    (tmp_path / "batch=0.jsonl").write_text("{}", encoding="utf-8")
    refused(tmp_path, "got alerts, which are JSON lines")
    refused(tmp_path / "batch=0.jsonl", "got a file")
    (tmp_path / "stream=S").mkdir()
    refused(tmp_path, "got rows that were set aside; pulse aside shows them")
    (tmp_path / "_pulse_job.json").write_text("{}", encoding="utf-8")
    refused(tmp_path, r"got a checkpoint; 'path' in the job's \[sink\] names the results folder")
    file = tmp_path / "job.toml"
    file.write_text(
        'query = "select id, x from S"\n[streams.S]\nsource = "files"\npath = "in"\nkey = "id"\ntime = "t"\n'
        'model = { x = "step" }\nerror = 1\nhorizon = "1 s"\n',
        encoding="utf-8",
    )
    refused(file, "results are not kept: its sink is 'console'")
    file.write_text(file.read_text() + '[sink]\nkind = "parquet"\npath = "out"\n', encoding="utf-8")
    assert results_folder(file) == tmp_path / "out"  # whether it is there or not

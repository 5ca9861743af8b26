"""``pulse changes``: what a job has emitted, for people and for programs, and no more of it than is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pulse.runtime.jobs import result_log
from tests.commands.running import Run, refused
from tests.runtime.jobs.test_result_log import rows, written


@pytest.fixture
def reported(tmp_path: Path) -> Path:
    """Six batches: a, then b with a row each, and of a the middle is replaced."""
    first = [rows(("+I", 10 * i, 10 * i + 10), key=key) for i in range(2) for key in ("a", "b")]
    replaced = rows(("-U", 2, 4), ("+U", 2, 4))
    return written(tmp_path / "out", *first, replaced, rows(("-D", 10, 20), key="b"))


def test_changes_in_order(run: Run, reported: Path) -> None:
    done = run("changes", reported)
    lines = done.out.splitlines()
    assert lines[0].split() == ["kind", "id", "begin", "end", "x", "x_err", "certainty", "now", "batch"]
    assert lines[1].split()[:8] == ["+I", "a", "1970-01-01", "00:00:00", "1970-01-01", "00:00:10", "1", "0.1"]
    assert [line.split()[0] for line in lines[1:-1]] == ["+I", "+I", "+I", "+I", "-U", "+U", "-D"]
    assert lines[-1] == "7 rows in all"
    assert (done.code, done.err) == (0, "")


def test_what_holds(run: Run, reported: Path) -> None:
    lines = run("changes", reported, "--holds").out.splitlines()
    assert [tuple(line.split()[i] for i in (0, 2, 4)) for line in lines[1:-1]] == [
        ("a", "00:00:00", "00:00:02"),
        ("a", "00:00:02", "00:00:04"),
        ("a", "00:00:04", "00:00:10"),
        ("a", "00:00:10", "00:00:20"),
        ("b", "00:00:00", "00:00:10"),
    ]
    assert lines[-1] == "5 rows hold"
    lines = run(
        "changes", reported, "--holds", "--from", "1970-01-01 00:00:12", "--to", "1970-01-01 00:01"
    ).out
    assert lines.splitlines()[-1] == "1 row holds"


def test_first_and_last(run: Run, reported: Path) -> None:
    lines = run("changes", reported, "--limit", "2").out.splitlines()
    assert (len(lines), lines[-1]) == (4, "… more rows; --limit 4 shows more")
    lines = run("changes", reported, "--limit", "2", "--last").out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["+U", "-D"]
    assert lines[-1] == "… earlier rows; --limit 4 shows more"
    lines = run("changes", reported, "--limit", "7", "--last").out.splitlines()
    assert lines[-1] == "7 rows in all"


def test_a_stretch_of_time(run: Run, reported: Path) -> None:
    lines = run("changes", reported, "--from", "1970-01-01 00:00:10").out.splitlines()
    assert [line.split()[1] for line in lines[1:-1]] == ["a", "b", "b"]
    refused(run("changes", reported, "--from", "noon"), "cannot read 'noon' as a point in time")


def test_for_programs(run: Run, reported: Path) -> None:
    """All rows, or as many as are asked for, as they are stored."""
    found = [json.loads(line) for line in run("changes", reported, "--json").out.splitlines()]
    assert len(found) == 7
    assert found[0] == {
        "id": "a",
        "ref": "1970-01-01T00:00:00.000000Z",
        "lo": 0.0,
        "hi": 10.0,
        "x": [1.0],
        "x_err": 0.1,
        "certainty": "certain",
        "kind": "+I",
        "now": "1970-01-01T00:00:00.000000Z",
        "position": 0,
        "batch": 0,
        "begin": "1970-01-01T00:00:00.000000Z",
        "end": "1970-01-01T00:00:10.000000Z",
    }
    assert len(run("changes", reported, "--json", "--limit", "3").out.splitlines()) == 3
    last = [
        json.loads(line)
        for line in run("changes", reported, "--json", "--limit", "2", "--last").out.splitlines()
    ]
    assert [one["kind"] for one in last] == ["+U", "-D"]
    held = [json.loads(line) for line in run("changes", reported, "--json", "--holds").out.splitlines()]
    assert (len(held), "kind" in held[0]) == (5, False)


def test_no_more_is_read_than_is_shown(run: Run, reported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    pieces = result_log.pieces

    def counted(file: Path, batch: int, **more: object) -> object:
        read.append(batch)
        return pieces(file, batch, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(result_log, "pieces", counted)
    run("changes", reported, "--limit", "1")
    assert read == [0, 1]  # one more row tells whether there are more
    read.clear()
    run("changes", reported, "--limit", "1", "--last")
    assert read == [5, 4]


def test_curves_and_years(run: Run, tmp_path: Path) -> None:
    """A curve by its ends, and instants beyond what Python's own reach."""
    table = rows(("+I", 0.5, 2))
    table = table.set_column(4, "x", pa.array([[1.0, 2.0]], pa.list_(pa.float64())))
    far = pa.array([10**18], pa.int64()).cast(pa.timestamp("us"))
    done = run("changes", written(tmp_path / "out", table.set_column(1, "ref", far)))
    assert "2 .. 5" in done.out
    assert "33658-09-27 01:46:40.500 " in done.out
    assert json.loads(run("changes", tmp_path / "out", "--json").out)["ref"].startswith("33658-")


def test_a_job_that_has_reported_nothing(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'query = "select id, x from S"\n[streams.S]\nsource = "files"\npath = "in"\nkey = "id"\ntime = "t"\n'
        'model = { x = "step" }\nerror = 1\nhorizon = "1 s"\n[sink]\nkind = "parquet"\npath = "out"\n',
        encoding="utf-8",
    )
    assert run("changes", file).out == "0 rows in all\n"
    assert run("changes", file, "--holds").out == "0 rows hold\n"
    assert run("changes", file, "--json").out == ""
    written(tmp_path / "out", rows(("+I", 0, 1)))
    assert run("changes", file).out.endswith("1 row in all\n")


def test_no_results(run: Run, tmp_path: Path) -> None:
    refused(
        run("changes", tmp_path), "expected results of a job, folders batch=<number>, got an empty folder"
    )
    refused(run("changes", tmp_path / "nowhere"), "nowhere: expected the folder of a job's results")

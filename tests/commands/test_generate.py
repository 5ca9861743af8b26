"""``pulse generate``: rows asked for, the same for the same seed, errors that say what there is."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pulse.cli import app
from pulse.commands.options import OptionError, knobs
from pulse.datasets import DatasetError


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["generate", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("kind", ["ticks", "vessels", "objects", "sensors"])
def test_it_writes_the_rows_asked_for(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "data.parquet"
    assert f"1,000 {kind}" in run(kind, "--rows", "1k", "--out", str(out))
    assert pq.read_metadata(out).num_rows == 1000


def test_a_seed_decides_all(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b", "c")]
    for file, seed in zip(files, ("1", "1", "2"), strict=True):
        run("ticks", "--rows", "500", "--seed", seed, "--knob", "symbols=5", "--out", str(file))
    first, same, other = (pq.read_table(file) for file in files)
    assert first.equals(same)
    assert not first.equals(other)
    assert len(set(first["symbol"].to_pylist())) <= 5


def test_json_tells_the_knobs(tmp_path: Path) -> None:
    reported = json.loads(
        run("objects", "--rows", "10", "--knob", "objects=3", "--json", "--out", str(tmp_path / "o"))
    )
    assert reported["rows"] == 10
    assert reported["knobs"]["objects"] == 3


def test_the_log_of_accents(tmp_path: Path) -> None:
    log, asked = (
        tmp_path / "units.log",
        ["sensors", "--rows", "2k", "--knob", "sensors=4", "--knob", "switch=1"],
    )
    reported = run(*asked, "--knob", "fahrenheit=0.5", "--out", str(tmp_path / "s"), "--accents", str(log))
    assert reported.splitlines()[-1] == f"2 accents in {log}"
    assert [line.split(maxsplit=1)[0] for line in log.read_text().splitlines()] == [
        "2024-01-01T01:00:00.000000Z",
        "2024-01-01T02:00:00.000000Z",
    ]
    with pytest.raises(DatasetError, match=r"--accents .*units.log: exists already"):
        run(*asked, "--out", str(tmp_path / "t"), "--accents", str(log))
    assert not (tmp_path / "t").exists()
    with pytest.raises(DatasetError, match="is the folder there"):
        run(*asked, "--out", str(tmp_path / "t"), "--accents", str(tmp_path / "no" / "units.log"))


def test_bad_words_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="ticks"):
        run("tick", "--rows", "10", "--out", str(tmp_path / "x"))
    with pytest.raises(DatasetError, match="symbols"):
        run("ticks", "--rows", "10", "--knob", "symbol=3", "--out", str(tmp_path / "x"))
    with pytest.raises(DatasetError, match="rows"):
        run("ticks", "--rows", "-3", "--out", str(tmp_path / "x"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_overwritten_unasked(tmp_path: Path) -> None:
    out = tmp_path / "data.parquet"
    run("ticks", "--rows", "10", "--out", str(out))
    with pytest.raises(DatasetError, match="exists"):
        run("ticks", "--rows", "20", "--out", str(out))
    assert pq.read_metadata(out).num_rows == 10
    run("ticks", "--rows", "20", "--overwrite", "--out", str(out))
    assert pq.read_metadata(out).num_rows == 20


def test_knobs_are_read_as_numbers_where_they_are() -> None:
    assert knobs(["a=3", "b=0.5", "c=x"]) == {"a": 3, "b": 0.5, "c": "x"}
    for bad in ("a", "=3", "a="):
        with pytest.raises(OptionError, match="NAME=VALUE"):
            knobs([bad])

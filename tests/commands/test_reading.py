"""``pulse fit --read``: files that are laid out otherwise, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.commands.options import OptionError
from pulse.commands.reading import reading
from pulse.store.model import Model
from tests.commands.running import Run

ROOMS = "room;when;celsius\n007;01.05.2024 12:00;20.5\n007;01.05.2024 12:01;20.7\n7;01.05.2024 12:05;21.0\n"
ASKED = (
    "--key",
    "room",
    "--time",
    "when",
    "--model",
    "celsius:linear",
    "--error",
    "0.1",
    "--engine",
    "local",
)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["separated_by=;"], {"separated_by": ";"}),
        (["separated_by=tab"], {"separated_by": "\t"}),
        (["time_format=%d.%m.%Y %H:%M"], {"time_format": "%d.%m.%Y %H:%M"}),
        (["types=id:string, a:b:double"], {"types": {"id": "string", "a:b": "double"}}),
        (["corrections=0,1", "drop_conditions=none"], {"corrections": (0, 1), "drop_conditions": None}),
        (["classes=Class A"], {"classes": ("Class A",)}),
        (["positive_price=no", "range_bytes=4096"], {"positive_price": False, "range_bytes": 4096}),
    ],
)
def test_options_read_as_what_they_stand_for(given: list[str], found: dict[str, Any]) -> None:
    assert reading(given) == found


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (["separated_by"], "expected NAME=VALUE"),
        (["time_unit="], "expected NAME=VALUE"),
        (["tz=UTC", "tz=UTC"], "given twice"),
        (["key=a"], "named by --key"),
        (["positive_price=perhaps"], "expected yes or no"),
        (["range_bytes=many"], "expected a whole number"),
        (["types=id"], "expected COLUMN:TYPE"),
    ],
)
def test_what_does_not_read_is_reported(given: list[str], reported: str) -> None:
    with pytest.raises(OptionError, match=reported):
        reading(given)


def test_a_file_with_semicolons_and_dates_of_its_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rooms.csv").write_text(ROOMS)
    options = ("--read", "separated_by=;", "--read", "time_format=%d.%m.%Y %H:%M")
    done = run("fit", tmp_path / "rooms.csv", *ASKED, *options, "--out", tmp_path / "rooms")
    assert done.code == 0, done.err
    model = Model(tmp_path / "rooms")
    assert model.manifest.tuples == 3
    assert set(model.read().column("room").to_pylist()) == {"007", "7"}


def test_numbers_as_times_say_what_they_count(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rooms.csv").write_text("room,when,celsius\na,1714564800000,20.5\na,1714564860000,20.7\n")
    failed = run("fit", tmp_path / "rooms.csv", *ASKED, "--out", tmp_path / "rooms")
    assert failed.code != 0
    assert "--read time_unit=" in failed.err
    done = run("fit", tmp_path / "rooms.csv", *ASKED, "--read", "time_unit=ms", "--out", tmp_path / "rooms")
    assert done.code == 0, done.err
    assert Model(tmp_path / "rooms").read().ref[0] == 1714564800000000


def test_a_separator_that_was_not_reported_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rooms.csv").write_text(ROOMS)
    failed = run("fit", tmp_path / "rooms.csv", *ASKED, "--out", tmp_path / "rooms")
    assert failed.code != 0
    assert "--read separated_by=';'" in failed.err


def test_an_option_that_the_format_has_not(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rooms.csv").write_text(ROOMS)
    failed = run(
        "fit", tmp_path / "rooms.csv", *ASKED, "--read", "seperated_by=;", "--out", tmp_path / "rooms"
    )
    assert failed.code != 0
    assert "did you mean 'separated_by'" in failed.err


def test_numbers_that_read_as_text_are_shown(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rooms.csv").write_text(
        "room;when;celsius\na;2024-05-01 12:00;20,5\na;2024-05-01 12:01;20,7\n"
    )
    options = ("--read", "separated_by=;", "--out", tmp_path / "rooms")
    failed = run("fit", tmp_path / "rooms.csv", *ASKED, *options)
    assert failed.code == 2
    assert "modelled column 'celsius': expected numbers, got text such as '20,5' in row 1" in failed.err


def test_what_stands_for_no_value(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rooms.csv").write_text(
        "room,when,celsius\na,2024-05-01 12:00,20.5\na,2024-05-01 12:01,---\n"
    )
    failed = run("fit", tmp_path / "rooms.csv", *ASKED, "--out", tmp_path / "rooms")
    assert "got text such as '---' in row 2" in failed.err
    assert "--read missing=" in failed.err
    done = run("fit", tmp_path / "rooms.csv", *ASKED, "--read", "missing=---", "--out", tmp_path / "rooms")
    assert done.code == 0, done.err
    assert Model(tmp_path / "rooms").manifest.counts["not_finite"] == 1


def test_a_key_that_only_folders_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data" / "room=12").mkdir(parents=True)
    times = pa.array([0, 60_000_000], pa.timestamp("us"))
    pq.write_table(
        pa.table({"when": times, "celsius": [20.5, 20.7]}), tmp_path / "data" / "room=12" / "0.parquet"
    )
    out = ("--out", tmp_path / "rooms")
    failed = run("fit", tmp_path / "data", *ASKED, "--read", "partitions=none", *out)
    assert failed.code == 2
    assert "there is no column 'room'" in failed.err
    assert "folders are named room=…: the formats parquet, arrow and csv read them as columns" in failed.err
    done = run("fit", tmp_path / "data", *ASKED, *out)
    assert "key room: int64" in done.out, done.err
    done = run("fit", tmp_path / "data", *ASKED, "--read", "partitions=room:string", *out, "--overwrite")
    assert "key room: string" in done.out, done.err


def test_a_column_that_the_header_names_twice(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rooms.csv").write_text("room,when,celsius,celsius\na,2024-05-01 12:00,20.5,20.6\n")
    failed = run("fit", tmp_path / "rooms.csv", *ASKED, "--out", tmp_path / "rooms")
    assert failed.code == 2
    assert "line 1: the header names the column 'celsius' 2 times; rename one" in failed.err


def test_numbers_kept_as_text(run: Run, tmp_path: Path) -> None:
    times = pa.array([0, 60_000_000], pa.timestamp("us"))
    pq.write_table(
        pa.table({"room": ["a", "a"], "when": times, "celsius": ["20.5", "20.7"]}), tmp_path / "a.parquet"
    )
    failed = run("fit", tmp_path / "a.parquet", *ASKED, "--out", tmp_path / "rooms")
    assert failed.code == 2
    assert (
        "modelled column 'celsius': expected numbers, got text; convert the column to doubles first"
        in failed.err
    )


@pytest.mark.parametrize("room", ["1", "a"])
@pytest.mark.parametrize("none", ["", '""'])
def test_a_tuple_without_a_key_is_named_by_file_and_line(
    run: Run, tmp_path: Path, room: str, none: str
) -> None:
    """An empty field is no key, be they numbers or texts; a job sets such a row aside, with its line."""
    (tmp_path / "rooms.csv").write_text(
        f"room,when,celsius\n{room},2024-05-01 12:00,20.5\n\n{none},2024-05-01 12:01,20.6\n"
    )
    failed = run("fit", tmp_path / "rooms.csv", *ASKED, "--out", tmp_path / "rooms")
    assert failed.code == 2
    assert "rooms.csv, line 4, key column 'room': the key is null; every tuple needs one" in failed.err


def test_what_stands_for_no_number_is_a_key_of_text(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rooms.csv").write_text(
        "room,when,celsius\na,2024-05-01 12:00,20.5\nNA,2024-05-01 12:01,20.6\n"
    )
    assert run("fit", tmp_path / "rooms.csv", *ASKED, "--out", tmp_path / "rooms").code == 0
    assert Model(tmp_path / "rooms").keys().column("room").to_pylist() == ["NA", "a"]


def test_keys_that_are_texts_in_one_file_only(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for i, room in enumerate((1, "a")):
        times = pa.array([i * 60_000_000], pa.timestamp("us"))
        pq.write_table(
            pa.table({"room": [room], "when": times, "celsius": [20.5]}), tmp_path / "data" / f"{i}.parquet"
        )
    failed = run("fit", tmp_path / "data", *ASKED, "--out", tmp_path / "rooms")
    assert failed.code == 2
    assert (
        "1.parquet, row group 0, key column 'room': expected int64, as in the file before, got" in failed.err
    )

"""Paths to files, files to units."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import PulseError
from pulse.datasets.errors import DatasetError, EmptyInputError, MissingInputError
from pulse.datasets.units import Unit, byte_ranges, expand


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    for name in ("b.csv", "a.csv", "deep/c.csv", "_hidden.csv", ".x.csv", "notes.md"):
        (tmp_path / name).write_text("k,t\n1,2\n")
    return tmp_path


def names(paths: list[str]) -> list[str]:
    return [Path(path).name for path in paths]


def test_folders_and_patterns_are_sorted_and_files_keep_their_order(folder: Path) -> None:
    assert names(expand(folder, (".csv",))) == ["a.csv", "b.csv", "c.csv"]
    assert names(expand(str(folder / "*.csv"), (".csv",))) == ["_hidden.csv", "a.csv", "b.csv"]
    assert names(expand(str(folder / "**" / "c.*"), (".csv",))) == ["c.csv"]
    assert names(expand([folder / "b.csv", folder / "a.csv"], (".csv",))) == ["b.csv", "a.csv"]


@pytest.mark.parametrize(
    ("path", "error", "match"),
    [
        ("nowhere.csv", MissingInputError, r"nowhere\.csv: there is no such file or folder"),
        ("*.nothing", MissingInputError, r"\*\.nothing: no file matches this pattern"),
        ("a\0b", MissingInputError, "is not a path"),
        ([], MissingInputError, "no path was given"),
    ],
)
def test_what_is_not_there_is_named(path: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        expand(path, (".csv",))  # type: ignore[arg-type]
    assert isinstance(caught.value, (PulseError, FileNotFoundError))
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), error)


def test_a_folder_without_matching_files_says_what_it_holds(folder: Path) -> None:
    with pytest.raises(EmptyInputError, match=r"no file that ends in \.parquet \(but 4 others"):
        expand(folder, (".parquet",))


def test_a_file_named_twice_is_an_error(folder: Path) -> None:
    with pytest.raises(DatasetError, match=r"a\.csv is named twice"):
        expand([folder / "a.csv", folder], (".csv",))


@pytest.mark.parametrize("other", ["./a.csv", "../{name}/a.csv", "link.csv", "hard.csv"])
def test_a_file_named_twice_by_another_path_is_an_error(
    other: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "link.csv").symlink_to("a.csv")
    (folder / "hard.csv").hardlink_to(folder / "a.csv")
    with pytest.raises(DatasetError, match=r"a?\.csv is named twice \(also as a\.csv\)"):
        expand(["a.csv", other.format(name=folder.name)], (".csv",))


@given(size=st.integers(0, 300), first=st.integers(0, 20), length=st.integers(1, 64))
def test_ranges_cover_every_byte_once(
    size: int, first: int, length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "ranges.csv"
    path.write_bytes(b"x" * (first + size))
    units = byte_ranges(str(path), first, 7, length)
    at = first
    for i, unit in enumerate(units):
        assert unit.start == at
        assert unit.length is not None
        assert unit.length > 0
        assert unit.ordinal == 7 + i
        at += unit.length
    assert at == first + size


def test_a_compressed_file_is_one_unit_and_units_pickle(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(b"anything")
    (unit,) = byte_ranges(str(path), 100, 0, 1)
    assert unit.length is None
    assert pickle.loads(pickle.dumps(unit)) == unit
    assert str(unit) == str(path)
    assert str(Unit("a", 0, 5, 10)) == "a, bytes 5 to 15"
    assert str(Unit("a", 0, row_group=3)) == "a, row group 3"

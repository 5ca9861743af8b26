"""Parts by key: nothing is lost between memory and disk, a key is in one bin, and the model is the same."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.runtime.fit import spill_shuffle
from pulse.runtime.fit.spill_shuffle import FOLDER, SpillShuffle
from pulse.session import Session
from pulse.store.model import Model
from pulse.store.read_units import units


def part(keys: list[str], unit: int) -> pa.Table:
    return pa.table({"k": keys, "n": np.arange(len(keys)) + 100 * unit, "_unit": np.full(len(keys), unit)})


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_shuffle, "HELD", 8)
    monkeypatch.setattr(spill_shuffle, "ROWS", 4)


def gathered(folder: Path, parts: list[pa.Table], keys: tuple[str, ...] = ("k",)) -> list[pa.Table]:
    with SpillShuffle(folder / FOLDER, keys, len(parts)) as bins:
        for one in parts:
            bins.add(one)
            bins.end_unit()
        bins.finish()
        found = [bins.read(number) for number in range(len(bins))]
    assert not (folder / FOLDER).exists()
    return found


def test_few_parts_are_one_bin_that_no_disk_sees(tmp_path: Path) -> None:
    parts = [part(["b", "a"], 0), part(["c"], 1).select(["_unit", "n", "k"])]
    (found,) = gathered(tmp_path, parts)
    assert found.equals(pa.concat_tables([part(["b", "a"], 0), part(["c"], 1)]))


def test_nothing_is_no_bin(tmp_path: Path) -> None:
    assert gathered(tmp_path, []) == []


@pytest.mark.usefixtures("small")
def test_many_parts_are_dealt_by_key_and_none_is_lost(tmp_path: Path) -> None:
    parts = [part(list("aabbccdd") + ["new"] * (unit > 1), unit) for unit in range(4)]
    found = gathered(tmp_path, parts)
    assert 1 < len(found) <= 4
    keys = [set(table["k"].to_pylist()) for table in found]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 5
    everything = pa.concat_tables(found).sort_by([("_unit", "ascending"), ("n", "ascending")])
    assert everything.equals(pa.concat_tables(parts).combine_chunks())
    assert all(table["_unit"].to_pylist() == sorted(table["_unit"].to_pylist()) for table in found)


@pytest.mark.usefixtures("small")
def test_bins_are_ranges_of_keys_as_even_as_keys_allow(tmp_path: Path) -> None:
    found = gathered(tmp_path, [part(sorted("abcdefgh" * 2), unit) for unit in range(2)])
    ends = [(min(table["k"].to_pylist()), max(table["k"].to_pylist())) for table in found]
    assert ends == sorted(ends)
    assert all(one[1] < other[0] for one, other in pairwise(ends))
    assert {table.num_rows for table in found} == {4}


@pytest.mark.usefixtures("small")
def test_without_a_key_there_is_one_bin(tmp_path: Path) -> None:
    (found,) = gathered(tmp_path, [part(["a"] * 10, unit) for unit in range(3)], keys=())
    assert found.num_rows == 30


@pytest.mark.usefixtures("small")
def test_a_fit_that_fails_leaves_no_bins(tmp_path: Path) -> None:
    def fail() -> None:
        with SpillShuffle(tmp_path / FOLDER, ("k",), 2) as bins:
            bins.add(part(list("abcdefghij"), 0))
            bins.end_unit()
            assert (tmp_path / FOLDER).is_dir()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not (tmp_path / FOLDER).exists()


def ticks(rows: int, start: int = 0) -> pa.Table:
    rng = np.random.default_rng(start + 1)
    names = np.array([f"s{i}" for i in range(9)])
    return pa.table(
        {
            "symbol": names[np.minimum(rng.geometric(0.3, rows), 9) - 1],
            "t": pa.array(np.arange(rows) * 100_000 + start, pa.timestamp("us")),
            "price": 50 + np.cumsum(rng.normal(0, 0.1, rows)),
        }
    )


def model(folder: Path, name: str, **options: object) -> Model:
    return Session(engine="local").fit(
        folder / "ticks.parquet",
        key="symbol",
        time="t",
        model={"price": "step"},
        out=folder / name,
        **options,
    )


@pytest.mark.parametrize("bound", [{"error": 0.2}, {"drift": 0.5}, {"error": 0}])
def test_a_model_in_bins_is_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: dict[str, float]
) -> None:
    pq.write_table(ticks(6000), tmp_path / "ticks.parquet", row_group_size=500)
    whole = model(tmp_path, "whole", **bound)
    monkeypatch.setattr(spill_shuffle, "HELD", 50)
    monkeypatch.setattr(spill_shuffle, "ROWS", 100)
    dealt = model(tmp_path, "dealt", **bound)
    assert len(whole.manifest.files) == 2
    assert len(dealt.manifest.files) > 4
    assert dealt.read().to_arrow().equals(whole.read().to_arrow())
    assert dealt.manifest.statistics == whole.manifest.statistics
    assert dealt.manifest.counts == whole.manifest.counts
    assert not list(dealt.path.glob(f"{FOLDER}*"))
    assert len(units(dealt)) == sum(file.name.startswith("part") for file in dealt.manifest.files)


def test_a_model_in_bins_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, dealt in (("whole", False), ("dealt", True)):
        if dealt:
            monkeypatch.setattr(spill_shuffle, "HELD", 50)
            monkeypatch.setattr(spill_shuffle, "ROWS", 100)
        for number in range(2):
            table = ticks(3000, number * 300_000_000)
            pq.write_table(table, tmp_path / "ticks.parquet", row_group_size=400)
            made = model(tmp_path, name, error=0.2, append=number > 0)
        assert made.manifest.fits == 2
    assert made.read().to_arrow().equals(Model(tmp_path / "whole").read().to_arrow())

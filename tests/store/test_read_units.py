"""Units of a stored model: together every segment once, and no key in two of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pulse.session import Session
from pulse.store.model import Model
from pulse.store.read_units import ReadUnit, read_unit, units


def ticks(keys: int, per_key: int, start: int = 0) -> pa.Table:
    """Prices that jump at every tick, so that an exact model has a segment each."""
    rng = np.random.default_rng(keys * 1000 + per_key + start)
    times = np.tile(np.arange(per_key) * 1_000_000 + start, keys)
    return pa.table(
        {
            "symbol": np.repeat([f"k{i:03d}" for i in range(keys)], per_key),
            "t": pa.array(times, pa.timestamp("us")),
            "price": rng.integers(1, 1000, keys * per_key).astype(float),
        }
    )


def fitted(folder: Path, table: pa.Table, **options: object) -> Model:
    return Session(engine="local").fit(
        table, key="symbol", time="t", model={"price": "step"}, error=0, out=folder, **options
    )


def columns(model: Model) -> list[str]:
    return model.schema.arrow_schema().names


def whole(model: Model, found: tuple[ReadUnit, ...]) -> pa.Table:
    return pa.concat_tables([read_unit(model, unit, columns(model)) for unit in found])


@pytest.mark.parametrize("at_least", [1, 2, 7, 100])
def test_units_hold_every_segment_once_and_no_key_twice(tmp_path: Path, at_least: int) -> None:
    model = fitted(tmp_path / "m", ticks(13, 40))
    found = units(model, at_least=at_least)
    assert len(found) == min(at_least, 13)
    table = whole(model, found)
    order = [("symbol", "ascending"), ("ref", "ascending"), ("hi", "ascending")]
    expected = pa.Table.from_batches([model.read().to_arrow()])
    assert table.sort_by(order).equals(expected.sort_by(order))
    keys = [set(read_unit(model, unit, columns(model))["symbol"].to_pylist()) for unit in found]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 13


def test_rows_of_a_unit_are_by_key_and_time_closing_points_included(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", ticks(5, 10))
    assert any(file.name.startswith("closing") for file in model.manifest.files)
    (unit,) = units(model)
    table = read_unit(model, unit, columns(model))
    rows = list(
        zip(table["symbol"].to_pylist(), table["ref"].to_pylist(), table["hi"].to_pylist(), strict=True)
    )
    assert [row[:2] for row in rows] == sorted(row[:2] for row in rows)
    assert sum(hi == 0.0 for _, _, hi in rows) == 5


def test_an_appended_models_files_are_joined_where_they_share_keys(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", ticks(4, 10))
    model = fitted(tmp_path / "m", ticks(6, 10, start=20_000_000), append=True)
    assert model.manifest.fits == 2
    found = units(model, at_least=4)
    table = whole(model, found)
    assert table.num_rows == len(model)
    keys = [set(read_unit(model, unit, columns(model))["symbol"].to_pylist()) for unit in found]
    assert sum(map(len, keys)) == 6


def test_keys_that_have_only_a_closing_point_belong_to_one_unit(tmp_path: Path) -> None:
    table = pa.concat_tables([ticks(6, 20), ticks(1, 1).set_column(0, "symbol", pa.array(["zz"]))])
    model = fitted(tmp_path / "m", table)
    keys = [
        key
        for unit in units(model, at_least=3)
        for key in set(read_unit(model, unit, columns(model))["symbol"].to_pylist())
    ]
    assert keys.count("zz") == 1


def test_a_stream_without_a_key_is_one_unit(tmp_path: Path) -> None:
    table = ticks(1, 50).drop(["symbol"])
    model = Session(engine="local").fit(table, time="t", model={"price": "step"}, error=0, out=tmp_path / "m")
    (unit,) = units(model, at_least=8)
    assert read_unit(model, unit, columns(model)).num_rows == len(model)


def test_a_key_that_outweighs_the_others_leaves_shares_empty(tmp_path: Path) -> None:
    table = pa.concat_tables([ticks(3, 5), ticks(1, 500).set_column(0, "symbol", pa.array(["zz"] * 500))])
    model = fitted(tmp_path / "m", table)
    found = units(model, at_least=4)
    assert len(found) == 4
    assert whole(model, found).num_rows == len(model)


@pytest.mark.parametrize("at_least", [2, 3, 9])
def test_an_appended_model_is_shared_out_by_key(tmp_path: Path, at_least: int) -> None:
    """The same keys in files of several fits, some new, and a file of closing points that names all."""
    for number, (keys, start) in enumerate([(5, 0), (7, 30), (2, 60)]):
        model = fitted(tmp_path / "m", ticks(keys, 10, start=start * 1_000_000), append=number > 0)
    found = units(model, at_least=at_least)
    assert len(found) == min(at_least, 7)
    tables = [read_unit(model, unit, columns(model)) for unit in found]
    keys_of = [set(table["symbol"].to_pylist()) for table in tables]
    assert sum(map(len, keys_of)) == len(set().union(*keys_of)) == 7
    order = [("symbol", "ascending"), ("ref", "ascending"), ("hi", "ascending")]
    assert all(table.equals(table.sort_by(order)) for table in tables)
    expected = pa.Table.from_batches([model.read().to_arrow()])
    assert pa.concat_tables(tables).sort_by(order).equals(expected.sort_by(order))

"""Hive-partitioned folders: their columns in Parquet, CSV and Arrow, against tables that hold them as columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse
from pulse.core.errors import NullKeyError, UnknownColumnError
from pulse.datasets import DatasetError, detect, get_format
from pulse.datasets.errors import UnknownFormatError, UnreadableError
from pulse.datasets.folders.hive import NULL, find_partitions, values_of
from pulse.store.model import Model

LOCAL = pulse.Session(engine="local")
ENDINGS = ("parquet", "csv", "arrow")
ASKED: dict[str, Any] = {"time": "t", "model": {"x": "step"}, "error": 0}


def rows(first: int, n: int = 20) -> pa.Table:
    times = pa.array([(first + i) * 1_000_000 for i in range(n)], pa.timestamp("us"))
    return pa.table({"t": times, "x": pa.array([float((first + i) // 3) for i in range(n)])})


def put(folder: Path, table: pa.Table, ending: str = "parquet", name: str = "part-0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{ending}"
    if ending == "parquet":
        pq.write_table(table, path, row_group_size=7)
    elif ending == "csv":
        pacsv.write_csv(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
    return path


def partitioned(base: Path, ending: str, symbols: tuple[str, ...] = ("SPY", "BAC")) -> Path:
    for s in symbols:
        for day in (1, 2):
            put(base / f"symbol={quote(s, safe='')}" / f"day={day}", rows(day * 100), ending)
    return base


def flat(base: Path, ending: str, symbols: tuple[str, ...] = ("SPY", "BAC")) -> Path:
    """The same rows in the same files, with the columns in them."""
    for s in sorted(symbols, key=lambda one: quote(one, safe="")):
        for day in (1, 2):
            table = (
                rows(day * 100)
                .append_column("symbol", pa.repeat(s, 20))
                .append_column("day", pa.repeat(pa.scalar(day), 20))
            )
            put(base, table, ending, f"{quote(s, safe='')}-{day}")
    return base


def same(a: Model, b: Model) -> bool:
    """But for whole numbers that are no keys, which are doubles in CSV."""
    found, expected = (one.read().to_arrow().to_pylist() for one in (a, b))
    return found == expected and a.manifest.counts == b.manifest.counts


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("symbols", [("SPY", "BAC"), ("BRK A", "x=1/ü%"), ("12", "007"), ("12", "7")])
def test_the_model_is_that_of_files_with_the_columns(
    tmp_path: Path, ending: str, symbols: tuple[str, ...]
) -> None:
    given = partitioned(tmp_path / "hive", ending, symbols)
    expected = flat(tmp_path / "flat", ending, symbols)
    for key, keep in ((("symbol",), ("day",)), (("symbol", "day"), ())):
        model = LOCAL.fit(given, key=key, keep=keep, **ASKED)
        other = LOCAL.fit(expected, key=key, keep=keep, **ASKED)
        if symbols != ("12", "7"):
            assert same(model, other)
        assert model.manifest.modelled == 80
    number = pa.types.is_integer(dict(model.schema.key)["symbol"])
    assert number == (symbols == ("12", "7"))
    assert len(model.manifest.sources) == 4


@pytest.mark.parametrize("ending", ENDINGS)
def test_spark_gives_the_same(spark: Any, tmp_path: Path, ending: str) -> None:
    given = partitioned(tmp_path / "hive", ending)
    asked: dict[str, Any] = {**ASKED, "key": "symbol", "keep": ("day",), "where": "day = 2 or x > 35"}
    model, other = pulse.Session(spark=spark).fit(given, **asked), LOCAL.fit(given, **asked)
    for key in ("SPY", "BAC"):
        assert model.read(key=key).to_arrow().equals(other.read(key=key).to_arrow())
    assert model.manifest.counts == other.manifest.counts


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "where",
    ["symbol = 'SPY'", "symbol = 'SPY' and x > 40", "day > 1 and symbol <> 'SPY'", "day is null or x < 40"],
)
def test_filters_of_rows_count_as_on_columns(
    tmp_path: Path, ending: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {**ASKED, "key": "symbol", "where": where}
    model = LOCAL.fit(partitioned(tmp_path / "hive", ending), **asked)
    other = LOCAL.fit(flat(tmp_path / "flat", ending), **asked)
    assert same(model, other)
    assert model.manifest.counts["filtered"] > 0


def test_files_that_a_filter_excludes_are_not_read(tmp_path: Path) -> None:
    given = partitioned(tmp_path / "hive", "parquet")
    damaged = given / "symbol=BAC" / "day=1" / "part-0.parquet"
    data = damaged.read_bytes()
    damaged.write_bytes(data[:4] + b"\xff" * 80 + data[84:])
    with pytest.raises(UnreadableError):
        LOCAL.fit(given, key="symbol", **ASKED)
    model = LOCAL.fit(given, key="symbol", where="symbol = 'SPY' and x >= 0", **ASKED)
    assert model.manifest.counts["filtered"] == 40
    assert model.manifest.modelled == 40


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_missing_key_is_named_and_a_missing_value_null(tmp_path: Path, ending: str) -> None:
    for name in ("SPY", NULL):
        put(tmp_path / "d" / f"symbol={name}", rows(0), ending)
    with pytest.raises(NullKeyError, match="key column 'symbol'"):
        LOCAL.fit(tmp_path / "d", key="symbol", **ASKED)
    kept = LOCAL.fit(tmp_path / "d", key="symbol", where="symbol is not null", **ASKED)
    assert (kept.manifest.modelled, kept.manifest.counts["filtered"]) == (20, 20)
    put(tmp_path / "e" / "k=a" / "venue=N", rows(0), ending)
    put(tmp_path / "e" / "k=b", rows(0), ending)
    model = LOCAL.fit(tmp_path / "e", key="k", keep=("venue",), **ASKED)
    assert set(model.read().to_arrow().column("venue").to_pylist()) == {"N", None}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_contradicts_its_folder_is_named(tmp_path: Path, ending: str) -> None:
    good = rows(0).append_column("symbol", pa.repeat("SPY", 20))
    path = put(tmp_path / "symbol=SPY", good, ending)
    LOCAL.fit(tmp_path, key="symbol", **ASKED)
    wrong = rows(20).append_column("symbol", pa.array(["SPY"] * 19 + ["BAC"]))
    path = put(tmp_path / "symbol=SPY", wrong, ending, "part-1")
    with pytest.raises(
        DatasetError,
        match=r"part-1\.\w+.*column 'symbol': expected the value of the folder symbol=SPY, got 'BAC'",
    ):
        LOCAL.fit(tmp_path, key="symbol", **ASKED)
    name = "arrow" if ending == "arrow" else ending
    own = get_format(name, key="symbol", time="t", partitions=None)
    assert LOCAL.fit(tmp_path, format=own, key="symbol", **ASKED).manifest.modelled == 40
    assert path.exists()


@pytest.mark.parametrize(
    ("value", "own", "agrees"),
    [
        ("007", pa.array([7, 7]), True),
        ("7", pa.array([7.0, 7.0]), True),
        ("7", pa.array([7, None]), False),
        ("SPY", pa.array([7, 7]), False),
        ("2013-10-07", pa.array([0, 3_600_000_000], pa.timestamp("us")).cast(pa.int64()), False),
        ("1970-01-01", pa.array([0, 3_600_000_000], pa.timestamp("us")), True),
        ("1970-01-01", pa.array([0, 1], pa.date32()), False),
        ("true", pa.array([True, True]), True),
        (NULL, pa.nulls(2, pa.string()), True),
        (NULL, pa.array(["a", None]), False),
        ("a", pa.array([["a"], ["a"]]), False),
        ("a", pa.array(["a", "a"]).dictionary_encode(), True),
    ],
)
def test_what_agrees(tmp_path: Path, value: str, own: pa.Array, agrees: bool) -> None:
    put(tmp_path / f"k={value}", rows(0, 2).append_column("k", own))
    fmt = get_format("parquet", time="t").prepare(tmp_path)
    read = (
        [batch.column("k") for unit in fmt.units(tmp_path) for batch in fmt.batches(unit, ["k", "t"])]
        if agrees
        else []
    )
    if agrees:
        assert [one for column in read for one in column.to_pylist()] == own.to_pylist()
    else:
        with pytest.raises(DatasetError, match="expected the value of the folder k="):
            [list(fmt.batches(unit, ["k"])) for unit in fmt.units(tmp_path)]


def test_types_are_those_that_pyarrow_infers(tmp_path: Path) -> None:
    """But for keys that begin with zeros, and for whole numbers beyond 32 bits."""
    for one in ("year=2020/month=01/day=2020-01-02/n=-5", "year=2021/month=12/day=2020-01-03/n=3000000"):
        put(tmp_path / one, rows(0))
    fmt = get_format("parquet", key="k").prepare(tmp_path)
    found = dict(fmt.partitions or ())  # type: ignore[attr-defined]
    inferred = ds.dataset(tmp_path, partitioning="hive").schema
    for name, type_ in found.items():
        assert pa.types.is_integer(inferred.field(name).type) == (type_ == "int64"), name
    keyed = get_format("parquet", key="month").prepare(tmp_path)
    assert dict(keyed.partitions or ())["month"] == "string"  # type: ignore[attr-defined]


@given(st.text(min_size=1, max_size=12).filter(lambda text: "\0" not in text and text not in (NULL,)))
def test_any_text_survives_percent_encoding(text: str) -> None:
    try:
        path = f"data/k={quote(text, safe='')}/part.parquet"
    except UnicodeEncodeError:
        return
    assert values_of(path, (("k", "string"),)) == {"k": text}


@given(st.lists(st.text(alphabet="k=%/.:ü2f_-AF0 ", max_size=9), max_size=5).map("/".join))
def test_any_names_of_folders_are_read_or_refused(folder: str) -> None:
    path = f"{folder}/part.parquet"
    try:
        found = find_partitions([path], ("k",), None, ())
        values = values_of(path, found)
    except UnreadableError:
        return  # no UTF-8
    assert list(values) == [name for name, _ in found]
    assert all(isinstance(values[name], int) or type_ == "string" for name, type_ in found)


def test_folders_that_cannot_be_read() -> None:
    with pytest.raises(UnreadableError, match=r"folder 'k=%ff' is percent-encoded, but not as UTF-8"):
        find_partitions(["data/k=%ff/a.parquet"], (), None, ())
    with pytest.raises(
        DatasetError, match=r"expected a whole number in the folder k=….*got 'x'.*--read partitions=k:string"
    ):
        values_of("data/k=x/a.parquet", (("k", "int64"),))
    for wrong in ("k", {"k": "float"}, 7):
        with pytest.raises(UnknownFormatError, match="partitions: "):
            get_format("csv", partitions=wrong)
    assert find_partitions(["a/=3/b=/c.csv", "x=1.csv"], (), None, ()) == (("b", "string"),)


def test_models_are_appended_to_and_revised(tmp_path: Path) -> None:
    """A new partition whose file is the same, byte by byte, as one that the model holds, is another one."""
    base = tmp_path / "hive"
    for symbol in ("SPY", "BAC"):
        put(base / f"symbol={symbol}", rows(0))
    put(tmp_path / "more" / "symbol=IBM", rows(0))
    LOCAL.fit(base, key="symbol", out=tmp_path / "m", **ASKED)
    model = LOCAL.fit(
        tmp_path / "more" / "symbol=IBM", key="symbol", out=tmp_path / "m", append=True, **ASKED
    )
    assert model.manifest.modelled == 60
    again = LOCAL.fit(base / "symbol=SPY", key="symbol", out=tmp_path / "m", append=True, **ASKED)
    assert again.manifest.modelled == 60  # held already
    gone = {"kind": "-D", "symbol": "IBM", "t": rows(0)["t"][6].as_py(), "x": 2.0}
    revised = LOCAL.revise(model, pa.Table.from_pylist([gone]))
    assert revised.counts["aside"] == 0
    assert {one.path for one in model.manifest.sources} == {
        str(path) for path in tmp_path.rglob("part-0.parquet")
    }


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_appended_has_the_types_of_the_model(tmp_path: Path, ending: str) -> None:
    """A partition alone does not show that the column is of text."""
    for symbol in ("A", "600000"):
        put(tmp_path / "a" / f"symbol={symbol}" / "n=1", rows(0), ending)
    LOCAL.fit(tmp_path / "a", key="symbol", keep=("n",), out=tmp_path / "m", **ASKED)
    asked: dict[str, Any] = {**ASKED, "key": "symbol", "keep": ("n",), "out": tmp_path / "m", "append": True}
    model = LOCAL.fit(put(tmp_path / "symbol=600000" / "n=2", rows(20), ending), **asked)
    assert model.manifest.modelled == 60
    assert model.read(key="600000").to_arrow().num_rows > 6
    with pytest.raises(DatasetError, match="whole number in the folder n="):
        LOCAL.fit(put(tmp_path / "symbol=7" / "n=x", rows(0), ending), **asked)


def test_trades_take_their_symbol_from_the_folder(tmp_path: Path) -> None:
    trades = (
        rows(0).rename_columns(["t", "price"]).append_column("corr", pa.array([0] * 19 + [10], pa.int16()))
    )
    for symbol in ("SPY", "BAC"):
        put(tmp_path / f"symbol={symbol}", trades.append_column("size", pa.repeat(1, 20)))
    assert detect(str(tmp_path)) == "taq-parquet"
    model = LOCAL.fit(tmp_path, model={"price": "step"}, error=0)
    assert model.schema.key_names == ("symbol",)
    assert model.manifest.modelled == 38


def test_other_formats_say_which_read_them(tmp_path: Path) -> None:
    put(
        tmp_path / "d=1",
        pa.table({"mmsi": [1, 1], "t": rows(0, 2)["t"], "lat": [50.0, 51.0], "lon": [4.0, 4.1]}),
    )
    with pytest.raises(UnknownColumnError, match=r"folders are named d=….*--format parquet"):
        LOCAL.fit(tmp_path, format="ais", model={"lat": "linear"}, error=1, keep=("d",))
    model = LOCAL.fit(
        tmp_path, format="parquet", key="mmsi", time="t", model={"lat": "linear"}, error=1, keep=("d",)
    )
    assert model.read().to_arrow().column("d").to_pylist() == [1]


def test_a_folder_may_hold_the_time(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        put(tmp_path / f"day=2024010{day}", pa.table({"k": ["a"], "x": [float(day)]}), "csv")
    fmt = get_format("csv", key="k", time="day", time_format="%Y%m%d")
    model = LOCAL.fit(tmp_path, format=fmt, key="k", time="day", model={"x": "step"}, error=0)
    assert model.manifest.modelled == 3

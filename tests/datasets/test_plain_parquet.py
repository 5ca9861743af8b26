from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import ColumnTypeError, PulseError, UnknownColumnError
from pulse.datasets.counts import Counts
from pulse.datasets.csv_parse import KEY_TEXT
from pulse.datasets.errors import EmptyInputError, MissingInputError, UnreadableError, ValueParseError
from pulse.datasets.plain_parquet import PlainParquet
from pulse.datasets.units import Unit
from tests.datasets.conftest import table_of

Write = Callable[[str, str | bytes], str]
PARQUET = PlainParquet(key=("s",), time="t")


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = pa.table(
        {
            "s": pa.array([f"k{i % 3}" for i in range(10)], pa.large_string()),
            "t": pa.array([i * 1000 + 999 for i in range(10)], pa.timestamp("ns", tz="America/New_York")),
            "v": [i / 2 for i in range(10)],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    return str(tmp_path / "a.parquet")


def test_a_unit_is_a_row_group(path: str) -> None:
    units = PARQUET.units(path)
    assert [(u.row_group, u.rows, u.ordinal) for u in units] == [(0, 4, 0), (1, 4, 1), (2, 2, 2)]
    assert all(u.size > 0 for u in units)
    counts = Counts()
    batches = list(PARQUET.batches(units[1], ["v", "t", "s"], batch_rows=3, counts=counts))
    assert [b.num_rows for b in batches] == [3, 1]
    assert batches[0].schema == pa.schema([("v", pa.float64()), ("t", pa.timestamp("us")), ("s", KEY_TEXT)])
    assert batches[0].to_pylist()[0] == {"v": 2.0, "t": datetime.datetime(1970, 1, 1, 0, 0, 0, 4), "s": "k1"}
    assert counts == Counts(4, 4)
    assert table_of(PARQUET, path, ["v"])["v"].to_pylist() == [i / 2 for i in range(10)]
    assert pickle.loads(pickle.dumps((PARQUET, units))) == (PARQUET, units)


def test_the_schema_is_what_batches_have(path: str) -> None:
    schema = PARQUET.schema(path)
    assert table_of(PARQUET, path, schema.names).schema == schema


def test_without_a_time_nothing_is_converted(path: str) -> None:
    assert table_of(PlainParquet(), path, ["t"]).schema.field("t").type == pa.timestamp(
        "ns", tz="America/New_York"
    )


def test_missing_columns_files_and_rows(path: str, tmp_path: Path, write: Write) -> None:
    (unit, *_) = PARQUET.units(path)
    with pytest.raises(UnknownColumnError, match=r"no column 'price'.* There are: 's', 't', 'v'"):
        next(PARQUET.batches(unit, ["price"]))
    with pytest.raises(MissingInputError, match=r"gone\.parquet"):
        PARQUET.units(str(tmp_path / "gone.parquet"))
    with pytest.raises(EmptyInputError, match="is empty"):
        PARQUET.units(write("empty.parquet", b""))
    with pytest.raises(UnreadableError, match="not a Parquet file"):
        PARQUET.units(write("text.parquet", b"a,b\n1,2\n"))
    pq.write_table(pa.table({"t": pa.array([], pa.timestamp("us"))}), tmp_path / "none.parquet")
    with pytest.raises(EmptyInputError, match="holds no rows"):
        PARQUET.units(str(tmp_path / "none.parquet"))


@pytest.mark.parametrize(
    ("times", "unit", "error", "match"),
    [
        (
            pa.array([1, None], pa.timestamp("us")),
            None,
            ValueParseError,
            "row group 0, row 1, column 't': the time is missing",
        ),
        (pa.array([1, 2]), None, ColumnTypeError, "say with time_unit="),
        (pa.array([True, False]), None, ColumnTypeError, "type bool"),
        (pa.array(["2024-01-01", "soon"]), None, ValueParseError, "row 1, column 't': .* got 'soon'"),
    ],
)
def test_bad_times(
    tmp_path: Path, times: pa.Array, unit: str | None, error: type[Exception], match: str
) -> None:
    pq.write_table(pa.table({"t": times}), tmp_path / "a.parquet")
    with pytest.raises(error, match=match):
        table_of(PlainParquet(time="t", time_unit=unit), str(tmp_path / "a.parquet"), ["t"])


def test_a_damaged_row_group_is_named(path: str, tmp_path: Path) -> None:
    data = bytearray(Path(path).read_bytes())
    offset = pq.read_metadata(path).row_group(1).column(2).dictionary_page_offset
    data[offset : offset + 40] = b"\xff" * 40
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(data)
    units = PARQUET.units(str(bad))
    assert sum(b.num_rows for b in PARQUET.batches(units[0], ["v"])) == 4
    with pytest.raises(UnreadableError, match=r"bad\.parquet, row group 1: cannot be read"):
        list(PARQUET.batches(units[1], ["v"]))
    bad.write_bytes(data[: len(data) // 2])
    with pytest.raises(UnreadableError, match=r"bad\.parquet: cannot be read"):
        PARQUET.units(str(bad))


def test_a_unit_that_does_not_fit_the_file(path: str) -> None:
    with pytest.raises(UnreadableError, match="has 3 row groups"):
        list(PARQUET.batches(Unit(path, 0, row_group=9), ["v"]))
    with pytest.raises(UnreadableError, match="expected 5 rows, got 4"):
        list(PARQUET.batches(Unit(path, 0, row_group=0, rows=5), ["v"]))
    with pytest.raises(PulseError, match="expected a Parquet row group"):
        list(PARQUET.batches(Unit(path, 0), ["v"]))
    with pytest.raises(PulseError, match="batch_rows"):
        list(PARQUET.batches(Unit(path, 0, row_group=0), ["v"], batch_rows=0))


@given(at=st.integers(0, 2000), junk=st.binary(min_size=1, max_size=30))
def test_damage_anywhere_reads_or_is_a_pulse_error(
    at: int, junk: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.parquet"
    pq.write_table(pa.table({"s": ["a", "b"] * 20, "t": range(40), "v": [1.5] * 40}), path, row_group_size=10)
    data = bytearray(path.read_bytes())
    data[at % len(data) : at % len(data) + len(junk)] = junk
    path.write_bytes(data)
    fmt: Any = PlainParquet(time="t", time_unit="us")
    try:
        rows = table_of(fmt, str(path), ["s", "t", "v"]).num_rows
    except (PulseError, pa.ArrowInvalid) as e:
        assert isinstance(e, PulseError) or "zero batches" in str(e)  # noqa: PT017 - anything else is a failure
    else:
        assert rows >= 0


def test_recorded_files_read_whole(recorded: Path) -> None:
    for path in sorted(recorded.glob("*.parquet")):
        fmt = PlainParquet(time="t")
        units = fmt.units(str(path))
        rows = pq.read_metadata(path).num_rows
        counts = Counts()
        last = None
        for unit in units:
            for batch in fmt.batches(unit, fmt.schema(str(path)).names, counts=counts):
                times = batch.column(batch.schema.get_field_index("t")).view(pa.int64()).to_numpy()
                assert (times[1:] >= times[:-1]).all()
                assert last is None or times[0] >= last
                last = times[-1]
        assert counts == Counts(rows, rows)
        assert sum(unit.rows or 0 for unit in units) == rows


def test_columns_declared_without_nulls_come_as_those_of_other_files(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([1, 2], pa.timestamp("us")), "x": [1.0, 2.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    strict = pa.schema([field.with_nullable(False) for field in table.schema])
    pq.write_table(table.cast(strict), tmp_path / "b.parquet")
    reader = PlainParquet(time="t")
    batches = [
        batch
        for unit in reader.units(str(tmp_path / "*.parquet"))
        for batch in reader.batches(unit, ["t", "x"])
    ]
    assert pa.Table.from_batches(batches).num_rows == 4
    assert reader.schema(str(tmp_path / "b.parquet")) == reader.schema(str(tmp_path / "a.parquet"))


def test_text_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    """Arrow reads it as it is, and what asks for the text fails much later."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"s": ["abcdefg"] * 3}), path, compression="none", write_statistics=False)
    path.write_bytes(path.read_bytes().replace(b"abcdefg", b"abc\xffefg"))
    with pytest.raises(UnreadableError, match="UTF8"):
        [b for unit in PARQUET.units([path]) for b in PARQUET.batches(unit, ["s"])]


def test_sizes_are_known_without_the_metadata_of_columns(tmp_path: Path) -> None:
    """Arrow ends the process where those are damaged."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"v": range(100)}), path, row_group_size=50)
    sizes = [unit.size for unit in PARQUET.units([path])]
    assert len(sizes) == 2
    assert 0.9 * path.stat().st_size < sum(sizes) <= path.stat().st_size


def test_times_in_a_format_of_ones_own(tmp_path: Path) -> None:
    file = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": ["31.12.2023 23:59", "01.01.2024 00:00"], "v": [1.0, 2.0]}), file)
    with pytest.raises(ValueParseError, match="time_format="):
        table_of(PlainParquet(time="t"), file, ["t"])
    found = table_of(PlainParquet(time="t", time_format="%d.%m.%Y %H:%M"), file, ["t"])
    assert found.column("t").to_pylist()[1] == datetime.datetime(2024, 1, 1)

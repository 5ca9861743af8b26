from __future__ import annotations

import datetime
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import PulseError, UnknownColumnError
from pulse.datasets.counts import Counts
from pulse.datasets.csv_parse import KEY_TEXT
from pulse.datasets.errors import DatasetError, EmptyInputError, UnknownFormatError, ValueParseError
from pulse.datasets.plain_csv import PlainCsv
from tests.datasets.conftest import table_of

Write = Callable[[str, str | bytes], str]
Read = Callable[..., list[dict[str, Any]]]
TEXT = "id,t,temp,note\n1,2024-01-01T00:00:00,20,a\n2,2024-01-01 00:00:01.25,20.5,b\n1,2024-01-02,,c\n"
CSV = PlainCsv(key=("id",), time="t")


def test_types_are_guessed_and_times_read(write: Write, read: Read) -> None:
    path = write("a.csv", TEXT)
    schema = CSV.schema(path)
    assert schema == pa.schema(
        [("id", pa.int64()), ("t", pa.timestamp("us")), ("temp", pa.float64()), ("note", KEY_TEXT)]
    )
    counts = Counts()
    rows = read(CSV, path, ["temp", "t", "id"], counts)
    assert rows[1] == {"temp": 20.5, "t": datetime.datetime(2024, 1, 1, 0, 0, 1, 250000), "id": 2}
    assert rows[2]["temp"] is None
    assert counts == Counts(3, 3)


@given(cut=st.integers(1, 200), batch=st.integers(1, 5))
def test_cuts_do_not_change_the_rows(cut: int, batch: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "cuts.csv"
    path.write_text("id,t,v\n" + "".join(f"k{i % 3},2024-01-01 00:00:{i:02},{i * 0.1}\n" for i in range(20)))
    fmt = replace(CSV, range_bytes=cut)
    units = fmt.units(path)
    assert [u.ordinal for u in units] == list(range(len(units)))
    parts = [b for u in units for b in fmt.batches(u, ["id", "t", "v"], batch_rows=batch)]
    assert all(0 < b.num_rows <= batch for b in parts)
    whole = table_of(CSV, path, ["id", "t", "v"])
    assert [row for b in parts for row in b.to_pylist()] == whole.to_pylist()


def test_the_first_file_settles_the_types_of_all(write: Write, read: Read) -> None:
    one, two = write("1.csv", "id,t,v\na,2024-01-01,1\n"), write("2.csv", "t,extra,v,id\n2024-01-02,q,2,7\n")
    fmt = CSV.prepare([one, two])
    assert dict(fmt.types) == {"id": "string", "t": "string", "v": "double"}
    assert [row["id"] for row in read(fmt, [one, two], ["id"])] == ["a", "7"]
    assert pickle.loads(pickle.dumps(fmt)) == fmt


def test_options(write: Write, read: Read) -> None:
    path = write("a.csv", "id;t;v\n007;1.5;3\n")
    fmt = PlainCsv(key=("id",), time="t", separated_by=";", types={"id": "string"}, time_unit="s")  # type: ignore[arg-type]
    assert read(fmt, path, ["id", "t"]) == [
        {"id": "007", "t": datetime.datetime(1970, 1, 1, 0, 0, 1, 500000)}
    ]
    fmt = PlainCsv(time="t", time_format="%d.%m.%Y %H:%M")
    path = write("b.csv", "t,v\n31.12.2023 23:59,1\n")
    assert read(fmt, path, ["t"]) == [{"t": datetime.datetime(2023, 12, 31, 23, 59)}]
    assert "zone-less UTC" in fmt.statements()[0]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"types": {"a": "decimal"}}, "types: column 'a': expected one of double, int64, string, bool"),
        ({"separated_by": ",,"}, "separated_by: expected one character"),
        ({"range_bytes": 0}, "range_bytes: expected a positive number"),
        ({"time_unit": "min"}, "time_unit: expected one of"),
        ({"key": (1,)}, "key and time: expected names"),
    ],
)
def test_bad_options(options: dict[str, Any], match: str) -> None:
    with pytest.raises(UnknownFormatError, match=match):
        PlainCsv(**options)


@pytest.mark.parametrize(
    ("body", "columns", "error", "match"),
    [
        (TEXT, ["prise"], UnknownColumnError, "no column 'prise'.*There are: 'id', 't', 'temp', 'note'"),
        (
            TEXT.replace("2024-01-02", "tomorrow"),
            ["t"],
            ValueParseError,
            r"line 4, column 't': .* got 'tomorrow'",
        ),
        (TEXT.replace("2024-01-02", ""), ["t"], ValueParseError, r"line 4, column 't'"),
        (TEXT, [], DatasetError, "no column was requested"),
        (TEXT, "t", DatasetError, "expected a list of names"),
        ("", ["t"], EmptyInputError, "is empty"),
        ("id,t,temp\n", ["t"], EmptyInputError, "holds no rows"),
        ("id,time\n1,2\n", ["time"], UnknownColumnError, "no column 't'"),
    ],
)
def test_bad_input(
    write: Write, read: Read, body: str, columns: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        read(CSV, write("a.csv", body), columns)


def test_numbers_as_times_ask_for_their_unit(write: Write, read: Read) -> None:
    with pytest.raises(ValueParseError, match="expected a time such as"):
        read(CSV, write("a.csv", "id,t\n1,hello\n"), ["t"])
    fmt = replace(CSV, time_unit="ms")
    assert read(fmt, write("b.csv", "id,t\n1,1000\n"), ["t"])[0]["t"] == datetime.datetime(
        1970, 1, 1, 0, 0, 1
    )


def test_a_number_further_down_that_is_none(write: Write, read: Read) -> None:
    head = "id,t,v\n" + "1,2024-01-01,1\n" * 80_000
    with pytest.raises(ValueParseError, match="line 80002, column 'v': expected a number, got 'n/k'"):
        read(CSV, write("a.csv", head + "1,2024-01-01,n/k\n"), ["v"])


@given(text=st.text(max_size=200), header=st.sampled_from(["id,t,v\n", ""]), cut=st.integers(1, 50))
def test_any_text_reads_or_is_a_pulse_error(
    text: str, header: str, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes((header + text).encode("utf-8", "surrogatepass"))
    fmt = PlainCsv(time="t" if header else None, range_bytes=cut)
    try:
        prepared = fmt.prepare(path)
        names = prepared.schema(str(path)).names
        rows = sum(b.num_rows for u in prepared.units(path) for b in prepared.batches(u, names))
    except PulseError:
        rows = 0
    assert rows <= (header + text).count("\n") + 1


@given(data=st.binary(max_size=200))
def test_any_bytes_read_or_are_a_pulse_error(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz-bytes.csv"
    path.write_bytes(b"id,t,v\n1,2024-01-01,2\n" + data)
    try:
        reported = f"fuzz-bytes.csv holds {table_of(CSV, path, ['id', 't', 'v']).num_rows} rows"
    except PulseError as e:
        reported = str(e)
    assert "fuzz-bytes.csv" in reported
    assert "holds 0 rows" not in reported


def test_keys_that_begin_with_zeros_are_codes(write: Write, read: Read) -> None:
    """As numbers 007 and 7 would be one key, and nobody would know."""
    path = write("a.csv", "id,t,v\n007,2024-01-01,1\n7,2024-01-02,2\n")
    assert [row["id"] for row in read(CSV.prepare(path), path, ["id"])] == ["007", "7"]
    path = write("b.csv", "id,t,v\n0,2024-01-01,01\n-7,2024-01-02,2\n")
    assert read(CSV.prepare(path), path, ["id", "v"]) == [{"id": 0, "v": 1.0}, {"id": -7, "v": 2.0}]


def test_what_stands_for_no_value_can_be_reported(write: Write, read: Read) -> None:
    path = write("a.csv", "id,t,v\n-,2024-01-01,1\nb,2024-01-02,-\nc,2024-01-03,M\nd,2024-01-04,NA\n")
    fmt = replace(CSV, missing=("-", "M")).prepare(path)
    assert read(fmt, path, ["id", "v"]) == [
        {"id": "-", "v": 1.0},
        {"id": "b", "v": None},
        {"id": "c", "v": None},
        {"id": "d", "v": None},
    ]
    assert replace(CSV, missing="-").missing == ("-",)  # type: ignore[arg-type]
    with pytest.raises(UnknownFormatError, match="missing: expected texts such as '-', got"):
        replace(CSV, missing=(1,))  # type: ignore[arg-type]


@pytest.mark.parametrize(("separator", "shown"), [(";", "';'"), ("\t", "tab"), ("|", "'|'")])
def test_a_header_of_one_name_asks_what_separates(write: Write, separator: str, shown: str) -> None:
    path = write("a.csv", "id,t,v\na,2024-01-01,1\n".replace(",", separator))
    with pytest.raises(
        UnknownColumnError, match=rf"separated_by= \(--read separated_by={re.escape(shown)}\)"
    ):
        CSV.prepare(path)
    with pytest.raises(
        UnknownColumnError, match=r"line 1: expected names of columns, got one: .*separated_by="
    ):
        PlainCsv().prepare(path)


def test_a_first_file_without_rows_settles_nothing(write: Write, read: Read) -> None:
    one, two = write("1.csv", "id,t,v\n"), write("2.csv", "id,t,v\n1,2024-01-01,2.5\n")
    assert dict(CSV.prepare([one, two]).types) == {"id": "int64", "t": "string", "v": "double"}

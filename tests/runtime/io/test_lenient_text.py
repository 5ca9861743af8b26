"""Tuples in text: a line that does not parse is a tuple of nothing, whatever else is in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pulse.runtime.io.lenient_text import Dialect, cast_what_parses, csv_header, read_csv, read_json

TYPES = {"symbol": pa.string(), "t": pa.timestamp("us"), "price": pa.float64()}


def written(folder: Path, *lines: str) -> Path:
    file = folder / "ticks"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def details(table: pa.Table) -> list[tuple[object, ...]]:
    return [
        (row["symbol"], None if row["t"] is None else row["t"].second, row["price"])
        for row in table.to_pylist()
    ]


def test_lines_of_csv_that_do_not_parse_are_tuples_with_nulls(tmp_path: Path) -> None:
    good, second = "1.5,2024-01-01 10:00:01,a,x", " 2 ,2024-01-01 10:00:02,b,y"
    head = "price,t,symbol,note"
    whole = read_csv(written(tmp_path, head, good, second), TYPES, Dialect())
    assert details(whole) == [("a", 1, 1.5), ("b", 2, 2.0)]
    bad = ("3", "4,noon,c,z", "much,2024-01-01 10:00:05,d,z", "6,2024-01-01 10:00:06,e,z,more", '"7,8')
    found = read_csv(written(tmp_path, head, good, *bad, "", second), TYPES, Dialect())
    assert details(found) == [
        ("a", 1, 1.5),
        (None, None, None),
        ("c", None, 4.0),
        ("d", 5, None),
        (None, None, None),
        (None, None, None),
        ("b", 2, 2.0),
    ]
    assert found.schema.equals(whole.schema)
    assert read_csv(written(tmp_path, head, good, "3", second), {}, Dialect()).column(
        "price"
    ).to_pylist() == [
        1.5,
        None,
        2.0,
    ]


def test_csv_as_the_options_say_it_is_written(tmp_path: Path) -> None:
    dialect = Dialect.of({"Delimiter": ";", "header": "FALSE", "quote": "'"})
    assert dialect == Dialect(";", "'", False)
    for more in ([], ["b"]):
        found = read_csv(written(tmp_path, "'a;a';2024-01-01 10:00:01;1.5", *more), TYPES, dialect)
        assert details(found) == [("a;a", 1, 1.5), *((None, None, None) for _ in more)]
    assert csv_header(written(tmp_path, "", "﻿a|b"), Dialect("|"))[-1] == "b"


def test_bytes_that_are_no_text_do_not_make_two_keys_one(tmp_path: Path) -> None:
    rows = [
        b"price,t,symbol",
        b"1,2024-01-01 10:00:01,A\xe9",
        b"2,2024-01-01 10:00:02,A\xe8",
        b"3,2024-01-01 10:00:03,b",
    ]
    file = tmp_path / "ticks"
    file.write_bytes(b"\n".join(rows))
    assert details(read_csv(file, TYPES, Dialect())) == [
        (None, None, None),
        (None, None, None),
        ("b", 3, 3.0),
    ]
    objects = [b'{"symbol": "A\xe9", "t": "2024-01-01 10:00:01", "price": 1}', b'{"symbol": "b", "price": 2}']
    file.write_bytes(b"\n".join(objects))
    assert details(read_json(file, TYPES)) == [(None, None, None), ("b", None, 2.0)]
    file.write_bytes(b"pr\xe9ce,t\n1,2\n")
    with pytest.raises(pa.ArrowInvalid, match="first line, which names the columns"):
        read_csv(file, TYPES, Dialect())


def test_a_number_with_a_comma_is_not_read_as_another(tmp_path: Path) -> None:
    """Written 1,5 it is two fields, of which the first is not what was meant."""
    file = written(tmp_path, "symbol,t,price", "a,2024-01-01 10:00:01,1,5", "b,2024-01-01 10:00:02,2.5")
    assert details(read_csv(file, TYPES, Dialect())) == [(None, None, None), ("b", 2, 2.5)]


def test_an_empty_file_has_no_tuples(tmp_path: Path) -> None:
    for found in (read_csv(written(tmp_path), TYPES, Dialect()), read_json(written(tmp_path), TYPES)):
        assert found.schema == pa.schema(list(TYPES.items()))
        assert not found.num_rows
    for read in (
        lambda: read_csv(written(tmp_path), {}, Dialect()),
        lambda: read_json(written(tmp_path), {}),
    ):
        with pytest.raises(pa.ArrowInvalid, match="the file is empty, and no columns are listed"):
            read()
    assert csv_header(written(tmp_path), Dialect()) == []


def test_lines_of_json_that_do_not_parse_are_tuples_with_nulls(tmp_path: Path) -> None:
    good = json.dumps({"symbol": "a", "t": "2024-01-01 10:00:01", "price": 1.5})
    bad = (good[:20], "[]", good.replace("1.5", '"much"'), good.replace('"a"', "7"), good.replace("10:", "x"))
    found = read_json(written(tmp_path, good, *bad), TYPES)
    nothing = (None, None, None)
    assert details(found) == [
        ("a", 1, 1.5),
        nothing,
        nothing,
        ("a", 1, None),
        ("7", 1, 1.5),
        ("a", None, 1.5),
    ]
    without_accent = read_json(written(tmp_path, good, good[:20]), {})
    assert without_accent.column("price").to_pylist() == [1.5, None]


def test_bad_values_among_many_cost_little() -> None:
    texts = [str(k) for k in range(100_000)]
    texts[77_777] = "x"
    found = cast_what_parses(pa.array(texts), pa.int64())
    assert found.null_count == 1
    assert not found[77_777].is_valid
    assert found[99_999].as_py() == 99_999


@pytest.mark.parametrize("text", ['null\n{"x": 1}\n', '{"x": 1}\n null\n', "null\n"])
def test_a_line_that_is_null_is_a_row_of_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    got = read_json(tmp_path / "a.json", {"x": pa.float64()}).column("x").to_pylist()
    assert got == [None if "null" in line else 1.0 for line in text.splitlines()]


def test_bytes_that_are_no_text_are_refused_in_columns_that_nobody_asks_for_too(tmp_path: Path) -> None:
    file = tmp_path / "ticks"
    file.write_bytes(b"symbol,t,price,note\na,2024-01-01 10:00:01,1,x\nb,2024-01-01 10:00:02,2,\xe8\n")
    assert details(read_csv(file, TYPES, Dialect())) == [("a", 1, 1.0), (None, None, None)]

"""Files of rows: what reads, what does not and where it lies, and that pairs of a changelog are never made across it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.schema import StreamSchema
from pulse.datasets.changelog import read_changelog_files
from pulse.datasets.errors import EmptyInputError, MalformedRowError, UnreadableError
from pulse.datasets.row_files import read_rows

Write = Callable[[str, str | bytes], str]
SCHEMA = StreamSchema.of(
    key={"symbol": "string"}, time="t", modelled={"price": "step"}, unmodelled={"lots": "int64"}
)
NAMES = ("kind", "symbol", "t", "price", "lots")
EMPTY, GARBAGE = "", "garbage"


def as_csv(items: Sequence[tuple[str, ...]]) -> bytes:
    """Rows, lines that are none, and empty lines, below a header that begins with a byte order mark."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(NAMES)
    for item in items:
        if len(item) == 1:
            out.write(f"{item[0]}\n")
        else:
            rows.writerow(item)
    return out.getvalue().encode("utf-8-sig")


def as_json(items: Sequence[tuple[str, ...]]) -> bytes:
    def line(item: tuple[str, ...]) -> str:
        if len(item) == 1:
            return item[0]
        kind, symbol, t, price, lots = item
        worth = price if price == "cheap" else float(price)
        return json.dumps(dict(zip(NAMES, (kind, symbol, t, worth, int(lots)), strict=True)))

    return "\n".join([*map(line, items), ""]).encode()


def row(kind: str, price: str = "1.5", symbol: str = "IBM") -> tuple[str, ...]:
    return (kind, symbol, "2018-01-02 10:00:00", price, "1")


ITEMS = st.one_of(
    st.builds(
        row,
        st.sampled_from(["+I", "-D", "-U", "-U", "+U", "+U", "?"]),
        st.sampled_from(["1.5", "2.5", "3.5", "4.5", "cheap"]),
        st.sampled_from(["IBM", "a\nb", 'q",\n\n"r', "ü"]),
    ),
    st.sampled_from([(EMPTY,), (GARBAGE,)]),
)


def elements(items: Sequence[tuple[str, ...]]) -> list[list[tuple[str, str, float]]]:
    """What such a file says, found with one look at each item and the one after it."""
    there = [item for item in items if item != (EMPTY,)]
    found, i = [], 0
    while i < len(there):
        kind, other = there[i][0], there[i + 1][0] if i + 1 < len(there) else None
        both = there[i : i + 2] if (kind, other) == ("-U", "+U") else there[i : i + 1]
        reads = all(len(item) == len(NAMES) and item[3] != "cheap" for item in both)
        if reads and (kind in ("+I", "-D") or len(both) == 2):
            found.append([(item[0], item[1], float(item[3])) for item in both])
        i += len(both)
    return found


@pytest.mark.parametrize(("name", "written"), [("log.csv", as_csv), ("log.jsonl", as_json)])
@given(items=st.lists(ITEMS, max_size=14))
def test_a_changelog_says_what_its_lines_say(
    tmp_path_factory: pytest.TempPathFactory, name: str, written: Callable[..., bytes], items: list
) -> None:
    items = [row("+I", "9.5"), *items]  # of each kind of value, one line at least that says it
    items += [row("-D", "8.5")] * sum(item[3:4] == ("cheap",) for item in items)
    path = tmp_path_factory.mktemp("log") / name
    path.write_bytes(written(items))
    got = read_changelog_files(str(path), SCHEMA)
    expected = elements(items)
    rows = [
        tuple(one.values()) for one in got.revisions.table.select(["kind", "symbol", "price"]).to_pylist()
    ]
    assert rows == [one for element in expected for one in element]
    assert len(got.revisions) == len(expected)
    assert got.aside.num_rows == sum(item != (EMPTY,) for item in items) - len(rows)
    assert all(reason.startswith("malformed: ") for reason in got.aside.column("reason").to_pylist())


@pytest.mark.parametrize(("name", "written"), [("log.csv", as_csv), ("log.jsonl", as_json)])
def test_what_lies_between_two_halves_is_reported(
    write: Write, name: str, written: Callable[..., bytes]
) -> None:
    items = [row("+I"), row("-U"), (EMPTY,), (GARBAGE,), row("+U", "2.5"), row("-U"), (EMPTY,), row("+U")]
    got = read_changelog_files(write(name, written(items)), SCHEMA)
    assert got.revisions.table.column("kind").to_pylist() == ["+I", "-U", "+U"]
    assert got.aside.column("kind").to_pylist() == ["-U", "+U", None]
    assert got.aside.column("price").to_pylist() == [1.5, 2.5, None]
    old, new, between = got.aside.column("reason").to_pylist()
    what = between.removeprefix("malformed: ")
    assert old == f"malformed: expected the new value (+U) of this -U in the row after it, got {what}"
    assert new == f"malformed: expected the old value (-U) of this +U in the row before it, got {what}"
    assert GARBAGE in what


@pytest.mark.parametrize("rows", [3, 60_000])
def test_places_of_csv_lines_that_are_no_rows(write: Write, rows: int) -> None:
    """Also in files of more than one of Arrow's blocks."""
    lines = [f'{i},"x\n\ny"' if i % 2 else f"{i},a long text to fill blocks" for i in range(rows)]
    text = "\ufeffa,b\n\n" + "\n".join(["bad", *lines[:2], "bad", "", "bad,,", *lines[2:], "bad"])
    got = read_rows(write("a.csv", text))
    assert got.table.column("a").to_pylist() == [str(i) for i in range(rows)]
    assert got.table.column("b")[1].as_py() == "x\n\ny"
    assert [one.before for one in got.unread] == [0, 2, 2, rows]
    assert got.unread[2].reason == "malformed: expected 2 fields, got 3: 'bad,,'"


def test_headers(write: Write) -> None:
    assert read_rows(write("a.csv", '\ufeff"a b","c,d"\n1,2\n')).table.column_names == ["a b", "c,d"]
    for text in ("a,b\n", "a,b", "a,b\r\n\r\n"):
        got = read_rows(write("b.csv", text))
        assert (got.table.num_rows, got.table.column_names, got.unread) == (0, ["a", "b"], [])
    with pytest.raises(MalformedRowError, match="'a' 2 times"):
        read_rows(write("c.csv", "a,a\n1,2\n"))
    with pytest.raises(UnreadableError, match=r"d\.csv: cannot be read .*UTF8"):
        read_rows(write("d.csv", b"a,b\n\xff,2\n"))
    with pytest.raises(EmptyInputError, match="is empty"):
        read_rows(write("e.jsonl", ""))


def test_parquet_comes_as_it_is(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read_rows(str(tmp_path / "a.parquet")) == (table, [])


@pytest.mark.parametrize(
    "lines", [["null", "{}", "{}"], ["{}", " null ", "{}"], ["{}", "", "null"], ["\ufeffnull", "{}", "{}"]]
)
def test_tombstones_among_json_lines(write: Write, lines: list[str]) -> None:
    """A null in place of an object, as topics hold them after deletions; Arrow would end the process."""
    reported = iter([row("+I"), row("-D")])
    text = "\n".join(as_json([next(reported)]).decode().strip() if line == "{}" else line for line in lines)
    got = read_changelog_files(write("log.jsonl", text), SCHEMA)
    kinds = ["+I", "-D"][: lines.count("{}")]
    assert got.revisions.table.column("kind").to_pylist() == kinds
    (reason,) = got.aside.column("reason").to_pylist()
    assert reason.endswith("expected a JSON object, got null")


def test_a_row_of_too_few_fields_that_is_no_utf8_is_not_lost(write: Write) -> None:
    with pytest.raises(UnreadableError, match=r"f\.csv: cannot be read \(no UTF8 in line 3"):
        read_rows(write("f.csv", b"a,b\n1,2\n\xff\n3,4\n"))
    with pytest.raises(UnreadableError, match="no UTF8 in line 2"):
        read_rows(write("g.csv", b"a,b\n1,\xc3"))

"""Revisions and accents in one stream of a running job: a row after an accent, a revision too, speaks in the units of then."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.toml import job_of
from pulse.runtime.predict.ingest import Packer, unpacked_table
from pulse.runtime.predict.local_driver import run_local
from pulse.validation.revisions.element_matching import PAIR
from tests.effort import examples
from tests.runtime.accents.accented_jobs import EVERY, PLAIN, SECOND, close, files, held, the_job
from tests.runtime.jobs.running_jobs import aside, ran
from tests.runtime.jobs.streams import file_stream

MAPS: dict[str, Callable[[float], float]] = {
    "y * 9/5 + 32": lambda y: y * 9 / 5 + 32,
    "y / 4": lambda y: y / 4,
    "y * 3/7 - 2": lambda y: y * 3 / 7 - 2,
}
DETAILS = {"kind": "op", "revisions": "2 min", "accents": "accent", "error": 0.001}
TYPES = {
    "symbol": pa.string(),
    "t": pa.timestamp("us"),
    "price": pa.float64(),
    "size": pa.float64(),
    "op": pa.string(),
    "accent": pa.string(),
}
Row = dict[str, Any]
SHOWN = 1e-6  # to which values are rounded that are compared


def row(symbol: str, t: float, price: float, op: str = "+I") -> Row:
    return {"symbol": symbol, "t": int(t * SECOND), "price": price, "size": 1.0, "op": op, "accent": None}


def accent(t: float, map: str, who: str = "symbol = 's1'") -> Row:
    text = f"[[{who}, alter(price, {map})]]"
    return {**dict.fromkeys(TYPES), "t": int(t * SECOND), "accent": text}


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.table({name: pa.array([one[name] for one in rows], type_) for name, type_ in TYPES.items()})


def feed(seed: int, seconds: int = 40) -> list[Row]:
    """Prices of three symbols, of which some are replaced, deleted or come late; no accents."""
    random = np.random.default_rng(seed)
    rows: list[Row] = []
    there: list[tuple[str, int, float]] = []
    for t in range(seconds):
        for symbol in ("s0", "s1", "s2"):
            price = round(20 + random.normal(0, 3), 2)
            if random.random() < 0.1:
                there.append((symbol, t, price))  # comes late
                continue
            rows.append(row(symbol, t, price))
            there.append((symbol, t, price))
        if t > 5 and random.random() < 0.5:
            symbol, at, price = there[int(random.integers(len(there) - 3))]
            known = any(one["t"] == at * SECOND and one["symbol"] == symbol for one in rows)
            new = round(price + random.normal(0, 2), 2)
            there.remove((symbol, at, price))
            if not known:
                rows.append(row(symbol, at, price))
                there.append((symbol, at, price))
            elif random.random() < 0.3:
                rows.append(row(symbol, at, price, "-D"))
            else:
                rows += [row(symbol, at, price, "-U"), row(symbol, at, new, "+U")]
                there.append((symbol, at, new))
    return rows


def accented(
    rows: Sequence[Row], accents: Sequence[tuple[int, str]]
) -> tuple[list[Row], list[tuple[int, str]]]:
    """The feed with accents of s1 at seconds; what comes after one is in its units, whatever its time."""
    found: list[Row] = []
    left, received, newest = list(accents), list[str](), -1
    for one in rows:
        if one["op"] == "+I":
            newest = max(newest, one["t"] // SECOND)
        while left and newest >= left[0][0] and one["op"] != "+U":
            at, map = left.pop(0)
            found.append(accent(at, map))
            received.append(map)
        price = one["price"]
        if one["symbol"] == "s1":
            for map in received:
                price = MAPS[map](price)
        found.append({**one, "price": price})
    return found, list(accents[: len(accents) - len(left)])


def restated(found: dict[Any, Any], accents: Sequence[tuple[int, str]]) -> dict[Any, Any]:
    """Results without accents, of s1 in the units in force; steps are half seconds and a bit."""
    made = dict(found)
    for (symbol, step), (certainty, value) in found.items():
        if symbol == "s1":
            for at, map in accents:
                value = MAPS[map](value) if step / 2 + 0.137 >= at else value
            made[symbol, step] = certainty, value
    return made


def slope(accents: Sequence[tuple[int, str]]) -> float:
    """By how much all of them together may stretch a difference."""
    return float(np.prod([max(1.0, MAPS[map](1.0) - MAPS[map](0.0)) for _, map in accents]))


def run(folder: Path, rows: Sequence[Row], cuts: Sequence[int], query: str = PLAIN) -> Any:
    files(folder / "in", table(rows), [cut for cut in cuts if rows[cut]["op"] != "+U"])
    return run_local(the_job(folder, query, stream=DETAILS))


@examples(8)
@given(
    seed=st.integers(0, 10**6),
    seconds=st.lists(st.integers(3, 36), min_size=1, max_size=3, unique=True),
    maps=st.lists(st.sampled_from(sorted(MAPS)), min_size=3, max_size=3),
    cuts=st.lists(st.integers(1, 100), max_size=4, unique=True),
)
def test_a_feed_that_speaks_in_the_units_of_now(
    seed: int, seconds: list[int], maps: list[str], cuts: list[int]
) -> None:
    """Old and new values of a revision alike: what holds is what holds without accents, restated."""
    rows = feed(seed)
    details, accents = accented(rows, list(zip(sorted(seconds), maps, strict=False)))
    with tempfile.TemporaryDirectory() as plain, tempfile.TemporaryDirectory() as folder:
        without = run(Path(plain), rows, cuts)
        found = run(Path(folder), details, cuts)
        assert found.tally.revisions == without.tally.revisions > 0
        assert found.tally.aside == without.tally.aside == 0
        expected = restated(held(read_changes(Path(plain) / "out"), "price"), accents)
        got = held(read_changes(Path(folder) / "out"), "price")
        assert got.keys() == expected.keys()
        # Prices are whole cents and the error is a tenth of one: what was validated is the price, but for what is shown of it.
        for at, (certainty, value) in got.items():
            assert certainty == expected[at][0]
            assert abs(value - expected[at][1]) <= SHOWN * (1 + slope(accents if at[0] == "s1" else ()))


def test_windows_over_revised_tuples(tmp_path: Path) -> None:
    rows = feed(7)
    details, accents = accented(rows, [(15, "y / 4")])
    for name, some in (("plain", rows), ("accented", details)):
        run(tmp_path / name, some, [40, 80], EVERY)
    expected = held(read_changes(tmp_path / "plain" / "out"))
    assert close(held(read_changes(tmp_path / "accented" / "out")), restated(expected, accents))


def test_old_values_are_those_of_now_and_match_to_rounding(tmp_path: Path) -> None:
    """20.5 °C was recorded; the feed cancels 68.9 °F, which is 20.500000000000004 °C to a double. 20.5 °F was never there."""
    first = [row("s1", t, 20.5) for t in range(5)]
    details = [*first, accent(5, "y * 9/5 + 32"), row("s1", 5, 68.9)]
    good = [row("s1", 2, 68.9, "-U"), row("s1", 2, 71.6, "+U"), row("s1", 3, 68.9, "-D")]
    bad = [row("s1", 4, 20.5, "-D"), row("s1", 1, 68.90001, "-U"), row("s1", 1, 70.0, "+U")]
    found = run(tmp_path, [*details, *good, *bad, row("s1", 6, 68.9)], [])
    assert (found.tally.revisions, found.tally.aside) == (2, 3)
    got = held(read_changes(tmp_path / "out"), "price")
    assert got["s1", 5][1] == pytest.approx(22.0)  # 71.6 °F, of a time before the accent
    assert got["s1", 7][1] == pytest.approx(22.0)  # held: what came at 3 s is gone
    assert got["s1", 11][1] == pytest.approx(68.9)


def test_an_accent_between_two_halves_does_not_part_them(tmp_path: Path) -> None:
    rows = [*(row("s1", t, 20.5) for t in range(5)), row("s1", 3, 20.5, "-U")]
    rows += [accent(5, "y * 9/5 + 32"), row("s1", 3, 71.6, "+U"), row("s1", 5, 68.9)]
    found = run(tmp_path, rows, [])
    assert (found.tally.revisions, found.tally.aside) == (1, 0)
    assert held(read_changes(tmp_path / "out"), "price")["s1", 7][1] == pytest.approx(22.0)
    own = table(rows)
    for name, type_ in (("_place", pa.int32()), ("_modified", pa.int64()), ("_block", pa.int64())):
        own = own.append_column(name, pa.array([0] * len(rows), type_))
    own = own.append_column("_origin", pa.array(["file:/a"] * len(rows)))
    (parcel,) = Packer("S", "op", ("symbol",), "accent", 1)(iter(own.to_batches()))
    packed = unpacked_table(parcel.column("payload")[0].as_py())
    assert np.flatnonzero(packed.column(PAIR).to_numpy()).tolist() == [5]
    opens = Packer("S", "op", ("symbol",), "accent", 1)._opens
    assert [opens(one) for one in (own.slice(0, 7).to_batches()[0], own.to_batches()[0])] == [True, False]


def test_spark_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    rows = feed(3)
    details, _ = accented(rows, [(12, "y * 9/5 + 32"), (25, "y / 4")])
    run(tmp_path / "local", details, [50, 90])
    files(tmp_path / "spark" / "in", table(details), [cut for cut in (50, 90) if details[cut]["op"] != "+U"])
    job = the_job(tmp_path / "spark", PLAIN, stream=DETAILS, checkpoint="checkpoint")
    ran(spark, job)
    expected, got = (held(read_changes(tmp_path / one / "out"), "price") for one in ("local", "spark"))
    assert close(got, expected)
    assert not aside(tmp_path / "spark")


@pytest.mark.parametrize("way", ["log", "rows"])
@pytest.mark.parametrize("revised", [False, True])
def test_rows_are_set_aside_as_they_came(tmp_path: Path, way: str, revised: bool) -> None:
    """A quarter from 5 s on: who looks for what was set aside finds the numbers that are in the file."""
    details = [
        ("+I", "a", 0, 100.0, None),
        ("+I", None, 5, None, "[[k = 'a', alter(v, y / 4)]]"),
        ("+I", "a", 10, 25.0, None),
        ("+I", "b", 10, 70.0, None),
        ("-D" if revised else "+I", "a", 8, 77.0, None),
        ("-D" if revised else "+I", "b", 8, 88.0, None),
    ]
    op, k, t, v, accent = zip(*[row for row in details if way == "rows" or row[1]], strict=True)
    times = pa.array([one * 1_000_000 for one in t], pa.timestamp("us"))
    (tmp_path / "in").mkdir()
    table = pa.table({"op": op, "k": k, "t": times, "v": v, "accent": pa.array(accent, pa.string())})
    pq.write_table(table, tmp_path / "in" / "0.parquet")
    (tmp_path / "a.log").write_text("1970-01-01T00:00:05 [[k = 'a', alter(v, y / 4)]]\n", encoding="utf-8")
    accents = "accent" if way == "rows" else "a.log"
    revisions = {"kind": "op", "revisions": "5 min"} if revised else {}
    stream = file_stream("k", {"v": "step"}, error=0, horizon="60 s", accents=accents, **revisions)
    values = {
        "query": "select k, v from S",
        "streams": {"S": stream},
        "checkpoint": "kept",
        "sink": {"kind": "none"},
    }
    run_local(job_of(values, folder=tmp_path))
    (file,) = (tmp_path / "kept" / "aside").rglob("*.parquet")
    rows = pq.ParquetFile(file).read().to_pylist()
    assert {(row["k"], row["v"]) for row in rows} == {("a", 77.0), ("b", 88.0)}
    start = {row["k"]: "units of the stream's start" in row["reason"] for row in rows}
    assert start == {"a": revised, "b": False}
    assert not any(name.startswith("_pulse") for name in rows[0])

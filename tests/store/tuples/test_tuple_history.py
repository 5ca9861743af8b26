"""The tuples of a model: wherever they are read from, they are those that were modelled, revised as the log says."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.core.regions import Regions
from pulse.core.time import EARLIEST, LATEST
from pulse.store.errors import HistoryGoneError, SourceChangedError
from pulse.store.model import Model
from pulse.store.tuples.tuple_history import TupleHistory
from pulse.store.vacuum import vacuum
from pulse.store.versions.writer import begin_revision
from pulse.stream.revisions import revision_schema

ASKED: dict[str, Any] = {
    "key": "k",
    "time": "t",
    "model": {"x": "step"},
    "error": 0,
    "keep": "u",
    "late": "aside",
}
Tuple = tuple[str, int, float, str]  # key, time, x, u
SECOND = 1_000_000


def feed(rng: random.Random, n: int, start: int = 0) -> list[Tuple]:
    """Tuples as they arrive: instants that repeat, and some that are late."""
    rows: list[Tuple] = []
    for i in range(n):
        at = start + i // 3 - (rng.randrange(20) if rng.random() < 0.1 else 0)
        rows.append((rng.choice("abc"), max(at, 0) * SECOND, float(rng.randrange(4)), rng.choice("pq")))
    return rows


def in_time(rows: list[Tuple]) -> list[Tuple]:
    """Without those earlier than their key's newest; by key, time and arrival."""
    newest: dict[str, int] = {}
    kept = []
    for row in rows:
        if row[1] >= newest.get(row[0], row[1]):
            newest[row[0]] = row[1]
            kept.append(row)
    return sorted(kept, key=lambda row: row[:2])


def table_of(rows: list[Tuple]) -> pa.Table:
    k, t, x, u = zip(*rows, strict=True)
    return pa.table({"k": list(k), "t": pa.array(t, pa.timestamp("us")), "x": list(x), "u": list(u)})


def rows_of(table: pa.Table) -> list[Tuple]:
    times = table["t"].cast(pa.int64()).to_pylist()
    return list(
        zip(table["k"].to_pylist(), times, table["x"].to_pylist(), table["u"].to_pylist(), strict=True)
    )


def files(folder: Path, rows: list[Tuple], number: int) -> list[str]:
    folder.mkdir(exist_ok=True)
    paths = []
    for i, part in enumerate(np.array_split(np.arange(len(rows)), number)):
        paths.append(str(folder / f"{i}.parquet"))
        pq.write_table(table_of([rows[j] for j in part]), paths[-1], row_group_size=40)
    return paths


def revised(rows: list[Tuple], rng: random.Random, n: int) -> tuple[list[Tuple], list[tuple[str, Tuple]]]:
    """Random revisions of tuples: the tuples after them, and the rows of a changelog."""
    rows, log = list(rows), []
    for _ in range(n):
        kind = rng.randrange(4)
        new = (rng.choice("abcd"), rng.randrange(60) * SECOND, rng.random(), rng.choice("pq"))
        if kind == 0:
            log.append(("+I", new))
        else:
            old = rng.choice(rows)
            at = len(rows) - 1 - rows[::-1].index(old)
            del rows[at]
            if kind == 1:
                log.append(("-D", old))
            elif kind == 2:
                log += [("-U", old), ("+U", new)]
            else:
                log += [("-U", old), ("+U", (*old[:2], *new[2:]))]
                rows.insert(at, (*old[:2], *new[2:]))
        if kind in (0, 2):
            rows.insert(sum(row[:2] <= new[:2] for row in rows), new)
    return rows, log


def log_table(model: Model, log: list[tuple[str, Tuple]]) -> pa.Table:
    details = table_of([row for _, row in log])
    details = details.add_column(0, "kind", pa.array([kind for kind, _ in log]))
    details = details.add_column(1, "known", pa.nulls(len(log), pa.timestamp("us")))
    return details.select(revision_schema(model.schema).names).cast(revision_schema(model.schema))


def asked(rows: list[Tuple], regions: list[tuple[str, int, int]], neighbours: int) -> list[Tuple]:
    """The tuples in the regions, and instants next to them."""
    chosen = set()
    for key, start, end in regions:
        instants = sorted({row[1] for row in rows if row[0] == key})
        within = {t for t in instants if start <= t < end}
        before = [t for t in instants if t < start][-neighbours:] if neighbours else []
        after = [t for t in instants if t >= end][:neighbours]
        chosen |= {(key, t) for t in (*within, *before, *after)}
    return [row for row in rows if row[:2] in chosen]


def regions_of(given: list[tuple[str, int, int]]) -> Regions:
    k, start, end = zip(*given, strict=True)
    return Regions((pa.array(k),), np.array(start), np.array(end))


def check(history: TupleHistory, rows: list[Tuple], rng: random.Random) -> None:
    assert rows_of(history.read(regions_of([(key, EARLIEST, LATEST) for key in "abcd"]))) == rows
    for _ in range(3):
        given = []
        for _ in range(rng.choice([1, 2, 50])):
            start = rng.randrange(70) * SECOND - rng.randrange(2)
            given.append((rng.choice("abcd"), start, start + rng.randrange(1, 6 * SECOND)))
        neighbours = rng.randrange(1, 3)
        assert rows_of(history.read(regions_of(given), neighbours)) == asked(rows, given, neighbours)


@pytest.mark.parametrize("kept", [(True, True), (False, False), (True, False), (False, True)])
def test_tuples_are_those_modelled_with_the_log_on_top(tmp_path: Path, kept: tuple[bool, bool]) -> None:
    """Of two fits, each with its tuples kept or in its source files; with revisions, some not committed yet."""
    rng = random.Random(sum(kept))
    session, out = pulse.Session(engine="local"), tmp_path / "m"
    first, second = feed(rng, 150), feed(rng, 60, start=45)
    model = session.fit(files(tmp_path / "1", first, 2), **ASKED, out=out, keep_tuples=kept[0])
    check(TupleHistory(model), in_time(first), rng)
    model = session.fit(
        files(tmp_path / "2", second, 3),
        **ASKED,
        out=out,
        append=True,
        keep_tuples="all" if kept[1] else False,
    )
    assert tuple(fit["tuples"] is not None for fit in model.manifest.history["fits"]) == kept
    rows = in_time([*first, *second])
    check(TupleHistory(model), rows, rng)
    for _ in range(2):
        rows, log = revised(rows, rng, 40)
        with begin_revision(model) as writer:
            writer.add_log(writer.target.log(log_table(model, log)))
            model = writer.commit({})
        check(TupleHistory(model), rows, rng)
    rows, log = revised(rows, rng, 40)
    check(TupleHistory(model).after(log_table(model, log)), rows, rng)


@pytest.mark.parametrize("seed", range(4))
def test_neighbours_across_silences(tmp_path: Path, seed: int) -> None:
    """Tuples come in bursts, and several places are asked at once: one that was read for another place is no neighbour."""
    rng = random.Random(seed)
    times, at = [], 0
    for i in range(2000):
        at += 100_000 if i % 300 == 299 else 1
        times.append(at * SECOND)
    rows = in_time([(rng.choice("abc"), t, float(i), "p") for i, t in enumerate(times)])
    model = pulse.Session(engine="local").fit(table_of(rows), **ASKED, out=tmp_path / "m", keep_tuples="all")
    for _ in range(20):
        given = []
        for _ in range(rng.choice([1, 2, 5])):
            burst = 300 * rng.randrange(7)
            start = times[burst + rng.randrange(20)] + rng.choice([-1, 0, 1, -5_000 * SECOND])
            given.append((rng.choice("abc"), start, start + rng.choice([1, SECOND, 100 * SECOND])))
        neighbours = rng.randrange(3)
        assert rows_of(TupleHistory(model).read(regions_of(given), neighbours)) == asked(
            rows, given, neighbours
        )


def test_what_is_appended_is_kept_as_before_if_nothing_is_reported(tmp_path: Path) -> None:
    session, out, rng = pulse.Session(engine="local"), tmp_path / "m", random.Random(1)
    first, second = feed(rng, 30), feed(rng, 30, start=20)
    session.fit(table_of(first), **ASKED, out=out, keep_tuples=True)
    model = session.fit(table_of(second), **ASKED, out=out, append=True)
    by_time = [
        *sorted(first, key=lambda row: row[:2]),
        *sorted(second, key=lambda row: row[:2]),
    ]  # as tables are
    check(TupleHistory(model), in_time(by_time), rng)


def test_on_spark_the_workers_keep_them(tmp_path: Path, spark: Any) -> None:
    rng, session = random.Random(2), pulse.Session(spark=spark)
    rows = feed(rng, 150)
    model = session.fit(files(tmp_path / "1", rows, 2), **ASKED, out=tmp_path / "m", keep_tuples=True)
    assert len(model.manifest.history["fits"][0]["tuples"]) == 4
    check(TupleHistory(model), in_time(rows), rng)


def test_values_that_are_no_numbers_are_tuples_where_they_make_holes(tmp_path: Path) -> None:
    rows: list[Tuple] = [("a", 0, 1.0, "p"), ("a", 5, np.nan, "p"), ("a", 3, np.nan, "p"), ("a", 9, 2.0, "p")]
    for nonfinite, wanted in (("reject", [0, 9]), ("hole", [0, 5, 9])):
        for keep in (True, False):
            folder = tmp_path / f"{nonfinite}-{keep}"
            folder.mkdir()
            model = pulse.Session(engine="local").fit(
                files(folder / "in", rows, 1),
                **ASKED,
                nonfinite=nonfinite,
                keep_tuples=keep,
                out=folder / "m",
            )
            found = TupleHistory(model).read(regions_of([("a", EARLIEST, LATEST)]))
            assert found["t"].cast(pa.int64()).to_pylist() == wanted


# -- what is gone -------------------------------------------------------------------------------------------------


def test_a_retention_keeps_the_newest_and_says_what_is_gone(tmp_path: Path) -> None:
    rows: list[Tuple] = [(key, i * SECOND, float(i % 7), "p") for i in range(300) for key in "ab"]
    rows += [("n", 290 * SECOND, 1.0, "p"), ("n", 299 * SECOND, 2.0, "p")]
    rows = sorted(rows, key=lambda row: row[1])
    model = pulse.Session(engine="local").fit(
        files(tmp_path / "1", rows, 6), **ASKED, out=tmp_path / "m", keep_tuples="50 s"
    )
    history = TupleHistory(model)
    assert history.since() == 249 * SECOND
    names = {file["name"] for file in model.manifest.history["fits"][0]["tuples"]}
    assert names == {path.name for path in model.path.glob("_tuples-*")}
    assert 0 < len(names) < 15
    given = [("a", 270 * SECOND, 272 * SECOND), ("n", EARLIEST, LATEST)]
    assert rows_of(history.read(regions_of(given))) == asked(sorted(rows), given, 1)
    with pytest.raises(
        HistoryGoneError,
        match=r"older than the history kept: tuples since 1970-01-01T00:04:00.* are needed; .* since 1970-01-01T00:04:09.*50 s",
    ):
        history.read(regions_of([("a", 240 * SECOND, 272 * SECOND)]))
    with pytest.raises(HistoryGoneError, match="the tuple before 1970-01-01T00:04:09"):
        history.read(regions_of([("b", 249 * SECOND, 250 * SECOND)]))
    with pytest.raises(HistoryGoneError, match="tuples since the beginning are needed"):
        history.read(regions_of([("a", EARLIEST, LATEST)]))


def test_a_retention_moves_on_with_what_is_appended(tmp_path: Path) -> None:
    session, out = pulse.Session(engine="local"), tmp_path / "m"
    for start in (0, 100, 200):
        rows: list[Tuple] = [("a", (start + i) * SECOND, float(i % 7), "p") for i in range(100)]
        model = session.fit(table_of(rows), **ASKED, out=out, append=start > 0, keep_tuples="30 s")
    assert TupleHistory(model).since() == 269 * SECOND
    vacuum(out, retain=0)
    assert [path.name[: len("_tuples-002")] for path in out.glob("_tuples-*")] == ["_tuples-002"]


@pytest.mark.parametrize("how", ["longer", "touched", "gone"])
def test_a_source_that_changed_is_not_trusted(tmp_path: Path, how: str) -> None:
    rows = feed(random.Random(1), 50)
    (path,) = files(tmp_path / "1", rows, 1)
    model = pulse.Session(engine="local").fit(path, **ASKED, out=tmp_path / "m")
    everything = regions_of([("a", EARLIEST, LATEST)])
    assert TupleHistory(model).read(everything).num_rows > 0
    if how == "longer":
        pq.write_table(table_of(rows[1:]), path)
    elif how == "touched":
        os.utime(path, (1, 1))
    else:
        Path(path).unlink()
    error, text = (
        (HistoryGoneError, "which is gone")
        if how == "gone"
        else (SourceChangedError, "has changed since the fit")
    )
    with pytest.raises(error, match=f"{text}.*--keep-tuples all"):
        TupleHistory(model).read(everything)


def test_what_was_in_no_file_can_only_be_kept() -> None:
    model = pulse.Session(engine="local").fit(table_of(feed(random.Random(1), 50)), **ASKED)
    with pytest.raises(HistoryGoneError, match=r"in no file that can be read again; .*--keep-tuples"):
        TupleHistory(model).read(regions_of([("a", 0, 1)]))
    assert (
        TupleHistory(model).read(Regions((pa.array([], pa.string()),), np.array([]), np.array([]))).num_rows
        == 0
    )


@pytest.mark.parametrize("given", ["0 s", "soon", -1])
def test_a_retention_that_is_none(given: Any) -> None:
    with pytest.raises(ValueError, match=r"keep_tuples|duration"):
        pulse.Session(engine="local").fit(table_of(feed(random.Random(1), 5)), **ASKED, keep_tuples=given)


def test_a_text_source_is_read_again_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ticks.csv"
    lines = [f"a,2020-01-01T00:00:{i:02d},{i % 5},p" for i in range(30)]
    path.write_text("\n".join(["k,t,x,u", *lines]), encoding="utf-8")
    model = pulse.Session(engine="local").fit(path, **ASKED, out=tmp_path / "m")
    table = TupleHistory(Model(model.path)).read(regions_of([("a", EARLIEST, LATEST)]))
    assert table["x"].to_pylist() == [i % 5 for i in range(30)]


def test_a_stream_without_a_key(tmp_path: Path) -> None:
    rows: list[Tuple] = [("a", i * SECOND, float(i), "p") for i in range(50)]
    options = {**ASKED, "key": None}
    model = pulse.Session(engine="local").fit(table_of(rows), **options, out=tmp_path / "m", keep_tuples=True)
    found = TupleHistory(model).read(Regions((), np.array([10 * SECOND]), np.array([12 * SECOND])))
    assert found["x"].to_pylist() == [9.0, 10.0, 11.0, 12.0]

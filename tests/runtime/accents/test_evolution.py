"""Attributes that come and go in a running stream, with all else that changes; what is kept of it does not grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pulse.core.schema import StreamSchema
from pulse.core.time import format_instant
from pulse.operators.units.apply_maps import Alter
from pulse.operators.units.to_base_units import CONTRADICTS
from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.spec import Predictor
from pulse.stream.accents.log import AccentLog
from tests.runtime.accents.accented_jobs import (
    PLAIN,
    Run,
    at,
    close,
    cut,
    files,
    held,
    late,
    marked,
    predictors_of,
    split,
    the_job,
    ticks,
    without,
)
from tests.runtime.jobs.running_jobs import arrive, aside, ran
from tests.runtime.predict.restarting import restarted_run, size_of
from tests.runtime.predict.stages import staged

BOTH = "select symbol, price, size from S"
COLUMNS = {
    "symbol": "string",
    "t": "timestamp[us]",
    "price": "double",
    "size": "double",
    "accent": "string",
}
SIZES = {"model": {"price": "step", "size": "step"}, "columns": COLUMNS, "adds": ["size"]}


def where(table: pa.Table, spans: Iterable[tuple[int, int]], key: str = "") -> pa.Table:
    """With sizes only within spans of time, of a key or of all."""
    t = table["t"].cast(pa.int64()).to_numpy()
    there = np.zeros(len(t), bool)
    for begin, end in spans:
        there |= (t >= begin) & (t < end)
    if key:
        there &= np.array(table["symbol"].to_pylist()) == key
    place = table.column_names.index("size")
    return table.set_column(place, "size", pa.array(table["size"].to_numpy(), mask=~there))


def lacking(table: pa.Table) -> list[str]:
    """Why tuples without a size are set aside."""
    return ["without 'size', by accents"] * table["size"].null_count


def reasons(run: Run) -> list[str]:
    return [row["reason"] for row in run.aside]


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    return predictors_of(tmp_path_factory.mktemp("jobs"), {"both": (BOTH, SIZES), "plain": (PLAIN, {})})


@pytest.mark.parametrize("place", ["rows", "log"])
def test_a_feed_gains_an_attribute_loses_it_and_gains_it_again(
    predictors: dict[str, Predictor], place: str
) -> None:
    spans = [(at(10), at(25)), (at(35), at(60))]
    data = where(ticks(60), spans)
    reported = [
        (at(10), "[[true, add(size)]]"),
        (at(25), "[[true, drop(size)]]"),
        (at(35), "[[true, add(size)]]"),
    ]
    run = Run(predictors[f"both {place}"])
    if place == "rows":
        for one in cut(marked(data, reported), [20, 31, 90, 120]):
            run.take({"S": one})
            run = restarted_run(run)
    else:
        for i, one in enumerate(cut(data, [20, 31, 90])):
            run.take(
                {"S": one},
                {"S": [f"{format_instant(when)} {text}" for when, text in reported] if not i else []},
            )
    assert (run.accents, reasons(run)) == (3, lacking(data))
    got = held(run.changes, "size")
    plain = Run(predictors["both none"])
    plain.take({"S": ticks(60)})
    expected = held(plain.changes, "size")
    there = {key for key in expected if any(late(key[1], a) and not late(key[1], b) for a, b in spans)}
    assert len(there) > 200
    sure = {key for key in got if key[1] < 118}
    assert sure == {key for key in there if key[1] < 118}
    assert close({key: got[key] for key in sure}, {key: expected[key] for key in sure})


def test_an_attribute_of_one_key_is_modelled_for_that_key(predictors: dict[str, Predictor]) -> None:
    data = where(ticks(30), [(at(10), at(30))], "s1")
    run = Run(predictors["both rows"])
    run.take({"S": marked(data, [(at(10), "[[symbol = 's1', add(size)]]")])})
    assert reasons(run) == lacking(data)
    assert run.prediction.tally.tuples + len(run.aside) == data.num_rows
    got = held(run.changes, "size")
    assert {key[0] for key in got} == {"s1"}
    assert min(key[1] for key in got) == 20


@pytest.mark.parametrize("text", ["[[true, drop(size)]]", "[[true, alter(size, y / 2)]]"])
def test_what_is_not_there_yet_cannot_be_changed(predictors: dict[str, Predictor], text: str) -> None:
    run = Run(predictors["both rows"])
    run.take({"S": marked(where(ticks(10), []), [(at(3), text)])})
    (row,) = (row for row in run.aside if row.get("accent"))
    assert "expected an attribute that exists, got 'size'" in row["reason"]
    assert len(run.aside) == 31


@pytest.mark.parametrize("declared", [True, False])
def test_files_without_a_column_until_an_accent_adds_it(
    tmp_path: Path, declared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """In process, with a restart between the accent and its data; the first file tells what is not there, or the job does."""
    data = ticks(60)
    first, second = data.slice(0, 90).drop_columns(["size"]), data.slice(90)
    files(tmp_path / "in", first, [])
    more = {**SIZES, "accents": "log.jsonl"}
    more["columns"] = {name: type_ for name, type_ in COLUMNS.items() if name != "accent"}
    if not declared:
        del more["adds"], more["columns"]
    job = the_job(tmp_path, BOTH, stream=more, checkpoint="checkpoint")
    assert run_local(job).tally.aside == 0
    slips = [one.getMessage() for one in caplog.records if "got 'size'" in one.getMessage()]
    assert ["name it in 'adds'" in one for one in slips] == [True] * (not declared)
    (tmp_path / "log.jsonl").write_text(f"{format_instant(at(30))} [[true, add(size)]]\n")
    run_local(job)
    arrive(tmp_path / "in", 100, second)
    found = run_local(job)
    assert found.tally.aside == 0
    got = held(read_changes(tmp_path / "out"), "size")
    assert min(key[1] for key in got) == 60
    assert {key[0] for key in got} == {"s0", "s1", "s2"}


# -- whatever the batches ----------------------------------------------------------------------------------------


@st.composite
def evolving(draw: st.DrawFn) -> tuple[Any, ...]:
    """A feed of prices and sizes: splits, sizes that come and go, keys that end; and how it is cut."""
    splits = draw(st.lists(st.tuples(st.integers(2, 28), st.sampled_from(["s0", "s1", "s2"])), max_size=4))
    turns = sorted(draw(st.lists(st.integers(1, 29), min_size=1, max_size=4, unique=True)))
    end = draw(st.one_of(st.none(), st.tuples(st.sampled_from(["s0", "s1"]), st.integers(5, 29))))
    cuts = draw(st.lists(st.integers(0, 90), max_size=4))
    return sorted(set(splits)), turns, end, cuts, draw(st.integers(0, 4))


def evolved(drawn: tuple[Any, ...]) -> tuple[pa.Table, list[tuple[int, str]]]:
    splits, turns, end, _, _ = drawn
    data, reported = ticks(30), list[tuple[int, str]]()
    for second, key in splits:
        data = split(data, at(second), key=key)
        reported.append((at(second), f"[[symbol = '{key}', alter(price, y / 4)]]"))
    spans = [(at(a), at(b)) for a, b in zip(turns[::2], [*turns[1::2], 30], strict=False)]
    data = where(data, spans)
    reported += [(at(one), f"[[true, {'drop' if i % 2 else 'add'}(size)]]") for i, one in enumerate(turns)]
    if end is not None:
        data = without(data, end[0], at(end[1]))
        reported.append((at(end[1]), f"[symbol = '{end[0]}']"))
    return data, sorted(reported, key=lambda pair: pair[0])


@given(evolving())
@settings(deadline=None)
def test_any_batches_give_the_same(predictors: dict[str, Predictor], drawn: tuple[Any, ...]) -> None:
    data, reported = evolved(drawn)
    cuts, restart = drawn[3], drawn[4]
    once, often, beside = (Run(predictors[f"both {one}"]) for one in ("rows", "rows", "log"))
    once.take({"S": marked(data, reported)})
    for i, one in enumerate(cut(marked(data, reported), cuts)):
        often.take({"S": one})
        if i == restart:
            often = restarted_run(often)
    accents = [f"{format_instant(when)} {text}" for when, text in reported if text.startswith("[[")]
    beside.take({"S": data}, {"S": accents})
    # A log is read before the rows that come with it, whatever their times.
    beside.take({"S": data.slice(0, 0)}, {"S": [text for _, text in reported if not text.startswith("[[")]})
    staged_, rest = staged(
        predictors["both rows"],
        [({"S": one}, {}) for one in cut(marked(data, reported), cuts) if one.num_rows],
    )
    for value in ("price", "size"):
        expected = _confirmed(held(once.changes, value))
        assert close(_confirmed(held(often.changes, value)), expected)
        assert close(_confirmed(held(beside.changes, value)), expected)
        assert close(_confirmed(held(staged_, value)), expected)
    for run in (once, often):
        assert (run.accents, reasons(run)) == (len(reported), lacking(data))
    assert sum(one["accents"] for one in rest) == len(reported)
    assert sum(one["aside"] for one in rest) == data["size"].null_count


def _confirmed(found: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: one for key, one in found.items() if key[1] < 58}


# -- what is kept ------------------------------------------------------------------------------------------------


def test_what_is_kept_does_not_grow_with_accents(predictors: dict[str, Predictor]) -> None:
    """Splits forth and back, in every batch of a long run; the state after many is about that after few."""
    run = Run(predictors["plain log"])
    sizes, maps = [], ("y / 2", "y * 2")
    for i in range(40):
        begin = 60 * i
        data = ticks(60).set_column(1, "t", pc.add(ticks(60)["t"], pa.scalar(at(begin), pa.duration("us"))))
        lines = [
            f"{format_instant(at(begin) + 50_000 * j)} [[symbol = 's{j % 100}', alter(price, {maps[j // 100 % 2]})]]"
            for j in range(400)
        ]
        run.take({"S": _as_recorded(data, lines)}, {"S": lines})
        sizes.append(size_of(run))
    assert run.accents == 16_000
    assert run.aside == []
    assert max(sizes[20:]) < 1.2 * max(sizes[5:12])
    assert run.prediction.tally.violations < 2_000


def _as_recorded(data: pa.Table, lines: list[str]) -> pa.Table:
    schema = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
    steps = AccentLog.parse(lines, times=["t"]).checked(schema).steps("t")
    batch = data.combine_chunks().to_batches()[0]
    return pa.Table.from_batches([Alter(steps).tuples(batch, schema)])


# -- Spark -------------------------------------------------------------------------------------------------------


def test_spark_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Splits, sizes that come and go, a key that ends and comes again, and a restart in between."""
    drawn = [(10, "s1"), (20, "s0")], [5, 12, 18], ("s2", 22), [], 0
    data, reported = evolved(drawn)
    stray = ticks(30).slice(89, 1)  # of s2, at the end
    data = pa.concat_tables([data, where(stray, [(0, at(60))])])
    whole = marked(data, reported)
    parts = cut(whole, [16, 40, 60])
    more = {**SIZES, "accents": "accent"}
    job = the_job(tmp_path, BOTH, stream=more, checkpoint="checkpoint")

    (tmp_path / "in").mkdir()
    tuples = accents = 0
    for number, one in enumerate(parts):
        arrive(tmp_path / "in", number, one)
        if number in (1, 3):
            status = ran(spark, job)
            tuples, accents = tuples + status.tally.tuples, accents + status.tally.accents
    run = Run(predictor_of(job))
    for one in parts:
        run.take({"S": one})
    assert (tuples, accents) == (run.prediction.tally.tuples + len(run.aside), len(reported))
    assert sorted(reasons(run)) == sorted([CONTRADICTS, *lacking(data)])
    assert sorted(row["reason"] for row in aside(tmp_path)) == sorted(reasons(run))
    for value in ("price", "size"):
        assert close(held(read_changes(tmp_path / "out"), value), held(run.changes, value))

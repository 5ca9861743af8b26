"""What jobs do about accents that only tuples tell, and about those that they cannot follow; on Spark as in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pulse.core.time import format_instant
from pulse.operators.units.to_base_units import CONTRADICTS
from pulse.runtime.accents.follower import JobAbortedError
from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.spec import Predictor
from tests.runtime.accents.accented_jobs import Run, at, close, cut, files
from tests.runtime.accents.test_unit_history import (
    KINDS,
    confirmed,
    feed,
    fitted,
    in_rows,
    raw_job,
    recorded,
    reported_of,
    table,
)
from tests.runtime.jobs.running_jobs import arrive, aside, final, ran
from tests.runtime.predict.restarting import restarted_run
from tests.runtime.predict.stages import staged

MIXED = [
    (at(4), "[[price < 3, alter(size, y * 4)]]"),
    (at(8), "[[venue = 'N', alter(price, y * 2)]]"),
    (at(12), "[[true, alter(n, y * 10)]]"),
    (at(14), "[[n < 20 and price < 8, alter(size, y / 2)]]"),
]


def lines(reported: list[tuple[int, str]]) -> list[str]:
    return [f"{format_instant(when)} {text}" for when, text in reported]


def wanted(now: pa.Table, reported: list[tuple[int, str]], value: str = "size") -> dict[Any, Any]:
    return confirmed(reported_of(fitted(now, reported), value))


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    folder = tmp_path_factory.mktemp("raw")
    found = {}
    for where, accents in (("rows", "accent"), ("log", "x.jsonl")):
        found[where] = predictor_of(raw_job(folder, accents))
        found[f"dealt {where}"] = predictor_of(raw_job(folder, accents), dealt=True)
        found[f"top {where}"] = predictor_of(raw_job(folder, accents, "select max(size) as size from S"))
    return found


# -- what cannot be followed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[venue = 3, alter(price, y * 2)]]", "'venue' is string, expected a string, got a number"),
        ("[[true, alter(venue, y * 2)]]", "'venue' is string, expected numbers"),
        ("[[price = 'x', alter(size, y * 2)]]", "expected a number, got a string"),
        (
            "[[true, alter(s, y + 100)]]",
            "partitioned by its recorded values; start the job with buckets",
        ),
    ],
)
@pytest.mark.parametrize("where", ["rows", "log"])
def test_what_a_job_cannot_follow_is_set_aside_by_name(
    predictors: dict[str, Predictor], where: str, text: str, reason: str
) -> None:
    rows, run = feed(), Run(predictors[f"dealt {where}"])
    reported, now = [(at(5), text)], table(rows)
    if where == "rows":
        run.take({"S": in_rows(rows, now, reported)})
    else:
        run.take({"S": now}, {"S": lines(reported)})
    (row,) = run.aside
    assert reason in row["reason"]
    assert "fit" not in row["reason"].split(":", 2)[-1]
    assert run.prediction.tally.tuples == 48


def test_times_that_are_put_back_are_reported_by_place_and_not_by_a_log(
    predictors: dict[str, Predictor],
) -> None:
    reported, rows = [(at(5), "[[true, alter(t, y - 3000000)]]")], feed()
    now = table(recorded(rows, reported))
    inside, beside = Run(predictors["rows"]), Run(predictors["log"])
    for one in cut(in_rows(rows, now, reported), [11, 20]):
        inside.take({"S": one})
    assert inside.aside == []
    assert close(confirmed(reported_of(inside.changes, "size")), wanted(table(rows), []))
    beside.take({"S": table(rows)}, {"S": lines(reported)})
    (row,) = beside.aside
    assert "cannot decide" in row["reason"]


def test_columns_that_are_not_plain_are_named(tmp_path: Path) -> None:
    data = table(feed(8)).append_column("tags", pa.array([["a"]] * 16))
    files(tmp_path / "in", data, [])
    (tmp_path / "log.jsonl").write_text(
        "\n".join(lines([(at(3), "[[tags = 'a', alter(size, y * 2)]]")])) + "\n"
    )
    run_local(raw_job(tmp_path, "log.jsonl", stream={"columns": {}}, checkpoint="checkpoint"))
    (row,) = aside(tmp_path)
    assert "uses 'tags', which this job does not read" in row["reason"]


def test_rows_of_no_file_cannot_have_their_times_altered_in_place(tmp_path: Path) -> None:
    kafka = {"source": "kafka", "path": None, "options": {}, "format": "json"}
    stream = {key: value for key, value in kafka.items() if value is not None}
    made = predictor_of(raw_job(tmp_path, "accent", stream=stream))
    assert [name for name, _ in made.accent_options["S"].fixed] == ["t"]
    assert predictor_of(raw_job(tmp_path, "log.jsonl", stream=stream)).accent_options["S"].fixed == ()


# -- ends and punctuation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["s", "t"])
def test_a_dropped_key_or_time_ends_the_job_and_its_rows_are_set_aside(
    predictors: dict[str, Predictor], name: str
) -> None:
    rows, run = feed(), Run(predictors["rows"])
    now = table([row if row["t"] < at(10) else {**row, name: None} for row in rows])
    ended = run.take({"S": in_rows(rows, now, [(at(10), f"[[true, drop({name})]]")])})
    assert f"drop({name})" in ended
    assert {row["reason"] for row in run.aside} == {f"without '{name}', by accents"}
    assert len(run.aside) == 28
    assert max(key[1] for key in reported_of(run.changes, "size")) / 2 < 10


@pytest.mark.parametrize("where", ["rows", "log"])
def test_punctuation_is_in_the_units_in_force(predictors: dict[str, Predictor], where: str) -> None:
    reported = [
        (at(5), "[[true, alter(s, y + 100)]]"),
        (at(8), "[s = 101]"),
        (at(12), "[[true, alter(s, y + 10)]]"),
    ]
    accents = [reported[0], reported[2]]
    rows, run = feed(), Run(predictors[where])
    now = table(recorded(rows, accents))
    stray = [row["s"] == 1 and row["t"] >= at(8) for row in rows]
    if where == "rows":
        for one in cut(in_rows(rows, now, reported), [9, 20, 31]):
            run.take({"S": one})
            run = restarted_run(run)
    else:
        for one, more in zip(cut(now, [16]), (lines(accents), ["[s = 111]"]), strict=True):
            run.take({"S": one}, {"S": more})
    assert [(row["s"], row["reason"]) for row in run.aside] == [
        (one, CONTRADICTS) for one, bad in zip(now["s"].to_pylist(), stray, strict=True) if bad
    ]
    assert set(run.prediction.validators["S"].state.ids) == {(0,)}


def test_punctuation_of_what_is_modelled_only_sets_aside(predictors: dict[str, Predictor]) -> None:
    reported = [
        (at(3), "[[true, alter(price, y * 2)]]"),
        (at(6), "[price >= 10]"),
        (at(9), "[[true, alter(price, y / 4)]]"),
    ]
    rows, run = feed(), Run(predictors["rows"])
    now = table(recorded(rows, [reported[0], reported[2]]))
    run.take({"S": in_rows(rows, now, reported)})
    unfit = [row for row in rows if row["t"] >= at(6) and row["price"] >= 5]
    assert len(run.aside) == len(unfit) > 10
    assert {row["reason"] for row in run.aside} == {CONTRADICTS}


@pytest.mark.parametrize("where", ["rows", "log"])
@pytest.mark.parametrize("name", ["price", "n"])
def test_punctuation_of_what_the_query_does_not_read(tmp_path: Path, where: str, name: str) -> None:
    """A modelled attribute that nobody asks for, and one that only descriptions speak of: neither is undone."""
    reported = [
        (at(3), f"[[true, alter({name}, y * 4)]]"),
        (at(6), f"[{name} < 8]"),
        (at(9), f"[[true, alter({name}, y * 2)]]"),
    ]
    accents = [reported[0], reported[2]]
    columns = "accent" if where == "rows" else "x.jsonl"
    job = raw_job(tmp_path, columns, "select s, size from S", stream={"keep": []})
    rows, run = feed(), Run(predictor_of(job))
    now = table(recorded(rows, accents))
    if where == "rows":
        for one in cut(in_rows(rows, now, reported), [4, 16, 31]):
            run.take({"S": one})
            run = restarted_run(run)
    else:
        details = lines(accents)
        for one, more in zip(
            cut(now, [12, 30]), (details[:1], [reported[1][1], details[1]], []), strict=True
        ):
            run.take({"S": one}, {"S": more})
    stray = [int(row["s"]) for row in rows if row["t"] >= at(6) and row[name] < 2]
    assert [row["s"] for row in run.aside] == stray
    assert {row["reason"] for row in run.aside} == {CONTRADICTS}
    assert 5 < len(stray) < 25


# -- what is kept ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["rows", "log"])
def test_what_is_kept_does_not_grow_with_accents(predictors: dict[str, Predictor], where: str) -> None:
    sizes, run = [], Run(predictors[where])
    for number in range(60):
        begin = 40 * number
        rows = [{**row, "t": row["t"] + at(begin)} for row in feed(2)]
        reported = [
            (at(begin), "[[price < 3, alter(size, y * 4)]]"),
            (at(begin + 0.5), "[[true, alter(price, y * 2)]]"),
            (at(begin + 1.5), "[[price < 6, alter(size, y / 4)]]"),
            (at(begin + 1.6), "[[true, alter(price, y / 2)]]"),
        ]
        now = table(recorded(rows, reported))
        if where == "rows":
            run.take({"S": in_rows(rows, now, reported)})
        else:
            run.take({"S": now}, {"S": lines(reported)})
        sizes.append(len(run.follower.streams["S"].history))
    assert run.aside == []
    assert max(sizes[30:]) <= max(sizes[:30])
    assert run.accents == 240


# -- stages, files and Spark -------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["rows", "log"])
def test_two_stages_say_the_same(predictors: dict[str, Predictor], where: str) -> None:
    """All rows are covered in the end, so that the greatest moves."""
    reported, rows = KINDS["until all is covered"], feed()
    now = table(recorded(rows, reported))
    if where == "rows":
        parts: list[Any] = [({"S": one}, {}) for one in cut(in_rows(rows, now, reported), [9, 20])]
    else:
        parts = [
            ({"S": one}, {"S": more}) for one, more in zip(cut(now, [9]), (lines(reported), []), strict=True)
        ]
    run = Run(predictors[f"top {where}"])
    for tables, details in parts:
        run.take(tables, details)
    found, rest = staged(predictors[f"top {where}"], parts)
    one, other = (
        confirmed({(0, *key): v for key, v in final(c, (), "size").items()}) for c in (found, run.changes)
    )
    assert len(one) > 40
    assert close(one, other)
    assert sum(row["accents"] for row in rest) == 2


def test_a_table_of_splits_and_a_log_of_what_values_tell(tmp_path: Path) -> None:
    reported = [
        (at(4), "[[s = 1, alter(price, y / 4)]]"),
        (at(4), "[[s = 1, alter(size, y * 4)]]"),
        (at(9), "[[price < 2, alter(size, y * 2)]]"),
    ]
    now = table(recorded(feed(), reported))
    files(tmp_path / "in", now, [9, 20])
    (tmp_path / "splits.csv").write_text(f"s,t,ratio\n1,{format_instant(at(4))},4:1\n")
    (tmp_path / "log.jsonl").write_text("\n".join(lines(reported[2:])) + "\n")
    run_local(raw_job(tmp_path, "log.jsonl", stream={"splits": "splits.csv"}, checkpoint="checkpoint"))
    assert aside(tmp_path) == []
    for value in ("price", "size"):
        assert close(
            confirmed(reported_of(read_changes(tmp_path / "out"), value)), wanted(now, reported, value)
        )


@pytest.mark.parametrize("where", ["rows", "log"])
def test_spark_goes_on_from_between_accents_and_data(spark: SparkSession, tmp_path: Path, where: str) -> None:
    rows = feed()
    now = table(recorded(rows, MIXED))
    (tmp_path / "in").mkdir()
    if where == "rows":
        whole = in_rows(rows, now, MIXED)
        place = next(i for i, one in enumerate(whole["accent"].to_pylist()) if one)
        parts = cut(whole, [place + 1, place + 12])
    else:
        parts = cut(now, [8, 20])
        (tmp_path / "log.jsonl").write_text("\n".join(lines(MIXED)) + "\n")
    job = raw_job(tmp_path, "accent" if where == "rows" else "log.jsonl", checkpoint="checkpoint")
    accents = 0
    for number, one in enumerate(parts):
        arrive(tmp_path / "in", number, one)
        if number != 1:
            accents += ran(spark, job).tally.accents
    assert accents == len(MIXED)
    assert aside(tmp_path) == []
    for value in ("price", "size"):
        assert close(confirmed(reported_of(read_changes(tmp_path / "out"), value)), wanted(now, MIXED, value))


def test_spark_follows_renumbered_keys_and_altered_times_in_one_bucket(
    spark: SparkSession, tmp_path: Path
) -> None:
    reported = [*KINDS["keys"], (at(12), "[[true, alter(t, y + 3600000000)]]")]
    rows = feed()
    now = table(recorded(rows, reported))
    files(tmp_path / "in", in_rows(rows, now, reported), [9, 30])
    job = raw_job(tmp_path, "accent", checkpoint="checkpoint", buckets=1)
    status = ran(spark, job)
    assert (status.tally.accents, status.tally.aside) == (3, 0)
    assert close(confirmed(reported_of(read_changes(tmp_path / "out"), "size")), wanted(now, reported))


def test_a_job_in_process_ends_at_a_dropped_key(tmp_path: Path) -> None:
    rows = feed()
    now = table([row if row["t"] < at(10) else {**row, "s": None} for row in rows])
    files(tmp_path / "in", now, [9, 30])
    (tmp_path / "log.jsonl").write_text("\n".join(lines([(at(10), "[[true, drop(s)]]")])) + "\n")
    with pytest.raises(JobAbortedError, match=r"drop\(s\)"):
        run_local(raw_job(tmp_path, "log.jsonl"))

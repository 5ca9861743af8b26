"""Accents in predictive jobs: the same changes, restated, whatever the batches; in process and on Spark."""

from __future__ import annotations

import itertools
import json
import pickle
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pulse.core.errors import PulseError
from pulse.core.time import format_instant
from pulse.runtime.prediction import Prediction
from pulse.runtime.predictive_accents import Follower, JobAbortedError, follow
from pulse.runtime.predictive_job import Job, JobError, job_of
from pulse.runtime.predictive_local import run_local
from pulse.runtime.predictive_logs import Spool
from pulse.runtime.predictive_packing import unpack_state
from pulse.runtime.predictive_parcels import LinePacker, Packer, unpacked_table
from pulse.runtime.predictive_rows import CHANGES, ENDING
from pulse.runtime.predictive_solving import Solving
from pulse.runtime.predictive_spread import Pairing, Scattering, spread_of
from pulse.runtime.predictive_state import Validating
from pulse.runtime.predictive_through import Ending
from pulse.runtime.predictor import Predictor
from pulse.runtime.sinks import numbered, read_changes
from pulse.runtime.sources import newest, predictor_of
from pulse.runtime.spread import coalesced
from tests.runtime.asking import local
from tests.runtime.test_predictive import FILTER, MACD, NEAR, arrive, aside, final, object_job, objects, ran
from tests.runtime.test_predictive_state import Places

SECOND = 1_000_000
SPLIT = 60 * SECOND + SECOND // 2  # between two ticks
ACCENT = "[[symbol = 's1', alter(price, y / 4)]]"
LINE = f"{format_instant(SPLIT)} {ACCENT}"
EVERY = MACD.replace("where A.a > B.a", "")
PLAIN = "select symbol, price from S"


def ticks(seconds: int = 120, keys: int = 3) -> pa.Table:
    """Prices of a few symbols that wander, whole quarters: what undoes a split of 4:1 is exact."""
    t = np.repeat(np.arange(seconds), keys)
    k = np.tile(np.arange(keys), seconds)
    price = 100 + k + np.round(12 * np.sin(t / 12 + k)) / 4
    return pa.table(
        {
            "symbol": [f"s{one}" for one in k],
            "t": pa.array(t * SECOND, pa.timestamp("us")),
            "price": price,
            "size": 10.0 + k,
        }
    )


def split(table: pa.Table, at: int = SPLIT, by: float = 4.0, key: str = "s1") -> pa.Table:
    """The same with a key's prices a part of what they were, from an instant on."""
    late = pc.and_(pc.equal(table["symbol"], key), pc.greater_equal(table["t"].cast(pa.int64()), at))
    price = pc.if_else(late, pc.divide(table["price"], by), table["price"])
    return table.set_column(table.column_names.index("price"), "price", price)


def marked(table: pa.Table, accents: Sequence[tuple[int, str]]) -> pa.Table:
    """With accents as rows, each before the first row at or after its time."""
    at = table["t"].cast(pa.int64()).to_numpy()
    parts, begin = [], 0
    whole = table.append_column("accent", pa.nulls(table.num_rows, pa.string()))
    for when, text in accents:
        place = int(np.searchsorted(at, when))
        row = {"t": pa.array([when], pa.timestamp("us")), "accent": pa.array([text])}
        parts += [whole.slice(begin, place - begin), pa.table(row)]
        begin = place
    parts.append(whole.slice(begin))
    return pa.concat_tables(parts, promote_options="default").combine_chunks()


def files(folder: Path, table: pa.Table, cuts: Iterable[int]) -> Path:
    """A table as files that arrive in order, cut at rows."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = [0, *sorted(cuts), table.num_rows]
    for number, (a, b) in enumerate(itertools.pairwise(ends)):
        arrive(folder, number, table.slice(a, b - a))
    return folder


def the_job(folder: Path, query: str = MACD, **more: Any) -> Job:
    stream = {
        "source": "files",
        "path": "in",
        "key": "symbol",
        "time": "t",
        "model": {"price": "step"},
        "error": "1.1%",  # no tick lies just there
        "horizon": "20 s",
        "options": {"maxFilesPerTrigger": 1},
        **more.pop("stream", {}),
    }
    values = {
        "query": query,
        "buckets": 3,
        "streams": {"S": stream},
        "sink": {"kind": "parquet", "path": "out"},
    }
    return job_of({**values, **more}, folder=folder)


class Run:
    """A prediction in process, batch by batch."""

    def __init__(self, predictor: Predictor, lateness: int = 10 * SECOND) -> None:
        self.predictor, self.lateness = predictor, lateness
        self.prediction, self.follower = Prediction(predictor), Follower(predictor)
        self.parts: list[pa.Table] = []
        self.aside: list[dict[str, Any]] = []
        self.accents = 0

    def take(self, tables: Mapping[str, pa.Table], lines: Mapping[str, list[str]] | None = None) -> str:
        heard = self.follower.hear(tables, lines)
        now = newest(heard.came, self.predictor, self.prediction.now)
        emission = follow(self.prediction, self.follower, heard)
        self.prediction.now = now
        watermark = None if now is None else self.follower.watermark(now, self.lateness)
        if watermark is not None:
            self.prediction.advance(watermark)
        self.follower.settle(now, watermark, self.prediction.validators)
        self.parts.append(
            numbered([(emission.changes, now or 0)], self.predictor.standing.schema, len(self.parts))
        )
        self.aside += [row for table in emission.aside.values() for row in table.to_pylist()]
        self.accents += emission.tally.accents
        return self.follower.ended(now)

    @property
    def changes(self) -> pa.Table:
        return pa.concat_tables(self.parts)


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    """By the query's name and where accents come from."""
    folder = tmp_path_factory.mktemp("jobs")
    files(folder / "in", marked(ticks(), []), [])
    found = {}
    for name, query in (("macd", MACD), ("every", EVERY), ("filter", FILTER), ("plain", PLAIN)):
        for where, accents in (
            ("none", {}),
            ("rows", {"accents": "accent"}),
            ("log", {"accents": "x.jsonl"}),
        ):
            found[f"{name} {where}"] = predictor_of(the_job(folder, query, stream=accents))
    return found


def cut(table: pa.Table, cuts: Iterable[int]) -> list[pa.Table]:
    ends = [0, *sorted(cuts), table.num_rows]
    return [table.slice(a, b - a) for a, b in itertools.pairwise(ends)]


def held(changes: pa.Table, value: str = "d") -> dict[tuple[object, ...], Any]:
    return final(changes, ("symbol",), value)


def rescaled(
    found: Mapping[tuple[object, ...], Any], at: int = SPLIT, by: float = 4.0, key: str = "s1"
) -> dict[Any, Any]:
    """What holds, with a key's values restated from an instant on; steps are half seconds and a bit."""
    return {
        (symbol, step): (certainty, value / by if symbol == key and late(step, at) else value)
        for (symbol, step), (certainty, value) in found.items()
    }


def late(step: Any, at: int) -> bool:
    return bool((step / 2 + 0.137) * SECOND >= at)


def close(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> bool:
    assert found.keys() == expected.keys()
    assert all(found[at][0] == expected[at][0] for at in found)
    return all(abs(found[at][1] - expected[at][1]) < 1e-4 for at in found)


@pytest.mark.parametrize("name", ["macd", "every", "filter", "plain"])
@pytest.mark.parametrize("where", ["rows", "log"])
def test_a_split_changes_nothing_but_the_units(
    predictors: dict[str, Predictor], name: str, where: str
) -> None:
    value = "d" if name in ("macd", "every") else "price"
    without, run = Run(predictors[f"{name} none"]), Run(predictors[f"{name} {where}"])
    for table in cut(ticks(), [90, 200, 300]):
        without.take({"S": table})
    data = split(ticks())
    if where == "rows":
        parts, lines = cut(marked(data, [(SPLIT, ACCENT)]), [90, 200, 301]), []
    else:
        parts, lines = cut(data, [90, 200, 300]), [LINE]
    for i, table in enumerate(parts):
        run.take({"S": table}, {"S": lines if i == 1 else []})
    expected = rescaled(held(without.changes, value))
    assert len(expected) > 100
    assert any(key[0] == "s1" and late(key[1], SPLIT) for key in expected)
    assert close(held(run.changes, value), expected)
    assert run.prediction.tally.violations == without.prediction.tally.violations
    assert (run.accents, run.aside) == (1, [])


def test_predictions_that_were_made_before_are_said_again_in_new_units(
    predictors: dict[str, Predictor],
) -> None:
    run = Run(predictors["plain log"])
    run.take({"S": ticks(30)})
    run.take({}, {"S": [f"{format_instant(35 * SECOND)} {ACCENT}"]})
    said = run.parts[1].to_pylist()
    assert [row["kind"] for row in said] == ["-U", "+U"]
    assert {row["symbol"] for row in said} == {"s1"}
    assert said[1]["price"][0] == said[0]["price"][0] / 4
    assert said[1]["price_err"] == said[0]["price_err"] / 4
    assert (said[0]["ref"] - datetime(1970, 1, 1)).total_seconds() + said[0]["lo"] == 35
    run.take({"S": split(ticks(60), 35 * SECOND).slice(90)})
    without = Run(predictors["plain none"])
    without.take({"S": ticks(30)})
    without.take({"S": ticks(60).slice(90)})
    assert close(held(run.changes, "price"), rescaled(held(without.changes, "price"), 35 * SECOND))


MAPS = {
    "y / 4": (0.25, 0.0),
    "y * 2": (2.0, 0.0),
    "y * 9/5 + 32": (1.8, 32.0),
    "(y - 3) / 7": (1 / 7, -3 / 7),
}


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[tuple[int, str, str]], list[int], int]:
    """Accents (instant, key or all, map) in order, cuts of batches, and after which batch the state goes through bytes."""
    instants = sorted(draw(st.lists(st.integers(1, 59), min_size=1, max_size=4, unique=True)))
    found = [
        (
            at * SECOND + draw(st.sampled_from([0, 500_000])),
            draw(st.sampled_from(["s0", "s1", ""])),
            draw(st.sampled_from(sorted(MAPS))),
        )
        for at in instants
    ]
    cuts = draw(st.lists(st.integers(0, 180 + len(found)), max_size=5))
    return found, cuts, draw(st.integers(0, 5))


def altered(table: pa.Table, at: int, key: str, map: str) -> pa.Table:
    """Prices of a key, or of all, in other units from an instant on."""
    late_ = pc.greater_equal(table["t"].cast(pa.int64()), at)
    chosen = pc.and_(late_, pc.equal(table["symbol"], key)) if key else late_
    price = pc.add(pc.multiply(table["price"], MAPS[map][0]), MAPS[map][1])
    return table.set_column(2, "price", pc.if_else(chosen, price, table["price"]))


@given(interleaved())
@settings(deadline=None)
def test_any_interleaving_and_any_batches_give_the_same(predictors: dict[str, Predictor], drawn: Any) -> None:
    accents, cuts, restart = drawn
    data, texts = ticks(60), []
    without = Run(predictors["every none"])
    without.take({"S": ticks(60)})
    expected = held(without.changes)
    for at, key, map in accents:
        data = altered(data, at, key, map)
        said = f"symbol = '{key}'" if key else "true"
        texts.append((at, f"[[{said}, alter(price, {map})]]"))
        for one in [key] if key else ["s0", "s1", "s2"]:
            expected = rescaled(expected, at, 1 / MAPS[map][0], one)
    inside, beside = Run(predictors["every rows"]), Run(predictors["every log"])
    for i, table in enumerate(cut(marked(data, texts), cuts)):
        inside.take({"S": table})
        if i == restart:
            inside = pickle.loads(pickle.dumps(inside))
    lines = [f"{format_instant(at)} {text}" for at, text in texts]
    for i, table in enumerate(cut(data, [one for one in cuts if one <= 180])):
        beside.take({"S": table}, {"S": lines if i == 0 else []})
        if i == restart:
            beside = pickle.loads(pickle.dumps(beside))
    for run in (inside, beside):
        assert run.accents == len(accents)
        got = held(run.changes)
        # Models that begin elsewhere may end elsewhere: what is compared is what tuples have confirmed.
        some = {at: one for at, one in got.items() if at[1] < 118}
        want = {at: expected[at] for at in expected if at[1] < 118}
        assert close(some, want)


# -- what accents say ------------------------------------------------------------------------------------------

BAD = [
    ("nonsense", "cannot read 'nonsense'"),
    ('{"primitive": "alter"', "expected an object of JSON"),
    ('["a list"]', "expected a comparison"),
    ("[[symbol = 's1', alter(cost, y / 4)]]", "got 'cost'"),
    ("[[symbol = 's1', alter(price, 0 * y)]]", "y"),
    ("[[price > 3, alter(price, y / 4)]]", "price"),
    ("[[true, drop(nobody)]]", "got 'nobody'"),
    ("[[symbol = 3, alter(price, y / 4)]]", "expected a string, got a number"),
]


@pytest.mark.parametrize(("text", "reason"), BAD)
@pytest.mark.parametrize("where", ["rows", "log"])
def test_what_is_no_accent_is_set_aside_with_a_reason(
    predictors: dict[str, Predictor], text: str, reason: str, where: str
) -> None:
    run = Run(predictors[f"plain {where}"])
    data = split(ticks(30), 10 * SECOND)
    good = (10 * SECOND, ACCENT)
    if where == "rows":
        run.take({"S": marked(data, [(5 * SECOND, text), good])})
    else:
        lines = [f"{format_instant(at)} {one}" for at, one in ((5 * SECOND, text), good)]
        run.take({"S": data}, {"S": lines if text.startswith("[[") else [text, lines[1]]})
    (aside,) = run.aside
    assert aside["accent"].endswith(text)
    assert aside["reason"]
    assert where == "log" or re.search(reason, aside["reason"])
    assert run.accents == 1
    without = Run(predictors["plain none"])
    without.take({"S": ticks(30)})
    assert close(held(run.changes, "price"), rescaled(held(without.changes, "price"), 10 * SECOND))


def test_duplicates_contradictions_and_accents_out_of_order(predictors: dict[str, Predictor]) -> None:
    run = Run(predictors["plain rows"])
    at = 10 * SECOND
    said = [(at, ACCENT), (at, ACCENT), (at, ACCENT.replace("/ 4", "/ 2")), (at, "[[true, drop(nothing)]]")]
    data = marked(split(ticks(30), at), said)
    early = pa.table({"t": pa.array([SECOND, None], pa.timestamp("us")), "accent": [ACCENT, ACCENT]})
    run.take({"S": pa.concat_tables([data, early], promote_options="default")})
    reasons = [row["reason"] for row in run.aside]
    assert len(reasons) == 5
    for expected in ("is the same as", "contradicts", "'nothing'", "is before that of", "a row without one"):
        assert sum(expected in one for one in reasons) == 1, (expected, reasons)
    assert run.accents == 1


def test_an_accent_describes_the_rows_after_it_whatever_their_times(predictors: dict[str, Predictor]) -> None:
    """A key that is behind the others: its tuples after the accent are in the new units, though of earlier times."""
    ahead, behind = (ticks(30).filter(pc.equal(ticks(30)["symbol"], one)) for one in ("s0", "s1"))
    run, without = Run(predictors["plain rows"]), Run(predictors["plain none"])
    without.take({"S": pa.concat_tables([ahead, behind])})
    quarter = behind.set_column(2, "price", pc.divide(behind["price"], 4.0))
    row = pa.table({"t": pa.array([20 * SECOND], pa.timestamp("us")), "accent": [ACCENT]})
    run.take({"S": pa.concat_tables([ahead, row, quarter], promote_options="default")})
    assert close(held(run.changes, "price"), rescaled(held(without.changes, "price"), 20 * SECOND))


# -- attributes that come and go -------------------------------------------------------------------------------


def test_attributes_that_the_query_does_not_read_come_and_go(tmp_path: Path) -> None:
    data = ticks(90)
    parts = cut(data, [90, 180])
    folder = tmp_path / "in"
    folder.mkdir()
    arrive(folder, 0, parts[0])
    arrive(folder, 1, parts[1].drop_columns(["size"]).append_column("venue", pa.array(["N"] * 90)))
    arrive(folder, 2, parts[2].append_column("venue", pa.array(["N"] * 90)))
    log = tmp_path / "log.jsonl"
    log.write_text(
        f"# the feed loses and gains columns\n{format_instant(30 * SECOND)} [[true, drop(size)]]\n"
        f"{format_instant(30 * SECOND)} [[true, add(venue)]]\n{format_instant(60 * SECOND)} [[true, add(size)]]\n"
    )
    model = {"model": {"price": "step", "size": "step"}}
    found = run_local(the_job(tmp_path, EVERY, stream={"accents": "log.jsonl", **model}))
    assert (found.tally.aside, found.tally.tuples) == (0, 270)
    files(tmp_path / "whole", data, [90, 180])
    run_local(replace_sink(the_job(tmp_path, EVERY, stream={"path": "whole", **model}), tmp_path / "other"))
    # Models that begin with another attribute reach to another end: what is compared is what tuples have confirmed.
    got, expected = (
        {at: one for at, one in held(read_changes(tmp_path / name)).items() if at[1] < 178}
        for name in ("out", "other")
    )
    assert len(expected) > 400
    assert close(got, expected)


def test_a_drop_of_what_the_query_compares_ends_the_job_cleanly(tmp_path: Path) -> None:
    files(tmp_path / "in", ticks(90), [90, 180])
    (tmp_path / "log.jsonl").write_text(
        json.dumps({"at": format_instant(45 * SECOND), "primitive": "drop", "attribute": "price"})
    )
    job = the_job(tmp_path, FILTER.replace("103", "101"), stream={"accents": "log.jsonl"})
    with pytest.raises(
        JobAbortedError, match=r"Filter S\.price > 101: cannot go on after .*drop\(S\.price\)"
    ):
        run_local(job)
    found = read_changes(tmp_path / "out")
    assert set(found["batch"].to_pylist()) == {0, 1}
    files(tmp_path / "whole", ticks(90), [90, 180])
    run_local(replace_sink(the_job(tmp_path, job.query, stream={"path": "whole"}), tmp_path / "other"))
    expected = {
        at: one
        for at, one in held(read_changes(tmp_path / "other"), "price").items()
        if not late(at[1], 45 * SECOND)
    }
    assert len(expected) > 20
    assert close(held(found, "price"), expected)


def replace_sink(job: Job, path: Path) -> Job:
    return replace(job, sink=replace(job.sink, path=str(path)))


def test_a_dropped_attribute_ends_for_its_keys_only(predictors: dict[str, Predictor]) -> None:
    run, without = Run(predictors["plain rows"]), Run(predictors["plain none"])
    data = ticks(60)
    gone = pc.and_(pc.equal(data["symbol"], "s1"), pc.greater_equal(data["t"].cast(pa.int64()), 30 * SECOND))
    lost = data.set_column(2, "price", pc.if_else(gone, None, data["price"]))
    for table in cut(marked(lost, [(30 * SECOND, "[[symbol = 's1', drop(price)]]")]), [60]):
        run.take({"S": table})
    without.take({"S": data})
    expected = held(without.changes, "price")
    expected = {at: one for at, one in expected.items() if at[0] != "s1" or not late(at[1], 30 * SECOND)}
    assert close(held(run.changes, "price"), expected)
    assert [row["reason"] for row in run.aside] == ["without 'price', by accents"] * 30


def test_policies(tmp_path: Path) -> None:
    files(tmp_path / "in", split(ticks(90), 45 * SECOND), [90, 180])
    (tmp_path / "log.jsonl").write_text(f"{format_instant(45 * SECOND)} {ACCENT}\n")
    told = {"accents": "log.jsonl"}
    ignoring = run_local(the_job(tmp_path, stream={**told, "policy": "ignore"}, sink={"kind": "none"}))
    raw = run_local(the_job(tmp_path, sink={"kind": "none"}))
    assert ignoring.results().equals(raw.results())
    with pytest.raises(JobAbortedError, match="the policy is to stop at"):
        run_local(the_job(tmp_path, stream={**told, "policy": {"alter": "exception"}}, sink={"kind": "none"}))
    for wrong in ("sometimes", {"rename": "ignore"}, 3):
        with pytest.raises(JobError, match=r"\[streams.S\], 'policy': expected"):
            the_job(tmp_path, stream={**told, "policy": wrong})
    with pytest.raises(JobError, match="'policy': expected 'accents' or 'splits' beside it"):
        the_job(tmp_path, stream={"policy": "ignore"})


def test_a_log_grows_and_half_a_line_waits(tmp_path: Path) -> None:
    files(tmp_path / "in", split(ticks(90), 45 * SECOND), [90, 180])
    log = tmp_path / "log.jsonl"
    line = f"{format_instant(45 * SECOND)} {ACCENT}\n"
    log.write_text(line[:30])

    def told(batch: int, _: pa.Table) -> None:
        if batch == 0:
            log.write_text(line)

    run_local(the_job(tmp_path, EVERY, stream={"accents": "log.jsonl"}), on_batch=told)
    files(tmp_path / "whole", ticks(90), [90, 180])
    run_local(replace_sink(the_job(tmp_path, EVERY, stream={"path": "whole"}), tmp_path / "other"))
    expected = rescaled(held(read_changes(tmp_path / "other")), 45 * SECOND)
    assert close(held(read_changes(tmp_path / "out")), expected)
    assert not list((tmp_path / "out" / "_aside").glob("**/*.parquet"))


@pytest.mark.parametrize("where", ["rows", "log"])
def test_a_run_in_process_goes_on_from_between_an_accent_and_its_data(tmp_path: Path, where: str) -> None:
    data, log = split(ticks(60), 30 * SECOND), tmp_path / "log.jsonl"
    told = {"accents": "accent" if where == "rows" else "log.jsonl"}
    data = marked(data, [(30 * SECOND, ACCENT)]) if where == "rows" else data
    (tmp_path / "in").mkdir()
    for number, part in enumerate(cut(data, [60, 91, 120])):
        arrive(tmp_path / "in", number, part)
        if where == "log" and number == 1:
            log.write_text(f"{format_instant(30 * SECOND)} {ACCENT}\n")
        found = run_local(the_job(tmp_path, EVERY, stream=told, checkpoint="checkpoint"))
    assert (found.tally.tuples, found.tally.aside) == (180, 0)
    without = Run(predictor_of(the_job(tmp_path, EVERY)))
    without.take({"S": ticks(60)})
    expected = rescaled(held(without.changes), 30 * SECOND)
    assert close(held(read_changes(tmp_path / "out")), expected)


def test_what_a_log_gains_is_put_into_files_once(tmp_path: Path) -> None:
    files(tmp_path / "in", ticks(10), [])
    job = the_job(tmp_path, stream={"accents": "log.jsonl"}, checkpoint="checkpoint")
    predictor, log = predictor_of(job), tmp_path / "log.jsonl"
    folder = tmp_path / "checkpoint" / "accents" / "S"

    def said() -> list[str]:
        return [one.read_text() for one in sorted(folder.glob("[0-9]*"))]

    spool = Spool.of(job, predictor)
    spool.take()  # there is none yet
    assert said() == []
    log.write_text(f"{LINE}\n# half a li")
    spool.take()
    spool.take()
    assert said() == [f"{LINE}\n"]
    with log.open("a") as more:
        more.write(f"ne\n\n{LINE}")
    running = [True, True, False]
    Spool.of(job, predictor).watch(lambda: running.pop(0))  # another run goes on there
    for _ in range(100):
        if len(said()) == 2:
            break
        time.sleep(0.05)
    assert said() == [f"{LINE}\n", f"# half a line\n{LINE}\n"]
    while running:
        time.sleep(0.05)


def test_a_column_of_accents_holds_texts(tmp_path: Path) -> None:
    files(tmp_path / "in", ticks(10), [])
    with pytest.raises(JobError, match="'accents': expected a column of texts, got 'size' of double"):
        predictor_of(the_job(tmp_path, stream={"accents": "size"}))
    with pytest.raises(PulseError, match="accent"):
        predictor_of(the_job(tmp_path, stream={"accents": "accent"}))


def test_revisions_of_altered_tuples(tmp_path: Path) -> None:
    """With a log, a revised tuple is in the units of its time."""
    data = split(ticks(60), 30 * SECOND).append_column("op", pa.array(["+I"] * 180))
    row = next(i for i, one in enumerate(data.to_pylist()) if one["symbol"] == "s1" and one["t"].second == 50)
    old = data.slice(row, 1)
    new = old.set_column(2, "price", pa.array([30.0])).set_column(4, "op", pa.array(["+U"]))
    files(
        tmp_path / "in", pa.concat_tables([data, old.set_column(4, "op", pa.array(["-U"])), new]), [90, 180]
    )
    (tmp_path / "log.jsonl").write_text(f"{format_instant(30 * SECOND)} {ACCENT}\n")
    more = {"kind": "op", "revisions": "1 min", "accents": "log.jsonl"}
    found = run_local(the_job(tmp_path, PLAIN, stream=more))
    assert (found.tally.revisions, found.tally.aside) == (1, 0)
    got = held(read_changes(tmp_path / "out"), "price")
    assert got["s1", 100][1] == 30.0
    assert got["s1", 96][1] != 30.0


# -- batch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [PLAIN, EVERY, "select symbol, max(price) as d from S[size 10 advance 1]"])
def test_what_tuples_confirmed_is_what_a_query_over_a_model_gives(tmp_path: Path, query: str) -> None:
    value = "price" if query == PLAIN else "d"
    data = split(ticks(90), 45 * SECOND)
    line = f"{format_instant(45 * SECOND)} {ACCENT}"
    files(tmp_path / "in", data, [50, 130, 200])
    (tmp_path / "log.jsonl").write_text(line)
    run_local(the_job(tmp_path, query, stream={"accents": "log.jsonl", "error": 0}))
    found = held(read_changes(tmp_path / "out"), value)
    model = local().fit(data, key="symbol", time="t", model={"price": "step"}, error=0, accents=[line])
    segments = local().sql(query, streams={"S": model}).segments()
    told = segments.append_column("kind", pa.array(["+I"] * segments.num_rows))
    told = numbered([(told, 0)], told.schema, 0)
    expected = held(told, value)
    some = {at: one for at, one in found.items() if at[1] < 176 and at in expected}
    assert len(some) > 250
    assert close(some, {at: expected[at] for at in some})


def test_a_table_without_accents_costs_nothing(predictors: dict[str, Predictor]) -> None:
    run = Run(predictors["plain rows"])
    data = marked(ticks(30), [])
    heard = run.follower.hear({"S": data})
    assert heard.tables["S"].equals(data.drop_columns(["accent", "size"]))
    assert run.follower.restating is None


# -- stages, without Spark ---------------------------------------------------------------------------------------


def parcels(
    predictor: Predictor, tables: Mapping[str, pa.Table], lines: Mapping[str, list[str]], places: int
) -> pd.DataFrame:
    """A batch as Spark would hand it to the first stage."""
    found: list[dict[str, Any]] = []
    for stream, table in tables.items():
        n, key = table.num_rows, predictor.specs[stream].schema.key_names[0]
        place = [sum(map(ord, str(one))) % places for one in table.column(key).to_pylist()]
        for name, column in (
            ("_place", pa.array(place, pa.int32())),
            ("_modified", pa.array([7] * n, pa.int64())),
            ("_origin", pa.array(["file:/a"] * n)),
            ("_block", pa.array([0] * n, pa.int64())),
        ):
            table = table.append_column(name, column)
        packer = Packer(stream, accents=predictor.hears[stream].column, places=places)
        for batch in packer(iter(table.combine_chunks().to_batches(max_chunksize=40))):
            found += batch.to_pylist()
    for stream, said in lines.items():
        text = pa.record_batch({"value": ["\n".join(said)], "modified": [8], "origin": ["file:/log"]})
        for batch in LinePacker(stream, places)(iter([text])):
            found += batch.to_pylist()
    return pd.DataFrame(found)


def staged(
    predictor: Predictor,
    batches: list[tuple[dict[str, pa.Table], dict[str, list[str]]]],
    cell: float | None = None,
) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Changes, and all else that comes out, through two stages whose state goes through bytes after every batch."""
    lateness, places = 10 * SECOND, 3
    spread = spread_of(predictor, places, cell)
    if spread is None:
        first, second = Places(Validating(predictor, lateness, None)), Places(Solving(predictor, lateness))
    else:
        first = Places(Scattering(predictor, lateness, spread))
        second = Places(Pairing(predictor, lateness, spread))
    changes, rest = [], []
    for number, (tables, lines) in enumerate(batches):
        out = second.take(first.take(parcels(predictor, tables, lines, places))).to_dict("records")
        parts = [(unpacked_table(one["payload"]), one["now"]) for one in out if one["channel"] == CHANGES]
        parts = coalesced(parts, predictor.standing) if spread is not None else parts
        changes.append(numbered(parts, predictor.standing.schema, number))
        rest += [one for one in out if one["channel"] != CHANGES]
    return pa.concat_tables(changes), rest


@pytest.mark.parametrize("where", ["rows", "log"])
@pytest.mark.parametrize("accent", ["[[true, alter(price, y / 4)]]", ACCENT], ids=["all", "one"])
def test_one_place_for_all_keys(tmp_path: Path, where: str, accent: str) -> None:
    """An output without the key moves once all keys have; till then what one has altered is undone."""
    data = ticks(60)
    for key in ("s0", "s1", "s2") if accent != ACCENT else ("s1",):
        data = split(data, 30 * SECOND, key=key)
    query = "select max(price) as top from S"
    files(tmp_path / "in", marked(data, []), [])
    told = {"accents": "accent" if where == "rows" else "log.jsonl"}
    predictor = predictor_of(the_job(tmp_path, query, stream=told))
    if where == "rows":
        batches = [({"S": one}, {}) for one in cut(marked(data, [(30 * SECOND, accent)]), [70, 120])]
    else:
        line = f"{format_instant(30 * SECOND)} {accent}"
        batches = [({"S": one}, {"S": [line]} if i == 1 else {}) for i, one in enumerate(cut(data, [70, 80]))]
    changes, rest = staged(predictor, batches)
    assert sum(one["accents"] for one in rest) == 1
    without = Run(predictor_of(the_job(tmp_path, query)))
    for one in cut(ticks(60), [70, 120]):
        without.take({"S": one})
    expected = final(without.changes, (), "top")
    if accent != ACCENT:
        expected = {
            at: (one[0], one[1] / 4 if late(at[0], 30 * SECOND) else one[1]) for at, one in expected.items()
        }
    got = final(changes, (), "top")
    some = {at for at in got if at[0] < 118}
    assert len(some) > 100
    assert close({at: got[at] for at in some}, {at: expected[at] for at in some})


def test_pairs_in_the_places_of_their_cells(tmp_path: Path) -> None:
    """From some instant on x is in other units, of all ships: who comes near is the same, and where is said in the new ones."""
    objects(tmp_path / "in")
    query = NEAR.replace("Q.id as other", "Q.id as other, R.x as x")
    job = object_job(tmp_path, query, "O", cell=120)
    tables = [pq.ParquetFile(one).read() for one in sorted((tmp_path / "in").glob("*.parquet"))]
    without = Run(predictor_of(job))
    for one in tables:
        without.take({"O": one})
    at = 15 * SECOND
    late_ = [pc.greater_equal(one["t"].cast(pa.int64()), at) for one in tables]
    halved = [
        one.set_column(2, "x", pc.if_else(where, pc.divide(one["x"], 2.0), one["x"]))
        for one, where in zip(tables, late_, strict=True)
    ]
    predictor = predictor_of(replace(job, streams={"O": replace(job.streams["O"], accents="log.jsonl")}))
    line = f"{format_instant(at)} [[true, alter(x, y / 2)]]"
    changes, rest = staged(
        predictor, [({"O": one}, {"O": [line]} if i == 1 else {}) for i, one in enumerate(halved)], 120
    )
    assert sum(one["accents"] for one in rest) == 1
    expected = {
        key: (one[0], one[1] / 2 if late(key[2], at) else one[1])
        for key, one in final(without.changes, ("one", "other"), "x").items()
    }
    assert len(expected) > 20
    assert close(final(changes, ("one", "other"), "x"), expected)


def test_every_place_hears_of_the_end(tmp_path: Path) -> None:
    files(tmp_path / "in", marked(ticks(30), []), [])
    predictor = predictor_of(
        the_job(tmp_path, "select max(price) as top from S where price > 3", stream={"accents": "accent"})
    )
    batches = [
        ({"S": one}, {}) for one in cut(marked(ticks(30), [(20 * SECOND, "[[true, drop(price)]]")]), [30])
    ]
    changes, rest = staged(predictor, batches)
    endings = [Ending(*unpack_state(one["payload"])) for one in rest if one["channel"] == ENDING]
    assert len(endings) == 3
    assert all(
        one.end == 20 * SECOND and one.reached(None) and "drop(S.price)" in one.reason for one in endings
    )
    assert max(at[0] for at in final(changes, (), "top")) == 39


# -- Spark -------------------------------------------------------------------------------------------------------


def expected_of(folder: Path, query: str, value: str, **more: Any) -> dict[Any, Any]:
    """What the job gives in process."""
    job = the_job(folder, query, **more)
    parts: list[pa.Table] = []
    bare = replace(job, sink=replace(job.sink, kind="none", path=None), checkpoint=None)
    run_local(bare, on_batch=lambda _, changes: parts.append(changes))
    return held(pa.concat_tables(parts), value)


@pytest.mark.parametrize("where", ["rows", "log"])
def test_spark_gives_the_same(spark: SparkSession, tmp_path: Path, where: str) -> None:
    data = split(ticks(60, 5), 30 * SECOND)
    if where == "rows":
        data = marked(data, [(10 * SECOND, "nonsense"), (30 * SECOND, ACCENT)])
    else:
        (tmp_path / "log.jsonl").write_text(f"nonsense\n{format_instant(30 * SECOND)} {ACCENT}\n")
    files(tmp_path / "in", data, [100, 200])
    told = {"stream": {"accents": "accent" if where == "rows" else "log.jsonl"}}
    expected = expected_of(tmp_path, EVERY, "d", **told)
    status = ran(spark, the_job(tmp_path, EVERY, checkpoint="checkpoint", **told))
    assert (status.tally.tuples, status.tally.accents, status.tally.aside) == (300, 1, 1)
    assert [row["accent"] for row in aside(tmp_path)] == ["nonsense"]
    assert len(expected) > 300
    assert close(held(read_changes(tmp_path / "out")), expected)


def test_spark_goes_on_from_between_an_accent_and_its_data_and_ends_cleanly(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = marked(
        split(ticks(60), 30 * SECOND), [(30 * SECOND, ACCENT), (50 * SECOND, "[[true, drop(price)]]")]
    )
    place = next(i for i, one in enumerate(data["accent"].to_pylist()) if one)
    first, second, third = cut(data, [place + 1, 140])
    (tmp_path / "in").mkdir()
    job = the_job(tmp_path, stream={"accents": "accent"}, checkpoint="checkpoint")
    arrive(tmp_path / "in", 0, first)
    assert ran(spark, job).tally.accents == 1
    arrive(tmp_path / "in", 1, second)
    assert ran(spark, job).tally.accents == 0
    arrive(tmp_path / "in", 2, third)
    for _ in range(2):  # and once more: it does not go on
        with pytest.raises(JobAbortedError, match=r"cannot go on after .*drop\(A\.a\).* stays$"):
            ran(spark, job)
    found = held(read_changes(tmp_path / "out"))
    without = Run(predictor_of(the_job(tmp_path)))
    without.take({"S": ticks(60)})
    expected = rescaled(held(without.changes), 30 * SECOND)
    expected = {at: one for at, one in expected.items() if not late(at[1], 50 * SECOND)}
    assert len(expected) > 30
    assert close(found, expected)


def test_the_column_of_accents_is_none_of_the_streams_attributes(predictors: dict[str, Predictor]) -> None:
    run = Run(predictors["plain rows"])
    run.take({"S": marked(ticks(10), [(5 * SECOND, "[[true, drop(accent)]]")])})
    (row,) = run.aside
    assert row["accent"] == "[[true, drop(accent)]]"
    assert run.accents == 0

"""Punctuation, attributes that come and go, declared keys and splits in predictive jobs; what is kept does not grow."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import pulse
from pulse.core.time import format_instant
from pulse.runtime.predictive_accents import JobAbortedError
from pulse.runtime.predictive_job import JobError
from pulse.runtime.predictive_listening import CONTRADICTS, UNDECLARED
from pulse.runtime.predictive_local import Status, run_local
from pulse.runtime.predictive_texts import of_line, of_row
from pulse.runtime.predictor import Predictor
from pulse.runtime.sinks import read_changes
from pulse.runtime.sources import predictor_of
from pulse.stream.accents import AccentError
from pulse.stream.log import AccentLog
from tests.runtime.test_predictive import aside, final, ran
from tests.runtime.test_predictive_accents import (
    ACCENT,
    EVERY,
    PLAIN,
    SECOND,
    Run,
    close,
    cut,
    files,
    held,
    late,
    marked,
    rescaled,
    split,
    staged,
    the_job,
    ticks,
)

BOTH = "select symbol, price, size from S"
TOP = "select max(price) as top from S"
COLUMNS = {
    "symbol": "string",
    "t": "timestamp[us]",
    "price": "double",
    "size": "double",
    "accent": "string",
}
SIZES = {"model": {"price": "step", "size": "step"}, "columns": COLUMNS, "adds": ["size"]}


def at(second: float) -> int:
    return int(second * SECOND)


def without(table: pa.Table, key: str, since: int) -> pa.Table:
    """Without the tuples of a key from an instant on."""
    gone = pc.and_(pc.equal(table["symbol"], key), pc.greater_equal(table["t"].cast(pa.int64()), since))
    return table.filter(pc.invert(gone))


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
    folder = tmp_path_factory.mktemp("jobs")
    files(folder / "in", marked(ticks(), []), [])
    found = {}
    for name, query, more in (
        ("plain", PLAIN, {}),
        ("every", EVERY, {}),
        ("top", TOP, {}),
        ("top of three", TOP, {"keys": ["s0", "s1", "s2"]}),
        ("both", BOTH, SIZES),
    ):
        for place, accents in (("rows", "accent"), ("log", "x.jsonl")):
            found[f"{name} {place}"] = predictor_of(
                the_job(folder, query, stream={**more, "accents": accents})
            )
        bare = {key: one for key, one in more.items() if key in ("model", "columns")}
        found[f"{name} none"] = predictor_of(the_job(folder, query, stream=bare))
    return found


# -- punctuation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["rows", "log"])
def test_a_key_that_is_punctuated_is_forgotten_and_its_tuples_are_set_aside(
    predictors: dict[str, Predictor], place: str
) -> None:
    run, plain = Run(predictors[f"every {place}"]), Run(predictors["every none"])
    data = split(ticks(60), at(10))
    stray = data.filter(
        pc.and_(pc.equal(data["symbol"], "s1"), pc.greater(data["t"].cast(pa.int64()), at(50)))
    )
    kept = without(data, "s1", at(30))
    whole = pa.concat_tables([kept, stray.slice(0, 2)]).sort_by("t")
    said = [(at(10), ACCENT), (at(30), "[symbol = 's1']")]
    if place == "rows":
        for one in cut(marked(whole, said), [40, 75, 120]):
            run.take({"S": one})
    else:
        lines = [f"{format_instant(at(10))} {ACCENT}", "[symbol = 's1']"]
        for i, one in enumerate(cut(whole, [15, 90])):
            run.take({"S": one}, {"S": [[lines[0]], [], [lines[1]]][i]})
    assert [(row["symbol"], row["reason"]) for row in run.aside] == [("s1", CONTRADICTS)] * 2
    assert [row["price"] for row in run.aside] == stray["price"].to_pylist()[:2]  # as they came
    assert run.accents == 2
    assert set(run.prediction.validators["S"].state.ids) == {("s0",), ("s2",)}
    plain.take({"S": without(ticks(60), "s1", at(30))})
    assert close(held(run.changes), rescaled(held(plain.changes), at(10)))
    assert run.prediction.tally.tuples + 2 == whole.num_rows


def test_punctuation_of_time_frees_what_lies_before_without_waiting(predictors: dict[str, Predictor]) -> None:
    run, slow = Run(predictors["plain rows"], at(1000)), Run(predictors["plain none"], at(1000))
    data = ticks(60)
    late_one = data.slice(60, 1)  # of 20 s
    said = marked(data, [(at(40), f"[t <= '{format_instant(at(39))}']")])
    run.take({"S": said})
    slow.take({"S": data})
    assert run.prediction.state is not None
    assert slow.prediction.state is not None
    assert len(run.prediction.state.results) < len(slow.prediction.state.results)
    assert run.prediction.state.watermark == at(39) + 1
    run.take({"S": late_one.append_column("accent", pa.nulls(1, pa.string()))})
    assert [row["reason"] for row in run.aside] == [CONTRADICTS]
    assert close(held(run.changes, "price"), held(slow.changes, "price"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[nobody = 3]", "nobody"),
        ("[symbol = 4]", "expected a string"),
        ("[oops", "read"),
    ],
)
def test_punctuation_that_says_nothing_is_set_aside(
    predictors: dict[str, Predictor], text: str, reason: str
) -> None:
    run = Run(predictors["plain rows"])
    run.take({"S": marked(ticks(20), [(at(5), text)])})
    (row,) = run.aside
    assert reason in row["reason"]
    assert run.prediction.tally.tuples == 60


def test_punctuation_completes_what_is_held(predictors: dict[str, Predictor]) -> None:
    """Two of three keys are altered, and the third comes no more: the greatest of all is in the new units from then on."""
    data = ticks(60)
    for key in ("s0", "s1"):
        data = split(data, at(20), key=key)
    accent = "[[symbol in ('s0', 's1'), alter(price, y / 4)]]"
    run, plain = Run(predictors["top of three rows"]), Run(predictors["top none"])
    whole = without(data, "s2", at(30))
    run.take({"S": marked(whole, [(at(20), accent), (at(30), "[symbol = 's2']")])})
    plain.take({"S": without(ticks(60), "s2", at(30))})
    expected = {
        key: (one[0], one[1] / 4 if late(key[0], at(30)) else one[1])
        for key, one in final(plain.changes, (), "top").items()
    }
    assert (run.accents, run.aside) == (2, [])
    assert close(final(run.changes, (), "top"), expected)


# -- declared keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["rows", "log"])
def test_an_output_without_the_key_moves_once_all_declared_keys_have(
    predictors: dict[str, Predictor], place: str
) -> None:
    data, said = ticks(60), []
    for i, key in enumerate(("s0", "s1", "s2")):
        data = split(data, at(20 + 5 * i), key=key)
        said.append((at(20 + 5 * i), f"[[symbol = '{key}', alter(price, y / 4)]]"))
    run, plain = Run(predictors[f"top of three {place}"]), Run(predictors["top none"])
    if place == "rows":
        for one in cut(marked(data, said), [50, 70, 71, 90]):
            run.take({"S": one})
    else:
        run.take({"S": data}, {"S": [f"{format_instant(when)} {text}" for when, text in said]})
    plain.take({"S": ticks(60)})
    expected = {
        key: (one[0], one[1] / 4 if late(key[0], at(30)) else one[1])
        for key, one in final(plain.changes, (), "top").items()
    }
    assert close(final(run.changes, (), "top"), expected)
    # Without the promise the output waits for keys that may come.
    waiting = Run(predictors[f"top {place}"])
    if place == "rows":
        waiting.take({"S": marked(data, said)})
        assert close(final(waiting.changes, (), "top"), final(plain.changes, (), "top"))


def test_tuples_of_keys_that_are_not_declared_are_set_aside(predictors: dict[str, Predictor]) -> None:
    run, plain = Run(predictors["top of three rows"]), Run(predictors["top none"])
    run.take({"S": marked(ticks(30, 4), [])})
    plain.take({"S": ticks(30)})
    assert {(row["symbol"], row["reason"]) for row in run.aside} == {("s3", UNDECLARED)}
    assert len(run.aside) == 30
    assert close(final(run.changes, (), "top"), final(plain.changes, (), "top"))


@pytest.mark.parametrize("given", ["keys.csv", ["s0", "s1", "s2"], {"symbol": ["s0", "s1", "s2"]}])
def test_keys_are_declared_in_the_job_or_a_file(tmp_path: Path, given: Any) -> None:
    (tmp_path / "keys.csv").write_text("symbol,name\ns0,a\ns1,b\ns2,c\n")
    files(tmp_path / "in", ticks(10), [])
    found = predictor_of(the_job(tmp_path, TOP, stream={"accents": "x.jsonl", "keys": given}))
    assert str(found.hears["S"].domain.description) == "symbol in ('s0', 's1', 's2')"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"keys": []},
            r"\[streams.S\], 'keys': expected a list of texts or whole numbers for 'symbol', got \[\]",
        ),
        ({"keys": {"venue": ["a"]}}, "'keys': expected lists for key columns, symbol, got one for 'venue'"),
        ({"keys": "none.csv"}, "'keys': expected a CSV or Parquet file of keys, got .*none.csv"),
        ({"keys": 3}, "'keys': expected a list of keys"),
        ({"keys": ["a"], "accents": None}, "'keys': expected 'accents' or 'splits' beside it, got none"),
        ({"adds": ["volume"]}, "'adds': expected modelled attributes, price, got 'volume'"),
        (
            {"splits": "splits.csv", "accents": "accent"},
            "'splits': expected accents in a log or none beside it",
        ),
        ({"split": "splits.csv"}, "unknown 'split' in .*did you mean 'splits'"),
    ],
)
def test_what_a_job_says_of_accents_goes_together(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    stream = {"accents": "x.jsonl", **more}
    with pytest.raises(JobError, match=message):
        the_job(tmp_path, stream={key: one for key, one in stream.items() if one is not None})


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_log_may_speak_of_earlier_instants_later(
    predictors: dict[str, Predictor], order: tuple[int, ...]
) -> None:
    """What operators hold does not depend on the order in which lines came, as long as they precede their data."""
    data, lines = ticks(60), []
    for i, key in enumerate(("s0", "s1", "s2")):
        data = split(data, at(20 + 5 * i), key=key)
        lines.append(f"{format_instant(at(20 + 5 * i))} [[symbol = '{key}', alter(price, y / 4)]]")
    run, plain = Run(predictors["top of three log"]), Run(predictors["top none"])
    for i, one in enumerate(cut(data, [9, 21, 40])):
        run.take({"S": one}, {"S": [lines[order[i]]] if i < 3 else []})
    plain.take({"S": ticks(60)})
    expected = {
        key: (one[0], one[1] / 4 if late(key[0], at(30)) else one[1])
        for key, one in final(plain.changes, (), "top").items()
    }
    assert run.aside == []
    assert close(final(run.changes, (), "top"), expected)


# -- abort instead of holding ------------------------------------------------------------------------------------


def test_a_job_may_end_where_it_would_hold(tmp_path: Path) -> None:
    files(tmp_path / "in", split(ticks(60), at(30)), [60, 120])
    (tmp_path / "log.jsonl").write_text(f"{format_instant(at(30))} {ACCENT}\n")
    job = the_job(tmp_path, TOP, stream={"accents": "log.jsonl"}, on_accent="abort")
    with pytest.raises(JobAbortedError, match=r"ends at 1970-01-01T00:00:30.*alter\(S\.price"):
        run_local(job)
    left = final(read_changes(tmp_path / "out"), (), "top")
    assert max(left) == (59,)
    with pytest.raises(JobError, match="'on_accent': expected one of hold, abort, got 'stop'"):
        the_job(tmp_path, TOP, stream={"accents": "log.jsonl"}, on_accent="stop")
    with pytest.raises(JobError, match="'on_accent': expected a stream with 'accents' or 'splits', got none"):
        the_job(tmp_path, TOP, on_accent="abort")


@given(st.lists(st.integers(1, 178), max_size=4), st.integers(5, 55), st.integers(0, 5))
@settings(deadline=None)
def test_what_is_left_at_an_end_is_what_was_said_of_before(
    predictors: dict[str, Predictor], cuts: list[int], second: int, heard: int
) -> None:
    """Every row that takes back takes back what holds (refused otherwise), and nothing of later times is left, but for what was
    behind the watermark when the accent was heard."""
    run, plain = Run(predictors["plain log"]), Run(predictors["plain none"])
    line = f"{format_instant(at(second))} [[true, drop(price)]]"
    run.predictor = run.follower.predictor = _with_policy(run.predictor)
    ended, taken, kept = "", [], 0.0
    for i, one in enumerate(cut(ticks(60), cuts)):
        if i == min(heard, len(cuts)) and run.prediction.now is not None:
            kept = run.prediction.now / SECOND - 10
        ended = run.take({"S": one}, {"S": [line] if i == min(heard, len(cuts)) else []})
        taken.append(one)
        if ended:
            break
    assert "the policy is to stop" in ended
    for one in taken:
        plain.take({"S": one})
    left = pulse.apply_changes(run.changes)
    ends = left["ref"].cast(pa.int64()).to_numpy() / 1e6 + left["hi"].to_numpy()
    assert (ends <= max(second, kept) + 1e-9).all()
    found, expected = held(run.changes, "price"), held(plain.changes, "price")
    before = {key for key in expected if not late(key[1], at(second))}
    assert before == {key for key in found if not late(key[1], at(second))}
    assert close({key: found[key] for key in before}, {key: expected[key] for key in before})


def _with_policy(predictor: Predictor) -> Predictor:
    from dataclasses import replace

    from pulse.stream.policy import Policy

    hears = {"S": replace(predictor.hears["S"], policy=Policy(drop="exception"))}
    return replace(predictor, hears=hears)


# -- attributes that come and go ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["rows", "log"])
def test_a_feed_gains_an_attribute_loses_it_and_gains_it_again(
    predictors: dict[str, Predictor], place: str
) -> None:
    spans = [(at(10), at(25)), (at(35), at(60))]
    data = where(ticks(60), spans)
    said = [
        (at(10), "[[true, add(size)]]"),
        (at(25), "[[true, drop(size)]]"),
        (at(35), "[[true, add(size)]]"),
    ]
    run = Run(predictors[f"both {place}"])
    if place == "rows":
        for one in cut(marked(data, said), [20, 31, 90, 120]):
            run.take({"S": one})
            run = pickle.loads(pickle.dumps(run))
    else:
        for i, one in enumerate(cut(data, [20, 31, 90])):
            run.take(
                {"S": one}, {"S": [f"{format_instant(when)} {text}" for when, text in said] if not i else []}
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
    arrive_after(tmp_path / "in", second)
    found = run_local(job)
    assert (found.tally.aside, found.tally.violations >= 0) == (0, True)
    got = held(read_changes(tmp_path / "out"), "size")
    assert min(key[1] for key in got) == 60
    assert {key[0] for key in got} == {"s0", "s1", "s2"}


def arrive_after(folder: Path, table: pa.Table) -> None:
    from tests.runtime.test_predictive import arrive

    arrive(folder, 100, table)


# -- splits ------------------------------------------------------------------------------------------------------


def test_a_table_of_splits_may_gain_rows(tmp_path: Path) -> None:
    data = split(split(ticks(60), at(20)), at(40), key="s2")
    files(tmp_path / "in", data, [60, 120])
    table = tmp_path / "splits.csv"
    table.write_text("symbol,t,ratio\ns1,1970-01-01T00:00:20,4:1\n")

    def gain(batch: int, _: pa.Table) -> None:
        if batch == 0:
            table.write_text(table.read_text() + "s2,1970-01-01T00:00:40,4:1\n")

    found = run_local(the_job(tmp_path, EVERY, stream={"splits": "splits.csv"}), on_batch=gain)
    assert found.tally.aside == 0
    plain = Run(predictor_of(the_job(tmp_path, EVERY)))
    plain.take({"S": ticks(60)})
    expected = rescaled(rescaled(held(plain.changes), at(20)), at(40), key="s2")
    assert close(held(read_changes(tmp_path / "out")), expected)


def test_a_row_that_is_no_split_is_set_aside_and_half_a_row_waits(tmp_path: Path) -> None:
    data = split(split(ticks(60), at(20)), at(40), key="s2", by=16.0)
    files(tmp_path / "in", data, [60, 80, 120])
    table = tmp_path / "splits.csv"
    table.write_text("symbol,t,ratio\ns1,1970-01-01T00:00:20,4:1\n")
    grown = ["s2,1970-01-01T00:00:30,much\ns2,1970-01-01T00:00:40,1", "6:1\n", ""]

    def gain(batch: int, _: pa.Table) -> None:
        table.write_text(table.read_text() + grown.pop(0) if grown else table.read_text())

    said: list[Status] = []
    run_local(the_job(tmp_path, EVERY, stream={"splits": "splits.csv"}), on_batch=gain, on_status=said.append)
    assert said[-1].tally.aside == 1
    assert said[-1].tally.accents == 4
    (refused,) = (tmp_path / "out" / "_aside" / "stream=S").glob("*/*.parquet")
    assert "splits.csv, line 3: expected a ratio" in pq.ParquetFile(refused).read()["reason"][0].as_py()
    plain = Run(predictor_of(the_job(tmp_path, EVERY)))
    plain.take({"S": ticks(60)})
    expected = rescaled(rescaled(held(plain.changes), at(20)), at(40), key="s2", by=16.0)
    assert close(held(read_changes(tmp_path / "out")), expected)


def test_a_table_of_splits_that_is_none(tmp_path: Path) -> None:
    files(tmp_path / "in", ticks(10), [])
    with pytest.raises(pulse.PulseError, match="no such file of splits"):
        run_local(the_job(tmp_path, EVERY, stream={"splits": "nowhere.csv"}))
    (tmp_path / "splits.csv").write_text("symbol,t,ratio\ns1,1970-01-01T00:00:20,much\n")
    with pytest.raises(pulse.PulseError, match=r"splits.csv, line 2.*expected a ratio such as 4:1"):
        run_local(the_job(tmp_path, EVERY, stream={"splits": "splits.csv"}))


# -- texts -------------------------------------------------------------------------------------------------------

INSTANTS = [
    "2013-10-08",
    "2013-10-08T09:30:00",
    "2013-10-08T09:30:00.25",
    "2013-10-08T09:30:00.250001Z",
    "soon",
    "7",
]
NAMES = ["symbol", "t", "price", "true", "timestamp", "a.b"]
VALUES = ["AIG", "", "it''s", "a, b", "]]", "2013-10-08", "\\"]
PRIMITIVES = [
    "alter(price, y / 4)",
    " drop( size ) ",
    "+(p)",
    "alter(price, 0 * y)",
    "alter(symbol, y)",
    "rename(x)",
    "",
]


def test_a_line_that_is_no_accent_is_not_said_to_be_the_first_of_its_log() -> None:
    with pytest.raises(AccentError, match=r"^expected an instant and an accent"):
        of_line("garbage", "t", 0)


@given(*map(st.sampled_from, (INSTANTS, NAMES, VALUES, PRIMITIVES)), st.sampled_from(["", " "]))
def test_texts_are_read_at_once_as_they_are_read_in_full(
    instant: str, name: str, value: str, primitive: str, space: str
) -> None:
    text = f"[[{space}{name}{space}={space}'{value}'{space},{space}{primitive}]]"
    line = f"{instant} {text}"
    try:
        (expected,) = AccentLog.parse([line], where="log", times=["t"]).controls
    except pulse.PulseError:
        with pytest.raises(pulse.PulseError):
            of_line(line, "t", 0)
        return
    assert of_line(line, "t", 0) == expected
    assert of_row(text, expected.position, "t", 0) == expected


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
    data, said = ticks(30), list[tuple[int, str]]()
    for second, key in splits:
        data = split(data, at(second), key=key)
        said.append((at(second), f"[[symbol = '{key}', alter(price, y / 4)]]"))
    spans = [(at(a), at(b)) for a, b in zip(turns[::2], [*turns[1::2], 30], strict=False)]
    data = where(data, spans)
    said += [(at(one), f"[[true, {'drop' if i % 2 else 'add'}(size)]]") for i, one in enumerate(turns)]
    if end is not None:
        data = without(data, end[0], at(end[1]))
        said.append((at(end[1]), f"[symbol = '{end[0]}']"))
    return data, sorted(said, key=lambda pair: pair[0])


@given(evolving())
@settings(deadline=None)
def test_any_batches_give_the_same(predictors: dict[str, Predictor], drawn: tuple[Any, ...]) -> None:
    data, said = evolved(drawn)
    cuts, restart = drawn[3], drawn[4]
    once, often, beside = (Run(predictors[f"both {one}"]) for one in ("rows", "rows", "log"))
    once.take({"S": marked(data, said)})
    for i, one in enumerate(cut(marked(data, said), cuts)):
        often.take({"S": one})
        if i == restart:
            often = pickle.loads(pickle.dumps(often))
    accents = [f"{format_instant(when)} {text}" for when, text in said if text.startswith("[[")]
    beside.take({"S": data}, {"S": accents})
    staged_, rest = staged(
        predictors["both rows"],
        [({"S": one}, {}) for one in cut(marked(data, said), cuts) if one.num_rows],
    )
    for value in ("price", "size"):
        expected = _confirmed(held(once.changes, value))
        assert close(_confirmed(held(often.changes, value)), expected)
        assert close(_confirmed(held(beside.changes, value)), expected)
        assert close(_confirmed(held(staged_, value)), expected)
    for run in (once, often):
        assert (run.accents, reasons(run)) == (len(said), lacking(data))
    assert sum(one["accents"] for one in rest) == len(said)
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
        sizes.append(len(pickle.dumps(run.follower.state)))
    assert run.accents == 16_000
    assert run.aside == []
    assert max(sizes[20:]) < 1.2 * max(sizes[5:12])
    plain = Run(predictors["plain none"])
    assert run.prediction.tally.violations < 2_000
    assert plain.prediction.tally.violations == 0


def _as_recorded(data: pa.Table, lines: list[str]) -> pa.Table:
    from pulse.core.schema import StreamSchema
    from pulse.operators.alter import Alter

    schema = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
    steps = AccentLog.parse(lines, times=["t"]).checked(schema).steps("t")
    batch = data.combine_chunks().to_batches()[0]
    return pa.Table.from_batches([Alter(steps).tuples(batch, schema)])


# -- Spark -------------------------------------------------------------------------------------------------------


def test_spark_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Splits, sizes that come and go, a key that ends and comes again, and a restart in between."""
    drawn = [(10, "s1"), (20, "s0")], [5, 12, 18], ("s2", 22), [], 0
    data, said = evolved(drawn)
    stray = ticks(30).slice(89, 1)  # of s2, at the end
    data = pa.concat_tables([data, where(stray, [(0, at(60))])])
    whole = marked(data, said)
    parts = cut(whole, [16, 40, 60])
    more = {**SIZES, "accents": "accent"}
    job = the_job(tmp_path, BOTH, stream=more, checkpoint="checkpoint")
    from tests.runtime.test_predictive import arrive

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
    assert (tuples, accents) == (run.prediction.tally.tuples + len(run.aside), len(said))
    assert sorted(reasons(run)) == sorted([CONTRADICTS, *lacking(data)])
    assert sorted(row["reason"] for row in aside(tmp_path)) == sorted(reasons(run))
    for value in ("price", "size"):
        assert close(held(read_changes(tmp_path / "out"), value), held(run.changes, value))

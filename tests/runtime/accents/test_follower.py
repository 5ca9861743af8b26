"""Accents in predictions: the same changes, restated, whatever the batches; what is no accent is set aside."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse.core.time import format_instant
from pulse.runtime.jobs.sinks import numbered, read_changes
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.spec import Predictor
from tests.runtime.accents.accented_jobs import (
    ACCENT,
    EVERY,
    LINE,
    PLAIN,
    SECOND,
    SPLIT,
    Run,
    close,
    cut,
    files,
    held,
    late,
    marked,
    predictors_of,
    rescaled,
    split,
    the_job,
    ticks,
)
from tests.runtime.execution.asking import local
from tests.runtime.jobs.running_jobs import FILTER, MACD
from tests.runtime.predict.restarting import restarted_run


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    queries = {"macd": MACD, "every": EVERY, "filter": FILTER, "plain": PLAIN}
    return predictors_of(tmp_path_factory.mktemp("jobs"), {name: (one, {}) for name, one in queries.items()})


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


def test_predictions_that_were_made_before_are_reported_again_in_new_units(
    predictors: dict[str, Predictor],
) -> None:
    run = Run(predictors["plain log"])
    run.take({"S": ticks(30)})
    run.take({}, {"S": [f"{format_instant(35 * SECOND)} {ACCENT}"]})
    reported = run.parts[1].to_pylist()
    assert [row["kind"] for row in reported] == ["-U", "+U"]
    assert {row["symbol"] for row in reported} == {"s1"}
    assert reported[1]["price"][0] == reported[0]["price"][0] / 4
    assert reported[1]["price_err"] == reported[0]["price_err"] / 4
    assert (reported[0]["ref"] - datetime(1970, 1, 1)).total_seconds() + reported[0]["lo"] == 35
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
        reported = f"symbol = '{key}'" if key else "true"
        texts.append((at, f"[[{reported}, alter(price, {map})]]"))
        for one in [key] if key else ["s0", "s1", "s2"]:
            expected = rescaled(expected, at, 1 / MAPS[map][0], one)
    inside, beside = Run(predictors["every rows"]), Run(predictors["every log"])
    for i, table in enumerate(cut(marked(data, texts), cuts)):
        inside.take({"S": table})
        if i == restart:
            inside = restarted_run(inside)
    lines = [f"{format_instant(at)} {text}" for at, text in texts]
    for i, table in enumerate(cut(data, [one for one in cuts if one <= 180])):
        beside.take({"S": table}, {"S": lines if i == 0 else []})
        if i == restart:
            beside = restarted_run(beside)
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
    reported = [
        (at, ACCENT),
        (at, ACCENT),
        (at, ACCENT.replace("/ 4", "/ 2")),
        (at, "[[true, drop(nothing)]]"),
    ]
    data = marked(split(ticks(30), at), reported)
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


def test_a_dropped_attribute_ends_for_its_keys_only(predictors: dict[str, Predictor]) -> None:
    # So late that nothing is retracted for want of a tuple: the other run has them all.
    run, without = (Run(predictors[name], 60 * SECOND) for name in ("plain rows", "plain none"))
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


def test_the_column_of_accents_is_none_of_the_streams_attributes(predictors: dict[str, Predictor]) -> None:
    run = Run(predictors["plain rows"])
    run.take({"S": marked(ticks(10), [(5 * SECOND, "[[true, drop(accent)]]")])})
    (row,) = run.aside
    assert row["accent"] == "[[true, drop(accent)]]"
    assert run.accents == 0


def test_a_table_without_accents_costs_nothing(predictors: dict[str, Predictor]) -> None:
    run = Run(predictors["plain rows"])
    data = marked(ticks(30), [])
    decoded = run.follower.decode({"S": data})
    assert decoded.tables["S"].equals(data.drop_columns(["accent", "size"]))
    assert run.follower.output_units is None


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
    details = segments.append_column("kind", pa.array(["+I"] * segments.num_rows))
    details = numbered([(details, 0)], details.schema, 0)
    expected = held(details, value)
    some = {at: one for at, one in found.items() if at[1] < 176 and at in expected}
    assert len(some) > 250
    assert close(some, {at: expected[at] for at in some})

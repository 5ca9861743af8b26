"""What corrections changed of results over streams whose units change: old and new, each in the units in force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse
from pulse.benchmarks.workloads.revision_loads import generate_load
from pulse.core.time import format_instant
from pulse.operators.node import PlanError
from pulse.operators.output.tuple_diff import tuple_difference
from pulse.runtime.accents.query_units import QueryAbortedError
from pulse.store.model import Model
from pulse.stream.accents.accents import AccentError
from tests.effort import examples
from tests.runtime.accents.test_query_units import LINE, SPLIT, WINDOWS, split
from tests.runtime.execution.asking import MACD, SECOND, START, local, ticks

COUNT = 90
QUERIES = {
    "macd": MACD,
    "rows": "select symbol, price * 2 as p from S where price > 19 sample every 1 s",
    "sum": "select symbol, sum(price) as s from S[size 8 advance 2]",
    "max": "select symbol, max(price) as m from S[size 8 advance 2]",
    "ends": "select symbol, first(price) as f, last(price) as l from S[size 8 advance 2]",
    "across": "select avg(price) as m from S[size 8 advance 2]",
}
ALL = "select symbol, price from S where price > 0"


def fitted(data: pa.Table, out: Path | None = None, **asked: Any) -> Model:
    details = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0, "keep": "venue"}
    return local().fit(data, **{**details, "keep_tuples": "all", "out": out, **asked})


def revised_model(seed: int, out: Path | None = None, revisions: int = 8, **asked: Any) -> Model:
    """A model of ticks with a split, and a version of it with corrections, in recorded units."""
    data = split(ticks("abc", count=COUNT, seed=seed))
    model = fitted(data, out, **asked)
    load = generate_load(data, model.schema, revisions=revisions, seed=seed)
    local().revise(model, load.revisions, keep=True)
    return Model(model.path)


def ask(model: Model, name: str, session: pulse.Session | None = None, **more: Any) -> Any:
    parameters = WINDOWS if name == "macd" else {}
    return (session or local()).sql(QUERIES.get(name, name), streams={"S": model}, **parameters, **more)


def expected(model: Model, name: str, **more: Any) -> list[tuple[Any, ...]]:
    """The difference of both answers."""
    old, new = (ask(model, name, version=version, **more).tuples() for version in (1, None))
    keys = [one for one in old.column_names if one == "symbol"]
    return details(tuple_difference(old, new, keys, "t"))


def details(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows without bounds, values to nine digits."""
    names = [one for one in table.column_names if not one.endswith("_err")]
    rows = zip(*(table.column(one).to_pylist() for one in names), strict=True)
    return sorted(tuple(f"{v:.9g}" if isinstance(v, float) else str(v) for v in row) for row in rows)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("how", ["stored", "given"])
@examples(4)
@given(seed=st.integers(0, 10**6))
def test_revised_is_the_difference_of_two_answers(name: str, how: str, seed: int) -> None:
    asked, more = ({"accents": [LINE]}, {}) if how == "stored" else ({}, {"accents": [LINE]})
    model = revised_model(seed, **asked)
    found = ask(model, name, **more).revised(1)
    assert details(found.tuples()) == expected(model, name, **more)


def test_old_and_new_values_are_a_quarter_after_the_split(tmp_path: Path) -> None:
    """As without accents, but for the scale."""
    data = ticks("ab", count=COUNT, seed=3)
    at = np.array([START + 10 * SECOND, START + 80 * SECOND])
    models = {}
    for name, ticked, accents in (("plain", data, None), ("split", split(data), [LINE])):
        model = fitted(ticked, tmp_path / name, accents=accents)
        rows = ticked.filter(
            pc.and_(pc.equal(ticked["symbol"], "b"), pc.is_in(ticked["t"].cast(pa.int64()), pa.array(at)))
        )
        halves = [rows.append_column("kind", pa.array([kind] * 2)) for kind in ("-U", "+U")]
        price = rows.column_names.index("price")
        halves[1] = halves[1].set_column(price, "price", pc.multiply(rows["price"], 2.0))
        pairs = pa.concat_tables([half.slice(i, 1) for i in range(2) for half in halves])
        outcome = local().revise(model, pairs, keep=True)
        assert outcome.counts["replaced"] == 2
        models[name] = outcome.model
    plain, got = (ask(models[name], "macd").revised(1).tuples() for name in ("plain", "split"))
    assert plain.num_rows >= 8
    late = pc.greater_equal(plain["t"].cast(pa.int64()), SPLIT)
    assert 0 < pc.sum(late).as_py() < plain.num_rows
    assert got.select(["t", "symbol", "kind"]).equals(plain.select(["t", "symbol", "kind"]))
    scale = np.where(late.to_numpy(), 0.25, 1.0)
    for name in ("diff", "diff_err"):
        assert np.allclose(got[name], plain[name].to_numpy() * scale, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("mode", ["upstream", "downstream", "adaptive"])
@pytest.mark.parametrize("name", ["macd", "sum", "max"])
def test_the_reviser_tells_changes_in_the_units_in_force(name: str, mode: str) -> None:
    model = revised_model(11, revisions=30, error=0.01, drift=0.05, accents=[LINE])
    answer = ask(model, name)
    plain, got = answer.revised(1).segments(), answer.revised(1, mode=mode)
    assert areas(got.segments()) == pytest.approx(areas(plain), rel=1e-6, abs=1e-6)
    assert got.report is not None


def areas(table: pa.Table) -> list[float]:
    """By kind and side of the split, how long results were and what they add up to: whatever pieces they are in."""
    found = dict.fromkeys(((kind, late) for kind in ("-", "+") for late in (False, True)), (0.0, 0.0))
    (name,) = (one for one in table.column_names if f"{one}_err" in table.column_names)
    for row in table.to_pylist():
        late = row["ref"].timestamp() * 1e6 + row["lo"] * 1e6 >= SPLIT - 0.5
        lo, hi = row["lo"], row["hi"]
        area = sum(c * (hi ** (i + 1) - lo ** (i + 1)) / (i + 1) for i, c in enumerate(row[name]))
        length, whole = found[(row["kind"][0], late)]
        found[(row["kind"][0], late)] = length + hi - lo, whole + area
    assert found[("-", True)][0] > 0
    assert found[("-", False)][0] > 0
    return [value for pair in found.values() for value in pair]


def test_old_results_at_hand_are_patched_in_their_units(tmp_path: Path) -> None:
    model = revised_model(5, revisions=30, error=0.01, drift=0.05, accents=[LINE])
    before = ask(model, "sum", version=1).segments()
    answer = ask(model, "sum")
    got = answer.revised(1, results=before)
    assert areas(got.segments()) == pytest.approx(areas(answer.revised(1).segments()), rel=1e-6, abs=1e-6)
    ends = f"{format_instant(SPLIT + SECOND)} [[symbol = 'a', drop(price)]]"
    other = revised_model(5, accents=[LINE, ends])
    with pytest.raises(PlanError, match="cannot be patched, as accents end some of them"):
        ask(other, "sum").revised(1, results=before).segments()


def test_a_query_that_ends_gives_changes_before_and_then_the_error(tmp_path: Path) -> None:
    ends = f"{format_instant(SPLIT)} [[true, drop(price)]]"
    data = ticks("abc", count=COUNT, seed=2)
    model = fitted(data, accents=[ends])
    load = generate_load(data, model.schema, revisions=12, seed=2)
    local().revise(model, load.revisions, keep=True)
    answer = ask(Model(model.path), "macd").revised(1)
    whole = fitted(data)
    local().revise(whole, load.revisions, keep=True)
    plain = ask(Model(whole.path), "macd").revised(1).tuples()
    early = plain.filter(pc.less(plain["t"].cast(pa.int64()), SPLIT))
    assert 0 < early.num_rows < plain.num_rows
    for work in (
        answer.tuples,
        lambda: answer.head(10_000),
        lambda: answer.write(str(tmp_path / "out.parquet")),
    ):
        with pytest.raises(QueryAbortedError, match="cannot do without") as caught:
            work()
        found = caught.value.emitted
        found = pq.read_table(found) if isinstance(found, str) else found
        assert details(found) == details(early)


def test_keys_that_decide_what_is_held(tmp_path: Path) -> None:
    """A result over all keys is restated once accents cover them: a revision that brings a key changes the result of all."""
    lines = [f"{format_instant(SPLIT)} [[symbol = '{one}', alter(price, y / 4)]]" for one in "ab"]
    data = ticks("ab", count=COUNT, seed=4)
    late = pc.greater_equal(data["t"].cast(pa.int64()), SPLIT)
    price = pc.if_else(late, pc.divide(data["price"], 4.0), data["price"])
    data = data.set_column(data.column_names.index("price"), "price", price)
    model = fitted(data, accents=lines)
    new = {"kind": ["+I"], "symbol": ["c"], "t": pa.array([START]).cast(pa.timestamp("us")), "price": [20.0]}
    local().revise(model, pa.table({**new, "venue": pa.array([None], pa.string())}), keep=True)
    model = Model(model.path)
    found = ask(model, "across").revised(1).tuples()
    assert details(found) == expected(model, "across")
    assert pc.sum(pc.greater(found["t"].cast(pa.int64()), SPLIT + 20 * SECOND)).as_py() >= 8
    assert details(ask(model, "across").revised(1, mode="upstream").tuples()) == expected(model, "across")


def test_policies_and_logs_are_checked_as_for_answers(tmp_path: Path) -> None:
    model = revised_model(6, accents=[LINE])
    with pytest.raises(AccentError, match="holds them already"):
        ask(model, "macd", accents=[LINE]).revised(1).tuples()
    ignored = {"evolution": {"alter": "ignore"}}
    found = local().revised(MACD, 1, streams={"S": model}, parameters=WINDOWS, **ignored).tuples()
    assert details(found) == expected(model, "macd", **ignored)


@pytest.mark.parametrize("name", ["macd", "across"])
def test_spark_tells_the_same(name: str, spark: Any) -> None:
    model = revised_model(9, accents=[LINE])
    on_spark = ask(model, name, pulse.Session(spark=spark)).revised(1)
    assert details(on_spark.to_arrow()) == details(ask(model, name).revised(1).tuples())


def test_on_the_command_line(tmp_path: Path, capsys: Any) -> None:
    from typer.testing import CliRunner

    from pulse.cli import app

    model = revised_model(9, tmp_path / "m")
    (tmp_path / "splits.log").write_text(LINE, encoding="utf-8")
    (tmp_path / "q.sql").write_text(MACD, encoding="utf-8")
    out = tmp_path / "out.parquet"
    asked = [
        "query",
        "--stream",
        f"S={model.path}",
        f"@{tmp_path / 'q.sql'}",
        "--param",
        "short=5",
        "--param",
        "long=20",
    ]
    more = [
        "--revised-from",
        "1",
        "--accents",
        f"S={tmp_path / 'splits.log'}",
        "--engine",
        "local",
        "--out",
        str(out),
    ]
    done = CliRunner().invoke(app, [*asked, *more])
    assert done.exit_code == 0, done.output
    assert details(pq.read_table(out)) == expected(model, "macd", accents=[LINE])

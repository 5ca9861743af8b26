"""Revisions that cannot be applied: counted, set aside with a reason, and seen wherever one looks; all others go through."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.store.model import Model
from tests.commands.running import LOCAL as IN_PROCESS
from tests.commands.running import Run, runner
from tests.revisions.histories import LOCAL, SECOND, START


def changelog(*rows: tuple[str, str, float, float]) -> pa.Table:
    """Kind, symbol, second and price."""
    kind, symbol, second, price = zip(*rows, strict=True)
    times = pa.array([START + round(s * SECOND) for s in second]).cast(pa.timestamp("us"))
    return pa.table({"kind": list(kind), "symbol": list(symbol), "t": times, "price": list(price)})


GOOD = [
    ("-U", "a", 95.0, 31.0),
    ("+U", "a", 95.0, 35.0),
    ("+I", "b", 96.5, 17.0),
    ("-D", "a", 97.0, 31.0),
]
BAD = [
    ("-D", "a", 95.5, 31.0),  # there is no tuple at that instant
    ("-D", "a", 96.0, 99.0),  # nor with that value
    ("-D", "nobody", 95.0, 30.0),  # nor of that key
    ("-U", "b", 95.0, 12.0),  # 21 is recorded
    ("+U", "b", 95.0, 13.0),
    ("-U", "a", 3.0, 31.0),  # older than the 20 s that are kept
    ("+U", "a", 3.0, 32.0),
    ("+I", "b", 1.5, 22.0),
    ("+I", "a", 99.5, float("inf")),
    ("+U", "b", 98.0, 21.0),  # half of a replacement
]
REASONS = {
    "deletion of a tuple that is not recorded": 3,
    "replacement of a tuple that is not recorded": 1,
    "older than the history kept": 2,
    "not finite": 1,
    "malformed": 1,
}


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """Prices that change every second, a from 30 to 31 and back, b ten below; the last 20 s of tuples are kept."""
    rows = [
        ("+I", symbol, float(s), base + s % 2)
        for s in range(100)
        for symbol, base in (("a", 30.0), ("b", 20.0))
    ]
    tuples = changelog(*rows).drop_columns(["kind"])
    return LOCAL.fit(
        tuples,
        key="symbol",
        time="t",
        model={"price": "step"},
        error=0,
        out=tmp_path / "model",
        keep_tuples="20 s",
    )


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Good ones among bad ones."""
    good, bad = changelog(*GOOD), changelog(*BAD)
    order = [bad.slice(0, 5), good.slice(0, 2), bad.slice(5, 3), good.slice(2), bad.slice(8)]
    pq.write_table(pa.concat_tables(order), tmp_path / "mixed.parquet")
    return tmp_path / "mixed.parquet"


def prices(model: Path) -> pa.Table:
    return LOCAL.sql("select symbol, price from S sample every 0.5 s", streams={"S": model}).tuples()


def test_all_are_counted_and_the_others_go_through(model: Model, mixed: Path) -> None:
    before = {(row["symbol"], row["t"]): row["price"] for row in prices(model.path).to_pylist()}
    details = LOCAL.revise(model, str(mixed))
    assert details.reasons == REASONS
    assert (details.counts["replaced"], details.counts["inserted"], details.counts["deleted"]) == (1, 1, 1)
    assert details.counts["aside"] == sum(REASONS.values())
    assert details.counts["revisions"] == 3 + details.counts["aside"]
    after = {(row["symbol"], row["t"]): row["price"] for row in prices(model.path).to_pylist()}
    changed = {
        (symbol, (t.timestamp() - START / SECOND)): price
        for (symbol, t), price in after.items()
        if before.get((symbol, t)) != price
    }
    assert changed == {
        ("a", 95.0): 35.0,
        ("a", 95.5): 35.0,
        ("a", 97.0): 30.0,
        ("a", 97.5): 30.0,
        ("b", 96.5): 17.0,
    }
    assert before.keys() == after.keys()


def test_the_model_tells_which_and_why(model: Model, mixed: Path) -> None:
    LOCAL.revise(model, str(mixed))
    aside = Model(model.path).aside()
    assert aside is not None
    rows = [
        (r["kind"], r["symbol"], r["t"].timestamp() - START / SECOND, r["price"]) for r in aside.to_pylist()
    ]
    assert sorted(rows) == sorted(BAD)
    reasons = {
        (r["kind"], r["symbol"], r["t"].timestamp() - START / SECOND): r["reason"] for r in aside.to_pylist()
    }
    assert "price = 21" in reasons["-U", "b", 95.0], "what is recorded"
    assert "older than the history kept" in reasons["-U", "a", 3.0]
    assert "needed" in reasons["-U", "a", 3.0]
    assert "inf" in reasons["+I", "a", 99.5]
    # Once more: nothing is lost of what was set aside before.
    LOCAL.revise(model.path, changelog(("-D", "c", 95.0, 1.0)))
    again = Model(model.path).aside()
    assert again is not None
    assert again.num_rows == len(BAD) + 1


def test_the_command_line_tells(
    model: Model, mixed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Run = runner(monkeypatch, capsys)
    asked = ("revise", model.path, "--revisions", mixed, *IN_PROCESS)
    facts = json.loads(run(*asked, "--json", "--dry-run").out)
    assert facts["counts"]["aside"] == sum(REASONS.values())
    assert Model(model.path).version == 1
    done = run(*asked)
    assert (done.code, done.err) == (0, "")
    assert "set aside" in done.out
    for reason in REASONS:
        assert reason in done.out
    facts = json.loads(run("info", model.path, "--json").out)
    assert facts["revised"]["aside"] == sum(REASONS.values())


def test_nothing_but_bad_ones_change_nothing(model: Model) -> None:
    details = LOCAL.revise(model, changelog(*BAD), keep=True)
    assert details.counts["aside"] == details.counts["revisions"] == sum(REASONS.values())
    assert (details.counts["segments_old"], details.counts["segments_new"]) == (0, 0)
    query = "select symbol, avg(price) as a from S[size 10 advance 2]"
    assert LOCAL.revised(query, 1, streams={"S": model.path}).tuples().num_rows == 0


def test_no_revisions_at_all(model: Model) -> None:
    details = LOCAL.revise(model, changelog(*GOOD).slice(0, 0))
    assert details.counts["revisions"] == 0


@pytest.mark.parametrize("column", ["kind", "symbol", "t", "price"])
def test_a_changelog_without_a_column_is_refused(model: Model, column: str) -> None:
    """That is no revision that fits nothing, but the wrong file."""
    with pytest.raises(ValueError, match=column):
        LOCAL.revise(model, changelog(*GOOD).drop_columns([column]))
    assert Model(model.path).version == 1

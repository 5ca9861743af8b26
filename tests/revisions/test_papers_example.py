"""The example of the paper, from the feed's changelog to the revisions of results (semantics 7.8).

The sum of IBM's prices over 30 minutes every 20 minutes; the price of 2:00 is revised from 25 to 22, which makes 77 of 80 and
59 of 62. The paper's windows begin at 1:40 and 2:00; here windows close at multiples of 20 minutes since the epoch, so all is
ten minutes later: the price is of 2:10, the windows close at 2:20 and 2:40.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.core.columns import Columns
from pulse.core.regions import Regions
from pulse.language import parse
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.delta import Changed
from pulse.runtime.incremental.view import IncrementalView
from pulse.store.model import Model
from tests.commands.running import LOCAL, Run, runner

MINUTE = 60_000_000
MODES = ("upstream", "downstream", "adaptive")
QUERY = "select symbol, sum(price) as total from S[size 30 min advance 20 min]"
PRICES = {
    30: 10.0,
    55: 30.0,
    112: 15.0,
    115: 25.0,
    118: 15.0,
    130: 25.0,
    145: 22.0,
    150: 15.0,
    165: 40.0,
}
"""Of IBM, by minute."""
EXPECTED = [
    ("02:20", "-U", 80.0),
    ("02:20", "+U", 77.0),
    ("02:40", "-U", 62.0),
    ("02:40", "+U", 59.0),
]


def feed(rows: list[tuple[str, str, int, float]]) -> pa.Table:
    """Kind, symbol, minute and price."""
    kind, symbol, minute, price = zip(*rows, strict=True)
    times = pa.array([m * MINUTE for m in minute]).cast(pa.timestamp("us"))
    return pa.table({"kind": list(kind), "symbol": list(symbol), "t": times, "price": list(price)})


CHANGELOG = feed([("-U", "IBM", 130, 25.0), ("+U", "IBM", 130, 22.0)])
"""The correction alone."""


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """What the feed reported first; another symbol is there as well."""
    rows = [("+I", symbol, minute, price) for minute, price in PRICES.items() for symbol in ("IBM", "SUN")]
    pq.write_table(feed(rows).drop_columns(["kind"]), tmp_path / "prices.parquet")
    pq.write_table(CHANGELOG, tmp_path / "corrections.parquet")
    return tmp_path / "prices.parquet"


def reported(rows: list[dict[str, Any]]) -> list[tuple[str, str, float]]:
    assert {row["symbol"] for row in rows} <= {"IBM"}
    return [(str(row["t"])[11:16], row["kind"], row["total"]) for row in rows]


def at_closings(rows: list[dict[str, Any]]) -> list[tuple[str, str, float]]:
    """What segments with a kind say at multiples of 20 minutes: at a point, or from there on."""
    found = []
    for row in rows:
        ref = int(np.datetime64(row["ref"], "us").astype(np.int64))
        first, last = ref + round(row["lo"] * 1e6), ref + round(row["hi"] * 1e6)
        closing = -(-first // (20 * MINUTE)) * 20 * MINUTE
        if closing < max(last, first + 1):
            (value,) = row["total"]
            found.append((closing, row["kind"], value))
    clock = [
        (f"{t // MINUTE // 60:02}:{t // MINUTE % 60:02}", kind, value) for t, kind, value in sorted(found)
    ]
    return sorted(clock, key=lambda one: (one[0], one[1] == "+U"))


def test_in_a_stored_model(prices: Path, tmp_path: Path) -> None:
    session = pulse.Session(engine="local")
    model = session.fit(
        str(prices), key="symbol", time="t", model={"price": "samples"}, points=True, out=tmp_path / "model"
    )
    streams = {"S": model.path}
    details = session.revise(model, CHANGELOG, keep=True)
    assert (details.counts["replaced"], details.counts["absorbed"], details.counts["aside"]) == (1, 0, 0)
    assert reported(session.revised(QUERY, 1, streams=streams).tuples().to_pylist()) == EXPECTED
    for mode in MODES:
        answer = session.revised(QUERY, 1, streams=streams, mode=mode)
        assert at_closings(answer.segments().to_pylist()) == EXPECTED
        assert answer.report is not None
        used = {name for flow in answer.report.operators for name in flow.modes}
        assert mode == "adaptive" or mode in used
    old, new = (session.sql(QUERY, streams=streams, version=v).tuples().to_pylist() for v in (1, 2))
    sums = {str(row["t"])[11:16]: row["total"] for row in old if row["symbol"] == "IBM"}
    assert (sums["02:20"], sums["02:40"]) == (80.0, 62.0)
    assert [row for row in old if row["symbol"] == "SUN"] == [row for row in new if row["symbol"] == "SUN"]


def test_on_the_command_line(
    prices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Run = runner(monkeypatch, capsys)
    model = tmp_path / "ibm"
    asked = ("--key", "symbol", "--time", "t", "--model", "price:samples", "--points", "--out", model, *LOCAL)
    assert run("fit", prices, *asked).code == 0
    done = run("revise", model, "--revisions", tmp_path / "corrections.parquet", "--keep", *LOCAL)
    assert done.code == 0, done.err
    query = ("query", QUERY, "--stream", f"S={model}", "--revised-from", 1, "--json", *LOCAL)
    done = run(*query)
    assert done.code == 0, done.err
    assert reported([json.loads(line) for line in done.out.splitlines()]) == EXPECTED
    for mode in MODES:
        done = run(*query, "--segments", "--mode", mode)
        assert done.code == 0, done.err
        assert at_closings([json.loads(line) for line in done.out.splitlines()]) == EXPECTED


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("results", [None, "windows"], ids=["C1", "C1 and C2"])
def test_through_connection_points(mode: str, results: str | None) -> None:
    """C1 keeps the prices, C2 the sums; without C2 nothing can be retrieved, and every mode replays."""
    columns = Columns((("symbol", pa.string()),), ("price",), points=True)
    n = len(PRICES)
    stream = Relation(
        columns=columns,
        keys=(pa.array(["IBM"]),),
        offsets=np.array([0, n]),
        ref=np.array([minute * MINUTE for minute in PRICES]),
        lo=np.zeros(n),
        hi=np.zeros(n),
        models={"price": np.array([[price] for price in PRICES.values()])},
        err={"price": np.zeros(n)},
        drift={},
        certainty=np.full(n, 3, np.uint8),
    )
    reviser = IncrementalView(
        parse(QUERY, {"S": columns}).bind({}), {"S": columns}, points=results or "inputs", mode=mode
    )
    reviser.start({"S": stream})
    at = np.array([130 * MINUTE])
    old = stream.take(np.array([5])).without_empty_groups()
    new = replace(old, models={"price": np.array([[22.0]])})
    details = reviser.revise({"S": Changed(Regions(stream.keys, at, at + 1), old, new)})
    assert reported(details.tuples().to_pylist()) == EXPECTED
    (window,) = (flow for flow in details.report.operators if flow.operator.startswith("Window"))
    assert sum(window.modes.values()) == 1
    if mode != "adaptive":
        assert list(window.modes) == [mode if results else "upstream"]
    again = reviser.revise({"S": Changed(Regions(stream.keys, at, at + 1), new, new)})
    assert len(again.changes) == 0, "what changes nothing is not reported"


def test_as_it_was_known(prices: Path, tmp_path: Path) -> None:
    """The correction came at 3:00; asked as of then, sums are of what was known."""
    session = pulse.Session(engine="local")
    details: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "samples"}, "points": True}
    model = session.fit(str(prices), out=tmp_path / "model", **details)
    seen = pa.array([180 * MINUTE] * 2).cast(pa.timestamp("us"))
    session.revise(model, CHANGELOG.append_column("seen", seen), keep=True, known="seen")
    for moment, expected in (("1970-01-01 02:59", 80.0), ("1970-01-01 03:01", 77.0)):
        for more in ({"as_of": moment}, {}):
            text = QUERY if more else f"{QUERY} as of '{moment}'"
            rows = session.sql(text, streams={"S": Model(model.path)}, **more).tuples().to_pylist()
            (total,) = (r["total"] for r in rows if r["symbol"] == "IBM" and str(r["t"])[11:16] == "02:20")
            assert total == expected

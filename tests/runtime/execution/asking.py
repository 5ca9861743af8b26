"""Small models to ask, and answers as rows that can be compared: what the tests of queries at run time share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import pulse
from pulse.store.model import Model

START = 1_600_000_000_000_000
SECOND = 1_000_000

MACD = """
select symbol, S.ap - L.ap as diff from
(select symbol, avg(price) as ap from stream S[size :short advance 2]) as S
join
(select symbol, avg(price) as ap from stream S[size :long advance 2]) as L
on (S.symbol = L.symbol)
where S.ap > L.ap
"""

FOLLOWING = """
select Candidates.id1, Candidates.id2, avg(dist) from
(select S1.id as id1, S2.id as id2, sqrt(pow(S1.x-S2.x,2) + pow(S1.y-S2.y,2)) as dist
from V[size 10 advance 1] as S1 join V as S2[size 10 advance 1] on (S1.id <> S2.id))[size 20 advance 4] as Candidates
group by id1, id2 having avg(dist) < 40
"""

COLLISION = "select from V R join V S on (R.id <> S.id) where abs(distance(R.x, R.y, S.x, S.y)) < :c"


def local() -> pulse.Session:
    """A session in this process."""
    return pulse.Session(engine="local")


def ticks(symbols: Sequence[str] = "abcde", count: int = 60, seed: int = 1, start: int = 0) -> pa.Table:
    """Prices that walk in quarters, one a second, with a venue that changes and is sometimes unknown."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[Any]] = {"symbol": [], "t": [], "price": [], "venue": []}
    for symbol in symbols:
        walk = 20.0 + 0.25 * np.cumsum(rng.integers(-2, 3, count))
        rows["symbol"] += [symbol] * count
        rows["t"] += [START + (start + i) * SECOND for i in range(count)]
        rows["price"] += walk.tolist()
        rows["venue"] += [("N", None, "Q")[i // 20 % 3] for i in range(count)]
    return table(rows, symbol=pa.string(), price=pa.float64(), venue=pa.string())


def vessels(count: int = 8, reports: int = 25, seed: int = 2) -> pa.Table:
    """Positions every four seconds; neighbours meet, others stay far."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[Any]] = {"id": [], "t": [], "x": [], "y": []}
    for i in range(count):
        begin, speed = 50.0 * i + rng.normal(0, 10, 2), rng.normal(0, 1.5, 2)
        rows["id"] += [i - 2] * reports
        rows["t"] += [START + 4 * j * SECOND for j in range(reports)]
        turn = rng.normal(0, 1, (reports, 2)).cumsum(axis=0)
        x, y = (begin + 4 * np.arange(reports)[:, None] * speed + turn).T
        rows["x"] += x.tolist()
        rows["y"] += y.tolist()
    return table(rows, id=pa.int32(), x=pa.float64(), y=pa.float64())


def table(rows: dict[str, list[Any]], **types: pa.DataType) -> pa.Table:
    """Columns of these types; ``t`` is microseconds."""
    types["t"] = pa.timestamp("us")
    return pa.table({name: pa.array(values, types[name]) for name, values in rows.items()})


def prices(out: Path | None = None, data: pa.Table | None = None, **asked: Any) -> Model:
    """A model of ticks."""
    details: dict[str, Any] = {"key": "symbol", "error": 0.3, "drift": 0.4, "keep": "venue", **asked}
    data = ticks() if data is None else data
    return local().fit(data, time="t", model={"price": "step"}, out=out, **details)


def tracks(out: Path | None = None, data: pa.Table | None = None) -> Model:
    """A model of vessels."""
    data = vessels() if data is None else data
    return local().fit(data, key="id", time="t", model={"x": "linear", "y": "linear"}, error=0.5, out=out)


def rows_of(answer: Any) -> list[tuple[Any, ...]]:
    """The rows of a table or DataFrame by keys and time: ranges as seconds since START, models at three instants of each."""
    found = answer if isinstance(answer, pa.Table) else answer.toArrow()
    names = found.column_names
    return sorted((_row(row, names) for row in found.to_pylist()), key=repr)


def _row(row: dict[str, Any], names: list[str]) -> tuple[Any, ...]:
    out: dict[str, Any] = {}
    for name in names:
        value = row[name]
        if name == "lineage":
            value = sorted((one["segment_id"], one["key"]) for one in value)
        elif isinstance(value, list):
            at = (row["lo"], (row["lo"] + row["hi"]) / 2, row["hi"])
            value = [_rounded(sum(c * t**i for i, c in enumerate(value))) for t in at]
        elif isinstance(value, float):
            value = _rounded(value)
        out[name] = value
    return tuple(out.items())


def _rounded(value: float) -> float:
    """To eight significant digits, of numbers near zero to ten places; 0 without a sign."""
    return round(float(f"{value:.8g}"), 10) + 0.0

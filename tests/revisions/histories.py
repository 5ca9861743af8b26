"""Streams that are fitted, revised and asked: what the tests of revisions from end to end share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import pulse
from pulse.benchmarks.workloads.revision_loads import Load, generate_load
from pulse.store.model import Model
from tests.runtime.execution.asking import COLLISION, FOLLOWING, MACD

LOCAL = pulse.Session(engine="local")
START = 1_600_000_000_000_000
SECOND = 1_000_000


class Kind(NamedTuple):
    """A kind of model that says all there is to say of its tuples: a run from scratch must give the same."""

    key: str
    columns: tuple[str, ...]
    fit: dict[str, Any]


KINDS = {
    "steps": Kind("symbol", ("price",), {"model": {"price": "step"}, "error": 0}),
    "steps with integrals": Kind("symbol", ("price",), {"model": {"price": "step"}, "error": 0, "drift": 0}),
    "lines": Kind("symbol", ("price",), {"model": {"price": "linear"}, "error": 0, "max_gap": "9 s"}),
    "points": Kind("symbol", ("price",), {"model": {"price": "samples"}, "points": True}),
    "vessels": Kind("id", ("x", "y"), {"model": {"x": "linear", "y": "linear"}, "error": 0}),
}

FILTER = "select symbol, price from S where price > 20 sample every 1 s"
WINDOWS = "select symbol, {} as v from S[size 7 advance 2]"
QUERIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "filter": ("steps", FILTER, {}),
    "filter of lines": ("lines", FILTER, {}),
    "or, not": (
        "lines",
        "select symbol, price from S where not (price > 19 and price < 20.5) or price > 21 sample every 1 s",
        {},
    ),
    "project": ("steps", "select symbol, 2 * price - 1 as p from S sample every 1 s", {}),
    "MODEL": ("steps", "select symbol, x from S model S.x = 2 * S.price + 1 sample every 1 s", {}),
    "sum": ("steps", WINDOWS.format("sum(price)"), {}),
    "avg": ("lines", WINDOWS.format("avg(price)"), {}),
    "avg with integrals": ("steps with integrals", WINDOWS.format("avg(price)"), {}),
    "min": ("steps", WINDOWS.format("min(price)"), {}),
    "max of lines": ("lines", WINDOWS.format("max(price)"), {}),
    "having": (
        "steps",
        WINDOWS.format("avg(price)") + " group by symbol having avg(price) > 20",
        {},
    ),
    "envelope": ("steps", "select max(price) as m from S sample every 1 s", {}),
    "total": ("steps", "select sum(price) as m from S sample every 1 s", {}),
    "window over all": ("steps", "select min(price) as m from S[size 5 advance 1]", {}),
    "join": (
        "steps",
        "select A.symbol as a, B.symbol as b, A.price - B.price as d from S as A join S as B on (A.symbol <> B.symbol) "
        "where A.price > B.price sample every 1 s",
        {},
    ),
    "sum of tuples": ("points", WINDOWS.format("sum(price)"), {}),
    "count of tuples": ("points", WINDOWS.format("count(*)"), {}),
    "avg of tuples": ("points", WINDOWS.format("avg(price)"), {}),
    "max of tuples": ("points", WINDOWS.format("max(price)"), {}),
    "sum of filtered tuples": (
        "points",
        "select symbol, sum(price) as v from S[size 7 advance 2] where price > 20",
        {},
    ),
    "macd": ("steps", MACD, {"short": 4, "long": 12}),
    "following": ("vessels", FOLLOWING.replace("V", "S"), {}),
    "collision": ("vessels", COLLISION.replace("V ", "S ") + " sample every 1 s", {"c": 30}),
}


def stream(kind: str, seed: int, n: int = 60) -> pa.Table:
    """Tuples by time: values in quarters, so that they are often equal and sums exact; some at one instant, some after a hole."""
    random = np.random.default_rng(seed)
    key, names, _ = KINDS[kind]
    t = START + np.cumsum(random.choice([0, 1, 1, 1, 2, 3, 10], n) * SECOND)
    who = random.integers(0, 3, n)
    keys = pa.array(who if key == "id" else [f"k{i}" for i in who])
    if key == "id":  # equal instants of one vessel would be jumps of its position; they are tested elsewhere
        t = START + np.arange(n) * SECOND
    values = {name: 20 + 0.25 * np.cumsum(random.integers(-2, 3, n)) for name in names}
    if key == "id":
        values = {name: 8.0 * (one - 20) for name, one in values.items()}
    return pa.table({key: keys, "t": pa.array(t).cast(pa.timestamp("us")), **values})


def fitted(
    folder: Path, kind: str, tuples: pa.Table, name: str = "first", session: Any = LOCAL, **more: Any
) -> Model:
    """A model of a table in a file, which is its history."""
    pq.write_table(tuples, folder / f"{name}.parquet", row_group_size=max(tuples.num_rows // 2, 1))
    key, _, fit = KINDS[kind]
    out = folder / f"{name}-model"
    return session.fit(str(folder / f"{name}.parquet"), key=key, time="t", out=out, **fit, **more)


def load_of(model: Model, tuples: pa.Table, revisions: int, seed: int, **more: Any) -> Load:
    """Revisions of the tuples of a model."""
    return generate_load(tuples, model.schema, revisions=revisions, seed=seed, **more)


def rows_of(table: pa.Table, keys: tuple[str, ...]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rows by time and key, without bounds and certainty."""
    plain = [name for name in table.column_names if not name.endswith("_err") and name != "certainty"]
    found = {}
    for row in table.select(plain).to_pylist():
        at = tuple(row.pop(name) for name in keys)
        assert at not in found, f"emitted twice: {at}"
        found[at] = row
    return found


def keys_of(answer: Any) -> tuple[str, ...]:
    """What tells tuples of an answer apart."""
    columns = answer.query.plan.columns
    return (columns.time, *(name for name in answer.query.select if name in columns.key_names))

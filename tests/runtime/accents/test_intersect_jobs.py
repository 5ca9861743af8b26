"""INTERSECT and UNION in running jobs: with keys and without, over ranges and at points, with accents of one input or both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pulse.core.time import format_instant
from pulse.operators.output.apply_changes import apply_changes
from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.toml import Job, job_of
from pulse.runtime.predict.local_driver import run_local
from tests.runtime.accents.accented_jobs import SECOND, files
from tests.runtime.jobs.running_jobs import final, ran

SYMBOLS = ("a", "b")
BOTH = "select {} from S intersect select {} from R"
QUERIES = {
    "keys": (BOTH.format(*("symbol, price",) * 2), ("symbol",)),
    "keys that are not shown": (BOTH.format(*("price",) * 2), ("symbol",)),
    "no keys": (BOTH.format(*("price",) * 2), ()),
}
# Half seconds of which tuples have shown; what is predicted of later ones depends on when models began.
END = 2 * 19
Prices = dict[str, list[float]]


def feeds(seed: int, keys: Sequence[str]) -> tuple[Prices, Prices]:
    random = np.random.default_rng(seed)
    one, other = ({key: random.integers(0, 3, 20).astype(float).tolist() for key in keys} for _ in range(2))
    return one, other


def table(prices: Prices, keyed: bool, double: int | None = None) -> pa.Table:
    """A tuple a second and key; from a second on twice as much."""
    count = len(next(iter(prices.values())))
    rows = [
        (key, t, own[t] * (2 if double is not None and t >= double else 1))
        for t in range(count)
        for key, own in prices.items()
    ]
    at = pa.array([t * SECOND for _, t, _ in rows], pa.timestamp("us"))
    columns = {"t": at, "price": [price for *_, price in rows]}
    return pa.table({"symbol": [key for key, *_ in rows], **columns} if keyed else columns)


def the_job(folder: Path, query: str, *, keyed: bool, truth: str = "step", accents: bool = False) -> Job:
    def stream(name: str) -> dict[str, Any]:
        reported = {"accents": f"{name}.log"} if accents else {}
        key = {"key": "symbol"} if keyed else {}
        details = {
            "time": "t",
            "model": {"price": truth},
            "error": 0.001,
            "horizon": "5 s",
            **key,
            **reported,
        }
        return {"source": "files", "path": name, "options": {"maxFilesPerTrigger": 1}, **details}

    sink = {"kind": "parquet", "path": "out"}
    return job_of(
        {
            "query": query,
            "streams": {"S": stream("S"), "R": stream("R")},
            "sink": sink,
            "buckets": 2,
            "checkpoint": "kept",
        },
        folder=folder,
    )


def arrive(
    folder: Path, tables: dict[str, pa.Table], logs: dict[str, int | None] | None = None, cut: int = 11
) -> None:
    for name, one in tables.items():
        files(folder / name, one, [cut])
        if logs is not None and (at := logs[name]) is not None:
            line = f"{format_instant(at * SECOND)} [[true, alter(price, y * 2)]]\n"
            (folder / f"{name}.log").write_text(line, encoding="utf-8")


def common(one: Prices, other: Prices, keyed: bool, moved: int | None = None) -> dict[Any, float]:
    """Where both hold the same price, looked at twice a second; twice as much from when both have moved."""
    found: dict[Any, float] = {}
    for key in one:
        for step in range(END):
            t = step // 2
            if one[key][t] == other[key][t]:
                at = (key, step) if keyed else (step,)
                found[at] = one[key][t] * (2 if moved is not None and step // 2 >= moved else 1)
    return found


def values(folder: Path, keys: tuple[str, ...]) -> dict[Any, Any]:
    held: dict[Any, Any] = final(read_changes(folder / "out"), keys, "price")
    return {at: value for at, (_, value) in held.items() if at[-1] < END}


@pytest.mark.parametrize("name", list(QUERIES))
@pytest.mark.parametrize("seed", range(3))
def test_times_at_which_both_hold_the_same(tmp_path: Path, name: str, seed: int) -> None:
    (query, keys), keyed = QUERIES[name], name != "no keys"
    one, other = feeds(seed, SYMBOLS if keyed else ("",))
    arrive(tmp_path, {"S": table(one, keyed), "R": table(other, keyed)})
    found = run_local(the_job(tmp_path, query, keyed=keyed))
    assert found.tally.aside == 0
    got = values(tmp_path, keys)
    assert len(got) >= 6
    assert got == common(one, other, keyed)


@pytest.mark.parametrize("name", list(QUERIES))
@pytest.mark.parametrize(("first", "second"), [(7, 7), (5, 14), (12, None), (None, None)])
def test_units_change_once_both_inputs_have_them(
    tmp_path: Path, name: str, first: int | None, second: int | None
) -> None:
    """The change of one input is undone until the other has it, too: then both are in the new units."""
    (query, keys), keyed = QUERIES[name], name != "no keys"
    one, other = feeds(4, SYMBOLS if keyed else ("",))
    tables = {"S": table(one, keyed, first), "R": table(other, keyed, second)}
    arrive(tmp_path, tables, {"S": first, "R": second})
    found = run_local(the_job(tmp_path, query, keyed=keyed, accents=True))
    assert found.tally.aside == 0
    moved = None if first is None or second is None else max(first, second)
    assert values(tmp_path, keys) == common(one, other, keyed, moved)


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("accents", [True, False])
def test_lines_that_cross_meet_at_a_point(tmp_path: Path, keyed: bool, accents: bool) -> None:
    rising, falling = {"a": [float(t) for t in range(8)]}, {"a": [float(8 - t) for t in range(8)]}
    logs: dict[str, int | None] = {"S": 3, "R": 3}
    tables = {
        "S": table(rising, keyed, 3 if accents else None),
        "R": table(falling, keyed, 3 if accents else None),
    }
    arrive(tmp_path, tables, logs if accents else None, cut=6)
    query = BOTH.format(*("symbol, price" if keyed else "price",) * 2)
    run_local(the_job(tmp_path, query, keyed=keyed, truth="linear", accents=accents))
    points = [
        row for row in apply_changes(read_changes(tmp_path / "out")).to_pylist() if row["lo"] == row["hi"]
    ]
    (met,) = (
        [row for row in points if abs(row["ref"].timestamp() + row["lo"] - 4.0) < 1e-9] if points else [None]
    )
    assert met is not None
    h = met["lo"]
    assert sum(c * h**i for i, c in enumerate(met["price"])) == pytest.approx(8.0 if accents else 4.0)


@pytest.mark.parametrize("on_spark", [False, True])
def test_members_of_a_union_are_read_whoever_has_what(
    request: pytest.FixtureRequest, tmp_path: Path, on_spark: bool
) -> None:
    """A union holds what one member drops as long as another has it: that nothing comes out does not say that nobody reads it."""
    one, other = feeds(1, SYMBOLS)
    arrive(tmp_path, {"S": table(one, True, 6), "R": table(other, True, 6)}, {"S": 6, "R": 6})
    query = "select 's' as source, symbol, price from S union all select 'r' as source, symbol, price from R"
    job = the_job(tmp_path, query, keyed=True, accents=True)
    if on_spark:
        ran(request.getfixturevalue("spark"), job)
    else:
        run_local(job)
    expected = {
        (source, key, step): own[step // 2] * (2 if step // 2 >= 6 else 1)
        for source, prices in (("s", one), ("r", other))
        for key, own in prices.items()
        for step in range(END)
    }
    assert values(tmp_path, ("source", "symbol")) == expected


def test_spark_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    query, keys = QUERIES["keys"]
    one, other = feeds(4, SYMBOLS)
    arrive(tmp_path, {"S": table(one, True, 7), "R": table(other, True, 7)}, {"S": 7, "R": 7})
    status = ran(spark, the_job(tmp_path, query, keyed=True, accents=True))
    assert (status.tally.tuples, status.tally.aside) == (80, 0)
    assert values(tmp_path, keys) == common(one, other, True, 7)

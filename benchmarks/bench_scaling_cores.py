"""One core against two: fits, MACD 10/60, minima 60/2 and a sweep of 12 variants of MACD, each kept to a number of cores.

A row's process, its threads and what it starts run on those cores alone; Spark has as many workers, DuckDB as many threads.
Answers are checked as in the rows on scaling.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pulse.benchmarks.cores import here, on_cores
from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.spark_peer import consumed
from pulse.benchmarks.recording import OURS, OURS_ON_SPARK, Accuracy, apart, exact, record, sizes
from pulse.benchmarks.workloads.scaling_data import ASKED, BOUND_FOR, VARIANTS, Grown, fitted
from pulse.session import Session

ROWS = sizes(500_000, 20_000_000)
CORES = [1, 2]
LOADING = "DuckDB, loading and sorting"
SORTED = "DuckDB, sorted table"
NAMES = {"macd": "MACD", "minimum": "minimum 60/2"}


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grown]:
    folder = tmp_path_factory.mktemp("cores")
    grown = Grown(folder, ROWS)
    for name in NAMES:  # with all cores, before any are taken away
        grown.model(BOUND_FOR[name])
        grown.truth(name)
    grown.counts()
    yield grown
    shutil.rmtree(folder)


@dataclass(frozen=True)
class Kept:
    """What runs on a number of cores."""

    cores: int
    here: Session
    spark: Session
    duckdb: DuckDB


@pytest.fixture(scope="module", params=CORES, ids=lambda n: f"{n}-cores")
def kept(request: pytest.FixtureRequest, market: Grown) -> Iterator[Kept]:
    cores = request.param
    if cores > here():
        pytest.skip(f"there are {here()} cores")
    with on_cores(cores):
        peer = market.duckdb(load=True, threads=cores)
        with apart("starting Spark"):
            session = Session(f"local[{cores}]")
            session.spark.range(1).collect()
        with session:
            yield Kept(cores, Session(engine="local"), session, peer)
        peer.close()


def row(
    kept: Kept, what: str, contender: str, *, rounds: int = sizes(1, 3), warmup: int = 1
) -> dict[str, Any]:
    """What all rows share. What takes long is repeated less."""
    return {
        "group": f"{what}, {ROWS / 1e6:g} M tuples, {kept.cores} core{'s' * (kept.cores > 1)}",
        "contender": contender,
        "work": ROWS,
        "figure": f"Cores: {what}",
        "x": kept.cores,
        "x_label": "cores",
        "rounds": rounds,
        "warmup": warmup,
    }


@pytest.mark.parametrize("contender", [OURS, OURS_ON_SPARK, LOADING])
def test_fit(benchmark: Any, market: Grown, kept: Kept, contender: str, tmp_path: Path) -> None:
    shared = row(kept, "fit", contender, rounds=sizes(1, 2), warmup=0)
    if contender == LOADING:

        def load() -> int:
            peer = market.duckdb(load=True, threads=kept.cores)
            try:
                return int(peer.connection.sql("select count(*) from ticks").fetchall()[0][0])
            finally:
                peer.close()

        def all_there(rows: int) -> Accuracy:
            assert rows == ROWS
            return exact()

        record(benchmark, load, accuracy=all_there, **shared)
        return
    session, bound = kept.here if contender == OURS else kept.spark, BOUND_FOR["macd"]
    record(
        benchmark,
        lambda: fitted(session, market.file, tmp_path / "model", bound),
        accuracy=lambda model: market.judged_model(model, bound),
        facts={"checked": market.checked},
        **shared,
    )


@pytest.mark.parametrize("name", list(NAMES))
@pytest.mark.parametrize("contender", [OURS, OURS_ON_SPARK, SORTED])
def test_query(benchmark: Any, market: Grown, kept: Kept, name: str, contender: str) -> None:
    shared = row(kept, NAMES[name], contender)
    if contender == SORTED:
        record(
            benchmark,
            lambda: getattr(kept.duckdb, name)(ASKED[name]),
            accuracy=lambda answer: market.judged(name, answer),
            facts={"checked": market.checked},
            **shared,
        )
        return
    judged, facts = market.judged_ours(name)
    if contender == OURS_ON_SPARK:
        market.check_same(name, kept.here, kept.spark)
        record(
            benchmark,
            lambda: consumed(market.ask(name, kept.spark)),
            accuracy=judged,
            facts=facts,
            **shared,
        )
        return
    record(
        benchmark,
        lambda: market.ask(name, kept.here),
        accuracy=partial(market.judged_timed, name),
        facts=facts,
        **shared,
    )


@pytest.mark.parametrize("contender", [OURS, OURS_ON_SPARK, "DuckDB, one query for all"])
def test_sweep(benchmark: Any, market: Grown, kept: Kept, contender: str) -> None:
    shared = row(kept, f"sweep of {len(VARIANTS)} MACDs", contender, rounds=1)
    if contender in (OURS, OURS_ON_SPARK):
        session = kept.here if contender == OURS else kept.spark
        record(
            benchmark,
            lambda: market.sweep(session),
            accuracy=lambda table: market.judged_sweep(table.to_pylist()),
            facts={"checked": "all keys"},
            **shared,
        )
        return
    record(
        benchmark,
        lambda: kept.duckdb.all_macds_figures(VARIANTS),
        accuracy=lambda table: market.judged_counts(table.to_pylist()),
        **shared,
    )

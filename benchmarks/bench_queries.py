"""Queries: Pulse in process and through Spark, on stored models, against tuple engines and tuple operators by hand.

Every answer is checked before it is timed (:mod:`pulse.benchmarks.contenders`). All contenders compute every row and column of
the answer: as Arrow tables, or on Spark into a sink that keeps nothing. A contender that would take minutes is given less to do,
and times are compared per tuple or variant.

Run with ``make bench``, or ``pytest benchmarks/bench_queries.py -o python_files='bench_*.py'``. ``PULSE_BENCH_QUICK=1`` takes
small sizes, ``PULSE_BENCH_TICKS=10000000,50000000`` those; larger ones are in the chapter on scaling.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pulse.benchmarks.checks.comparisons import rows_of
from pulse.benchmarks.checks.sweeps import by_variant, judged_counts, judged_sweep
from pulse.benchmarks.contenders import (
    ASKED,
    CONTENDERS,
    KEYS,
    LONGS,
    REFERENCE,
    REPORTS,
    SHORTS,
    TICKS,
    VARIANTS,
    Field,
    compete,
    judged_stream,
)
from pulse.benchmarks.peers.agreement import agreement_of_ranges, instants_of
from pulse.benchmarks.peers.questions import Macd, Near
from pulse.benchmarks.peers.spark_peer import consumed
from pulse.benchmarks.recording import BY_HAND, OURS, OURS_ON_SPARK, record, sizes
from pulse.session import Session


@pytest.fixture(scope="module", params=TICKS, ids=lambda n: f"{n:,}-ticks")
def market(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: Session
) -> Iterator[Field]:
    field = Field(tmp_path_factory.mktemp("market"), spark, ticks=request.param)
    yield field
    field.close()


@pytest.fixture(scope="module")
def sea(tmp_path_factory: pytest.TempPathFactory, spark: Session) -> Iterator[Field]:
    field = Field(tmp_path_factory.mktemp("sea"), spark, reports=REPORTS)
    yield field
    field.close()


# The contender changes slowest, so that each loads its data once.
@pytest.mark.parametrize("name", ["macd", "minimum", "above"])
@pytest.mark.parametrize("contender", CONTENDERS)
def test_ticks(benchmark: Any, market: Field, name: str, contender: str) -> None:
    compete(benchmark, market, name, contender, f"{name}, {market.rows // 1_000_000} M ticks")


@pytest.mark.parametrize("name", ["near", "following"])
@pytest.mark.parametrize("contender", CONTENDERS)
def test_vessels(benchmark: Any, sea: Field, name: str, contender: str) -> None:
    compete(benchmark, sea, name, contender, f"{name}, {sea.rows // 1000} k reports")


@pytest.mark.parametrize("name", ["minimum", "above"])
def test_stream(benchmark: Any, market: Field, name: str) -> None:
    """Spark Structured Streaming, where it can say the query: see :mod:`pulse.benchmarks.peers.streaming_peer`."""
    peer, rows = market.stream(name)
    asked = getattr(peer, name)
    judged, facts = judged_stream(market, name, peer.collect(asked(ASKED[name])))
    record(
        benchmark,
        lambda: peer.consume(asked(ASKED[name])),
        group=f"{name}, {market.rows // 1_000_000} M ticks",
        contender="Spark Structured Streaming",
        work=rows,
        accuracy=judged,
        rounds=1,
        warmup=0,
        facts=facts,
    )


@pytest.mark.parametrize("contender", [OURS, "PyMEOS"])
def test_ranges(benchmark: Any, sea: Field, contender: str) -> None:
    """From when to when vessels are near, in continuous time: Pulse's segments, PyMEOS's spans, which are exact."""
    from pulse.benchmarks.peers.meos_peer import Meos  # on some systems there is no PyMEOS

    asked, reports = Near(), sea.vessels
    assert reports is not None
    peer = sea.once("meos", "", lambda _: Meos(vessels=reports, max_gap=asked.max_gap))
    theirs = peer.near(asked)
    row: dict[str, Any] = {"group": f"near as ranges, {sea.rows // 1000} k reports", "work": sea.rows}
    row |= {"contender": contender, "rounds": sizes(5, 9)}
    judged = agreement_of_ranges(
        sea.answer("near", sea.here, possible=True).segments(), theirs, keys=KEYS["near"]
    )
    if contender == OURS:
        record(benchmark, lambda: sea.answer("near", sea.here).segments(), accuracy=judged, **row)
        return
    shown = instants_of(theirs, asked.every)
    record(
        benchmark,
        lambda: peer.near(asked),
        accuracy=rows_of(shown, sea.truth("near")[0], keys=KEYS["near"]),
        facts={"ranges": theirs.num_rows},
        **row,
    )


SWEPT_BY = {  # contender: whose data, how many variants
    f"{BY_HAND}, one pass for all": (f"{BY_HAND}, sorted arrays", 100),
    "DuckDB, one query for all": (REFERENCE, 100),
    "DuckDB, a run each": (REFERENCE, 5),
    "DuckDB, Parquet, a run each": ("DuckDB, Parquet", 5),
    "Polars, integrals shared": ("Polars, sorted frame", 100),
    "pandas, integrals shared": ("pandas, sorted frame", 100),
    "Spark SQL, a run each": ("Spark SQL, cached", 2),
}


@pytest.mark.parametrize("contender", [OURS, OURS_ON_SPARK, *SWEPT_BY])
def test_sweep(benchmark: Any, market: Field, contender: str) -> None:
    """Variants of MACD, a hundred in full. A run each is of a few, and scaled: the ratio is of the time a variant."""
    row: dict[str, Any] = {
        "group": f"sweep of {len(VARIANTS)}, {market.rows // 1_000_000} M ticks",
        "contender": contender,
        "unit": "variants",
    }
    market.model("macd")
    if contender in (OURS, OURS_ON_SPARK):
        session = market.here if contender == OURS else market.spark
        streams = {"S": market.model("macd")}

        def sweep() -> pa.Table:
            return session.sweep(Macd.text, streams=streams, short=list(SHORTS), long=list(LONGS)).summary()

        # In fact far nearer than certified for the worst key.
        judged = judged_sweep(sweep().to_pylist(), market.counts(), market.model("macd"), furthest=0.02)
        record(benchmark, sweep, work=len(VARIANTS), accuracy=judged, rounds=sizes(1, 3), **row)
        return
    market.counts()  # of the truth, before another peer holds its data
    whose, number = SWEPT_BY[contender]
    peer, some = market.peer(whose), VARIANTS[:: max(len(VARIANTS) // number, 1)][:number]
    each = "each" in contender
    once = any(slow in contender for slow in ("Parquet", "DuckDB, one", "Spark"))
    record(
        benchmark,
        (lambda: [peer.macd_figures(v) for v in some]) if each else partial(peer.all_macds_figures, some),
        work=len(some),
        accuracy=lambda found: judged_counts(_counts(some, found), some, market.counts()),
        rounds=1 if once else 2,
        warmup=0 if once else 1,
        **row,
    )


def _counts(variants: list[Macd], found: Any) -> dict[tuple[int, int], int]:
    """How often each holds: of one table, or a table each."""
    if isinstance(found, list):
        ns = [one.column(0)[0].as_py() for one in found]
        return {(v.short, v.long): n for v, n in zip(variants, ns, strict=True)}
    return {variant: row["n"] for variant, row in by_variant(found.to_pylist()).items()}


FROM_FILES = [f"{BY_HAND}, Parquet", "DuckDB, Parquet", "Polars, Parquet", "pandas, Parquet"]


@pytest.mark.parametrize("contender", [OURS, OURS_ON_SPARK, *FROM_FILES])
def test_first_query(benchmark: Any, market: Field, contender: str, tmp_path: Path) -> None:
    """From the file to the first answer: with a fit, or without."""
    truth, slack = market.truth("macd")

    def ask() -> Any:
        if contender not in (OURS, OURS_ON_SPARK):
            return market.peer(contender).macd(Macd())
        session = market.here if contender == OURS else market.spark
        out = tmp_path / os.urandom(4).hex()
        model = session.fit(
            market.ticks, key="symbol", time="t", model={"price": "step"}, drift="0.005%", out=out
        )
        return session.sql(Macd.text, streams={"S": model}, parameters=Macd().parameters).tuples()

    def run() -> Any:
        answer = ask()
        return answer if isinstance(answer, pa.Table) else consumed(answer)

    answer = ask()
    answer = answer if isinstance(answer, pa.Table) else answer.toArrow()
    record(
        benchmark,
        run,
        group=f"file to first MACD, {market.rows // 1_000_000} M ticks",
        contender=contender,
        work=market.rows,
        accuracy=rows_of(answer, truth, keys=("symbol",), value="diff", rounding=slack),
        rounds=sizes(1, 2),
        warmup=0,
    )

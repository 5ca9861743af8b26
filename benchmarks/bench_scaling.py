"""From 1 M to 200 M tuples: what a tuple costs as the work grows, what a model takes on disk, and how much memory is needed.

Fits, MACD 10/60, minima 60/2 and a sweep of 12 variants of MACD, by Pulse and by DuckDB. Up to 10 M tuples answers are checked on
all keys, above on 20 keys that a seed chooses; sweeps always on all. "Pulse, first time" has nothing decoded yet.

``PULSE_BENCH_SCALING=1000000,50000000`` takes these sizes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.benchmarks.bench_fit import decode
from pulse.benchmarks.grown import ASKED, BOUND_FOR, BOUNDS, VARIANTS, Grown, fitted
from pulse.benchmarks.peers.agreement import assert_same
from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.spark_peer import consumed
from pulse.benchmarks.recording import FLOOR, OURS, OURS_ON_SPARK, Accuracy, exact, record, sizes
from pulse.core import SegmentBatch
from pulse.runtime.scan import cache
from pulse.session import Session
from pulse.store.model import Model

_CHOSEN = sizes("500000,2000000", "1000000,10000000,50000000,200000000")
SIZES = [int(n) for n in os.environ.get("PULSE_BENCH_SCALING", _CHOSEN).split(",")]
STORED = sizes(1_000_000, 10_000_000)
FIRST, SORTED, PARQUET = "pulse, first time", "DuckDB, sorted table", "DuckDB, Parquet"
DECODED = f"{FLOOR}pyarrow decodes"
NAMES = {"macd": "MACD", "minimum": "minimum 60/2"}


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n:,}-ticks")
def market(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grown]:
    folder = tmp_path_factory.mktemp("scaling")
    yield Grown(folder, request.param)
    cache.clear()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def here() -> Session:
    return Session(engine="local")


def row(market: Grown, what: str, contender: str, **more: Any) -> dict[str, Any]:
    """What all rows of a size share. Few rounds where they are long."""
    large = market.rows > 20_000_000
    return {
        "group": f"{what}, {market.rows / 1e6:g} M tuples",
        "contender": contender,
        "work": market.rows,
        "figure": f"Scaling: {what}",
        "x": market.rows / 1e6,
        "x_label": "million tuples",
        "rounds": 1 if large else 3,
        "warmup": 0 if large else 1,
        **more,
    }


# -- cost per tuple -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("contender", [OURS, OURS_ON_SPARK, "DuckDB, loading and sorting", DECODED])
def test_fit(
    benchmark: Any, market: Grown, here: Session, spark: Session, contender: str, tmp_path: Path
) -> None:
    """Models for averages; beside what a tuple engine does once, so that it answers fastest."""
    bound = BOUND_FOR["macd"]
    facts: dict[str, str | float] = {"checked": market.checked}
    if contender in (OURS, OURS_ON_SPARK):
        session = here if contender == OURS else spark
        model = record(
            benchmark,
            lambda: fitted(session, market.file, tmp_path / "model", bound),
            accuracy=lambda model: market.judged_model(model, bound),
            facts=facts,
            **row(market, "fit", contender),
        )
        benchmark.extra_info["facts"]["tuples a segment"] = market.rows / len(model)
        return
    if contender == DECODED:
        judge = partial(_all_read, market.rows)
        record(benchmark, lambda: decode(market.file), accuracy=judge, **row(market, "fit", contender))
        return
    record(
        benchmark,
        lambda: _loaded(market),
        accuracy=partial(_all_read, market.rows),
        **row(market, "fit", contender),
    )


def _loaded(market: Grown) -> int:
    peer = market.duckdb(load=True)
    try:
        return int(peer.connection.sql("select count(*) from ticks").fetchall()[0][0])
    finally:
        peer.close()


def _all_read(expected: int, found: int) -> Accuracy:
    assert found == expected
    return exact()


@pytest.fixture(scope="module")
def peers(market: Grown) -> Iterator[dict[str, DuckDB]]:
    """DuckDB's two forms, each made when first needed."""
    made: dict[str, DuckDB] = {}
    yield made
    for peer in made.values():
        peer.close()


def peer_of(peers: dict[str, DuckDB], market: Grown, contender: str) -> DuckDB:
    if contender not in peers:
        peers[contender] = market.duckdb(load=contender == SORTED)
    return peers[contender]


@pytest.mark.parametrize("name", list(NAMES))
@pytest.mark.parametrize("contender", [OURS, FIRST, OURS_ON_SPARK, SORTED, PARQUET])
def test_query(
    benchmark: Any,
    market: Grown,
    here: Session,
    spark: Session,
    peers: dict[str, DuckDB],
    contender: str,
    name: str,
) -> None:
    shared = row(market, NAMES[name], contender)
    if contender in (SORTED, PARQUET):
        peer = peer_of(peers, market, contender)
        record(
            benchmark,
            lambda: getattr(peer, name)(ASKED[name]),
            accuracy=partial(market.judged, name),
            facts={"checked": market.checked},
            **shared,
        )
        return
    judged, facts = market.judged_ours(name)

    def judge(answer: pa.Table) -> Accuracy:
        """The rows that were timed are those that were looked at."""
        timed = market.judged(name, answer)
        assert (timed.precision, timed.recall) == (judged.precision, judged.recall)
        return judged

    if contender == OURS_ON_SPARK:
        here_, there = (market.asked_of_keys(name, one) for one in (here, spark))
        assert_same(here_, there.toArrow(), keys=("symbol",))
        del here_, there
        run = partial(_consumed, market, name, spark)
        record(benchmark, run, accuracy=judged, facts=facts, **shared)
        return
    if contender == OURS:
        market.ask(name, here)  # decoded, as far as there is room
    setup = cache.clear if contender == FIRST else None
    record(benchmark, lambda: market.ask(name, here), accuracy=judge, setup=setup, facts=facts, **shared)


def _consumed(market: Grown, name: str, spark: Session) -> None:
    consumed(market.ask(name, spark))


@pytest.mark.parametrize(
    "contender", [OURS, OURS_ON_SPARK, "DuckDB, one query for all", "DuckDB, Parquet, a run each"]
)
def test_sweep(
    benchmark: Any, market: Grown, here: Session, spark: Session, peers: dict[str, DuckDB], contender: str
) -> None:
    """Time is per tuple and sweep; DuckDB's runs by themselves are two, and scaled."""
    shared = row(market, f"sweep of {len(VARIANTS)} MACDs", contender, rounds=1)
    if contender in (OURS, OURS_ON_SPARK):
        session = here if contender == OURS else spark
        record(
            benchmark,
            lambda: market.sweep(session),
            accuracy=lambda table: market.judged_sweep(table.to_pylist()),
            facts={"checked": "all keys"},
            **shared,
        )
        return
    if contender == "DuckDB, one query for all":
        peer = peer_of(peers, market, SORTED)
        record(
            benchmark,
            lambda: peer.all_macds_figures(VARIANTS),
            accuracy=lambda table: market.judged_counts(table.to_pylist()),
            **shared,
        )
        return
    peer, some = peer_of(peers, market, PARQUET), VARIANTS[:2]
    record(
        benchmark,
        lambda: [peer.macd_figures(variant) for variant in some],
        accuracy=lambda found: market.judged_counts(
            [
                {"short": v.short, "long": v.long, "n": one.column(0)[0].as_py()}
                for v, one in zip(some, found, strict=True)
            ],
            some,
        ),
        **{**shared, "work": market.rows * len(some) / len(VARIANTS)},
    )


# -- memory -------------------------------------------------------------------------------------------------


def fit_alone(file: Path, folder: Path) -> Model:
    """A fit by itself in a process, whose memory is then its own."""
    return fitted(Session(engine="local"), file, folder / os.urandom(4).hex(), BOUND_FOR["macd"])


def ask_alone(model: str, folder: Path) -> Path:
    """A query into a file, which holds no more of the answer than a few pieces; nothing decoded is kept for the next."""
    cache.limit(0)
    asked = ASKED["macd"]
    answer = Session(engine="local").sql(asked.text, streams={"S": Model(model)}, **asked.parameters)
    out = folder / f"{os.urandom(4).hex()}.parquet"
    answer.write(str(out))
    return out


@pytest.mark.parametrize("what", ["fit", "macd"])
def test_memory(benchmark: Any, market: Grown, tmp_path: Path, what: str) -> None:
    """High-water marks of a process of its own, and by how much they rise from the next smaller size on. Work is dealt by whole
    keys, so they may rise with the largest key's segments, but must stay far below what the tuples would take."""
    room = cache.room
    try:
        if what == "fit":
            bound = BOUND_FOR["macd"]
            run: Any = partial(fit_alone, market.file, tmp_path)
            judge: Any = partial(market.judged_model, bound=bound)
        else:
            run = partial(ask_alone, str(market.model(BOUND_FOR["macd"]).path), tmp_path)
            judged, _ = market.judged_ours("macd")

            def judge(file: Path) -> Accuracy:
                written = market.judged("macd", pq.read_table(file))
                assert (written.precision, written.recall) == (judged.precision, judged.recall)
                return judged

        shared = row(market, f"memory of {what}", OURS, rounds=1, warmup=0, figure="", x=None, x_label="")
        record(benchmark, run, accuracy=judge, peak=True, facts={"checked": market.checked}, **shared)
    finally:
        cache.limit(room)
    memory, told = benchmark.extra_info["memory"], benchmark.extra_info["facts"]
    _MARKS.setdefault(what, {})[market.rows] = memory["most"]
    told["MB at most"] = memory["most"] / 1e6
    told["of it before the work, MB"] = memory["before"] / 1e6
    smaller = [rows for rows in _MARKS[what] if rows < market.rows]
    if smaller:
        told["bytes more per tuple more"] = slope = _slope(_MARKS[what], max(smaller), market.rows)
        assert slope < STEEPEST or max(smaller) < SETTLED


def _slope(marks: dict[int, int], smaller: int, larger: int) -> float:
    return (marks[larger] - marks[smaller]) / (larger - smaller)


_MARKS: dict[str, dict[int, int]] = {}
STEEPEST = 16.0  # bytes; a tuple in memory takes 20
SETTLED = 10_000_000  # tuples from which on a fit holds no more: below, what is held is still growing to that


# -- disk ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grown]:
    folder = tmp_path_factory.mktemp("stored")
    yield Grown(folder, STORED)
    shutil.rmtree(folder)


BY_KEY = "Parquet (zstd), by key and time"


@pytest.mark.parametrize(
    "contender", [*(f"pulse, {bound}" for bound in BOUNDS), "Parquet (zstd), as it came", BY_KEY]
)
def test_disk(benchmark: Any, stored: Grown, contender: str, tmp_path: Path) -> None:
    """Models at three bounds against the tuples that they stand for, both compressed with zstd; timed is reading all of it."""
    shared: dict[str, Any] = {
        "group": f"read from disk, {STORED / 1e6:g} M tuples",
        "contender": contender,
        "work": STORED,
        "rounds": 3,
    }
    tuples = {True: _as_parquet(stored, by_key=True), False: _as_parquet(stored, by_key=False)}
    smallest = min(file.stat().st_size for file in tuples.values())
    if contender.startswith("Parquet"):
        file = tuples[contender == BY_KEY]
        size, read = file.stat().st_size, cast("Callable[[], Any]", partial(pq.read_table, file))
        judge: Any = lambda table: _all_read(STORED, table.num_rows)  # noqa: E731
    else:
        bound = contender.removeprefix("pulse, ")
        model = stored.model(bound)
        size = sum(one.stat().st_size for one in model.path.rglob("*") if one.is_file())
        judged = stored.judged_model(model, bound)

        def judge(segments: SegmentBatch) -> Accuracy:
            assert len(segments) == len(model)
            return judged

        read = model.read
    facts = {
        "MB": size / 1e6,
        "bytes a tuple": size / STORED,
        "share of the smaller Parquet": size / smallest,
    }
    record(benchmark, read, accuracy=judge, facts=facts, **shared)


def _as_parquet(stored: Grown, *, by_key: bool) -> Path:
    """The columns that are modelled, encoded as small as Arrow can: times as differences, what repeats in dictionaries."""
    path = stored.folder / f"tuples-{by_key}.parquet"
    if not path.exists():
        table = pq.read_table(stored.file, columns=["symbol", "t", "price"])
        if by_key:
            table = table.sort_by([("symbol", "ascending"), ("t", "ascending")])
        pq.write_table(
            table,
            path,
            compression="zstd",
            use_dictionary=["symbol", "price"],
            column_encoding={"t": "DELTA_BINARY_PACKED"},
        )
    return path

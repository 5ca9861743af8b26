"""From 1 M to 200 M tuples: what a tuple costs as the work grows, what a model takes on disk, and how much memory is needed.

Fits, MACD 10/60, minima 60/2 and a sweep of 12 variants of MACD, by Pulse and by DuckDB. Up to 10 M tuples answers are checked on
all keys, above on 20 keys that a seed chooses; sweeps always on all. "Pulse, first time" has nothing decoded yet.

``PULSE_BENCH_SCALING=1000000,50000000`` takes these sizes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.benchmarks.allocation import trim
from pulse.benchmarks.bench_fit import decode
from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.spark_peer import consumed
from pulse.benchmarks.recording import FLOOR, OURS, OURS_ON_SPARK, Accuracy, exact, record, sizes
from pulse.benchmarks.workloads.scaling_data import ASKED, BOUND_FOR, BOUNDS, VARIANTS, WHOLE, Grown, fitted
from pulse.core.segment.batch import SegmentBatch
from pulse.runtime.execution.scan import cache
from pulse.session import Session
from pulse.store.model import Model

_CHOSEN = sizes("500000,1500000", "1000000,10000000,50000000,200000000")
SIZES = [int(n) for n in os.environ.get("PULSE_BENCH_SCALING", _CHOSEN).split(",")]
FIRST, SORTED, PARQUET = "pulse, first time", "DuckDB, sorted table", "DuckDB, Parquet"
DECODED = f"{FLOOR}pyarrow decodes"
NAMES = {"macd": "MACD", "minimum": "minimum 60/2"}


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n:,}-ticks")
def market(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grown]:
    folder = tmp_path_factory.mktemp("scaling")
    yield Grown(folder, request.param)
    cache.clear()
    trim()
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
        "rounds": 1 if large else sizes(1, 3),
        "warmup": 0 if large else 1,
        **more,
    }


# -- cost per tuple -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def peers(market: Grown) -> Iterator[dict[str, DuckDB]]:
    """One of DuckDB's two forms at a time: the largest size leaves no room for both."""
    made: dict[str, DuckDB] = {}
    yield made
    for peer in made.values():
        peer.close()


def peer_of(peers: dict[str, DuckDB], market: Grown, contender: str) -> DuckDB:
    if contender not in peers:
        while peers:
            peers.popitem()[1].close()
        trim()
        peers[contender] = market.duckdb(load=contender == SORTED)
    return peers[contender]


@pytest.mark.parametrize("contender", [OURS, OURS_ON_SPARK])
def test_fit(
    benchmark: Any, market: Grown, here: Session, spark: Session, contender: str, tmp_path: Path
) -> None:
    """Models for averages; of the one in process also the memory. The model that was timed is then asked."""
    bound, ours = BOUND_FOR["macd"], contender == OURS
    session, out = (here, market.place(bound)) if ours else (spark, tmp_path / "model")
    file = market.file
    model = record(
        benchmark,
        lambda: fitted(session, file, out, bound),
        accuracy=lambda model: market.judged_model(model, bound),
        facts={"checked": market.checked},
        peak=partial(fit_alone, file, tmp_path) if ours else False,
        **row(market, "fit", contender),
    )
    benchmark.extra_info["facts"]["tuples a segment"] = market.rows / len(model)
    if ours:
        note_memory(benchmark, "fit", market.rows)
    shutil.rmtree(tmp_path)  # as large as the model


@pytest.mark.parametrize("contender", ["DuckDB, loading and sorting", DECODED])
def test_loading(benchmark: Any, market: Grown, peers: dict[str, DuckDB], contender: str) -> None:
    """What a tuple engine does once, so that it answers fastest; and what any reader has to do."""

    def forget() -> None:
        if SORTED in peers:
            peers.pop(SORTED).close()

    def load() -> int:
        peer = peer_of(peers, market, SORTED)
        return int(peer.connection.sql("select count(*) from ticks").fetchall()[0][0])

    decodes = contender == DECODED
    record(
        benchmark,
        (lambda: decode(market.file)) if decodes else load,
        accuracy=partial(_all_read, market.rows),
        setup=None if decodes else forget,
        **row(market, "fit", contender),
    )


def _all_read(expected: int, found: int) -> Accuracy:
    assert found == expected
    return exact()


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
    if contender == OURS_ON_SPARK:
        market.check_same(name, here, spark)
        record(benchmark, lambda: consumed(market.ask(name, spark)), accuracy=judged, facts=facts, **shared)
        return
    if contender == OURS:
        market.ask(name, here)  # decoded, as far as there is room
    record(
        benchmark,
        lambda: market.ask(name, here),
        accuracy=partial(market.judged_timed, name),
        setup=cache.clear if contender == FIRST else None,
        facts=facts,
        **shared,
    )


@pytest.mark.parametrize("contender", [OURS, OURS_ON_SPARK, "DuckDB, one query for all"])
def test_sweep(
    benchmark: Any, market: Grown, here: Session, spark: Session, peers: dict[str, DuckDB], contender: str
) -> None:
    """Time is per tuple and sweep."""
    shared = row(market, f"sweep of {len(VARIANTS)} MACDs", contender, rounds=1)
    peer = peer_of(peers, market, SORTED)
    market.counts(peer)
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
    record(
        benchmark,
        lambda: peer.all_macds_figures(VARIANTS),
        accuracy=lambda table: market.judged_counts(table.to_pylist()),
        **shared,
    )


# -- memory -------------------------------------------------------------------------------------------------


def fit_alone(file: Path, folder: Path) -> Model:
    """A fit by itself in a process, whose memory is then its own."""
    return fitted(Session(engine="local"), file, folder / "alone", BOUND_FOR["macd"])


def ask_alone(model: str, folder: Path) -> Path:
    """A query into a file, which holds no more of the answer than a few pieces; nothing decoded is kept for the next."""
    cache.room = 0
    cache.clear()
    asked = ASKED["macd"]
    answer = Session(engine="local").sql(asked.text, streams={"S": Model(model)}, **asked.parameters)
    out = folder / f"{os.urandom(4).hex()}.parquet"
    answer.write(str(out))
    return out


def test_memory(benchmark: Any, market: Grown, tmp_path: Path) -> None:
    """The high-water mark of MACD into a file, in a process of its own; that of a fit stands beside its time."""
    room = cache.room
    try:
        record(
            benchmark,
            partial(ask_alone, str(market.model(BOUND_FOR["macd"]).path), tmp_path),
            accuracy=lambda file: market.judged_timed("macd", pq.read_table(file)),
            peak=True,
            facts={"checked": market.checked},
            **row(market, "MACD into a file", OURS, rounds=1, warmup=0, figure="", x=None, x_label=""),
        )
    finally:
        cache.room = room
        shutil.rmtree(tmp_path)
    note_memory(benchmark, "macd", market.rows)


def note_memory(benchmark: Any, what: str, rows: int) -> None:
    """High-water marks, and by how much they rise from the next smaller size on. Work is dealt by whole keys, so they may rise
    with the largest key's segments, but must stay far below what the tuples would take."""
    memory, noted = benchmark.extra_info["memory"], benchmark.extra_info["facts"]
    _MARKS.setdefault(what, {})[rows] = memory["most"]
    noted["MB at most"] = memory["most"] / 1e6
    noted["of it before the work, MB"] = memory["before"] / 1e6
    smaller = [some for some in _MARKS[what] if some < rows]
    if smaller:
        noted["bytes more per tuple more"] = slope = _slope(_MARKS[what], max(smaller), rows)
        assert slope < STEEPEST or max(smaller) < SETTLED


def _slope(marks: dict[int, int], smaller: int, larger: int) -> float:
    return (marks[larger] - marks[smaller]) / (larger - smaller)


_MARKS: dict[str, dict[int, int]] = {}
STEEPEST = 16.0  # bytes; a tuple in memory takes 20
SETTLED = 10_000_000  # tuples from which on a fit holds no more: below, what is held is still growing to that


# -- disk ---------------------------------------------------------------------------------------------------

AS_IT_CAME, BY_KEY = "Parquet (zstd), as it came", "Parquet (zstd), by key and time"


@pytest.mark.parametrize("contender", [*(f"pulse, {bound}" for bound in BOUNDS), AS_IT_CAME, BY_KEY])
def test_disk(benchmark: Any, market: Grown, peers: dict[str, DuckDB], contender: str) -> None:
    """Models against the tuples that they stand for, both compressed with zstd; timed is reading all of it."""
    if contender == "pulse, exact" and market.rows > WHOLE:
        pytest.skip("an exact model is looked at where all keys are")
    tuples = {AS_IT_CAME: _as_it_came(market), BY_KEY: _by_key(market, peer_of(peers, market, SORTED))}
    smallest = min(file.stat().st_size for file in tuples.values())
    if contender in tuples:
        size, read = tuples[contender].stat().st_size, cast("Any", partial(decode, tuples[contender]))
        judge: Any = partial(_all_read, market.rows)
    else:
        bound = contender.removeprefix("pulse, ")
        model = market.model(bound)
        size = sum(one.stat().st_size for one in model.path.rglob("*") if one.is_file())
        judged = market.judged_model(model, bound)

        def judge(segments: SegmentBatch) -> Accuracy:
            assert len(segments) == len(model)
            return judged

        read = model.read
    facts = {
        "MB": size / 1e6,
        "bytes a tuple": size / market.rows,
        "share of the smaller Parquet": size / smallest,
    }
    record(benchmark, read, accuracy=judge, facts=facts, **row(market, "read from disk", contender))


def _as_it_came(market: Grown) -> Path:
    """The tuples in the order of the file, a row group at a time."""
    path = market.folder / "as-it-came.parquet"
    if not path.exists():
        with pq.ParquetFile(market.file, read_dictionary=["symbol"]) as file:
            groups = range(file.num_row_groups)
            _write(path, (file.read_row_group(i, columns=["symbol", "t", "price"]) for i in groups))
    return path


def _by_key(market: Grown, peer: DuckDB) -> Path:
    """The same by key and time, from tables that are sorted so already."""
    path = market.folder / "by-key.parquet"
    if not path.exists():
        _write(path, peer.sorted_ticks())
    return path


def _write(path: Path, parts: Iterable[pa.Table]) -> None:
    """The columns that are modelled, encoded as small as Arrow can: times as differences, what repeats in dictionaries."""
    parts = iter(parts)
    first = next(parts)
    with pq.ParquetWriter(
        path,
        first.schema,
        compression="zstd",
        use_dictionary=["symbol", "price"],
        column_encoding={"t": "DELTA_BINARY_PACKED"},
    ) as writer:
        for part in chain([first], parts):
            writer.write_table(part.cast(first.schema), row_group_size=1 << 20)

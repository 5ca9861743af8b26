"""Functions over time on stored models, in process and through Spark, against DuckDB and Polars with their tuples in memory.

Every answer is held against DuckDB's, or where SQL has no form for it against Polars', within what Pulse certifies, before it is
timed; the two against each other too. Contenders compute every row of the answer.

Run with ``make bench ONLY=functions``, or ``pytest benchmarks/bench_functions.py -o python_files='bench_*.py'``.
``PULSE_BENCH_QUICK=1`` takes small sizes, ``PULSE_BENCH_TICKS`` and ``PULSE_BENCH_REPORTS`` others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from pulse.benchmarks.peers import function_frames
from pulse.benchmarks.peers.agreement import agreement, agreement_of_ranges
from pulse.benchmarks.peers.function_frames import FRAMES
from pulse.benchmarks.peers.function_queries import EPISODES, QUERIES, polygon, sides
from pulse.benchmarks.peers.questions import Near
from pulse.benchmarks.peers.spark_peer import consumed
from pulse.benchmarks.recording import OURS, OURS_ON_SPARK, SEED, Accuracy, record, sizes
from pulse.datasets.generators.generate import generate
from pulse.session import Session

TICKS = int(os.environ.get("PULSE_BENCH_TICKS", sizes("1000000", "10000000")).split(",")[0])
REPORTS = int(os.environ.get("PULSE_BENCH_REPORTS", sizes("100000", "1000000")))
ROUNDS = sizes(2, 5)
GAP = int(Near().max_gap) * 1_000_000
CONTENDERS = [OURS, OURS_ON_SPARK, "DuckDB, sorted table", "Polars, sorted frame"]


class Workload:
    """Tuples as the peers hold them, the model that Pulse is asked, and the answers that others are held against."""

    def __init__(self, folder: Path, spark: Session, *, vessels: bool) -> None:
        self.spark, self.here, self.vessels = spark, Session(engine="local"), vessels
        self.rows = REPORTS if vessels else TICKS
        file = folder / "tuples.parquet"
        self.connection = duckdb.connect()
        self.key = "id" if vessels else "symbol"
        if vessels:
            generate("vessels", self.rows, file, seed=SEED)
            model: dict[str, Any] = {
                "model": {"x": "linear", "y": "linear"},
                "error": 10,
                "max_gap": Near().max_gap,
            }
        else:
            generate("ticks", self.rows, file, seed=SEED, sessions=False)
            model = {"model": {"price": "step"}, "error": "0.05%"}
        self.model = self.here.fit(file, key=self.key, time="t", out=folder / "model", **model)
        self.frame = self._loaded(file)

    def _loaded(self, file: Path) -> pl.DataFrame:
        """The tuples by key and time, the last of each instant; of vessels with their next report."""
        names = ["x", "y"] if self.vessels else ["price"]
        frame = pl.read_parquet(file, columns=[self.key, "t", *names])
        frame = frame.with_columns(us=pl.col("t").dt.timestamp("us")).drop("t")
        frame = frame.sort(self.key, "us", maintain_order=True).unique(
            [self.key, "us"], keep="last", maintain_order=True
        )
        if self.vessels:
            later = [
                pl.col(n).shift(-1).over("id").fill_null(pl.col(n)).alias(f"{n}1") for n in ("us", "x", "y")
            ]
            frame = frame.with_columns(later)
        self.connection.register("tuples", frame.to_arrow())
        table = "reports" if self.vessels else "ticks"
        self.connection.execute(f"create table {table} as select * from tuples order by {self.key}, us")
        return frame

    @cached_property
    def place(self) -> tuple[float, float, float]:
        """The centre and size of an area that some of the vessels pass."""
        x, y = (float(np.median(self.frame[name].to_numpy())) for name in "xy")
        return x, y, float(np.quantile(np.abs(self.frame["x"].to_numpy() - x), 0.3))

    def answer(self, session: Session, name: str, *, possible: bool = False) -> Any:
        """Pulse's answer."""
        if self.vessels:
            streams = {"V": self.model}
            area = polygon(*self.place)
            return session.sql(QUERIES[name].text, streams=streams, possible=possible, area=area)
        text = EPISODES.text if name == "episodes" else QUERIES[name].text
        return session.sql(text, streams={"S": self.model}, possible=possible)

    def duckdb(self, name: str) -> pa.Table:
        """DuckDB's answer."""
        text = EPISODES.duckdb if name == "episodes" else QUERIES[name].duckdb
        assert text is not None
        if self.vessels:
            text = text.replace("$gap", str(GAP)).replace("$sides", sides(*self.place))
        return self.connection.sql(text).to_arrow_table()

    def polars(self, name: str) -> pl.DataFrame:
        """Polars' answer."""
        if name == "episodes":
            return function_frames.episodes(self.frame)
        return FRAMES[name](self.frame, sides(*self.place), GAP) if self.vessels else FRAMES[name](self.frame)

    def judge(self, name: str, theirs: pa.Table, session: Session | None = None) -> Accuracy:
        """Hold Pulse's answer, in process or of a session, against another: within what it certifies, column by column."""
        answer = self.answer(session or self.here, name, possible=True)
        if name == "episodes":
            return agreement_of_ranges(collected(answer.segments()), theirs, keys=("symbol", "symbol"))
        asked, ours = QUERIES[name], collected(answer.tuples())
        worst: Accuracy | None = None
        for value in asked.values:
            found = agreement(ours, timed(theirs), keys=(asked.key,), value=value, slack=asked.rounding)
            assert not found.faults, f"{name}, {value}: {found.faults} of {found.theirs} rows"
            assert found.theirs > 100, f"{name}: {found.theirs} rows are no comparison"
            judged = Accuracy(found.precision, found.recall, found.certified, found.observed, asked.rounding)
            worst = judged if worst is None or judged.observed > worst.observed else worst
        assert worst is not None
        return worst


def collected(answer: Any) -> pa.Table:
    """An answer as a table, also that of Spark."""
    return answer if isinstance(answer, pa.Table) else answer.toArrow()


def timed(table: pa.Table) -> pa.Table:
    """The table with its microseconds as timestamps t."""
    at = table.column("us").cast(pa.int64()).cast(pa.timestamp("us"))
    return table.drop_columns("us").append_column("t", at)


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory, spark: Session) -> Iterator[Workload]:
    made = Workload(tmp_path_factory.mktemp("functions"), spark, vessels=False)
    yield made
    made.connection.close()


@pytest.fixture(scope="module")
def sea(tmp_path_factory: pytest.TempPathFactory, spark: Session) -> Iterator[Workload]:
    made = Workload(tmp_path_factory.mktemp("areas"), spark, vessels=True)
    yield made
    made.connection.close()


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("name", [*(one for one in QUERIES if one != "inside"), "episodes"])
def test_ticks(benchmark: Any, market: Workload, name: str, contender: str) -> None:
    compete(benchmark, market, name, contender, f"{name}, {market.rows // 1_000_000} M ticks")


@pytest.mark.parametrize("contender", CONTENDERS)
def test_vessels(benchmark: Any, sea: Workload, contender: str) -> None:
    compete(benchmark, sea, "inside", contender, f"inside, {sea.rows // 1000} k reports")


def compete(benchmark: Any, workload: Workload, name: str, contender: str, group: str) -> None:
    """Check a contender's answer, then time it."""
    without = name in QUERIES and QUERIES[name].duckdb is None
    row: dict[str, Any] = {"group": group, "contender": contender, "work": workload.rows}
    run: Callable[[], Any]
    if contender in (OURS, OURS_ON_SPARK):
        theirs = workload.polars(name).to_arrow() if without else workload.duckdb(name)
    if contender == OURS:
        accuracy = workload.judge(name, theirs)
        run = lambda: _asked(workload.answer(workload.here, name), name)  # noqa: E731
    elif contender == OURS_ON_SPARK:
        accuracy = workload.judge(name, theirs, workload.spark)
        run = lambda: consumed(_asked(workload.answer(workload.spark, name), name))  # noqa: E731
    elif contender.startswith("DuckDB"):
        if without:
            pytest.skip("a recursion over rows, which SQL has no strong form of")
        accuracy = workload.judge(name, workload.duckdb(name))
        run = lambda: workload.duckdb(name)  # noqa: E731
    else:
        accuracy = workload.judge(name, workload.polars(name).to_arrow())
        run = lambda: workload.polars(name)  # noqa: E731
    record(benchmark, run, accuracy=accuracy, rounds=ROUNDS, **row)


def _asked(answer: Any, name: str) -> Any:
    return answer.episodes() if name == "episodes" else answer.tuples()

"""Who competes in the benchmarked queries, with what data, and how an answer is judged before it is timed.

The truth is the answer of DuckDB on its own sorted table, which over steps is exact and for averages of distances is held
against a grid five times as fine. Pulse's answer is held against it within what Pulse certifies; every other contender's is
held against Pulse's in the same way, and against the truth. Pulse in process and the engines that hold their tuples in memory
take turns, so that a slow minute of the machine is everybody's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulse.benchmarks.checks.comparisons import rows_of
from pulse.benchmarks.checks.sweeps import Counts, bound, by_variant
from pulse.benchmarks.peers.agreement import Agreement, agreement, assert_same, largest_difference
from pulse.benchmarks.peers.duckdb_peer import ROUNDING as SUMS
from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.numba_queries import NumbaTuples
from pulse.benchmarks.peers.pandas_peer import Pandas
from pulse.benchmarks.peers.polars_peer import Polars
from pulse.benchmarks.peers.questions import Above, Following, Macd, Minimum, Near
from pulse.benchmarks.peers.spark_peer import SparkSql, consumed
from pulse.benchmarks.peers.streaming_peer import Streaming
from pulse.benchmarks.recording import (
    BY_HAND,
    OURS,
    OURS_ON_SPARK,
    SEED,
    Accuracy,
    Timing,
    alternating,
    record,
    sizes,
)
from pulse.datasets.generators.generate import generate
from pulse.session import Session
from pulse.store.model import Model

TICKS = [int(n) for n in os.environ.get("PULSE_BENCH_TICKS", sizes("1000000", "10000000")).split(",")]
REPORTS = sizes(100_000, 1_000_000)
SHORTS = sizes((4, 10, 20), (4, 6, 8, 10, 12, 14, 16, 20, 24, 30))
LONGS = sizes((40, 60, 120, 300), (40, 50, 60, 80, 100, 120, 160, 200, 240, 300))
VARIANTS = [Macd(short, long) for short in SHORTS for long in LONGS]

ASKED: dict[str, Any] = {
    "macd": Macd(),
    "minimum": Minimum(),
    "above": Above(),
    "near": Near(),
    "following": Following(),
}
KEYS = {"near": ("id1", "id2"), "following": ("id1", "id2")}
VALUE = {"macd": "diff", "minimum": "low", "above": "price", "following": "mean"}
LEVEL = {"macd": 0.0, "above": Above().level, "following": Following().reach}
ROUNDING = {"macd": SUMS, "above": 1e-9, "minimum": 1e-9}
REFERENCE = "DuckDB, sorted table"
IN_MEMORY = [f"{BY_HAND}, sorted arrays", REFERENCE, "Polars, sorted frame", "pandas, sorted frame"]
"""Take turns with Pulse where all of them fit into memory."""
FITS = 10_000_000  # rows
OTHERS = ["DuckDB, Parquet", "Polars, Parquet", "Spark SQL, cached"]
OTHERS += sizes([], ["Spark SQL, Parquet"])
CONTENDERS = [OURS, *IN_MEMORY, OURS_ON_SPARK, *OTHERS]


class Field:
    """The data of one size, its models, and the contenders, each made when first asked for."""

    def __init__(self, folder: Path, spark: Session, *, ticks: int = 0, reports: int = 0) -> None:
        self.folder, self.spark, self.here = folder, spark, Session(engine="local")
        self.ticks = self.vessels = None
        self.rows = ticks or reports
        if ticks:
            self.ticks = folder / "ticks.parquet"
            generate("ticks", ticks, self.ticks, seed=SEED, sessions=False)
        if reports:
            self.vessels = folder / "vessels.parquet"
            generate("vessels", reports, self.vessels, seed=SEED)
        self._peers: dict[str, Any] = {}
        self._kept: dict[tuple[str, str], Any] = {}

    def model(self, name: str) -> Model:
        """Averages are asked of a model bounded in the integral, values of one bounded pointwise."""
        made: Model = self.once("model", name, self._fit)
        return made

    def _fit(self, name: str) -> Model:
        out = self.folder / f"model-{name}"
        if self.vessels is not None:
            truths = {"x": "linear", "y": "linear"}
            return self.here.fit(
                self.vessels, key="id", time="t", model=truths, error=10, max_gap=Near().max_gap, out=out
            )
        bound: dict[str, Any] = {"drift": "0.005%"} if name == "macd" else {"error": "0.05%"}
        return self.here.fit(self.ticks, key="symbol", time="t", model={"price": "step"}, out=out, **bound)

    def ask(self, name: str, session: Session, *, possible: bool = False) -> Any:
        """Pulse's answer."""
        return self.answer(name, session, possible=possible).tuples()

    def answer(self, name: str, session: Session, *, possible: bool = False) -> Any:
        """As one chooses, :meth:`tuples` or :meth:`segments` of it."""
        asked = ASKED[name]
        model = self.model("macd" if name == "macd" else "other")
        streams = {"objects" if name == "near" else "S": model}
        return session.sql(asked.text, streams=streams, possible=possible, **getattr(asked, "parameters", {}))

    def peer(self, contender: str) -> Any:
        """A tuple engine with its data; what those before held is given back, unless all of them take turns."""
        if contender not in self._peers:
            if not (self.small and contender in IN_MEMORY):
                self.close()
            files = {"ticks": self.ticks, "vessels": self.vessels}
            kind, _, way = contender.partition(", ")
            load = way != "Parquet"
            makers: dict[str, Callable[..., Any]] = {
                BY_HAND: NumbaTuples,
                "DuckDB": DuckDB,
                "Polars": Polars,
                "pandas": Pandas,
                "Spark SQL": lambda **more: SparkSql(self.spark.spark, **more),
            }
            self._peers[contender] = makers[kind](load=load, **files)
        return self._peers[contender]

    @property
    def small(self) -> bool:
        """Whether all tuple engines in memory fit into it together."""
        return self.rows <= FITS

    def turns(self, name: str) -> dict[str, Timing]:
        """Pulse and the engines in memory, timed by turns."""
        found: dict[str, Timing] = self.once("turns", name, self._by_turns)
        return found

    def _by_turns(self, name: str) -> dict[str, Timing]:
        runs: dict[str, Callable[[], Any]] = {OURS: lambda: self.ask(name, self.here)}
        runs |= {one: partial(getattr(self.peer(one), name), ASKED[name]) for one in IN_MEMORY}
        timings = alternating(runs, rounds=sizes(2, 7))
        for timing in timings.values():
            timing.result = None  # they are large
        return timings

    def once(self, what: str, name: str, make: Callable[[str], Any]) -> Any:
        """Made when first asked for, and kept."""
        if (what, name) not in self._kept:
            self._kept[what, name] = make(name)
        return self._kept[what, name]

    def stream(self, name: str) -> tuple[Streaming, int]:
        """Of the ticks as files of a stream, and how many there are.

        What windows cost a stream goes with keys and windows rather than tuples, and is much: the minimum gets some of the
        keys, whole. Times are compared per tuple.
        """
        assert self.ticks is not None
        folder = self.folder / f"stream-{name}"
        if not folder.exists():
            folder.mkdir()
            table = pq.read_table(self.ticks, columns=["symbol", "t", "price"])
            if name == "minimum":
                symbols = table.column("symbol").unique().sort()[:: sizes(50, 20)]
                table = table.filter(pc.is_in(table.column("symbol"), symbols))
            pq.write_table(table, folder / "ticks.parquet")
        files = folder / "ticks.parquet"
        return Streaming(self.spark.spark, ticks=folder), pq.read_metadata(files).num_rows

    def close(self) -> None:
        """Let the peers go."""
        for peer in self._peers.values():
            if hasattr(peer, "close"):
                peer.close()
        self._peers.clear()

    def truth(self, name: str) -> tuple[pa.Table, float]:
        """The exact answer, or nearly, and by how much not."""
        found: tuple[pa.Table, float] = self.once("truth", name, self._exact)
        return found

    def _exact(self, name: str) -> tuple[pa.Table, float]:
        exact = getattr(self.peer(REFERENCE), name)(ASKED[name])
        if name != "following":
            return exact, ROUNDING.get(name, 0.0)
        finer = self.peer(REFERENCE).following(Following(every=2))
        return exact, 1.5 * largest_difference(exact, finer, keys=KEYS[name], value=VALUE[name])

    def reference(self, name: str) -> Agreement:
        """Pulse's answer held against the truth."""
        found: Agreement = self.once("reference", name, self._judge)
        return found

    def _judge(self, name: str) -> Agreement:
        truth, slack = self.truth(name)
        found = self.compare(name, truth, slack)
        assert found.faults == {}
        assert found.recall > 0.9
        return found

    def counts(self) -> Counts:
        """On the tuples: how often each variant of a sweep holds, and how often at least and at most within its bound."""
        found: Counts = self.once("counts", "macd", self._count)
        return found

    def _count(self, _: str) -> Counts:
        errors = [bound(self.model("macd"), variant) for variant in VARIANTS]
        return by_variant(self.peer(REFERENCE).all_macds_counts(VARIANTS, errors).to_pylist())

    def compare(self, name: str, theirs: pa.Table, slack: float) -> Agreement:
        """With another's answer."""
        ours = self.ask(name, self.here, possible=True)
        keys = KEYS.get(name, ("symbol",))
        return agreement(ours, theirs, keys=keys, value=VALUE.get(name), level=LEVEL.get(name), slack=slack)


def compete(benchmark: Any, field: Field, name: str, contender: str, group: str) -> None:
    """Check a contender's answer, then time it."""
    found, (truth, slack) = field.reference(name), field.truth(name)
    row: dict[str, Any] = {"group": group, "contender": contender, "work": field.rows}
    certified = Accuracy(found.precision, found.recall, float(found.certified), float(found.observed), slack)
    shares: dict[str, str | float] = {
        "rows": found.ours,
        "certain": found.certain,
        "values about": found.typical,
    }
    if contender == OURS:
        assert field.ask(name, field.here).num_rows == found.ours
        timed = field.turns(name)[OURS] if field.small else lambda: field.ask(name, field.here)
        record(benchmark, timed, accuracy=certified, rounds=9, facts=shares, **row)
        return
    if contender == OURS_ON_SPARK:
        here, there = field.ask(name, field.here), field.ask(name, field.spark).toArrow()
        assert here.num_rows == found.ours
        assert_same(here, there, keys=KEYS.get(name, ("symbol",)))
        del here, there
        record(
            benchmark,
            lambda: consumed(field.ask(name, field.spark)),
            accuracy=certified,
            rounds=sizes(1, 3),
            warmup=0,
            facts=shares,
            **row,
        )
        return
    peer = field.peer(contender)
    on_spark = isinstance(peer, SparkSql)

    def run() -> Any:
        answer = getattr(peer, name)(ASKED[name])
        return consumed(answer) if on_spark else answer

    answer = getattr(peer, name)(ASKED[name])
    answer = answer.toArrow() if on_spark else answer
    assert field.compare(name, answer, slack).faults == {}
    judged = rows_of(answer, truth, keys=KEYS.get(name, ("symbol",)), value=VALUE.get(name), rounding=slack)
    del answer
    timed = field.turns(name)[contender] if field.small and contender in IN_MEMORY else run
    record(
        benchmark,
        timed,
        accuracy=judged,
        rounds=sizes(1, 2 if on_spark else 3),
        warmup=0 if on_spark else 1,
        **row,
    )


def judged_stream(market: Field, name: str, answer: pa.Table) -> tuple[Accuracy, dict[str, str | float]]:
    """A stream's answer: its tuples against those of the file, its windows against the truth for the same keys.

    A window counts as right where it has the true value. It is of tuples, not of what held, and certifies nothing: how far off
    the others are is what was observed.
    """
    with duckdb.connect() as connection:
        connection.register("answer", answer.cast(_untimed(answer.schema)))
        if name == "above":
            asked = f"select symbol, t, price from '{market.ticks}' where price > {Above().level!r}"
            right, given, wanted = connection.execute(f"""
                select (select count(*) from (from answer intersect all ({asked}))), (select count(*) from answer),
                    (select count(*) from ({asked}))""").fetchone() or (0, 0, 0)
            return Accuracy(right / given, right / wanted, 0.0, 0.0), {"question": "tuples, not instants"}
        connection.register("truth", market.truth(name)[0])
        right, given, wanted, worst = connection.execute("""
            with asked as (select symbol::varchar as symbol, t, low from truth where symbol in (select symbol from answer))
            select count(*) filter (a.low = b.low), count(a.t), count(b.t), coalesce(max(abs(a.low - b.low)), 0)
            from answer a full join asked b using (symbol, t)""").fetchone() or (0, 0, 0, 0)
    facts: dict[str, str | float] = {"question": "smallest tuple of a window"}
    return Accuracy(right / given, right / wanted, None, worst), facts


def _untimed(schema: pa.Schema) -> pa.Schema:
    """Times without a zone, as in the file."""
    return schema.set(schema.get_field_index("t"), pa.field("t", pa.timestamp("us")))

"""Queries: Pulse in process and through Spark, on stored models, against DuckDB, Polars and Spark SQL on the tuples.

Every answer is checked before it is timed: against that of DuckDB on its own sorted table, which over steps is exact, within what
Pulse certifies; what that leaves open, precision and recall, is printed beside the times. All contenders compute every row and
column of the answer: as Arrow tables, or on Spark into a sink that keeps nothing.

Run with ``make bench``, or ``pytest benchmarks/bench_queries.py -o python_files='bench_*.py'``. ``PULSE_BENCH_QUICK=1`` takes
small sizes, ``PULSE_BENCH_TICKS=10000000,50000000`` those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pulse.benchmarks.held import rows_of
from pulse.benchmarks.peers.agreement import Agreement, agreement, assert_same, largest_difference
from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.polars_peer import Polars
from pulse.benchmarks.peers.questions import Above, Following, Macd, Minimum, Near
from pulse.benchmarks.peers.spark_peer import SparkSql, consumed
from pulse.benchmarks.recording import OURS, OURS_ON_SPARK, SEED, Accuracy, record, sizes
from pulse.datasets.generators import generate
from pulse.session import Session
from pulse.store.model import Model

TICKS = [
    int(n) for n in os.environ.get("PULSE_BENCH_TICKS", sizes("1000000", "10000000,50000000")).split(",")
]
REPORTS = sizes(100_000, 1_000_000)
SHORTS, LONGS = (4, 6, 8, 10, 12, 14, 16, 20, 24, 30), (40, 50, 60, 80, 100, 120, 160, 200, 240, 300)
VARIANTS = [Macd(short, long) for short in SHORTS for long in LONGS]
SOME = VARIANTS[:: len(VARIANTS) // 5][:5]

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
ROUNDING = {"macd": 1e-6, "above": 1e-9, "minimum": 1e-9}  # of running sums over all keys, in the peers
TUPLE_ENGINES = [
    "DuckDB, sorted table",
    "DuckDB, Parquet",
    "Polars, sorted frame",
    "Polars, Parquet",
    "Spark SQL, cached",
    "Spark SQL, Parquet",
]
CONTENDERS = [OURS, OURS_ON_SPARK, *TUPLE_ENGINES]


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
        made: Model = self._once("model", name, self._fit)
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
        asked = ASKED[name]
        model = self.model("macd" if name == "macd" else "other")
        streams = {"objects" if name == "near" else "S": model}
        return session.sql(
            asked.text, streams=streams, possible=possible, **getattr(asked, "parameters", {})
        ).tuples()

    def peer(self, contender: str) -> Any:
        """A tuple engine with its data; what the one before held is given back."""
        if contender not in self._peers:
            self.close()
            files = {"ticks": self.ticks, "vessels": self.vessels}
            kind, _, way = contender.partition(", ")
            load = way != "Parquet"
            makers: dict[str, Callable[..., Any]] = {
                "DuckDB": DuckDB,
                "Polars": Polars,
                "Spark SQL": lambda **more: SparkSql(self.spark.spark, **more),
            }
            self._peers[contender] = makers[kind](load=load, **files)
        return self._peers[contender]

    def _once(self, what: str, name: str, make: Callable[[str], Any]) -> Any:
        if (what, name) not in self._kept:
            self._kept[what, name] = make(name)
        return self._kept[what, name]

    def close(self) -> None:
        """Let the peers go."""
        for peer in self._peers.values():
            if hasattr(peer, "close"):
                peer.close()
        self._peers.clear()

    def truth(self, name: str) -> tuple[pa.Table, float]:
        """The exact answer, or nearly, and by how much not."""
        found: tuple[pa.Table, float] = self._once("truth", name, self._exact)
        return found

    def _exact(self, name: str) -> tuple[pa.Table, float]:
        exact = getattr(self.peer(TUPLE_ENGINES[0]), name)(ASKED[name])
        if name != "following":
            return exact, ROUNDING.get(name, 0.0)
        finer = self.peer(TUPLE_ENGINES[0]).following(Following(every=2))
        return exact, 1.5 * largest_difference(exact, finer, keys=KEYS[name], value=VALUE[name])

    def reference(self, name: str) -> Agreement:
        """Pulse's answer held against the truth."""
        found: Agreement = self._once("reference", name, self._judge)
        return found

    def _judge(self, name: str) -> Agreement:
        truth, slack = self.truth(name)
        found = self.compare(name, truth, slack)
        assert found.faults == {}
        assert found.recall > 0.9
        return found

    def bound(self, variant: Macd) -> float:
        """What a variant's difference may be off by: each average by twice the drift over its size, and the peer's rounding."""
        drift = float(self.model("macd").manifest.statistics["attributes"]["price"]["worst_drift"])
        return 2.0 * drift * (1.0 / variant.short + 1.0 / variant.long) + ROUNDING["macd"]

    def counts(self) -> dict[tuple[int, int], dict[str, Any]]:
        """On the tuples: how often each variant of a sweep holds, and how often at least and at most within its bound."""
        found: dict[tuple[int, int], dict[str, Any]] = self._once("counts", "macd", self._count)
        return found

    def _count(self, _: str) -> dict[tuple[int, int], dict[str, Any]]:
        errors = [self.bound(variant) for variant in VARIANTS]
        rows = self.peer(TUPLE_ENGINES[0]).all_macds_counts(VARIANTS, errors).to_pylist()
        return {(row["short"], row["long"]): row for row in rows}

    def compare(self, name: str, theirs: pa.Table, slack: float) -> Agreement:
        """With another's answer."""
        ours = self.ask(name, self.here, possible=True)
        keys = KEYS.get(name, ("symbol",))
        return agreement(ours, theirs, keys=keys, value=VALUE.get(name), level=LEVEL.get(name), slack=slack)


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
        record(
            benchmark,
            lambda: field.ask(name, field.here),
            accuracy=certified,
            rounds=sizes(5, 9),
            facts=shares,
            **row,
        )
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
            rounds=sizes(3, 5),
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
    record(benchmark, run, accuracy=judged, rounds=2 if on_spark else 3, warmup=0 if on_spark else 1, **row)


# The contender changes slowest, so that each loads its data once.
@pytest.mark.parametrize("name", ["macd", "minimum", "above"])
@pytest.mark.parametrize("contender", CONTENDERS)
def test_ticks(benchmark: Any, market: Field, name: str, contender: str) -> None:
    compete(benchmark, market, name, contender, f"{name}, {market.rows // 1_000_000} M ticks")


@pytest.mark.parametrize("name", ["near", "following"])
@pytest.mark.parametrize("contender", CONTENDERS)
def test_vessels(benchmark: Any, sea: Field, name: str, contender: str) -> None:
    compete(benchmark, sea, name, contender, f"{name}, {sea.rows // 1000} k reports")


RUNS, ALL = "DuckDB, a run each", "DuckDB, one query for all"


@pytest.mark.parametrize("contender", [OURS, OURS_ON_SPARK, RUNS, ALL, "DuckDB, Parquet, a run each"])
def test_sweep(benchmark: Any, market: Field, contender: str) -> None:
    """A hundred variants of MACD. Runs of DuckDB by themselves are five, and scaled: the ratio is of the time a variant."""
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

        judged = check_sweep(market, sweep().to_pylist())
        record(benchmark, sweep, work=len(VARIANTS), accuracy=judged, rounds=3, **row)
        return
    peer = market.peer("DuckDB, Parquet" if "Parquet" in contender else "DuckDB, sorted table")
    if contender == ALL:
        record(
            benchmark,
            lambda: peer.all_macds_figures(VARIANTS),
            work=len(VARIANTS),
            accuracy=lambda rows: check_counts(
                market, VARIANTS, {(row["short"], row["long"]): row["n"] for row in rows.to_pylist()}
            ),
            rounds=1,
            warmup=0,
            **row,
        )
        return
    record(
        benchmark,
        lambda: [peer.macd_figures(v) for v in SOME],
        work=len(SOME),
        accuracy=lambda found: check_counts(
            market,
            SOME,
            {(v.short, v.long): one.column(0)[0].as_py() for v, one in zip(SOME, found, strict=True)},
        ),
        rounds=1 if "Parquet" in contender else 2,
        warmup=0,
        **row,
    )


def check_counts(market: Field, variants: list[Macd], counts: dict[tuple[int, int], int]) -> Accuracy:
    """How often each variant holds: exactly, but for closing times whose two averages are as good as equal."""
    off = []
    for variant in variants:
        exact = market.counts()[variant.short, variant.long]["n"]
        off.append(abs(counts[variant.short, variant.long] - exact) / exact)
    assert max(off) <= 1e-5  # their sums round differently
    return Accuracy(1.0 - max(off), len(counts) / len(variants), 0.0, 0.0)


def check_sweep(market: Field, rows: list[dict[str, Any]]) -> Accuracy:
    """How long each variant holds, against the tuples: within what the model certifies. A closing time stands for its advance.

    Precision is of the variant that is furthest off; errors are of the largest difference of averages.
    """
    by = {(row["short"], row["long"]): row for row in rows}
    assert len(by) == len(VARIANTS)
    off, errors = [], []
    for variant in VARIANTS:
        row, exact = by[variant.short, variant.long], market.counts()[variant.short, variant.long]
        closings = row["seconds"] / variant.advance
        assert exact["least"] <= closings <= exact["most"]
        off.append(abs(closings - exact["n"]) / exact["n"])
        assert off[-1] <= 0.02  # in fact far nearer than certified for the worst key
        assert row["certain_seconds"] / variant.advance <= exact["n"] * (1 + 1e-6)
        errors.append((abs(row["diff_max"] - exact["high"]), market.bound(variant)))
        assert errors[-1][0] <= errors[-1][1]
    return Accuracy(1.0 - max(off), 1.0, max(bound for _, bound in errors), max(error for error, _ in errors))


@pytest.mark.parametrize("contender", [OURS, OURS_ON_SPARK, "DuckDB, Parquet", "Polars, Parquet"])
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
        rounds=2,
        warmup=0,
    )

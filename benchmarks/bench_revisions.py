"""Revisions: what correcting results costs by replay (upstream), by patches (downstream), as is chosen, and by starting over.

Four questions. How does the cost of a revision go with a window's size (the paper's conjecture: 1000 tuples every 1000)? How
with the share of tuples that are revised? What share is absorbed, by the bound of the model? And what does one cost, from the
corrected tuple to the corrected results, against the whole computation at full size? ``pulse`` is the adaptive mode, so ratios
are contender / adaptive. Every way is checked before its time counts: old results with what was
emitted are the results from scratch, and within their bounds DuckDB's on the corrected tuples.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.benchmarks.checks.comparisons import numbers, rows_of
from pulse.benchmarks.checks.step_models import Lines, Steps, held_at_ends
from pulse.benchmarks.peers.agreement import agreement
from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.questions import Macd
from pulse.benchmarks.recording import OURS, SEED, Accuracy, exact, record, sizes
from pulse.benchmarks.revising import Held
from pulse.benchmarks.workloads.revision_loads import Load, generate_load
from pulse.core.columns import Columns
from pulse.core.regions import Regions
from pulse.datasets.generators.generate import generate
from pulse.language import parse
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.delta import Changed
from pulse.operators.node import Node
from pulse.operators.output.diff import difference
from pulse.operators.output.sampling import to_tuples
from pulse.operators.relational.scan import scans
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import as_scanned
from pulse.runtime.incremental.view import IncrementalView
from pulse.runtime.revise.driver import spec_of
from pulse.session import Session
from pulse.store.model import Model

ROWS = sizes(20_000, 200_000)  # of the stream whose windows are revised one tuple at a time
SIZES = sizes((10, 1000), (10, 100, 1000, 10_000))
TICKS = int(os.environ.get("PULSE_BENCH_TICKS", sizes("200000", "10000000")).split(",")[0])
RATE_TICKS = min(TICKS, 1_000_000)
RATES = sizes((0.0001, 0.01), (0.00001, 0.0001, 0.001, 0.01, 0.1))
BATCHES = sizes((1, 100), (1, 10, 100, 1000))
BOUNDS = sizes(("0.005%", "0.05%", "0.5%"), ("0.001%", "0.005%", "0.02%", "0.05%", "0.2%", "0.5%", "1%"))
MODES = {OURS: "adaptive", "pulse, upstream": "upstream", "pulse, downstream": "downstream"}
AGAIN, DUCK = "pulse, recomputing", "DuckDB, sorted table"
SECOND = 1_000_000


def check_same(results: Relation, wanted: Relation) -> None:
    """That two answers say the same."""
    table = difference(results, wanted).table
    assert len(table) == 0, table.slice(0, 3).to_pylist()


# -- over the size of a window ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """A function of a window over tuples (points) or steps of a second, at the size of its advance."""

    function: str
    points: bool
    size: int

    @property
    def name(self) -> str:
        return f"{self.function} of {self.size} {'tuples' if self.points else 'steps'}"

    @property
    def columns(self) -> Columns:
        return Columns((("symbol", pa.string()),), ("price",), points=self.points)

    def view(self, mode: str) -> IncrementalView:
        text = f"select symbol, {self.function}(price) as a from S[size {self.size} advance {self.size}]"
        columns = {"S": self.columns}
        query = parse(text, columns).bind({})
        view = IncrementalView(query, columns, mode=mode, every=query.rate)
        view.start({"S": self.stream(prices())})
        return view

    def stream(self, values: Any, first: int = 0) -> Relation:
        n = len(values)
        return Relation(
            columns=self.columns,
            keys=(pa.array(["a"]),),
            offsets=np.array([0, n]),
            ref=(first + np.arange(n)) * SECOND,
            lo=np.zeros(n),
            hi=np.full(n, 0.0 if self.points else 1.0),
            models={"price": np.asarray(values, np.float64)[:, None]},
            err={"price": np.zeros(n)},
            drift={},
            certainty=np.full(n, 3, np.uint8),
        )

    def revisions(self, count: int) -> tuple[list[Changed], Any]:
        """Replacements one after the other, some of them of the same tuple, and the values after them."""
        random = np.random.default_rng(1)
        values, found = prices(), []
        for row in random.integers(2 * self.size, ROWS - 2 * self.size, count).tolist():
            old = self.stream(values[row : row + 1], row)
            # Towards the middle of the window, so that an extremum is withdrawn no more often than chance has it.
            values[row] += random.normal(0.0, 0.1)
            new = replace(old, models={"price": values[row : row + 1, None].copy()})
            at = np.array([row * SECOND])
            found.append(Changed(Regions(old.keys, at, at + (1 if self.points else SECOND)), old, new))
        return found, values

    def truth(self, values: Any) -> Any:
        """Of every window that is over."""
        function: Any = {"sum": np.sum, "avg": np.mean, "max": np.max}[self.function]
        return function(values.reshape(-1, self.size), axis=1)

    def judge(self, view: IncrementalView, truth: Any) -> Accuracy:
        """The answer from the segments that a view holds, at every closing time, against numpy's."""
        found = answer_of(view)
        closing = np.rint(found["t"].cast(pa.int64()).to_numpy() / SECOND).astype(np.int64)
        value = dict(zip(closing.tolist(), found["a"].to_numpy().tolist(), strict=True))
        wanted = np.arange(1, len(truth) + 1) * self.size
        given = np.array([one in value for one in wanted.tolist()])
        off = np.abs([value[one] for one in wanted[given].tolist()] - truth[given])
        rounding = 1e-9 * float(np.abs(truth).max())
        right = off <= rounding
        assert right.all()
        assert given.sum() >= len(truth) - 1  # at its very end a stream of steps is not there any more
        return Accuracy(float(right.mean()), float(given.mean()), 0.0, float(off.max()), rounding)


def answer_of(view: IncrementalView, possible: bool = False) -> pa.Table:
    """All tuples of the answer from the segments that a view holds."""
    query, plan = replace(view.query, possible=possible), view.plan
    held = view._streams["S"].everything()
    inputs: dict[Node, Relation] = {scan: as_scanned(held, scan) for scan in scans(plan)}
    assert query.rate is not None
    samples = FragmentEvaluation(inputs, possible=possible).samples(plan, query.rate)
    return pa.Table.from_batches([to_tuples(samples, query.select, possible=possible)])


def prices() -> Any:
    return 100.0 + np.cumsum(np.random.default_rng(0).normal(0.0, 0.1, ROWS))


WINDOWS = [
    Windows(function, points, size)
    for function, points in (("sum", True), ("max", True), ("avg", False), ("max", False))
    for size in SIZES
]


@pytest.mark.parametrize("contender", [*MODES, AGAIN, DUCK])
@pytest.mark.parametrize("asked", WINDOWS, ids=lambda one: one.name)
def test_window(benchmark: Any, asked: Windows, contender: str) -> None:
    """One revision after the other. Starting over computes every window of the stream."""
    count = sizes(20, 60)
    changes, values = asked.revisions(count)
    truth = asked.truth(values)
    row: dict[str, Any] = {"group": asked.name, "contender": contender, "work": 1, "unit": "revisions"}
    if contender == DUCK:
        connection, text = duckdb.connect(), duck_windows(asked)
        connection.register("corrected", pa.table({"k": np.arange(ROWS), "price": values}))
        connection.execute("create table ticks as select * from corrected order by k")
        record(
            benchmark,
            lambda: connection.sql(text).to_arrow_table(),
            accuracy=lambda table: numbers(table["a"].to_numpy(), truth, rounding=1e-9 * np.abs(truth).max()),
            **row,
        )
        return
    view = asked.view(MODES.get(contender, "upstream"))
    if contender == AGAIN:
        view.start({"S": asked.stream(values)})
        record(benchmark, view.results, accuracy=lambda _: asked.judge(view, truth), **row)
        return
    emitted = [view.revise({"S": change}) for change in changes]
    fresh = asked.view("upstream")
    fresh.start({"S": asked.stream(values)})
    check_same(view.results(), fresh.results())
    check_emitted(asked, emitted, values)
    judged = asked.judge(view, truth)
    view.start({"S": asked.stream(prices())})
    ahead = iter([{"S": change} for change in changes])
    record(
        benchmark,
        view.revise,
        accuracy=judged,
        setup=lambda: ((next(ahead),), {}),
        rounds=count,
        warmup=0,
        **row,
    )


def duck_windows(asked: Windows) -> str:
    """Over the closing times: tuples of ``[t - size, t)``."""
    return f"select k // {asked.size} + 1 as closing, {asked.function}(price) as a from ticks group by 1 order by 1"


def check_emitted(asked: Windows, emitted: list[Any], values: Any) -> None:
    """That the last word on each closing time is what numpy computes from the corrected values."""
    last: dict[int, float] = {}
    for one in emitted:
        for row in one.tuples().to_pylist():
            if row["kind"] in ("+U", "+I"):
                last[round(row["t"].timestamp())] = row["a"]
    assert last or asked.function == "max"  # which few revisions move
    function: Any = {"sum": np.sum, "avg": np.mean, "max": np.max}[asked.function]
    for closing, value in last.items():
        assert value == pytest.approx(function(values[closing - asked.size : closing]), rel=1e-9)


# -- from corrected tuples to corrected results -------------------------------------------------------------------


class Market:
    """Generated ticks, fitted; MACD over them, in Pulse and in DuckDB."""

    asked = Macd()

    def __init__(self, folder: Path, ticks: int) -> None:
        self.folder, self.rows, self.here = folder, ticks, Session(engine="local")
        self.file = folder / "ticks.parquet"
        generate("ticks", ticks, self.file, seed=SEED, sessions=False)
        table = pq.read_table(self.file)
        self.tuples = table.sort_by([("symbol", "ascending"), ("t", "ascending")])
        self.model = self.fit("drift", drift="0.005%")
        self.held = Held(spec_of(self.model), self.tuples, self.model.read())
        self._loads: dict[int, Load] = {}
        self._judged: dict[int, Accuracy] = {}

    def fit(self, name: str, **bound: Any) -> Model:
        out = self.folder / f"model-{name}"
        emitted: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}}
        return self.here.fit(self.file, out=out, keep_tuples=True, overwrite=True, **emitted, **bound)

    def load(self, revisions: int) -> Load:
        """Revisions whose values change by about as much as prices do within seconds; of few, not all are absorbed."""
        if revisions not in self._loads:
            loads = (self._generated(revisions, seed) for seed in itertools.count(revisions))
            self._loads[revisions] = next(one for one in loads if revisions >= 100 or self._moves(one))
        return self._loads[revisions]

    def _generated(self, revisions: int, seed: int) -> Load:
        return generate_load(
            self.tuples, self.model.schema, revisions=revisions, seed=seed, size=0.01, again=0.0
        )

    def _moves(self, load: Load) -> bool:
        """Whether the model moves, so that there is something to propagate."""
        return self.held.refitted(load.revisions).counts.absorbed < len(load.revisions)

    def view(self, mode: str) -> IncrementalView:
        return self.held.view(Macd.text, mode, **self.asked.parameters)

    def corrected(self, load: Load) -> DuckDB:
        """The peer, with the corrected tuples."""
        file = self.folder / f"corrected-{len(load.revisions)}.parquet"
        pq.write_table(load.corrected, file)
        return DuckDB(ticks=file, load=True)

    def check(self, view: IncrementalView, revised: Any) -> None:
        """Old results with what was emitted are the new ones."""
        before, now = (answer_of(one) for one in (self.view("upstream"), view))
        emitted = revised.tuples()
        if view.mode == "downstream":  # or it would be a replay that is held against itself
            flows = [flow for flow in revised.report.operators if flow.operator.startswith("Window")]
            assert flows
            assert all(flow.modes.get("downstream", 0) > flow.fell_back for flow in flows), revised.report
        with duckdb.connect() as connection:
            for name, table in (("before", before), ("now", now), ("emitted", emitted)):
                connection.register(name, table)
            wrong = connection.sql("""
                with made as (
                    select symbol, t, diff from before anti join (from emitted where kind in ('-D', '-U')) using (symbol, t)
                    union all select symbol, t, diff from emitted where kind in ('+I', '+U'))
                select count(*) from made full join now using (symbol, t)
                where made.diff is null or now.diff is null or abs(made.diff - now.diff) > 1e-6""").fetchall()
        assert wrong == [(0,)]

    def judged(self, revisions: int) -> Accuracy:
        """The new results are DuckDB's of the corrected tuples, within what is certified; all modes end at the same."""
        if revisions not in self._judged:
            load, view = self.load(revisions), self.view("adaptive")
            self.held.revise(view, load.revisions)
            peer = self.corrected(load)
            found = agreement(
                answer_of(view, possible=True),
                peer.macd(self.asked),
                keys=("symbol",),
                value="diff",
                level=0.0,
                slack=1e-6,
            )
            peer.close()
            assert found.faults == {}
            self._judged[revisions] = Accuracy(
                found.precision, found.recall, float(found.certified), float(found.observed), 1e-6
            )
        return self._judged[revisions]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Market:
    return Market(tmp_path_factory.mktemp("small"), RATE_TICKS)


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory, small: Market) -> Market:
    return small if small.rows == TICKS else Market(tmp_path_factory.mktemp("market"), TICKS)


def compete(benchmark: Any, market: Market, group: str, contender: str, revisions: int) -> None:
    """A batch of revisions, from tuples to results; the peer starts over on a table that is corrected already."""
    load = market.load(revisions)
    row: dict[str, Any] = {"group": group, "contender": contender, "work": revisions, "unit": "revisions"}
    if contender == DUCK:
        market.judged(revisions)  # what this peer answers, and Pulse's results were held against
        peer = market.corrected(load)
        record(benchmark, lambda: peer.macd(market.asked), accuracy=exact(), rounds=3, **row)
        peer.close()
        return
    if contender == AGAIN:
        peer = market.corrected(load)
        truth = peer.macd(market.asked)
        peer.close()
        file = market.folder / f"again-{revisions}.parquet"
        pq.write_table(load.corrected, file)
        emitted: dict[str, Any] = {
            "key": "symbol",
            "time": "t",
            "model": {"price": "step"},
            "drift": "0.005%",
        }

        def again() -> Any:
            model = market.here.fit(file, out=market.folder / "again", overwrite=True, **emitted)
            return market.here.sql(
                Macd.text, streams={"S": model}, parameters=market.asked.parameters
            ).tuples()

        record(
            benchmark,
            again,
            accuracy=lambda table: rows_of(table, truth, keys=("symbol",), value="diff", rounding=1e-6),
            rounds=2,
            warmup=0,
            **row,
        )
        return
    view = market.view(MODES[contender])
    refitted, revised = market.held.revise(view, load.revisions)
    market.check(view, revised)
    counts = refitted.counts

    def afresh() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (market.view(MODES[contender]), load.revisions), {}

    record(
        benchmark,
        market.held.revise,
        accuracy=market.judged(revisions),
        setup=afresh,
        rounds=2 if revisions > 10_000 or market.rows > RATE_TICKS else sizes(2, 5),
        warmup=0,
        facts={
            "absorbed": counts.absorbed,
            "segments before": counts.segments_old,
            "after": counts.segments_new,
            "rows of changes": len(revised.changes),
        },
        **row,
    )


@pytest.mark.parametrize("contender", [*MODES, AGAIN, DUCK])
@pytest.mark.parametrize("rate", RATES)
def test_rate(benchmark: Any, small: Market, rate: float, contender: str) -> None:
    """A share of all tuples is revised at once."""
    revisions = max(1, round(rate * small.rows))
    compete(benchmark, small, f"MACD, {100 * rate:g} % revised", contender, revisions)


@pytest.mark.parametrize("contender", [*MODES, DUCK])
@pytest.mark.parametrize("revisions", BATCHES)
def test_batch(benchmark: Any, market: Market, revisions: int, contender: str) -> None:
    """So many at once, at full size. Starting over costs the same for any number, and is done once for all of them."""
    group = f"MACD, {market.rows / 1e6:g} M, {revisions} at once"
    compete(benchmark, market, group, contender, revisions)


@pytest.mark.parametrize("contender", ["pulse", AGAIN])
def test_stored(benchmark: Any, market: Market, contender: str) -> None:
    """In a stored model: ``pulse revise`` and ``pulse query --revised-from`` for a thousand, or the query anew."""
    revisions = min(1000, market.rows // 100)
    asked: dict[str, Any] = {"parameters": market.asked.parameters}
    row: dict[str, Any] = {
        "group": f"stored, {market.rows / 1e6:g} M, {revisions} at once",
        "contender": contender,
        "unit": "revisions",
    }

    def held(model: Model, peer: DuckDB) -> Accuracy:
        """The answer of a stored model against the peer's."""
        answer = market.here.sql(Macd.text, streams={"S": model}, **asked).tuples()
        found = rows_of(answer, peer.macd(market.asked), keys=("symbol",), value="diff", rounding=1e-6)
        peer.close()
        return found

    if contender == AGAIN:
        streams = {"S": market.model}
        record(
            benchmark,
            lambda: market.here.sql(Macd.text, streams=streams, **asked).tuples(),
            work=revisions,
            accuracy=held(market.model, DuckDB(ticks=market.file, load=True)),
            rounds=3,
            **row,
        )
        return
    load = market.load(revisions)

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (market.fit("stored", drift="0.005%"),), {}

    def revise(model: Model) -> tuple[pa.Table, Path]:
        market.here.revise(model, load.revisions, keep=True)
        changes = market.here.revised(Macd.text, 1, streams={"S": model.path}, **asked).tuples()
        return changes, Path(model.path)

    def judge(done: tuple[pa.Table, Path]) -> Accuracy:
        assert done[0].num_rows
        return held(Model(done[1]), market.corrected(load))

    record(benchmark, revise, work=revisions, accuracy=judge, setup=setup, rounds=1, warmup=0, **row)


# -- what the bounds absorb -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", BOUNDS)
def test_absorbed(benchmark: Any, small: Market, bound: str) -> None:
    """Corrections of about a cent, at the bounds of models: what share moves no segment, and what comes out of a filter."""
    model = small.fit(f"error-{bound}", error=bound)
    held = Held(spec_of(model), small.tuples, model.read())
    load = generate_load(
        small.tuples, model.schema, revisions=min(2000, small.rows // 50), seed=7, size=0.001, again=0.0
    )
    view = held.view("select symbol, price from S where price > 100", "adaptive")
    refitted, revised = held.revise(view, load.revisions)
    counts = refitted.counts
    assert counts.revisions == len(load.revisions)
    assert len(revised.changes) <= 2 * (counts.segments_old + counts.segments_new)
    steps, numbers_of = Steps.of_table(load.corrected, key="symbol", value="price")
    lines = lines_of(view._streams["S"].everything(), numbers_of)

    def afresh() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (held.view("select symbol, price from S where price > 100", "adaptive"), load.revisions), {}

    record(
        benchmark,
        held.revise,
        group=f"absorbed, {bound}",
        contender=OURS,
        work=len(load.revisions),
        unit="revisions",
        accuracy=held_at_ends(steps, lines, share=float(bound.removesuffix("%")) / 100),
        setup=afresh,
        rounds=3,
        warmup=0,
        facts={
            "absorbed by the model, %": 100 * counts.absorbed / counts.revisions,
            "operators": len(revised.report.operators),
            "rows of changes": len(revised.changes),
        },
    )


def lines_of(relation: Relation, numbers_of: dict[str, int]) -> Lines:
    """The segments that a view holds, by key and time."""
    ranges = relation.take(np.flatnonzero(relation.hi > relation.lo))
    code = np.array([numbers_of[name] for name in ranges.keys[0].cast(pa.string()).to_pylist()])[ranges.group]
    order = np.lexsort((ranges.lo, ranges.ref, code))
    c = np.zeros((len(code), 2))
    c[:, : ranges.models["price"].shape[1]] = ranges.models["price"][:, :2]
    columns = (code, ranges.ref, ranges.lo, ranges.hi, c, ranges.err["price"], np.full(len(code), np.inf))
    return Lines(*(one[order] for one in columns))

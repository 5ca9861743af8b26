"""Accents: what they cost a fit and a query, against the same stream without; and what holding many costs in state.

The stream is generated ticks. Prices of a symbol are halved and doubled in turn at its accents' instants, as splits do, or those
of all symbols, as a change of currency does: the log has them. The fit undoes them, and the query (MACD) restates its answer.
Every answer is checked: that of the stream without accents, restated. All is in one thread, in rounds in which contenders take
turns, so that a busy machine does not blur a few per cent.

With 100 accents the loss shall be under 2 %: rows with this aim show it beside what was measured.

In a predictive job accents come while it runs: the same changes are emitted, restated, and results again at each accent. What a
job keeps of accents is measured after many of them, forth and back, over event time.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.benchmarks.bench_fit import held as held_against
from pulse.benchmarks.checks.comparisons import rows_of
from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.questions import Macd
from pulse.benchmarks.recording import OURS, SEED, Accuracy, Timing, alternating, exact, record, sizes
from pulse.core.columns import Columns
from pulse.core.schema import StreamSchema
from pulse.core.time import format_instant
from pulse.datasets.generators.generate import generate
from pulse.operators.data.relation import Relation
from pulse.operators.output.apply_changes import apply_changes
from pulse.operators.units.apply_maps import Alter
from pulse.runtime.accents import query_units as runtime_accents
from pulse.runtime.accents.query_units import job_accents
from pulse.runtime.execution import local_driver
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import Job, job_of
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.micro_batch import Place
from pulse.session import Session
from pulse.store.model import Model
from pulse.stream.accents.accents import Accent, AlterData
from pulse.stream.accents.log import AccentLog
from pulse.stream.descriptions.description import TRUE, Description
from pulse.stream.propagation.receive import receive
from pulse.stream.propagation.signature import Signature
from pulse.stream.propagation.state import State
from pulse.stream.units.affine import Affine

ROWS = int(os.environ.get("PULSE_BENCH_TICKS", sizes("300000", "10000000")).split(",")[0])
ROUNDS, FIT_ROUNDS = sizes(3, 15), sizes(3, 8)
JOB_ROWS, JOB_FILES = sizes(100_000, 4_000_000), sizes(4, 10)
RECEIVED = sizes(10_000, 100_000)
SCHEMA = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
MACD = """select symbol, S.ap - L.ap as diff from
    (select symbol, avg(price) as ap from stream S[size 10 advance 2]) as S
    join (select symbol, avg(price) as ap from stream S[size 60 advance 2]) as L
    on (S.symbol = L.symbol) where S.ap > L.ap"""


@dataclass(frozen=True)
class Case:
    """So many accents, each of one symbol or of all, in a log or among the rows."""

    count: int
    of_all: bool = False
    in_rows: bool = False

    @property
    def contender(self) -> str:
        what = f"{self.count:,} {'accent' if self.count == 1 else 'accents'}"
        more = (" of all symbols" if self.of_all else "") + (" in the rows" if self.in_rows else "")
        return f"{OURS}, {what}{more}" if self.count else OURS


NONE = Case(0)
LOGS = sizes(
    (NONE, Case(100), Case(100, of_all=True), Case(1_000)),
    (NONE, Case(1), Case(100), Case(100, of_all=True), Case(10_000)),
)
IN_JOBS = [
    *sizes((NONE, Case(100)), (NONE, Case(1), Case(100))),
    Case(100, of_all=True),
    Case(100, in_rows=True),
    Case(100, of_all=True, in_rows=True),
]
LOSS = "more CPU than without, %"
AIM = 100, 2.0  # accents, and the loss that they may come to, in per cent


Streams = dict[Case, tuple[Path, AccentLog | None]]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_driver, "cores", lambda: 1)


@pytest.fixture(scope="module")
def ticks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accents") / "ticks.parquet"
    generate("ticks", ROWS, path, seed=SEED)
    return path


def log_of(case: Case, data: pa.Table) -> AccentLog:
    """Accents at instants that are spread over the data, halving and doubling: symbols in turn, each in turn, or all at once."""
    symbols = sorted(data["symbol"].unique().to_pylist())
    at = data["t"].cast(pa.int64())
    instants = np.linspace(at[0].as_py(), at[-1].as_py(), case.count + 2).astype(np.int64)[1:-1]
    maps = Affine("1/2"), Affine(2)
    found = []
    for i, instant in enumerate(instants):
        where = TRUE if case.of_all else Description.where(symbol=symbols[i % len(symbols)])
        turn = i if case.of_all else i // len(symbols)
        found.append(Accent.of(where, AlterData("price", maps[turn % 2]), position=int(instant)))
    return AccentLog.of(found).checked(SCHEMA)


@pytest.fixture(scope="module")
def streams(ticks: Path) -> Streams:
    """The ticks as they are recorded with so many accents, and their log."""
    data = pq.read_table(ticks, columns=["symbol", "t", "price"])
    found: Streams = {}
    for case in LOGS:
        log = log_of(case, data) if case.count else None
        alter = Alter({} if log is None else log.steps("t"))
        path = ticks.with_name(f"ticks-{len(found)}.parquet")
        with pq.ParquetWriter(path, data.schema) as writer:
            for batch in data.to_batches(max_chunksize=1 << 20):
                writer.write_batch(alter.tuples(batch, SCHEMA))
        found[case] = path, log
    return found


def fitted(path: Path, log: AccentLog | None) -> Model:
    options: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": "0.05%"}
    return Session(engine="local").fit(str(path), accents=log, **options)


def asked(session: Session, model: Model) -> pa.Table:
    return session.sql(MACD, streams={"S": model}).tuples()


Timed = tuple[dict[Case, Timing], Accuracy]


def turns(contenders: dict[Case, Callable[[], Any]], rounds: int) -> dict[Case, Timing]:
    """Rounds of each, by turns."""
    found = alternating({case.contender: run for case, run in contenders.items()}, rounds=rounds)
    return {case: found[case.contender] for case in contenders}


def loss(timings: dict[Case, Timing], case: Case) -> dict[str, float]:
    """What accents cost: of the best rounds, in time of the processor."""
    return {LOSS: 100 * (min(timings[case].cpu) / min(timings[NONE].cpu) - 1)}


def aims(case: Case) -> dict[str, float]:
    """What that loss may come to, where there is an aim."""
    return {LOSS: AIM[1]} if case.count == AIM[0] else {}


@pytest.fixture(scope="module")
def fits(ticks: Path, streams: Streams) -> Timed:
    """The models are the same, and that without accents is one of the ticks."""
    model = fitted(*streams[NONE])
    plain = model.read().to_arrow()
    for case in LOGS[1:]:
        assert fitted(*streams[case]).read().to_arrow().equals(plain)
    return turns({one: partial(fitted, *streams[one]) for one in LOGS}, FIT_ROUNDS), held_against(
        ticks, model
    )


@pytest.mark.parametrize("case", LOGS, ids=lambda one: one.contender)
def test_fit(benchmark: Any, fits: Timed, case: Case) -> None:
    """Reading, input_units, fitting, writing."""
    timings, judged = fits
    record(
        benchmark,
        timings[case],
        group="fit with accents",
        contender=case.contender,
        work=ROWS,
        accuracy=judged,
        facts=loss(timings, case),
        aims=aims(case),
    )


@pytest.fixture(scope="module")
def answers(ticks: Path, streams: Streams) -> tuple[Timed, dict[Case, float]]:
    """The answer is that of the stream without accents, restated; and what planning with accents takes, done once."""
    session = Session(engine="local")
    models = {case: fitted(*streams[case]) for case in LOGS}
    plain = asked(session, models[NONE])
    planning = {NONE: 0.0}
    for case in LOGS[1:]:
        got = asked(session, models[case])
        assert got.num_rows == plain.num_rows
        log = streams[case][1]
        assert log is not None
        steps = {"diff": log.steps("t")["price"], "diff_err": log.steps("t")["price"]}
        expected = Alter(steps).tuples(plain.combine_chunks().to_batches()[0], SCHEMA)
        assert np.array_equal(got["diff"].to_numpy(), expected.column("diff").to_numpy())
    timings = turns({case: partial(asked, session, models[case]) for case in LOGS}, ROUNDS)
    for case in LOGS[1:]:
        plan = session.sql(MACD, streams={"S": models[case]}).query.plan
        runtime_accents.plan_cache.clear()
        begin = time.perf_counter()
        job_accents(plan, {"S": models[case].stored}, runtime_accents.AS_STORED)
        planning[case] = time.perf_counter() - begin
    peer = DuckDB(ticks=ticks, load=True)
    judged = rows_of(plain, peer.macd(Macd()), keys=("symbol",), value="diff", rounding=1e-6)
    peer.close()
    return (timings, judged), planning


@pytest.mark.parametrize("case", LOGS, ids=lambda one: one.contender)
def test_query(benchmark: Any, answers: tuple[Timed, dict[Case, float]], case: Case) -> None:
    (timings, judged), planning = answers
    record(
        benchmark,
        timings[case],
        group="MACD with accents",
        contender=case.contender,
        work=ROWS,
        accuracy=judged,
        facts={**loss(timings, case), "planning, s": planning[case]},
        aims=aims(case),
    )


@pytest.mark.parametrize("held", sizes([100, 1000], [100, 1000, 10_000]))
def test_holding(benchmark: Any, held: int) -> None:
    """Accents that a union holds because the other side has not sent the same: time to take them, bytes of state."""
    accents = [
        Accent.of(Description.where(symbol=f"S{i}"), AlterData("price", Affine("1/2")), position=i)
        for i in range(held)
    ]

    def hold() -> tuple[State, int]:
        state, passed = State.start(Signature.union(), ["symbol", "price"], ["symbol", "price"]), 0
        for one in accents:
            state, step = receive(state, 0, one)
            passed += len(step.passed)
        return state, passed

    def judge(held_: tuple[State, int]) -> Accuracy:
        """All are held, and none was passed on."""
        state, passed = held_
        assert passed == 0
        assert sum(len(where.boxes) for where in state.sides[0].paths["price"].values()) >= 1
        return exact()

    state, _ = hold()
    record(
        benchmark,
        hold,
        group=f"holding {held:,} accents",
        contender=OURS,
        work=held,
        unit="accents",
        accuracy=judge,
        rounds=3,
        figure="Accents held by a union",
        x=held,
        x_label="accents held",
        facts={"bytes an accent": len(pickle.dumps(state)) / held},
    )


# -- in predictive jobs ------------------------------------------------------------------------------------------


def ahead(seconds: float, count: int, symbols: int = 100) -> pa.Table:
    """Prices that wander by less than a per cent: a model lasts for many ticks."""
    at = np.arange(count)
    return pa.table(
        {
            "symbol": pa.array([f"s{one}" for one in range(symbols)]).take(pa.array(at % symbols)),
            "t": pa.array((at * (seconds * 1e6 / count)).astype(np.int64), pa.timestamp("us")),
            "price": 100.0 + at % symbols + np.round(np.sin(at / 50_000) * 16) / 64,
        }
    )


def job_folder(
    folder: Path, table: pa.Table, log: AccentLog | None, parts: int = JOB_FILES, *, in_rows: bool = False
) -> Path:
    """A job over files that arrive in order, with its log, or with its accents among the rows."""
    alter = Alter({} if log is None else log.steps("t"))
    (folder / "in").mkdir(parents=True)
    for i in range(parts):
        a, b = table.num_rows * i // parts, table.num_rows * (i + 1) // parts
        (batch,) = table.slice(a, b - a).combine_chunks().to_batches()
        file = folder / "in" / f"{i:03d}.parquet"
        part = pa.Table.from_batches([alter.tuples(batch, SCHEMA)])
        pq.write_table(with_accents(part, log) if in_rows and log is not None else part, file)
        os.utime(file, (1e9 + i, 1e9 + i))
    if log is not None and not in_rows:
        lines = [f"{format_instant(one.position)} {one}" for one in log.controls]
        (folder / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def with_accents(table: pa.Table, log: AccentLog) -> pa.Table:
    """The tuples with those accents among them that are of their times, each before the tuples that it describes."""
    at = np.asarray(table["t"].cast(pa.int64()))
    whole = table.append_column("accent", pa.nulls(len(table), pa.string()))
    parts, begin = [], 0
    for one in log.accents:
        if at[0] <= one.position <= at[-1]:
            place = int(np.searchsorted(at, one.position))
            case = {"t": pa.array([one.position], pa.timestamp("us")), "accent": [str(one)]}
            parts += [whole.slice(begin, place - begin), pa.table(case)]
            begin = place
    return pa.concat_tables([*parts, whole.slice(begin)], promote_options="default").combine_chunks()


def job_in(folder: Path, *, in_rows: bool = False) -> Job:
    """Hold the last price, with its log where there is one."""
    stream = {
        "source": "files",
        "path": "in",
        "key": "symbol",
        "time": "t",
        "model": {"price": "step"},
        "error": "1%",
        "horizon": "60 s",
        "options": {"maxFilesPerTrigger": 1},
    }
    accents = {"accents": "log.jsonl"} if (folder / "log.jsonl").exists() else {}
    accents = {"accents": "accent"} if in_rows else accents
    values = {"query": "select symbol, price from S", "streams": {"S": {**stream, **accents}}}
    return job_of({**values, "sink": {"kind": "none"}}, folder=folder)


def changes_of(job: Job) -> pa.Table:
    parts: list[pa.Table] = []
    run_local(job, on_batch=lambda _, changes: parts.append(changes))
    return pa.concat_tables(parts)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Timed:
    """What holds at the end is what holds without accents, restated; and that is within its bounds of the prices."""
    folder, data = tmp_path_factory.mktemp("jobs"), ahead(400.0, JOB_ROWS)
    found: dict[Case, Job] = {}
    for case in IN_JOBS:
        log = log_of(case, data) if case.count else None
        made = job_folder(folder / str(len(found)), data, log, in_rows=case.in_rows)
        found[case] = job_in(made, in_rows=case.in_rows)
        holds = apply_changes(changes_of(found[case]))
        if log is None:
            plain = holds
            continue
        expected, got = Alter(log.steps("t")).segments(_segments(plain)), _segments(holds)
        for at in np.linspace(0.0, 399.0, 400):
            assert np.allclose(_values(got, at), _values(expected, at), rtol=1e-12, equal_nan=True)
    timings = turns({case: partial(run_local, job) for case, job in found.items()}, ROUNDS)
    return timings, _judged(_segments(plain), data)


def _segments(holds: pa.Table) -> Relation:
    names = [name for name in holds.column_names if name not in ("now", "batch", "position", "kind")]
    return Relation.from_table(holds.select(names).combine_chunks().to_batches()[0], Columns.of(SCHEMA))


def _judged(model: Relation, data: pa.Table) -> Accuracy:
    """At whole seconds: the newest price of each symbol."""
    t, price = np.asarray(data["t"].cast(pa.int64())) / 1e6, np.asarray(data["price"])
    symbols = np.arange(len(price)) % 100
    names = {name: group for group, name in enumerate(model.keys[0].to_pylist())}
    group = np.array([names[f"s{one}"] for one in range(100)])
    given, right, off = 0, 0, 0.0
    instants = np.linspace(1.0, 399.0, 399)
    for at in instants:
        count = np.searchsorted(t, at, side="right")
        truth = np.full(100, np.nan)
        truth[symbols[max(count - 1000, 0) : count]] = price[max(count - 1000, 0) : count]
        found = _values(model, at)[group]
        there = ~np.isnan(found)
        error = np.abs(found - truth)[there]
        given, right, off = (
            given + there.sum(),
            right + (error <= 0.01 * truth[there] + 1e-9).sum(),
            max(off, error.max()),
        )
    return Accuracy(
        right / given, given / (100 * len(instants)), float(model.err["price"].max()), float(off), 1e-9
    )


@pytest.mark.parametrize("case", IN_JOBS, ids=lambda one: one.contender)
def test_job(benchmark: Any, jobs: Timed, case: Case) -> None:
    timings, judged = jobs
    record(
        benchmark,
        timings[case],
        group="predictive job with accents",
        contender=case.contender,
        work=JOB_ROWS,
        accuracy=judged,
        facts=loss(timings, case),
        aims=aims(case),
    )


def _values(relation: Relation, at: float) -> np.ndarray[Any, Any]:
    """The price of every symbol at an instant, in seconds; NaN where there is no result."""
    begin = (relation.ref / 1e6) + relation.lo
    end = (relation.ref / 1e6) + relation.hi
    rows = np.flatnonzero((begin <= at) & (at < end))
    found = np.full(relation.groups, np.nan)
    found[relation.group[rows]] = relation.models["price"][rows, 0]
    return found


def heard_many(folder: Path) -> dict[str, Any]:
    """Accents forth and back, 100 of them before every batch of 1,000 tuples: what is kept, and what one costs."""
    predictor = predictor_of(
        job_in(job_folder(folder, ahead(1.0, 1000), log_of(Case(1), ahead(1.0, 1000)), 1))
    )
    place = Place.of(Prediction(predictor), 10_000_000)
    kept, took, received, rejected = {}, 0.0, 0, 0
    data, maps = ahead(60.0, 1000), ("y / 2", "y * 2")
    while received < RECEIVED:
        begin = received // 100 * 60_000_000
        lines = [
            f"{format_instant(begin + 10_000 * j)} [[symbol = 's{j}', alter(price, {maps[received // 100 % 2]})]]"
            for j in range(100)
        ]
        # The first tuple of every symbol is after its accent, so that all of a batch are in its units.
        price = np.asarray(data["price"]) / (2.0 if received // 100 % 2 == 0 else 1.0)
        later = np.asarray(data["t"].cast(pa.int64())) + begin + 1_000_000
        table = pa.table({"symbol": data["symbol"], "t": pa.array(later, pa.timestamp("us")), "price": price})
        start = time.process_time()
        batch = place.decode({"S": table}, {"S": lines})
        took += time.process_time() - start
        start, aside = place.run(batch, lambda emission: (time.process_time(), emission.tally.aside))
        took += time.process_time() - start
        rejected += aside
        received += batch.decoded.count
        if received in (1_000, 10_000, RECEIVED):
            kept[received] = len(pickle.dumps(place.follower.state))
    return {"kept": kept, "seconds": took, "received": received, "aside": rejected}


def test_state_of_many_accents(benchmark: Any, tmp_path: Path) -> None:
    """What is kept must not grow with what was received."""

    def judge(found: dict[str, Any]) -> Accuracy:
        assert found["aside"] == 0
        assert found["kept"][RECEIVED] < 1.5 * found["kept"][1_000]
        assert found["received"] == RECEIVED
        return exact()

    found = record(
        benchmark,
        lambda: heard_many(tmp_path / os.urandom(4).hex()),
        group=f"{RECEIVED:,} accents received and settled",
        contender=OURS,
        work=RECEIVED,
        unit="accents",
        accuracy=judge,
        rounds=1,
        warmup=0,
    )
    benchmark.extra_info["facts"] |= {
        f"bytes kept after {n:,}": float(size) for n, size in found["kept"].items()
    } | {"receiving and settling, µs of CPU an accent": 1e6 * found["seconds"] / found["received"]}

"""Accents: what they cost a fit and a query, against the same stream without; and what holding many costs in state.

The stream is generated ticks. Prices of a symbol are halved and doubled in turn at its accents' instants; the log says so. The
fit undoes them, and the query (MACD) restates its answer. Every answer is checked: that of the stream without accents,
restated. Times are of the processor, in one thread, the best of several rounds in which contenders take turns, so that a busy
machine does not blur a few per cent; compiling is apart.

Run with ``make bench``, or ``pytest benchmarks/bench_accents.py -o python_files='bench_*.py' -s``. ``PULSE_BENCH_QUICK=1``
takes small sizes. With 100 accents the loss shall be under 2 %.

In a predictive job accents come while it runs: the same changes are said, restated, and what is said again at each accent. What a
job keeps of accents is measured after many of them, forth and back, over event time.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.core import StreamSchema
from pulse.core.columns import Columns
from pulse.core.time import format_instant
from pulse.datasets.generators import generate
from pulse.kernels import _jit
from pulse.operators.alter import Alter
from pulse.operators.changelog import apply_changes
from pulse.operators.relation import Relation
from pulse.runtime import accents as runtime_accents
from pulse.runtime import local
from pulse.runtime.accents import job_accents
from pulse.runtime.predictive_accents import Follower, follow
from pulse.runtime.predictive_job import Job, job_of
from pulse.runtime.predictive_local import run_local
from pulse.runtime.predictor import Prediction
from pulse.runtime.sources import predictor_of
from pulse.session import Session
from pulse.store.model import Model
from pulse.stream.accents import Accent, AlterData
from pulse.stream.affine import Affine
from pulse.stream.description import Description
from pulse.stream.log import AccentLog
from pulse.stream.machine import receive
from pulse.stream.signature import Signature
from pulse.stream.state import State

QUICK = bool(os.environ.get("PULSE_BENCH_QUICK"))
ROWS = int(os.environ.get("PULSE_BENCH_TICKS", 1_000_000 if QUICK else 10_000_000))
COUNTS = (0, 1, 100, 10_000)
ROUNDS = 15
FIT_ROUNDS = 3 if QUICK else 12
JOB_ROWS, JOB_COUNTS = 400_000, (0, 1, 100)
HEARD = 10_000 if QUICK else 100_000
SCHEMA = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
MACD = """select symbol, S.ap - L.ap as diff from
    (select symbol, avg(price) as ap from stream S[size 10 advance 2]) as S
    join (select symbol, avg(price) as ap from stream S[size 60 advance 2]) as L
    on (S.symbol = L.symbol) where S.ap > L.ap"""


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    _jit.warm()


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "cores", lambda: 1)


@pytest.fixture(scope="module")
def ticks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accents") / "ticks.parquet"
    generate("ticks", ROWS, path, seed=1)
    return path


def log_of(count: int, data: pa.Table) -> AccentLog:
    """So many accents: instants spread over the data, symbols in turn, halving and doubling each in turn."""
    symbols = sorted(data["symbol"].unique().to_pylist())
    at = data["t"].cast(pa.int64())
    instants = np.linspace(at[0].as_py(), at[-1].as_py(), count + 2).astype(np.int64)[1:-1]
    maps = Affine("1/2"), Affine(2)
    found = [
        Accent.of(
            Description.where(symbol=symbols[i % len(symbols)]),
            AlterData("price", maps[i // len(symbols) % 2]),
            position=int(instant),
        )
        for i, instant in enumerate(instants)
    ]
    return AccentLog.of(found).checked(SCHEMA)


@pytest.fixture(scope="module")
def streams(ticks: Path) -> dict[int, tuple[Path, AccentLog | None]]:
    """The ticks as they are recorded with so many accents, and their log."""
    data = pq.read_table(ticks, columns=["symbol", "t", "price"])
    found: dict[int, tuple[Path, AccentLog | None]] = {}
    for count in COUNTS:
        log = log_of(count, data) if count else None
        alter = Alter({} if log is None else log.steps("t"))
        path = ticks.with_name(f"ticks-{count}.parquet")
        with pq.ParquetWriter(path, data.schema) as writer:
            for batch in data.to_batches(max_chunksize=1 << 20):
                writer.write_batch(alter.tuples(batch, SCHEMA))
        found[count] = path, log
    return found


def fitted(path: Path, log: AccentLog | None) -> Model:
    told: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": "0.05%"}
    return Session(engine="local").fit(str(path), accents=log, **told)


def asked(session: Session, model: Model) -> pa.Table:
    return session.sql(MACD, streams={"S": model}).tuples()


def best(contenders: Mapping[int, Callable[[], Any]], rounds: int = ROUNDS) -> dict[int, float]:
    """Seconds of the processor, contenders taking turns."""
    found = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for count, work in contenders.items():
            begin = time.process_time()
            work()
            found[count] = min(found[count], time.process_time() - begin)
    return found


def report(what: str, seconds: dict[int, float], rows: int) -> None:
    for count, took in seconds.items():
        loss = took / seconds[0] - 1
        print(
            f"\n{what}, {count:>6,} accents: {rows / took / 1e6:6.2f} M a second, {took:.3f} s, {loss:+.1%}",
            end="",
        )


def test_fit(streams: dict[int, tuple[Path, AccentLog | None]]) -> None:
    """Reading, undoing, fitting, writing; the models are the same."""
    plain = fitted(*streams[0]).read().to_arrow()
    for count in COUNTS[1:]:
        assert fitted(*streams[count]).read().to_arrow().equals(plain)
    report("fit, tuples", best({n: partial(fitted, *streams[n]) for n in COUNTS}, FIT_ROUNDS), ROWS)


def test_query(streams: dict[int, tuple[Path, AccentLog | None]]) -> None:
    """The answer is that of the stream without accents, restated."""
    session = Session(engine="local")
    models = {count: fitted(*streams[count]) for count in COUNTS}
    plain = asked(session, models[0])
    for count in COUNTS[1:]:
        got = asked(session, models[count])
        assert got.num_rows == plain.num_rows
        log = streams[count][1]
        assert log is not None
        steps = {"diff": log.steps("t")["price"], "diff_err": log.steps("t")["price"]}
        expected = Alter(steps).tuples(plain.combine_chunks().to_batches()[0], SCHEMA)
        assert np.array_equal(got["diff"].to_numpy(), expected.column("diff").to_numpy())
    seconds = best({n: partial(asked, session, models[n]) for n in COUNTS})
    report("MACD, tuples of the stream", seconds, ROWS)
    for count in COUNTS[1:]:
        plan = session.sql(MACD, streams={"S": models[count]}).query.plan
        runtime_accents._planned.clear()
        begin = time.perf_counter()
        job_accents(plan, {"S": models[count].stored}, runtime_accents.AS_STORED)
        print(f"\nplanning with {count:,} accents: {time.perf_counter() - begin:.3f} s", end="")
    if not QUICK:
        assert (
            seconds[100] / seconds[0] < 1.05
        )  # the aim is 1.02; the rest is what a shared machine varies by


@pytest.mark.parametrize("held", [100, 1000] if QUICK else [100, 1000, 10_000])
def test_holding(held: int) -> None:
    """Accents that a union holds because the other side has not said the same: time to take them, bytes of state."""
    state = State.start(Signature.union(), ["symbol", "price"], ["symbol", "price"])
    accents = [
        Accent.of(Description.where(symbol=f"S{i}"), AlterData("price", Affine("1/2")), position=i)
        for i in range(held)
    ]
    begin = time.perf_counter()
    for one in accents:
        state, step = receive(state, 0, one)
        assert not step.passed
    took = time.perf_counter() - begin
    print(
        f"\nholding {held:,} accents: {1e6 * took / held:.0f} µs each, {len(pickle.dumps(state)) / held:.0f} bytes each",
        end="",
    )
    assert sum(len(rule.description.boxes) for rule in state.rules(0)) >= 1


# -- in predictive jobs ------------------------------------------------------------------------------------------


def ahead(seconds: float, count: int, symbols: int = 100) -> pa.Table:
    """Prices that wander by less than a per cent: a model lasts for many ticks."""
    at = np.arange(count)
    return pa.table(
        {
            "symbol": [f"s{one}" for one in at % symbols],
            "t": pa.array((at * (seconds * 1e6 / count)).astype(np.int64), pa.timestamp("us")),
            "price": 100.0 + at % symbols + np.round(np.sin(at / 50_000) * 16) / 64,
        }
    )


def job_folder(folder: Path, table: pa.Table, log: AccentLog | None, parts: int = 4) -> Path:
    """A job over files that arrive in order, with its log; gives where its accents are."""
    alter = Alter({} if log is None else log.steps("t"))
    (folder / "in").mkdir(parents=True)
    for i in range(parts):
        a, b = table.num_rows * i // parts, table.num_rows * (i + 1) // parts
        (batch,) = table.slice(a, b - a).combine_chunks().to_batches()
        file = folder / "in" / f"{i:03d}.parquet"
        pq.write_table(pa.Table.from_batches([alter.tuples(batch, SCHEMA)]), file)
        os.utime(file, (1e9 + i, 1e9 + i))
    if log is not None:
        lines = [f"{format_instant(one.position)} {one}" for one in log.controls]
        (folder / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def job_in(folder: Path) -> Job:
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
    told = {"accents": "log.jsonl"} if (folder / "log.jsonl").exists() else {}
    values = {"query": "select symbol, price from S", "streams": {"S": {**stream, **told}}}
    return job_of({**values, "sink": {"kind": "none"}}, folder=folder)


def changes_of(job: Job) -> pa.Table:
    parts: list[pa.Table] = []
    run_local(job, on_batch=lambda _, changes: parts.append(changes))
    return pa.concat_tables(parts)


def test_job(tmp_path: Path) -> None:
    """What holds at the end is what holds without accents, restated."""
    data = ahead(400.0, JOB_ROWS)
    jobs = {}
    for count in JOB_COUNTS:
        log = log_of(count, data) if count else None
        jobs[count] = job_in(job_folder(tmp_path / str(count), data, log))
        holds = apply_changes(changes_of(jobs[count]))
        if log is None:
            plain = holds
            continue
        names = [name for name in plain.column_names if name not in ("now", "batch", "position", "kind")]
        segments = Relation.from_table(
            plain.select(names).combine_chunks().to_batches()[0], Columns.of(SCHEMA)
        )
        expected = Alter(log.steps("t")).segments(segments)
        got = Relation.from_table(holds.select(names).combine_chunks().to_batches()[0], Columns.of(SCHEMA))
        for at in np.linspace(0.0, 399.0, 400):
            assert np.allclose(_values(got, at), _values(expected, at), rtol=1e-12, equal_nan=True)
    seconds = best({n: partial(run_local, jobs[n]) for n in JOB_COUNTS})
    report("job, tuples", seconds, JOB_ROWS)


def _values(relation: Relation, at: float) -> np.ndarray[Any, Any]:
    """The price of every symbol at an instant, in seconds; NaN where nothing is said."""
    begin = (relation.ref / 1e6) + relation.lo
    end = (relation.ref / 1e6) + relation.hi
    rows = np.flatnonzero((begin <= at) & (at < end))
    found = np.full(relation.groups, np.nan)
    found[relation.group[rows]] = relation.models["price"][rows, 0]
    return found


def test_state_of_many_accents(tmp_path: Path) -> None:
    """Accents forth and back, 100 of them before every batch of 1,000 tuples: what is kept, and what one costs."""
    predictor = predictor_of(job_in(job_folder(tmp_path, ahead(1.0, 1000), log_of(1, ahead(1.0, 1000)), 1)))
    prediction, follower = Prediction(predictor), Follower(predictor)
    sizes, took, heard = {}, 0.0, 0
    data, maps = ahead(60.0, 1000), ("y / 2", "y * 2")
    while heard < HEARD:
        begin = heard // 100 * 60_000_000
        lines = [
            f"{format_instant(begin + 10_000 * j)} [[symbol = 's{j}', alter(price, {maps[heard // 100 % 2]})]]"
            for j in range(100)
        ]
        # The first tuple of every symbol is after its accent, so that all of a batch are in its units.
        price = np.asarray(data["price"]) / (2.0 if heard // 100 % 2 == 0 else 1.0)
        later = np.asarray(data["t"].cast(pa.int64())) + begin + 1_000_000
        table = pa.table({"symbol": data["symbol"], "t": pa.array(later, pa.timestamp("us")), "price": price})
        start = time.process_time()
        told = follower.hear({"S": table}, {"S": lines})
        took += time.process_time() - start
        follow(prediction, follower, told)
        now = int(later[-1])
        watermark = follower.watermark(now, 10_000_000)
        prediction.advance(watermark)
        start = time.process_time()
        follower.settle(now, watermark, prediction.validators)
        took += time.process_time() - start
        heard += told.count
        if heard in (1_000, 10_000, HEARD):
            sizes[heard] = len(pickle.dumps(follower.state))
    assert prediction.tally.aside == 0
    print(
        f"\nstate of accents: {', '.join(f'{size:,} bytes after {n:,}' for n, size in sizes.items())}", end=""
    )
    print(f"\nheard and settled: {1e6 * took / heard:.0f} µs an accent, tuples undone among it", end="")
    assert sizes[HEARD] < 1.5 * sizes[1_000]

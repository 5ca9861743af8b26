"""Predictive processing in process: validated tuples a second of the kernel and of the whole validator, against the same check in
numpy alone and tuple by tuple in Python; the share of tuples that need no solving, on generated and on recorded streams; and
whole queries from tuples to changes of results, against DuckDB computing its windows anew for every batch.

Contenders of single checks are held to the same models, validators to all tuples they were given, whole queries to the exact
answer over the tuples.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pulse.benchmarks.checks.comparisons import rows_of
from pulse.benchmarks.checks.predictions import held_as_answer, held_at_tuples
from pulse.benchmarks.checks.violations import DATA, MACD, in_metres, with_velocity
from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.duckdb_streams import DuckAbove, DuckMacd
from pulse.benchmarks.peers.questions import Above, Macd
from pulse.benchmarks.recording import OURS, SEED, Accuracy, exact, record, sizes
from pulse.core.expression import Arithmetic, Column, Elapsed
from pulse.core.schema import StreamSchema
from pulse.datasets.generators.generate import frame, generate
from pulse.kernels.fit.truth_intervals import SAMPLES, STEP
from pulse.kernels.validate.key_state import StateLayout, fresh
from pulse.kernels.validate.validate import KIND, REPAIR, ROW, validate
from pulse.language import parse
from pulse.operators.data.relation import Relation
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.spec import Predictor
from pulse.validation.online.counts import ValidationCounts
from pulse.validation.online.validator import Validator

ROWS = sizes(300_000, 5_000_000)
RECORDED_ROWS = sizes(200_000, 5_000_000)
SLOW_ROWS = sizes(30_000, 200_000)  # for what works tuple by tuple in Python
ROUNDS = sizes(2, 3)
CHUNK = 1 << 18
HOUR = 3_600_000_000
BY_TUPLE = "Python, by tuple"


# -- one check, three ways -------------------------------------------------------------------------------


class Load:
    """Tuples of many keys in order of arrival: ``t``, ``v`` (values, then velocities), ``key``; rules and bounds."""

    def __init__(self, kind: str, rows: int, keys: int = 500) -> None:
        rng = np.random.default_rng(SEED)
        self.t = np.arange(rows, dtype=np.int64) * 1000
        self.key = rng.integers(0, keys, rows)
        self.keys, self.kind = keys, kind
        seconds = self.t / 1e6
        if kind == "hold":
            walk = np.cumsum(rng.normal(0, 1e-4, rows))
            self.v = (100.0 + walk)[None]
            self.rules, self.bounds = np.array([[STEP, 0, 0]]), np.array([[0.01, 0.0]])
        else:
            speed = rng.normal(0, 5, (2, keys))[:, self.key]
            self.v = np.vstack([speed * seconds + rng.normal(0, 1, (2, rows)), speed])
            self.rules = np.array([[SAMPLES, 0, 0, 2], [SAMPLES, 0, 1, 3]])
            self.bounds = np.array([[0.0, 50.0]] * 2)

    def pulse(self) -> list[int]:
        """Tuples that begin a model, by the kernel."""
        state = fresh(self.keys, StateLayout(len(self.rules), self.rules.shape[1] - 2))
        begun: list[int] = []
        for at in range(0, len(self.t), CHUNK):
            some = slice(at, at + CHUNK)
            found = validate(
                self.t[some],
                np.ascontiguousarray(self.v[:, some]),
                np.ascontiguousarray(self.key[None, some]),
                self.rules,
                self.bounds,
                HOUR * 24,
                state,
            )
            begun += (found.event[found.event[:, KIND] != REPAIR, ROW] + at).tolist()
        return begun

    def numpy(self) -> list[int]:
        """The same in whole arrays: per key, check all that is left against its model, begin anew at the first that fails."""
        order = np.argsort(self.key, kind="stable")
        offsets = np.searchsorted(self.key[order], np.arange(self.keys + 1))
        t, v, a = self.t[order], self.v[:, order], len(self.rules)
        share, floor = self.bounds[:, :1], self.bounds[:, 1:]
        begun: list[int] = []
        for k in range(self.keys):
            at, end = int(offsets[k]), int(offsets[k + 1])
            while at < end:
                begun.append(int(order[at]))
                seconds = (t[at:end] - t[at]) / 1e6
                model = v[:a, at, None] + (v[a:, at, None] * seconds if len(v) > a else 0.0)
                values = v[:a, at:end]
                stated = np.maximum(share * np.abs(v[:a, at, None]), floor)
                allowed = np.minimum(stated, np.maximum(share * np.abs(values), floor))
                failed = (np.abs(values - model) > allowed).any(axis=0)
                first = int(failed.argmax())
                at = at + first if failed[first] else end
        return sorted(begun)

    def python(self, rows: int) -> list[int]:
        """The same tuple by tuple."""
        t, key, v = self.t[:rows].tolist(), self.key[:rows].tolist(), self.v[:, :rows].T.tolist()
        a, bounds = len(self.rules), self.bounds.tolist()
        models: dict[int, tuple[int, list[float], list[float]]] = {}
        begun = []
        for i, (at, k, values) in enumerate(zip(t, key, v, strict=True)):
            held = False
            if k in models:
                since, origin, stated = models[k]
                seconds, held = (at - since) / 1e6, True
                for j in range(a):
                    model = origin[j] + (origin[a + j] * seconds if len(origin) > a else 0.0)
                    share, floor = bounds[j]
                    if abs(values[j] - model) > min(stated[j], max(share * abs(values[j]), floor)):
                        held = False
            if not held:
                models[k] = (
                    at,
                    values,
                    [max(s * abs(x), f) for (s, f), x in zip(bounds, values, strict=False)],
                )
                begun.append(i)
        return begun

    def judged(self, begun: list[int], rows: int) -> Accuracy:
        """Tuples that begin a model, against those found one by one; and how far all others lie from their model."""
        truth = self.python(min(rows, SLOW_ROWS))
        mine = [i for i in begun if i < min(rows, SLOW_ROWS)]
        right = len(set(mine) & set(truth))
        off, bound = self._off(np.array(begun), rows)
        assert np.all(off <= bound)
        return Accuracy(right / len(mine), right / len(truth), float(bound.max()), float(off.max()))

    def _off(self, begun: Any, rows: int) -> tuple[Any, Any]:
        """Of each tuple and attribute: the distance from the model in force, and what was stated for it."""
        order = np.argsort(self.key[:rows], kind="stable")
        begins = np.isin(order, begun)
        at = order[np.maximum.accumulate(np.where(begins, np.arange(rows), 0))]
        a, v = len(self.rules), self.v[:, :rows]
        seconds = (self.t[order] - self.t[at]) / 1e6
        model = v[:a, at] + (v[a:, at] * seconds if len(v) > a else 0.0)
        share, floor = self.bounds[:, :1], self.bounds[:, 1:]
        return np.abs(v[:a, order] - model), np.maximum(share * np.abs(v[:a, at]), floor)


LOADS = {"hold": "hold, 1 attribute", "move": "x = x + v t, 2 attributes"}


@pytest.fixture(scope="module", params=list(LOADS))
def load(request: pytest.FixtureRequest) -> Load:
    return Load(request.param, ROWS)


@pytest.mark.parametrize("contender", [OURS, "numpy", BY_TUPLE])
def test_kernel(benchmark: Any, load: Load, contender: str) -> None:
    rows = SLOW_ROWS if contender == BY_TUPLE else ROWS
    run: Any = {OURS: load.pulse, "numpy": load.numpy, BY_TUPLE: lambda: load.python(SLOW_ROWS)}[contender]

    def judge(begun: list[int]) -> Accuracy:
        assert contender != "numpy" or begun == load.pulse()
        found = load.judged(begun, rows)
        assert found.precision == found.recall == 1.0
        return found

    record(
        benchmark,
        run,
        group=f"validate, {LOADS[load.kind]}",
        contender=contender,
        work=rows,
        accuracy=judge,
        rounds=ROUNDS,
        facts={"validated, %": 100 * (1 - len(run()) / rows)},
    )


# -- the whole validator, on streams ----------------------------------------------------------------------


def moving(name: str, speed: str) -> Any:
    return Arithmetic("+", Column(name), Arithmetic("*", Column(speed), Elapsed()))


def ticks(horizon: str = "1 h") -> PredictSpec:
    schema = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
    return PredictSpec.of(schema, horizon=horizon, error="1%")


def vessels(*, models: bool, policy: str = "hold") -> PredictSpec:
    speeds = {"vx": "float64", "vy": "float64"} if models else {}
    schema = StreamSchema.of(
        key={"id": "int64"}, time="t", modelled={"x": "linear", "y": "linear"}, unmodelled=speeds
    )
    formulas = {"x": moving("x", "vx"), "y": moving("y", "vy")} if models else None
    return PredictSpec.of(schema, horizon="1 h", error=100.0, models=formulas, policy=policy)


def run(spec: PredictSpec, tables: list[pa.Table]) -> tuple[ValidationCounts, list[Relation]]:
    """What became of the tuples, and the models that they led to."""
    mine, total, updates = Validator(spec), ValidationCounts(), []
    for table in tables:
        pushed = mine.push(table)
        total.add(pushed.counts)
        updates.append(pushed.updates)
    return total, updates


def compete(
    benchmark: Any, group: str, contender: str, spec: PredictSpec, table: pa.Table
) -> ValidationCounts:
    """Time a validator on a stream."""
    parts = cut(table)
    counts, updates = run(spec, parts)
    checked = counts.tuples - counts.late - counts.not_finite - counts.misplaced
    assert checked == counts.validated + counts.violated + counts.first + counts.expired + counts.changed
    valid = table.filter(pc.is_valid(table[spec.schema.time]))
    for name in {*spec.schema.modelled_names, *spec.coefficients}:  # what is not a number was set aside
        valid = valid.filter(pc.is_finite(valid[name]))
    record(
        benchmark,
        lambda: run(spec, parts),
        group=group,
        contender=contender,
        work=table.num_rows,
        accuracy=held_at_tuples(updates, valid, spec.schema),
        rounds=ROUNDS,
        facts={
            "no solving, %": 100 * counts.validated / checked,
            "violated": counts.violated,
            "expired": counts.expired,
            "late": counts.late,
        },
    )
    return counts


def cut(table: pa.Table) -> list[pa.Table]:
    return [table.slice(at, CHUNK) for at in range(0, table.num_rows, CHUNK)]


def test_ticks(benchmark: Any, tmp_path: Path) -> None:
    generate("ticks", ROWS, tmp_path / "ticks.parquet", seed=SEED)
    table = pq.read_table(tmp_path / "ticks.parquet", read_dictionary=["symbol"])
    counts = compete(benchmark, "validator, ticks at 1 %", OURS, ticks(), table)
    assert counts.validated > 0.95 * counts.tuples


HOW = {OURS: "MODEL", "pulse, trend": "trend", "pulse, hold": "hold"}


@pytest.mark.parametrize("contender", list(HOW))
def test_vessels(benchmark: Any, tmp_path: Path, contender: str) -> None:
    """A bound of 100 m: 0.05 % of the 200 km that the vessels sail in."""
    generate("vessels", ROWS // 5, tmp_path / "vessels.parquet", seed=SEED)
    table = pq.read_table(tmp_path / "vessels.parquet")
    table = with_velocity(table)
    how = HOW[contender]
    spec = vessels(models=how == "MODEL", policy="trend" if how == "trend" else "hold")
    counts = compete(benchmark, "validator, vessels at 0.05 %", contender, spec, table)
    assert counts.late == 0


def recorded(name: str) -> Path:
    path = DATA / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"no {path.name} in {DATA}; set PULSE_DATA to the folder of recorded data")
    return path


def test_recorded_trades(benchmark: Any) -> None:
    table = pq.read_table(recorded("trades_us_equities_20131007_09"), columns=["symbol", "t", "price"])
    counts = compete(
        benchmark, "validator, recorded trades at 1 %", OURS, ticks(), table.slice(0, RECORDED_ROWS)
    )
    assert counts.validated > 0.95 * counts.tuples


@pytest.mark.parametrize("contender", list(HOW))
@pytest.mark.parametrize("name", ["ais_sbchannel_20180601_04", "ais_nyharbor_20201201_07"])
def test_recorded_vessels(benchmark: Any, name: str, contender: str) -> None:
    """In metres east and north of the middle, on a sphere; again at 100 m."""
    table, how = (
        with_velocity(in_metres(pq.read_table(recorded(name)).slice(0, RECORDED_ROWS))),
        HOW[contender],
    )
    spec = vessels(models=how == "MODEL", policy="trend" if how == "trend" else "hold")
    counts = compete(benchmark, f"validator, {name[:14]}", contender, spec, table)
    assert counts.validated > 0


# -- whole queries, from tuples to changes of results -----------------------------------------------------

LEVEL = 60.0
ABOVE = f"select symbol, price from S where price > {LEVEL:g}"
QUERIES = {"macd": MACD, "filter": ABOVE}
STREAMED = sizes(100_000, 1_000_000)
BATCHES = sizes((1_000, 20_000), (100, 1_000, 20_000))
PUSHES = sizes(50, 200)  # at most, of each batch size
LATENESS = 60_000_000
LOOKED_AT = 60  # seconds between the instants at which a filter's answer is checked: it stands for days
RATE = 5.0  # ticks a second, of all symbols: prices leave their 1 % within a batch or two, so that solving is timed too
HORIZON = "72 h"  # longer than a million ticks at that rate last
BOUND, RECOMPUTED = "pulse, bound by the query", "DuckDB, recomputed"


def predictor_of(name: str, ending: str, query: Any = None) -> Predictor:
    """At 1 % of the price: of each tuple, or on the output (of a difference of averages, 1 % of 60).

    No model expires before the stream's end: between then and its key's next tuple there would be no answer to check.
    """
    spec = PredictSpec.of(ticks().schema, horizon=HORIZON) if ending else ticks(HORIZON)
    return Predictor.of(query or parse(f"{QUERIES[name]} {ending}", {"S": spec.schema}).bind({}), {"S": spec})


ENDINGS = {"macd": "error within 0.6", "filter": "error within 1%"}


class Continuous:
    """Pulse: push, and free what is over."""

    def __init__(self, name: str, ending: str) -> None:
        self.prediction = Prediction(predictor_of(name, ending))

    def push(self, table: pa.Table) -> Any:
        changes = self.prediction.push({"S": table}).changes
        assert self.prediction.now is not None
        self.prediction.advance(self.prediction.now - LATENESS)
        return changes


def recomputed(name: str, _: str) -> Any:
    """The same over tuples in DuckDB: of MACD each batch computes anew what its windows still need of the tuples before."""
    return DuckMacd() if name == "macd" else DuckAbove(LEVEL)


def streamed(maker: Callable[[], Any], parts: list[pa.Table], latencies: list[float]) -> Any:
    """Push all parts, and note how long each took."""
    running = maker()
    latencies.clear()
    for part in parts:
        begin = time.perf_counter()
        running.push(part)
        latencies.append(time.perf_counter() - begin)
    return running


class Stream:
    """Ticks in batches, and the exact answers over them."""

    def __init__(self, folder: Path, size: int) -> None:
        self.table = frame("ticks", min(STREAMED, size * PUSHES), seed=SEED, rate=RATE, sessions=False)
        self.parts = [self.table.slice(at, size) for at in range(0, self.table.num_rows, size)]
        file = folder / "ticks.parquet"
        pq.write_table(self.table, file)
        self.exact = DuckDB(ticks=file, load=True)

    def judge(self, name: str, contender: str, running: Any) -> Accuracy:
        """Pulse's answer by a run that forgets nothing, DuckDB's by what it emitted."""
        if contender == RECOMPUTED:
            return self._of_emitted(name, running.emitted)
        ending = ENDINGS[name] if contender == BOUND else ""
        query = parse(f"{QUERIES[name]} {ending}", {"S": ticks().schema}).bind({})
        macd = name == "macd"
        return held_as_answer(
            query,
            lambda asked: predictor_of(name, ending, asked),
            [{"S": part} for part in self.parts],
            self.exact.macd(Macd()) if macd else self.exact.above(Above(level=LEVEL, every=LOOKED_AT)),
            every=(2 if macd else LOOKED_AT) * 1_000_000,
            value="diff" if macd else "price",
            level=0.0 if macd else LEVEL,
            slack=1e-6,
        )

    def _of_emitted(self, name: str, answer: pa.Table) -> Accuracy:
        if name == "filter":
            expected = self.table.filter(pc.greater(self.table["price"], LEVEL))
            for column, type_ in (("symbol", pa.string()), ("t", pa.int64()), ("price", pa.float64())):
                mine, theirs = (one[column].cast(type_).combine_chunks() for one in (expected, answer))
                assert theirs.equals(mine), column
            return exact()
        return rows_of(answer, self.exact.macd(Macd()), keys=("symbol",), value="diff", rounding=1e-6)


@pytest.mark.parametrize("size", BATCHES)
@pytest.mark.parametrize("name", list(QUERIES))
@pytest.mark.parametrize("contender", [OURS, BOUND, RECOMPUTED])
def test_queries(benchmark: Any, tmp_path: Path, name: str, size: int, contender: str) -> None:
    stream, latencies = Stream(tmp_path, size), list[float]()
    ending = ENDINGS[name] if contender == BOUND else ""
    maker = partial(recomputed if contender == RECOMPUTED else Continuous, name, ending)
    running = record(
        benchmark,
        lambda: streamed(maker, stream.parts, latencies),
        group=f"{name} at 1 %, batches of {size:,}",
        contender=contender,
        work=stream.table.num_rows,
        accuracy=partial(stream.judge, name, contender),
        rounds=sizes(1, 2),
    )
    p50, p99 = np.percentile(np.array(latencies) * 1e3, [50, 99])
    facts = benchmark.extra_info["facts"]
    facts |= {"a push, p50 ms": float(p50), "p99 ms": float(p99)}
    if isinstance(running, Continuous):
        tally = running.prediction.tally
        assert tally.validated > 0.9 * tally.tuples
        facts |= {"no solving, %": 100 * tally.validated / tally.tuples, "changes": float(tally.changes)}

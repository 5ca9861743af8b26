"""Sweeps against their queries asked one by one: the same answers, from one pass, whatever the size of the grid."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.core.errors import PulseError
from pulse.operators.parameters import ParameterError
from pulse.operators.windows import integral
from pulse.runtime.execution import evaluator, local_driver, scan
from pulse.runtime.execution.bound_plan import prepare
from pulse.runtime.sweep import batched_variants
from pulse.runtime.sweep import driver as sweep_module
from pulse.runtime.sweep import variants as sweep_variants
from pulse.runtime.sweep.driver import ParameterGrid, SweepError
from pulse.store.model import Model
from tests.runtime.execution import asking
from tests.runtime.execution.asking import COLLISION, MACD, prices, rows_of, tracks

FILTER = "select symbol, price, venue from S where price > :least and t >= :since"
BEND = """select symbol, A.ap - 2 * B.ap + C.total / 4 as bend from
(select symbol, avg(price) as ap from S[size :short advance 2]) as A
join (select symbol, avg(price) as ap from S[size 8 advance 2]) as B on (A.symbol = B.symbol)
join (select symbol, sum(price) as total from S[size 4 advance 2]) as C on (A.symbol = C.symbol)
where not ((A.ap - B.ap) ^ 2 <= :least and abs(A.ap) < 21)"""
OTHER_KEYS = """select symbol, S.ap - L.ap as diff from
(select symbol, avg(price) as ap from S[size :short advance 2]) as S
join (select symbol, avg(price) as ap from S[size 8 advance 2] where symbol <> 'b') as L
on (S.symbol = L.symbol) where S.ap > L.ap"""
ROOT = """select symbol, sqrt(ap) as root from (select symbol, avg(price) as ap from S[size :short advance 2])
where ap > 20"""
GRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    "macd": (MACD, {"short": [2, 4.0, 6], "long": [8, 12]}),
    "odd sizes": (MACD, {"short": [2, 3, 5.5], "long": [8, 9]}),
    "bend": (BEND, {"short": [2, 4, 5], "least": [0.01, 0.1]}),
    "other keys": (OTHER_KEYS, {"short": [2, 4]}),
    "root": (ROOT, {"short": [2, 4]}),
    "filter": (
        f"{FILTER} sample every 2 s",
        {"least": [19, 20.5], "since": ["2020-09-13 12:27:00", "2020-09-13"]},
    ),
    "keys": ("select symbol, price from S where symbol = :who sample every 5 s", {"who": ["a", "c", "no"]}),
    "pairs": (f"{COLLISION} sample every 4 s", {"c": [30, 60]}),
    "over keys": ("select max(price) - :m as top from S[size 4 advance 4]", {"m": [0, 1]}),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("sweep")
    return {"S": prices(folder / "s"), "V": tracks(folder / "v")}


@pytest.fixture(autouse=True)
def two_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_driver, "cores", lambda: 2)


def swept(models: dict[str, Model], name: str, session: Any = None, **more: Any) -> Any:
    text, axes = GRIDS[name]
    return (session or asking.local()).sweep(text, streams=models, **{**axes, **more})


def alone(models: dict[str, Model], name: str, values: dict[str, Any], of: str) -> pa.Table:
    return getattr(asking.local().sql(GRIDS[name][0], streams=models, parameters=values), of)()


def variants(table: pa.Table, values: dict[str, Any]) -> pa.Table:
    """The rows of one variant, without the parameters."""
    mask = np.ones(table.num_rows, bool)
    for name, value in values.items():
        mask &= np.array([one == value for one in table.column(name).to_pylist()], bool)
    return table.filter(pa.array(mask)).drop(list(values))


@pytest.mark.parametrize("of", ["tuples", "segments"])
@pytest.mark.parametrize("name", GRIDS)
def test_every_variant_is_the_answer_of_its_query(models: dict[str, Model], name: str, of: str) -> None:
    sweep = swept(models, name)
    table = getattr(sweep, of)()
    assert table.column_names[: len(sweep.grid.names)] == list(sweep.grid.names)
    found = 0
    for values in sweep.grid:
        wanted = rows_of(alone(models, name, values, of))
        assert rows_of(variants(table, values)) == wanted
        found += len(wanted)
    assert found == table.num_rows > 0


@pytest.mark.parametrize("name", GRIDS)
def test_the_summary_is_of_the_tuples(models: dict[str, Model], name: str) -> None:
    sweep = swept(models, name)
    every = sweep.query.bind(next(iter(sweep.grid))).rate / 1e6
    for row, values in zip(sweep.summary().to_pylist(), sweep.grid, strict=True):
        assert {key: row[key] for key in values} == values
        table = alone(models, name, values, "tuples")
        certain = table.column("certainty").to_pylist().count("certain")
        assert row["seconds"] == pytest.approx(table.num_rows * every)
        assert row["certain_seconds"] == pytest.approx(certain * every)
        modelled = [column.removesuffix("_err") for column in table.column_names if column.endswith("_err")]
        assert [key for key in row if key.endswith("_mean")] == [f"{one}_mean" for one in modelled]
        for one in modelled:
            values_of = table.column(one).to_numpy()
            wanted = (values_of.mean(), values_of.min(), values_of.max()) if len(values_of) else (None,) * 3
            got = tuple(row[f"{one}_{what}"] for what in ("mean", "min", "max"))
            assert got == (pytest.approx(wanted) if len(values_of) else wanted)
        if name not in ("pairs", "over keys"):
            assert row["ranges"] == runs(table, every)


def runs(table: pa.Table, every: float) -> int:
    """How often a key's tuples begin after a pause."""
    by_key: dict[str, list[float]] = {}
    for row in table.to_pylist():
        by_key.setdefault(row["symbol"], []).append(row["t"].timestamp())
    return sum(int((np.diff(sorted(times)) > 1.5 * every).sum()) + 1 for times in by_key.values())


def test_the_summary_of_segments_where_there_is_no_rate(models: dict[str, Model]) -> None:
    axes = {"least": [19.0, 20.5, 1e6], "since": "2020-09-13"}
    sweep = asking.local().sweep(FILTER, streams=models, **axes)
    for row in sweep.summary().to_pylist():
        asked = {"least": row["least"], "since": row["since"]}
        table = asking.local().sql(FILTER, streams=models, parameters=asked).segments()
        seconds = sum(one["hi"] - one["lo"] for one in table.to_pylist())
        integral = sum(
            sum(
                c * (one["hi"] ** (i + 1) - one["lo"] ** (i + 1)) / (i + 1)
                for i, c in enumerate(one["price"])
            )
            for one in table.to_pylist()
        )
        assert row["seconds"] == pytest.approx(seconds)
        if row["least"] == 1e6:
            assert (row["ranges"], row["price_mean"], row["price_min"]) == (0, None, None)
        else:
            assert row["price_mean"] == pytest.approx(integral / seconds)
            assert row["price_min"] >= row["least"] - 1e-9


def test_on_spark_all_is_the_same(models: dict[str, Model], spark: SparkSession) -> None:
    session = pulse.Session(spark=spark)
    for name in ("macd", "pairs"):
        here, there = swept(models, name), swept(models, name, session)
        frame = there.tuples()
        assert frame.columns == here.tuples().column_names
        assert rows_of(frame) == rows_of(here.tuples())
        assert rows_of(there.summary()) == rows_of(here.summary())
    plan = swept(models, "macd", session).tuples()._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan


# -- one pass -----------------------------------------------------------------------------------------------------


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    original = getattr(module, name)

    def counting(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return original(*given, **named)

    monkeypatch.setattr(module, name, counting)
    return calls


@pytest.mark.parametrize(("name", "wanted"), [("macd", 2), ("filter", 2), ("keys", 3)])
def test_each_unit_is_read_once(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch, name: str, wanted: int
) -> None:
    """Two units of all keys; where the key is the parameter, the one file for each, of which only its rows are read."""
    scan.cache.clear()
    asked, read = counted(monkeypatch, sweep_module, "read"), counted(monkeypatch, scan, "read_unit")
    swept(models, name).summary()
    assert len(asked) == wanted
    assert len(read) == wanted


def test_windows_of_one_size_are_evaluated_once(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch, integral.Integral, "samples_together")
    swept(models, "macd").tuples()
    sizes = [window.size for call in calls for window in call[2]]
    assert sorted(sizes) == sorted([2_000_000, 4_000_000, 6_000_000, 8_000_000, 12_000_000] * 2)  # per unit


def test_what_is_shared_may_be_dropped_at_any_time(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {name: rows_of(swept(models, name).tuples()) for name in ("macd", "filter")}
    monkeypatch.setattr(evaluator, "SHARED_BYTES", 0)
    monkeypatch.setattr(evaluator, "SHARED_SCANS", 0)
    assert {name: rows_of(swept(models, name).tuples()) for name in ("macd", "filter")} == wanted


def test_no_more_than_a_variant_of_each_unit_is_held(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the results slowly keeps the work waiting, however large the grid is."""
    made = counted(monkeypatch, sweep_module, "result_of")
    sweep = asking.local().sweep(MACD, streams=models, short=list(range(2, 30)), long=40)
    job = sweep._job(tuples=True)
    results = sweep_module._in_process(job, None)
    next(results)
    assert len(made) <= 2
    results.close()
    assert len(made) <= 4


def test_progress_reaches_the_end(models: dict[str, Model]) -> None:
    # Units and variants; variants where there is an exchange.
    for name, total in (("macd", 12), ("pairs", 2)):
        details: list[tuple[int, ...]] = []
        swept(models, name).summary(lambda *step, details=details: details.append(step))
        assert details == sorted(set(details))
        assert details[-1] == (total, total)


def test_exchanges_run_variant_by_variant(models: dict[str, Model]) -> None:
    for name in GRIDS:
        job = swept(models, name)._job(tuples=True)
        assert job.one_pass == (name not in ("pairs", "over keys"))
        again = pickle.loads(pickle.dumps(job))
        assert again.schema == job.schema
        assert len(again.jobs) == len(job.grid)


# -- variants together ----------------------------------------------------------------------------------------------

TOGETHER = {"macd": 6, "odd sizes": 6, "bend": 6, "other keys": 2, "root": 0, "filter": 0}


@pytest.fixture
def gaps(tmp_path: Path) -> dict[str, Model]:
    """Prices of which some seconds are missing, others come twice, and a symbol comes once."""
    whole = asking.ticks(count=90)
    kept = [i for i in range(whole.num_rows) if not 30 <= i % 90 < 43 + i // 90]
    once = asking.ticks("z", count=1)
    data = pa.concat_tables([whole.take(sorted([*kept, *range(3, 80, 9)])), once])
    return {"S": prices(tmp_path / "gaps", data, max_gap=5)}


@pytest.mark.parametrize("blocks", [1, 1 << 24])
@pytest.mark.parametrize("name", TOGETHER)
def test_variants_together_are_as_each_alone(
    models: dict[str, Model], gaps: dict[str, Model], monkeypatch: pytest.MonkeyPatch, name: str, blocks: int
) -> None:
    monkeypatch.setattr(batched_variants, "BLOCK_BYTES", blocks)
    for streams in (models, gaps):
        together = swept(streams, name)
        assert (
            sum(len(one.numbers) for one in together._job(tuples=True, summary=True).tails) == TOGETHER[name]
        )
        found = together.summary().to_pylist()
        with monkeypatch.context() as only:
            only.setattr(sweep_module, "tails", lambda _: ())
            wanted = swept(streams, name).summary().to_pylist()
        assert any(row["ranges"] > 0 for row in wanted)
        for one, other in zip(found, wanted, strict=True):
            means = [key for key in one if key.endswith("_mean")]
            assert {key: one[key] for key in means} == pytest.approx(
                {key: other[key] for key in means}, rel=1e-12
            )
            assert {key: one[key] for key in one if key not in means} == {
                key: other[key] for key in one if key not in means
            }


def test_together_they_hold_no_columns_of_their_own(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is evaluated at a time goes with the block, not with the model or the grid; and no variant has samples."""
    monkeypatch.setattr(batched_variants, "BLOCK_BYTES", 1)
    ran, alone_ = (
        counted(monkeypatch, batched_variants, "run"),
        counted(monkeypatch, sweep_module, "result_of"),
    )
    swept(models, "macd").summary()
    assert len(ran) == 5  # a key at a time
    assert not alone_


@pytest.mark.parametrize("power", [9, 200])
def test_what_is_not_finite_is_reported_as_by_each_alone(models: dict[str, Model], power: int) -> None:
    factors = " * ".join(["ap ^ 9"] * (power // 9 + (power > 9) * 4))
    text = f"select symbol, {factors} as high from (select symbol, avg(price) as ap from S[size :short advance 2])"
    sweep = asking.local().sweep(text, streams=models, short=[2, 4])
    assert sum(len(one.numbers) for one in sweep._job(tuples=True, summary=True).tails) == 2
    if power == 9:
        assert sweep.summary().num_rows == 2
        return
    with pytest.raises(
        PulseError, match=r"is beyond the range of floating-point numbers for query1\.symbol='"
    ):
        sweep.summary()


@pytest.mark.parametrize("name", GRIDS)
def test_planned_once_plans_are_those_of_each_alone(models: dict[str, Model], name: str) -> None:
    job = swept(models, name)._job(tuples=True)
    for one, query in zip(job.jobs, job.queries, strict=True):
        wanted = prepare(query, job.paths, tuples=True)
        assert (one.query, one.rate, one.paths) == (wanted.query, wanted.rate, wanted.paths)
        assert (one.grids, one.accents, one.fragments) == (wanted.grids, wanted.accents, wanted.fragments)


def test_sizes_are_all_that_is_planned_once(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch, sweep_variants, "prepare")
    for name, wanted in (("macd", 1), ("bend", 6), ("pairs", 2)):
        calls.clear()
        assert len(swept(models, name)._job(tuples=True).jobs) == len(swept(models, name).grid)
        assert len(calls) == wanted


# -- grids and errors ---------------------------------------------------------------------------------------------


def test_grids() -> None:
    grid = ParameterGrid.of({"a": range(2), "b": np.array([1.5, 2.5]), "c": "10 s"})
    assert list(grid) == [{"a": a, "b": b, "c": "10 s"} for a in (0, 1) for b in (1.5, 2.5)]
    assert (len(grid), grid.names) == (4, ("a", "b", "c"))
    assert grid.types == {"a": pa.int64(), "b": pa.float64(), "c": pa.string()}
    assert ParameterGrid.of({"x": [1, 2.5]}).types == {"x": pa.float64()}
    assert [type(one["b"]) for one in ParameterGrid.of({"b": np.arange(1)})] == [int]
    assert list(ParameterGrid.of({})) == [{}]


@pytest.mark.parametrize(
    ("axes", "error", "reported"),
    [
        ({"short": [], "long": 12}, SweepError, "parameter :short has no values"),
        ({"short": [4, "8 s"], "long": 12}, SweepError, "values of parameter :short .* of one type"),
        ({"short": [4]}, ParameterError, "no value for :long"),
        ({"short": [4], "long": [12], "other": [1]}, ParameterError, "there is no parameter :other"),
        (
            {"short": [4, -1], "long": [12]},
            ParameterError,
            "parameter :short .window size.: expected a duration",
        ),
        ({"short": ["four"], "long": [12]}, ParameterError, "expected a duration, .* got 'four'"),
        ({"short": [None], "long": [12]}, ParameterError, "parameter :short"),
    ],
)
def test_bad_grids_are_refused_before_any_work(
    models: dict[str, Model], axes: dict[str, Any], error: type[PulseError], reported: str
) -> None:
    with pytest.raises(error, match=reported):
        asking.local().sweep(MACD, streams=models, **axes)


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("symbol", "tuples"),
        ("t", "tuples"),
        ("price_err", "tuples"),
        ("lo", "segments"),
        ("seconds", "summary"),
        ("price_mean", "summary"),
        ("ranges", "summary"),
    ],
)
def test_a_parameter_must_not_have_the_name_of_a_column(models: dict[str, Model], name: str, of: str) -> None:
    text = f"select symbol, price from S where price > :{name} sample every 1 s"
    sweep = asking.local().sweep(text, streams=models, **{name: [19, 20]})
    with pytest.raises(
        SweepError, match=f"sweep: {name} is a parameter and a column of the answer; rename one"
    ):
        getattr(sweep, of)()


def test_values_that_fit_no_place_are_reported_when_asked(models: dict[str, Model]) -> None:
    sweep = asking.local().sweep("select symbol from S where price > :p", streams=models, p=["dear"])
    with pytest.raises(PulseError, match="expected a number, got 'dear'"):
        sweep.segments()


def test_what_it_says_of_itself(models: dict[str, Model]) -> None:
    reported = repr(swept(models, "macd"))
    assert reported.startswith("Sweep('select symbol, S.ap - L.ap as diff from")
    assert "; 6 variants: short " in reported
    assert reported.endswith("; in process, runs when asked)")


def test_results_are_written(models: dict[str, Model], tmp_path: Path) -> None:
    sweep = swept(models, "macd")
    details: list[int] = []
    count = sweep.write(str(tmp_path / "out.parquet"), progress=lambda done, _: details.append(done))
    assert pq.read_table(tmp_path / "out.parquet").equals(sweep.tuples())
    assert count == sweep.tuples().num_rows
    assert details[-1] == 12
    sweep.write(str(tmp_path / "segments.parquet"), tuples=False)
    assert rows_of(pq.read_table(tmp_path / "segments.parquet")) == rows_of(sweep.segments())

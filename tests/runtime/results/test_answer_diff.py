"""Revisions of results: old results with them are the new results, whatever the query, the correction and the engine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse
from pulse.benchmarks.workloads.revision_loads import generate_load
from pulse.core.errors import PulseError
from pulse.operators.data.relation import Relation
from pulse.operators.output.diff import difference
from pulse.runtime.execution.bound_plan import RateError
from pulse.runtime.incremental.version_diff import READ_MARGIN, prepare_revised
from pulse.store.errors import HistoryGoneError, VersionGoneError
from pulse.store.model import Model
from pulse.store.vacuum import vacuum
from pulse.store.versions.changed_regions import changed_regions
from tests.effort import examples
from tests.runtime.execution.asking import COLLISION, MACD, SECOND, START, local, table, ticks, vessels
from tests.runtime.incremental.revising import fitted, stream

QUERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "filter": ("select symbol, price from S where price > 20 sample every 1 s", {}),
    "projection": ("select symbol, price * 2 - 1 as p from S sample every 1 s", {}),
    "macd": (MACD, {"short": 4, "long": 12}),
    "extrema": ("select symbol, max(price) - min(price) as r from S[size 6 advance 2]", {}),
    "sum": (
        "select symbol, sum(price) as s from S[size 6 advance 2] group by symbol having sum(price) > 110",
        {},
    ),
    "envelope": ("select max(price) as m from S sample every 1 s", {}),
    "average of all": ("select avg(price) as m from S[size 5 advance 1]", {}),
    "intersection": (
        "select symbol, price from S intersect select symbol, price from S where price > 20 sample every 1 s",
        {},
    ),
    "two models": (
        "select S.symbol, S.price - P.price as d from S join P on (S.symbol = P.symbol) sample every 1 s",
        {},
    ),
    "tuples in windows": (
        "select symbol, sum(price) as s, count(*) as n, max(price) as m from T[size 7 advance 3]",
        {},
    ),
    "all tuples in windows": ("select sum(price) as s from T[size 7 advance 3]", {}),
    "pairs": (f"{COLLISION} sample every 1 s", {"c": 30}),
}

Models = dict[str, Model]


def kept(folder: Path, name: str, data: pa.Table, **asked: Any) -> Model:
    """A model of tuples that lie in a file."""
    pq.write_table(data, folder / f"{name}.parquet")
    details: dict[str, Any] = {"key": "symbol", "time": "t", **asked}
    return local().fit(str(folder / f"{name}.parquet"), out=folder / name, **details)


def corrected(model: Model, data: pa.Table, revisions: int, seed: int, keep: bool = True) -> pa.Table:
    load = generate_load(data, model.schema, revisions=revisions, seed=seed, size=1.0)
    local().revise(model.path, load.revisions, keep=keep)
    return load.corrected


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return revised_models(tmp_path_factory.mktemp("revised"))


def revised_models(folder: Path) -> Models:
    """Each in three versions: S and P prices with bounded integrals, T trades as points, V vessels."""
    prices, others, boats = (
        ticks("abcde", 40).drop_columns(["venue"]),
        ticks("bcdz", 40, seed=5),
        vessels(5, 12),
    )
    made = {
        "S": (prices, kept(folder, "s", prices, model={"price": "step"}, error=0.3, drift=0.4)),
        "P": (others, kept(folder, "p", others, model={"price": "step"}, error=0.3, drift=0.4)),
        "X": (prices, kept(folder, "x", prices, model={"price": "step"}, error=0, drift=0.1)),
        "T": (prices, kept(folder, "t", prices, model={"price": "samples"}, points=True)),
        "V": (
            boats,
            kept(folder, "v", boats, key="id", model={"x": "linear", "y": "linear"}, error=0.5, drift=0.5),
        ),
    }
    for number, (data, model) in enumerate(made.values()):
        for round_ in range(2):
            data = corrected(model, data, 3, 10 * number + round_)
    return {name: Model(model.path) for name, (_, model) in made.items()}


def asked(session: pulse.Session, name: str, models: Models, **more: Any) -> Any:
    text, parameters = QUERIES[name]
    return session.sql(text, streams=models, parameters=parameters, **more)


def revised(session: pulse.Session, name: str, models: Models, since: Any, **more: Any) -> Any:
    text, parameters = QUERIES[name]
    return session.revised(text, since, streams=models, parameters=parameters, **more)


def since(name: str, version: int) -> Any:
    return {"S": version, "P": version} if name == "two models" else version


def check_tuples(old: pa.Table, changes: pa.Table, new: pa.Table, keys: list[str]) -> None:
    """That the changes take away what was there, put in what is there now, and say nothing else."""
    names = [name for name in old.column_names if name not in keys]
    held = {tuple(row[k] for k in keys): [row[n] for n in names] for row in old.to_pylist()}
    wanted = {tuple(row[k] for k in keys): [row[n] for n in names] for row in new.to_pylist()}
    assert len(held) == old.num_rows
    for row in changes.to_pylist():
        place, reported = tuple(row[k] for k in keys), [row[n] for n in names]
        if row["kind"] in ("-D", "-U"):
            assert alike(held.pop(place), reported)
            assert (place in wanted) == (row["kind"] == "-U")
        else:
            assert place not in held
            held[place] = reported
    assert held.keys() == wanted.keys()
    for place, reported in wanted.items():
        assert alike(held[place], reported), (place, held[place], reported)


def alike(one: list[Any], other: list[Any]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(
        a == pytest.approx(b, rel=1e-7, abs=1e-9) if isinstance(a, float) else a == b for a, b in pairs
    )


def check_segments(old: pa.Table, changes: pa.Table, new: pa.Table, answer: Any) -> None:
    """That what was withdrawn is what was there, and what is left with what was put in is what is there now."""
    columns = answer.query.plan.columns
    keys = tuple(pair for pair in columns.key if pair[0] in old.column_names)
    columns = type(columns)(keys, columns.modelled, columns.unmodelled, columns.time, columns.points)

    def relation(rows: pa.Table) -> Relation:
        order = [(name, "ascending") for name, _ in keys] + [("ref", "ascending"), ("lo", "ascending")]
        made = rows.select(columns.segment_schema().names).cast(columns.segment_schema()).sort_by(order)
        return Relation.from_table(made, columns).merged()

    kind = changes.column("kind").to_pylist()
    gone, come = (changes.filter(pa.array([one[0] == sign for one in kind], pa.bool_())) for sign in "-+")
    details = difference(relation(gone), relation(come)).table
    real = difference(relation(old), relation(new)).table
    # Both say what turns old into new: the one must leave nothing of the other.
    for sign in "-+":
        one, other = (
            x.filter(pa.array([k[0] == sign for k in x.column("kind").to_pylist()], pa.bool_())).drop_columns(
                ["kind"]
            )
            for x in (details, real)
        )
        assert difference(relation(one), relation(other)).table.num_rows == 0


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", QUERIES)
def test_old_results_with_their_revisions_are_the_new_results(
    name: str, version: int, models: Models
) -> None:
    old = asked(local(), name, models, version=version)
    new = asked(local(), name, models)
    details = revised(local(), name, models, since(name, version))
    keys = [
        old.query.plan.columns.time,
        *(k for k in old.query.select if k in old.query.plan.columns.key_names),
    ]
    changes = details.tuples()
    assert changes.num_rows or version == 2
    check_tuples(old.tuples(), changes, new.tuples(), keys)
    check_segments(old.segments(), details.segments(), new.segments(), old)
    assert details.to_arrow().equals(changes)


def in_any_order(rows: pa.Table) -> list[Any]:
    def rounded(value: Any) -> Any:
        return round(float(f"{value:.8g}"), 9) + 0.0 if isinstance(value, float) else value

    return sorted((tuple((n, rounded(v)) for n, v in row.items()) for row in rows.to_pylist()), key=repr)


def test_results_from_before_a_correction_are_not_revised(tmp_path: Path) -> None:
    """Windows reach back only; the bounds of all of a run hold the rounding of its longest piece, which here becomes longer."""
    t = START + np.cumsum(np.tile([3, 20, 1, 40, 7], 12)) * SECOND
    prices = pa.table({"symbol": ["a"] * 60, "t": pa.array(t).cast(pa.timestamp("us"))})
    prices = prices.append_column("price", pa.array(157.0 + np.arange(60) % 7 / 100.0))
    model = kept(tmp_path, "S", prices, model={"price": "step"}, error=0)
    outcome = local().revise(model, prices.slice(43, 1).append_column("kind", pa.array(["-D"])), keep=True)
    assert outcome.counts["deleted"] == 1
    text, parameters = MACD.replace("where S.ap > L.ap", ""), {"short": 10, "long": 60}
    changes = local().revised(text, 1, streams={"S": outcome.model}, parameters=parameters).tuples()
    times = changes["t"].cast(pa.int64()).to_numpy()
    assert changes.num_rows > 20
    assert int(t[43]) - READ_MARGIN <= times.min()
    assert times.max() <= int(t[44]) + 60 * SECOND + READ_MARGIN


def test_only_touched_keys_and_times_are_looked_at(models: Models) -> None:
    text, parameters = QUERIES["macd"]
    answer = local().sql(text, streams=models, parameters=parameters)
    job = prepare_revised(answer.query, {"S": str(models["S"].path)}, 2, tuples=True)
    regions = job.regions["S"]
    assert 0 < len(regions) <= 6
    assert job.by_key
    read = list(job.sides())[1][0]["S"]
    assert read.groups <= len(regions)
    assert len(read) < len(models["S"])


def test_what_was_not_revised_gives_nothing(models: Models) -> None:
    for name in ("macd", "envelope"):
        details = revised(local(), name, models, 3)
        assert details.tuples().num_rows == 0
        assert details.segments().num_rows == 0
        assert details.head() == (details.head()[0].slice(0, 0), False)


def test_between_two_versions_and_back(models: Models) -> None:
    there = revised(local(), "macd", models, 1, version=2).tuples()
    back = revised(local(), "macd", models, 2, version=1).tuples()
    swapped = {"+I": "-D", "-D": "+I", "+U": "-U", "-U": "+U"}
    turned = back.set_column(
        back.column_names.index("kind"),
        "kind",
        pa.array([swapped[k] for k in back.column("kind").to_pylist()]),
    )
    assert in_any_order(there) == in_any_order(turned)


def test_a_stream_that_the_query_reads_as_of_a_version_stays_there(models: Models) -> None:
    text = "select S.symbol, S.price - B.price as d from S join S as B as of version 1 on (S.symbol = B.symbol) sample every 1 s"
    old = local().sql(text, streams=models, version=2).tuples()
    new = local().sql(text, streams=models).tuples()
    details = local().revised(text, 2, streams=models).tuples()
    assert details.num_rows
    check_tuples(old, details, new, ["t", "symbol"])


@pytest.fixture
def known(tmp_path: Path) -> tuple[Model, list[int]]:
    """Prices of which two are corrected, each known some time later."""
    data = ticks("ab", 30).drop_columns(["venue"])
    model = kept(tmp_path, "k", data, model={"price": "step"}, error=0, drift=None)
    rows = data.to_pylist()
    when = [START + 12 * SECOND, START + 25 * SECOND]
    columns: dict[str, list[Any]] = {"kind": [], "symbol": [], "t": [], "price": [], "known": []}
    for place, at in zip((5, 8), when, strict=True):
        for kind, price in (("-U", rows[place]["price"]), ("+U", rows[place]["price"] + 3.0)):
            for name, value in zip(columns, (kind, "a", rows[place]["t"], price, at), strict=True):
                columns[name].append(value)
    changelog = pa.table({**columns, "known": pa.array(columns["known"], pa.timestamp("us"))})
    local().revise(model.path, changelog, keep=True, known="known")
    return Model(model.path), when


def test_results_as_they_were_known(known: tuple[Model, list[int]]) -> None:
    model, when = known
    query = "select symbol, max(price) as m from S[size 4 advance 2]"
    found = [
        local().sql(query, streams={"S": model}, as_of=at).tuples()
        for at in (when[0] - 1, when[0], when[1] + SECOND)
    ]
    for one, at in zip(found, (when[0] - 1, when[0], when[1] + SECOND), strict=True):
        assert max(one.column("t").cast(pa.int64()).to_pylist()) <= at
    in_text = local().sql(
        f"{query} where price > 0 as of :at", streams={"S": model}, at=np.datetime64(when[0], "us")
    )
    assert in_text.tuples().equals(found[1])
    assert found[0].num_rows <= found[1].num_rows < found[2].num_rows
    details = local().revised(query, np.datetime64(when[0], "us"), streams={"S": model}).tuples()
    assert details.num_rows
    assert set(details.column("symbol").to_pylist()) == {"a"}
    cut = (
        local().sql(query + " where t < :at", streams={"S": model}, at=np.datetime64(when[0], "us")).tuples()
    )
    check_tuples(found[1], details, cut, ["t", "symbol"])
    nothing = local().revised(query, np.datetime64(when[1], "us"), streams={"S": model})
    assert nothing.tuples().num_rows == 0


def test_versions_that_are_gone_are_reported(tmp_path: Path, known: tuple[Model, list[int]]) -> None:
    data = ticks("ab", 30).drop_columns(["venue"])
    model = kept(tmp_path, "g", data, model={"price": "step"}, error=0.1)
    after = corrected(model, data, 3, seed=1, keep=False)
    corrected(model, after, 3, seed=2, keep=False)
    vacuum(model.path, retain=0)  # until then it can be read
    query = "select symbol, price from S"
    with pytest.raises(VersionGoneError, match="there is no version 1; the newest is 3"):
        local().revised(query, 1, streams={"S": model.path}).segments()
    with pytest.raises(VersionGoneError, match="there is no version 9"):
        local().sql(query, streams={"S": model.path}, version=9).segments()
    with pytest.raises(HistoryGoneError, match="is not kept"):
        local().sql(query, streams={"S": model.path}, as_of="2020-09-13 12:27").segments()


def test_what_makes_no_sense_is_reported(models: Models) -> None:
    def refused(text: str, given: Any, **more: Any) -> str:
        with pytest.raises(PulseError) as e:
            local().revised(text, given, streams=models, **more).segments()
        return str(e.value)

    joined = QUERIES["two models"][0]
    assert "of which stream? The query reads P, S" in refused(joined, 1)
    assert "the query reads no stream of that name as of now, only S" in refused(
        "select symbol, price from S", {"V": 1}
    )
    assert "number of a version, from 1 on, got 0" in refused("select symbol, price from S", 0)
    assert "give one of them" in refused("select symbol, price from S", 1, version=2, as_of="2020-01-01")
    assert "cannot read 'noon'" in refused("select symbol, price from S", "noon")
    with pytest.raises(RateError, match="need a rate"):
        local().revised("select symbol, price from S", 1, streams=models).tuples()


def test_appended_data_come_as_insertions(tmp_path: Path) -> None:
    data = ticks("ab", 20).drop_columns(["venue"])
    model = kept(tmp_path, "m", data, model={"price": "step"}, error=0.1, drift=0.2)
    corrected(model, data, 2, seed=4)
    folder = tmp_path / "more.parquet"
    pq.write_table(ticks("abc", 20, seed=3, start=25).drop_columns(["venue"]), folder)
    details: dict[str, Any] = {"model": {"price": "step"}, "error": 0.1, "drift": 0.2}
    local().fit(str(folder), key="symbol", time="t", out=model.path, append=True, **details)
    query = "select symbol, avg(price) as a from S[size 4 advance 2]"
    newest = Model(model.path).version
    old, new = (
        local().sql(query, streams={"S": model.path}, version=version).tuples() for version in (1, newest)
    )
    changes = local().revised(query, 1, streams={"S": model.path}).tuples()
    check_tuples(old, changes, new, ["t", "symbol"])
    assert "+I" in changes.column("kind").to_pylist()


def test_touched_regions_are_those_of_what_was_corrected(models: Models) -> None:
    whole = changed_regions(Model(models["S"].path, version=1), models["S"])
    part = changed_regions(Model(models["S"].path, version=2), models["S"])
    assert 0 < len(part) <= len(whole)
    assert len(changed_regions(models["S"], models["S"])) == 0
    with pytest.raises(PulseError, match="different models"):
        changed_regions(models["S"], models["P"])


def test_writing_and_showing(models: Models, tmp_path: Path) -> None:
    details = revised(local(), "macd", models, 1)
    rows = details.write(str(tmp_path / "revisions.parquet"))
    assert rows == details.tuples().num_rows
    assert pq.read_table(tmp_path / "revisions.parquet").equals(details.tuples())
    shown, more = details.head(2)
    assert (shown.num_rows, more) == (2, True)
    assert details.to_pandas().columns[-1] == "kind"
    assert "since version 1; in process" in repr(details)


def test_a_table_without_a_key(tmp_path: Path) -> None:
    rows = {"t": [START + i * SECOND for i in range(30)], "x": [float(i % 7) for i in range(30)]}
    data = table(rows, x=pa.float64())
    pq.write_table(data, tmp_path / "x.parquet")
    model = local().fit(
        str(tmp_path / "x.parquet"), time="t", model={"x": "step"}, error=0, drift=0.1, out=tmp_path / "x"
    )
    corrected(model, data, 3, seed=2)
    query = "select avg(x) as a from K[size 5 advance 1]"
    old, new = (local().sql(query, streams={"K": model.path}, version=v).tuples() for v in (1, 2))
    check_tuples(old, local().revised(query, 1, streams={"K": model.path}).tuples(), new, ["t"])


MODES = ("upstream", "downstream", "adaptive")


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in ("projection", "average of all")])
def test_every_mode_gives_the_same_revisions(name: str, models: Models) -> None:
    old, new = asked(local(), name, models, version=1), asked(local(), name, models)
    for mode in MODES:
        details = revised(local(), name, models, since(name, 1), mode=mode)
        assert details.report is None
        tables = old.segments(), details.segments(), new.segments()
        # A patched result may state a hair more than a replay, so that slivers of it are likely, not certain.
        check_segments(*(tables if mode == "upstream" else map(values_only, tables)), old)
        assert details.report is not None
        assert str(details.report).endswith("rows of changes")
        assert details.tuples().equals(revised(local(), name, models, since(name, 1)).tuples())


def without_bounds(rows: pa.Table) -> pa.Table:
    """With bounds of 0: beyond what was touched results keep the one they were given; a new evaluation may state another."""
    for name in rows.column_names:
        if name.endswith("_err"):
            rows = rows.set_column(rows.column_names.index(name), name, pa.array(np.zeros(rows.num_rows)))
    return rows


def values_only(rows: pa.Table) -> pa.Table:
    """With bounds of 0, all of it certain."""
    at = rows.column_names.index("certainty")
    return without_bounds(rows).set_column(
        at, "certainty", pa.array(["certain"] * rows.num_rows, pa.string())
    )


@examples(8)
@given(seed=st.integers(0, 10**6), points=st.booleans(), revisions=st.integers(1, 12))
def test_whatever_the_corrections(seed: int, points: bool, revisions: int) -> None:
    """Loads with insertions, deletions, moved and repeated tuples, revisions of revisions; in one version or two."""
    data = stream(40, seed=seed)
    asked: dict[str, Any] = {"points": True} if points else {"error": 0.1, "drift": 0.3}
    query = "select symbol, sum(price) as s, max(price) as m from S[size 6 advance 2]"
    with tempfile.TemporaryDirectory() as folder:
        model = fitted(Path(folder), data, truth="samples" if points else "step", **asked)
        after = corrected(model, data, revisions, seed)
        corrected(model, after, revisions, seed + 1)
        new = local().sql(query, streams={"S": model.path})
        for version in (1, 2):
            old = local().sql(query, streams={"S": model.path}, version=version)
            details = local().revised(query, version, streams={"S": model.path})
            tuples = (without_bounds(one.tuples()) for one in (old, details, new))
            check_tuples(*tuples, ["t", "symbol"])
            check_segments(*(without_bounds(one.segments()) for one in (old, details, new)), old)


def test_an_answer_tells_its_own_revisions(models: Models) -> None:
    answer = asked(local(), "macd", models)
    assert answer.revised(2).tuples().equals(revised(local(), "macd", models, 2).tuples())


@pytest.mark.parametrize("name", ["mean", "tuples"])
def test_old_results_at_hand_are_patched(name: str, models: Models, tmp_path: Path) -> None:
    query = {
        "mean": "select symbol, avg(price) as a from X[size 6 advance 2]",
        "tuples": "select symbol, sum(price) as s from T[size 6 advance 2]",
    }[name]
    answer = local().sql(query, streams=models, version=1)
    answer.write(str(tmp_path / "old.parquet"), tuples=False)
    details = local().revised(query, 1, streams=models, results=str(tmp_path / "old.parquet"))
    check_segments(
        answer.segments(), details.segments(), local().sql(query, streams=models).segments(), answer
    )
    assert details.report is not None
    assert sum(flow.modes.get("downstream", 0) for flow in details.report.operators) > 0


def test_results_that_cannot_be_patched_are_reported(models: Models) -> None:
    query = "select symbol, avg(price) as a from S[size 6 advance 2]"
    tuples = local().sql(query, streams=models, version=1).tuples()
    with pytest.raises(PulseError, match=r"expected segments of this query.* but ref, lo, hi"):
        local().revised(query, 1, streams=models, results=tuples).segments()
    with pytest.raises(PulseError, match="those of one window"):
        revised(local(), "macd", models, 1, results=tuples).segments()
    with pytest.raises(PulseError, match="upstream mode replays"):
        local().revised(query, 1, streams=models, results=tuples, mode="upstream")
    with pytest.raises(PulseError, match=r"old results: nosuch\.parquet: there is no such file"):
        local().revised(query, 1, streams=models, results="nosuch.parquet").segments()
    with pytest.raises(PulseError, match="it is no Parquet file"):
        local().revised(query, 1, streams=models, results=__file__).segments()
    with pytest.raises(PulseError, match="patched in this process; use the engine local"):
        pulse.Session(engine="spark").revised(query, 1, streams=models, results=tuples)
    with pytest.raises(PulseError, match="expected one of adaptive"):
        local().revised(query, 1, streams=models, mode="sideways")


def test_the_papers_example(tmp_path: Path) -> None:
    """The sum of prices over 30 minutes every 20 minutes, one price revised from 25 to 22 (semantics 7.8), 10 minutes later.

    The windows that close at 2:20 and 2:40 go from 80 to 77 and from 62 to 59.
    """
    minute = 60 * SECOND
    clock = {"1:55": 30.0, "2:10": 25.0, "2:15": 25.0, "2:30": 12.0}
    times = [(int(at[0]) * 60 + int(at[2:])) * minute for at in clock]
    rows = {"symbol": ["IBM"] * 4, "t": times, "price": list(clock.values())}
    data = table(rows, symbol=pa.string(), price=pa.float64())
    model = kept(tmp_path, "ibm", data, model={"price": "samples"}, points=True)
    changelog = {"kind": ["-U", "+U"], "symbol": ["IBM"] * 2, "t": [130 * minute] * 2, "price": [25.0, 22.0]}
    local().revise(
        model.path, table(changelog, kind=pa.string(), symbol=pa.string(), price=pa.float64()), keep=True
    )
    query = "select symbol, sum(price) as total from S[size 30 min advance 20 min]"
    details = local().revised(query, 1, streams={"S": model.path}).tuples()
    reported = [(row["t"].strftime("%H:%M"), row["kind"], row["total"]) for row in details.to_pylist()]
    assert reported == [
        ("02:20", "-U", 80.0),
        ("02:20", "+U", 77.0),
        ("02:40", "-U", 62.0),
        ("02:40", "+U", 59.0),
    ]
    for mode in MODES:
        changes = local().revised(query, 1, streams={"S": model.path}, mode=mode).segments().to_pylist()
        assert {row["total"][0] for row in changes if row["kind"] == "-U"} >= {80.0, 62.0}
        assert {row["total"][0] for row in changes if row["kind"] == "+U"} >= {77.0, 59.0}

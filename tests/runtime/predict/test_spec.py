"""Predictive processing in process: however tuples are cut into batches, results keep to the truth within their bounds."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse
from pulse.benchmarks.checks.violations import SPLITS, workload
from pulse.core.certainty import CERTAIN, LIKELY
from pulse.core.schema import StreamSchema
from pulse.datasets.generators.generate import frame
from pulse.language import parse
from pulse.operators.data.relation import Relation
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.operators.output.diff import difference
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.spec import Predictor, PredictorError
from tests.effort import examples
from tests.runtime.predict.restarting import restarted
from tests.truth.predicted import Changelog, Comparison, able, compare, curves

SECOND = 1_000_000
LINES = StreamSchema.of(
    key={"id": "string"},
    time="t",
    modelled={"x": "linear", "y": "linear"},
    unmodelled={"vx": "float64", "vy": "float64"},
)
STEPS = StreamSchema.of(key={"id": "string"}, time="t", modelled={"x": "step", "y": "step"})
MODEL = "MODEL x = x + vx * t, y = y + vy * t"

AVERAGES = (
    "(select id, avg(x) as a from S[size 2 advance 1]) as A join "
    "(select id, avg(x) as a from S[size 5 advance 1]) as B on (A.id = B.id)"
)
PAIRS = "S as R {model} join S as Q {model} on (R.id <> Q.id)"
# name: query, the same without its predicate, keys, value, what must be above zero
QUERIES: dict[str, tuple[str, str, tuple[str, ...], str | None, str | None]] = {
    "filter": (
        "select id, x from S {model} where x > 2",
        "select id, x, x - 2 as m from S",
        ("id",),
        "x",
        "m",
    ),
    "project": (
        "select id, 3 * x - y as z from S {model}",
        "select id, 3 * x - y as z from S",
        ("id",),
        "z",
        None,
    ),
    "window": (
        "select id, avg(x) as a from S {model}[size 2 advance 1]",
        "select id, avg(x) as a from S[size 2 advance 1]",
        ("id",),
        "a",
        None,
    ),
    "macd": (
        f"select id, A.a - B.a as d from {AVERAGES} where A.a > B.a",
        f"select id, A.a - B.a as d from {AVERAGES}",
        ("id",),
        "d",
        "d",
    ),
    "pairs": (
        f"select R.id as one, Q.id as other, R.x - Q.x as d from {PAIRS} where R.x < Q.x",
        f"select R.id as one, Q.id as other, R.x - Q.x as d, Q.x - R.x as m from {PAIRS}",
        ("one", "other"),
        "d",
        "m",
    ),
    "collision": (
        f"select R.id as one, Q.id as other from {PAIRS} where abs(distance(R.x, R.y, Q.x, Q.y)) < 3",
        "select R.id as one, Q.id as other, 9 - pow(R.x - Q.x, 2) - pow(R.y - Q.y, 2) as m "
        "from S as R join S as Q on (R.id <> Q.id)",
        ("one", "other"),
        None,
        "m",
    ),
    "envelope": ("select max(x) as top from S {model}", "select max(x) as top from S", (), "top", None),
}


def prediction(
    name: str, schema: StreamSchema, *, ending: str = "", split: str = "restless", **spec: Any
) -> Prediction:
    clause = MODEL if schema is LINES and name != "macd" and spec.get("policy") is None else ""
    text = QUERIES[name][0].format(model=clause)
    query = parse(f"{text} {ending} with possible", {"S": schema}).bind({})
    # Where a model runs out its key takes no part in an envelope, and the truth of fewer keys is another.
    given = {"horizon": 1000.0 if name == "envelope" else 6.0, **spec}
    return Prediction(Predictor.of(query, {"S": PredictSpec.of(schema, **given)}, split=split))


Row = tuple[str, float, float, float, float, float]


def tuples(rows: list[Row], schema: StreamSchema) -> pa.Table:
    columns = {
        "id": pa.array([row[0] for row in rows], pa.string()),
        "t": pa.array([int(row[1] * SECOND) for row in rows], pa.timestamp("us")),
        **{
            name: pa.array([row[2 + i] for row in rows], pa.float64())
            for i, name in enumerate(("x", "y", "vx", "vy"))
        },
    }
    return pa.table({name: columns[name] for name in schema.names})


ways = st.sampled_from(["model", "trend", "steps"])
value = st.integers(-8, 16).map(lambda n: n / 4)


@st.composite
def rows(draw: st.DrawFn, *, spoilt: bool = False) -> list[Row]:
    """A small stream in order of arrival; ``spoilt``: with tuples that come late, twice, or are not made of numbers."""
    now, out = 0.0, []
    for _ in range(draw(st.integers(2, 14))):
        now += draw(st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.0, 8.0]))
        one = (draw(st.sampled_from("abc")), now, *(draw(value) for _ in range(4)))
        if not spoilt and any(row[:2] == one[:2] for row in out):
            continue
        out.append(one)
        if spoilt and draw(st.integers(0, 5)) == 0:
            out.append(
                draw(
                    st.sampled_from(
                        [one, (one[0], now - 1.5, *one[2:]), (one[0], now + 0.125, np.nan, 0.0, 0.0, 0.0)]
                    )
                )
            )
    return out


def push(p: Prediction, table: pa.Table, size: int, log: Changelog | None = None) -> Prediction:
    for i in range(0, table.num_rows, size):
        emission = p.push({"S": table.slice(i, size)})
        if log is not None:
            log.apply(emission.changes)
    return p


ON_A_PIECE = ("window", "macd", "envelope")
"""Queries whose bounds grow along a piece: a mean of errors as a window moves over them, the largest of those in a cell."""


def check_alike(whole: Prediction, other: Prediction, name: str) -> None:
    """That results of the same tuples are the same, whether these were pushed at once or in parts.

    A piece has one bound, the largest from its begin to its end. What is solved before a later tuple cuts a piece short keeps the
    bound of the longer one: results before an update stay as they are (semantics 7.1). So where bounds grow along a piece, parts
    may leave larger ones than the whole, never smaller, and less certainty, never more; what holds on the model is the same.
    """
    assert whole.view is not None
    assert other.view is not None
    one, two = whole.view.results, other.view.results
    if name in ON_A_PIECE:
        check_no_tighter(one, two)
        one, two = on_the_model(one), on_the_model(two)
    assert difference(one, two).table.to_pylist() == []


def on_the_model(results: Relation) -> Relation:
    """What holds on the model, without bounds and certainties."""
    some = results.take(np.flatnonzero(results.certainty >= LIKELY)).without_empty_groups()
    err = {name: np.zeros(len(some)) for name in some.err}
    return replace(some, err=err, certainty=np.full(len(some), LIKELY, np.uint8))


def check_no_tighter(whole: Relation, parts: Relation) -> None:
    """That wherever the whole has results so have the parts, with no smaller bounds and no more certainty."""
    rows = by_key(parts)
    for key, mine in by_key(whole).items():
        for begin, end, err, code in mine:
            met = [
                (max(begin, b), min(end, e), *rest) for b, e, *rest in rows[key] if b <= end and begin <= e
            ]
            assert sum(e - b for b, e, _, _ in met) == pytest.approx(end - begin, abs=1e-6)
            for b, e, looser, weaker in met:
                if e - b > 1e-6:
                    assert weaker <= code
                    assert all(y >= x * (1 - 1e-9) - 1e-9 for x, y in zip(err, looser, strict=True))


def by_key(results: Relation) -> dict[tuple[Any, ...], list[tuple[float, float, list[float], int]]]:
    """Rows as begin and end in seconds, bounds and certainty, by key."""
    keys = list(zip(*(column.to_pylist() for column in results.keys), strict=True)) if results.keys else [()]
    found: dict[tuple[Any, ...], list[tuple[float, float, list[float], int]]] = {}
    for row, group in enumerate(results.group.tolist()):
        at = results.ref[row] / SECOND
        err = [float(one[row]) for one in results.err.values()]
        found.setdefault(keys[group], []).append(
            (at + results.lo[row], at + results.hi[row], err, int(results.certainty[row]))
        )
    return found


def results_of(p: Prediction, name: str) -> Relation:
    """The results, without bounds where these grow along a piece."""
    assert p.view is not None
    results = p.view.results
    return (
        replace(results, err={one: np.zeros(len(results)) for one in results.err})
        if name in ON_A_PIECE
        else results
    )


# -- batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUERIES)
@examples(8)
@given(way=ways, rows=rows(spoilt=True), size=st.integers(2, 7))
def test_how_tuples_are_cut_into_batches_makes_no_difference(
    name: str, way: str, rows: list[Row], size: int
) -> None:
    schema = STEPS if way == "steps" else LINES
    spec: dict[str, Any] = {"error": 0.5, **({"policy": "trend"} if way == "trend" else {})}
    table = tuples(rows, schema)
    whole = push(prediction(name, schema, **spec), table, table.num_rows)
    chunks = push(prediction(name, schema, **spec), table, size)
    single = prediction(name, schema, **spec)
    for i in range(table.num_rows):
        single = restarted(single)
        single.push({"S": table.slice(i, 1)})
    for other in (chunks, single):
        check_alike(whole, other, name)
        for figure in ("tuples", "validated", "violations", "aside"):
            assert getattr(other.tally, figure) == getattr(whole.tally, figure)


def test_a_piece_that_a_later_tuple_cuts_keeps_the_bound_of_the_longer_one() -> None:
    """Between the end of the first model and 9 s the truth is known, from there on within 0.5: the mean of that grows."""
    rows_ = [("c", 0.75, -0.75, 0, 0, 0), ("c", 9.0, 2.75, 0, 0, 0), ("c", 9.5, -1.0, 0, 0, 0)]
    table = tuples(rows_, STEPS)
    made = {size: push(prediction("macd", STEPS, error=0.5), table, size) for size in (1, 3)}
    check_alike(made[3], made[1], "macd")
    codes = {}
    for size, one in made.items():
        assert one.view is not None
        held = [row for row in by_key(one.view.results)[("c", "c")] if row[0] <= 9.45 < row[1]]
        codes[size] = [row[3] for row in held]
    assert codes == {1: [LIKELY], 3: [CERTAIN]}


@pytest.mark.parametrize("name", QUERIES)
@examples(8)
@given(rows=rows(spoilt=True), size=st.integers(1, 7), bound=st.sampled_from(["", "error within 0.5"]))
def test_changes_add_up_to_the_results(name: str, rows: list[Row], size: int, bound: str) -> None:
    _, _, keys, value_, _ = QUERIES[name]
    log = Changelog(keys, (value_,) if value_ else (), np.arange(0.0625, 40.0, 0.29) * SECOND)
    p = push(
        prediction(name, STEPS, ending=bound, error=None if bound else 0.5), tuples(rows, STEPS), size, log
    )
    assert log.leads_to(p.results())


def test_what_has_no_place_is_set_aside() -> None:
    p = prediction("filter", STEPS, error=0.5)
    table = tuples([("a", 5, 3, 0, 0, 0), ("a", 1, 3, 0, 0, 0), ("a", 6, np.nan, 0, 0, 0)], STEPS)
    emission = p.push({"S": table})
    assert sorted(emission.aside["S"]["reason"].to_pylist()) == ["late", "not finite"]
    assert (emission.tally.tuples, emission.tally.aside, emission.tally.updates) == (3, 2, 1)


# -- bounds -------------------------------------------------------------------------------------------------


def held_against_truth(
    p: Prediction, name: str, table: pa.Table, schema: StreamSchema, bound: Any = None
) -> Comparison:
    """What a prediction says in the end of times that the tuples reach, against exact models of the same tuples."""
    _, measure, keys, value_, margin = QUERIES[name]
    measure = measure.format(model="")
    truth = dict.fromkeys(("x", "y"), "step" if schema is STEPS else "linear")
    exact = pulse.Session(engine="local").fit(table, key="id", time="t", model=truth, error=0)
    asked = pulse.Session(engine="local").sql(measure, streams={"S": exact}).segments()
    seen = table.group_by("id").aggregate([("t", "max")])
    last = dict(zip(seen["id"].to_pylist(), seen["t_max"].cast(pa.int64()).to_pylist(), strict=True))
    names = tuple(dict.fromkeys(one for one in (value_, margin) if one))
    return compare(
        curves(p.results(), keys, (value_,) if value_ else ()),
        curves(asked, keys, names),
        curves(able(p, measure), keys, names),
        value=value_,
        margin=margin,
        bound=bound,
        until=lambda key: min(last[one] for one in key or last),
        rounding=1e-8,
    )


@pytest.mark.parametrize("name", QUERIES)
@examples(10)
@given(way=ways, rows=rows(), size=st.sampled_from([1, 4, 100]), bound=st.sampled_from([0.25, 1.0]))
def test_results_are_within_the_bound_of_the_truth(
    name: str, way: str, rows: list[Row], size: int, bound: float
) -> None:
    schema = STEPS if way == "steps" else LINES
    table = tuples(rows, schema)
    spec = {"policy": "trend"} if way == "trend" else {}
    p = push(prediction(name, schema, ending=f"error within {bound}", **spec), table, size)
    found = held_against_truth(p, name, table, schema, lambda v: np.full(len(v), bound))
    assert found.faults == {}


@examples(12)
@given(
    rows=rows(),
    size=st.sampled_from([1, 4, 100]),
    name=st.sampled_from(["filter", "window", "project", "macd"]),
)
def test_bounds_in_parts_of_the_value_hold_too(rows: list[Row], size: int, name: str) -> None:
    table = tuples(rows, STEPS)
    p = push(prediction(name, STEPS, ending="error within 10% or 0.1"), table, size)
    found = held_against_truth(p, name, table, STEPS, lambda v: np.maximum(0.1 * np.abs(v), 0.1))
    assert found.faults == {}


@examples(12)
@given(
    rows=rows(),
    size=st.sampled_from([1, 4, 100]),
    name=st.sampled_from(list(QUERIES)),
    error=st.sampled_from([0.2, 1.5]),
)
def test_errors_that_streams_state_reach_the_results(
    rows: list[Row], size: int, name: str, error: float
) -> None:
    table = tuples(rows, LINES)
    p = push(prediction(name, LINES, error=error), table, size)
    assert held_against_truth(p, name, table, LINES).faults == {}


def test_a_bound_that_was_too_loose_is_mended_within_the_batch() -> None:
    """Ten times x: before there are models nothing says that x must keep a tenth of the bound."""
    rows_ = [("a", float(i), 1.0 + 0.015 * i, 0.0, 0.0, 0.0) for i in range(40)]
    query = parse("select id, x * 10 as z from S error within 0.2", {"S": STEPS}).bind({})
    p = Prediction(Predictor.of(query, {"S": PredictSpec.of(STEPS, horizon=100.0)}))
    emission = p.push({"S": tuples(rows_, STEPS)})
    assert emission.tally.beyond == 0
    assert max(emission.changes["z_err"].to_pylist()) <= 0.2
    assert emission.tally.violations > 10


def test_near_a_boundary_a_query_is_held_to_its_own_bound() -> None:
    """A predicate that just holds does not ask for more than the query does: the walk is small, the bound is not."""
    table = frame("ticks", 20_000, seed=1, symbols=20, rate=200.0)
    trades = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
    text = QUERIES["macd"][0].replace("id", "symbol").replace("(x)", "(price)")
    query = parse(f"{text} error within 0.5", {"S": trades}).bind({})
    p = Prediction(Predictor.of(query, {"S": PredictSpec.of(trades, horizon="5 min")}))
    push(p, table, 1000)
    assert p.tally.violations < 100


@pytest.mark.parametrize(
    ("name", "precision"), [("macd", 0.3), ("spread", 0.1), ("collision", 20.0), ("approach", 10.0)]
)
def test_shares_by_restlessness_need_no_more_than_others(name: str, precision: float) -> None:
    """Paper Fig. 9iii. Where inputs differ, less; where keys that are alike take part in many pairs, as much as equal shares."""
    load = workload(name, 5_000)
    tallies = {split: load.run(precision, split) for split in SPLITS}
    best = min(one.violations for one in tallies.values())
    assert tallies["restless"].violations <= 1.02 * best + 3
    if name in ("spread", "approach"):
        assert (
            tallies["restless"].violations
            < {"spread": 0.5, "approach": 0.9}[name] * tallies["equi"].violations
        )


# -- state --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["filter", "macd", "collision", "envelope"])
@pytest.mark.parametrize("bound", ["", "error within 0.5"])
def test_state_does_not_grow_with_the_stream(name: str, bound: str) -> None:
    random = np.random.default_rng(3)
    p = prediction(name, STEPS, ending=bound, error=None if bound else 0.2)
    sizes = []
    for i in range(25):
        t = np.sort(random.uniform(i * 10.0, i * 10.0 + 10.0, 40))
        some = [(f"k{random.integers(4)}", float(at), *random.normal(0.0, 3.0, 4)) for at in t]
        p.push({"S": tuples(some, STEPS)})
        assert p.now is not None
        p.advance(p.now - 2 * SECOND)
        sizes.append(len(pickle.dumps(p)))
    assert max(sizes[13:]) < 1.3 * max(sizes[3:13])


def test_forgotten_history_does_not_change_what_follows() -> None:
    random = np.random.default_rng(4)
    t = np.sort(random.uniform(0.0, 100.0, 400))
    table = tuples([(f"k{random.integers(3)}", float(at), *random.normal(0.0, 2.0, 4)) for at in t], STEPS)
    for name in ("filter", "macd", "envelope"):
        kept, freed = prediction(name, STEPS, error=0.5), prediction(name, STEPS, error=0.5)
        for i in range(0, 400, 25):
            one, other = kept.push({"S": table.slice(i, 25)}), freed.push({"S": table.slice(i, 25)})
            assert one.changes.to_pylist() == other.changes.to_pylist()
            freed.advance(freed.now - SECOND)  # type: ignore[operator]


# -- refused ------------------------------------------------------------------------------------------------


def test_what_cannot_be_predicted_is_refused() -> None:
    query = parse("select id, x from S where x > 2", {"S": STEPS}).bind({})
    with pytest.raises(PredictorError, match="nothing bounds x, y"):
        Predictor.of(query, {"S": PredictSpec.of(STEPS, horizon=1.0)})
    with pytest.raises(PredictorError, match="the job does not define the streams S"):
        Predictor.of(query, {})
    twice = parse(
        "select R.id from S as R MODEL x = x + vx * t join S as Q MODEL x = x + vy * t on (R.id <> Q.id)",
        {"S": LINES},
    ).bind({})
    with pytest.raises(PredictorError, match="two models"):
        Predictor.of(twice, {"S": PredictSpec.of(LINES, horizon=1.0, error=1.0)})

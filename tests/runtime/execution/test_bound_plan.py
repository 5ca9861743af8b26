"""Queries made ready to run: what they read, what they give, and where they are cut."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from pulse.core.expression import TRUE, Column, Comparison, Constant, Expression
from pulse.operators.node import PlanError
from pulse.operators.relational.exchange import Grid
from pulse.runtime.execution import bound_plan as job_module
from pulse.runtime.execution.bound_plan import BoundPlan, RateError, prepare
from pulse.store.model import Model
from pulse.store.model_ref import ModelRef
from tests.runtime.execution.asking import COLLISION, FOLLOWING, MACD, local, prices, tracks


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("job")
    return {"S": prices(folder / "s"), "V": tracks(folder / "v")}


def prepared(
    models: dict[str, Model], text: str, *, tuples: bool = False, how: Any = None, **values: Any
) -> BoundPlan:
    query = local().sql(text, streams=models, **values).query
    return prepare(
        query, {name: str(model.path) for name, model in models.items()}, tuples=tuples, **(how or {})
    )


def test_only_what_is_used_is_bound(models: dict[str, Model]) -> None:
    job = prepared(models, MACD, short=4, long=12)
    assert job.paths == {"S": ModelRef(str(models["S"].path), version=1, commit=1)}
    (fragment,) = job.fragments
    assert job.reading(fragment).attributes == ("price",)
    assert job.keys(fragment) == TRUE
    assert len(job.units(fragment, at_least=3)) == 3
    assert job.producers(fragment) == ()


def test_keys_are_read_alone(models: dict[str, Model]) -> None:
    job = prepared(models, "select price from S where symbol = 'a'")
    (fragment,) = job.fragments
    assert job.keys(fragment) == Comparison("=", Column("symbol"), Constant("a"))
    assert len(job.units(fragment, at_least=3)) == 1


def test_columns_of_results(models: dict[str, Model]) -> None:
    text = "select price, venue from S sample every 1 s"
    segments = prepared(models, text).schema
    assert segments.names == [
        "symbol",
        "ref",
        "lo",
        "hi",
        "venue",
        "price",
        "price_err",
        "price_drift",
        "certainty",
    ]
    assert prepared(models, text, how={"lineage": True}).schema.names == [*segments.names, "lineage"]
    tuples = prepared(models, text, tuples=True).schema
    assert tuples.names == ["t", "price", "venue", "symbol", "price_err", "certainty"]
    assert tuples.field("t").type == pa.timestamp("us")
    figures = prepared(models, text, how={"summary": True}).schema.names
    assert figures == ["ranges", "seconds", "certain", "price_integral", "price_smallest", "price_largest"]


def test_a_key_made_equal_to_a_selected_one_comes_once(models: dict[str, Model]) -> None:
    job = prepared(models, MACD, tuples=True, short=4, long=12)
    assert job.schema.names == ["t", "symbol", "diff", "diff_err", "certainty"]
    assert job.columns.key_names == ("symbol",)
    assert len(job.query.plan.columns.key) == 2


def test_tuples_need_a_rate(models: dict[str, Model]) -> None:
    with pytest.raises(RateError, match=r"need a rate; end it with SAMPLE EVERY 1 s, or ask for segments"):
        prepared(models, "select price from S", tuples=True)
    assert prepared(models, "select price from S").rate is None
    assert prepared(models, MACD, tuples=True, short=4, long=12).rate == 2_000_000


def test_it_travels_to_workers(models: dict[str, Model]) -> None:
    for text, values in (
        (MACD, {"short": 4, "long": 12}),
        (FOLLOWING, {}),
        ("select max(price) as m from S", {}),
    ):
        job = prepared(models, text, tuples="advance" in text, **values)
        again = pickle.loads(pickle.dumps(job))
        assert (again.fragments, again.schema, again.grids) == (job.fragments, job.schema, job.grids)
        assert all(leaf in again.grids or not job.grids for leaf in again.fragments[-1].inputs)


def test_fragments_above_exchanges_know_who_feeds_them(models: dict[str, Model]) -> None:
    job = prepared(models, COLLISION, c=60)
    *below, last = job.fragments
    assert [fragment.stream for fragment in below] == ["V", "V"]
    assert last.stream is None
    assert job.producers(last) == ((0, last.exchanges[0], below[0]),)
    assert job.twins(last) == {1: 0}, "both sides are one stream's: what comes over the first is both"


def test_sides_that_differ_are_fed_each(models: dict[str, Model]) -> None:
    job = prepared(models, COLLISION.replace("where", "where R.x > 0 and"), c=60)
    *below, last = job.fragments
    assert [(arc, fragment) for arc, _, fragment in job.producers(last)] == list(enumerate(below))
    assert job.twins(last) == {}


def test_possible_ranges_are_found_where_a_merge_needs_them(models: dict[str, Model]) -> None:
    over_keys = prepared(models, "select sum(price) as s from S where price > 20")
    assert over_keys.possible(True)
    assert not over_keys.possible(False)
    assert not prepared(models, COLLISION, c=60).possible(True)
    assert prepared(models, "select price from S where price > 20 with possible").possible(False)


def test_both_sides_of_a_pair_join_are_cut_alike(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_time = prepared(models, FOLLOWING).grids
    assert len(by_time) == 2
    assert len(set(by_time.values())) == 1
    (grid,) = set(by_time.values())
    assert grid.position is None
    assert grid.margin == 20_000_000
    assert grid.bucket >= grid.margin
    monkeypatch.setattr(job_module, "ROWS", 4)
    left, right = prepared(models, FOLLOWING).grids.values()
    assert (left.bucket, left.margin, left.cell, left.reach) == (
        right.bucket,
        right.margin,
        right.cell,
        right.reach,
    )
    assert left.position != right.position
    assert left.cell >= 2 * left.reach > 0


@pytest.mark.parametrize("c", [0, -5, 1e-300, 1e9])
def test_any_distance_makes_a_grid(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch, c: float
) -> None:
    text = "select R.id from V R join V S on R.id <> S.id where distance(R.x, R.y, S.x, S.y) < :c"
    wanted = local().sql(text, streams=models, c=c).segments().num_rows
    monkeypatch.setattr(job_module, "ROWS", 4)
    assert local().sql(text, streams=models, c=c).segments().num_rows == wanted
    assert (wanted > 0) == (c > 1)


def test_a_distance_must_be_a_number(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    def grid(reach: Expression | None) -> Grid:
        return Grid(position=None, reach=reach, bucket=1, margin=(), stretch=2.0)

    assert job_module._reach(grid(None)) == 0.0
    assert job_module._reach(grid(Constant(5))) == 10.0
    for bad in (Constant("far"), Constant(True), Column("R.x")):
        with pytest.raises(PlanError, match="is not a number"):
            job_module._reach(grid(bad))


def test_places_grow_with_the_models(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "select S.price from S join S as P on S.symbol <> P.symbol"
    assert prepared(models, text).places == 16
    monkeypatch.setattr(job_module, "ROWS", 2)
    assert prepared(models, text).places == models["S"].manifest.segments

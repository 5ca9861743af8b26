"""Revisions of models that were fitted with accents: a revised tuple is in the units in force at its own time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse
from pulse.benchmarks.workloads.revision_loads import generate_load
from pulse.core.time import format_instant
from pulse.operators.refit.api import correct
from pulse.store.errors import StoreError
from pulse.store.model import Model
from pulse.store.tuples.tuple_units import TupleUnits
from pulse.store.versions.compact import compact
from pulse.stream.accents.accents import AccentError
from pulse.stream.accents.admissibility import UnsupportedAccentError
from tests.effort import examples
from tests.runtime.incremental.revising import START, fitted, rows, stream, wrong

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = pulse.Session(engine="local")
MAPS = ("y / 4", "y * 10", "(y - 32) * 5/9", "y * 9/5 + 32", "y + 1/3", "y * 3/7 - 2")
SPECS: dict[str, dict[str, Any]] = {
    "step": {"truth": "step", "error": 0.2},
    "step, drift": {"truth": "step", "drift": 2.0},
    "step, holes": {"truth": "step", "error": 0.2, "max_gap": "9 s"},
    "linear": {"truth": "linear", "error": 0.2},
    "linear, drift": {"truth": "linear", "error": 0.3, "drift": 2.0},
    "samples": {"truth": "samples", "error": 0.2},
    "exact": {"truth": "step", "error": 0},
}


def accents_of(tuples: pa.Table, seed: int, count: int = 3) -> list[str]:
    """Changes of units, of some keys or all, at instants of tuples or between them."""
    random = np.random.default_rng(seed)
    times = tuples["t"].cast(pa.int64()).to_numpy()
    lines = []
    for at in sorted(random.choice(np.arange(times.min(), times.max() + 2, 250_000), count, replace=False)):
        who = random.choice(["true", "symbol = 'k1'", "symbol != 'k0'"])
        at = int(random.choice([at, times[np.searchsorted(times, at).clip(max=len(times) - 1)]]))
        lines.append(f"{format_instant(at)} [[{who}, alter(price, {random.choice(MAPS)})]]")
    unique = {line.split(" ")[0]: line for line in lines}
    return list(unique.values())


def undone(tuples: pa.Table, model: Model) -> pa.Table:
    return TupleUnits(model.schema, model.accents).undone(tuples)


@pytest.mark.parametrize("name", SPECS)
@examples(4)
@given(
    seed=st.integers(0, 10**6),
    keep=st.booleans(),
    kept=st.sampled_from([None, "all"]),
    n=st.sampled_from([5, 40]),
)
def test_revised_is_as_good_as_fitted_from_corrected_tuples(
    name: str, seed: int, keep: bool, kept: str | None, n: int
) -> None:
    tuples = stream(n, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        accents = accents_of(tuples, seed)
        model = fitted(Path(folder), tuples, accents=accents, keep_tuples=kept, **SPECS[name])
        load = generate_load(tuples, model.schema, revisions=12, seed=seed, bad=0.1, size=0.5)
        outcome = LOCAL.revise(model, load.revisions, keep=keep)
        assert (outcome.counts["revisions"], outcome.counts["aside"]) == (12, load.bad)
        assert outcome.model.accents == model.accents
        assert wrong(undone(load.corrected, model), outcome.model) == []
        again = generate_load(load.corrected, model.schema, revisions=6, seed=seed + 1)
        outcome = LOCAL.revise(model.path, again.revisions, keep=keep)
        assert wrong(undone(again.corrected, model), outcome.model) == []
        if keep:
            assert wrong(undone(tuples, model), Model(model.path, version=1)) == []
            assert wrong(undone(load.corrected, model), Model(model.path, version=2)) == []
        whole = compact(model.path)
        assert whole.accents == model.accents
        assert wrong(undone(again.corrected, model), whole) == []


@examples(30)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-12, 1.0, 1e9]))
def test_recorded_and_undone_again_is_the_same(seed: int, scale: float) -> None:
    """So what was set aside can be brought again, and is distinguished from what is recorded already."""
    tuples = stream(30, seed=seed)
    prices = np.random.default_rng(seed).normal(0, scale, 30)
    tuples = tuples.set_column(2, "price", pa.array(prices))
    with tempfile.TemporaryDirectory() as folder:
        model = fitted(Path(folder), tuples, accents=accents_of(tuples, seed), error=0)
        units = TupleUnits(model.schema, model.accents)
        own = units.undone(tuples)
        assert units.undone(units.recorded(own)).equals(own)


def test_what_was_known_when(tmp_path: Path) -> None:
    tuples = stream(80, seed=5)
    model = fitted(tmp_path, tuples, accents=accents_of(tuples, 5), error=0.2)
    load = generate_load(tuples, model.schema, revisions=20, seed=5, size=0.5)
    LOCAL.revise(model, load.revisions, keep=True)
    ordered = tuples.sort_by([("symbol", "ascending"), ("t", "ascending")])
    for element in (0, 7, 19):
        moment = int(load.revisions.known[element])
        then = correct(ordered, load.revisions.take(np.arange(element + 1))).tuples
        assert wrong(undone(then, model), Model(model.path, as_of=moment)) == []
        before = correct(ordered, load.revisions.take(np.arange(element))).tuples
        assert wrong(undone(before, model), Model(model.path, as_of=moment - 1)) == []


def test_spark_revises_as_this_process_does(tmp_path: Path, spark: SparkSession) -> None:
    tuples = stream(300, keys=7, seed=2)
    models = []
    for engine in ("spark", "local"):
        (tmp_path / engine).mkdir()
        on_spark = pulse.Session(spark=spark)
        details = {"accents": accents_of(tuples, 2), "error": 0.2}
        model = fitted(tmp_path / engine, tuples, session=on_spark, **details)
        assert len(model.manifest.files) > 1
        load = generate_load(tuples, model.schema, revisions=60, seed=4, bad=0.1)
        outcome = (on_spark if engine == "spark" else LOCAL).revise(model, load.revisions, keep=True)
        assert wrong(undone(load.corrected, model), outcome.model) == []
        models.append(outcome)
    a, b = models
    assert (a.counts, a.reasons) == (b.counts, b.reasons)
    assert rows(a.model.read()) == rows(b.model.read())


def few(*given: tuple[str, str, float, float]) -> pa.Table:
    """Rows of kind, symbol, seconds and price."""
    kind, symbol, t, price = (list(column) for column in zip(*given, strict=True))
    times = pa.array([START + int(second * 1e6) for second in t]).cast(pa.timestamp("us"))
    return pa.table({"kind": kind, "symbol": symbol, "t": times, "price": price})


def line(second: float, text: str) -> str:
    return f"{format_instant(START + int(second * 1e6))} [[{text}]]"


FAHRENHEIT = line(10, "symbol = 'a', alter(price, y * 9/5 + 32)")
DATA = few(("+I", "a", 0, 20.0), ("+I", "a", 12, 68.9), ("+I", "a", 20, 70.7), ("+I", "b", 20, 5.0))


def small(folder: Path, **asked: Any) -> Model:
    return fitted(folder, DATA.drop_columns(["kind"]), accents=[FAHRENHEIT], error=0, **asked)


@pytest.mark.parametrize("kept", [None, "all"])
def test_old_and_new_value_are_in_the_units_of_their_own_time(tmp_path: Path, kept: str | None) -> None:
    """A tuple that moves over the accent is in other units after it."""
    model = small(tmp_path, keep_tuples=kept)
    moved = few(("-U", "a", 12, 68.9), ("+U", "a", 8, 21.5), ("+I", "a", 15, 69.8), ("-D", "a", 20, 70.7))
    outcome = LOCAL.revise(model, moved)
    assert outcome.counts["aside"] == 0
    segments = outcome.model.read().to_arrow().to_pylist()
    found = {(row["symbol"], row["ref"].timestamp() + row["lo"]): row["price"][0] for row in segments}
    assert found[("a", START / 1e6 + 8)] == 21.5
    assert found[("a", START / 1e6 + 15)] == pytest.approx(21.0, rel=1e-15)
    (log,) = outcome.model.manifest.log
    logged = pq.read_table(model.path / log)["price"].to_pylist()
    assert logged == pytest.approx([20.5, 21.5, 21.0, 21.5], rel=1e-15)


def test_what_fits_nothing_is_reported_and_kept_as_it_was_recorded(tmp_path: Path) -> None:
    model = small(tmp_path)
    bad = few(("-D", "a", 12, 20.5), ("-U", "a", 20, 70.9), ("+U", "a", 20, 70.5), ("+I", "a", 13, np.nan))
    outcome = LOCAL.revise(model, bad)
    assert outcome.counts["aside"] == 3
    assert "expected price = 20.5; recorded there: price = 68.9" in outcome.examples[0]
    assert "expected price = 70.9; recorded there: price = 70.7" in outcome.examples[1]
    aside = outcome.model.aside()
    assert aside is not None
    assert aside["price"].to_pylist()[:3] == [20.5, 70.9, 70.5]
    assert outcome.model.version == 1


def test_what_a_fit_set_aside_can_be_put_in(tmp_path: Path) -> None:
    late = few(("+I", "a", 0, 20.0), ("+I", "a", 20, 70.7), ("+I", "a", 12, 68.9), ("+I", "a", 30, 71.1))
    model = fitted(tmp_path, late.drop_columns(["kind"]), accents=[FAHRENHEIT], error=0, late="aside")
    (file,) = sorted((model.path / "_aside").glob("fit-*"))
    assert pq.read_table(file)["price"].to_pylist() == [68.9]
    outcome = LOCAL.revise(model, str(file), reader="late")
    assert outcome.counts["inserted"] == 1
    ordered = late.drop_columns(["kind"]).sort_by("t")
    (tmp_path / "other").mkdir()
    anew = fitted(tmp_path / "other", ordered, accents=[FAHRENHEIT], error=0)
    revised, fresh = ([row[:-2] for row in rows(one.read())] for one in (outcome.model, anew))
    assert revised == fresh  # but for drift and squared error, which nobody asked to bound
    again = LOCAL.revise(model.path, str(file), reader="late")
    assert again.reasons == {"already recorded": 1}


def test_an_append_brings_accents_and_is_revised(tmp_path: Path) -> None:
    """Older versions keep their own accents; those of an append count for what came with it."""
    first, second = DATA.slice(0, 2).drop_columns(["kind"]), DATA.slice(2).drop_columns(["kind"])
    model = fitted(tmp_path, first, accents=[FAHRENHEIT], error=0, keep_tuples="all")
    LOCAL.revise(model, few(("-U", "a", 12, 68.9), ("+U", "a", 12, 68.0)), keep=True)
    halved = line(15, "true, alter(price, y / 2)")
    details = {"model": {"price": "step"}, "key": "symbol", "time": "t", "error": 0, "append": True}
    with pytest.raises(AccentError, match="covers data that is modelled already"):
        LOCAL.fit(second, out=model.path, accents=[line(12, "true, alter(price, y / 2)")], **details)
    LOCAL.fit(second, out=model.path, accents=[halved], **details)
    assert [len(Model(model.path, version=v).accents or ()) for v in (1, 2, 3)] == [1, 1, 2]
    outcome = LOCAL.revise(model.path, few(("-U", "b", 20, 5.0), ("+U", "b", 20, 6.0), ("-D", "a", 12, 68.0)))
    assert outcome.counts["aside"] == 0
    corrected = few(("+I", "a", 0, 20.0), ("+I", "a", 20, 70.7), ("+I", "b", 20, 6.0)).drop_columns(["kind"])
    assert wrong(undone(corrected, outcome.model), outcome.model) == []
    assert wrong(undone(first, Model(model.path, version=1)), Model(model.path, version=1)) == []


def test_accents_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    model = small(tmp_path)
    (model.path / str(model.manifest.accents)).write_text("{", encoding="utf-8")
    with pytest.raises(StoreError, match="has 1 bytes, its commit says"):
        LOCAL.revise(model.path, few(("-D", "b", 20, 5.0)))


def trades(n: int, seed: int) -> pa.Table:
    """Prices and sizes of numbered instruments."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array(random.integers(1, 4, n), pa.int64()),
            "t": pa.array(START + np.cumsum(random.integers(0, 4, n)) * 1_000_000).cast(pa.timestamp("us")),
            "price": np.round(100 + np.cumsum(random.normal(0, 0.3, n)), 2),
            "size": random.integers(1, 20, n).astype(float),
        }
    )


RAW = {
    "described by what is modelled": [line(20, "size >= 10, alter(price, y / 4)")],
    "keys altered": [line(20, "true, alter(id, y + 100)"), line(40, "id >= 102, alter(price, y * 3/7)")],
    "of what is altered": [
        line(20, "price >= 100, alter(size, y * 2)"),
        line(40, "size < 12, alter(price, y + 5)"),
    ],
}


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("kept", [None, "all"])
def test_accents_that_only_tuples_tell(tmp_path: Path, name: str, kept: str | None) -> None:
    tuples = trades(60, seed=3)
    pq.write_table(tuples, tmp_path / "tuples.parquet")
    details = {
        "key": "id",
        "time": "t",
        "model": {"price": "step", "size": "step"},
        "error": {"price": 0.2, "size": 0},
    }
    asked = {**details, "accents": RAW[name], "keep_tuples": kept}
    model = LOCAL.fit(str(tmp_path / "tuples.parquet"), out=tmp_path / "m", **asked)
    load = generate_load(tuples, model.schema, revisions=15, seed=3, size=0.5, bad=0.2)
    outcome = LOCAL.revise(model, load.revisions, keep=True)
    assert outcome.counts["aside"] == load.bad
    assert wrong(undone(load.corrected, model), outcome.model) == []
    assert wrong(undone(tuples, model), Model(model.path, version=1)) == []
    assert all("in the units of the start" in one for one in outcome.examples)


def test_what_accents_leave_nothing_of_is_set_aside(tmp_path: Path) -> None:
    gone = line(10, "symbol = 'b', drop(price)")
    model = fitted(tmp_path, DATA.slice(0, 3).drop_columns(["kind"]), accents=[FAHRENHEIT, gone], error=0)
    bad = few(("+I", "b", 12, 5.0), ("+I", "b", 8, 6.0), ("-U", "a", 12, 68.9), ("+U", "b", 12, 3.0))
    outcome = LOCAL.revise(model, bad)
    assert outcome.reasons == {"without 'price', by accents": 2}
    assert outcome.counts["inserted"] == 1
    assert outcome.counts["revisions"] == 3
    aside = outcome.model.aside()
    assert aside is not None
    assert aside["price"].to_pylist() == [5.0, 68.9, 3.0]


def test_accents_of_what_the_model_does_not_keep_are_refused(tmp_path: Path) -> None:
    data = DATA.drop_columns(["kind"]).append_column("venue", pa.array(["N", "Q", "N", "N"]))
    at = line(10, "venue = 'Q', alter(price, y / 4)")
    model = fitted(tmp_path, data, accents=[at], error=0, keep_tuples="all")
    with pytest.raises(UnsupportedAccentError, match="depend on 'venue', which the model does not keep"):
        LOCAL.revise(model, few(("-D", "b", 20, 5.0)))

"""Nothing is lost in silence: tables and frames are sorted, and what a fit sets aside it says, or refuses."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.commands.output.report import lines
from pulse.core.errors import SessionError
from pulse.runtime.fit.rejects import LateTuplesError, SetAsideWarning, share
from pulse.store.model import Model
from tests.operators.fit.fitting import tuples
from tests.runtime.fit.test_spark_driver import walk

ASKED: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}, "error": 0.5, "keep": "u"}
LOCAL = pulse.Session(engine="local")


class OnlyAStream:
    """What hands out Arrow data and is nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def shuffled(table: pa.Table, seed: int = 5) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(seed).permutation(table.num_rows)))


FORMS = {
    "table": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
    "stream": OnlyAStream,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
}


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("points", [False, True])
def test_an_unsorted_frame_is_sorted_and_keeps_every_row(form: str, points: bool) -> None:
    table = walk(2000)
    asked = (
        {**ASKED, "model": {"x": "samples"}, "error": None, "keep": (), "points": True} if points else ASKED
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = LOCAL.fit(FORMS[form](shuffled(table)), **asked)
    wanted = LOCAL.fit(table, **asked)
    assert got.manifest.counts["late"] == 0
    assert got.aside() is None
    assert got.read().to_arrow().equals(wanted.read().to_arrow())


def test_an_unsorted_frame_keeps_every_row_on_spark(spark: SparkSession) -> None:
    table = walk(2000)
    frame = spark.createDataFrame(shuffled(table).to_pandas()).repartition(3)
    got = pulse.Session(spark=spark).fit(frame, **ASKED)
    assert got.manifest.counts["late"] == 0
    assert got.read().to_arrow().equals(LOCAL.fit(table, **ASKED).read().to_arrow())
    held = pulse.Session(spark=spark).fit(shuffled(table), **ASKED)
    assert held.read().to_arrow().equals(got.read().to_arrow())


def test_of_one_instant_the_last_row_of_the_frame_rules() -> None:
    frame = pd.DataFrame({"t": pd.to_datetime([2, 1, 1, 0], unit="s"), "x": [4.0, 2.0, 3.0, 1.0]})
    model = LOCAL.fit(frame, time="t", model={"x": "step"}, error=0)
    assert model.read().coefficients("x")[:, 0].tolist() == [1.0, 3.0, 4.0]
    assert model.manifest.counts["superseded"] == 1


def test_an_unsorted_frame_that_is_appended_is_sorted(tmp_path: Path) -> None:
    table = walk(1000)
    LOCAL.fit(shuffled(table.slice(0, 600)), **ASKED, out=tmp_path / "m")
    model = LOCAL.fit(shuffled(table.slice(600)), **ASKED, out=tmp_path / "m", append=True)
    assert model.manifest.counts["late"] == 0
    assert model.manifest.modelled == 1000


def file_of(path: Path, table: pa.Table, rows: int = 100) -> str:
    pq.write_table(table, path, row_group_size=rows)
    return str(path)


def one_in(n: int, total: int = 1000) -> pa.Table:
    """Tuples in order, every ``n``-th of which is late by two places."""
    t = np.arange(total, dtype=float)
    t[n - 1 :: n] -= 2.5
    return tuples(t, x=np.arange(total) % 7)


COURSES = [(90, 91), (90, 91), (360, 511), ("", ""), (90, 511), (90, 511)]
FILE_ASKED: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}, "error": 0}


def test_a_file_with_a_few_late_rows_is_fitted_with_a_warning(tmp_path: Path) -> None:
    path = file_of(tmp_path / "f.parquet", one_in(200))
    with pytest.warns(SetAsideWarning) as details:
        model = LOCAL.fit(path, **FILE_ASKED)
    (one,) = details
    assert "5 of 1,000 tuples (0.5 %) are late (the first: a tuple of k 'a' at 2023-11-14T22:16:36.5" in str(
        one.message
    )
    assert one.filename == __file__
    assert model.manifest.counts["late"] == 5
    assert "a tuple of k 'a'" in model.manifest.counts["first_late"]


def test_values_that_are_no_numbers_are_warned_of_too() -> None:
    table = tuples(np.arange(10), x=[*range(8), np.nan, 9])
    with pytest.warns(
        SetAsideWarning, match=r"1 of 10 tuples \(10 %\) have .* \(the first: x = nan of k 'a'"
    ):
        LOCAL.fit(table, **FILE_ASKED)


def test_the_warning_counts_by_attribute_and_gives_the_options_of_two_models() -> None:
    """What the user is advised to do loses no tuple of the attributes that have their numbers."""
    nan = np.nan
    table = tuples(
        np.arange(10), x=[*range(9), np.inf], y=range(10), cog=[nan, 1, nan, 3, 4, 5, 6, 7, 8, nan]
    )
    asked: dict[str, Any] = {"key": "k", "time": "t", "error": 1}
    with pytest.warns(SetAsideWarning) as details:
        model = LOCAL.fit(table, **asked, model={"x": "linear", "y": "linear", "cog": "step"})
    text = str(details[0].message)
    assert "3 of 10 tuples (30 %) have" in text
    assert "; cog is null or not finite in 3, x in 1. " in text
    assert "cog in a model of its own (--model cog:step)" in text
    assert "the others alone (--model x:linear,y:linear)" in text
    assert "nonfinite='hole', --nonfinite hole" in text
    assert model.manifest.counts["lacking"] == {"x": 1, "cog": 3}
    reported = "\n".join(lines(model.manifest))
    assert "cog is null or not finite in 3, x in 1" in reported
    assert "(--model cog:step)" in reported
    with pytest.warns(SetAsideWarning, match=r"; x is null or not finite in 1\. "):
        rest = LOCAL.fit(table, **asked, model={"x": "linear", "y": "linear"})
    assert rest.manifest.modelled == 9


def test_of_one_attribute_there_is_nothing_to_part() -> None:
    table = tuples(np.arange(4), x=[0, np.nan, 2, 3])
    with pytest.warns(SetAsideWarning) as details:
        LOCAL.fit(table, **FILE_ASKED)
    assert "own" not in str(details[0].message)
    assert "--nonfinite hole" in str(details[0].message)
    with pytest.warns(SetAsideWarning) as details:
        LOCAL.fit(table, **FILE_ASKED, nonfinite="hole")
    assert "--nonfinite hole" not in str(details[0].message)


def test_what_is_appended_is_counted_by_attribute_too(tmp_path: Path) -> None:
    out = tmp_path / "model"
    for first in (0, 10):
        with pytest.warns(SetAsideWarning, match="x is null or not finite in 1"):
            model = LOCAL.fit(
                tuples(first + np.arange(3), x=[1, np.nan, 2]), **FILE_ASKED, out=out, append=first > 0
            )
    assert model.manifest.counts["lacking"] == {"x": 2}


@pytest.mark.parametrize("keep", [(), ("cog", "heading")])
def test_what_is_not_modelled_costs_no_report(tmp_path: Path, keep: tuple[str, ...]) -> None:
    """A course and a heading that are not available: not read, or kept as nulls."""
    file = tmp_path / "ais.csv"
    rows = [f"1,2022-06-20T00:00:0{i},40.5{i},-74.0,10,{cog},{h}" for i, (cog, h) in enumerate(COURSES)]
    file.write_text("\n".join(["MMSI,BaseDateTime,LAT,LON,SOG,COG,Heading", *rows]) + "\n", encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LOCAL.fit(file, format="ais", model={"x": "linear", "y": "linear"}, error=1, keep=keep)
    counts = model.manifest.counts
    assert (model.manifest.modelled, counts["not_finite"], counts["removed"]) == (6, 0, {})
    if keep:
        known = {(row["cog"], row["heading"]) for row in model.read().to_arrow().to_pylist()}
        assert known == {(90.0, 91.0), (None, None), (90.0, None)}


@pytest.mark.parametrize("rows", [50, 1000])
def test_a_file_with_many_late_rows_is_refused_and_nothing_is_left(tmp_path: Path, rows: int) -> None:
    path = file_of(tmp_path / "f.parquet", one_in(50), rows)
    out = tmp_path / "deep" / "model"
    with pytest.raises(
        LateTuplesError, match=r"20 of 1,000 tuples \(2 %\) are late.*--late aside"
    ) as details:
        LOCAL.fit(path, **FILE_ASKED, out=out)
    assert "the first: a tuple of k 'a' at" in str(details.value)
    assert [one.name for one in tmp_path.iterdir()] == ["f.parquet"]
    with pytest.warns(SetAsideWarning, match="20 of 1,000"):
        model = LOCAL.fit(path, **FILE_ASKED, out=out, late="aside")
    assert model.manifest.counts["late"] == 20


def contents(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file() and one.name != "_lock"}


def test_a_refused_append_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "model"
    LOCAL.fit(tuples(np.arange(100), x=np.arange(100)), **FILE_ASKED, out=out)
    before = contents(out)
    again = file_of(tmp_path / "f.parquet", tuples(np.arange(100), x=np.arange(100)))
    with pytest.raises(LateTuplesError, match=r"99 of 100 tuples"):
        LOCAL.fit(again, **FILE_ASKED, out=out, append=True)
    assert contents(out) == before
    assert {one.name for one in tmp_path.iterdir()} == {"model", "f.parquet"}


def test_a_refusal_is_the_same_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    path = file_of(tmp_path / "f.parquet", one_in(50))
    with pytest.raises(LateTuplesError, match=r"20 of 1,000 tuples \(2 %\) are late"):
        pulse.Session(spark=spark).fit(path, **FILE_ASKED, out=tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_one_in_a_hundred_is_still_a_few(tmp_path: Path) -> None:
    model = LOCAL.fit(file_of(tmp_path / "f.parquet", one_in(100)), **FILE_ASKED)
    assert isinstance(model, Model)
    assert model.manifest.counts["late"] == 10


def test_what_else_late_may_be_is_reported() -> None:
    with pytest.raises(SessionError, match="late: expected 'refuse' or 'aside', got 'drop'"):
        LOCAL.fit(tuples([0], x=[1.0]), **FILE_ASKED, late="drop")


def test_shares_are_never_rounded_away() -> None:
    assert (share(0, 0), share(0, 5), share(5, 5)) == ("0 %", "0 %", "100 %")

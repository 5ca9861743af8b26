"""Revisions of results on Spark are those of this process: without an exchange, and through a cogroup."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import pulse
from tests.runtime.execution.asking import local
from tests.runtime.results.test_answer_diff import (
    Models,
    asked,
    check_segments,
    in_any_order,
    revised,
    revised_models,
    since,
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return revised_models(tmp_path_factory.mktemp("revised"))


@pytest.mark.parametrize("name", ["macd", "average of all", "two models"])
def test_spark_gives_the_same_revisions(name: str, models: Models, spark: SparkSession) -> None:
    there, here = (
        revised(session, name, models, since(name, 1)) for session in (pulse.Session(spark=spark), local())
    )
    frame = there.tuples()
    assert isinstance(frame, DataFrame)
    assert in_any_order(frame.toArrow()) == in_any_order(here.tuples())
    old, new = asked(local(), name, models, version=1), asked(local(), name, models)
    check_segments(old.segments(), there.segments().toArrow(), new.segments(), old)


def test_what_was_not_revised_gives_nothing(models: Models, spark: SparkSession) -> None:
    for name in ("macd", "envelope"):
        details = revised(pulse.Session(spark=spark), name, models, 3)
        assert details.tuples().count() == 0
        assert details.head() == (details.head()[0].slice(0, 0), False)


def test_workers_write_a_folder(models: Models, spark: SparkSession, tmp_path: Path) -> None:
    details = revised(pulse.Session(spark=spark), "macd", models, 1)
    details.write(f"{tmp_path}/revisions/")
    here = revised(local(), "macd", models, 1).tuples()
    assert spark.read.parquet(f"{tmp_path}/revisions").count() == here.num_rows

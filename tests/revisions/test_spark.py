"""On Spark: fitted, revised and asked by workers, every query's results and revisions are those of a run from scratch here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.benchmarks.workloads.revision_loads import Load
from pulse.store.model import Model
from tests.revisions.histories import LOCAL, QUERIES, fitted, keys_of, load_of, rows_of, stream
from tests.revisions.test_from_scratch import same
from tests.runtime.results.test_answer_diff import check_tuples, without_bounds

NAMES = ("filter of lines", "sum of tuples", "macd", "following", "collision")


@pytest.fixture(scope="module")
def revised(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Model, Model, Load]]:
    """Of each kind of stream a model that Spark fitted and revised in two batches, and one of the corrected tuples."""
    session, found = pulse.Session(spark=spark), {}
    for kind in dict.fromkeys(QUERIES[name][0] for name in NAMES):
        folder = tmp_path_factory.mktemp("spark")
        tuples = stream(kind, 11, 90)
        model = fitted(folder, kind, tuples, session=session)
        load = load_of(model, tuples, 24, 4, again=0.3, bad=0.1)
        parts = np.array_split(np.arange(len(load.revisions)), 2)
        aside = [
            session.revise(model.path, load.revisions.take(part), keep=True).counts["aside"] for part in parts
        ]
        assert sum(aside) == load.bad
        found[kind] = Model(model.path), fitted(folder, kind, load.corrected, "scratch"), load
    return found


@pytest.mark.parametrize("name", NAMES)
def test_spark_ends_where_a_run_from_scratch_does(
    name: str, spark: SparkSession, revised: dict[str, tuple[Model, Model, Load]]
) -> None:
    kind, text, parameters = QUERIES[name]
    model, scratch, _ = revised[kind]
    session = pulse.Session(spark=spark)
    asked: dict[str, Any] = {"streams": {"S": model.path}, "parameters": parameters}
    now = session.sql(text, **asked)
    wanted = LOCAL.sql(text, streams={"S": scratch}, parameters=parameters)
    after, keys = now.tuples().toArrow(), keys_of(now)
    same(rows_of(after, keys), rows_of(wanted.tuples(), keys))
    before = LOCAL.sql(text, version=1, **asked).tuples()
    changes = session.revised(text, 1, **asked).tuples().toArrow()
    assert changes.num_rows
    check_tuples(*(without_bounds(one) for one in (before, changes, after)), list(keys))

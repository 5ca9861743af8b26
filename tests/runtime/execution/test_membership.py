"""Aggregates over keys that passed a filter, on Spark: parts of workers merged, held against the tuples in fractions."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given
from pyspark.sql import SparkSession

import pulse
from tests.effort import examples
from tests.strategies import filtered_streams
from tests.test_query_membership import Count, check


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("filtered")


@examples(4, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(stream=filtered_streams())
def test_no_truth_lies_outside_whoever_takes_part(spark: SparkSession, folder: Path, stream: Any) -> None:
    count = Count()
    out = folder / uuid4().hex
    check(stream._replace(functions=stream.functions[:1]), pulse.Session(spark=spark), count, out=out)
    assert count.compared > 0

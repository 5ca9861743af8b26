"""Bounds hold for rounding on Spark, too: a few streams whose values cancel, parts of workers merged, against exact fractions."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

import pulse
from tests.test_query_accent_rounding import check as check_accents
from tests.test_query_accent_rounding import stream as accented_stream
from tests.test_query_rounding import check_across_keys, check_expressions, check_predicates, stream


@pytest.mark.parametrize("seed", [1, 2])
def test_no_result_is_off_by_more_than_its_bound(
    spark: SparkSession, seed: int, record_property: Any
) -> None:
    session = pulse.Session(spark=spark)
    one = stream(seed)
    model = one.fit(session)
    compared = check_expressions(session, one, model, 1)
    compared += check_predicates(session, one, model, 1)
    compared += check_across_keys(session, one, model, ("sum", "avg"))
    record_property("comparisons", compared)
    assert compared > 50


@pytest.mark.parametrize("seed", [0, 1])
def test_no_result_is_off_by_more_than_its_bound_where_units_change(
    spark: SparkSession, seed: int, record_property: Any
) -> None:
    compared = check_accents(pulse.Session(spark=spark), accented_stream(seed), 1)
    record_property("comparisons", compared)
    assert compared > 30

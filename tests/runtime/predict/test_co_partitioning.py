"""Which key attributes bring together what must meet."""

from __future__ import annotations

from typing import Any

import pytest

from pulse.core.schema import StreamSchema
from pulse.language import parse
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.runtime.predict.co_partitioning import partition_keys
from pulse.runtime.predict.spec import Predictor

VENUE = {"venue": "string", "symbol": "string"}
SYMBOL = {"symbol": "string"}
TOP = "select venue, max(price) as top from S group by venue"
AVERAGE = "select venue, avg(a) as m from (select venue, symbol, avg(price) as a from S[size 5 advance 1]) as W group by venue"


def predictor(text: str, **keys: dict[str, str]) -> Predictor:
    schemas = {
        name: StreamSchema.of(key=key, time="t", modelled={"price": "step"}) for name, key in keys.items()
    }
    specs: dict[str, Any] = {
        name: PredictSpec.of(one, horizon="20 s", error="1%") for name, one in schemas.items()
    }
    return Predictor.of(parse(text, schemas).bind({}), specs)


@pytest.mark.parametrize(
    ("text", "keys", "expected"),
    [
        ("select symbol, price from S where price > 1", {"S": SYMBOL}, {"S": ("symbol",)}),
        (TOP, {"S": VENUE}, {"S": ("venue",)}),
        (AVERAGE, {"S": VENUE}, {"S": ("venue",)}),
        ("select max(price) as top from S", {"S": VENUE}, None),
        (
            "select A.symbol, A.price - B.price as d from A join B on (A.symbol = B.symbol)",
            {"A": SYMBOL, "B": SYMBOL},
            {"A": ("symbol",), "B": ("symbol",)},
        ),
        (
            "select A.venue, A.symbol, A.price - B.price as d from A join B on (A.symbol = B.symbol)",
            {"A": VENUE, "B": SYMBOL},
            {"A": ("symbol",), "B": ("symbol",)},
        ),
        (
            "select A.symbol, A.price - B.price as d from A join B on (A.symbol = B.symbol)",
            {"A": {"symbol": "int64"}, "B": {"symbol": "int32"}},
            None,
        ),
        (
            "select symbol, price from A union all select symbol, price from B",
            {"A": SYMBOL, "B": SYMBOL},
            {"A": ("symbol",), "B": ("symbol",)},
        ),
        (
            "select A.symbol as a, B.symbol as b from A join B on (A.price < B.price)",
            {"A": SYMBOL, "B": SYMBOL},
            None,
        ),
    ],
)
def test_what_meets_lies_in_one_bucket(
    text: str, keys: dict[str, dict[str, str]], expected: dict[str, tuple[str, ...]] | None
) -> None:
    assert partition_keys(predictor(text, **keys)) == expected

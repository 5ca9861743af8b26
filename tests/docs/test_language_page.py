"""The queries of the page on the language are not only read: all of them are answered, on small models of its streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pulse
from tests.language.test_docs import QUERIES
from tests.runtime.execution.asking import local

TIMES = pd.date_range("2013-10-07 14:30", periods=40, freq="15s").as_unit("us")
VALUES = {
    "c": 3,
    "area": "POLYGON((0 0,0 9,9 9,9 0,0 0))",
    "margin": 1,
    "long": "10 min",
    "step": "1 min",
    "start": "2013-10-07",
}


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    random = np.random.default_rng(1)

    def walk() -> Any:
        return 4 + np.cumsum(random.integers(-1, 2, len(TIMES))) / 4

    def rows(key: str, names: tuple[Any, ...], **columns: Callable[[int], Any]) -> pd.DataFrame:
        parts = [
            {key: name, "t": TIMES, **{column: of(i) for column, of in columns.items()}}
            for i, name in enumerate(names)
        ]
        return pd.concat([pd.DataFrame(one) for one in parts])

    def fit(data: pd.DataFrame, truth: dict[str, str], **asked: Any) -> Any:
        return local().fit(data, time="t", model=truth, **{"error": 0.01, **asked})

    symbols = ("SPY", "IBM")
    prices = rows("symbol", symbols, price=lambda _: walk(), venue=lambda _: "N", lot=lambda _: 5)
    out = tmp_path_factory.mktemp("page") / "S"
    kept = {"keep": ["venue", "lot"], "keep_tuples": True, "out": out}
    S = fit(prices, {"price": "step"}, key="symbol", **kept)
    late = {
        "kind": ["+I"],
        "symbol": ["SPY"],
        "price": [9.0],
        "venue": ["N"],
        "lot": pa.array([5], pa.int64()),
    }
    at = pa.array([TIMES[5].value // 1000 + 1], pa.timestamp("us"))
    local().revise(S, pa.table({**late, "t": at}), keep=True)
    positions = rows("id", (1, 2), x=lambda _: walk(), y=lambda _: walk(), moored=bool)
    flows = rows("symbol", symbols, price=lambda _: walk(), size=lambda _: 100.0)
    return {
        "S": pulse.Model(S.path),
        "objects": fit(positions, {"x": "linear", "y": "linear"}, key="id", keep=["moored"]),
        "A": fit(pd.DataFrame({"t": TIMES, "x": walk(), "v": walk()}), {"x": "linear", "v": "linear"}),
        "B": fit(
            pd.DataFrame({"t": TIMES, "y": walk(), "v": walk(), "a": 1.0}),
            {"y": "linear", "v": "linear"},
            keep=["a"],
        ),
        "trades": local().fit(
            rows("symbol", symbols, price=lambda _: walk()),
            key="symbol", time="t", model={"price": "samples"}, points=True,
        ),
        "volume": fit(
            flows, {"size": "flow"}, key="symbol", error=1, flow={"notional": "price*size", "trades": "1"}
        ),
    }  # fmt: skip


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_of_the_page_is_answered(text: str, streams: dict[str, Any]) -> None:
    given = {name: value for name, value in VALUES.items() if f":{name}" in text}
    found = local().sql(text, streams=streams, **given).to_arrow()
    assert found.num_columns >= 3

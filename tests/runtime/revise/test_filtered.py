"""Revisions keep the filter of the model: a corrected tuple enters or leaves it as it begins or ceases to pass."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pulse.store.model import Model
from tests.runtime.execution.asking import local, rows_of

HOURS = {"before": "2024-01-02 03:00:00", "open": "2024-01-02 15:00:00", "later": "2024-01-02 16:00:00"}
ALL = "select symbol, price from S sample every 10 min"


def rows(*given: tuple[str, float, float], kinds: list[str] | None = None) -> pa.Table:
    """A table of trades at named hours, as tuples or as revisions."""
    when = pa.array([HOURS[name] for name, _, _ in given]).cast(pa.timestamp("us"))
    prices, sizes = pa.array([one for _, one, _ in given]), pa.array([one for _, _, one in given])
    table = pa.table({"symbol": ["a"] * len(given), "t": when, "price": prices, "size": sizes})
    return table if kinds is None else table.append_column("kind", pa.array(kinds))


def fitted(data: pa.Table, **more: Any) -> Model:
    return local().fit(
        data, key="symbol", time="t", model={"price": "step"}, error=0.0, keep_tuples=True, **more
    )


def test_an_insertion_outside_of_the_sessions_is_set_aside_with_its_reason() -> None:
    model = fitted(rows(("open", 5.0, 1.0), ("later", 6.0, 1.0)), session="XNYS")
    late = rows(("before", 7.0, 1.0), kinds=["+I"])
    done = local().revise(model, late)
    assert (done.counts["inserted"], done.counts["aside"]) == (0, 1)
    (reason,) = done.model.aside()["reason"].to_pylist()
    assert reason == "outside of the model's filter: \"t\" in session 'XNYS'"


@pytest.mark.parametrize(
    ("old", "new", "counts", "corrected"),
    [
        ((5.0, "open"), (3.0, "open"), {"replaced": 1}, [("open", 3.0, 1.0), ("later", 6.0, 1.0)]),
        ((5.0, "open"), (20.0, "open"), {"deleted": 1}, [("later", 6.0, 1.0)]),
        (
            (20.0, "open"),
            (7.0, "open"),
            {"inserted": 1},
            [("open", 5.0, 1.0), ("open", 7.0, 1.0), ("later", 6.0, 1.0)],
        ),
        ((20.0, "open"), (30.0, "open"), {"aside": 2}, [("open", 5.0, 1.0), ("later", 6.0, 1.0)]),
    ],
)
def test_a_replacement_crosses_the_filter_as_the_corrected_data_do(
    old: tuple[float, str],
    new: tuple[float, str],
    counts: dict[str, int],
    corrected: list[tuple[str, float, float]],
) -> None:
    where = "price < 10 and size > 0"  # revisions have no size, which the model does not keep
    model = fitted(
        rows(("open", 5.0, 1.0), ("open", 20.0, 1.0), ("open", 1.0, 0.0), ("later", 6.0, 1.0)), where=where
    )
    pair = rows((old[1], old[0], 1.0), (new[1], new[0], 1.0), kinds=["-U", "+U"]).drop_columns(["size"])
    done = local().revise(model, pair)
    assert {name: done.counts[name] for name in ("inserted", "deleted", "replaced", "aside")} == {
        "inserted": 0, "deleted": 0, "replaced": 0, "aside": 0, **counts
    }  # fmt: skip
    now, fresh = (
        local().sql(ALL, streams={"S": one}).tuples() for one in (done.model, fitted(rows(*corrected)))
    )
    assert rows_of(now) == rows_of(fresh)

"""Deviations and correlations of recorded prices: nothing outside its bound, and bounds that are worth having.

``pytest -s`` prints how much of the bounds the observed errors use.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import pulse
from tests.truth import windows
from tests.truth.pieces import SECOND, tracks

SYMBOLS = ("SPY", "IBM")
SIZE, ADVANCE = 1800, 600


def table_of(folder: Path) -> pa.Table:
    table = pq.read_table(folder / "trades_us_equities_20131007_09.parquet", columns=["symbol", "t", "price"])
    return table.filter(pc.is_in(table["symbol"], value_set=pa.array(SYMBOLS, table["symbol"].type)))


def share_used(found: Any, want: Any) -> Any:
    """How much of its bound each value uses; all of them must lie within."""
    off, err = np.abs(found["v"].to_numpy() - want.astype(float)), found["v_err"].to_numpy()
    assert (off <= err + 1e-13).all()
    return off[err > 1e-13] / err[err > 1e-13]


@pytest.mark.parametrize(
    ("bound", "least", "least_related"), [({"drift": "0.005%"}, 0.1, 0.05), ({"error": "0.01%"}, 0.0005, 0.0)]
)
def test_recorded_prices_keep_their_bounds(
    recorded: Path, bound: dict[str, str], least: float, least_related: float
) -> None:
    table, session = table_of(recorded), pulse.Session(engine="local")
    model = session.fit(table, key="symbol", time="t", model={"price": "step"}, max_gap="1 h", **bound)
    truth = tracks(table, {"price": "step"}, key="symbol", max_gap=3600 * SECOND)
    window = f"[size {SIZE} advance {ADVANCE}]"
    text = f"select symbol, stddev(price) as v from S{window} group by symbol"
    found = session.sql(text, streams={"S": model}).tuples().to_pandas()
    shares = []
    for symbol in SYMBOLS:
        own = found[found["symbol"] == symbol]
        t = own["t"].to_numpy().astype("datetime64[us]").astype(np.int64)
        moments = windows.moments_over([(truth[symbol], "price")], t - SIZE * SECOND, t)
        shares.append(share_used(own, windows.statistic_of("stddev", *moments)))
        assert len(own) > 50
        assert (own["v_err"] < own["v"]).mean() > 0.9
    assert np.median(np.concatenate(shares)) > least
    joined = f"""select A.symbol, corr(A.price, M.price) as v from S as A{window} join S as M on (A.symbol <> M.symbol)
    where M.symbol = 'SPY' group by A.symbol, M.symbol"""
    related = session.sql(joined, streams={"S": model}).tuples().to_pandas()
    t = related["t"].to_numpy().astype("datetime64[us]").astype(np.int64)
    moments = windows.moments_over([(truth[one], "price") for one in ("IBM", "SPY")], t - SIZE * SECOND, t)
    used = share_used(related, windows.statistic_of("corr", *moments))
    assert len(related) > 50
    assert np.median(used) > least_related
    sys.stdout.write(
        f"\n{bound}: used of the bound, median: deviation {np.median(np.concatenate(shares)):.4f}, "
    )
    sys.stdout.write(f"correlation {np.median(used):.4f}\n")

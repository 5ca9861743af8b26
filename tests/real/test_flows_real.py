"""Volume, counts and VWAP of recorded trades against exact fractions: no value outside its bound, and bounds worth having."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import pulse

TRADES = Path(__file__).parents[3] / "shared" / "data" / "trades_us_equities_20131007_09.parquet"
SECOND = 1_000_000
QUERY = """
select symbol, sum(size) as volume, count(*) as trades, avg(size) as mean, sum(notional) / sum(size) as vwap
from T [{window}] group by symbol
"""

pytestmark = pytest.mark.skipif(not TRADES.is_file(), reason="the recorded trades are not here")


@pytest.fixture(scope="module")
def trades() -> pa.Table:
    """The first day of two symbols."""
    data = pq.read_table(TRADES, columns=["symbol", "t", "price", "size"])
    symbols = sorted(set(data["symbol"].to_pylist()))[:2]
    day = data.filter(pc.is_in(data["symbol"].cast(pa.string()), pa.array(symbols)))
    return day.filter(
        pc.less(day["t"].cast(pa.int64()), int(pc.min(day["t"].cast(pa.int64())).as_py()) + 86_400 * SECOND)
    )


class _Sums:
    """Exact sums over any window of one symbol's trades, from exact running totals."""

    def __init__(self, t: Any, price: Any, size: Any) -> None:
        self.t = t
        self.size = [Fraction(0), *accumulate(Fraction(float(x)) for x in size)]
        self.notional = [
            Fraction(0),
            *accumulate(Fraction(float(p) * float(x)) for p, x in zip(price, size, strict=True)),
        ]

    def within(self, opens: int, closes: int) -> tuple[Fraction, int, Fraction]:
        first, last = np.searchsorted(self.t, [opens, closes]).tolist()
        return self.size[last] - self.size[first], last - first, self.notional[last] - self.notional[first]


def exact(trades: pa.Table) -> dict[str, _Sums]:
    names = np.array(trades["symbol"].cast(pa.string()).to_pylist())
    t = trades["t"].cast(pa.int64()).to_numpy()
    price, size = trades["price"].to_numpy(), trades["size"].to_numpy()
    return {
        str(one): _Sums(t[own], price[own], size[own])
        for one in np.unique(names)
        for own in [np.flatnonzero(names == one)]
    }


@pytest.mark.parametrize("bound", [0, 50, 2000])
@pytest.mark.parametrize(
    ("window", "size"), [("size 5 min advance 1 min", 300), ("each session 'XNYS'", 23_400)]
)
def test_recorded_trades(trades: pa.Table, bound: float, window: str, size: int) -> None:
    session = pulse.Session(engine="local")
    error = {"price": "0.05%", "size": bound, "notional": 50 * bound, "trades": bound // 50}
    model = session.fit(
        trades,
        key="symbol",
        time="t",
        model={"price": "step", "size": "flow"},
        flow={"notional": "price*size", "trades": 1},
        error=error,
    )
    found = session.sql(QUERY.format(window=window), streams={"T": model}).tuples()
    sums, ratios = exact(trades), []
    assert found.num_rows >= (2 if size > 1000 else 500 if bound < 1000 else 300)
    for row, closes in zip(found.to_pylist(), found["t"].cast(pa.int64()).to_pylist(), strict=True):
        volume, count, notional = sums[row["symbol"]].within(closes - size * SECOND, closes)
        for name, true in (
            ("volume", volume),
            ("trades", Fraction(count)),
            ("mean", volume / count),
            ("vwap", notional / volume),
        ):
            off = abs(Fraction(row[name]) - true)
            assert off <= Fraction(row[f"{name}_err"]), (name, row)
            if name == "vwap" and row["vwap_err"]:
                ratios.append(float(off) / row["vwap_err"])
    if bound == 0:
        assert set(found["volume_err"].to_pylist()) == {0.0} == set(found["trades_err"].to_pylist())
    elif size < 1000:
        assert (
            np.median(ratios) > 0.02
        )  # errors of notional and size are alike and cancel, which no bound of a quotient shows

"""A rolling deviation, the root of a variance that is zero but for rounding where the values do not change.

The oracle is written from the tuples: integrals of a step function, in fractions.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pulse.operators.errors import DomainError
from pulse.runtime.jobs.toml import job_of
from pulse.runtime.predict.local_driver import run_local
from tests.runtime.execution.asking import SECOND, START, local, table
from tests.runtime.jobs.running_jobs import ticks as job_ticks
from tests.runtime.jobs.streams import TICK_STREAM

SIZE, ADVANCE = 10, 2
DEVIATION = f"""
select symbol, sqrt(avg(squares) - avg(price) * avg(price)) as dev from
(select symbol, price, price * price as squares from S) as Q[size {SIZE} advance {ADVANCE}]
group by symbol
"""
AS_A_STREAM = f"""
select symbol, sqrt(variance) as dev from
(select symbol, avg(squares) - avg(price) * avg(price) as variance from
(select symbol, price, price * price as squares from S) as Q[size {SIZE} advance {ADVANCE}] group by symbol) as V
"""


def ticks(seed: int) -> dict[str, list[float]]:
    """Prices a second, of which a third do not change for long, in cents, which no double is."""
    rng = np.random.default_rng(seed)
    found = {}
    for symbol in ("a", "b"):
        cents = 10_000 + np.cumsum(rng.integers(-3, 4, 90))
        cents[30:60] = cents[30]
        found[symbol] = [float(c) / 100 for c in cents]
    return found


def fitted(prices: dict[str, list[float]], **asked: Any) -> Any:
    """A model of the prices."""
    rows: dict[str, list[Any]] = {"symbol": [], "t": [], "price": []}
    for symbol, values in prices.items():
        rows["symbol"] += [symbol] * len(values)
        rows["t"] += [START + i * SECOND for i in range(len(values))]
        rows["price"] += values
    data = table(rows, symbol=pa.string(), price=pa.float64())
    return local().fit(data, key="symbol", time="t", model={"price": "step"}, **{"error": 0, **asked})


def variance(values: list[float], close: Fraction) -> Fraction:
    """Of the step function over the ten seconds before ``close`` (seconds since the first tuple), exactly."""
    total = squares = Fraction(0)
    for i, value in enumerate(values):
        share = min(close, Fraction(i + 1)) - max(close - SIZE, Fraction(i))
        if share > 0:
            total += share * Fraction(value)
            squares += share * Fraction(value) ** 2
    return squares / SIZE - (total / SIZE) ** 2


def holds(dev: float, err: float, truth: Fraction) -> bool:
    """Whether ``|dev - sqrt(truth)| <= err``, compared by squares."""
    low, high = Fraction(dev) - Fraction(err), Fraction(dev) + Fraction(err)
    return (low <= 0 or low**2 <= truth) and truth <= high**2


@pytest.mark.parametrize(
    ("query", "error"),
    [(DEVIATION, 0.0), (DEVIATION, 0.03), (AS_A_STREAM, 0.03)],
    ids=["without error", "with a bound", "a stream of variances"],
)
def test_a_flat_window_has_a_deviation_within_its_bound(query: str, error: float) -> None:
    compared = 0
    for seed in range(3):
        prices = ticks(seed)
        answer = local().sql(query, streams={"S": fitted(prices, error=error)})
        for row in answer.tuples().to_pylist():
            since = Fraction(int(row["t"].timestamp()) - START // SECOND)
            truth = variance(prices[row["symbol"]], since)
            compared += 1
            if error:
                assert holds(row["dev"], row["dev_err"], truth), row
            else:
                assert abs(row["dev"] ** 2 - float(truth)) <= 1e-10, row
        for row in answer.segments().to_pylist():
            ref = int(row["ref"].timestamp() * 1e6)
            at = (row["lo"] + row["hi"]) / 2
            value = sum(c * at**i for i, c in enumerate(row["dev"]))
            close = Fraction(ref - START, SECOND) + Fraction(at)
            truth = variance(prices[row["symbol"]], close)
            compared += 1
            slack = 1e-4 if error == 0.0 else 0.0  # the root of a rounding of 10000
            assert holds(value, row["dev_err"] + slack, truth), row
    assert compared > 200


def test_a_sweep_goes_on_over_flat_windows() -> None:
    query = DEVIATION.replace(f"size {SIZE}", "size :size")
    found = local().sweep(query, streams={"S": fitted(ticks(1))}, size=[4, 10])
    assert set(found.to_arrow().column("size").to_pylist()) == {4, 10}
    assert found.summary().num_rows == 2


def test_a_root_that_is_really_negative_names_what_was_written() -> None:
    query = f"select symbol, sqrt(avg(price) - max(price) - 1) as dev from S[size {SIZE} advance {ADVANCE}]"
    answer = local().sql(query, streams={"S": fitted(ticks(1))})
    for ask in (answer.tuples, answer.segments):
        with pytest.raises(DomainError) as e:
            ask()
        reported = str(e.value)
        assert "sqrt(((avg_price - max_price) - 1))" in reported
        assert "S.symbol='a'" in reported
        assert "symbol_2" not in reported
        assert "#" not in reported


@pytest.mark.parametrize("error", ["1%", "0.03", 0])
def test_values_that_never_change_have_a_deviation_of_zero_within_its_bound(error: str | int) -> None:
    """Models of one constant: all of the variance is rounding, of either sign."""
    prices = {str(i): [value] * 40 for i, value in enumerate((101.83, 99.99, 103.1, 1e6 / 3, 0.1))}
    answer = local().sql(DEVIATION, streams={"S": fitted(prices, error=error, degree=0)})
    for found in (answer.tuples(), answer.segments()):
        assert set(found.column("symbol").to_pylist()) == set(prices)
    for row in answer.tuples().to_pylist():
        assert row["dev"] <= row["dev_err"] + 1e-6 * prices[row["symbol"]][0]  # the root of a rounding


def test_a_job_goes_on_over_values_that_do_not_change(tmp_path: Path) -> None:
    """A held price is a model of one constant."""
    job_ticks(tmp_path / "in", 2)
    tables = {
        "query": DEVIATION,
        "engine": "local",
        "streams": {"S": TICK_STREAM},
        "sink": {"kind": "parquet", "path": "out"},
    }
    assert run_local(job_of(tables, folder=tmp_path)).tally.changes > 0

"""Fig. 9 i: MACD on trades, predicted to 1 %, from segments alone and over tuples, as trades are replayed faster.

Fig. 6's parameters: replay at 3,000 to 8,500 tuples/s, 1 % of the trade's value; beyond, up to what each can do. ``pulse``
validates every trade and solves where one fails; ``segments`` were fitted before, to the same 1 %. MACD's differences are far
below 1 % of a price: a price that holds to 1 % makes both averages equal, and the answer is all but empty: see its recall. So
beside the paper's bound stand ones at which the differences are larger than the errors: trades predicted to 0.01 %, and segments
whose integral is right to 0.005 %. On generated trades, and on recorded ones where there are any.

How streams are offered: :mod:`pulse.benchmarks.replay`. Run with ``make bench ONLY=fig9_nyse``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

from pulse.benchmarks.checks.violations import DATA
from pulse.benchmarks.recording import sizes
from pulse.benchmarks.replay import AT_ONCE
from pulse.benchmarks.workloads.load import Offered
from pulse.benchmarks.workloads.market import CONTENDERS, FILE, KINDS, market

ROWS = sizes(30_000, 400_000)
RATES = sizes((3_000, 1_000_000), (3_000, 4_000, 5_000, 6_500, 8_500, 30_000, 100_000, 1_000_000))
SECONDS = sizes(1.0, 5.0)
PAPER: dict[str, str | float] = {"paper: tuples, most/s": 4_000, "paper: Pulse, most/s": 6_500}


@lru_cache(maxsize=1)  # kinds come in turn, and a workload is large
def offered(kind: str) -> Offered:
    return Offered(market(kind, ROWS), seconds=SECONDS)


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("rate", [*RATES, AT_ONCE])
@pytest.mark.parametrize("kind", KINDS)
def test_macd(benchmark: Any, kind: str, rate: float, contender: str) -> None:
    if kind == "recorded" and not FILE.exists():
        pytest.skip(f"no {FILE.name} in {DATA}; set PULSE_DATA to the folder of recorded data")
    figure, rounds = f"Fig. 9 i: MACD, {kind} trades", sizes(1, 2)
    offered(kind).record(benchmark, contender, rate, figure=figure, rounds=rounds, facts=PAPER)

"""Fig. 9 ii: who follows whom among vessels, predicted to 0.05 %, from segments alone and over tuples, as reports come faster.

Fig. 6's parameters: replay at 200 to 6,000 tuples/s, 0.05 %; beyond, up to what each can do. ``pulse`` validates every report
against where speed and course say the vessel goes, and solves where one fails; ``segments`` were fitted before, to the same
bound. By hand, vessels are placed every ten seconds and held against those in the squares around them. On generated vessels, and
on those recorded in a harbour and in a channel where there are any: what bounds are of, and what counts as known, is described in
``sea.py``.

How streams are offered: :mod:`pulse.benchmarks.replay`. Run with ``make bench ONLY=fig9_ais``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

from pulse.benchmarks.checks.violations import DATA, RECORDED
from pulse.benchmarks.recording import sizes
from pulse.benchmarks.replay import AT_ONCE
from pulse.benchmarks.workloads.load import Offered
from pulse.benchmarks.workloads.sea import CONTENDERS, KINDS, Sea

ROWS, RECORDED_ROWS = sizes((22_000, 8_000), (100_000, 60_000))
RATES = sizes((200, 6_000), (200, 500, 1_000, 2_000, 4_000, 6_000, 20_000, 60_000, 200_000))
SECONDS = sizes(0.5, 3.0)
PAPER: dict[str, str | float] = {"paper: tuples, most/s": 1_000, "paper: Pulse, most/s": 4_400}


@lru_cache(maxsize=1)  # kinds come in turn, and a workload is large
def offered(kind: str) -> Offered:
    sea = Sea(kind, RECORDED_ROWS if kind in RECORDED else ROWS)
    return Offered(sea, seconds=SECONDS, least=sizes(500, 2_000))


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("rate", [*RATES, AT_ONCE])
@pytest.mark.parametrize("kind", KINDS)
def test_following(benchmark: Any, kind: str, rate: float, contender: str) -> None:
    if kind in RECORDED and not (DATA / f"{RECORDED[kind]}.parquet").exists():
        pytest.skip(f"no {RECORDED[kind]}.parquet in {DATA}; set PULSE_DATA to the folder of recorded data")
    one = offered(kind)
    figure, rounds = f"Fig. 9 ii: following, {kind}", sizes(1, 2)
    facts = PAPER | {"vessels": one.arrivals.keys}
    one.record(benchmark, contender, rate, figure=figure, rounds=rounds, facts=facts)

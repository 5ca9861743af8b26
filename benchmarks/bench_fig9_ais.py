"""Fig. 9 ii: who follows whom among vessels, predicted to 0.05 %, from segments alone and over tuples, as reports come faster.

Fig. 6's parameters: replay at 200 to 6,000 tuples/s, 0.05 %; beyond, up to what each can do. ``pulse`` validates every report
against where speed and course say the vessel goes, and solves where one fails; ``segments`` were fitted before, to the same
bound. By hand, vessels are placed every ten seconds and held against all others. On generated vessels, and on those recorded in
a harbour and in a channel where there are any: what bounds are of, and what counts as known, is said in ``sea.py``.

How streams are offered: :mod:`pulse.benchmarks.replay`. Run with ``make bench ONLY=fig9_ais``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

from pulse.benchmarks.allocation import keep_freed_memory
from pulse.benchmarks.engines import Predicting
from pulse.benchmarks.recording import sizes
from pulse.benchmarks.replay import AT_ONCE, Replays, record_replay
from pulse.benchmarks.sea import CONTENDERS, KINDS, Sea
from pulse.benchmarks.violations import DATA, RECORDED

ROWS, RECORDED_ROWS = sizes((22_000, 8_000), (100_000, 60_000))
RATES = sizes((200, 6_000), (200, 500, 1_000, 2_000, 4_000, 6_000, 20_000, 60_000, 200_000))
SECONDS = sizes(1.0, 5.0)
PAPER: dict[str, str | float] = {"paper: tuples, most/s": 1_000, "paper: Pulse, most/s": 4_400}


class Race:
    """The contenders on vessels of a kind, each looked at on all of them."""

    def __init__(self, kind: str) -> None:
        keep_freed_memory()
        self.sea = Sea(kind, RECORDED_ROWS if kind in RECORDED else ROWS)
        makers = self.sea.makers()
        self.replays = Replays(
            makers, self.sea.tuples, warm=self.sea.warm, seconds=SECONDS, least=sizes(500, 2_000)
        )
        self.judged = {name: self.sea.judge(name, maker) for name, maker in makers.items()}


@lru_cache(maxsize=1)  # kinds come in turn, and a workload is large
def race(kind: str) -> Race:
    return Race(kind)


@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("rate", [*RATES, AT_ONCE])
@pytest.mark.parametrize("kind", KINDS)
def test_following(benchmark: Any, kind: str, rate: float, contender: str) -> None:
    if kind in RECORDED and not (DATA / f"{RECORDED[kind]}.parquet").exists():
        pytest.skip(f"no {RECORDED[kind]}.parquet in {DATA}; set PULSE_DATA to the folder of recorded data")
    one = race(kind)
    engine = record_replay(
        benchmark,
        one.replays,
        contender,
        rate,
        figure=f"Fig. 9 ii: following, {kind}",
        accuracy=one.judged[contender].accuracy,
        rounds=sizes(1, 3),
        facts={"vessels": len(one.sea.names)} | one.judged[contender].facts | PAPER,
    )
    if isinstance(engine, Predicting):
        benchmark.extra_info["facts"] |= engine.facts

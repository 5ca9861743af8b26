"""Streams of a kind, generated or recorded, with all who answer on them: each looked at on all tuples, then offered at rates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pulse.benchmarks.allocation import keep_freed_memory
from pulse.benchmarks.checks.replays import Judged
from pulse.benchmarks.engines import Predicting
from pulse.benchmarks.replay import Engine, Replays, record_replay
from pulse.core.arrays import IntArray


class Arrivals(ABC):
    """Tuples in order of arrival at times ``t``, from senders of these ``names``.

    ``warming`` microseconds of them are there before the clock starts.
    """

    t: IntArray
    names: Any
    warming: int

    @property
    def tuples(self) -> int:
        """How many."""
        return len(self.t)

    @property
    def keys(self) -> int:
        """How many senders."""
        return len(self.names)

    @property
    def warm(self) -> int:
        """Those of the first windows."""
        return int(np.searchsorted(self.t, self.t[0] + self.warming))

    @abstractmethod
    def makers(self) -> dict[str, Callable[[], Engine]]:
        """Of all contenders."""

    @abstractmethod
    def judge(self, contender: str, maker: Callable[[], Any]) -> Judged:
        """What one emits for all tuples, against the truth."""


class Offered:
    """The contenders on a stream; ``replays`` are settings of :class:`.replay.Replays`."""

    def __init__(self, arrivals: Arrivals, **replays: Any) -> None:
        keep_freed_memory()
        makers = arrivals.makers()
        self.arrivals = arrivals
        self.replays = Replays(makers, arrivals.tuples, warm=arrivals.warm, **replays)
        self.judged = {name: arrivals.judge(name, maker) for name, maker in makers.items()}

    def record(
        self,
        benchmark: Any,
        contender: str,
        rate: float,
        *,
        figure: str,
        rounds: int,
        facts: Mapping[str, str | float],
    ) -> None:
        """A contender's row at a rate."""
        judged = self.judged[contender]
        engine = record_replay(
            benchmark,
            self.replays,
            contender,
            rate,
            figure=figure,
            accuracy=judged.accuracy,
            rounds=rounds,
            facts={**judged.facts, **facts},
        )
        if isinstance(engine, Predicting):
            benchmark.extra_info["facts"] |= engine.facts

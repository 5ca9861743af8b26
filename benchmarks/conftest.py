"""At the end of a run: how many times as fast as each contender Pulse was, per benchmark group.

A benchmark names its contender in ``benchmark.extra_info["contender"]``, Pulse's own is ``pulse``, and through Spark, where
both take part, ``pulse, Spark``; and the amount of work (rows, samples, variants) in ``extra_info["work"]``. Contenders of a
group may be given less work; ratios are of the median time per unit. ``extra_info["accuracy"]`` is a line about how good the
answer was.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import pytest

OURS, OURS_ON_SPARK = "pulse", "pulse, Spark"


class Timed(NamedTuple):
    """Seconds, and seconds per unit of work."""

    median: float
    best: float
    per_unit: float


def times_of(bench: Any) -> Timed:
    median, best = float(bench.stats.median), float(bench.stats.min)
    return Timed(median, best, median / float(bench.extra_info["work"]))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    groups: dict[str, dict[str, Timed]] = defaultdict(dict)
    accuracies: dict[str, str] = {}
    for bench in session.benchmarks if session else []:
        if "contender" in bench.extra_info and bench.stats is not None:
            groups[bench.group][bench.extra_info["contender"]] = times_of(bench)
        if "accuracy" in bench.extra_info:
            accuracies[bench.group] = bench.extra_info["accuracy"]
    if not groups:
        return
    terminalreporter.section("ratios: contender's time / Pulse's time, in process and through Spark")
    head = f"{'median s':>11}{'best s':>11}{'ns per unit':>14}{'ratio':>9}{'ratio Spark':>13}"
    terminalreporter.write_line(f"{'benchmark':<34}{'contender':<28}{head}")
    for group, times in groups.items():
        for contender, one in sorted(times.items(), key=lambda item: item[1].per_unit):
            ratios = [
                f"{one.per_unit / times[ours].per_unit:.1f}" if ours in times and contender != ours else ""
                for ours in (OURS, OURS_ON_SPARK)
            ]
            figures = f"{one.median:>11.4f}{one.best:>11.4f}{one.per_unit * 1e9:>14.2f}{ratios[0]:>9}{ratios[1]:>13}"
            terminalreporter.write_line(f"{group:<34}{contender:<28}{figures}")
    for group, line in accuracies.items():
        terminalreporter.write_line(f"{group}: {line}")

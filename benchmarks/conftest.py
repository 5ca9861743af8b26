"""At the end of a run: how many times as fast as each contender Pulse was, per benchmark group.

A benchmark names its contender in ``benchmark.extra_info["contender"]``, Pulse's own is ``pulse``, and the
amount of work (rows, samples) in ``extra_info["work"]``. Contenders of a group may be given less work; ratios
are of the time per unit.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest


def per_unit(bench: Any) -> float:
    """Best seconds per unit of work: the least disturbed by whatever else ran on the machine."""
    return float(bench.stats.min) / float(bench.extra_info["work"])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for bench in session.benchmarks if session else []:
        if "contender" in bench.extra_info and bench.stats is not None:
            groups[bench.group][bench.extra_info["contender"]] = per_unit(bench)
    if not groups:
        return
    terminalreporter.section("ratios: contender's time / Pulse's time")
    terminalreporter.write_line(f"{'benchmark':<28}{'contender':<24}{'ns per unit':>14}{'ratio':>10}")
    for group, times in groups.items():
        ours = times.get("pulse")
        for contender, seconds in sorted(times.items(), key=lambda item: item[1]):
            ratio = "" if contender == "pulse" or not ours else f"{seconds / ours:.1f}"
            terminalreporter.write_line(f"{group:<28}{contender:<24}{seconds * 1e9:>14.2f}{ratio:>10}")

"""Runs made up for the tests of reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def bench(
    group: str,
    contender: str,
    seconds: float | Sequence[float],
    *,
    work: float = 1000.0,
    accuracy: tuple[float, float, float, float] | None = (1.0, 0.99, 0.5, 0.25),
    file: str = "made_up",
    **more: Any,
) -> dict[str, Any]:
    """A benchmark's JSON. Of one figure for the seconds, five rounds about it."""
    rounds = (
        [seconds * (1 + 0.01 * i) for i in (-2, -1, 0, 1, 2)]
        if isinstance(seconds, float | int)
        else list(seconds)
    )
    names = ("precision", "recall", "certified", "observed")
    details = {"contender": contender, "work": work, "unit": "tuples", "cpu": rounds, **more}
    if accuracy is not None:
        details["accuracy"] = dict(zip(names, accuracy, strict=True)) | {"rounding": 0.0}
    return {
        "group": group,
        "name": f"test[{contender}]",
        "fullname": f"benchmarks/bench_{file}.py::test[{group}-{contender}]",
        "extra_info": details,
        "stats": {"data": rounds, "median": sorted(rounds)[len(rounds) // 2]},
    }


def run(*benchmarks: dict[str, Any], **added: Any) -> dict[str, Any]:
    """A run's JSON."""
    facts = {"date": "2020-02-02 02:02 UTC", "processor": "Example 9000", "cores": "2 of 2"}
    return {
        "benchmarks": list(benchmarks),
        "datetime": "2020-02-02T02:02:02+00:00",
        "pulse": {"quick": False, "complete": True, "facts": facts, "apart": {"starting Spark": [4.2]}}
        | added,
    }


def figure(name: str, costs: dict[str, dict[float, float]], **more: Any) -> list[dict[str, Any]]:
    """Series of a figure: by contender, seconds a tuple by x."""
    return [
        bench(
            f"{name}, {x:g} a segment",
            contender,
            cost * 1000,
            figure=name,
            x=x,
            x_label="tuples per segment",
            **more,
        )
        for contender, series in costs.items()
        for x, cost in series.items()
    ]


def rich() -> dict[str, Any]:
    """One with everything in it."""
    xs = (1.0, 3.0, 10.0, 100.0, 1000.0)
    return run(
        bench("macd, 1 M ticks", "pulse", 0.01, file="queries", facts={"rows": 12345.0, "kept": "all"}),
        bench("macd, 1 M ticks", "pulse, Spark", 0.3, file="queries"),
        bench("macd, 1 M ticks", "DuckDB, sorted table", 0.2, file="queries"),
        bench("macd, 1 M ticks", "DuckDB, Parquet", 0.4, file="queries"),
        bench("macd, 1 M ticks", "Polars", 0.1, file="queries", memory={"before": 10**8, "most": 3 * 10**8}),
        bench("above, 1 M ticks", "pulse", 0.02, file="queries"),
        bench("above, 1 M ticks", "Polars", 0.015, file="queries", accuracy=(1.0, 1.0, 0.0, 0.0)),
        *figure(
            "Fig. 5 i: filter",
            {
                "pulse": {x: 60e-9 / x + 1e-10 for x in xs},
                "pulse, validating": {x: 90e-9 / x + 9e-9 for x in xs},
                "Numba tuples": dict.fromkeys(xs, 8e-9),
                "DuckDB": dict.fromkeys(xs, 2.5e-08),
            },
            file="fig5_filter",
        ),
        *figure(
            "Fig. 7 ii: window",
            {
                "pulse": dict.fromkeys(xs, 1e-06),
                "Numba tuples": {x: 2e-7 * x for x in xs},
                "numpy": {x: 5e-7 * x**0.7 for x in xs},
            },
            file="fig7_window",
        ),
        failures=[
            {"name": "benchmarks/bench_bad.py::test_it", "message": "AssertionError: off by <one> | two"}
        ],
        skipped=[{"name": "benchmarks/bench_bad.py::test_that", "message": "no recorded data"}],
        chapters={"queries": "Queries of ``several`` kinds."},
    )

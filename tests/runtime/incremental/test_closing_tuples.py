"""Tuples above windows over ranges: a step that begins as a window closes has no part in it, whatever lies between it and the
answer: joins of several windows, unions, aggregates across keys, and exchanges between them (semantics 3.6, 3.8)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pulse.session import Session
from tests.effort import examples
from tests.runtime.execution.asking import SECOND, START, local

SIZE, ADVANCE = 3, 1
KEYS = ("a", "b", "c")
few = examples(15)

Series = list[tuple[int, float]]
"""Ascending seconds, and the value from each on; the last one is the end."""


@st.composite
def series(draw: st.DrawFn) -> Series:
    times = sorted(draw(st.sets(st.integers(0, 14), min_size=2, max_size=6)))
    return [(t, float(draw(st.integers(-4, 4)))) for t in times]


def windows(one: Series, function: str) -> dict[int, float]:
    """By definition: over ``[t - size, t)``, where the series speaks of all of it."""
    found = {}
    for t in range(one[0][0] + SIZE, one[-1][0] + 1):
        spans = [(max(s, t - SIZE), min(e, t), v) for (s, v), (e, _) in itertools.pairwise(one)]
        held = [(e - s, v) for s, e, v in spans if s < e]
        values = [v for _, v in held]
        mean = sum(w * v for w, v in held) / SIZE
        found[t] = {"min": min, "max": max}[function](values) if function != "avg" else mean
    return found


def both(
    one: dict[int, float], other: dict[int, float], how: Callable[[float, float], Any]
) -> dict[int, Any]:
    return {t: how(one[t], other[t]) for t in one if t in other}


W = f"S[size {SIZE} advance {ADVANCE}]"
MIN = f"(select k, min(v) as m from {W}) as W"


def three(data: dict[str, Series]) -> dict[Any, Any]:
    found = {}
    for k, one in data.items():
        low, high, mean = (windows(one, f) for f in ("min", "max", "avg"))
        found |= {(k, t): (low[t], high[t], mean[t]) for t in low}
    return found


def across(function: Callable[[list[float]], float]) -> Callable[[dict[str, Series]], dict[Any, Any]]:
    def truth(data: dict[str, Series]) -> dict[Any, Any]:
        low = [windows(one, "min") for one in data.values()]
        at = {t for one in low for t in one}
        return {(t,): (function([one[t] for one in low if t in one]),) for t in at}

    return truth


def united(data: dict[str, Series]) -> dict[Any, Any]:
    return {
        (tag, k, t): (v,)
        for tag, function in (("low", "min"), ("high", "max"))
        for k, one in data.items()
        for t, v in windows(one, function).items()
    }


def highest_of_tags(data: dict[str, Series]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for (tag, _, t), (v,) in united(data).items():
        found[tag, t] = (max(v, found[tag, t][0]) if (tag, t) in found else v,)
    return found


def spread(data: dict[str, Series]) -> dict[Any, Any]:
    top = {t: v for (t,), (v,) in across(max)(data).items()}
    low = {t: v for (t,), (v,) in across(min)(data).items()}
    return {(t,): (v,) for t, v in both(top, low, lambda a, b: a - b).items() if v > 1}


UNION = f"(select 'low' as tag, k, min(v) as m from {W} union all select 'high' as tag, k, max(v) as m from {W}) as U"
CASES: dict[str, tuple[str, Callable[[dict[str, Series]], dict[Any, Any]]]] = {
    "three aggregates": (f"select k, min(v) as a, max(v) as b, avg(v) as c from {W}", three),
    "largest": (f"select max(m) as x from {MIN}", across(max)),
    "total": (f"select sum(m) as x from {MIN}", across(sum)),
    "mean": (f"select avg(m) as x from {MIN}", across(lambda values: sum(values) / len(values))),
    "union": (f"select tag, k, m from {UNION}", united),
    "largest of a union": (f"select tag, max(m) as x from {UNION} group by tag", highest_of_tags),
    "of two aggregates": (
        f"select A.x - B.x as d from (select 'g' as g, max(m) as x from {MIN}) as A join "
        f"(select 'g' as g, min(m) as x from {MIN}) as B on (A.g = B.g) where A.x - B.x > 1",
        spread,
    ),
}


def table(data: dict[str, Series]) -> pa.Table:
    rows = [(k, START + t * SECOND, v) for k, one in data.items() for t, v in one]
    keys, times, values = zip(*rows, strict=True)
    return pa.table({"k": keys, "t": pa.array(times).cast(pa.timestamp("us")), "v": values})


def asked(data: dict[str, Series], text: str, tmp: Any, session: Any = None) -> dict[Any, Any]:
    model = local().fit(
        table(data), key="k", time="t", model={"v": "step"}, error=0, out=tmp / "m", overwrite=True
    )
    found = (session or local()).sql(text, streams={"S": model}).tuples()
    found = found if isinstance(found, pa.Table) else found.toArrow()
    keys = [name for name in ("tag", "k") if name in found.column_names]
    values = [name for name in found.column_names if f"{name}_err" in found.column_names]
    result = {}
    for row in found.to_pylist():
        second = round(row["t"].timestamp() - START / SECOND)
        place = (*(row[name] for name in keys), second)
        assert place not in result
        assert row["certainty"] == "certain"
        result[place] = tuple(row[name] for name in values)
    return result


@pytest.mark.parametrize("name", CASES)
@few
@given(data=st.dictionaries(st.sampled_from(KEYS), series(), min_size=1))
def test_tuples_are_windows_as_they_close(name: str, data: dict[str, Series], tmp_path_factory: Any) -> None:
    text, truth = CASES[name]
    found, wanted = asked(data, text, tmp_path_factory.mktemp("m")), truth(data)
    assert found.keys() == wanted.keys()
    for place, values in wanted.items():
        assert found[place] == pytest.approx(values, abs=1e-9)


@pytest.mark.parametrize("name", ["largest", "largest of a union", "of two aggregates", "three aggregates"])
def test_points_go_over_exchanges(name: str, tmp_path: Any, spark: SparkSession) -> None:
    """Steps begin at closing times in every series, and one ends earlier than the others."""
    data: dict[str, Series] = {
        "a": [(0, 3.0), (4, -1.0), (6, 2.0), (12, 0.0)],
        "b": [(1, 1.0), (5, 4.0), (9, 0.0)],
        "c": [(0, 0.0), (7, 9.0), (8, -2.0), (14, 1.0)],
    }
    text, truth = CASES[name]
    found, wanted = asked(data, text, tmp_path, Session(spark=spark)), truth(data)
    assert found.keys() == wanted.keys()
    for place, values in wanted.items():
        assert found[place] == pytest.approx(values, abs=1e-9)

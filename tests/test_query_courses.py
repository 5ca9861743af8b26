"""Directions of movement (course, angle_between): random and recorded positions against the tuples, in process and on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.language import LanguageError
from tests.runtime.execution.asking import local, rows_of, tracks, vessels
from tests.test_query_truth import SECOND, SEEDS, Case, case
from tests.truth.measure import values_outside
from tests.truth.pieces import Long

LAGS = (1_000, 250_000, SECOND, 7 * SECOND)
RECORDED = Path(__file__).parents[2] / "shared" / "data" / "ais_nyharbor_20201201_07.parquet"
MEETING = (
    "select A.id as a, B.id as b, angle_between(course(A.x, A.y, 8 s), course(B.x, B.y, 8 s)) as v "
    "from V as A join V as B on (A.id < B.id) where angle_between(course(A.x, A.y, 8 s), course(B.x, B.y, 8 s)) < 20"
)


def direction(dx: Any, dy: Any) -> Any:
    """Degrees clockwise from the y axis, in [0, 360)."""
    turned = np.arctan2(dx, dy) * (Long(180) / np.arctan2(Long(0), Long(-1)))
    return np.where(turned < 0, turned + 360, turned)


def displacement(one: Case, key: Any, t: Any, by: int) -> tuple[Any, Any, Any]:
    """The displacement since, and whether it is known and long enough to have a direction beside rounding."""
    parts, known = [], np.ones(len(t), bool)
    for name in "xy":
        (now, there), (before, was) = (one.tracks[key].at(name, at) for at in (t, t - by))
        parts.append(now - before)
        known &= there & was
    return *parts, known & (np.hypot(*parts) > 1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_courses_and_angles(seed: int) -> None:
    one = case(seed + 9500, names=("x", "y"))
    by = int(one.random.choice(LAGS))
    level = float(one.random.choice([0.0, 45.0, 90.0, 359.0, 725.5]))
    course = f"course(x, y, {by / SECOND!r})"
    answer = one.ask(f"select k, {course} as v, angle_between({course}, {level}) as w from S").segments()

    def truth_at(key: Any, t: Any) -> tuple[Any, Any]:
        dx, dy, known = displacement(one, key, t, by)
        return direction(dx, dy), known

    def angle_at(key: Any, t: Any) -> tuple[Any, Any]:
        value, known = truth_at(key, t)
        turned = np.mod(value - level, 360)
        return np.minimum(turned, 360 - turned), known

    # Beside a jump time is rounded to a fraction of a microsecond, which turns a short displacement a little.
    assert values_outside(answer, ["k"], "v", truth_at, rounding=1e-3)[0] == 0
    assert values_outside(answer, ["k"], "w", angle_at, rounding=1e-3)[0] == 0
    errors = answer.to_pandas()
    assert (errors["w_err"] <= 180).all()
    assert (errors["v_err"] <= 361).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_angles_between_numbers(seed: int) -> None:
    one = case(seed + 9600)
    answer = one.ask("select k, angle_between(100 * x, 30) as w from S").segments()

    def truth_at(key: Any, t: Any) -> tuple[Any, Any]:
        value, there = one.tracks[key].at("x", t)
        turned = np.mod(100 * value - 30, 360)
        return np.minimum(turned, 360 - turned), there

    assert values_outside(answer, ["k"], "w", truth_at, rounding=1e-3)[0] == 0


def test_a_direction_is_as_certain_as_its_displacement_is_long() -> None:
    """A bound of 0.5 on either coordinate, twice, of displacements of several units: a few degrees; of none, all."""
    data = vessels().to_pandas()
    text = (
        "select id, course(x, y, 8 s) as v, angle_between(course(x, y, 8 s), 0) as w from V sample every 4 s"
    )
    found = local().sql(text, streams={"V": tracks()}).to_pandas()
    dx, dy = (data.groupby("id")[name].diff(2) for name in "xy")
    data["truth"], data["length"] = direction(dx.to_numpy(), dy.to_numpy()), np.hypot(dx, dy)
    both = found.merge(data.dropna(), on=["id", "t"])
    assert len(both) == len(found) > 100
    assert (np.abs(both["v"] - both["truth"]) <= both["v_err"]).all()
    long = both[both["length"] > 10]
    assert len(long) > 50
    assert (
        long["w_err"] <= np.degrees(np.arcsin(np.hypot(1, 1) / (long["length"] - np.hypot(1, 1)))) * 1.2
    ).all()
    still = vessels().to_pandas().assign(x=1.0, y=2.0)
    model = local().fit(still, key="id", time="t", model={"x": "linear", "y": "linear"}, error=0.5)
    assert set(local().sql(text, streams={"V": model}).to_pandas()["w_err"]) == {180.0}


def test_a_comparison_beside_north_is_not_certain_of_the_number() -> None:
    """A vessel that goes north within the error of its course: the course may be 1 or 359 degrees, the angle to 0 is small."""
    t = pd.to_datetime(np.arange(0, 100, 4) * 10**9)
    data = pd.DataFrame({"id": 1, "t": t, "x": 0.01 * np.arange(25.0) % 0.02, "y": 10.0 * np.arange(25)})
    model = local().fit(data, key="id", time="t", model={"x": "linear", "y": "linear"}, error=0.1)
    for condition, certain in (
        ("course(x, y, 8 s) < 90", False),
        ("angle_between(course(x, y, 8 s), 0) < 90", True),
    ):
        rows = (
            local()
            .sql(f"select id, x from V where {condition}", streams={"V": model}, possible=True)
            .segments()
        )
        assert (set(rows.column("certainty").to_pylist()) == {"certain"}) is certain


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded positions are not here")
def test_courses_of_recorded_vessels(tmp_path: Path) -> None:
    pytest.importorskip("pyproj")
    session = local()
    model = session.fit(
        str(RECORDED),
        format="ais",
        model={"x": "linear", "y": "linear"},
        error=10,
        max_gap=600,
        out=str(tmp_path / "m"),
    )
    exact = session.fit(
        str(RECORDED),
        format="ais",
        model={"x": "linear", "y": "linear"},
        error=0,
        max_gap=600,
        out=str(tmp_path / "e"),
    )
    text = "select mmsi, {} from S where t >= '2020-12-03 12:00' and t < '2020-12-03 13:00' sample every 60 s"
    found = session.sql(
        text.format("course(x, y, 60 s) as v, speed(x, y, 60 s) as s"), streams={"S": model}
    ).to_pandas()
    truth = session.sql(
        text.format("x - lag(x, 60 s) as dx, y - lag(y, 60 s) as dy"), streams={"S": exact}
    ).to_pandas()
    both = found.merge(truth, on=["mmsi", "t"])
    both = both[np.hypot(both["dx"], both["dy"]) > 1]
    assert len(both) > 500
    assert (np.abs(direction(both["dx"], both["dy"]) - both["v"]) <= both["v_err"] + 1e-6).all()
    fast = both[(both["s"] > 5) & (both["v"] > 30) & (both["v"] < 330)]
    assert len(fast) > 50
    assert fast["v_err"].median() < 8


def test_spark_gives_what_is_given_in_process(spark: SparkSession) -> None:
    streams = {"V": tracks()}
    here, there = (
        local().sql(MEETING, streams=streams),
        pulse.Session(spark=spark).sql(MEETING, streams=streams),
    )
    assert rows_of(there.segments()) == rows_of(here.segments())
    assert len(rows_of(here.segments())) > 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("course(x, y)", r"course takes 3 arguments, course\(x, y, 60 s\), got 2"),
        ("course(x, 8 s)", "course"),
        ("angle_between(x)", r"angle_between takes 2 arguments, angle_between\(x, y\), got 1"),
        ("bearing(x, y)", "there is no function 'bearing'"),
    ],
)
def test_what_has_no_meaning_names_its_place(text: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        local().sql(f"select id, {text} as v from V", streams={"V": tracks()}).segments()

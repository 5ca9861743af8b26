"""Ranges that last less than a nanosecond: they belong to their neighbours, and no window over them is lost.

A line that rises by 10 within a microsecond crosses a threshold, or the error about it, within parts of a nanosecond.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse

START = pd.Timestamp("2024-01-01")
CLOSINGS = 37  # of windows of 2 s every half second, over 20 s
ERRORS = [0, 0.005, 0.0099, 0.01, 0.02, 0.2]


def rising(key: str, low: float, high: float, after: int = 0) -> pd.DataFrame:
    """From one value to another within the microsecond that begins ``after`` so many from the fifth second on."""
    at = np.array([0, 5_000_000 + after, 5_000_001 + after, 20_000_000])
    return pd.DataFrame({"k": key, "t": START + pd.to_timedelta(at, unit="us"), "x": [low, low, high, high]})


def closings(frames: list[pd.DataFrame], error: float, text: str) -> Any:
    """The answer's tuples, as pandas."""
    session = pulse.Session(engine="local")
    table = pd.concat(frames, ignore_index=True)
    model = session.fit(table, key="k", time="t", model={"x": "linear"}, error=error)
    return session.sql(text, streams={"S": model}, possible=True).to_pandas()


@pytest.mark.parametrize("error", ERRORS)
def test_a_steep_line_that_passes_an_excluded_value_loses_no_window(error: float) -> None:
    text = "select k, avg(x) as v from S[size 2 advance 0.5] where x <> 5.000437"
    found = closings([rising("a", 0.0, 10.0)], error, text)
    assert len(found) == CLOSINGS
    truth = [min(max(t - 5.0, 0.0), 2.0) * 5.0 for t in np.arange(2.0, 20.5, 0.5)]
    assert (np.abs(found.v - truth) <= found.v_err + 1e-5).all()  # 1e-5: what the microsecond itself adds


@pytest.mark.parametrize("function", ["min", "max", "sum", "avg"])
@pytest.mark.parametrize("error", ERRORS)
def test_keys_that_cross_a_threshold_leave_no_hole_in_what_another_has(function: str, error: float) -> None:
    text = f"select {function}(x) as v from S[size 2 advance 0.5] where x > 5.000437"
    frames = [
        rising("a", 0.0, 10.0),
        rising("b", 20.0, 20.0),
        rising("c", 0.0, 10.004),
        rising("d", 1.0, 7.5, 1),
    ]
    assert len(closings(frames, error, text)) == CLOSINGS


KEYS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 20.0]),
        st.sampled_from([7.5, 10.0, 10.004, 20.0]),
        st.sampled_from([0, 0, 1, 2]),
    ),
    min_size=1,
    max_size=4,
)


@given(
    KEYS,
    st.sampled_from(ERRORS),
    st.sampled_from(["min", "max", "sum", "avg"]),
    st.sampled_from([">", "<>", "<"]),
    st.sampled_from([5.000437, 5.0, 6.1]),
)
def test_where_one_key_always_passes_every_window_has_a_result(
    keys: list[tuple[float, float, int]], error: float, function: str, relation: str, level: float
) -> None:
    always = -20.0 if relation == "<" else 30.0
    frames = [rising(f"k{i}", *one) for i, one in enumerate(keys)]
    frames.append(rising("z", always, always))
    text = f"select {function}(x) as v from S[size 2 advance 0.5] where x {relation} {level}"
    assert len(closings(frames, error, text)) == CLOSINGS


@pytest.mark.parametrize("excluded", [0.0005, -0.0005, -0.0009])
def test_a_window_that_closes_within_a_nanosecond_of_an_end_has_all_of_its_sum(excluded: float) -> None:
    at = np.array([0, 4_999_999, 5_000_001, 20_000_000])
    table = pd.DataFrame({"k": "a", "t": START + pd.to_timedelta(at, unit="us"), "x": 1e9})
    table["y"] = [-1.0, -1.0, 1.0, 1.0]
    session = pulse.Session(engine="local")
    model = session.fit(table, key="k", time="t", model={"x": "linear", "y": "linear"}, error=0)
    text = f"select k, sum(x) as v from S[size 2 advance 1] where y <> {excluded}"
    found = session.sql(text, streams={"S": model}).tuples().to_pandas()
    assert len(found) == 19
    assert (np.abs(found.v - 2e9) <= found.v_err).all()
    assert (found.v_err < 1e-3).all()


def test_a_maximum_lies_within_its_bound_where_a_segment_ends_at_the_closing_time() -> None:
    table = pd.DataFrame({"k": "a", "t": START + pd.to_timedelta(np.arange(8), unit="s")})
    table["x"] = x = np.array([1.0, 3.0, 2.0, 7.0, 5.0, 1.0, 1.0, 2.0])
    session = pulse.Session(engine="local")
    model = session.fit(table, key="k", time="t", model={"x": "linear"}, error=1)
    text = "select k, max(x) as v from S[size 2 advance 0.5]"
    found = session.sql(text, streams={"S": model}).tuples().to_pandas()
    closing = (found.t - START).dt.total_seconds().to_numpy()
    halves = np.interp(np.arange(0.0, 7.5, 0.5), np.arange(8.0), x)
    truth = np.array([halves[int(2 * t) - 4 : int(2 * t) + 1].max() for t in closing])
    assert len(found) == 11
    assert (np.abs(found.v - truth) <= found.v_err).all()

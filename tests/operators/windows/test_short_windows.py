"""Windows that are far shorter than the rows they lie in, and values whose squares leave the range of floats."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.naive import piece_value
from tests.runtime.execution.asking import local

START = 1_700_000_000_000_000
DAY = 86_400_000_000


def fitted(t: Any, x: Any, truth: str = "step", **bound: Any) -> Any:
    frame = pd.DataFrame({"k": "a", "t": pd.to_datetime(np.asarray(t), unit="us"), "x": x})
    return local().fit(frame, key="k", time="t", model={"x": truth}, **(bound or {"error": 0}))


@pytest.mark.parametrize("truth", ["step", "linear"])
@pytest.mark.parametrize("function", ["avg", "sum", "variance", "stddev"])
def test_rows_of_days_in_windows_of_microseconds(truth: str, function: str) -> None:
    """The end of a row far from its reference is rounded; the window passes it where the next row begins."""
    rng, size = np.random.default_rng(3), 3
    # Every second row is a day and a part long, and the next few microseconds.
    steps = np.where(np.arange(24) % 2 == 0, DAY - rng.integers(1, 10**9, 24), 7)
    t = START + np.concatenate(([0], np.cumsum(steps)))
    x = 100.0 + rng.integers(0, 3, len(t))
    text = f"select k, {function}(x) as v from S[size 0.000003 advance 1 h] group by k"
    made = local().sql(text, streams={"S": fitted(t, x, truth)}).segments().to_pandas()
    checked = 0
    for row in made.itertuples():
        ref = int(row.ref.value // 1000)
        for at in (1, 2):
            if not row.lo < at * 1e-6 < row.hi - 1e-9:
                continue
            mean, variance = moments(t, x, truth, ref + at - size, ref + at)
            got, err = (
                piece_value(ref, np.asarray(row.v), Fraction(ref + at)),
                Fraction(row.v_err),
            )
            if function == "stddev":
                assert max(got - err, 0) ** 2 <= variance <= (got + err) ** 2
            else:
                want = {"avg": mean, "sum": mean * Fraction(size, 10**6), "variance": variance}[function]
                assert abs(got - want) <= err
            checked += 1
    assert checked > 20


def moments(t: Any, x: Any, truth: str, begin: int, end: int) -> tuple[Fraction, Fraction]:
    """The mean and the variance of the truth over a window, exactly."""
    total, squares = Fraction(0), Fraction(0)
    for i in range(len(t) - 1):
        a, b = max(begin, int(t[i])), min(end, int(t[i + 1]))
        if a < b:
            p, q = Fraction(x[i]), Fraction(x[i] if truth == "step" else x[i + 1])
            u, v = (p + (q - p) * Fraction(one - int(t[i]), int(t[i + 1] - t[i])) for one in (a, b))
            total += (b - a) * (u + v) / 2
            squares += (b - a) * (u * u + u * v + v * v) / 3
    mean = total / (end - begin)
    return mean, squares / (end - begin) - mean * mean


@pytest.mark.parametrize("form", ["tuples", "segments"])
def test_bounds_whose_squares_underflow(form: str) -> None:
    """A model within 3e-165 of its truth has a deviation within that, although the squares of both are 0."""
    t = START + 1_000_000 * np.arange(40)
    x = 1e-165 * np.random.default_rng(1).normal(size=40)
    text = "select k, stddev(x) as s, variance(x) as v from S[size 10 advance 1] group by k"
    answer = local().sql(text, streams={"S": fitted(t, x, error=3e-165)})
    made = getattr(answer, form)().to_pandas()
    assert len(made) > 0
    assert (made["s_err"] > 0).all()
    assert (made["v_err"] > 0).all()


@pytest.mark.parametrize("level", [1e-100, 1e18, 1e150])
def test_correlations_of_values_of_any_size(level: float) -> None:
    """The product of two variances of 1e293 is no float, that of their deviations is one."""
    rng = np.random.default_rng(2)
    t = START + 1_000_000 * np.cumsum(rng.integers(1, 3, 40))
    x = level * (1.0 + 1e-3 * np.cumsum(rng.normal(size=40)))
    answer = local().sql(
        "select k, corr(x, x) as r from S[size 10 advance 1] group by k", streams={"S": fitted(t, x)}
    )
    made = answer.segments().to_pandas()
    assert 10 < len(made) < 2000
    assert all(abs(float(row.r[0]) - 1.0) <= row.r_err + 1e-9 for row in made.itertuples())

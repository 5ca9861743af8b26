"""Exponential moving averages of rows: the same wherever evaluation begins, and true after values of any size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError
from pulse.operators.relational.smooth import LEFT_OUT, REACH, smoothed

START = 1_600_000_000_000_000
COLUMNS = Columns((("k", pa.string()),), ("x", "y"))


def stretch(
    rows: list[tuple[int, float, float, float]], *, err: float = 0.0, drift: float | None = None
) -> Relation:
    """Rows of one key without holes: microseconds long, x, its slope, y."""
    ends = START + np.cumsum([0, *(row[0] for row in rows)])
    n = len(rows)
    x = np.array([row[1:3] for row in rows], np.float64).reshape(n, 2)
    return Relation(
        columns=COLUMNS,
        keys=(pa.array(["a"]),),
        offsets=np.array([0, n]),
        ref=ends[:-1],
        lo=np.zeros(n),
        hi=np.array([row[0] / 1e6 for row in rows]),
        models={"x": x, "y": np.array([row[3] for row in rows], np.float64).reshape(n, 1)},
        err={"x": np.full(n, err), "y": np.zeros(n)},
        drift={} if drift is None else {"x": np.full(n, drift)},
        certainty=np.array([3 if row[1] >= 0 else 2 for row in rows], np.uint8),
    )


def pieces_of(relation: Relation, since: int) -> list[Any]:
    """Everything that rows have from an instant on, bit by bit."""
    begin = relation.ref + np.floor(relation.lo * 1e6).astype(np.int64)
    return [
        (
            int(relation.ref[i]),
            relation.lo[i],
            relation.hi[i],
            *(np.trim_zeros(relation.models[name][i], "b").tolist() for name in "xy"),
            *(relation.err[name][i] for name in "xy"),
            relation.certainty[i],
        )
        for i in np.flatnonzero(begin >= since)
    ]


row = st.tuples(
    st.sampled_from([1, 700, 5_000, 60_000, 1_000_000]),
    st.sampled_from([0.0, 1.0, 4.0, -2.0, 1e12, 1e30, 3.3]),
    st.sampled_from([0.0, 0.0, 1.0, -0.5]),
    st.sampled_from([0.0, 2.0, 8.0]),
)


@given(
    st.lists(row, min_size=2, max_size=30),
    st.integers(1, 29),
    st.sampled_from([1, 20, 300, 4_000]),
    st.sampled_from([None, 0.01]),
)
def test_pieces_are_the_same_wherever_evaluation_begins(
    rows: list[tuple[int, float, float, float]], left_out: int, tau: int, drift: float | None
) -> None:
    before = stretch(rows, err=0.1, drift=drift)
    k = min(left_out, len(rows) - 1)
    part = stretch(rows[k:], err=0.1, drift=drift)
    shift = before.ref[k] - START
    part = replace(part, ref=part.ref + shift)
    since = int(before.ref[k]) + REACH * tau
    assert pieces_of(smoothed(part, tau), since) == pieces_of(smoothed(before, tau), since)


def oracle(rows: list[tuple[int, float, float, float]], tau: int, at: int) -> mpmath.mpf:
    """The average of x this many microseconds after the start, from the differential equation, with many digits."""
    value, begin = mpmath.mpf(rows[0][1]), 0
    for length, x, slope, _ in rows:
        for_ = mpmath.mpf(min(at - begin, length)) / 1_000_000
        t = mpmath.mpf(tau) / 1_000_000
        fade = mpmath.exp(-for_ / t)
        first = mpmath.mpf(x) - t * mpmath.mpf(slope)
        value = first + mpmath.mpf(slope) * for_ + (value - first) * fade
        begin += length
        if begin >= at:
            return value
    raise AssertionError("after the rows")


@given(st.lists(row, min_size=1, max_size=20), st.sampled_from([20, 300, 4_000]), st.floats(0, 1))
def test_values_are_within_their_bounds(
    rows: list[tuple[int, float, float, float]], tau: int, where: float
) -> None:
    found = smoothed(stretch(rows), tau)
    at = int(where * (sum(one[0] for one in rows) - 1))
    t = (START + at - found.ref) / 1e6
    i = int(np.flatnonzero((found.lo <= t) & (t < found.hi + 1e-9))[0])
    with mpmath.workdps(60):
        exact = oracle(rows, tau, at)
        mine = evaluate(found.models["x"][i : i + 1], t[i : i + 1])[0]
        assert abs(mpmath.mpf(float(mine)) - exact) <= mpmath.mpf(float(found.err["x"][i])) * (1 + 1e-12)


@pytest.mark.parametrize("since", [0, 1, 3])
def test_a_huge_older_value_does_not_break_the_certificate(since: int) -> None:
    """Also where evaluation begins after it: what it still counts for, 1e30 e^-100 = 4e-14, is within the reach."""
    tau = 1_000
    rows = [(50_000, 1e30, 0.0, 0.0), *((5_000, 1.0, 0.0, 0.0) for _ in range(100))]
    whole = smoothed(stretch(rows), tau)
    with mpmath.workdps(80):
        for ms in (51, 90, 150, 152, 199, 205, 260, 549):
            t = (START + ms * 1_000 - whole.ref) / 1e6
            i = int(np.flatnonzero((whole.lo <= t) & (t < whole.hi))[0])
            off = abs(
                mpmath.mpf(float(evaluate(whole.models["x"][i : i + 1], t[i : i + 1])[0]))
                - oracle(rows, tau, ms * 1_000)
            )
            assert off <= mpmath.mpf(float(whole.err["x"][i]))
            if ms > 160:
                assert whole.err["x"][i] < 1e-5
    later = stretch(rows[1 + since :])
    later = replace(later, ref=later.ref + 50_000 + 5_000 * since)
    after = START + 50_000 + 5_000 * since + REACH * tau
    assert pieces_of(smoothed(later, tau), after) == pieces_of(whole, after)
    assert len(pieces_of(whole, after)) > 10


def test_what_would_count_for_ever_is_refused() -> None:
    with pytest.raises(
        DomainError,
        match=r"ema: no average of 'x' at .*, since its values reach 1e\+40 .* scale it down first",
    ):
        smoothed(stretch([(1_000, 1.0, 0.0, 0.0), (1_000, 1e40, 0.0, 0.0)]), 50)
    with pytest.raises(
        DomainError, match=r"ema: no average of 'x' at .*, since its bound is inf .* filter that range away"
    ):
        smoothed(stretch([(1_000, 1.0, 0.0, 0.0)], err=np.inf), 50)


def test_what_is_left_out_is_small() -> None:
    assert 0 < LEFT_OUT < 1e-31
    found = smoothed(stretch([(1_000_000, 7.0, 0.0, 0.0)]), 1_000)
    assert found.err["x"].max() <= 1e-13
    assert len(smoothed(stretch([]), 1_000)) == 0

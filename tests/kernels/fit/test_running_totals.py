"""Running totals against exact fractions, in one pass and in several."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.fit.running_totals import STATE, running_totals
from tests.effort import examples

VALUES = st.one_of(
    st.integers(-5, 5).map(float),
    st.floats(-1e6, 1e6),
    st.sampled_from([0.1, -0.1, 1e200, -1e200, 1e-300, 5e-324, 1e16, -1e16, float("nan"), float("inf")]),
)


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 20), VALUES), max_size=30), st.integers(0, 30))
def test_totals_err_by_at_most_their_slack(tuples: list[tuple[int, float]], cut: int) -> None:
    t = np.array([at for at, _ in tuples], dtype=np.int64)
    v = np.array([[x for _, x in tuples]], dtype=np.float64)
    adds = np.array([True])
    whole = running_totals(t, v, np.array([0, len(t)]), adds)
    total, mark = Fraction(0), -1
    for i, (at, x) in enumerate(tuples):
        if not np.isfinite(x) or at < mark:
            assert whole.v[0, i] == x or np.isnan(x)  # no place: it stays as it is
            continue
        mark, total = at, total + Fraction(x)
        assert abs(Fraction(float(whole.v[0, i])) - total) <= Fraction(float(whole.slack[0, i]))
    # In two passes, of which the second continues the first.
    cut = min(cut, len(t))
    state, watermark = np.zeros((1, STATE)), np.array([-(1 << 62)])
    first = running_totals(t[:cut], v[:, :cut], np.array([0, cut]), adds, watermark=watermark, state=state)
    used = [at for at, x in tuples[:cut] if np.isfinite(x)]
    watermark = np.array([max(used, default=-(1 << 62))])
    rest = running_totals(
        t[cut:], v[:, cut:], np.array([0, len(t) - cut]), adds, watermark=watermark, state=state
    )
    assert np.array_equal(np.concatenate([first.v, rest.v], axis=1), whole.v, equal_nan=True)
    assert np.array_equal(np.concatenate([first.slack, rest.slack], axis=1), whole.slack)


def test_whole_numbers_are_exact() -> None:
    v = np.ones((2, 1000))
    made = running_totals(np.arange(1000), v, np.array([0, 400, 1000]), np.array([True, False]))
    assert made.v[0].tolist() == [*range(1, 401), *range(1, 601)]
    assert (made.v[1] == 1.0).all()
    assert not made.slack.any()


def test_totals_that_come_again_stay() -> None:
    state = np.array([[6.0, 0.0, 0.0, 0.0]])
    made = running_totals(
        np.array([1, 2, 3]),
        np.array([[5.0, 6.0, 1.0]]),
        np.array([0, 3]),
        np.array([True]),
        known=np.array([True, True, False]),
        state=state,
    )
    assert made.v.tolist() == [[5.0, 6.0, 7.0]]


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="expected v"):
        running_totals(np.arange(3), np.zeros((1, 2)), np.array([0, 3]), np.array([True]))

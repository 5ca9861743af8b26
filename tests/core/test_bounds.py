from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.bounds import Absolute, ErrorBound, Relative, RelativeWithFloor
from pulse.core.errors import BoundError

sizes = st.floats(0, 1e308)
bounds = st.one_of(
    st.builds(Absolute, sizes), st.builds(Relative, sizes), st.builds(RelativeWithFloor, sizes, sizes)
)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("0.01", Absolute(0.01)),
        ("  5 ", Absolute(5.0)),
        (".5", Absolute(0.5)),
        ("1e-3", Absolute(0.001)),
        ("0", Absolute(0.0)),
        ("0.05%", Relative(0.05)),
        ("0.05 %", Relative(0.05)),
        ("0.05% or 0.001", RelativeWithFloor(0.05, 0.001)),
        ("0.05% OR 0.001", RelativeWithFloor(0.05, 0.001)),
        ("1%or2", RelativeWithFloor(1.0, 2.0)),
        (0.25, Absolute(0.25)),
        (3, Absolute(3.0)),
        (np.float64(0.5), Absolute(0.5)),
        (Relative(1.0), Relative(1.0)),
    ],
)
def test_forms(text, bound):
    assert ErrorBound.parse(text) == bound


@pytest.mark.parametrize(
    "text",
    ["", " ", "%", "5%%", "-1", "-1%", "5% or -1", "nan", "inf", "1e999", "0.01 or 5%", "0.01 or 0.02", "5% or", "or 5", "1,5",
     "5 percent", "٣", True, None, math.nan, -1.0, math.inf, 10**400],
)  # fmt: skip
def test_what_is_no_bound_says_what_is(text):
    with pytest.raises(BoundError, match=r"0\.05% or 0\.001"):
        ErrorBound.parse(text)


@given(bounds)
def test_text_round_trips_exactly(bound):
    assert ErrorBound.parse(str(bound)) == bound


@pytest.mark.parametrize(
    ("bound", "text"),
    [(Absolute(5), "5"), (Absolute(0.01), "0.01"), (Relative(0.05), "0.05%"), (RelativeWithFloor(0.05, 0.001), "0.05% or 0.001"),
     (Absolute(-0.0), "0")],
)  # fmt: skip
def test_text_is_what_a_user_writes(bound, text):
    assert str(bound) == text


def test_the_bound_at_a_truth():
    truth = np.array([-200.0, 0.0, 1.0])
    np.testing.assert_array_equal(Absolute(0.5).at(truth), [0.5, 0.5, 0.5])
    np.testing.assert_array_equal(Relative(1.0).at(truth), [2.0, 0.0, 0.01])
    np.testing.assert_array_equal(RelativeWithFloor(1.0, 0.5).at(truth), [2.0, 0.5, 0.5])
    assert Absolute(1.0).at(3.0).shape == ()
    assert Relative(1.0).at([]).shape == (0,)


@given(bounds.filter(lambda b: max(vars(b).values()) < 1e300), st.floats(0, 1e6), st.floats(-1e3, 1e3))
def test_scaling_scales_the_bound_at_every_truth(bound, factor, truth):
    np.testing.assert_allclose(
        bound.scaled(factor).at(truth), factor * bound.at(truth), rtol=1e-12, atol=1e-300
    )


@pytest.mark.parametrize("factor", [-1.0, math.nan, math.inf])
def test_a_bad_factor(factor):
    with pytest.raises(BoundError, match="factor"):
        Absolute(1.0).scaled(factor)


def test_scaling_beyond_floats_is_an_error():
    with pytest.raises(BoundError, match="finite"):
        Relative(1e308).scaled(1e10)


def test_bounds_are_immutable():
    with pytest.raises(AttributeError):
        Absolute(1.0).value = 2.0

"""Constants over a sloping truth: refused before any is made where they would be without end, or far more than tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.fit import greedy_lines as fit_kernels
from pulse.operators.fit import fitter as fitting
from pulse.operators.fit.fitter import FitError
from pulse.operators.fit.slope_check import MOST_OF_ONE, constants_between
from tests.truth.small import fitted

STEEP: dict[str, tuple[list[float], dict[str, Any]]] = {
    "through zero within a relative bound": ([1.0, -1.0], {"error": "0.005%"}),
    "down to zero within a relative bound": ([1.0, 0.0], {"error": "0.005%"}),
    "next to zero within a relative bound": ([1.0, 1e-9], {"error": "0.005%"}),
    "without error": ([1.0, 2.0], {"error": 0}),
    "far more than tuples": ([0.0, 1e6], {"error": 1}),
    "a narrow bound on the integral": ([0.0, 1e6], {"error": None, "drift": 1e-6}),
    "a floor far below": ([1.0, -1.0], {"error": "0.005% or 0.000001"}),
}


def rows(values: list[float]) -> list[tuple[str, float, float]]:
    """A tuple every ten seconds."""
    return [("a", 10.0 * i, value) for i, value in enumerate(values)]


@pytest.mark.parametrize("name", STEEP)
def test_constants_that_cannot_follow_are_refused_before_any_is_made(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, asked = STEEP[name]

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the kernel was called")

    monkeypatch.setattr(fitting, "fit", never)
    with pytest.raises(
        FitError, match=r"cannot follow a sloping truth .*use lines \(degree 1, or auto\)"
    ) as e:
        fitted(rows([5.0, *values]), degree=0, **asked)
    assert f"from {values[0]:g} to {values[1]:g}" in str(e.value) or "from 5 to" in str(e.value)
    assert fit_kernels.fit is not never


@pytest.mark.parametrize("name", STEEP)
def test_lines_follow_what_constants_cannot(name: str) -> None:
    values, asked = STEEP[name]
    assert len(fitted(rows([5.0, *values]), degree=1, **asked)) <= 4


def test_slopes_that_constants_follow_are_fitted() -> None:
    assert len(fitted(rows([0.0, 10.0, 10.0, -5.0]), degree=0, error=0.5)) == pytest.approx(25, abs=3)
    assert len(fitted(rows([1.0, 100.0]), degree=0, error="1%")) == pytest.approx(np.log(100) / 0.02, abs=3)
    assert len(fitted(rows([1.0, 2.0]), degree=0, error="0.5% or 2")) <= 2
    assert len(fitted(rows([7.0, 7.0, 7.0]), degree=0, error=0)) <= 2


@given(
    st.floats(-100, 100),
    st.floats(-100, 100),
    st.sampled_from([0.0, 0.001, 0.05, 0.9, 1.0]),
    st.sampled_from([0.0, 0.01, 1.0]),
)
def test_the_number_of_constants_is_that_of_a_greedy_cover(
    y0: float, y1: float, share: float, floor: float
) -> None:
    """By steps: from the least truth not covered up to the largest that one constant is within the bound of both."""
    found = float(constants_between(np.array([y0]), np.array([y1]), share, floor)[0])
    low, high = sorted((y0, y1))
    if np.isinf(found) or found > 500:
        return
    made, at = 0, low
    while at < high and made < 600:
        constant = at + max(share * abs(at), floor)
        reach = [constant + floor]
        reach += [constant / (1.0 - share)] if share < 1.0 and constant > 0.0 else []
        reach += [constant / (1.0 + share)] if constant < 0.0 else []
        reach += [np.inf] if share >= 1.0 else []
        following = max(one for one in reach if one >= at)
        made, at = made + 1, following if following > at else np.nextafter(at, np.inf)
    assert made <= 1.1 * found + 4
    assert found <= MOST_OF_ONE

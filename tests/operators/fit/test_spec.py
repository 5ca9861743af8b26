"""What may be asked of a fit, and how it is written."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from pulse.core.bounds import Absolute, Relative, RelativeWithFloor
from pulse.core.errors import BoundError, UnknownColumnError
from pulse.core.schema import StreamSchema
from pulse.kernels.fit.greedy_lines import AUTO
from pulse.kernels.fit.truth_intervals import LINEAR, SAMPLES, STEP
from pulse.operators.fit.spec import FitSpec, FitSpecError

XY = StreamSchema.of(key={"id": "int64"}, time="t", modelled={"x": "linear", "y": "step"})


def test_one_bound_for_all_or_one_each() -> None:
    assert FitSpec.of(XY, error=0.5).error == (Absolute(0.5), Absolute(0.5))
    both = FitSpec.of(XY, error={"x": "0.05%"}, drift={"y": "1% or 2"})
    assert both.error == (Relative(0.05), None)
    assert both.drift == (None, RelativeWithFloor(1, 2))


def test_what_the_kernels_get() -> None:
    spec = FitSpec.of(XY, error={"x": "50%", "y": 0}, drift={"y": "1% or 2"}, degree="auto")
    assert spec.bounds.tolist() == [[0.5, 0, -1, -1], [0, 0, 0.01, 2]]
    assert spec.truth.tolist() == [LINEAR, STEP]
    assert spec.degree == AUTO
    samples = StreamSchema.of(time="t", modelled={"z": "samples"})
    assert FitSpec.of(samples, error=1).truth.tolist() == [SAMPLES]


def test_it_pickles_and_goes_into_a_manifest() -> None:
    spec = FitSpec.of(XY, error="0.05% or 1", drift={"x": 3}, max_gap=7_200_000_000, nonfinite="hole")
    again = pickle.loads(pickle.dumps(spec))
    assert again == spec
    assert np.array_equal(again.bounds, spec.bounds)
    details = json.loads(json.dumps(spec.to_json()))
    assert details["error"] == {"x": "0.05% or 1", "y": "0.05% or 1"}
    assert details["drift"] == {"x": "3", "y": None}
    assert (details["max_gap"], details["nonfinite"], details["degree"]) == ("2 h", "hole", 1)


def test_without_a_degree_an_integral_gets_constants_or_lines_all_else_lines() -> None:
    steps = StreamSchema.of(time="t", modelled={"x": "step"})
    assert FitSpec.of(steps, drift="0.005%").to_json()["degree"] == "auto"
    assert FitSpec.of(steps, drift="0.005%", degree=1).to_json()["degree"] == 1
    assert FitSpec.of(steps, error=1).to_json()["degree"] == 1
    assert FitSpec.of(steps, error=1, drift=1).to_json()["degree"] == "auto"
    assert FitSpec.of(steps, error=1, drift=1, degree=1).to_json()["degree"] == 1
    lines = StreamSchema.of(time="t", modelled={"x": "linear", "y": "step"})
    assert (
        FitSpec.of(lines, error=1, drift=1).to_json()["degree"] == 1
    )  # constants on slopes may miss one for the other
    assert FitSpec.of(lines, error={"x": 1}, drift={"y": 1}).to_json()["degree"] == "auto"
    assert (
        FitSpec.of(StreamSchema.of(time="t", modelled={"x": "linear"}), drift=1).to_json()["degree"] == "auto"
    )


@pytest.mark.parametrize("degree", [-1, 6, 1.5, True, "two", "", "²"])
def test_a_degree_that_is_none(degree: object) -> None:
    with pytest.raises(FitSpecError, match="degree: expected 0 to 5 or 'auto'"):
        FitSpec.of(XY, error=1, degree=degree)  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", ["-1", "nan", "1%%", "", -0.5, float("inf")])
def test_a_bound_that_is_none(bound: object) -> None:
    with pytest.raises(BoundError, match="error bound"):
        FitSpec.of(XY, error=bound)


def test_every_attribute_needs_a_bound() -> None:
    with pytest.raises(FitSpecError, match="'y' has no bound; ask for one on its value"):
        FitSpec.of(XY, error={"x": 1})
    with pytest.raises(FitSpecError, match="'x' has no bound"):
        FitSpec.of(XY)


def test_a_bound_on_what_is_not_there() -> None:
    with pytest.raises(UnknownColumnError, match="error: there is no column 'z'"):
        FitSpec.of(XY, error={"z": 1, "x": 1, "y": 1})


def test_samples_have_no_integral() -> None:
    samples = StreamSchema.of(time="t", modelled={"z": "samples"})
    with pytest.raises(FitSpecError, match="'z' is defined only at its samples"):
        FitSpec.of(samples, error=1, drift=1)


def test_integrals_are_bounded_with_lines_at_most() -> None:
    with pytest.raises(FitSpecError, match="needs degree 0, 1 or auto, got 3"):
        FitSpec.of(XY, drift=1, degree=3)


def test_what_a_value_that_is_no_number_may_be() -> None:
    with pytest.raises(FitSpecError, match="nonfinite: expected 'reject' or 'hole', got 'drop'"):
        FitSpec.of(XY, error=1, nonfinite="drop")

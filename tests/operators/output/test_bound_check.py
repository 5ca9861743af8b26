"""Whether answers keep the bound a query states, against every row looked at alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.bounds import ErrorBound
from pulse.core.certainty import LIKELY, POSSIBLE
from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.output.bound_check import BoundCheck, Miss
from pulse.operators.output.sampling import sample
from tests.strategies import EPOCH_US, relations

bounds = st.sampled_from(["0", "0.25", "0.5", "1", "50%", "10% or 0.3", "1e6"])
near = relations(codes=(1, 2, 3), degree=1).filter(lambda one: not len(one) or np.abs(one.lo).max() < 1e6)


def ends(relation, name, row):
    c = relation.models[name][row]
    return [np.polynomial.polynomial.polyval(t, c) for t in (relation.lo[row], relation.hi[row])]


def allowed(bound, values, err):
    """What the bound asks for at the smallest truth that lines through these ends, give or take err, may have."""
    least = 0.0 if min(values) * max(values) <= 0 else min(map(abs, values))
    return float(bound.at(np.array([max(least - err, 0.0)]))[0])


@given(near, bounds)
def test_segments(relation, text):
    bound = ErrorBound.parse(text)
    miss = BoundCheck(((None, bound),)).segments(relation)
    missed = {
        name: [
            i
            for i in np.flatnonzero(relation.certainty >= LIKELY)
            if relation.err[name][i]
            > allowed(bound, ends(relation, name, i), relation.err[name][i]) * (1 + 1e-9)
        ]
        for name in ("x", "y")
    }
    wanted = next((name for name in ("x", "y") if missed[name]), None)
    assert (miss.attribute if miss else None) == wanted
    if miss:
        assert miss.where in {relation.where(i) for i in missed[wanted]}
        assert miss.achieved > miss.asked


@given(near, bounds)
def test_samples(relation, text):
    bound = ErrorBound.parse(text)
    samples = sample(relation, 500_000)
    miss = BoundCheck((("y", bound),)).samples(samples)
    missed = [
        i
        for i in np.flatnonzero(samples.certainty >= LIKELY)
        if samples.err["y"][i]
        > float(bound.at(np.array([max(abs(samples.values["y"][i]) - samples.err["y"][i], 0.0)]))[0])
        * (1 + 1e-9)
    ]
    assert (miss is not None) == bool(missed)
    if miss:
        assert miss.where in {samples.where(i) for i in missed}


@pytest.fixture
def three() -> Relation:
    """Three rows of one key, a second each, with the errors 1, 1.5 and 2."""
    columns = Columns((("k", pa.string()),), ("x", "y"))
    reported = [
        {"k": "a", "ref": EPOCH_US + i * 1_000_000, "lo": 0.0, "hi": 1.0, "x": [4.0], "y": [9.0, 1.0]}
        | {"x_err": 1 + i / 2, "y_err": 1 + i / 2, "x_drift": None, "y_drift": None, "certainty": "likely"}
        for i in range(3)
    ]
    return Relation.from_table(pa.RecordBatch.from_pylist(reported, columns.segment_schema()), columns)


def test_the_worst_row_is_named_and_a_named_bound_goes_before_the_general_one(three):
    asked = BoundCheck(((None, ErrorBound.parse("0.5")), ("x", ErrorBound.parse("10"))))
    assert asked.segments(three) == Miss("y", three.where(2), 2.0, 0.5)
    at = sample(three, 1_000_000)
    assert asked.samples(at) == Miss("y", at.where(2), 2.0, 0.5)


def test_possible_rows_are_not_of_the_answer(three):
    possible = replace(three, certainty=np.full(3, POSSIBLE, np.uint8))
    asked = BoundCheck(((None, ErrorBound.parse("0.1")),))
    assert asked.segments(possible) is None
    assert asked.samples(sample(possible, 1_000_000)) is None


@pytest.mark.parametrize(("err", "fits"), [(1.0, True), (1.0 + 1e-13, True), (1.0 + 1e-9, False)])
def test_rounding_is_let_pass(three, err, fits):
    one = replace(three, err=dict.fromkeys(("x", "y"), np.full(3, err)))
    asked = BoundCheck(((None, ErrorBound.parse("1")),))
    assert (asked.segments(one) is None) == fits
    assert (asked.samples(sample(one, 1_000_000)) is None) == fits


def test_a_relative_bound_on_what_may_be_zero_is_missed_by_any_error(three):
    around = replace(three, models={"x": np.zeros((3, 1)), "y": np.zeros((3, 1))})
    miss = BoundCheck((("x", ErrorBound.parse("50%")),)).segments(around)
    assert miss is not None
    assert miss.asked == 0.0

"""Revisions of streams kept as points: every tuple of the corrected history is one, and nothing else changes."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.schema import StreamSchema
from pulse.operators.fit.points import PointFitter
from pulse.operators.fit.spec import FitSpec
from pulse.operators.refit.api import correct, refit
from tests.operators.fit.fitting import small_streams
from tests.operators.refit.refitting import in_order, loads, revised, revisions_of

POINTS = FitSpec.of(
    StreamSchema.of(
        key={"k": "string"}, time="t", modelled={"x": "samples"}, unmodelled={"u": "string"}, points=True
    )
)


@given(st.data())
def test_revised_points_are_those_of_a_fit_from_scratch(data: st.DataObject) -> None:
    """Row by row, equal instants in order."""
    tuples = in_order(data.draw(small_streams(late=False, holes=False)))
    fitter, again = PointFitter(POINTS), PointFitter(POINTS)
    fitter.push(tuples)
    segments = fitter.finish().sort()
    revisions = revisions_of(data.draw(loads(tuples, POINTS)), POINTS)
    result = refit(POINTS, tuples, segments, revisions)
    corrected = correct(tuples, revisions)
    again.push(corrected.tuples)
    assert revised(segments, result).sort() == again.finish().sort()
    touched = set(zip(revisions.table.column("k").to_pylist(), revisions.times.tolist(), strict=True))
    assert {*zip(result.old.column("k").to_pylist(), result.old.ref.tolist(), strict=True)} <= touched
    assert result.counts.absorbed + result.counts.refitted + result.counts.aside == len(revisions)


def test_a_replacement_by_the_same_value_is_absorbed() -> None:
    """Nothing goes and nothing comes."""
    tuples = pa.table({"k": ["a"], "t": pa.array([5], pa.timestamp("us")), "x": [1.0], "u": ["p"]})
    fitter = PointFitter(POINTS)
    fitter.push(tuples)
    row = {"k": "a", "t": 5, "x": 1.0, "u": "p"}
    result = refit(
        POINTS, tuples, fitter.finish(), revisions_of([dict(row, kind="-U"), dict(row, kind="+U")], POINTS)
    )
    assert (len(result.old), len(result.new), result.counts.absorbed) == (0, 0, 1)

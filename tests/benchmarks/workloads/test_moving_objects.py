"""Moving objects: tuples and segments that say the same, within the stated bound, as many to a segment as asked."""

from __future__ import annotations

import numpy as np
import pytest

from pulse.benchmarks.checks.answers import row_at, values_at
from pulse.benchmarks.workloads.moving_objects import SECOND, Objects, begins
from pulse.benchmarks.workloads.validated import Validation


@pytest.mark.parametrize("per_segment", [1, 1.2, 1.45, 3, 7.5, 40])
def test_as_many_tuples_to_a_segment_as_asked(per_segment: float) -> None:
    made = Objects(6000, per_segment, objects=5)
    assert made.segments == 5 * int(begins(1200, per_segment).sum())
    assert made.segments == pytest.approx(6000 / per_segment, rel=0.02)
    row = row_at(made.relation, made.stream_tuples.id, made.stream_tuples.t)
    counts = np.bincount(row, minlength=made.segments)
    assert (row >= 0).all()
    assert counts.min() >= 1
    assert counts.max() == np.ceil(per_segment)


@pytest.mark.parametrize("per_segment", [1, 2.5, 10])
def test_the_bound_holds_at_every_instant(per_segment: float) -> None:
    made = Objects(3000, per_segment, objects=3, rate=500.0)
    tuples, relation = made.stream_tuples, made.relation
    for g in range(3):
        mine = tuples.id == g
        t = tuples.t[mine]
        instants = np.linspace(t[0], t[-1], 5000).astype(np.int64)
        row = row_at(relation, np.full(len(instants), g), instants)
        assert (row >= 0).all()
        for name, values in (("x", tuples.x[mine]), ("y", tuples.y[mine])):
            truth = np.interp(instants - t[0], t - t[0], values)
            err = relation.err[name][row]
            assert (np.abs(values_at(relation, name, row, instants) - truth) <= err).all()
            assert (err <= made.precision * np.abs(truth)).all()  # relative to the truth, not to the model


def test_the_stream_is_steady_and_the_same_each_time() -> None:
    one, other = Objects(900, 4, objects=9), Objects(900, 4, objects=9)
    for a, b in zip(one.stream_tuples, other.stream_tuples, strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.stream_tuples.id[:10].tolist() == [*range(9), 0]
    assert np.ptp(np.diff(one.stream_tuples.t)) <= 1
    assert not np.array_equal(one.stream_tuples.x, Objects(900, 4, objects=9, stream=1).stream_tuples.x)


def test_segments_follow_each_other() -> None:
    relation = Objects(1000, 3, objects=4).relation
    ends = relation.ref + np.rint(relation.hi * SECOND).astype(np.int64)
    inside = np.diff(relation.group) == 0
    np.testing.assert_array_equal(ends[:-1][inside], relation.ref[1:][inside])


@pytest.mark.parametrize("per_segment", [1, 3, 20])
def test_validation_begins_a_model_every_so_many_tuples(per_segment: int) -> None:
    made = Objects(6000, per_segment, objects=5)
    relation = Validation(made).segments()
    assert len(relation) == made.segments
    tuples = made.stream_tuples
    row = row_at(relation, tuples.id, tuples.t)
    assert (row >= 0).all()
    assert np.bincount(row).max() == per_segment
    for name, values in (("x", tuples.x), ("y", tuples.y)):
        assert (np.abs(values_at(relation, name, row, tuples.t) - values) <= relation.err[name][row]).all()


@pytest.mark.parametrize(("tuples", "per_segment", "noise"), [(5, 1, 0.4), (100, 0.5, 0.4), (100, 1, 1.0)])
def test_what_makes_no_workload(tuples: int, per_segment: float, noise: float) -> None:
    with pytest.raises(ValueError, match="a tuple or more per object"):
        Objects(tuples, per_segment, noise=noise)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from scipy.interpolate import PPoly

from pulse.core.errors import SegmentError
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from tests.core.segment.segments_of import SCHEMA, batch_of, simple
from tests.strategies import segment_arrays

FAR = 1_700_000_000_000_000
XY = StreamSchema.of(time="t", modelled={"x": "linear", "y": "linear"})


def test_runs_end_at_holes_and_leave_points_out():
    batch = simple(
        [
            ("A", 0, 1, [1, 2], FAR),
            ("A", 1, 3, [5], FAR),
            ("A", 4, 5, [0, 0, 1], FAR),
            ("A", 7, 7, [1], FAR),
            ("B", 0, 1, [0], FAR),
        ]
    )
    origin, runs = batch.to_ppoly("price", key="A")
    assert origin == FAR
    assert [run.x.tolist() for run in runs] == [[0, 1, 3], [4, 5]]
    np.testing.assert_allclose(runs[0]([0.5, 2.0]), [2.0, 5.0])
    np.testing.assert_allclose(runs[1]([4.5]), [20.25])
    assert np.isnan(runs[0](3.5))


@given(segment_arrays(max_keys=1, points=False))
def test_round_trip_through_ppoly(arrays):
    batch = batch_of(arrays)
    origin, runs = batch.to_ppoly("price")
    back = SegmentBatch.from_ppoly(
        {"price": runs}, SCHEMA, origin=origin, err={"price": batch.err("price")}, keys={"symbol": batch.column("symbol")},
        drift={"price": batch.column("price_drift")}, unmodelled={"size": batch.column("size")},
    )  # fmt: skip
    begin = batch.ref + np.rint(batch.lo * 1e6).astype(np.int64)
    np.testing.assert_array_equal(back.ref, begin)
    np.testing.assert_allclose(back.lo, 0.0, atol=1e-6)
    for i in range(len(batch)):
        # The same polynomial about another reference: compare values, relative to the size of the terms.
        c, d = batch.coefficients("price")[i], back.coefficients("price")[i]
        t = np.linspace(batch.lo[i], batch.hi[i], 5)
        u = t - (back.ref[i] - batch.ref[i]) / 1e6
        size = np.polynomial.polynomial.polyval(np.abs(t) + abs(batch.lo[i]), np.abs(c))
        got = np.polynomial.polynomial.polyval(u, d)
        assert (np.abs(got - np.polynomial.polynomial.polyval(t, c)) <= 1e-9 * size + 1e-300).all()


def test_a_model_about_its_start_round_trips_bit_by_bit():
    batch = simple(
        [("A", 0, 0.3, [1, 2, 3], FAR), ("A", 0, 0.2, [0.1], FAR + 300_000), ("A", 0, 7, [5], FAR + 10**13)]
    )
    origin, runs = batch.to_ppoly("price")
    back = SegmentBatch.from_ppoly(
        {"price": runs},
        SCHEMA,
        origin=origin,
        err={"price": 0.0},
        keys={"symbol": "A"},
        unmodelled={"size": None},
    )
    np.testing.assert_array_equal(back.ref, batch.ref)
    np.testing.assert_array_equal(back.lo, batch.lo)
    np.testing.assert_array_equal(back.coefficients("price"), batch.coefficients("price"))
    np.testing.assert_allclose(back.hi, batch.hi, atol=2e-9)


def test_another_origin_is_another_zero():
    batch = simple([("A", 0, 1, [1, 2], FAR)])
    origin, (run,) = batch.to_ppoly("price", origin=FAR - 5_000_000)
    assert origin == FAR - 5_000_000
    assert run.x.tolist() == [5, 6]
    assert run(5.5) == 2.0


def test_pieces_too_short_for_a_far_origin():
    batch = simple([("A", 0, 1e-6, [1], FAR), ("A", 1e-6, 2e-6, [1], FAR)])
    with pytest.raises(SegmentError, match="origin nearer"):
        batch.to_ppoly("price", origin=-(10**18))


def test_attributes_of_one_segment_share_breakpoints():
    x = PPoly(np.array([[1.0, 2.0]]), [0.0, 1.0, 2.0])
    y = PPoly(np.array([[1.0, 0.0], [0.0, 1.0]]), [0.0, 1.0, 2.0])
    batch = SegmentBatch.from_ppoly({"x": x, "y": y}, XY, origin=0, err={"x": 0.0, "y": 0.5})
    assert batch.coefficients("y").tolist() == [[0, 1], [1, 0]]
    assert batch.hi.tolist() == [1.0, 1.0]
    other = PPoly(np.array([[1.0, 2.0]]), [0.0, 1.5, 2.0])
    with pytest.raises(SegmentError, match=r"'y'.*breakpoints differ from those of 'x'"):
        SegmentBatch.from_ppoly({"x": x, "y": other}, XY, origin=0, err={"x": 0.0, "y": 0.5})


@pytest.mark.parametrize(
    "part",
    [np.zeros(3), PPoly(np.zeros((1, 1, 2)), [0.0, 1.0]),
     PPoly(np.zeros((1, 1), dtype=complex), [0.0, 1.0]), PPoly(np.zeros((1, 1)), [1.0, 0.0])],
)  # fmt: skip
def test_what_is_no_model(part):
    with pytest.raises(SegmentError, match="PPoly of 'x'"):
        SegmentBatch.from_ppoly({"x": [part], "y": [part]}, XY, origin=0, err={"x": 0.0, "y": 0.0})

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import SegmentError
from pulse.core.segment.batch import SegmentBatch
from tests import naive
from tests.core.segment.segments_of import SCHEMA, simple

FAR = 1_700_000_000_000_000


def ranges(batch):
    return [
        (key, ref / 1e6 + lo, ref / 1e6 + hi)
        for key, ref, lo, hi in zip(
            batch.column("symbol").to_pylist(), batch.ref, batch.lo, batch.hi, strict=True
        )
    ]


@pytest.mark.parametrize(
    ("arrivals", "left"),
    [
        ([(0, 10), (3, 5)], [(0, 3), (3, 5)]),
        ([(0, 10), (10, 20)], [(0, 10), (10, 20)]),
        ([(5, 10), (0, 6)], [(0, 6)]),
        ([(5, 10), (0, 2)], [(5, 10), (0, 2)]),
        ([(0, 10), (3, 5), (2, 4)], [(0, 2), (2, 4)]),
        ([(0, 10), (0, 10)], [(0, 10)]),
        ([(0, 10), (0, 5)], [(0, 5)]),
        ([(0, 10), (4, 4)], [(0, 4), (4, 4)]),
        ([(0, 10), (0, 0)], [(0, 0)]),
        ([(4, 4), (0, 10)], [(0, 10)]),
        ([(4, 4), (4, 4)], [(4, 4)]),
        ([(10, 10), (0, 10)], [(10, 10), (0, 10)]),
        ([], []),
    ],
)
def test_the_later_rules_from_its_start_on(arrivals, left):
    batch = simple([("A", a, b, [i]) for i, (a, b) in enumerate(arrivals)], at_rest=False)
    assert ranges(batch.apply_updates()) == [("A", *r) for r in left]


def test_keys_do_not_meet_and_order_of_arrival_stays():
    rows = [("B", 0, 10, [1]), ("A", 0, 10, [2]), ("B", 5, 20, [3]), ("A", 2, 3, [4])]
    after = simple(rows, at_rest=False).apply_updates()
    assert ranges(after) == [("B", 0, 5), ("A", 0, 2), ("B", 5, 20), ("A", 2, 3)]
    assert after.coefficients("price")[:, 0].tolist() == [1, 2, 3, 4]


spans = st.tuples(
    st.sampled_from("AB"), st.integers(0, 12), st.integers(0, 6), st.sampled_from([0, 1, 7, 10**9])
)


@given(st.lists(spans, max_size=12), st.sampled_from([1e-6, 0.25, 1.0]))
def test_updates_agree_with_a_table_kept_tuple_by_tuple(rows, step):
    # References differ by row, so the same instant is written in different ways.
    batch = simple(
        [
            (k, (a - shift) * step, (a + n - shift) * step, [i], FAR + round(shift * step * 1e6))
            for i, (k, a, n, shift) in enumerate(rows)
        ],
        at_rest=False,
    )
    after = batch.apply_updates()
    expected = naive.apply_updates([(k, a, a + n) for k, a, n, _ in rows])
    got = {
        int(c): (round(((r - FAR) / 1e6 + lo) / step), round(((r - FAR) / 1e6 + hi) / step))
        for c, r, lo, hi in zip(after.coefficients("price")[:, 0], after.ref, after.lo, after.hi, strict=True)
    }
    assert got == expected


@given(st.lists(spans, max_size=12))
def test_what_is_left_is_at_rest(rows):
    batch = simple([(k, a, a + n, [1.0]) for k, a, n, _ in rows], at_rest=False)
    after = batch.apply_updates()
    again = simple([(k, lo, hi, [1.0]) for (k, lo, hi) in ranges(after)])  # builds: no overlaps
    assert len(again) == len(after)
    assert after.apply_updates().equals(after)


def test_a_revision_is_no_update():
    batch = simple([("A", 0, 1, [1]), ("A", 0, 1, [2])], at_rest=False, kind=["-U", "+U"])
    with pytest.raises(SegmentError, match="revisions are not updates"):
        batch.apply_updates()


def test_updates_in_order_are_settled_in_bulk():
    n = 200_000
    batch = SegmentBatch.from_arrays(
        SCHEMA, keys={"symbol": "A"}, ref=np.arange(n) * 1_000_000, lo=0.0, hi=60.0,
        models={"price": np.zeros((n, 2))}, err={"price": 0.0}, unmodelled={"size": 0}, at_rest=False,
    )  # fmt: skip
    after = batch.apply_updates()
    assert after.hi[:-1].tolist() == [1.0] * (n - 1)
    assert after.hi[-1] == 60.0
    assert np.shares_memory(after.coefficients("price"), batch.coefficients("price"))

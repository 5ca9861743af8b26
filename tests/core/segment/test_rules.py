from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.errors import (
    ElementError,
    EmptyModelError,
    NegativeBoundError,
    NotFiniteError,
    NullKeyError,
    OverlapError,
    PointError,
    ReversedRangeError,
    SegmentError,
    TimestampError,
)
from pulse.core.segment.batch import SegmentBatch
from tests.core.segment.segments_of import SCHEMA, simple

FAR = 1_700_000_000_000_000


def build(**changes):
    arguments = {
        "keys": {"symbol": ["A", "B"]}, "ref": [0, 1_000_000], "lo": [0.0, 0.0], "hi": [1.0, 1.0],
        "models": {"price": [[1.0, 2.0], [3.0, 4.0]]}, "err": {"price": [0.0, 0.0]}, "unmodelled": {"size": 1},
    }  # fmt: skip
    return SegmentBatch.from_arrays(SCHEMA, **{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"hi": [1.0, -1.0]}, ReversedRangeError, r"hi -1.0 is below lo 0.0"),
        ({"lo": [0.0, math.nan]}, NotFiniteError, "'lo' is nan"),
        ({"hi": [1.0, math.inf]}, NotFiniteError, "'hi' is inf"),
        ({"hi": [1.0, None]}, NotFiniteError, "'hi' is null"),
        ({"models": {"price": [[1.0, 2.0], [3.0, math.nan]]}}, NotFiniteError, r"'price' has coefficients \[3.0, nan\]"),
        ({"models": {"price": (np.array([1.0, -math.inf]), [0, 1, 2])}}, NotFiniteError, r"\[-inf\]"),
        ({"models": {"price": pa.array([[1.0], [None]], pa.list_(pa.float64()))}}, NotFiniteError, r"\[None\]"),
        ({"models": {"price": (np.array([1.0]), [0, 1, 1])}}, EmptyModelError, "'price' has no coefficient"),
        ({"models": {"price": pa.array([[1.0], None], pa.list_(pa.float64()))}}, EmptyModelError, "'price' is null"),
        ({"err": {"price": [0.0, math.nan]}}, NotFiniteError, "'price_err' is nan"),
        ({"err": {"price": [0.0, math.inf]}}, NotFiniteError, "'price_err' is inf"),
        ({"err": {"price": [0.0, None]}}, NotFiniteError, "'price_err' is null"),
        ({"err": {"price": [0.0, -1e-300]}}, NegativeBoundError, "'price_err' is -1e-300"),
        ({"drift": {"price": [None, -1.0]}}, NegativeBoundError, "'price_drift' is -1.0"),
        ({"drift": {"price": [None, math.inf]}}, NotFiniteError, r"'price_drift' is inf.*null when unknown"),
        ({"keys": {"symbol": ["A", None]}}, NullKeyError, "'symbol' is null"),
        ({"point": [False, True]}, PointError, "flagged as a point, but lo differs from hi"),
        ({"hi": [1.0, 0.0], "point": [False, False]}, PointError, "lo equals hi, but it is not flagged"),
        ({"point": [False, None]}, SegmentError, "'point' is null"),
        ({"kind": ["+I", "I"]}, ElementError, "'kind' is 'I'; expected one of"),
        ({"segment_id": [1, None]}, SegmentError, "'segment_id' is null"),
        ({"hi": [1.0, 1e13]}, TimestampError, "31,700 years"),
        ({"lo": [0.0, -1e300]}, TimestampError, "31,700 years"),
    ],
)  # fmt: skip
def test_every_broken_rule_names_row_and_key(changes, error, message):
    with pytest.raises(error, match=rf"row 1 \(symbol=('B'|None).*{message}"):
        build(**changes)


def test_the_message_says_where_and_when():
    with pytest.raises(
        ReversedRangeError, match=r"segments, row 1 \(symbol='B', from 1970-01-01T00:00:01\.000000Z\)"
    ):
        build(hi=[1.0, -1.0])


def test_a_bad_row_in_a_slice_is_counted_from_the_slice():
    table = simple([("A", 0, 1, [1]), ("B", 0, 1, [1, 2]), ("C", 0, 1, [3])]).to_arrow()
    table = table.set_column(5, "price", pa.array([[1.0], [1.0, 2.0], [math.nan]])).slice(1)
    with pytest.raises(NotFiniteError, match=r"row 1 \(symbol='C'"):
        SegmentBatch.from_arrow(table, SCHEMA)
    assert len(SegmentBatch.from_arrow(table, SCHEMA, check=False)) == 2


def test_bad_rows_before_a_slice_do_not_count():
    table = simple([("A", 0, 1, [1]), ("B", 0, 1, [2])]).to_arrow()
    table = table.set_column(5, "price", pa.array([[math.nan], [1.0]])).slice(1)
    assert SegmentBatch.from_arrow(table, SCHEMA).coefficients("price").tolist() == [[1.0]]


@pytest.mark.parametrize(
    "rows",
    [
        [("A", 0, 2, [1]), ("A", 1, 3, [1])],
        [("A", 1, 3, [1]), ("A", 0, 2, [1])],
        [("A", 0, 9, [1]), ("A", 1, 2, [1])],
        [("A", 0, 9, [1]), ("A", 0, 9, [1])],
        [("A", 0, 9, [1]), ("A", 4, 4, [1])],
        [("A", 4, 4, [1]), ("A", 4, 4, [1])],
        [("A", 0, 9, [1]), ("A", 0, 0, [1]), ("A", 5, 10, [1])],
        [("A", 0, 9, [1]), ("A", 1e-10, 1e-10, [1]), ("A", 5, 10, [1])],
        [("A", 0, 1, [1], FAR), ("A", -0.5, 0.5, [1], FAR + 1_000_000)],
        [("A", 0, 1e-6, [1], FAR), ("A", 0.5e-6, 2e-6, [1], FAR)],
    ],
)
def test_overlaps_of_one_key(rows):
    with pytest.raises(OverlapError, match=r"symbol='A'.*at_rest=False"):
        simple([("B", 0, 1, [1]), *rows])
    assert len(simple(rows, at_rest=False)) == len(rows)


@pytest.mark.parametrize(
    "rows",
    [
        [("A", 0, 1, [1]), ("A", 1, 2, [1])],
        [("A", 1, 2, [1]), ("A", 0, 1, [1])],
        [("A", 0, 2, [1]), ("B", 1, 3, [1])],
        [("A", 0, 1 + 1e-10, [1]), ("A", 1, 2, [1])],
        [("A", 0, 1, [1]), ("A", 1, 1, [1]), ("A", 1, 2, [1])],
        [("A", 0, 1, [1]), ("A", 1, 2, [1]), ("A", 1 + 1e-12, 1 + 1e-12, [1])],
        [("A", 0, 0.1 + 0.2, [1]), ("A", 0.3, 2, [1])],
        [("A", 1e9, 1e9 + 0.1, [1], FAR - 10**15), ("A", 0.1, 0.2, [1], FAR)],
        [("A", 0, 1, [1], -(10**18)), ("A", 0, 1, [1], 10**18)],
    ],
)
def test_what_only_touches_does_not_overlap(rows):
    assert len(simple(rows)) == len(rows)


def test_a_changelog_is_no_table_at_rest():
    assert len(simple([("A", 0, 2, [1]), ("A", 0, 2, [2])], kind=["-U", "+U"])) == 2
    with pytest.raises(OverlapError):
        simple([("A", 0, 2, [1]), ("A", 0, 2, [2])], kind=["+I", "+I"])


def test_two_hundred_thousand_segments_are_checked_in_bulk():
    n = 200_000
    ref = np.arange(n, dtype=np.int64) // 100 * 1_000_000
    keys = pa.array([f"K{i}" for i in range(100)]).take(pa.array(np.arange(n) % 100))
    batch = SegmentBatch.from_arrays(
        SCHEMA, keys={"symbol": keys}, ref=ref, lo=0.0, hi=1.0, models={"price": np.ones((n, 2))}, err={"price": 0.0},
        unmodelled={"size": 1},
    )  # fmt: skip
    assert not batch.is_sorted
    assert batch.sort().is_sorted

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.decimals import as_doubles


@given(
    st.lists(st.none() | st.integers(-(10**18) + 1, 10**18 - 1), max_size=30),
    st.integers(-3, 18),
    st.sampled_from([pa.decimal128, pa.decimal256]),
    st.integers(0, 3),
)
def test_decimals_are_the_nearest_doubles(
    digits: list[int | None], scale: int, kind: object, cut: int
) -> None:
    values = [None if one is None else Decimal(one).scaleb(-scale) for one in digits]
    column = pa.array(values, kind(25, scale))[cut:]  # type: ignore[operator]
    assert as_doubles(column).to_pylist() == [None if one is None else float(one) for one in values[cut:]]


def test_prices_are_what_was_written() -> None:
    """Arrow's cast makes 100.80000000000001 of 100.8000."""
    prices = pa.chunked_array(
        [pa.array([Decimal(i) / 100], pa.decimal128(12, 4)) for i in range(10_000, 10_400)]
    )
    assert as_doubles(prices).to_pylist() == [i / 100 for i in range(10_000, 10_400)]


def test_other_numbers() -> None:
    assert as_doubles(pa.array([1, None], pa.int8())).to_pylist() == [1.0, None]
    assert as_doubles(pa.chunked_array([], pa.decimal128(5, 2))).type == pa.float64()
    with pytest.raises(pa.ArrowInvalid):
        as_doubles(pa.array([2**53 + 1]))
    assert as_doubles(pa.array([2**53 + 1]), safe=False).to_pylist() == [2.0**53]

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pulse.kernels import double_double

# Within these, neither a product nor its error term leaves the normal numbers.
numbers = st.one_of(
    st.floats(-1e100, 1e100, allow_subnormal=False),
    st.integers(-(2**60), 2**60).map(float),
    st.sampled_from([0.0, 1.0, -1.0, 1e-6, 1e6, 1.7e15, 2.0**53, 1 / 3]),
).filter(lambda x: x == 0.0 or abs(x) >= 1e-100)


@st.composite
def double_doubles(draw):
    high, low = draw(numbers), draw(st.floats(-1, 1, allow_subnormal=False))
    return high, low * float(np.spacing(abs(high))) / 2


def exactly(*parts):
    return sum((Fraction(float(x)) for x in parts), Fraction(0))


def near(found, expected, scale):
    """Within sixteen units of 2**-104 of the scale, and with the low part below the high one."""
    high, low = found
    assert high + low == high
    assert abs(exactly(high, low) - expected) <= 16 * Fraction(2) ** -104 * scale


@given(numbers, numbers)
@example(1e100, 1e-100)
@example(2.0**53, 1.0)
@example(1.0, -1.0)
def test_sums_lose_nothing(a, b):
    s, e = double_double.two_sum(a, b)
    assert s == a + b
    assert exactly(s, e) == exactly(a, b)
    large, small = (a, b) if abs(a) >= abs(b) else (b, a)
    assert double_double.fast_two_sum(large, small) == (s, e)


@given(numbers, numbers)
@example(1e9 + 1e-7, 1e6)
@example(1 / 3, 3.0)
def test_products_lose_nothing(a, b):
    assume(a * b == 0.0 or abs(a * b) > 1e-150)
    p, e = double_double.two_product(a, b)
    assert p == a * b
    assert exactly(p, e) == Fraction(a) * Fraction(b)


@given(double_doubles(), double_doubles())
def test_sums_of_double_doubles(a, b):
    scale = abs(exactly(*a)) + abs(exactly(*b))
    near(double_double.dd_add(*a, *b), exactly(*a, *b), scale)
    near(double_double.dd_add_float(*a, b[0]), exactly(*a, b[0]), scale)


@given(double_doubles(), double_doubles())
def test_products_of_double_doubles(a, b):
    assume(all(x == 0.0 or abs(x) > 1e-130 for x in (a[0] * b[0], a[0] * b[1], a[1] * b[0])))
    for other in (b, (b[0], 0.0)):
        expected = exactly(*a) * exactly(*other)
        near(double_double.dd_multiply(*a, *other), expected, abs(expected))
    near(
        double_double.dd_multiply_float(*a, b[0]),
        exactly(*a) * Fraction(b[0]),
        abs(exactly(*a) * Fraction(b[0])),
    )


@given(st.integers(-(2**53), 2**53))
@example(1_700_000_000_000_001)
def test_whole_microseconds_are_seconds_without_loss(microseconds):
    high, low = double_double.dd_quotient(float(microseconds), 1e6)
    assert high == microseconds / 1e6
    near((high, low), Fraction(microseconds, 10**6), abs(Fraction(microseconds, 10**6)))


def test_a_long_sum_that_cancels_keeps_its_small_rest():
    high, low = 0.0, 0.0
    values = [1e16, 1.0, 1e-3, -1e16, 1e10, -1.0, -1e10]
    for x in values:
        high, low = double_double.dd_add_float(high, low, x)
    assert abs(high + low - 1e-3) <= 1e16 * 2.0**-103  # a plain sum gives 0

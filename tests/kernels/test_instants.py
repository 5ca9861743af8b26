"""Instants: differences of references are exact, and the tolerance follows the numbers it was made from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.instants import GRAIN, gap, meets, seconds_between, tolerance
from tests import naive

refs = st.integers(-(2**52), 2**52)
offsets = st.floats(-1e9, 1e9)


@given(refs, offsets, refs, offsets)
def test_gap_is_within_tolerance_of_the_exact_difference(ref_a, a, ref_b, b):
    exact = (naive.instant(ref_b, b) - naive.instant(ref_a, a)) / 10**6
    assert abs(gap(ref_a, a, ref_b, b) - exact) <= tolerance(ref_a, a, ref_b, b)


@given(refs, offsets, refs, offsets)
def test_gap_changes_its_sign_and_meets_does_not_care_for_order(ref_a, a, ref_b, b):
    assert gap(ref_a, a, ref_b, b) == -gap(ref_b, b, ref_a, a)
    assert meets(ref_a, a, ref_b, b) == meets(ref_b, b, ref_a, a)


@given(refs, st.integers(-(10**15), 10**15), st.integers(-(10**15), 10**15))
def test_one_instant_about_two_references_meets_itself(ref, to_a, to_b):
    assert meets(ref + to_a, -to_a / 1e6, ref + to_b, -to_b / 1e6)


@given(refs, st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_neighbouring_microseconds_are_distinguished(ref, far, microseconds):
    assert not meets(ref, 0.0, ref + far, (microseconds - far) / 1e6)


def test_at_the_epoch_of_today_a_microsecond_is_exact_and_half_a_grain_is_nothing():
    today = 1_700_000_000_000_000
    assert seconds_between(today, today + 1) == 1e-6
    assert gap(today, 0.0, today + 1, 0.0) == 1e-6
    assert not meets(today, 0.0, today + 1, 0.0)
    assert meets(today, 0.0, today, GRAIN / 2)
    assert not meets(today, 0.0, today, GRAIN * 2)

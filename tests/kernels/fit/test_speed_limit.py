"""Unreachable positions against a slow oracle in exact arithmetic that decides each key by itself."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.fit.speed_limit import NONE, SETTLED, UNDECIDED, unreachable

SECOND = 10**6
Report = tuple[int, float, float]


def near(a: Report, b: Report, speed: int) -> bool:
    """Reachability with squares of fractions; positions are whole numbers, so that distances are not rounded."""
    reach = speed * (Fraction(abs(a[0] - b[0]), SECOND) + 1)
    return Fraction(a[1] - b[1]) ** 2 + Fraction(a[2] - b[2]) ** 2 <= reach**2


def naive(reports: list[Report], speed: int, last: Report | None = None) -> list[bool]:
    """The rule of the kernel, with lists of kept reports and of the chain that may replace them."""
    kept: list[int] = []
    chain: list[int] = []
    passed: list[int] = []
    newest, settled, seen = last, last is not None, 0
    for i, one in enumerate(reports):
        if not np.isfinite(one[1:]).all() or (newest is not None and one[0] < newest[0]):
            passed.append(i)
            continue
        seen += 1
        if newest is None or near(one, newest, speed):
            kept.append(i)
            chain, newest = [], one
        else:
            chain = [*chain, i] if chain and near(one, reports[chain[-1]], speed) else [i]
            if not settled and len(chain) > len(kept):
                kept, chain, newest = chain, [], one
        settled = settled or len(kept) >= SETTLED or seen >= UNDECIDED
    return [i not in kept and i not in passed for i in range(len(reports))]


REPORTS = st.lists(
    st.tuples(
        st.integers(0, 40).map(lambda s: s * SECOND // 2),
        st.sampled_from([0.0, 3.0, 6.0, 1000.0, 1003.0, 5000.0, np.nan, np.inf]),
        st.sampled_from([0.0, 4.0, 1000.0]),
    ),
    max_size=14,
)


@given(st.lists(REPORTS, max_size=4), st.integers(1, 5), st.booleans())
def test_the_rule_key_by_key(keys: list[list[Report]], speed: int, in_order: bool) -> None:
    if in_order:
        keys = [sorted(one, key=lambda report: report[0]) for one in keys]
    flat = [report for one in keys for report in one]
    t = np.array([one[0] for one in flat], dtype=np.int64)
    xy = np.array([[one[1] for one in flat], [one[2] for one in flat]]).reshape(2, len(flat))
    offsets = np.cumsum([0, *map(len, keys)])
    expected = [removed for one in keys for removed in naive(one, speed)]
    assert unreachable(t, xy, offsets, speed=speed).tolist() == expected


def of(reports: list[Report], speed: float = 30.0, **more: object) -> list[bool]:
    t = np.array([one[0] * SECOND for one in reports])
    xy = np.array([one[1:] for one in reports], dtype=float).T
    return unreachable(t, xy, np.array([0, len(reports)]), speed=speed, **more).tolist()  # type: ignore[arg-type]


def test_one_wrong_report_costs_itself_wherever_it_stands() -> None:
    track = [(10 * i, 100.0 * i, 0.0) for i in range(20)]
    for wrong in range(20):
        reports = [(t, 1e6 if i == wrong else x, y) for i, (t, x, y) in enumerate(track)]
        assert of(reports) == [i == wrong for i in range(20)]


def test_two_vessels_with_one_number_leave_one_track() -> None:
    reports = [(10 * i, 100.0 * i + (1e6 if i % 2 else 0.0), 0.0) for i in range(30)]
    assert of(reports) == [bool(i % 2) for i in range(30)]


def test_a_settled_track_is_not_overturned_but_time_makes_far_places_reachable() -> None:
    reports = [(10 * i, 0.0, 0.0) for i in range(SETTLED)] + [
        (1000 + 10 * i, 33_000.0, 0.0) for i in range(30)
    ]
    removed = of(reports)
    back = next(i for i in range(SETTLED, 35) if not removed[i])
    assert removed == [False] * SETTLED + [True] * (back - SETTLED) + [False] * (35 - back)
    assert 30 * (reports[back][0] - 10 * (SETTLED - 1) + 1) >= 33_000


def test_a_key_that_agrees_with_nothing_is_settled_after_some_reports() -> None:
    reports = [(i, 1e9 * i, 0.0) for i in range(UNDECIDED + 10)]
    assert of(reports) == [False, *[True] * (UNDECIDED + 9)]


def test_what_is_known_before_continues() -> None:
    reports = [(10, 1e6, 0.0), (20, 1e6, 0.0), (30, 1e6, 0.0), (40, 5.0, 0.0)]
    last = {"last_time": np.array([0]), "last": np.zeros((2, 1))}
    assert of(reports, **last) == [True, True, True, False]
    none = {"last_time": np.array([NONE]), "last": np.zeros((2, 1))}
    assert of(reports, **none) == [False, False, False, True]


def test_degrees_on_the_sphere_across_the_date_line() -> None:
    step = 0.001  # 111 m
    reports = [(10 * i, 0.0, (179.998 + step * i + 180) % 360 - 180) for i in range(6)]
    assert of(reports, 15.0, degrees=True) == [False] * 6
    assert of(reports, 9.0, degrees=True) == [False, *[True] * 5]  # 111 m in 11 s


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="as many times as positions"):
        unreachable(np.zeros(2, np.int64), np.zeros((2, 3)), np.array([0, 2]), speed=1.0)

"""Windows over tuples against a naive look at every closing time."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.windows.tuple_window import MAX, SUM, aggregate_spans, window_closings, window_pieces
from tests import naive

FUNCTIONS = {"sum": SUM, "max": MAX}
groups = st.lists(st.lists(st.integers(-40, 40), max_size=12).map(sorted), min_size=1, max_size=3)
anything = st.one_of(
    st.floats(-1e12, 1e12, allow_subnormal=False), st.sampled_from([1e300, -1e300, 1e-300, 1e-12, 0.0])
)


def grouped(given: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *(len(one) for one in given)])
    return np.array([t for one in given for t in one], np.int64), offsets


@given(groups, st.integers(1, 25))
def test_pieces_hold_the_tuples_of_every_closing_time(given: list[list[int]], size: int) -> None:
    times, offsets = grouped(given)
    spans = window_pieces(times, offsets, size)
    for g, own in enumerate(given):
        found: dict[int, list[int]] = {}
        for i in range(spans.offsets[g], spans.offsets[g + 1]):
            assert spans.start[i] < spans.end[i]
            for t in range(spans.start[i], spans.end[i]):
                assert t not in found
                found[t] = times[spans.tail[i] : spans.head[i]].tolist()
        for t in range(-70, 130):
            assert found.get(t, []) == [one for one in own if t - size <= one < t]


@given(groups, st.integers(1, 25), st.integers(1, 30))
def test_closings_are_the_multiples_that_hold_a_tuple(given: list[list[int]], size: int, every: int) -> None:
    times, offsets = grouped(given)
    made = window_closings(times, offsets, size, every)
    found = {}
    for s in range(len(made.group)):
        for i in range(made.offsets[s], made.offsets[s + 1]):
            t = int(made.first[s] + (i - made.offsets[s]) * every)
            found[int(made.group[s]), t] = times[made.tail[i] : made.head[i]].tolist()
    wanted = {}
    for g, own in enumerate(given):
        for t in range(-150, 150):
            held = [one for one in own if t - size <= one < t]
            if t % every == 0 and held:
                wanted[g, t] = held
    assert found == wanted
    assert (np.diff(made.group) >= 0).all()


@given(st.lists(st.tuples(st.integers(0, 50), anything), min_size=1, max_size=30), st.integers(1, 20))
def test_sums_and_extrema_are_right_whatever_the_window_held_before(
    given: list[tuple[int, float]], size: int
) -> None:
    given = sorted(given, key=lambda one: one[0])
    times, values = np.array([t for t, _ in given], np.int64), np.array([v for _, v in given])
    spans = window_pieces(times, np.array([0, len(times)]), size)
    for function, kind in FUNCTIONS.items():
        got = aggregate_spans(values, spans.tail, spans.head, kind)
        for i, t in enumerate(spans.start):
            want = naive.tuple_window(given, int(t), size, function)
            assert want is not None
            held = [abs(Fraction(v)) for time, v in given if t - size <= time < t]
            assert abs(Fraction(got[i]) - Fraction(want)) <= sum(held) * Fraction(1, 2**100) + abs(
                Fraction(want)
            ) * Fraction(1, 2**52)


def test_a_huge_value_leaves_nothing_behind() -> None:
    values = np.array([1.0, 1e300, 2.0, 3.0])
    tail, head = np.array([0, 1, 2, 3]), np.array([1, 3, 4, 4])
    assert aggregate_spans(values, tail, head, SUM).tolist() == [1.0, 1e300, 5.0, 3.0]


def test_no_tuples_no_windows() -> None:
    nothing = np.empty(0, np.int64)
    assert len(window_pieces(nothing, np.zeros(3, np.int64), 5).start) == 0
    assert len(window_closings(nothing, np.zeros(1, np.int64), 5, 2).tail) == 0
    assert len(aggregate_spans(np.empty(0), nothing, nothing, MAX)) == 0


@pytest.mark.parametrize(
    ("call", "reported"),
    [
        (lambda: window_pieces(np.array([2, 1]), np.array([0, 2]), 5), "non-descending times"),
        (lambda: window_pieces(np.array([1, 2]), np.array([0, 1]), 5), "offsets"),
        (lambda: window_pieces(np.array([1, 2]), np.array([0, 2]), 0), "size_us > 0"),
        (lambda: window_closings(np.array([1, 2]), np.array([0, 2]), 5, 0), "every_us > 0"),
        (lambda: aggregate_spans(np.ones(2), np.array([1, 0]), np.array([2, 2]), SUM), "ascending spans"),
        (lambda: aggregate_spans(np.ones(2), np.array([0]), np.array([3]), SUM), "ascending spans"),
        (lambda: aggregate_spans(np.ones(2), np.array([1]), np.array([1]), SUM), "at least one"),
        (lambda: aggregate_spans(np.ones(2), np.array([0]), np.array([1]), 7), "SUM or MAX"),
    ],
)
def test_wrong_input_is_named(call: object, reported: str) -> None:
    with pytest.raises(ValueError, match=reported):
        call()  # type: ignore[operator]

"""The queue on a simulated clock, against one that goes from instant to instant."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.benchmarks.replay import AT_ONCE, Replayed, Replays, simulate

QUARTER = 0.25  # of a second: an instant of the slow queue


def brute_force(tuples, gap, every, most, cost):
    """All in whole instants; ``cost(size)`` is at least 1. Batches as (size, end)."""
    batches, taken, now, busy_until = [], 0, 0, 0
    missed = more = False  # a look while busy; tuples that were left when a batch was full
    while taken < tuples:
        now += 1
        if now < busy_until:
            missed |= now % every == 0
            continue
        if now % every == 0 or (now == busy_until and (missed or more)):
            missed = more = False
            arrived = sum(1 for i in range(taken, tuples) if i * gap <= now)
            if arrived:
                size = min(arrived, most)
                busy_until, more = now + cost(size), arrived > size
                taken += size
                batches.append((size, busy_until))
    return batches


@given(
    st.integers(1, 60),
    st.integers(1, 12),
    st.integers(1, 20),
    st.integers(1, 30),
    st.integers(1, 25),
    st.integers(0, 4),
)
def test_as_from_instant_to_instant(tuples, gap, every, most, fixed, each):
    found = simulate(
        lambda begin, end: QUARTER * (fixed + each * (end - begin)),
        tuples,
        1.0 / (gap * QUARTER),
        every=every * QUARTER,
        most=most,
    )
    expected = brute_force(tuples, gap, every, most, lambda size: fixed + each * size)
    assert found.sizes.tolist() == [size for size, _ in expected]
    np.testing.assert_allclose(found.done, [end * QUARTER for _, end in expected], rtol=1e-12)
    waits = [end for size, end in expected for _ in range(size)]
    np.testing.assert_allclose(
        found.latencies, [(end - i * gap) * QUARTER for i, end in enumerate(waits)], rtol=1e-9, atol=1e-9
    )


def test_a_server_that_is_fast_enough_waits_half_the_interval_on_average():
    found = simulate(lambda begin, end: 1e-6 * (end - begin), 10_000, 1000.0, every=0.1)
    assert found.sustained
    assert found.throughput == 1000.0
    assert found.capacity == pytest.approx(1e6)
    assert np.median(found.latencies) == pytest.approx(0.05, rel=0.05)
    assert found.facts()["sustained"] == "yes"


def test_a_server_that_is_too_slow_falls_behind():
    found = simulate(lambda begin, end: 0.002 * (end - begin), 5000, 1000.0, every=0.1)
    assert not found.sustained
    assert found.throughput == pytest.approx(500.0)
    assert found.busy == pytest.approx(1.0, abs=0.02)
    assert found.latencies[-1] == pytest.approx(5.0, rel=0.05)  # twice the stream's length, less the stream


def test_all_at_once_comes_in_full_batches():
    found = simulate(lambda begin, end: 1.0, 25, AT_ONCE, most=10)
    assert found.sizes.tolist() == [10, 10, 5]
    assert found.throughput == found.capacity == pytest.approx(25 / 3)


@pytest.mark.parametrize(
    "wrong", [{"tuples": 0}, {"rate": 0.0}, {"rate": math.nan}, {"every": 0.0}, {"most": 0}]
)
def test_what_cannot_be_offered(wrong):
    asked = {"tuples": 10, "rate": 1.0, "every": 1.0, "most": 1} | wrong
    with pytest.raises(ValueError, match="above 0"):
        simulate(
            lambda begin, end: 1.0, asked["tuples"], asked["rate"], every=asked["every"], most=asked["most"]
        )


class Noting:
    """Notes what it is pushed."""

    def __init__(self):
        self.pushed = []

    def push(self, begin, end):
        self.pushed.append((begin, end))


def test_replays_push_every_tuple_once_after_those_that_warm():
    replays = Replays({"one": Noting}, 1000, warm=100)
    timing, found = replays.run("one", 2000.0, rounds=3)
    pushed = timing.result.pushed
    assert pushed[0] == (0, 100)
    assert [begin for begin, _ in pushed[1:]] == [end for _, end in pushed[:-1]]
    assert pushed[-1][1] == 1000
    assert isinstance(found, Replayed)
    assert found.tuples == 900
    assert len(timing.seconds) == len(timing.cpu) == 3


def test_replays_are_as_long_as_asked():
    replays = Replays({"one": Noting}, 1000, seconds=0.1, least=50)
    assert replays.run("one", 2000.0)[1].tuples == 200
    assert replays.run("one", 100.0)[1].tuples == 50
    assert replays.run("one", AT_ONCE)[1].tuples == 1000
    with pytest.raises(ValueError, match="after the 10 first"):
        Replays({}, 10, warm=10)

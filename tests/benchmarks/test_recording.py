"""Rows say how good the answer was, or are refused."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from pulse.benchmarks.processes import CpuClock, _ticks_between, descendants, peak
from pulse.benchmarks.recording import APART, Accuracy, Timing, alternating, apart, exact, record

ROW: dict[str, Any] = {"group": "g", "contender": "c", "work": 10, "accuracy": exact(), "warmup": 0}


class Fixture:
    """As much of pytest-benchmark's as a row needs."""

    def __init__(self) -> None:
        self.group: str | None = None
        self.extra_info: dict[str, Any] = {}
        self.seconds: list[float] = []
        self._timer: Any = time.perf_counter

    def pedantic(
        self,
        target: Any,
        setup: Any = None,
        teardown: Any = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> Any:
        assert iterations == 1
        result = None
        for i in range(warmup_rounds + rounds):
            args, kwargs = (setup() if setup else None) or ((), {})
            begin = self._timer()
            result = target(*args, **kwargs)
            if i >= warmup_rounds:
                self.seconds.append(self._timer() - begin)
            if teardown:
                teardown(*args, **kwargs)
        return result


@pytest.mark.parametrize(
    "figures",
    [
        (1.1, 1.0, 0.0, 0.0),
        (1.0, -0.1, 0.0, 0.0),
        (math.nan, 1.0, 0.0, 0.0),
        (1.0, 1.0, math.inf, 0.0),
        (1.0, 1.0, 0.1, 0.2),
        (1.0, 1.0, 0.1, 0.2, 0.05),
    ],
)
def test_an_answer_that_is_no_answer_is_refused(figures: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"is a|certifies"):
        Accuracy(*figures)


def test_rounding_is_allowed_for_where_it_is_reported() -> None:
    assert Accuracy(1.0, 1.0, 0.1, 0.1 + 1e-9, rounding=1e-8).observed > 0.1
    assert Accuracy(1.0, 1.0, 0.0, 0.0) == exact()


def test_a_row_is_plain_json() -> None:
    fixture = Fixture()
    found = record(
        fixture,
        lambda: 7,
        **ROW | {"work": np.int64(10)},
        figure="Fig. 1",
        x=np.float64(3),
        x_label="n",
        facts={"share": np.float32(0.5), "of": "all"},
    )
    row = json.loads(json.dumps(fixture.extra_info))
    assert found == 7
    assert fixture.group == "g"
    assert row["contender"] == "c"
    assert row["accuracy"] == {"precision": 1, "recall": 1, "certified": 0, "observed": 0, "rounding": 0}
    assert row["facts"] == {"share": 0.5, "of": "all"}
    assert (row["x"], row["work"], row["unit"]) == (3.0, 10.0, "tuples")
    assert len(row["cpu"]) == 5 == len(fixture.seconds)


def test_rounds_of_warming_up_are_not_counted() -> None:
    fixture, calls = Fixture(), []
    record(fixture, calls.append, **ROW | {"warmup": 2}, rounds=3, setup=lambda: ((len(calls),), {}))
    assert calls == [0, 1, 2, 3, 4]
    assert len(fixture.extra_info["cpu"]) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"work": 0},
        {"work": math.nan},
        {"x": 1.0},
        {"x": math.nan, "x_label": "n"},
        {"facts": {"a": 1.0}, "aims": {"b": 1.0}},
    ],
)
def test_what_is_recorded_makes_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"work is|x is|aims are of"):
        record(Fixture(), lambda: None, **ROW | wrong)


def test_the_last_result_can_be_judged() -> None:
    def judge(result: int) -> Accuracy:
        return Accuracy(1.0, result / 10, 0.0, 0.0)

    fixture = Fixture()
    record(fixture, lambda: 9, **ROW | {"accuracy": judge})
    assert fixture.extra_info["accuracy"]["recall"] == 0.9
    with pytest.raises(ValueError, match="recall"):
        record(Fixture(), lambda: 11, **ROW | {"accuracy": judge})


def test_contenders_take_turns() -> None:
    order: list[str] = []
    timings = alternating({name: partial(order.append, name) for name in "ab"}, rounds=2, warmup=1)
    assert order == list("ababab")
    fixture = Fixture()
    record(fixture, Timing([0.25, 0.5], [1.0, 2.0], "result"), **ROW)
    assert fixture.seconds == [0.25, 0.5]
    assert fixture.extra_info["cpu"] == [1.0, 2.0]
    assert all(len(timing.seconds) == len(timing.cpu) == 2 for timing in timings.values())


def test_what_belongs_to_no_row_is_timed_apart() -> None:
    with pytest.raises(KeyError), apart("failing"):
        raise KeyError
    assert len(APART.pop("failing")) == 1


BUSY = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_time_of_children_counts_while_they_run_and_after() -> None:
    clock = CpuClock()
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in set(descendants(os.getpid()))
        running = clock.spent()
        child.communicate(b"\n")
    assert running >= 0.35
    assert clock.spent() >= running - 0.05


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_high_water_mark_is_that_of_the_function() -> None:
    small, large = (peak(partial(np.ones, n)) for n in (10, 30_000_000))
    assert 0 < small.before <= small.most
    assert large.most - small.most == pytest.approx(240e6, rel=0.1)


def test_only_what_can_be_sent_has_a_peak() -> None:
    with pytest.raises(ValueError, match="partial"):
        peak(lambda: None)
    with pytest.raises(RuntimeError, match="dictionary update"):
        peak(partial(dict, [1]))


def test_an_answer_that_certifies_nothing_may_be_off_by_anything_and_says_so() -> None:
    assert Accuracy(0.5, 0.5, None, 12.5).observed == 12.5
    with pytest.raises(ValueError, match="observed is a finite number"):
        Accuracy(0.5, 0.5, None, float("inf"))


def test_processes_that_end_take_no_cpu_time_away() -> None:
    before = {1: (100, 0), 2: (500, 20)}
    assert _ticks_between(before, {1: (130, 0)}) == 30  # nobody waited for the other
    assert _ticks_between(before, {1: (130, 540)}) == 50  # its parent did, and knows of 20 more
    assert _ticks_between(before, {1: (130, 0), 2: (501, 20), 3: (7, 0)}) == 38

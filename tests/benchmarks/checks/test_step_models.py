from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pulse.benchmarks.checks.comparisons import models, numbers, rows_of, sets_of_numbers
from pulse.benchmarks.checks.step_models import Lines, Steps, held_at_ends, held_in_integrals

SECOND = 1_000_000
TUPLES = pa.table(
    {
        "symbol": ["a", "b", "a", "a", "a", "b"],
        "t": pa.array([0, 0, 1, 1, 3, 5], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp("us")),
        "price": [10.0, 7.0, 99.0, 12.0, 14.0, 8.0],
    }
)


def lines(c: list[list[float]], *, err: float = 1.0, drift: float = 5.0, hi: float = 3.0) -> Lines:
    """One segment of ``a`` from its first tuple to its last, and one of ``b``."""
    return Lines(
        key=np.array([0, 1]),
        ref=np.zeros(2, np.int64),
        lo=np.zeros(2),
        hi=np.array([hi, 5.0]),
        c=np.array(c),
        err=np.full(2, err),
        drift=np.full(2, drift),
    )


def test_a_step_lasts_to_the_next_instant_and_the_last_tuple_of_an_instant_rules() -> None:
    steps, keys = Steps.of_table(TUPLES, key="symbol", value="price")
    assert keys == {"a": 0, "b": 1}
    assert steps.value.tolist() == [10.0, 12.0, 7.0]
    assert (steps.begin // SECOND).tolist() == [0, 1, 0]
    assert (steps.end // SECOND).tolist() == [1, 3, 5]


def test_deviations_are_those_at_the_ends_of_steps() -> None:
    steps, _ = Steps.of_table(TUPLES, key="symbol", value="price")
    found = held_at_ends(steps, lines([[10.0, 1.0], [7.0, 0.0]]), share=0.1)
    # The line of a is at 10 and 11 about 10, at 11 and 13 about 12: off by one at most.
    assert (found.observed, found.certified, found.precision, found.recall) == (1.0, 1.0, 1.0, 1.0)
    tight = held_at_ends(steps, lines([[10.0, 1.0], [7.0, 0.0]]), share=0.09)
    assert tight.precision == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="certifies"):
        held_at_ends(steps, lines([[10.0, 1.0], [7.0, 0.0]], err=0.5), share=0.1)


def test_what_no_segment_covers_is_not_recalled() -> None:
    steps, _ = Steps.of_table(TUPLES, key="symbol", value="price")
    found = held_at_ends(steps, lines([[10.0, 1.0], [7.0, 0.0]], hi=2.0), share=0.1)
    assert found.recall == pytest.approx(2 / 3)


def test_integrals_run_on_from_the_begin_of_a_key() -> None:
    steps, _ = Steps.of_table(TUPLES, key="symbol", value="price")
    found = held_in_integrals(steps, lines([[10.0, 1.0], [7.5, 0.0]], drift=2.5), share=0.5)
    # Of a: half a unit in the first second, none in the next two, together a half. Of b: half a unit for five seconds.
    assert found.observed == pytest.approx(2.5)
    assert found.precision == 1.0


def test_numbers_are_compared_one_by_one() -> None:
    found = numbers([1.0, 2.0], [1.0, 2.5], certified=0.5)
    assert (found.precision, found.observed) == (1.0, 0.5)
    with pytest.raises(ValueError, match="certifies"):
        numbers([1.0], [2.0], certified=0.5)
    with pytest.raises(ValueError, match="expected"):
        numbers([1.0], [1.0, 2.0])


def test_sets_of_numbers_may_lack_some() -> None:
    found = sets_of_numbers(
        (np.array([1.0, 2.0, 9.0]), np.array([0, 2, 3])),
        (np.array([1.0, 5.0, 6.0]), np.array([0, 1, 3])),
        rounding=0.1,
    )
    assert (found.precision, found.recall, found.observed) == (
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
        0.0,
    )


def test_models_are_judged_where_they_are() -> None:
    found = models([0.1, 0.5, 9.0], [0.2, 0.2, 0.2], np.array([True, True, False]), certified=0.5)
    assert (found.precision, found.recall, found.observed) == (0.5, pytest.approx(2 / 3), 0.5)


def test_rows_are_matched_by_key_and_time() -> None:
    t = pa.array([0, 1, 2], pa.timestamp("s"))
    truth = pa.table({"symbol": ["a", "a", "b"], "t": t, "diff": [1.0, 2.0, 3.0]})
    answer = pa.table(
        {"symbol": ["a", "a", "c"], "t": t, "diff": [1.25, 2.0, 3.0], "diff_err": [0.5, 0.1, 9.0]}
    )
    found = rows_of(answer, truth, keys=("symbol",), value="diff")
    assert (found.precision, found.recall) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert (found.certified, found.observed) == (9.0, 0.25)
    with pytest.raises(ValueError, match="certifies"):
        rows_of(answer.drop(["diff_err"]), truth, keys=("symbol",), value="diff", rounding=0.1)
    nothing = truth.slice(0, 0)
    assert rows_of(nothing, nothing, keys=("symbol",), value="diff").precision == 1.0


def test_rows_are_refused_that_come_twice_or_are_off_by_more_than_their_own_bound() -> None:
    t = pa.array([0, 1], pa.timestamp("s"))
    truth = pa.table({"symbol": ["a", "a"], "t": t, "diff": [1.0, 2.0]})
    with pytest.raises(ValueError, match="several times"):
        rows_of(pa.concat_tables([truth, truth.slice(0, 1)]), truth, keys=("symbol",), value="diff")
    answer = truth.set_column(2, "diff", pa.array([1.5, 2.0])).append_column("diff_err", pa.array([0.1, 9.0]))
    with pytest.raises(ValueError, match="1 values are off by more"):
        rows_of(answer, truth, keys=("symbol",), value="diff")

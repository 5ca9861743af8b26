"""Aggregates over keys that pass a filter, inside a job: whoever takes part by the tuples, the answer holds it.

The truth is that of the tuples, in fractions (:mod:`tests.runtime.predict.silences`). Models are wrong by up to a quarter, so
whether a key near the threshold passes is often not certain.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from tests.effort import examples
from tests.runtime.predict.silences import (
    OVER_KEYS,
    ROUNDING,
    Row,
    Run,
    Truth,
    held_rows,
    played,
    runs,
    value_at,
)

LEVEL = Fraction(3, 5)  # between two values of tuples, and nearer to both than models are exact
PARTS = (Fraction(1, 50), Fraction(1, 2), Fraction(49, 50))

compared = {"certain": 0, "in doubt": 0, "none": 0}


def passing(truth: Truth, function: str, t: Fraction) -> Fraction | None:
    """The aggregate of those keys that pass at an instant."""
    values = [value for key in truth.keys if (value := truth.at(key, t)) is not None and value > LEVEL]
    return Fraction(OVER_KEYS[function](values)) if values else None


def was_known(truth: Truth, t: Fraction) -> bool:
    """Whether no key was silent about an instant for longer than its models reach."""
    for rows in truth.keys.values():
        for one, other in itertools.pairwise(rows):
            if one.t <= t < other.t and other.t - one.t > truth.run.horizon:
                return False
    return True


def instants(truth: Truth, held: list[tuple[Any, ...]]) -> list[Fraction]:
    """Instants near the ends and in the middle of all ranges between tuples and ends of results, up to what is known."""
    cuts = {Fraction(row.t) for rows in truth.keys.values() for row in rows}
    cuts |= {end for one in held for end in one[1:3]}
    return [
        a + (b - a) * part
        for a, b in itertools.pairwise(sorted(cuts))
        for part in PARTS
        if b - a > Fraction(1, 10**4) and b <= truth.known(None)
    ]


def assert_every_truth_is_held(function: str, truth: Truth, changes: list[pa.Table]) -> None:
    """What is certain is so, and no truth of times at which all keys were known is outside what is reported."""
    held = list(held_rows(changes))
    for t in instants(truth, held):
        expected = passing(truth, function, t)
        at = [one[3] for one in held if one[1] <= t < one[2]]
        assert len(at) <= 1
        if not at:
            assert expected is None or not was_known(truth, t), (function, float(t), expected)
            compared["none"] += 1
            continue
        ref, row = at[0]
        sure = row["certainty"] == "certain"
        if expected is None:
            assert not sure, (function, float(t), row)
        elif sure or was_known(truth, t):
            off = abs(value_at(row, t - ref) - expected)
            bound = row["a_err"]
            assert bound == float("inf") or off <= Fraction(bound) + ROUNDING, (
                function,
                float(t),
                float(expected),
                row,
            )
        compared["certain" if sure else "in doubt"] += 1


def play(function: str, run: Run) -> None:
    text = f"select {function}(x) as a from S where x > {float(LEVEL)} with possible"
    for taken, changes in played(run, text):
        assert_every_truth_is_held(function, Truth(run, taken), changes)


@pytest.mark.parametrize("function", ["max", "sum"])
@examples(40)
@given(run=runs())
def test_whoever_passes_is_in_the_answer(function: str, run: Run) -> None:
    play(function, run)


def test_comparisons_of_all_kinds_were_made() -> None:
    """Of the runs above; by itself, of one of them."""
    rows = [Row("a", t, t, x) for t, x in enumerate([1.0, 1.0, 0.5, 0.5, 0.5, 1.0, 2.0])]
    rows += [Row("b", t, t, x) for t, x in enumerate([0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 3.0])]
    run = Run("linear", 8, 5, None, sorted(rows, key=lambda row: (row.comes, row.id)), [3, 5, 8, 12])
    for function in ("max", "sum"):
        play(function, run)
    assert min(compared.values()) >= 10, compared

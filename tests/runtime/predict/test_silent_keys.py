"""Keys that fall silent for longer than their models reach: what is certain is true, what lies between two tuples is known."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given

from pulse.core.schema import StreamSchema
from pulse.language import parse
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.spec import Predictor
from tests.effort import examples
from tests.runtime.predict.silences import (
    QUERIES,
    SECOND,
    START,
    Row,
    Run,
    Truth,
    assert_known_between_tuples,
    assert_true,
    compared,
    held_rows,
    played,
    runs,
    table_of,
    value_at,
)


def play(name: str, run: Run) -> None:
    for taken, changes in played(run, QUERIES[name]):
        assert_true(name, Truth(run, taken), changes)
    if run.max_gap is None and name in ("each key", "windows of each key"):
        assert_known_between_tuples(name, Truth(run, taken), changes)


@pytest.mark.parametrize("name", QUERIES)
@examples(40)
@given(run=runs())
def test_what_is_certain_is_true_though_keys_are_silent(name: str, run: Run) -> None:
    play(name, run)


def test_comparisons_were_made() -> None:
    """Of the runs above; by itself, of one of them."""
    rows = [Row("a", t, t, 1.0) for t in (0, 4, 30)] + [Row("b", t, t, 2.0) for t in range(0, 31, 3)]
    run = Run("linear", 8, 5, None, sorted(rows, key=lambda row: row.comes), [3, 5, 8])
    for name in QUERIES:
        play(name, run)
    assert compared["certain"] > 50
    assert compared["between"] > 10


# -- cases --------------------------------------------------------------------------------------------------


def changes_of(query: str, batches: list[list[Row]], **options: Any) -> list[tuple[Any, ...]]:
    """What holds at the end: begin, end, value at the begin, error and certainty."""
    run = Run("linear", options.pop("horizon", 5), options.pop("lateness", 10), None, [], [])
    key = options.pop("key", {"id": "string"})
    schema = StreamSchema.of(key=key, time="t", modelled={"x": "linear"})
    spec = PredictSpec.of(schema, horizon=run.horizon, error=0.1, **options)
    prediction = Prediction(Predictor.of(parse(query, {"S": schema}, ()).bind({}), {"S": spec}))
    changes, newest = [], 0
    for batch in batches:
        newest = max([newest, *(row.t for row in batch)])
        watermark = (START + newest - run.lateness) * SECOND
        changes.append(prediction.push({"S": table_of(batch)}, watermark).changes)
        prediction.advance(watermark)
    found = [
        (float(begin), float(end), float(value_at(row, begin - ref)), row["a_err"], row["certainty"])
        for _, begin, end, (ref, row) in held_rows(changes)
    ]
    return sorted(found)


def rows_at(key: str, x: float, *times: int) -> list[Row]:
    return [Row(key, t, t, x) for t in times]


def test_a_silent_key_leaves_an_aggregate_over_keys_in_doubt_until_it_tells() -> None:
    first = rows_at("a", 10, 0) + rows_at("b", 1, 0, 4, 8)
    held = changes_of("select max(x) as a from S", [first])
    assert [row[2:] for row in held if row[0] < 5] == [(10.0, 0.1, "certain")]
    assert {row[2:] for row in held if row[0] >= 5} == {(1.0, float("inf"), "likely")}
    # Once all tuples are known, so is the maximum.
    held = changes_of("select max(x) as a from S", [first, rows_at("b", 1, 12) + rows_at("a", 10, 12)])
    assert {row[2:] for row in held} == {(10.0, 0.1, "certain")}
    assert (held[0][0], held[-1][1]) == (0.0, 17.0)


def test_what_is_no_longer_kept_stays_in_doubt() -> None:
    batches = [rows_at("a", 10, 0) + rows_at("b", 1, 0)]
    batches += [rows_at("b", 1, t) for t in range(4, 40, 4)]
    held = changes_of("select max(x) as a from S", [*batches, rows_at("a", 10, 37)])
    assert {row[2:] for row in held if row[1] < 41} == {(1.0, float("inf"), "likely"), (10.0, 0.1, "certain")}
    assert min(row[0] for row in held if row[4] == "certain") >= 20


def test_a_key_that_agrees_with_its_model_has_no_holes() -> None:
    batches = [rows_at("a", 10, t) for t in range(0, 41, 4)]
    held = changes_of("select id, x as a from S", batches, horizon=10)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(held))
    assert (held[0][0], held[-1][4]) == (0.0, "certain")
    assert held[-1][1] >= 45
    windows = changes_of("select id, avg(x) as a from S[size 6 advance 1]", batches, horizon=10)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(windows))
    assert (windows[0][0], windows[-1][1]) == (6.0, held[-1][1])


def test_what_no_tuple_confirmed_is_taken_back() -> None:
    batches = [rows_at("a", 10, 0, 2) + rows_at("b", 1, 0), rows_at("b", 1, 30)]
    held = changes_of("select id, x as a from S where x > 5", batches)
    assert [row[:2] for row in held] == [(0.0, 2.0)]


def test_a_key_that_is_over_casts_no_doubt() -> None:
    batches = [rows_at("a", 10, 0) + rows_at("b", 1, 0)]
    batches += [rows_at("b", 1, t) for t in range(4, 44, 4)]
    held = changes_of("select max(x) as a from S", batches, max_gap=12)
    assert held[-1][2:] == (1.0, 0.1, "certain")
    without = changes_of("select max(x) as a from S", batches)
    assert without[-1][4] == "likely"


def test_a_key_that_the_query_does_not_ask_for_casts_no_doubt() -> None:
    batches = [rows_at("a", 10, 0) + rows_at("b", 1, 0, 4, 8, 12)]
    held = changes_of("select max(x) as a from S where id = 'b'", batches)
    assert {row[2:] for row in held} == {(1.0, 0.1, "certain")}


def test_groups_are_in_doubt_by_themselves() -> None:
    batches = [rows_at("a1", 10, 0) + rows_at("a2", 3, 0, 4, 8) + rows_at("b1", 1, 0, 4, 8)]
    held = changes_of("select g, max(x) as a from S group by g", batches, key={"g": "string", "id": "string"})
    assert {row[2:] for row in held if row[0] >= 5} == {(3.0, float("inf"), "likely"), (1.0, 0.1, "certain")}


@pytest.mark.parametrize("made", ["1 / max(x)", "log(max(x))"])
def test_where_a_bound_is_needed_there_is_no_result(made: str) -> None:
    batches = [rows_at("a", 10, 0) + rows_at("b", 1, 0, 4, 8)]
    held = changes_of(f"select {made} as a from S", batches)
    assert max(row[1] for row in held) == 5.0


def test_what_is_possible_of_an_unknown_key_is_reported_on_request() -> None:
    batches = [rows_at("a", 10, 0) + rows_at("b", 1, 0, 4, 8)]
    held = changes_of("select max(x) as a from S having max(x) > 4 with possible", batches)
    assert [(row[0], row[4]) for row in held][:2] == [(0.0, "certain"), (5.0, "possible")]

"""Standing queries: after any updates the state is what a fresh run over the settled models gives, and the changes say how."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.language import parse
from pulse.operators.data.relation import Relation
from pulse.operators.node import walk
from pulse.operators.output.diff import difference
from pulse.operators.relational.mirror import Mirror
from pulse.plan.optimise import optimise
from pulse.runtime.incremental.continuous_query import ContinuousQuery
from pulse.runtime.incremental.continuous_view import ContinuousView, Solved

COLUMNS = Columns((("id", pa.int64()),), ("x", "y"))
SECOND = 1_000_000

QUERIES = {
    "filter": "select id, x from S where x > 2",
    "project": "select id, x * 2 + y as z from S",
    "window": "select id, avg(x) as a from S[size 2 advance 1]",
    "ends": "select id, last(x) - first(x) as d from S[size 2 advance 1]",
    "macd": "select A.id, A.a - B.a as d from (select id, avg(x) as a from S[size 1 advance 1]) as A "
    "join (select id, avg(x) as a from S[size 3 advance 1]) as B on (A.id = B.id) where A.a > B.a",
    "pairs": "select R.id as one, Q.id as other from S as R join S as Q on (R.id <> Q.id) "
    "where abs(distance(R.x, R.y, Q.x, Q.y)) < 2",
    "envelope": "select max(x) as top from S",
    "windowed envelope": "select min(x) as low from S[size 2 advance 1]",
    "sum": "select sum(x) as total from S",
}


def standing(name: str) -> ContinuousQuery:
    return ContinuousQuery(parse(QUERIES[name], {"S": COLUMNS}).bind({}), {"S": COLUMNS})


def updates(rows: list[tuple[int, int, int, list[float], list[float]]]) -> Relation:
    """From (id, start and end in seconds, x, y), coefficients about the start; in order of arrival, one row a group."""
    rows = sorted(rows, key=lambda row: (row[0], row[1]))
    table = pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "ref": pa.array([row[1] * SECOND for row in rows], pa.timestamp("us")),
            "lo": pa.array([0.0] * len(rows)),
            "hi": pa.array([float(row[2] - row[1]) for row in rows]),
            **{
                name: column
                for i, attribute in enumerate(("x", "y"))
                for name, column in (
                    (attribute, pa.array([row[3 + i] for row in rows], pa.list_(pa.float64()))),
                    (f"{attribute}_err", pa.array([0.0] * len(rows))),
                    (f"{attribute}_drift", pa.nulls(len(rows), pa.float64())),
                )
            },
        }
    )
    return Relation.from_table(table, COLUMNS)


number = st.integers(0, 4).map(float)
model = st.lists(number, min_size=2, max_size=2)


@st.composite
def loads(draw: st.DrawFn) -> list[list[tuple[int, int, int, list[float], list[float]]]]:
    """Batches of updates whose starts do not fall, as a stream gives them."""
    now, batches = 0, []
    for _ in range(draw(st.integers(1, 4))):
        batch = []
        for key in draw(st.sets(st.integers(0, 2), min_size=1)):
            start = now + draw(st.integers(0, 2))
            batch.append((key, start, start + draw(st.integers(1, 6)), draw(model), draw(model)))
        now = max(row[1] for row in batch)
        batches.append(batch)
    return batches


def updated(view: ContinuousView, batch: list[tuple[int, int, int, list[float], list[float]]]) -> Solved:
    solved = view.update({"S": updates(batch)})
    view.commit()
    return solved


def run(
    query: ContinuousQuery, batches: list[list[tuple[int, int, int, list[float], list[float]]]]
) -> ContinuousView:
    view = ContinuousView(query)
    for batch in batches:
        updated(view, batch)
    return view


@pytest.mark.parametrize("name", QUERIES)
@given(batches=loads())
def test_the_state_is_what_a_fresh_run_over_the_settled_models_gives(
    name: str, batches: list[list[tuple[int, int, int, list[float], list[float]]]]
) -> None:
    query = standing(name)
    view, fresh = run(query, batches), ContinuousView(query)
    fresh.update(view.streams)
    assert difference(view.results, fresh.results).table.to_pylist() == []


@pytest.mark.parametrize("name", ["filter", "macd", "pairs", "envelope"])
@given(batches=loads())
def test_changes_add_up_to_the_results(
    name: str, batches: list[list[tuple[int, int, int, list[float], list[float]]]]
) -> None:
    query = standing(name)
    view = ContinuousView(query)
    held: dict[tuple[object, ...], float] = {}
    instants = np.arange(0.25, 20.0, 0.5)
    for batch in batches:
        for row in updated(view, batch).changes.table.to_pylist():
            weight = 1 if row["kind"][0] == "+" else -1
            _count(held, row, instants, weight)
    expected: dict[tuple[object, ...], float] = {}
    for row in pa.Table.from_batches([view.results.to_segments()]).to_pylist():
        _count(expected, row, instants, 1, query)
    assert {key: n for key, n in held.items() if n} == {key: n for key, n in expected.items() if n}


def _count(
    held: dict[tuple[object, ...], float],
    row: dict[str, object],
    instants: np.ndarray,
    weight: int,
    query: ContinuousQuery | None = None,
) -> None:
    """Note at which instants a row speaks, by key."""
    from datetime import datetime

    ref = row["ref"]
    assert isinstance(ref, datetime)
    start = (ref - datetime(1970, 1, 1)).total_seconds()
    names = [name for name in ("id", "A_id", "one", "other") if name in row]
    key = tuple(row[name] for name in names)
    for at in instants[(instants >= start + row["lo"]) & (instants < start + row["hi"])]:  # type: ignore[operator]
        held[(*key, float(at))] = held.get((*key, float(at)), 0) + weight


def test_only_what_changed_is_solved_and_reported() -> None:
    view = ContinuousView(standing("filter"))
    first = updated(view, [(i, 0, 10, [3.0, 0.0], [0.0, 0.0]) for i in range(5)])
    assert (first.solved, [row["kind"] for row in first.changes.table.to_pylist()]) == (5, ["+I"] * 5)
    second = updated(view, [(3, 4, 14, [1.0, 0.0], [0.0, 0.0])])
    reported = second.changes.table.to_pylist()
    assert second.solved == 1
    assert [(row["kind"], row["id"], row["lo"], row["hi"]) for row in reported] == [("-D", 3, 4.0, 10.0)]
    third = updated(view, [(3, 5, 14, [1.0, 0.0], [0.0, 0.0])])
    assert len(third.changes) == 0


def test_a_pair_is_solved_again_for_the_key_that_changed_only() -> None:
    view = ContinuousView(standing("pairs"))
    updated(view, [(i, 0, 10, [10.0 * i, 0.0], [0.0, 0.0]) for i in range(5)])
    moved = updated(view, [(4, 2, 12, [31.0, 0.0], [0.0, 0.0])])
    reported = {(row["one"], row["other"], row["kind"]) for row in moved.changes.table.to_pylist()}
    assert reported == {(3, 4, "+I"), (4, 3, "+I")}


def test_pairs_are_solved_both_ways_round() -> None:
    """Scans are of changed and unchanged keys: the smaller key of a pair may be on either side."""
    plan = standing("pairs").plan
    assert not any(isinstance(node, Mirror) for node in walk(plan))
    assert any(isinstance(node, Mirror) for node in walk(optimise(plan)))


def test_the_watermark_frees_what_no_result_needs_any_more() -> None:
    query = standing("window")
    view = run(query, [[(0, t, t + 20, [1.0, 0.0], [0.0, 0.0])] for t in range(0, 50, 5)])
    assert len(view.streams["S"]) == 10
    view.advance(40 * SECOND)
    assert len(view.streams["S"]) <= 4
    solved = updated(view, [(0, 50, 60, [4.0, 0.0], [0.0, 0.0])])
    before = run(
        query,
        [[(0, t, t + 20, [1.0, 0.0], [0.0, 0.0])] for t in range(0, 50, 5)]
        + [[(0, 50, 60, [4.0, 0.0], [0.0, 0.0])]],
    )
    before.advance(40 * SECOND)
    assert difference(view.results, before.results).table.num_rows == 0
    assert len(solved.changes) > 0


def test_states_pickle() -> None:
    query = standing("macd")
    batches = [[(0, 0, 8, [1.0, 1.0], [0.0, 0.0])], [(0, 3, 9, [2.0, 0.0], [0.0, 0.0])]]
    view = pickle.loads(pickle.dumps(run(query, batches[:1])))
    updated(view, batches[1])
    assert difference(view.results, run(query, batches).results).table.num_rows == 0


@pytest.mark.parametrize("name", QUERIES)
@given(batches=loads())
def test_a_batch_may_be_solved_again_and_the_state_is_data(
    name: str, batches: list[list[tuple[int, int, int, list[float], list[float]]]]
) -> None:
    """A discarded update leaves nothing behind, and a view from saved state gives the same changes to the last bit."""
    query = standing(name)
    live, saved = ContinuousView(query), query.empty_state
    for batch in batches:
        other = [(row[0] + 1, row[1], row[2] + 1, [5.0, 1.0], [1.0, 1.0]) for row in batch]
        live.update({"S": updates(other)})
        again = ContinuousView(query, saved)
        assert updated(live, batch).changes.table.equals(updated(again, batch).changes.table)
        for view in (live, again):
            view.advance(max(row[1] for row in batch) * SECOND)
        saved = again.state
        assert difference(live.results, saved.results).table.num_rows == 0

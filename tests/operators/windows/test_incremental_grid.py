"""Revisions of tuples: what is reported of closing times is what a query's own tuples of them were and are, in every mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.core.regions import Regions
from pulse.language import parse
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.delta import Changed
from pulse.operators.node import Node, PlanError
from pulse.operators.output.sampling import to_tuples
from pulse.operators.relational.scan import scans
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import as_scanned
from pulse.runtime.incremental.view import MODES, IncrementalView
from tests.effort import examples
from tests.runtime.incremental.revised_loads import (
    QUERIES,
    SECOND,
    START,
    STREAMS,
    Load,
    Row,
    applied,
    changed,
    check_changes,
    loads,
    query_of,
    relation,
)

few = examples(10)
EXTREMA = {
    "maximum": "select id, max(x) as a from S[size 3 advance 1]",
    "uneven": "select id, max(x) as a, avg(x) as b from S[size 5 advance 2]",
    "three": "select id, min(x) as a, max(x) as b, avg(x) as c from S[size 3 advance 1]",
    "largest minimum": "select max(a) as top from (select id, min(x) as a from S[size 2 advance 1]) as W",
    "either": "select 'a' as tag, id, min(x) as a from S[size 2 advance 1] union all "
    "select 'b' as tag, id, max(x) as a from T[size 3 advance 1]",
    "overtaken": "select A.id, A.a - S.x as d from (select id, max(x) as a from S[size 2 advance 1]) as A join S "
    "on (A.id = S.id) where A.a > S.x",
}


def asked(name: str) -> Query:
    return parse(EXTREMA[name], STREAMS).bind({}) if name in EXTREMA else query_of(name)


def own_tuples(query: Query, rows: dict[str, list[Row]], every: int) -> pa.Table:
    """As a query over stored models gives them."""
    plan = optimise(query.plan)
    inputs: dict[Node, Any] = {scan: as_scanned(relation(rows[scan.stream]), scan) for scan in scans(plan)}
    samples = FragmentEvaluation(inputs, possible=query.possible).samples(plan, every)
    return pa.Table.from_batches([to_tuples(samples, query.select, possible=query.possible)])


def by_instant(table: pa.Table, query: Query) -> dict[Any, Any]:
    """What tuples say, by keys and time."""
    columns = query.plan.columns
    places = [*(name for name in query.select if name in columns.key_names), table.column_names[0]]
    found: dict[Any, Any] = {}
    for row in table.to_pylist():
        side = "old" if row.pop("kind", "+")[0] == "-" else "new"
        entry = found.setdefault(tuple(row.pop(name) for name in places), {})
        assert side not in entry, "emitted twice"
        entry[side] = row
    return found


@pytest.mark.parametrize("name", [*QUERIES, *EXTREMA])
@few
@given(load=loads(), mode=st.sampled_from(MODES))
def test_what_is_reported_of_closing_times_is_what_the_query_gives(name: str, load: Load, mode: str) -> None:
    """Also where a step begins as a window closes, and where a stretch of data ends there."""
    query = asked(name)
    every = query.rate or SECOND
    rows = {stream: list(some) for stream, some in load.before.items()}
    view = IncrementalView(query, STREAMS, mode=mode, every=every)
    view.start({stream: relation(some) for stream, some in rows.items()})
    before = by_instant(own_tuples(query, rows, every), query)
    for batch in load.batches:
        changes = {stream: changed(rows[stream], regions) for stream, regions in batch.items() if regions}
        reported = by_instant(view.revise(changes).tuples(every), query)
        for stream, regions in batch.items():
            rows[stream] = applied(rows[stream], regions)
        after = by_instant(own_tuples(query, rows, every), query)
        # The bound of a product is one for a range, or one for an instant.
        exact = mode == "upstream" and name != "project"
        check_changes(before, after, reported, exact_bounds=exact)
        before = after


@pytest.mark.parametrize("mode", ["upstream", "downstream"])
def test_a_step_that_begins_as_a_window_closes(mode: str) -> None:
    """The largest of each three steps: of the window that closes at 6 the step [6, 7) is no part, nor is [2, 3)."""
    values = [0.0, 0.0, 5.0, 1.0, 2.0, 1.0, 4.0, 0.0, 0.0]
    steps: list[Row] = [(0, t, t + 1, (x, 0.0), (0.0, 0.0)) for t, x in enumerate(values)]
    first = -(START % 3) % 3  # of the seconds since the start, the first at which a window closes
    query = parse("select id, max(x) as a from S[size 3 advance 3]", STREAMS).bind({})
    view = IncrementalView(query, STREAMS, mode=mode, every=query.rate)
    view.start({"S": relation(steps), "T": relation([])})
    at = first + 4
    revised = view.revise({"S": changed(steps, [(0, at, at + 1, [(0, at, at + 1, (3.0, 0.0), (0.0, 0.0))])])})
    flow = next(one for one in revised.report.operators if one.operator.startswith("Window"))
    old = max(values[first + 3 : first + 6])
    new = max(3.0, *(values[t] for t in range(first + 3, first + 6) if t != at))
    reported = [(row["kind"], row["t"].timestamp() - START, row["a"]) for row in revised.tuples().to_pylist()]
    assert reported == [("-U", first + 6, old), ("+U", first + 6, new)]
    assert set(flow.modes) <= {mode, "upstream"}


def test_tuples_are_refused_where_windows_are_not_known_as_they_close() -> None:
    query = asked("maximum")
    rows: list[Row] = [(0, t, t + 1, (float(t), 0.0), (0.0, 0.0)) for t in range(9)]
    change = changed(rows, [(0, 4, 5, [(0, 4, 5, (9.0, 0.0), (0.0, 0.0))])])
    for every, reported in ((None, "all instants"), (2 * SECOND, "multiples of 2 s")):
        view = IncrementalView(query, STREAMS, every=every)
        view.start({"S": relation(rows), "T": relation([])})
        with pytest.raises(
            PlanError, match=f"every 1 s: windows are known at {reported}.* give the view every=1000000"
        ):
            view.revise({"S": change}).tuples()


def test_a_tuple_at_the_closing_time_of_windows_that_another_change_is_in() -> None:
    """Both are patched, each in its own window: the tuple at 2 s is no part of the window that closes then."""
    columns = Columns((), ("x",), points=True)
    query = parse("select sum(x) as a from S[size 2 advance 2]", {"S": columns}).bind({})

    def points(values: dict[int, float]) -> Relation:
        n = len(values)
        return Relation(
            columns=columns,
            keys=(),
            offsets=np.array([0, n]),
            ref=np.array(list(values), np.int64) * SECOND,
            lo=np.zeros(n),
            hi=np.zeros(n),
            models={"x": np.array(list(values.values()))[:, None]},
            err={"x": np.zeros(n)},
            drift={},
            certainty=np.full(n, 3, np.uint8),
        )

    view = IncrementalView(query, {"S": columns}, mode="downstream", every=query.rate)
    view.start({"S": points(dict.fromkeys(range(8), 1.0))})
    at = np.array([1, 2]) * SECOND
    change = Changed(Regions((), at, at + 1), points({1: 1.0, 2: 1.0}), points({1: 5.0, 2: 7.0}))
    reported = view.revise({"S": change}).tuples().to_pylist()
    assert [(row["kind"], row["t"].second, row["a"]) for row in reported] == [
        ("-U", 2, 2.0),
        ("+U", 2, 6.0),
        ("-U", 4, 2.0),
        ("+U", 4, 8.0),
    ]

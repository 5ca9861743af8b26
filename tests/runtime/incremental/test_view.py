"""Revisions through queries: old results and the changes are the results of a run from scratch, in every mode and order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.core.regions import Regions
from pulse.language import parse
from pulse.operators.across.across import Across
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.arrangement import HistoryDroppedError, RevisionError
from pulse.operators.incremental.costs import Cost, Costs
from pulse.operators.incremental.delta import Changed
from pulse.operators.node import walk
from pulse.operators.output.diff import difference
from pulse.operators.windows.incremental_window import IncrementalWindow
from pulse.operators.windows.window import Window
from pulse.plan.query import Query
from pulse.runtime.incremental.view import IncrementalView, ViewUpdate
from tests.effort import examples
from tests.runtime.incremental.revised_loads import (
    QUERIES,
    SECOND,
    START,
    STREAMS,
    Load,
    applied,
    at_instants,
    changed,
    check_changes,
    loads,
    query_of,
    relation,
    values_of,
)

MODES = ("upstream", "downstream", "adaptive")
# An aggregate across keys whose members are uncertain has one bound per cell, and the cells of earlier results may be wider.
BOUND_PER_CELL = ("mean of a filter",)
few = examples(10)
"""Every query is a test of its own, and every example several runs from scratch."""


def started(query: Query, rows: dict[str, list[Any]], **options: Any) -> IncrementalView:
    view = IncrementalView(query, STREAMS, **options)
    view.start({stream: relation(some) for stream, some in rows.items()})
    return view


def from_scratch(query: Query, rows: dict[str, list[Any]]) -> dict[Any, Any]:
    found = started(query, rows, mode="upstream").results()
    return at_instants(pa.Table.from_batches([found.to_segments()]))


def run(name: str, load: Load, mode: str, **options: Any) -> list[ViewUpdate]:
    query = query_of(name)
    rows = {stream: list(some) for stream, some in load.before.items()}
    view = started(query, rows, mode=mode, **options)
    before = from_scratch(query, rows)
    out = []
    for batch in load.batches:
        changes = {stream: changed(rows[stream], regions) for stream, regions in batch.items() if regions}
        revised = view.revise(changes)
        for stream, regions in batch.items():
            rows[stream] = applied(rows[stream], regions)
        after = from_scratch(query, rows)
        check_changes(
            before,
            after,
            at_instants(revised.changes.table),
            exact_bounds=mode == "upstream" and name not in BOUND_PER_CELL,
        )
        before = after
        out.append(revised)
    return out


@pytest.mark.parametrize("name", QUERIES)
@few
@given(load=loads())
def test_upstream_says_what_a_run_from_scratch_would(name: str, load: Load) -> None:
    run(name, load, "upstream")


@pytest.mark.parametrize("name", QUERIES)
@few
@given(load=loads(), mode=st.sampled_from(["downstream", "adaptive"]), everywhere=st.booleans())
def test_patches_say_what_a_run_from_scratch_would(
    name: str, load: Load, mode: str, everywhere: bool
) -> None:
    """With results stored behind windows, or on every arc that leads up to an aggregate across keys."""
    plan = IncrementalView(query_of(name), STREAMS).plan
    nodes = [
        node for node in walk(plan) if node.inputs and not any(isinstance(one, Across) for one in walk(node))
    ]
    run(name, load, mode, points=nodes if everywhere else None)


@pytest.mark.parametrize("name", ["union", "coalesce in doubt"])
def test_a_key_appears_in_a_stream_whose_labels_are_all_unknown(name: str) -> None:
    zero = (0.0, 0.0)
    batch = {"S": [], "T": [(0, 0, 1, []), (1, 0, 1, [(1, 0, 1, zero, zero)])]}
    run(name, Load({"S": [], "T": [(0, 0, 3, zero, zero)]}, [batch]), "upstream")


@pytest.mark.parametrize("mode", MODES)
def test_a_row_between_two_changed_stretches_is_retracted_once(mode: str) -> None:
    """The short average changes apart from the long one; a row of their join lay in the content of both stretches."""
    before = [
        (0, 0, 1, (1.0, 0.5), (4.0, 0.0)),
        (0, 1, 2, (4.0, 0.0), (2.0, 0.0)),
        (0, 2, 5, (4.0, -1.0), (1.0, 0.0)),
        (0, 5, 7, (0.0, 0.5), (3.0, 0.0)),
        (0, 7, 9, (2.0, 0.0), (4.0, 0.0)),
        (0, 9, 11, (0.0, 0.0), (2.0, 0.0)),
        (0, 11, 12, (3.0, 0.0), (3.0, 0.0)),
    ]
    regions = [
        (0, 2, 6, [(0, 2, 5, (2.0, -1.0), (4.0, 0.0)), (0, 5, 6, (4.0, 0.0), (4.0, 0.0))]),
        (0, 1, 2, [(0, 1, 2, (1.0, 0.0), (4.0, 0.0))]),
    ]
    run("macd", Load({"S": before, "T": []}, [{"S": regions, "T": []}]), mode)


@pytest.mark.parametrize("name", ["macd", "minimum", "pairs", "total"])
@few
@given(load=loads(), data=st.data())
def test_batches_may_be_split_and_ordered_anyhow(name: str, load: Load, data: st.DataObject) -> None:
    """One change after the other, in any order, leads to the same results as all at once."""
    query = query_of(name)
    rows = {stream: list(some) for stream, some in load.before.items()}
    batch = load.batches[0]
    single = [(stream, region) for stream, regions in batch.items() for region in regions]
    shuffled = data.draw(st.permutations(single))
    view = started(query, rows, mode=data.draw(st.sampled_from(MODES)))
    held = from_scratch(query, rows)
    for stream, region in shuffled:
        revised = view.revise({stream: changed(rows[stream], [region])})
        rows[stream] = applied(rows[stream], [region])
        for key, change in at_instants(revised.changes.table).items():
            held.pop(key, None)
            if "new" in change:
                held[key] = {"new": change["new"]}
    wanted = from_scratch(query, rows)
    assert held.keys() == wanted.keys()
    for key, found in held.items():
        assert values_of(found["new"]) == pytest.approx(values_of(wanted[key]["new"]), rel=1e-6, abs=1e-6)


@given(load=loads(("S",)))
def test_points_hold_the_corrected_stream(load: Load) -> None:
    view = started(query_of("filter"), {**load.before, "T": []}, mode="upstream")
    rows = load.before["S"]
    for batch in load.batches:
        if batch["S"]:
            view.revise({"S": changed(rows, batch["S"])})
        rows = applied(rows, batch["S"])
    assert len(difference(view._streams["S"].everything(), relation(rows))) == 0


# -- one revision at a time -------------------------------------------------------------------------------------

FLAT = [(key, t, t + 1, (float(t % 5), 0.0), (0.0, 0.0)) for key in (0, 2) for t in range(12)]
STEEP = [(0, t, t + 1, (5.0 if t == 2 else 1.0, 0.0), (0.0, 0.0)) for t in range(12)]


def one(rows: list[Any], at: int, value: float, key: int = 0) -> Changed:
    return changed(rows, [(key, at, at + 1, [(key, at, at + 1, (value, 0.0), (0.0, 0.0))])])


def flows(revised: ViewUpdate) -> dict[str, Any]:
    return {flow.operator.split()[0]: flow for flow in revised.report.operators}


def test_a_row_that_stays_beside_one_that_goes_is_not_reported() -> None:
    rows = [(0, 6, 9, (0.0, 0.0), (0.0, 0.0)), (0, 9, 10, (0.0, 0.0), (0.0, 0.0))]
    others = [(1, 8, 10, (0.0, 0.0), (0.0, 0.0))]
    view = started(query_of("unlike pairs"), {"S": rows, "T": others})
    revised = view.revise({"S": changed(rows, [(0, 6, 10, rows[1:])])})
    emitted = revised.changes.table.to_pylist()
    assert [(row["kind"], row["hi"] - row["lo"]) for row in emitted] == [("-D", 1.0)]


def test_a_change_that_a_filter_does_not_see_is_absorbed_there() -> None:
    view = started(query_of("filter"), {"S": STEEP, "T": []})
    revised = view.revise({"S": one(STEEP, 5, 0.5)})
    assert len(revised.changes) == 0
    assert (flows(revised)["Scan"].out, revised.report.absorbed, revised.report.emitted) == (1, 1, 0)
    assert "1 absorbed" in str(revised.report)


def test_a_change_that_is_none_is_absorbed_at_the_scan() -> None:
    view = started(query_of("macd"), {"S": STEEP, "T": []})
    revised = view.revise({"S": one(STEEP, 5, 1.0)})
    assert len(revised.changes) == 0
    assert all(flow.revised == 0 for flow in revised.report.operators if not flow.operator.startswith("Scan"))


def test_what_crosses_a_predicate_is_deleted_or_inserted() -> None:
    view = started(query_of("filter"), {"S": STEEP, "T": []})
    deleted = view.revise({"S": one(STEEP, 2, 1.0)})
    assert deleted.changes.table.column("kind").to_pylist() == ["-D"]
    low = applied(STEEP, [(0, 2, 3, [(0, 2, 3, (1.0, 0.0), (0.0, 0.0))])])
    inserted = view.revise({"S": one(low, 4, 3.0)})
    assert inserted.changes.table.column("kind").to_pylist() == ["+I"]
    assert inserted.tuples(SECOND // 2).column("kind").to_pylist() == ["+I", "+I"]


def test_a_window_is_patched_where_bounds_stay_and_replayed_where_a_hole_opens() -> None:
    view = started(query_of("window"), {"S": FLAT, "T": []}, mode="downstream")
    revised = view.revise({"S": one(FLAT, 5, 7.0)})
    assert flows(revised)["Window"].modes == {"downstream": 1}
    rows = applied(FLAT, [(0, 5, 6, [(0, 5, 6, (7.0, 0.0), (0.0, 0.0))])])
    revised = view.revise({"S": changed(rows, [(0, 8, 9, [])])})
    flow = flows(revised)["Window"]
    assert (flow.modes, flow.fell_back) == ({"upstream": 1}, 1)


def test_an_extremum_is_patched_until_it_is_withdrawn() -> None:
    query = parse("select id, max(x) as a from S[size 4 advance 1]", STREAMS).bind({})
    view = started(query, {"S": STEEP, "T": []}, mode="downstream")
    # Of the windows that hold the value at 3 all hold the 5 at 2, but for the last.
    flow = flows(view.revise({"S": one(STEEP, 1, 0.5)}))["Window"]
    assert (flow.modes, flow.fell_back) == ({"downstream": 1}, 0)
    rows = applied(STEEP, [(0, 1, 2, [(0, 1, 2, (0.5, 0.0), (0.0, 0.0))])])
    flow = flows(view.revise({"S": one(rows, 2, 1.0)}))["Window"]
    assert (flow.modes, flow.fell_back) == ({"upstream": 1}, 1)


def test_the_cheaper_mode_is_taken_for_each_stretch() -> None:
    free, dear = Cost(0.0, 0.0), Cost(1e9, 1e9)
    for costs, mode in (
        (Costs(dear, free), "downstream"),
        (Costs(free, dear), "upstream"),
    ):
        view = started(query_of("window"), {"S": FLAT, "T": []}, costs=costs)
        assert flows(view.revise({"S": one(FLAT, 5, 7.0)}))["Window"].modes == {mode: 1}


def test_results_are_stored_where_that_pays_off() -> None:
    """First by what a window holds; then when the other way would have saved as much as computing all results again."""
    free, dear = Cost(0.0, 0.0), Cost(1e9, 1e9)
    patches, replays = Costs(dear, free), Costs(free, dear)
    view = started(query_of("window"), {"S": FLAT, "T": []}, costs=replays)
    (arc,) = (one for one in view._arcs.values() if isinstance(one, IncrementalWindow))
    assert arc.point is None
    rows, found = FLAT, []
    steps = [(replays, 7.0), *((patches, 8.0 + i) for i in range(6)), (replays, 5.0)]
    for costs, value in steps:
        arc._costs, arc._balance = costs, arc._balance if costs is patches else 0.0
        revised = view.revise({"S": one(rows, 5, value)})
        before = from_scratch(query_of("window"), {"S": rows, "T": []})
        rows = applied(rows, [(0, 5, 6, [(0, 5, 6, (value, 0.0), (0.0, 0.0))])])
        after = from_scratch(query_of("window"), {"S": rows, "T": []})
        check_changes(before, after, at_instants(revised.changes.table), exact_bounds=False)
        found.append(*flows(revised)["Window"].modes)
    assert found[0] == "upstream"
    assert found[1] == "upstream"  # one alone is no reason
    assert found[-2] == "downstream"
    assert (found[-1], arc.point is None) == ("upstream", False)
    view.revise({"S": one(rows, 5, 4.0)})
    assert arc.point is None


def test_points_may_lie_on_any_arc() -> None:
    query = query_of("macd")
    plan = IncrementalView(query, STREAMS).plan
    for node in walk(plan):
        if node.inputs:
            view = started(query, {"S": FLAT, "T": []}, points=[node], mode="downstream")
            emitted = at_instants(view.revise({"S": one(FLAT, 5, 7.0)}).changes.table)
            rows = applied(FLAT, [(0, 5, 6, [(0, 5, 6, (7.0, 0.0), (0.0, 0.0))])])
            check_changes(
                from_scratch(query, {"S": FLAT, "T": []}),
                from_scratch(query, {"S": rows, "T": []}),
                emitted,
                exact_bounds=False,
            )


def test_history_that_is_gone_is_an_error_that_leaves_all_as_it_was() -> None:
    view = started(query_of("window"), {"S": FLAT, "T": []}, keep="radius", mode="upstream")
    assert view.keep == 4 * SECOND
    view.advance((START + 10) * SECOND)
    with pytest.raises(HistoryDroppedError, match=r"is needed, but it is kept only from .* s too short"):
        view.revise({"S": one(FLAT, 6, 7.0)})
    revised = view.revise({"S": one(FLAT, 9, 7.0)})
    assert len(revised.changes) > 0
    with pytest.raises(HistoryDroppedError):
        view.revise({"S": one(FLAT, 2, 7.0)})


def test_mistakes_are_reported() -> None:
    with pytest.raises(ValueError, match="mode: expected one of adaptive, upstream, downstream, got 'best'"):
        IncrementalView(query_of("window"), STREAMS, mode="best")
    with pytest.raises(ValueError, match="keep: expected microseconds, 'radius' or None"):
        IncrementalView(query_of("window"), STREAMS, keep="all")
    mean = IncrementalView(query_of("mean of a filter"), STREAMS).plan
    with pytest.raises(ValueError, match="points: expected nodes whose results can be stored, got"):
        IncrementalView(query_of("mean of a filter"), STREAMS, points=[mean])
    idle = IncrementalView(query_of("window"), STREAMS)
    with pytest.raises(RevisionError, match="start it"):
        idle.revise({})
    with pytest.raises(RevisionError, match="stream 'T' is missing"):
        idle.start({"S": relation(FLAT)})
    view = started(query_of("window"), {"S": FLAT, "T": []})
    with pytest.raises(RevisionError, match="there is no stream 'U'; there are: S, T"):
        view.revise({"U": one(FLAT, 5, 7.0)})
    outside = replace(one(FLAT, 5, 7.0), new=relation(FLAT))
    with pytest.raises(RevisionError, match="lies outside the revision's regions"):
        view.revise({"S": outside})
    assert len(view.revise({"S": one(FLAT, 5, 7.0)}).changes) > 0


# -- the paper's example (semantics 7.8) ------------------------------------------------------------------------

MINUTE = 60 * SECOND
QUOTES = Columns((("symbol", pa.string()),), ("price",), points=True)


def quotes(prices: dict[int, float]) -> Relation:
    times = sorted(prices)
    n = len(times)
    return Relation(
        columns=QUOTES,
        keys=(pa.array(["IBM"]),),
        offsets=np.array([0, n]),
        ref=np.array([t * MINUTE for t in times], np.int64),
        lo=np.zeros(n),
        hi=np.zeros(n),
        models={"price": np.array([prices[t] for t in times], np.float64).reshape(-1, 1)},
        err={"price": np.zeros(n)},
        drift={},
        certainty=np.full(n, 3, np.uint8),
    )


@pytest.mark.parametrize("mode", ["upstream", "downstream"])
def test_the_example_of_the_paper(mode: str) -> None:
    """Windows open at 1:40 and 2:00; IBM's price at 2:00 was 22, not 25: 80 becomes 77 and 62 becomes 59."""
    scan = parse("select symbol, sum(price) as s from Q[size 30 min advance 20 min]", {"Q": QUOTES}).bind({})
    view = IncrementalView(scan, {"Q": QUOTES}, mode=mode)
    prices = {100: 30.0, 110: 25.0, 120: 25.0, 130: 20.0, 145: 17.0, 170: 4.0}
    view.start({"Q": quotes(prices)})
    at = Regions((pa.array(["IBM"]),), np.array([120 * MINUTE]), np.array([120 * MINUTE + 1]))
    revised = view.revise({"Q": Changed(at, quotes({120: 25.0}), quotes({120: 22.0}))})
    flow = flows(revised)["Window"]
    assert flow.modes == {mode: 1}
    emitted = [
        (row["kind"], row["s"])
        for row in revised.tuples(10 * MINUTE).to_pylist()
        if row[scan.plan.columns.time].hour * 60 + row[scan.plan.columns.time].minute in (130, 150)
    ]
    assert emitted == [("-U", 80.0), ("+U", 77.0), ("-U", 62.0), ("+U", 59.0)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "what",
    [
        "sum(price) as a, avg(price) as b, max(price) as c from Q[size 7 advance 3]",
        "avg(price) as a from Q[size 4 advance 4]",
        "count(*) as a from Q[size 2 advance 5]",
        "min(price) as a from Q[size 9 advance 2] having min(price) < 3",
    ],
)
@few
@given(data=st.data())
def test_closing_times_alone_say_what_all_instants_say(what: str, mode: str, data: st.DataObject) -> None:
    """Results at closing times only: the same tuples as from segments, and as many stored as windows hold a tuple."""
    query = parse(f"select symbol, {what}", {"Q": QUOTES}).bind({})
    values = st.integers(0, 9).map(float)
    held = data.draw(st.dictionaries(st.integers(0, 40), values, min_size=1, max_size=25))
    views = [
        IncrementalView(query, {"Q": QUOTES}, mode=one, every=every)
        for one, every in (("upstream", None), (mode, query.rate))
    ]
    for view in views:
        view.start({"Q": at_seconds(held)})
    for _ in range(3):
        at = data.draw(st.integers(0, 40))
        new = data.draw(st.none() | values)
        regions = Regions((pa.array(["IBM"]),), np.array([at * SECOND]), np.array([at * SECOND + 1]))
        before = {at: held[at]} if at in held else {}
        after = {} if new is None else {at: new}
        changed = Changed(regions, at_seconds(before), at_seconds(after))
        emitted = [view.revise({"Q": changed}).tuples().to_pylist() for view in views]
        assert len(emitted[0]) == len(emitted[1])
        for one, other in zip(*emitted, strict=True):
            (first, *mine), (second, *theirs) = one.values(), other.values()
            assert first == second
            assert mine == pytest.approx(theirs)
        held.pop(at, None)
        held.update(after)


def at_seconds(prices: dict[int, float]) -> Relation:
    made = quotes(prices)
    return replace(made, ref=made.ref // MINUTE * SECOND)


def test_one_result_is_touched_where_windows_follow_each_other() -> None:
    query = parse("select symbol, sum(price) as s from Q[size 100 advance 100]", {"Q": QUOTES}).bind({})
    view = IncrementalView(query, {"Q": QUOTES}, mode="downstream", every=query.rate)
    prices = {t: float(t % 7) for t in range(1000)}
    view.start({"Q": at_seconds(prices)})
    at = Regions((pa.array(["IBM"]),), np.array([250 * SECOND]), np.array([250 * SECOND + 1]))
    revised = view.revise({"Q": Changed(at, at_seconds({250: 5.0}), at_seconds({250: 6.0}))})
    flow = flows(revised)["Window"]
    assert (flow.modes, flow.rows_out, revised.report.emitted) == ({"downstream": 1}, 2, 2)
    was = sum(prices[t] for t in range(200, 300))
    assert [row["s"] for row in revised.tuples().to_pylist()] == [was, was + 1.0]


def test_small_changes_add_up_in_what_is_stored() -> None:
    """Each of the patches is too small to emit; the next larger one emits them all."""
    query = parse("select symbol, sum(price) as s from Q[size 100 advance 100]", {"Q": QUOTES}).bind({})
    view = IncrementalView(query, {"Q": QUOTES}, mode="downstream")
    prices = dict.fromkeys(range(300), 1e6)
    view.start({"Q": at_seconds(prices)})
    at = Regions((pa.array(["IBM"]),), np.array([150 * SECOND]), np.array([150 * SECOND + 1]))
    value = 1e6
    for by in [0.01] * 20 + [50.0]:
        old, new = at_seconds({150: value}), at_seconds({150: value + by})
        revised = view.revise({"Q": Changed(at, old, new)})
        assert (len(revised.changes) > 0) == (by > 1.0)
        value += by
    assert revised.tuples().column("s").to_pylist()[1] == pytest.approx(99e6 + value, rel=1e-12)


def test_pairs_that_are_near_beside_what_changed_are_found() -> None:
    """Far from each other where a row goes, but near in a window that it was in."""
    far = [(0, 0, 1, (0.0, -1.0), (0.0, 0.0)), (0, 1, 6, (0.0, 0.0), (0.0, 0.0))]
    rows = [*far, (2, 0, 2, (3.0, 0.0), (0.0, 0.0)), (2, 2, 6, (0.0, 0.0), (0.0, 0.0))]
    query = query_of("following")
    view = started(query, {"S": rows, "T": []}, mode="upstream")
    emitted = at_instants(view.revise({"S": changed(rows, [(0, 0, 1, [])])}).changes.table)
    before, after = (from_scratch(query, {"S": some, "T": []}) for some in (rows, rows[1:]))
    assert before.keys() > after.keys()
    check_changes(before, after, emitted, exact_bounds=True)


def test_windows_of_the_plan_are_found() -> None:
    plan = IncrementalView(query_of("macd"), STREAMS).plan
    assert sum(isinstance(node, Window) for node in walk(plan)) == 2

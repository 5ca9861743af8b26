"""The history of a stream: however revisions come, what is in force is what the corrected tuples alone would have led to."""

from __future__ import annotations

import itertools
import pickle
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import UnknownColumnError
from pulse.core.expression import Arithmetic, Column, Elapsed
from pulse.core.schema import StreamSchema
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import apply_updates, clip, replaced
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.operators.output.diff import difference
from pulse.validation.online.validator import Validator
from pulse.validation.revisions.history import AcceptedTuples, History, Retention
from tests.validation.revised_streams import (
    LINES,
    SECOND,
    STEPS,
    WATCHED,
    Line,
    Row,
    corrected,
    revised,
    table,
)

FAR = 1 << 60


def spec(way: str, error: Any = 1.0) -> PredictSpec:
    if way == "model":
        models = {
            name: Arithmetic("+", Column(name), Arithmetic("*", Column(f"v{name}"), Elapsed()))
            for name in "xy"
        }
        return PredictSpec.of(LINES, horizon=6.0, error=error, models=models)
    schema = {"hold": STEPS, "watched": WATCHED, "trend": STEPS}[way]
    return PredictSpec.of(schema, horizon=6.0, error=error, policy="trend" if way == "trend" else "hold")


class Run:
    """A validator with a history, and what lies downstream of it."""

    def __init__(self, way: PredictSpec, span: float = 1000.0) -> None:
        self.validator = Validator(way)
        self.history = History(way, Retention(int(span * SECOND), "op"))
        self.downstream = self.history.in_force()
        self.aside: list[str] = []
        self.revisions = self.absorbed = 0

    def push(self, lines: list[Line], advance: float | None = None) -> AcceptedTuples:
        schema = self.history.schema
        taken = self.history.push(self.validator, table(lines, schema))
        if taken.revised is not None:
            one = taken.revised
            self.downstream = replaced(self.downstream, one.keys, one.start, one.segments)
        self.downstream, _ = apply_updates(self.downstream, taken.updates)
        self.revisions += taken.revisions
        self.absorbed += taken.absorbed
        if taken.aside is not None:
            self.aside += taken.aside.column("reason").to_pylist()
        if advance is not None:
            self.history.advance(self.validator, int(advance * SECOND), -FAR)
        return taken


def from_scratch(way: PredictSpec, rows: list[Row]) -> Relation:
    validator = Validator(way)
    pushed = validator.push(table([Line("+I", row) for row in rows], way.schema, None))
    return apply_updates(Relation.empty(pushed.updates.columns), pushed.updates)[0]


def same(a: Relation, b: Relation, since: int = -FAR) -> bool:
    found = difference(clip(a, since, FAR), clip(b, since, FAR)).table
    return found.num_rows == 0


ways = st.sampled_from(["model", "hold", "trend", "watched"])
cuts = st.lists(st.integers(0, 30), max_size=4)


def parts(lines: list[Line], at: list[int]) -> list[list[Line]]:
    """Cut anywhere, but not between the halves of a replacement."""
    places = sorted(
        {
            min(one, len(lines))
            for one in at
            if one >= len(lines) or lines[min(one, len(lines) - 1)].kind != "+U"
        }
    )
    edges = [0, *places, len(lines)]
    return [lines[a:b] for a, b in itertools.pairwise(edges)]


@given(ways, st.data(), cuts)
def test_what_is_in_force_is_that_of_the_corrected_tuples(
    way: str, data: st.DataObject, at: list[int]
) -> None:
    chosen = spec(way)
    lines = data.draw(revised(chosen.schema))
    run = Run(chosen)
    for part in parts(lines, at):
        run.push(part)
    expected = from_scratch(chosen, corrected(lines))
    assert same(run.downstream, run.history.in_force())
    if not run.absorbed:
        assert same(run.downstream, expected)


@given(ways, st.data(), cuts)
def test_nothing_can_be_absorbed_where_models_are_exact(way: str, data: st.DataObject, at: list[int]) -> None:
    """With a bound of nothing every correction that is one moves; so all is as from scratch."""
    chosen = spec(way, error=0.0)
    lines = data.draw(revised(chosen.schema))
    run = Run(chosen)
    for part in parts(lines, at):
        run.push(part)
    # Lines that were fitted to what was corrected since, and go through the tuples all the same.
    if way != "trend":
        assert same(run.downstream, from_scratch(chosen, corrected(lines)))


@given(ways, st.data(), cuts, st.sampled_from([0.5, 2.0, 6.0]))
def test_replay_from_the_anchor_is_replay_from_the_beginning(
    way: str, data: st.DataObject, at: list[int], span: float
) -> None:
    chosen = spec(way)
    lines = data.draw(revised(chosen.schema, most=18))
    run, whole = Run(chosen, span), Run(chosen)
    now = 0.0
    for part in parts(lines, at):
        before = len(run.aside)
        run.push(part)
        now = max([now, *(line.row[1] for line in part)])
        whole.push(part)
        if any("older than" in one for one in run.aside[before:]):
            return  # from here on the two know different tuples
        run.history.advance(run.validator, int(now * SECOND), -FAR)
    assert (run.revisions, run.absorbed) == (whole.revisions, whole.absorbed)
    assert same(run.downstream, whole.downstream)
    again: History = pickle.loads(pickle.dumps(run.history))
    assert same(again.in_force(), run.history.in_force())


def truth(rows: list[Row], t: float, at: int, *, linear: bool) -> float | None:
    """The value of attribute ``at`` between the tuples of a key, by time; None before the first and from the last on."""
    before, after = [row for row in rows if row[1] <= t], [row for row in rows if row[1] > t]
    if not before or not after:
        return None
    old, new = before[-1], after[0]
    return (
        float(old[at] + (new[at] - old[at]) * (t - old[1]) / (new[1] - old[1])) if linear else float(old[at])
    )


@given(st.sampled_from(["model", "hold", "trend"]), st.data(), cuts, st.sampled_from([0.5, "20% or 0.25"]))
def test_what_is_in_force_is_near_the_corrected_truth(
    way: str, data: st.DataObject, at: list[int], error: Any
) -> None:
    """Whatever was absorbed: at every instant, within what the segment states."""
    chosen = spec(way, error)
    lines = data.draw(revised(chosen.schema, small=True))
    run = Run(chosen)
    for part in parts(lines, at):
        run.push(part)
    rows = corrected(lines)
    for one in run.downstream.to_segments().to_pylist():
        mine = [row for row in rows if row[0] == one["id"]]
        begin = (one["ref"] - datetime(1970, 1, 1)).total_seconds()
        for x in np.linspace(0.001, one["hi"] - 0.001, 23):
            for i, name in enumerate("xy"):
                real = truth(mine, begin + x, 2 + i, linear=way == "model")
                if real is not None:
                    reported = sum(c * x**j for j, c in enumerate(one[name]))
                    assert abs(reported - real) <= one[f"{name}_err"] + 1e-9


# -- scenarios ----------------------------------------------------------------------------------------------


def plus(*rows: Row) -> list[Line]:
    return [Line("+I", row) for row in rows]


def swap(old: Row, new: Row) -> list[Line]:
    return [Line("-U", old), Line("+U", new)]


def held(run: Run) -> list[tuple[object, ...]]:
    """What is in force: key, from, to, x."""
    rows = run.history.in_force().to_segments().to_pylist()
    return [
        (row["id"], (row["ref"] - datetime(1970, 1, 1)).total_seconds(), row["hi"], row["x"]) for row in rows
    ]


STEADY = plus(("a", 0.0, 5.0, 0.0), ("a", 1.0, 5.25, 0.0), ("a", 2.0, 4.75, 0.0), ("b", 2.0, 1.0, 0.0))


def test_a_correction_within_the_bound_moves_nothing() -> None:
    run = Run(spec("hold"))
    run.push(STEADY)
    before = held(run)
    taken = run.push(swap(("a", 1.0, 5.25, 0.0), ("a", 1.0, 5.5, 0.0)))
    assert (taken.revised, len(taken.updates), taken.revisions, taken.absorbed) == (None, 0, 1, 1)
    assert held(run) == before
    # The log knows better: the next correction names the corrected value.
    assert run.push(swap(("a", 1.0, 5.5, 0.0), ("a", 1.0, 5.25, 0.0))).absorbed == 1


def test_a_correction_beyond_the_bound_moves_its_key_alone() -> None:
    run = Run(spec("hold"))
    run.push(STEADY)
    taken = run.push(swap(("a", 1.0, 5.25, 0.0), ("a", 1.0, 8.0, 0.0)))
    assert taken.revised is not None
    assert taken.revised.keys[0].to_pylist() == ["a"]
    assert (taken.revised.since.tolist(), taken.absorbed) == ([SECOND], 0)
    # Two came after it: the model of the first tuple is not believed any more, that of the last is.
    assert held(run)[:3] == [("a", 0.0, 1.0, [5.0]), ("a", 1.0, 1.0, [8.0]), ("a", 2.0, 6.0, [4.75])]


def test_without_its_tuples_a_key_is_unknown() -> None:
    run = Run(spec("hold"))
    run.push(STEADY)
    taken = run.push([Line("-D", ("b", 2.0, 1.0, 0.0))])
    assert taken.revised is not None
    assert len(taken.revised.segments) == 0
    assert {row[0] for row in held(run)} == {"a"}
    run.push(plus(("b", 1.0, 3.0, 0.0)))  # in order again: nothing of it was before
    assert run.revisions == 1
    assert ("b", 1.0, 6.0, [3.0]) in held(run)


def test_of_equal_tuples_one_goes() -> None:
    run = Run(spec("hold"))
    run.push(plus(("a", 0.0, 5.0, 0.0), ("a", 0.0, 5.0, 0.0)))
    assert run.push([Line("-D", ("a", 0.0, 5.0, 0.0))]).absorbed == 1
    assert len(run.history.log) == 1
    run.push([Line("-D", ("a", 0.0, 5.0, 0.0)), Line("-D", ("a", 0.0, 5.0, 0.0))])
    assert (held(run), run.revisions, len(run.aside)) == ([], 2, 1)


def test_what_has_no_place_says_why() -> None:
    run = Run(spec("hold"), span=10.0)
    run.push(plus(*(("a", float(t), 5.0, 0.0) for t in range(20))), advance=19.0)
    before = held(run)
    taken = run.push(
        [
            Line("-D", ("a", 12.5, 5.0, 0.0)),
            *swap(("a", 15.0, 6.0, 0.0), ("a", 15.0, 7.0, 0.0)),
            *swap(("a", 15.0, 5.0, 0.0), ("a", 15.0, float("nan"), 0.0)),
            Line("-D", ("a", 4.0, 5.0, 0.0)),
            Line("+I", ("a", 3.0, 5.0, 0.0)),
            Line("?", ("a", 20.0, 5.0, 0.0)),
            Line("-D", ("zzz", 15.0, 5.0, 0.0)),
        ]
    )
    reasons = [] if taken.aside is None else taken.aside.column("reason").to_pylist()
    assert reasons == [
        "deletion of a tuple that is not recorded: at 1970-01-01T00:00:12.500000Z: expected x = 5.0, y = 0.0; "
        "nothing is recorded there",
        *[
            "replacement of a tuple that is not recorded: at 1970-01-01T00:00:15.000000Z: "
            "expected x = 6.0, y = 0.0; recorded there: x = 5.0, y = 0.0"
        ]
        * 2,
        *["not finite"] * 2,
        "older than the history kept: it begins at 1970-01-01T00:00:09.000000Z, 5 s more were needed",
        "older than the history kept: it begins at 1970-01-01T00:00:09.000000Z, 6 s more were needed",
        "no kind of element: expected one of +I, -D, -U, +U, got '?'",
        "deletion of a tuple that is not recorded: at 1970-01-01T00:00:15.000000Z: expected x = 5.0, y = 0.0; "
        "nothing is recorded there",
    ]
    assert taken.aside is not None
    assert taken.aside.column("op").to_pylist()[:3] == ["-D", "-U", "+U"]
    assert (taken.revisions, taken.revised, held(run)) == (0, None, before)


def test_a_half_without_a_time_takes_the_other_with_it() -> None:
    run = Run(spec("hold"))
    run.push(STEADY)
    lines = table(swap(("a", 1.0, 5.25, 0.0), ("a", 1.0, 9.0, 0.0)), STEPS)
    lines = lines.set_column(1, "t", pa.array([None, SECOND], pa.timestamp("us")))
    taken = run.history.push(run.validator, lines)
    assert taken.aside is not None
    assert taken.aside.column("reason").to_pylist() == [
        "no time",
        "the other half of the replacement has no key or no time",
    ]
    assert (taken.revisions, taken.counts.misplaced) == (0, 1)


def test_other_types_and_no_key() -> None:
    one = StreamSchema.of(key={}, time="t", modelled={"x": "step"})
    chosen = PredictSpec.of(one, horizon=6.0, error=1.0)
    validator, history = Validator(chosen), History(chosen, Retention(100 * SECOND, "op"))

    def rows(kinds: list[str], t: list[int], x: list[int], type_: pa.DataType) -> pa.Table:
        return pa.table(
            {"t": pa.array([v * 10**9 for v in t], pa.timestamp("ns")), "x": pa.array(x, type_), "op": kinds}
        )

    history.push(validator, rows(["+I"] * 3, [0, 1, 2], [5, 5, 5], pa.int32()))
    taken = history.push(validator, rows(["-U", "+U"], [1, 1], [5, 9], pa.float32()))
    assert taken.revised is not None
    assert [row["x"] for row in history.in_force().to_segments().to_pylist()] == [[5.0], [9.0], [5.0]]


def test_a_log_is_bounded_and_can_lie_elsewhere() -> None:
    run = Run(spec("hold"), span=20.0)
    shelf: dict[int, Any] = {}
    most = 0
    for t in range(200):
        run.history.log.shelf = shelf.__getitem__
        run.push(plus(*((key, float(t), float(t % 7), 0.0) for key in "abc")), advance=float(t))
        if t % 10 == 9 and t > 10:
            run.push(swap(("b", float(t - 15), float((t - 15) % 7), 0.0), ("b", float(t - 15), 3.0, 0.0)))
        new, gone = run.history.log.put_away()
        assert not set(new) & set(shelf)
        shelf |= new
        for number in gone:
            del shelf[number]
        run.history = pickle.loads(pickle.dumps(run.history))
        most = max(most, len(run.history.log))
    assert most <= 3 * 24
    assert len(shelf) == len(run.history.log.chunks) < 12
    assert sum(map(len, shelf.values())) == len(run.history.log)
    assert len(run.history.segments) < 100
    assert run.aside == []
    assert run.revisions == 19


def test_columns_that_are_not_there_are_named() -> None:
    run = Run(spec("hold"))
    with pytest.raises(UnknownColumnError, match="the kind of element"):
        run.history.push(run.validator, table(STEADY, STEPS, None))

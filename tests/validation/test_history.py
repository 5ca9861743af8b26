"""The history of a stream: however revisions come, what is in force is what the corrected tuples alone would have led to."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pulse.core.expression import Arithmetic, Column, Elapsed
from pulse.operators.at_rest import settled
from pulse.operators.difference import difference
from pulse.operators.grid import within
from pulse.operators.predict import PredictSpec
from pulse.operators.relation import Relation
from pulse.validation.history import History, Retention, Taken
from pulse.validation.replay import replaced
from pulse.validation.validator import Validator
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

    def push(self, lines: list[Line], advance: float | None = None) -> Taken:
        schema = self.history.schema
        taken = self.history.push(self.validator, table(lines, schema))
        if taken.revised is not None:
            one = taken.revised
            self.downstream = replaced(self.downstream, one.keys, one.start, one.segments)
        self.downstream, _ = settled(self.downstream, taken.updates)
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
    return settled(Relation.empty(pushed.updates.columns), pushed.updates)[0]


def same(a: Relation, b: Relation, since: int = -FAR) -> bool:
    found = difference(within(a, since, FAR), within(b, since, FAR)).table
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
    if (
        way != "trend"
    ):  # lines that were fitted to what was corrected since, and go through the tuples all the same
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

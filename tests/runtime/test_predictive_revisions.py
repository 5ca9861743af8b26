"""Revisions in the stream of a prediction: in the end all is as if the corrected tuples alone had come, in their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse.language import parse
from pulse.operators.difference import difference
from pulse.operators.predict import PredictSpec
from pulse.runtime.predictor import Prediction, Predictor
from pulse.validation.history import Retention
from tests.runtime.test_predictor import LINES, MODEL, QUERIES, STEPS, held_against_truth, results_of
from tests.truth.predicted import Changelog
from tests.validation.revised_streams import SECOND, Line, Row, corrected, revised, table


def prediction(
    name: str, way: str, *, span: float | None = 1000.0, error: Any = 0.5, ending: str = ""
) -> Prediction:
    schema = STEPS if way == "steps" else LINES
    clause = MODEL if way == "model" and name != "macd" else ""
    text = QUERIES[name][0].format(model=clause)
    query = parse(f"{text} {ending} with possible", {"S": schema}).bind({})
    policy = "trend" if way == "trend" else "hold"
    spec = PredictSpec.of(schema, horizon=1000.0 if name == "envelope" else 6.0, error=error, policy=policy)
    retentions = {} if span is None else {"S": Retention(int(span * SECOND), "op")}
    return Prediction(Predictor.of(query, {"S": spec}, retentions=retentions))


def from_scratch(name: str, way: str, rows: list[Row], **more: Any) -> Prediction:
    p = prediction(name, way, span=None, **more)
    lines = [Line("+I", row) for row in rows]
    if lines:
        p.push({"S": table(lines, p.predictor.specs["S"].schema, None)})
    return p


def batches(lines: list[Line], size: int) -> list[list[Line]]:
    """About so many lines each; the halves of a replacement stay together."""
    out: list[list[Line]] = [[]]
    for line in lines:
        if len(out[-1]) >= size and line.kind != "+U":
            out.append([])
        out[-1].append(line)
    return out


def push(p: Prediction, lines: list[Line], size: int, log: Changelog | None = None) -> Prediction:
    for some in batches(lines, size):
        emission = p.push({"S": table(some, p.predictor.specs["S"].schema)})
        if log is not None:
            log.apply(emission.changes)
    return p


ways = st.sampled_from(["model", "trend", "steps"])
sizes = st.integers(1, 9)


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=15)
@given(way=ways, data=st.data(), size=sizes)
def test_revised_is_as_from_scratch(name: str, way: str, data: st.DataObject, size: int) -> None:
    _, _, keys, value, _ = QUERIES[name]
    lines = data.draw(revised(STEPS if way == "steps" else LINES))
    log = Changelog(keys, (value,) if value else (), np.arange(0.0625, 60.0, 0.29) * SECOND)
    p = push(prediction(name, way), lines, size, log)
    assert log.leads_to(p.results())
    if not p.tally.absorbed:
        other = from_scratch(name, way, corrected(lines))
        assert difference(results_of(p, name), results_of(other, name)).table.to_pylist() == []


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=12)
@given(way=ways, data=st.data(), size=sizes, bound=st.sampled_from(["", "error within 0.5"]))
def test_results_are_within_their_certificates_of_the_corrected_truth(
    name: str, way: str, data: st.DataObject, size: int, bound: str
) -> None:
    """Also where corrections are so small that they are absorbed."""
    schema = STEPS if way == "steps" else LINES
    lines = data.draw(revised(schema, small=True))
    p = push(prediction(name, way, error=None if bound else 0.5, ending=bound), lines, size)
    rows = corrected(lines)
    if not rows or len({row[:2] for row in rows}) < len(rows):
        return  # of tuples at one instant exact models take only one
    truth = table([Line("+I", row) for row in rows], schema, None)
    assert held_against_truth(p, name, truth, schema).faults == {}

"""Fragments over relations: the two ways to an answer agree, equal nodes are worked out once, what is shared is bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.certainty import LIKELY
from pulse.operators.node import Node, walk
from pulse.operators.output.sampling import sample, to_tuples
from pulse.operators.relational.scan import Scan
from pulse.operators.windows import integral
from pulse.operators.windows.window import Window
from pulse.runtime.execution import evaluator
from pulse.runtime.execution.bound_plan import BoundPlan, prepare
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.fragment import evaluate_unit
from pulse.store.model import Model
from tests.runtime.execution.asking import MACD, local, prices, rows_of, ticks

QUERIES = {
    "macd": (MACD, {"short": 4, "long": 12}),
    "filter of a window": (
        "select symbol, max(price) - min(price) as span from S[size 6 advance 2] having max(price) > 20",
        {},
    ),
    "window of a filter": ("select symbol, sum(price) as s from S[size 2 advance 1] where price > 19.5", {}),
    "projection of windows": ("select symbol, avg(price) * 2 - 1 as a from S[size 3 advance 3]", {}),
    "join with a stream": (
        "select S.symbol, S.price - L.a as d from S join (select symbol, avg(price) as a from S[size 5 advance 1]) as L "
        "on S.symbol = L.symbol where S.price > L.a",
        {},
    ),
    "plain": ("select symbol, price, venue from S where price > 20 sample every 500 ms", {}),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Prices that are never quite what a predicate compares them with, and never change at a closing time: there, ranges
    are half open, and a segment speaks of what comes, a tuple of what was."""
    data = ticks()
    noisy = data.column("price").to_numpy() + np.random.default_rng(7).normal(0, 0.05, data.num_rows)
    later = pa.array(data.column("t").cast(pa.int64()).to_numpy() + 370_123).cast(pa.timestamp("us"))
    data = data.set_column(1, "t", later).set_column(2, "price", pa.array(noisy))
    return prices(tmp_path_factory.mktemp("evaluate") / "prices", data)


def job_of(model: Model, name: str, *, possible: bool = False, tuples: bool = True) -> BoundPlan:
    text, parameters = QUERIES[name]
    answer = local().sql(text, streams={"S": model}, possible=possible, **parameters)
    return prepare(answer.query, {"S": str(model.path)}, tuples=tuples)


def on_the_unit(job: BoundPlan) -> tuple[FragmentEvaluation, Any]:
    (fragment,) = job.fragments
    (unit,) = job.units(fragment)
    return evaluate_unit(job, fragment, unit, None), fragment.root


@pytest.mark.parametrize("possible", [False, True])
@pytest.mark.parametrize("name", QUERIES)
def test_samples_are_the_segments_sampled(stored: Model, name: str, possible: bool) -> None:
    job = job_of(stored, name, possible=possible)
    assert job.rate is not None
    evaluation, root = on_the_unit(job)
    directly = to_tuples(evaluation.samples(root, job.rate), job.query.select, possible=possible)
    solved = to_tuples(sample(evaluation.segments(root), job.rate), job.query.select, possible=possible)
    got, wanted = (rows_of(pa.Table.from_batches([one])) for one in (directly, solved))
    assert set(map(_values, got)) == set(map(_values, wanted))
    assert len(got) > 5


def _values(row: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """Time, keys and values to six digits."""
    return tuple(
        (name, round(value, 6) + 0.0 if isinstance(value, float) else value)
        for name, value in row
        if not name.endswith("_err") and name != "certainty"
    )


def test_equal_nodes_are_worked_out_once(stored: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = integral.Integral.segments
    monkeypatch.setattr(
        integral.Integral, "segments", lambda self, r: calls.append(self.size) or original(self, r)
    )
    evaluation, root = on_the_unit(job_of(stored, "macd", tuples=False))
    first = evaluation.segments(root)
    assert evaluation.segments(root) is first
    assert sorted(calls) == [4_000_000, 12_000_000]
    job = job_of(stored, "macd")
    evaluation, root = on_the_unit(job)
    assert evaluation.samples(root, 2_000_000) is evaluation.samples(root, 2_000_000)


def test_what_is_kept_for_the_next_variant_has_bounds(stored: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(stored, "macd")
    evaluation, root = on_the_unit(job)
    wanted = evaluation.samples(root, 2_000_000)
    windows = [node for node in walk(root) if isinstance(node, Window)]
    assert len(windows) == 2
    evaluation.keep_shared()
    assert {node for node, _ in evaluation._sampled} == set(windows)
    assert evaluation._relations == {}
    again = evaluation.samples(root, 2_000_000)
    assert again is not wanted
    assert np.array_equal(again.values["diff"], wanted.values["diff"])
    sizes = [
        evaluator._bytes(samples) for (node, _), samples in evaluation._sampled.items() if node in windows
    ]
    monkeypatch.setattr(evaluator, "SHARED_BYTES", sum(sizes) - 1)
    evaluation.keep_shared()
    assert len(evaluation._sampled) == 1
    monkeypatch.setattr(evaluator, "SHARED_BYTES", 0)
    monkeypatch.setattr(evaluator, "SHARED_SCANS", 0)
    evaluation.keep_shared()
    assert evaluation._sampled == evaluation._inputs == {}


def test_leaves_can_be_given_later(stored: Model) -> None:
    job = job_of(stored, "plain", tuples=False)
    evaluation, root = on_the_unit(job)
    (leaf,) = (node for node in walk(root) if isinstance(node, Scan))
    later = FragmentEvaluation({})
    assert not later.has(leaf)
    later.give({leaf: evaluation.segments(leaf)})
    assert later.has(leaf)
    assert later.segments(root).to_segments().equals(evaluation.segments(root).to_segments())


def test_possible_rows_are_left_out_unless_asked_for(stored: Model) -> None:
    job = job_of(stored, "plain", possible=True, tuples=False)
    evaluation, root = on_the_unit(job)
    everything = evaluation.segments(root)
    answer = everything.without_possible()
    assert 0 < len(answer) < len(everything)
    assert (answer.certainty >= LIKELY).all()
    assert answer.without_possible() is answer


def test_a_node_without_operator_is_our_own_mistake(stored: Model) -> None:
    evaluation, _ = on_the_unit(job_of(stored, "plain"))
    with pytest.raises(NotImplementedError, match="Node does not compute segments"):
        evaluation.segments(Node())

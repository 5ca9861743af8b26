"""Shares that move between two streams: models in force are restated, with and without revisions."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from pulse.language import parse
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.runtime.predict.bound_feedback import merge_parties, parties
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.spec import Predictor
from pulse.validation.revisions.history import Retention
from tests.runtime.predict.restarting import restarted
from tests.runtime.predict.test_emissions import FIG_1, A, B, Question, fig_1
from tests.runtime.predict.test_spec import SECOND
from tests.truth.predicted import compare, curves

SCHEMAS = {"A": A, "B": B}


def of_a(*rows: tuple[str, float, float, float]) -> pa.Table:
    keys, t, x, v = zip(*rows, strict=True)
    at = pa.array([int(one * SECOND) for one in t], pa.timestamp("us"))
    return pa.table({"id": list(keys), "t": at, "x": list(x), "v": list(v)})


def of_b(*rows: tuple[str, float, float, float]) -> pa.Table:
    table = of_a(*rows).rename_columns(["id", "t", "y", "v"])
    return table.append_column("a", pa.array(np.zeros(table.num_rows)))


def running(ending: str = "error within 0.3") -> Prediction:
    query = parse(f"{FIG_1} {ending} with possible", SCHEMAS).bind({})
    specs = {name: PredictSpec.of(schema, horizon=60.0) for name, schema in SCHEMAS.items()}
    return Prediction(Predictor.of(query, specs))


def test_only_one_of_two_streams_has_tuples() -> None:
    """While A is far above B there is no result and A may err by much; then B alone turns up above it."""
    p = running()
    p.push({"A": of_a(("p", 0, 100, 0)), "B": of_b(("q", 0, 0, 0))})
    p.push({"A": of_a(("p", 1, 150, 0)), "B": of_b(("q", 1, 50, 0))})
    p.push({"A": of_a(("p", 2, 150.25, 0)), "B": of_b(("q", 2.5, 50, 0))})
    assert p.view is not None
    (wide,) = p.view.streams["A"].err["x"][-1:]
    assert wide > 0.3
    emission = p.push({"B": of_b(("q", 3, 200, 0))})
    assert emission.tally.beyond == 0
    reported = emission.changes.to_pylist()
    assert {row["kind"] for row in reported} == {"+I"}
    assert max(row["d_err"] for row in reported) <= 0.3
    # From A's newest tuple on its model states less, and was moved onto it if it missed it by more.
    held = p.view.streams["A"]
    assert held.err["x"][-1] <= 0.3
    assert held.err["x"][-2] == wide
    assert int(held.ref[-1]) == 2 * SECOND
    assert abs(held.models["x"][-1, 0] - 150.25) <= held.err["x"][-1]
    assert int(p.validators["A"].push(of_a(("p", 4, 150.25, 0))).counts.validated) == 1


def test_who_takes_part() -> None:
    p = running()
    p.push({"A": of_a(("p", 0, 1, 0), ("r", 0, 9, 0)), "B": of_b(("q", 0, 5, 0))})
    assert p.view is not None
    found = parties(p.predictor.continuous, p.view.results)
    assert {stream: keys[0].to_pylist() for stream, keys in found.items() if keys} == {"A": ["p"], "B": ["q"]}
    both = merge_parties(found, {"A": (pa.array(["r"]),)})
    assert both["A"] is not None
    assert both["A"][0].to_pylist() == ["p", "r"]
    assert merge_parties(found, {"B": None})["B"] is None


def pushes(asked: Question, size: int, late: int) -> list[dict[str, pa.Table]]:
    """Both streams together in time, every ``late``-th tuple one push too late."""
    cuts = asked._cuts(size, together=True)
    out: list[dict[str, pa.Table]] = [{} for _ in range(len(cuts))]
    for i, (begin, end) in enumerate(pairwise(cuts)):
        for name, table in asked.streams.items():
            rows = np.arange(begin[name], end[name])
            for to, some in ((i, rows[rows % late != 0]), (i + 1, rows[rows % late == 0])):
                if len(some):
                    parts = [out[to][name]] if name in out[to] else []
                    out[to][name] = pa.concat_tables([*parts, table.take(pa.array(some))])
    return out


@pytest.mark.parametrize("seed", [12, 15, 23])
def test_late_tuples_and_shares_that_move(seed: int) -> None:
    """Certificates hold after revisions, of which some are of models that were restated; state may be kept as bytes."""
    asked = fig_1(60, seed, 0.3)
    old = asked.running.predictor
    retentions = {name: Retention(10 * SECOND) for name in SCHEMAS}
    p = Prediction(Predictor(old.continuous, old.specs, retentions=retentions))
    for some in pushes(asked, 8, 5):
        p.push(some)
        assert p.now is not None
        p.advance(p.now - SECOND)
        p = restarted(p)
    assert p.tally.revisions > 5
    found = compare(
        curves(p.results(), ("a", "b"), ("d",)), asked._truth(), {}, value="d", margin="m", rounding=1e-8
    )
    assert found.faults == {}
    assert found.looked > 5
    assert len(p.predictor.bounds) == 1

"""Models of a job whose units change hold for the tuples as recorded: what undoing and output_units round is in their bounds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.time import format_instant
from pulse.operators.data.relation import Relation
from pulse.runtime.accents.rounding import rounded
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.state_schema import ACCENTS
from pulse.stream.units.affine import Affine
from tests.runtime.accents.accented_jobs import PLAIN, SECOND, Run, marked, predictors_of
from tests.test_query_accent_rounding import MAPS, in_force

COUNT = 40


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    more = {"error": 0}
    return predictors_of(tmp_path_factory.mktemp("jobs"), {"plain": (PLAIN, more)})


def recorded(seed: int) -> tuple[pa.Table, dict[str, list[tuple[int, Affine]]]]:
    """Tuples of two keys, one of each a second, and the accents of each key."""
    random = np.random.default_rng(seed)
    accents = {
        key: [
            (int(at) * SECOND + SECOND // 2, Affine.parse(str(random.choice(MAPS))))
            for at in sorted(random.choice(np.arange(5, COUNT - 5), 2, replace=False))
        ]
        for key in ("s0", "s1")
    }
    offset = {key: float(random.choice([0.0, 32.0, 100.0, 1.7e9, 1e15])) for key in accents}
    rows = [(f"s{i % 2}", i // 2) for i in range(2 * COUNT)]
    table = pa.table(
        {
            "symbol": [key for key, _ in rows],
            "t": pa.array([at * SECOND for _, at in rows], pa.timestamp("us")),
            "price": [offset[key] + 0.1 * float(random.integers(-9, 10)) for key, _ in rows],
            "size": np.ones(len(rows)),
        }
    )
    return table, accents


def exact(table: pa.Table, accents: dict[str, list[tuple[int, Affine]]], key: str, at: int) -> Fraction:
    """What a key's newest tuple says at an instant, in the units of the start."""
    rows = [row for row in table.to_pylist() if row["symbol"] == key]
    newest = rows[at // SECOND]
    return in_force(accents[key], at // SECOND * SECOND).inverse()(newest["price"])


def off(relation: Relation, row: int, truth: Fraction) -> bool:
    (value,) = relation.models["price"][row][:1]
    return abs(Fraction(float(value)) - truth) > Fraction(float(relation.err["price"][row]))


@pytest.mark.parametrize("where", ["rows", "log"])
@pytest.mark.parametrize("seed", range(6))
def test_results_hold_for_what_was_recorded(
    predictors: dict[str, Predictor], seed: int, where: str, record_property: Any
) -> None:
    table, accents = recorded(seed)
    reported = sorted(
        (at, f"[[symbol = '{key}', alter(price, {map})]]") for key, own in accents.items() for at, map in own
    )
    run = Run(predictors[f"plain {where}"], lateness=2 * COUNT * SECOND)
    if where == "rows":
        run.take({"S": marked(table, reported)})
    else:
        run.take({"S": table}, {"S": [f"{format_instant(at)} {text}" for at, text in reported]})
    assert run.aside == []
    assert run.prediction.view is not None
    first = run.prediction.view.results
    assert run.follower.output_units is not None
    compared = 0
    for relation, restated in ((first, False), (run.follower.output_units.segments(first), True)):
        begin = relation.ref + np.ceil(relation.lo * 1e6 - 1e-3).astype(np.int64)
        end = relation.ref + np.ceil(relation.hi * 1e6 - 1e-3).astype(np.int64)
        for row, group in enumerate(relation.group.tolist()):
            key = relation.keys[0][group].as_py()
            for at in range(int(begin[row]), min(int(end[row]), (COUNT - 1) * SECOND + 1), SECOND // 4):
                truth = exact(table, accents, key, at)
                compared += 1
                assert not off(relation, row, in_force(accents[key], at)(truth) if restated else truth), (
                    key,
                    at,
                )
    record_property("comparisons", compared)
    assert compared > 500


def test_what_rounds_nothing_leaves_bounds_as_they_are(predictors: dict[str, Predictor]) -> None:
    run = Run(predictors["plain log"])
    table, _ = recorded(0)
    run.take({"S": table}, {"S": [f"{format_instant(SECOND)} [[true, alter(price, y / 4)]]"]})
    assert run.follower.streams["S"].shifts == {}
    assert run.prediction.view is not None
    assert (run.prediction.view.results.err["price"] == 0.0).all()


def test_shifts_outlive_a_restart(predictors: dict[str, Predictor]) -> None:
    run = Run(predictors["plain log"])
    table, _ = recorded(0)
    run.take({"S": table}, {"S": [f"{format_instant(SECOND)} [[true, alter(price, y + 0.1)]]"]})
    kept = unpack_state(ACCENTS, pack_state(ACCENTS, run.follower.state))
    assert kept.streams["S"].shifts == run.follower.streams["S"].shifts == {"price": pytest.approx(0.1)}
    assert rounded({}, {"S": kept.streams["S"].shifts}) == {}

"""Cases on models and samples: cut where the condition changes, with an error that covers both values where it is undecided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pulse.core.columns import Columns
from pulse.core.expression import Arithmetic, Case, Column, Comparison, Constant, Expression, Function
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.decided_ranges import AROUND, decided_ranges
from pulse.operators.output.sampling import sample
from pulse.operators.relational.on_samples import project_samples
from tests.operators.computing import compute
from tests.operators.relational.test_filter import one_row

X = Column("x")


def line(c: list[float], err: float = 0.0, lo: float = 0.0, hi: float = 10.0) -> Relation:
    """One row of this polynomial."""
    row = one_row(c)
    return replace(row, lo=np.array([lo]), hi=np.array([hi]), err={"x": np.array([err])}, drift={})


def above(level: float, value: Expression, otherwise: Expression) -> Case:
    return Case(Comparison(">", X, Constant(level)), value, otherwise)


def parts(rows: Relation, e: Expression) -> list[tuple[float, float, float, float]]:
    """Start, end, constant term and error of each part."""
    made = compute(rows, [("v", e)])
    columns = (made.lo, made.hi, made.models["v"][:, 0], made.err["v"])
    return [tuple(round(float(one), 9) for one in row) for row in zip(*columns, strict=True)]


def test_a_boundary_with_error_has_an_undecided_part_on_either_side() -> None:
    found = parts(line([0.0, 1.0], err=0.5), above(5.0, Constant(1), Constant(-2)))
    assert found == [
        (0.0, 4.5, -2.0, 0.0),
        (4.5, 5.0, -2.0, 3.0),
        (5.0, 5.5, 1.0, 3.0),
        (5.5, 10.0, 1.0, 0.0),
    ]


def test_a_boundary_without_error_is_undecided_for_a_microsecond() -> None:
    found = parts(line([0.0, 1.0]), above(5.0, Constant(1), Constant(-2)))
    assert [(a, b) for a, b, *_ in found] == [
        (0.0, 5 - AROUND),
        (5 - AROUND, 5 + AROUND),
        (5 + AROUND, 10.0),
    ] or [(a, b) for a, b, *_ in found] == [
        (0.0, 5 - AROUND),
        (5 - AROUND, 5.0),
        (5.0, 5 + AROUND),
        (5 + AROUND, 10.0),
    ]
    assert {e for *_, e in found} == {0.0, 3.0}
    assert sum(b - a for a, b, _, e in found if e > 0.0) == pytest.approx(2 * AROUND)


def test_a_touched_level_is_undecided_around_the_instant_alone() -> None:
    found = parts(line([25.0, -10.0, 1.0]), Case(Comparison("=", X, Constant(0)), Constant(1), Constant(0)))
    doubt = [(a, b) for a, b, _, e in found if e > 0.0]
    assert doubt[0][0] < 5.0 < doubt[-1][1]
    assert doubt[-1][1] - doubt[0][0] < 1e-5
    assert all(v == 0.0 for _, _, v, e in found if e == 0.0)


def test_values_that_meet_at_the_boundary_keep_their_own_error() -> None:
    found = parts(line([-5.0, 1.0], err=0.25), above(0.0, X, Arithmetic("*", Constant(-1), X)))
    assert max(e for *_, e in found) <= 0.25 + 2 * 0.25 + 1e-9
    assert [e for *_, e in found if e > 0.3] != []


def test_a_value_that_is_undefined_elsewhere_is_computed_where_it_may_be_needed() -> None:
    e = above(1.0, Function("log", (X,)), Constant(0))
    made = compute(line([-5.0, 1.0], err=0.1), [("v", e)])
    t = made.lo + 0.5 * (made.hi - made.lo)
    x = (made.ref - line([0.0]).ref[0]) / 1e6 + t - 5.0
    value = [sum(c * u**i for i, c in enumerate(row)) for row, u in zip(made.models["v"], t, strict=True)]
    expected = np.where(x > 1.0, np.log(np.maximum(x, 1e-9)), 0.0)
    assert (np.abs(value - expected) <= made.err["v"]).all()
    start, end = (made.ref / 1e6 + one for one in (made.lo, made.hi))
    assert end[-1] - start[0] == pytest.approx(10.0)
    assert np.abs(start[1:] - end[:-1]).max() < 1e-6


def test_columns_beside_a_case_are_cut_alike() -> None:
    e = above(5.0, X, Constant(0))
    made = compute(
        line([0.0, 1.0], err=0.5), [("a", X), ("v", e), ("w", above(7.0, e, Function("sqrt", (X,))))]
    )
    assert {len(one) for one in made.models.values()} == {len(made)}
    x = (made.ref - line([0.0]).ref[0]) / 1e6
    assert np.allclose(made.models["a"][:, :2], np.stack([x, np.ones(len(made))], axis=1), rtol=0, atol=1e-9)


def test_points_have_the_value_of_their_instant() -> None:
    for at, value, err in ((4.0, -2.0, 0.0), (5.25, 1.0, 3.0), (6.0, 1.0, 0.0)):
        (found,) = parts(line([0.0, 1.0], err=0.5, lo=at, hi=at), above(5.0, Constant(1), Constant(-2)))
        assert found[2:] == (value, err)


def test_samples_have_what_segments_have() -> None:
    rows = line([0.0, 1.0], err=0.5)
    e = above(5.0, Function("log", (X,)), Arithmetic("*", X, X))
    samples = sample(rows, 125_000)
    made = project_samples(samples, [("v", e)], Columns((), ("v",)))
    x = samples.values["x"]
    chosen = np.where(x > 5.0, np.log(np.maximum(x, 1e-9)), x * x)
    assert np.allclose(made.values["v"], chosen)
    for truth in (x - 0.5, x + 0.5):
        other = np.where(truth > 5.0, np.log(np.maximum(truth, 1e-9)), truth * truth)
        assert (np.abs(made.values["v"] - other) <= made.err["v"] + 1e-12).all()
    assert (made.err["v"][x > 5.5] < 0.2).all()


def test_no_rows_and_slivers() -> None:
    empty = line([0.0, 1.0]).take(np.zeros(0, np.int64))
    assert len(compute(empty, [("v", above(5.0, X, Constant(0)))])) == 0
    tiny = line([0.0, 1.0], lo=5.0 - 1e-7, hi=5.0 + 1e-7)
    assert [e for *_, e in parts(tiny, above(5.0, Constant(1), Constant(0)))] != [0.0]
    ranges = decided_ranges(line([0.0, 0.0, 0.0]), Comparison(">=", X, Constant(0)))
    assert ranges.code.tolist() == [3]

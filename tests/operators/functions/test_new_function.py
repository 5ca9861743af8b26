"""A new function needs a class and a line in the registry: here ``cube``, defined in a test, in every domain."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.arrays import FloatArray
from pulse.core.columns import Columns
from pulse.core.expression import Arithmetic, Column, Comparison, Constant, Expression, Function
from pulse.core.schema import StreamSchema
from pulse.language import parse
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.affine_image import affine_image
from pulse.operators.expressions.on_samples import Number, Numbers
from pulse.operators.expressions.on_segments import Evaluation, Operand
from pulse.operators.fit.predictive_spec import expand
from pulse.operators.functions.base import Ranges, ScalarFunction
from pulse.operators.functions.registry import SCALARS
from pulse.operators.output.sampling import sample
from pulse.operators.relational.filter import FilterOperator
from pulse.operators.relational.on_samples import filter_samples, project_samples
from pulse.plan.notation import formula
from pulse.plan.rules.constant_folding import folded
from pulse.plan.symbolic import Symbolic, symbolic
from pulse.stream.units.affine import Affine
from tests.operators.computing import compute
from tests.validation.inversion.test_slack import slack

X = Column("x")
CUBE = Function("cube", (X,))
POWER = Arithmetic("^", X, Constant(3))
COLUMNS = Columns((), ("x",))


class Cube(ScalarFunction):
    """``cube(x)``."""

    name = "cube"
    approximated = False

    @staticmethod
    def of_numbers(x: float) -> float:
        return x**3

    of_arrays = of_numbers

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        return work.fold(self.expanded(e))

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        return work.fold(self.expanded(e))

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        size = ranges.sizes(e.arguments[0])
        return (size + errors[0]) ** 3 - size**3

    def affine_image(self, maps: Sequence[Affine]) -> Affine | None:
        return None if maps[0].b else Affine(maps[0].a ** 3)

    def expanded(self, e: Function) -> Expression:
        return Arithmetic("^", e.arguments[0], Constant(3))


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCALARS, "cube", Cube())


@pytest.fixture
def rows() -> Relation:
    made = [
        {"ref": 0, "lo": float(i), "hi": i + 1.0, "x": [0.5 - i, 1.0], "x_err": 0.1 * i, "x_drift": None}
        | {"certainty": "certain"}
        for i in range(4)
    ]
    return Relation.from_table(pa.RecordBatch.from_pylist(made, schema=COLUMNS.segment_schema()), COLUMNS)


def same(a: Relation, b: Relation) -> bool:
    parts: list[tuple[Any, Any]] = [(a.lo, b.lo), (a.hi, b.hi), (a.certainty, b.certainty)]
    parts += [(one[name], two[name]) for one, two in ((a.models, b.models), (a.err, b.err)) for name in one]
    return all(np.array_equal(one, two) for one, two in parts)


def test_on_segments(rows: Relation) -> None:
    assert same(compute(rows, [("y", CUBE)]), compute(rows, [("y", POWER)]))
    one, other = (
        FilterOperator(Comparison("<", e, Constant(0.25)), True).segments(rows) for e in (CUBE, POWER)
    )
    assert len(one)
    assert same(one, other)


def test_on_samples(rows: Relation) -> None:
    samples = sample(rows, 100_000)
    one, other = (project_samples(samples, [("y", e)], Columns((), ("y",))) for e in (CUBE, POWER))
    assert np.array_equal(one.values["y"], other.values["y"])
    assert np.array_equal(one.err["y"], other.err["y"])
    codes = [filter_samples(samples, Comparison(">", e, Constant(1)), possible=True) for e in (CUBE, POWER)]
    assert np.array_equal(codes[0].certainty, codes[1].certainty)


def test_errors(rows: Relation) -> None:
    one, other = (slack(rows, Comparison(">", e, Constant(100))) for e in (CUBE, POWER))
    assert (one > 0.0).all()
    assert np.array_equal(one, other)


def test_text_polynomials_and_constants() -> None:
    assert formula(CUBE) == "x³"
    assert str(symbolic(CUBE, Symbolic.of)) == "x³"
    assert folded(Function("cube", (Constant(2),))) == Constant(8)
    assert expand(CUBE, {"x": np.array([2.0])}, "x")[0].tolist() == [8.0]
    assert affine_image(CUBE, {"x": Affine(Fraction(1, 2))}) == Affine(Fraction(1, 8))
    assert affine_image(CUBE, {"x": Affine(2, 1)}) is None


def test_the_language_has_it() -> None:
    schema = StreamSchema.of(time="t", modelled={"x": "linear"})
    query = parse("select cube(x) as y from S", {"S": schema})
    assert query.plan.expressions == (Function("cube", (Column("S.x"),)),)

"""Projections: names, roles and expressions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given

from pulse.core.columns import Columns
from pulse.core.expression import Arithmetic, Column, Constant, Function
from pulse.kernels.rounding import magnitudes
from pulse.operators.data.relation import Relation
from pulse.operators.relational.project import ProjectOperator
from tests.operators.contract import causes, check_contract
from tests.strategies import relations

X, Y = Column("x"), Column("y")
KEY = (("k", pa.string()), ("n", pa.int64()))


@given(relations(codes=(1, 2, 3)))
def test_names_share_their_arrays(relation: Relation) -> None:
    project = ProjectOperator(
        (("b", X), ("a", Y), ("id", Column("k")), ("v", Column("u")), ("source", Constant("s"))),
        Columns(
            (("id", pa.string()), ("source", pa.string()), ("n", pa.int64())),
            ("b", "a"),
            (("v", pa.int64()),),
            "time",
        ),
    )
    made = check_contract(project, relation, project.columns)
    assert made.models["b"] is relation.models["x"] or relation.groups > 0
    again = project.segments(relation)
    assert again.models["b"] is relation.models["x"]
    assert again.drift["a"] is relation.drift["y"]
    assert again.unmodelled["v"] is relation.unmodelled["u"]
    assert again.keys[0] is relation.keys[0]
    assert again.keys[1].to_pylist() == ["s"] * relation.groups
    assert again.keys[2] is relation.keys[1]
    assert np.array_equal(again.certainty, relation.certainty)


@given(relations())
def test_names_may_be_swapped(relation: Relation) -> None:
    made = ProjectOperator((("x", Y), ("y", X)), Columns(KEY, ("x", "y"), (), "t")).segments(relation)
    assert made.models["x"] is relation.models["y"]
    assert made.models["y"] is relation.models["x"]


LINEAR = Arithmetic("-", Arithmetic("*", Constant(2), X), Y)


@given(relations())
def test_linear_expressions_keep_the_drift(relation: Relation) -> None:
    project = ProjectOperator((("l", LINEAR), ("c", Constant(3))), Columns(KEY, ("l", "c"), (), "t"))
    made = check_contract(project, relation, project.columns)
    assert set(made.drift) == {"l", "c"}
    assert [row[0] for row in causes(made)] == list(range(len(relation)))
    expected = 2 * relation.drift["x"] + relation.drift["y"]
    # Twice x is exact; the difference adds 4 u k M with the M of both terms (kernels/rounding) for as long as a key lasts.
    x, y = (magnitudes(relation.models[name], relation.lo, relation.hi) for name in ("x", "y"))
    rounded = 4 * 3 * 2.0**-53 * (2 * x + y) * (relation.hi - relation.lo)
    since = [
        rounded[relation.offsets[group] : row + 1].sum() for row, group in enumerate(relation.group.tolist())
    ]
    assert (made.drift["l"] >= expected).all()
    assert (made.drift["l"] <= (expected + since) * (1 + 1e-12)).all()
    assert np.allclose(made.models["c"], 3.0)
    assert np.array_equal(made.is_point, relation.is_point)


@given(relations(far=0))
def test_other_expressions_are_modelled_without_a_drift(relation: Relation) -> None:
    """Without far references: the root of a rounded square is off by the root of ``u`` times its size, beyond what keys that come
    together and apart may differ by."""
    distance = Function("distance", (X, Y, Constant(0), Constant(0)))
    project = ProjectOperator((("l", LINEAR), ("d", distance)), Columns(KEY, ("l", "d"), (), "t"))
    made = check_contract(project, relation, project.columns)
    assert set(made.drift) == {"l"}
    sources = [row[0] for row in causes(made)]
    assert np.array_equal(made.is_point, relation.is_point[sources])

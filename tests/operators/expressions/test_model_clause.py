"""MODEL clauses: formulas of the time since a segment's start."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.core.expression import Arithmetic, Column, Constant, Elapsed, Expression
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.model_clause import ModelClause
from tests import naive
from tests.operators.contract import causes, check_contract, truths
from tests.strategies import relations

X, Y, N, T = Column("x"), Column("y"), Column("n"), Elapsed()
KEY = (("k", pa.string()), ("n", pa.int64()))
FORMULAS = [
    Arithmetic("+", X, Arithmetic("*", Y, T)),
    Arithmetic(
        "+",
        Arithmetic("+", X, Arithmetic("*", N, T)),
        Arithmetic("/", Arithmetic("*", Y, Arithmetic("^", T, Constant(2))), Constant(2)),
    ),
    X,
    Arithmetic("*", Constant(3), T),
]


@given(relations(codes=(1, 2, 3)), st.sampled_from(FORMULAS))
def test_formulas_keep_every_truth_at_the_start(relation: Relation, formula: Expression) -> None:
    clause = ModelClause((("p", formula),), Columns(KEY, ("y", "p"), (("u", pa.int64()),), "t"))
    made = check_contract(clause, relation, clause.columns)
    assert [row for (row,) in causes(made)] == list(range(len(relation)))
    assert "p" not in made.drift
    grown = made.drift["y"] - relation.drift["y"]  # by the rounding of what was shifted
    assert ((grown >= 0.0) & (grown <= 1e-3)).all()
    for row in range(len(relation)):
        start = naive.row_span(relation, row)[0]
        far = 2e-6 if abs(relation.lo[row]) > 1e6 else 1e-9
        for at in naive.instants_of(relation, row):
            kept = naive.piece_value(made.ref[row], made.models["y"][row], at)
            assert abs(kept - naive.piece_value(relation.ref[row], relation.models["y"][row], at)) <= far
            got = naive.piece_value(made.ref[row], made.models["p"][row], at)
            for values in truths(relation, row, start):
                want = naive.expression_value(formula, values | {"elapsed": Fraction(at - start, 10**6)})
                assert abs(got - want) <= made.err["p"][row] * (1 + 1e-9) + far


@given(relations())
def test_a_formula_may_replace_what_it_names(relation: Relation) -> None:
    clause = ModelClause((("x", FORMULAS[0]), ("y", Y)), Columns(KEY, ("x", "y"), (), "t"))
    made = clause.segments(relation)
    start = np.array(
        [
            float(naive.piece_value(relation.ref[i], relation.models["y"][i], naive.row_span(relation, i)[0]))
            for i in range(len(relation))
        ]
    )
    assert np.allclose(made.models["y"][:, 0], start, atol=1e-5)
    slope = np.pad(made.models["x"], ((0, 0), (0, 1)))[:, 1]
    assert np.allclose(slope, start, atol=1e-5)

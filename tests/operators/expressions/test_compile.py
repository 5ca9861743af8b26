"""Programs against the operators on samples, whose results they are: codes, counts and extremes bit by bit, sums to rounding."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.core.expression import (
    FALSE,
    RELATIONS,
    TRUE,
    And,
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Function,
    Instant,
    Negative,
    Not,
    Or,
)
from pulse.kernels.samples.vector_program import no_tallies, run
from pulse.operators.errors import DomainError
from pulse.operators.expressions.compile import NoProgramError, Program, combine_programs
from pulse.operators.output.summary import of_samples, of_tallies
from pulse.operators.relational.on_samples import filter_samples, join_samples, project_samples
from tests.operators.sampling import SECOND, samples

KEY = (("id", pa.string()),)
X, Y = Column("x"), Column("y")
numbers = st.one_of(
    st.integers(-16, 16).map(lambda v: v / 8), st.floats(-1e300, 1e300), st.sampled_from([1e-300, 0.1])
)
bounds = st.one_of(st.integers(0, 8).map(lambda v: v / 8), st.sampled_from([0.0, 1e-12, np.inf, np.nan]))
constants = st.one_of(st.integers(-3, 3), st.floats(-1e6, 1e6)).map(Constant)
expressions = st.recursive(
    st.one_of(st.sampled_from([X, Y]), constants),
    lambda inner: st.one_of(
        st.builds(Arithmetic, st.sampled_from("+-*"), inner, inner),
        st.builds(Arithmetic, st.just("/"), inner, st.sampled_from([0.5, -3.0]).map(Constant)),
        st.builds(Arithmetic, st.just("^"), inner, st.integers(0, 3).map(Constant)),
        st.builds(Negative, inner),
        st.builds(lambda one: Function("abs", (one,)), inner),
    ),
    max_leaves=5,
)
comparisons = st.builds(Comparison, st.sampled_from(RELATIONS), expressions, expressions)
predicates = st.recursive(
    st.one_of(comparisons, comparisons, st.sampled_from([TRUE, FALSE])),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda some: And(tuple(some)), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda some: Or(tuple(some)), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=4,
)
rows = st.lists(
    st.tuples(numbers, bounds, numbers, bounds, st.integers(0, 3), st.integers(0, 3), st.booleans()),
    max_size=12,
)


def sides(drawn):
    """Both sides' samples at the same places, a new stretch where a row says so."""
    x, ex, y, ey, a, b, new = zip(*drawn, strict=True) if drawn else [()] * 7
    cuts = sorted({0, len(drawn), *(i for i, one in enumerate(new) if one)} - ({0} if not drawn else set()))
    stretches = [(0, 1000 * SECOND * start, end - start) for start, end in pairwise(cuts)]
    made = []
    for name, values, err, codes in (("x", x, ex, a), ("y", y, ey, b)):
        columns = Columns(KEY, (name,))
        made.append(samples(columns, (pa.array(["k"]),), stretches, {name: values}, {name: err}, codes))
    return made


def alone(left, right, predicate, outputs, columns):
    both = Columns((("id", pa.string()), ("other", pa.string())), ("x", "y"))
    joined = join_samples(left, right, (("id", "id"),), both)
    return project_samples(filter_samples(joined, predicate, possible=False), outputs, columns)


def compiled(predicate, outputs, columns):
    both = Columns((("id", pa.string()), ("other", pa.string())), ("x", "y"))
    program = Program(2)
    arcs = program.column(0, "x", ["id"]), program.column(1, "y", ["id"])
    joined = program.filter(program.join(*arcs, (("id", "id"),), both, 1), predicate)
    program.summary(program.project(joined, outputs, columns), columns.modelled)
    return combine_programs([program, program], len(columns.modelled))


@given(rows, predicates, st.lists(expressions, min_size=1, max_size=2))
def test_a_program_is_what_the_operators_do(drawn, predicate, asked):
    outputs = tuple((f"r{i}", one) for i, one in enumerate(asked))
    columns = Columns((("id", pa.string()), ("other", pa.string())), tuple(name for name, _ in outputs))
    try:
        programs = compiled(predicate, outputs, columns)
    except NoProgramError:
        return
    left, right = sides(drawn)
    tallies = no_tallies(programs)
    inputs = (
        np.stack([left.values["x"], right.values["y"]]),
        np.stack([left.err["x"], right.err["y"]]),
        np.stack([left.certainty, right.certainty]),
    )
    begins = np.zeros(len(left), np.uint8)
    begins[left.offsets[:-1]] = 1
    run(programs, inputs, len(left), begins, tallies)
    try:
        made = alone(left, right, predicate, outputs, columns)
    except DomainError:
        assert (tallies.counts[:, 3] > 0).all()
        return
    if tallies.counts[0, 3]:
        return  # not finite where nothing is, or no longer: left to the operators
    wanted = of_samples(made)
    for place in range(2):
        found = of_tallies(tallies, place, columns.modelled, SECOND)
        assert (found.ranges, found.seconds, found.certain) == (wanted.ranges, wanted.seconds, wanted.certain)
        for name, one in found.attributes.items():
            other = wanted.attributes[name]
            assert (one.smallest, one.largest) == (other.smallest, other.largest)
            size = sum(map(abs, made.values[name].tolist()))
            if math.isfinite(size):
                assert abs(one.integral - other.integral) <= 1e-14 * size


@pytest.mark.parametrize(
    ("predicate", "output"),
    [
        (Comparison(">", Column("id"), Constant("a")), X),
        (Comparison(">", Column("t"), Instant(0)), X),
        (Comparison(">", Constant(1), Constant(2)), X),
        (TRUE, Function("sqrt", (X,))),
        (TRUE, Arithmetic("/", X, Y)),
        (TRUE, Arithmetic("/", X, Constant(0))),
        (TRUE, Arithmetic("^", X, Constant(17))),
        (TRUE, Arithmetic("^", X, Constant(0.5))),
        (TRUE, Arithmetic("^", X, Y)),
        (TRUE, Arithmetic("*", X, TRUE)),
        (Comparison("=", X, TRUE), X),
        (X, X),
        (Not(X), X),
        (Comparison("<", Function("distance", (X, Y, X, Y)), Constant(1)), X),
    ],
)
def test_what_no_program_says_is_left_to_the_operators(predicate, output):
    with pytest.raises(NoProgramError):
        compiled(predicate, (("r", output),), Columns((("id", pa.string()), ("other", pa.string())), ("r",)))


def test_joins_are_of_all_keys_and_of_the_same_ones():
    program = Program(2)
    keys = ["a", "b"]
    left, right = program.column(0, "x", keys), program.column(1, "y", keys)
    columns = Columns(tuple((name, pa.string()) for name in ("a", "b", "c", "d")), ("x", "y"))
    joined = program.join(left, right, (("b", "b"), ("a", "a")), columns, 2)
    assert joined.keys == {"a": 0, "b": 1, "c": 0, "d": 1}
    for equal in ((("a", "a"),), (("a", "b"), ("b", "a")), ()):
        with pytest.raises(NoProgramError, match="different keys"):
            program.join(left, right, equal, columns, 2)
    named = program.project(
        left, (("a", Constant("k")), ("x", X)), Columns((("a", pa.string()), ("b", pa.string())), ("x",))
    )
    assert named.keys == {"a": -1, "b": 1}

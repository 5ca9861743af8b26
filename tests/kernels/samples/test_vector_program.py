"""Programs against one that goes from sample to sample in fractions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.samples import vector_program as p
from pulse.kernels.samples.vector_program import Programs, no_tallies, run
from tests import naive
from tests.effort import examples

COLUMNS, NUMBERS, CODES = 2, 4, 4
PLACES = (p.TILE - 1, p.TILE, p.TILE + 1, 2 * p.TILE + 77)


@st.composite
def programs(draw):
    """Steps that read what is there: the columns first, then what earlier steps made."""
    steps = []
    numbers, codes = list(range(2 * COLUMNS)), list(range(COLUMNS))
    number, code = (lambda: draw(st.sampled_from(numbers))), (lambda: draw(st.sampled_from(codes)))
    bounds = list(range(COLUMNS, 2 * COLUMNS))  # bounds are not below zero
    for k in range(draw(st.integers(0, NUMBERS))):
        to = 2 * COLUMNS + k
        op = draw(
            st.sampled_from([p.FILL, p.ADD, p.SUBTRACT, p.NEGATE, p.ABSOLUTE, p.PRODUCT_ERROR, p.MULTIPLY])
        )
        bound = draw(st.sampled_from(bounds))
        pair = (number(), bound, number(), draw(st.sampled_from(bounds)))
        operands = pair if op == p.PRODUCT_ERROR else (number(), number(), 0, 0)
        steps.append([op, to, *operands, draw(st.integers(0, 1))])
        if (
            op != p.PRODUCT_ERROR
        ):  # a bound is rounded: compared as a number it would tie within its last digit
            numbers.append(to)
        if op in (p.ABSOLUTE, p.PRODUCT_ERROR):
            bounds.append(to)
    for k in range(draw(st.integers(0, CODES))):
        to = COLUMNS + k
        op = draw(st.sampled_from([p.COMPARE, p.LOWER, p.RAISE, p.NEVER, p.COMPARE]))
        if op == p.COMPARE:
            sides = (number(), draw(st.sampled_from(bounds)), number(), draw(st.sampled_from(bounds)))
            steps.append([op, to, *sides, draw(st.integers(0, 3)) + p.FORMS * code()])
        else:
            steps.append([op, to, code(), code(), 0, 0, 0])
        codes.append(to)
    last = code()
    return [
        *steps,
        [p.COUNT, 0, last, 0, 0, 0, 0],
        [p.FIGURES, 0, number(), last, 0, 0, 0],
        [p.FIGURES, 1, draw(st.sampled_from([*numbers, *bounds])), last, 0, 0, 0],
    ]


def made(some, constants=(0.25, -3.0), **more):
    details = {"columns": COLUMNS, "numbers": NUMBERS, "codes": CODES, "outputs": 2} | more
    steps = [step for one in some for step in one]
    return Programs(
        np.array(steps, np.int64).reshape(-1, 7),
        np.cumsum([0, *map(len, some)]),
        np.array(constants),
        **details,
    )


def places(n, seed, room=0):
    rng = np.random.default_rng(seed)
    shape = COLUMNS, n + room
    columns = (
        rng.integers(-8, 9, shape) / 8,
        rng.integers(0, 3, shape) / 4,
        rng.integers(0, 4, shape, np.uint8),
    )
    begins = (rng.random(n) < 0.02).astype(np.uint8)
    begins[:1] = 1
    return columns, begins


def check(tallies, place, steps, constants, columns, begins):
    rows = [
        list(zip(*(one[j][: len(begins)].tolist() for one in columns), strict=True)) for j in range(COLUMNS)
    ]
    counts, figures = naive.run_program(steps, constants, rows, begins.tolist())
    assert tallies.counts[place, :3].tolist() == counts
    for output in range(2):
        total, over, low, high = tallies.figures[place, output].tolist()
        exact, least, most = figures.get(output, (0, np.inf, -np.inf))
        assert total - over == pytest.approx(float(exact), rel=1e-13, abs=1e-9)
        # Numbers are exact. A bound of a product is rounded 8 times, and as often for each of up to NUMBERS that it is made of.
        rounded = {step[1] for step in steps if step[0] == p.PRODUCT_ERROR}
        read = {step[2] for step in steps if step[0] == p.FIGURES and step[1] == output}
        part = 8 * NUMBERS * 2.0**-53 if read & rounded else 0.0
        assert (low, high) == pytest.approx((float(least), float(most)), rel=part, abs=0.0)


@given(
    st.lists(programs(), min_size=1, max_size=3),
    st.sampled_from(PLACES),
    st.integers(0, 99),
    st.integers(0, 3),
)
@examples(9)  # each of up to 2000 places, in fractions
def test_steps(some, n, seed, room):
    asked = made(some)
    columns, begins = places(n, seed, room)
    tallies = no_tallies(asked)
    run(asked, columns, n, begins, tallies)
    for place, steps in enumerate(some):
        check(tallies, place, steps, asked.constants, columns, begins)


@pytest.mark.parametrize("n", PLACES)
def test_tiles(n):
    steps = [
        [p.LOWER, 2, 0, 1, 0, 0, 0],
        [p.COMPARE, 3, 0, 2, 1, 3, 1 + p.FORMS * 2],
        [p.SUBTRACT, 4, 0, 1, 0, 0, 0],
        [p.COUNT, 0, 3, 0, 0, 0, 0],
        [p.FIGURES, 0, 4, 3, 0, 0, 0],
        [p.FIGURES, 1, 1, 3, 0, 0, 0],
    ]
    asked = made([steps])
    columns, begins = places(n, 7)
    tallies = no_tallies(asked)
    run(asked, columns, n, begins, tallies)
    check(tallies, 0, steps, asked.constants, columns, begins)


@given(programs(), st.integers(0, 99), st.integers(1, 99))
def test_blocks_one_after_the_other_add_up(steps, seed, cut):
    asked = made([steps])
    columns, begins = places(100, seed)
    begins[cut] = 1
    tallies = no_tallies(asked)
    for part in (slice(0, cut), slice(cut, 100)):
        some = tuple(np.ascontiguousarray(one[:, part]) for one in columns)
        run(asked, some, some[0].shape[1], begins[part], tallies)
    check(tallies, 0, steps, asked.constants, columns, begins)


def test_quotients_by_constants():
    steps = [
        [p.FILL, 4, 0, 0, 0, 0, 1],
        [p.FILL, 5, 0, 0, 0, 0, 0],
        [p.DIVIDE, 6, 0, 4, 0, 0, 0],
        [p.QUOTIENT_ERROR, 7, 0, 2, 4, 5, 0],
        [p.COMPARE, 2, 6, 7, 1, 3, 0],
        [p.COUNT, 0, 2, 0, 0, 0, 0],
        [p.FIGURES, 0, 6, 2, 0, 0, 0],
        [p.FIGURES, 1, 7, 2, 0, 0, 0],
    ]
    asked = made([steps], constants=(0.0, -4.0))
    columns, begins = places(500, 3)
    tallies = no_tallies(asked)
    run(asked, columns, 500, begins, tallies)
    check(tallies, 0, steps, asked.constants, columns, begins)


def test_what_is_not_finite_is_marked():
    steps = [[p.MULTIPLY, 4, 0, 1, 0, 0, 0], [p.CHECK, 0, 4, 0, 0, 0, 0]]
    asked = made([steps, [[p.CHECK, 0, 0, 0, 0, 0, 0]]])
    values = np.array([[1e300, np.nan, 1.0, -1e300], [1e300, 1.0, 1.0, 1.0]])
    tallies = no_tallies(asked)
    run(asked, (values, np.zeros((2, 4)), np.full((2, 4), 3, np.uint8)), 4, np.zeros(4, np.uint8), tallies)
    assert tallies.counts[:, 3].tolist() == [2, 1]


@pytest.mark.parametrize(
    "step",
    [
        [p.ADD, 3, 0, 0, 0, 0, 0],  # into a column
        [p.ADD, 8, 0, 0, 0, 0, 0],
        [p.ADD, 4, 0, 9, 0, 0, 0],
        [p.FILL, 4, 0, 0, 0, 0, 2],
        [p.COMPARE, 1, 0, 0, 0, 0, 0],
        [p.COMPARE, 2, 0, 0, 0, 0, 4 * 6],
        [p.COMPARE, 2, 0, 0, 0, 8, 0],
        [p.LOWER, 2, 6, 0, 0, 0, 0],
        [p.COUNT, 0, 6, 0, 0, 0, 0],
        [p.FIGURES, 2, 0, 0, 0, 0, 0],
        [p.FIGURES, 0, 0, 6, 0, 0, 0],
        [18, 0, 0, 0, 0, 0, 0],
        [p.ADD, 4, -1, 0, 0, 0, 0],
    ],
)
def test_steps_that_reach_for_what_is_not_there_are_refused(step):
    asked = made([[step]])
    columns, begins = places(3, 0)
    with pytest.raises(ValueError, match=r"steps: expected indices of existing numbers and codes, got \["):
        run(asked, columns, 3, begins, no_tallies(asked))


def test_columns_that_do_not_fit_are_refused():
    asked = made([[]])
    columns, begins = places(3, 0)
    with pytest.raises(
        ValueError, match="columns: expected values, bounds and codes of 2 columns of at least 4"
    ):
        run(asked, columns, 4, begins, no_tallies(asked))
    with pytest.raises(ValueError, match="expected begins of 2 places"):
        run(asked, columns, 2, begins, no_tallies(asked))
    with pytest.raises(ValueError, match="rows of seven"):
        run(asked._replace(offsets=np.array([0, 1])), columns, 3, begins, no_tallies(asked))

"""Steps against a look through all of them, one row at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.pieces.step_maps import apply_steps, apply_steps_by_code, steps_in_force

FAR = 10**15
cells = st.lists(st.lists(st.integers(0, 12), max_size=4, unique=True).map(sorted), min_size=1, max_size=3)


def arrays(steps):
    offsets = np.cumsum([0, *map(len, steps)])
    instants = np.array([FAR + 500_000 * at for own in steps for at in own], np.int64)
    a = np.arange(2.0, 2.0 + len(instants))
    return (offsets, instants), (a, 0.5 * a)


@given(cells, st.data())
def test_values_by_the_last_step_before_them(steps, data):
    rows = data.draw(st.lists(st.tuples(st.integers(0, len(steps) - 1), st.integers(-1, 13)), max_size=9))
    cell, at = np.array([c for c, _ in rows], np.int64), np.array([t for _, t in rows], np.int64)
    packed, (a, b) = arrays(steps)
    found = apply_steps(np.full(len(rows), 3.0), cell, FAR + 500_000 * at, packed, (a, b))
    for value, (c, t) in zip(found, rows, strict=True):
        before = [s for s, own in enumerate(steps[c], packed[0][c]) if own <= t]
        assert value == (a[before[-1]] * 3.0 + b[before[-1]] if before else 3.0)


@given(cells, st.data())
def test_values_by_codes_are_those_by_rows(steps, data):
    """Whatever part of the time the rows are of, before, over or after steps; several codes may be of one cell."""
    cell = np.array(data.draw(st.lists(st.integers(0, len(steps) - 1), min_size=1, max_size=4)), np.int64)
    first = data.draw(st.integers(-1, 13))
    row = st.tuples(st.integers(0, len(cell) - 1), st.integers(first, 13))
    rows = data.draw(st.lists(row, max_size=9))
    code, at = (
        np.array([c for c, _ in rows], np.int32),
        FAR + 500_000 * np.array([t for _, t in rows], np.int64),
    )
    packed, maps = arrays(steps)
    maps[0][::2], maps[1][::2] = 1.0, 0.0  # every other one comes to nothing
    values = np.array([-0.0, np.nan, 3.0] * 3)[: len(rows)]
    found = apply_steps_by_code(values, (code, at), cell, packed, maps)
    expected = apply_steps(values, cell[code], at, packed, maps)
    assert np.array_equal(found, expected, equal_nan=True)
    if (at < packed[1].min(initial=FAR * 2)).all():
        assert found is values


@given(cells, st.integers(0, 2**31), st.booleans())
def test_many_values_in_the_order_of_time_are_those_in_any(steps, seed, ascending):
    """Where times ascend, stretches between steps are done at once."""
    random = np.random.default_rng(seed)
    cell = random.integers(0, len(steps), 4)
    code = random.integers(0, len(cell), 300).astype(np.int32)
    at = FAR + 500_000 * random.integers(-1, 14, len(code))
    at = np.sort(at) if ascending else at
    values = random.normal(size=len(code))
    values[:3] = -0.0, np.nan, np.inf
    packed, maps = arrays(steps)
    found = apply_steps_by_code(values, (code, at), cell, packed, maps)
    assert np.array_equal(found, apply_steps(values, cell[code], at, packed, maps), equal_nan=True)


def test_codes_that_do_not_fit_are_refused():
    steps, maps = (np.array([0, 1]), np.array([5])), (np.array([2.0]), np.array([0.0]))
    rows = np.array([0, 1], np.int32), np.array([1, 9])
    with pytest.raises(ValueError, match=r"expected codes in 0\.\.0, got 0\.\.1"):
        apply_steps_by_code(np.zeros(2), rows, np.array([0]), steps, maps)
    with pytest.raises(ValueError, match="expected 3 codes and times, got 2 and 2"):
        apply_steps_by_code(np.zeros(3), rows, np.array([0, 0]), steps, maps)
    with pytest.raises(ValueError, match=r"expected cells in 0\.\.0, got 0\.\.7"):
        apply_steps_by_code(np.zeros(2), rows, np.array([0, 7]), steps, maps)


def test_what_does_not_fit_is_refused():
    steps, maps = (np.array([0, 1]), np.array([5])), (np.array([2.0]), np.array([0.0]))
    with pytest.raises(ValueError, match=r"expected cells in 0\.\.0, got 0\.\.1"):
        apply_steps(np.zeros(2), np.array([0, 1]), np.zeros(2, np.int64), steps, maps)
    with pytest.raises(ValueError, match="expected 1 rows"):
        apply_steps(np.zeros(2), np.array([0]), np.zeros(2, np.int64), steps, maps)


def test_the_step_in_force_is_the_last_that_began() -> None:
    steps = np.array([0, 2, 2, 3]), np.array([5, 9, 0])
    cell, time = np.array([0, 0, 0, 1, 2, 2]), np.array([4, 5, 9, 9, -1, 0])
    assert steps_in_force(cell, time, steps).tolist() == [-1, 0, 1, -1, -1, 2]
    assert steps_in_force(cell[:0], time[:0], steps).tolist() == []
    with pytest.raises(ValueError, match="expected cells"):
        steps_in_force(np.array([3]), np.array([0]), steps)

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.polynomial.certainty import RELATIONS, compare, compare_constant, compare_distance
from tests import naive

# Eighths are exact, and so are their sums, differences and squares.
eighths = st.integers(-40, 40).map(lambda x: x / 8)
sizes = st.integers(0, 24).map(lambda x: x / 8)
codes = st.integers(0, 3)


@given(st.lists(st.tuples(eighths, sizes, eighths, sizes, codes)), st.sampled_from(RELATIONS))
def test_codes_say_how_surely_a_comparison_holds(rows, relation):
    left, el, right, er = (np.array([row[j] for row in rows], float) for j in range(4))
    own = np.array([row[4] for row in rows], np.uint8)
    found = compare(left, el, right, er, relation, own)
    expected = [
        min(naive.comparison_code(Fraction(a - b), Fraction(x + y), relation), code)
        for a, x, b, y, code in rows
    ]
    assert found.tolist() == expected


@given(st.lists(st.tuples(eighths, sizes, codes)), eighths, st.sampled_from(RELATIONS))
def test_a_constant_is_a_value_without_error(rows, constant, relation):
    values, err = (np.array([row[j] for row in rows], float) for j in range(2))
    own = np.array([row[2] for row in rows], np.uint8)
    zeros = np.zeros(len(rows))
    found = compare_constant(values, err, constant, relation, own)
    assert found.tolist() == compare(values, err, zeros + constant, zeros, relation, own).tolist()


@given(st.lists(st.tuples(sizes, sizes, codes)), sizes, st.sampled_from(RELATIONS))
def test_distances_are_compared_by_squares(rows, c, relation):
    d, err = (np.array([row[j] for row in rows], float) for j in range(2))
    own = np.array([row[2] for row in rows], np.uint8)
    found = compare_distance(d * d, err, c * c, relation, own)
    expected = []
    for distance, e, code in rows:
        # Truths are the distances within e that are not below zero: a closed range. Both squares may be rounded (16 u of e, 8 u
        # of c), so that a limit right at an end of it lies inside: nothing else changes, as other limits are an eighth away.
        rounded = Fraction(16 * e + 8 * c) / 2**53
        low, high = max(Fraction(distance - e) - rounded, Fraction(0)), Fraction(distance + e) + rounded
        by_centre = naive.comparison_code((low + high) / 2 - Fraction(c), (high - low) / 2, relation)
        on_model = naive.comparison_code(Fraction(distance - c), Fraction(0), relation) == 3
        surely, maybe = by_centre == 3, by_centre >= 1
        expected.append(min(3 if surely else 2 if on_model else 1 if maybe else 0, code))
    assert found.tolist() == expected


def test_values_without_an_error_are_compared_exactly():
    """``0.1 + 0.2`` is above 0.3; a squared distance is rounded, so that near its limit nothing is certain."""
    third, own, zero = np.array([0.1 + 0.2]), np.array([3], np.uint8), np.zeros(1)
    for relation, code in {"=": 0, "<=": 0, ">=": 3, "<": 0, ">": 3, "!=": 3}.items():
        assert compare_constant(third, zero, 0.3, relation, own).tolist() == [code]
        assert compare(third, zero, np.array([0.3]), zero, relation, own).tolist() == [code]
    for relation, code in {"=": 2, "<=": 2, ">=": 2, "<": 1, ">": 1, "!=": 1}.items():
        assert compare_distance(third, zero, 0.3, relation, own).tolist() == [code]


def test_an_unbounded_error_leaves_everything_possible():
    err, own = np.array([np.inf, np.inf]), np.array([3, 3], np.uint8)
    assert compare_constant(np.array([1.0, -1.0]), err, 0.0, ">", own).tolist() == [2, 1]
    assert compare_distance(np.array([1.0, 9.0]), err, 4.0, "<", own).tolist() == [2, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare_constant(np.zeros(1), np.zeros(1), 0.0, "==", np.zeros(1, np.uint8)), "'=='"),
        (lambda: compare_constant(np.zeros(2), np.zeros(1), 0.0, "=", np.zeros(1, np.uint8)), "arrays of 1"),
        (lambda: compare_distance(np.zeros(1), np.zeros(1), -1.0, "=", np.zeros(1, np.uint8)), "square"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""Fits of degree 2 to 5: certificates in exact arithmetic, chunks, and what they gain over lines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.fit import greedy_lines as fits
from pulse.kernels.fit import greedy_polynomials as polynomials
from pulse.kernels.fit import truth_intervals
from pulse.kernels.status import OK
from tests import naive, strategies

PARTS = (0.01, 0.21, 0.5, 0.64, 0.97)
BOUNDS = [(0.0, 0.0), (0.0, 0.02), (0.0, 3.0), (0.01, 0.0), (0.2, 0.0), (0.01, 0.05)]


def fit(keys, kinds, asked, degree, max_gap=-1):
    """``(t, rows, status)`` of keys given as lists of ``(microseconds, values, change)``."""
    flat = [row for key in keys for row in key]
    t = np.array([row[0] for row in flat], dtype=np.int64)
    v = np.array([row[1] for row in flat], dtype=np.float64).reshape(len(flat), len(kinds)).T.copy()
    change = np.array([row[2] for row in flat], dtype=np.int64)
    offsets = np.cumsum([0] + [len(key) for key in keys])
    truth = np.array([truth_intervals.TRUTHS[kind] for kind in kinds])
    watermark = np.full(len(keys), truth_intervals.NO_TIME)
    found = truth_intervals.intervals(t, v, offsets, truth, change, watermark, max_gap=max_gap)
    resume = np.zeros((len(keys), 1 + 2 * len(kinds)))
    return t, *polynomials.fit_polynomial(t, v, found, np.array(asked), truth, resume, degree=degree)


def one_key(values, spacing=1_000_000):
    return [[(strategies.EPOCH_US + i * spacing, [float(x)], 0) for i, x in enumerate(values)]]


def problems(keys, kinds, asked, t, fitted, max_gap=-1):
    out = []
    for key, tuples in enumerate(keys):
        rows = naive.fitted_rows(t, fitted, key)
        out += naive.fit_problems(rows, naive.truth_runs(tuples, kinds, max_gap), kinds, asked, PARTS)
    return out


@given(strategies.tuple_streams(), st.data(), st.integers(2, 5), st.sampled_from([-1, 1_500_000]))
def test_no_instant_lies_outside_the_bound(stream, data, degree, max_gap):
    asked = [naive.Asked(*data.draw(st.sampled_from(BOUNDS))) for _ in stream.kinds]
    t, fitted, status = fit(stream.keys, stream.kinds, asked, degree, max_gap)
    assert status == OK
    assert fitted.coefficients.shape[1:] == (len(stream.kinds), degree + 1)
    assert problems(stream.keys, stream.kinds, asked, t, fitted, max_gap) == []


@pytest.mark.parametrize("kind", ["linear", "step", "samples"])
@pytest.mark.parametrize("degree", [2, 3, 4, 5])
def test_a_polynomial_of_its_degree_is_one_segment(kind, degree):
    x = np.linspace(-1, 1, 400)
    values = 50 * np.polynomial.chebyshev.chebval(x, [0.3] * (degree + 1))
    asked = [naive.Asked(0.0, 3.0)]
    keys = one_key(values, 1000)
    t, fitted, _ = fit(keys, [kind], asked, degree)
    assert (fitted.kind == fits.SEGMENT).sum() == 1
    assert fitted.count[0] == degree + 1
    assert problems(keys, [kind], asked, t, fitted) == []


def test_a_curve_takes_far_fewer_segments_than_lines_do():
    x = np.arange(3000)
    values = 100 * np.sin(x / 200)
    t = strategies.EPOCH_US + x * 100_000
    truth = np.array([truth_intervals.LINEAR])
    none = np.zeros(len(x), dtype=np.int64)
    found = truth_intervals.intervals(
        t, values[None], np.array([0, len(x)]), truth, none, np.full(1, truth_intervals.NO_TIME)
    )
    bounds = np.array([[0.0, 0.1, -1.0, -1.0]])
    lines, _ = fits.fit(t, values[None], found, bounds, truth, np.zeros((1, 3)))
    curves, _ = polynomials.fit_polynomial(t, values[None], found, bounds, truth, np.zeros((1, 3)), degree=5)
    assert len(curves.lo) * 8 < len(lines.lo)


def test_a_lossless_bound_gives_the_truth_itself():
    keys = one_key([1, 5, 5, 5, 2.5, -1])
    t, fitted, _ = fit(keys, ["linear"], [naive.Asked(0.0, 0.0)], 3)
    assert (fitted.kind == fits.SEGMENT).sum() == 4  # the level part in one
    assert fitted.count.tolist() == [2, 4, 2, 2]
    assert problems(keys, ["linear"], [naive.Asked(0.0, 0.0)], t, fitted) == []


def test_a_segment_ends_where_an_unmodelled_attribute_changes():
    keys = [[(row[0], row[1], int(i >= 5)) for i, row in enumerate(one_key([2.0] * 11)[0])]]
    _, fitted, _ = fit(keys, ["linear"], [naive.Asked(0.0, 1.0)], 2)
    assert fitted.hi.tolist() == [5.0, 5.0]


def test_no_segment_is_longer_than_the_look_ahead():
    n = polynomials.LOOK_AHEAD + 10
    _, fitted, _ = fit(one_key([1.0, 1.1] * (n // 2)), ["linear"], [naive.Asked(0.0, 1.0)], 2)
    assert fitted.tuples.tolist() == [polynomials.LOOK_AHEAD, n - 1 - polynomials.LOOK_AHEAD]


def test_nothing_in_nothing_out():
    _, fitted, status = fit([[]], ["step"], [naive.Asked(0.0, 1.0)], 2)
    assert status == OK
    assert fitted.coefficients.shape == (0, 1, 3)


@pytest.mark.parametrize(
    ("asked", "degree", "message"),
    [
        ((0.0, 1.0, -1.0, -1.0), 1, "degree: expected one of"),
        ((0.0, 1.0, -1.0, -1.0), 6, "degree: expected one of"),
        ((-1.0, -1.0, -1.0, -1.0), 2, "a bound on the value and none on the drift"),
        ((0.0, 1.0, 0.0, 1.0), 2, "a bound on the value and none on the drift"),
        ((0.0, 1.0), 2, "expected bounds"),
    ],
)
def test_what_cannot_be_fitted_is_refused(asked, degree, message):
    with pytest.raises(ValueError, match=message):
        fit(one_key([1.0, 2.0]), ["step"], [asked], degree)


@given(strategies.tuple_streams(max_keys=2), st.data(), st.integers(2, 5), st.integers(1, 6))
def test_chunks_give_what_one_pass_gives(stream, data, degree, size):
    asked = [naive.Asked(*data.draw(st.sampled_from(BOUNDS))) for _ in stream.kinds]
    t, fitted, _ = fit(stream.keys, stream.kinds, asked, degree)
    for key, tuples in enumerate(stream.keys):
        whole = naive.fitted_rows(t, fitted, key)
        parts = naive.fit_in_chunks(
            (truth_intervals, fits),
            lambda *args: polynomials.fit_polynomial(*args, degree=degree),
            tuples,
            stream.kinds,
            asked,
            size,
        )
        assert [row[:4] for row in parts] == [row[:4] for row in whole]
        assert [row.err for row in parts] == [row.err for row in whole]
        assert np.allclose([row.drift for row in parts], [row.drift for row in whole], rtol=1e-9, atol=0)

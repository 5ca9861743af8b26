"""Fits of constants and lines: the certificate in exact arithmetic, the fewest segments, and resuming."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from pulse.kernels.fit import greedy_lines as fits
from pulse.kernels.fit import truth_intervals
from pulse.kernels.status import BOUND_MISSED, NOT_CONVERGED, NOT_FINITE, OK
from tests import naive
from tests.strategies import TupleStream, extreme_shapes, tuple_streams, value_shapes

EPOCH = 1_700_000_000_000_000
SECOND = 1_000_000


def columns(keys, attributes):
    """``(t, v, offsets, change)`` as the kernels take them."""
    flat = [row for key in keys for row in key]
    t = np.array([row[0] for row in flat], dtype=np.int64)
    v = np.array([row[1] for row in flat], dtype=np.float64).reshape(len(flat), attributes).T.copy()
    change = np.array([row[2] for row in flat], dtype=np.int64)
    return t, v, np.cumsum([0] + [len(key) for key in keys]), change


def run_fit(stream, asked, degree=1, max_gap=-1):
    t, v, offsets, change = columns(stream.keys, len(stream.kinds))
    truth = np.array([truth_intervals.TRUTHS[kind] for kind in stream.kinds])
    watermark = np.full(len(stream.keys), truth_intervals.NO_TIME)
    found = truth_intervals.intervals(t, v, offsets, truth, change, watermark, max_gap=max_gap)
    resume = np.zeros((len(stream.keys), 1 + 2 * len(truth)))
    fitted, status = fits.fit(t, v, found, np.array(asked, dtype=float), truth, resume, degree=degree)
    return t, fitted, status


def problems(stream, asked, t, fitted, max_gap=-1, parts=()):
    """What the checker finds wrong, over all keys."""
    out = []
    for key, tuples in enumerate(stream.keys):
        runs = naive.truth_runs(tuples, stream.kinds, max_gap)
        out += naive.fit_problems(naive.fitted_rows(t, fitted, key), runs, stream.kinds, asked, parts)
    return out


def one_key(values, kind="step", spacing=SECOND, start=EPOCH):
    return TupleStream([[(start + i * spacing, [float(x)], 0) for i, x in enumerate(values)]], [kind])


def bounds(value=True, drift=True):
    """One attribute's bounds: 0, absolute, relative, relative with a floor; on the value, on the drift, or on both."""
    pairs = [(0.0, 0.0), (0.0, 0.02), (0.0, 3.0), (0.01, 0.0), (0.2, 0.0), (0.01, 0.05), (0.3, 1e-6)]
    none = st.just((-1.0, -1.0))
    on_value = st.sampled_from(pairs) if value else none
    on_drift = st.sampled_from(pairs[1:]) if drift else none
    choices = [st.tuples(on_value, none)] if value else []
    if drift:
        choices.append(st.tuples(none, on_drift))
    if value and drift:
        choices.append(st.tuples(on_value, on_drift))
    return st.one_of(choices).map(lambda pair: naive.Asked(*pair[0], *pair[1]))


def gentle_shapes():
    return value_shapes().filter(lambda values: max(map(abs, values)) < 50)


PARTS = (0.001, 0.37, 0.5, 0.9)


# --- the certificate ---


def dwarfs(stream, asked):
    """Whether a straight truth grows by so much that the graph of a relative bound has a kink too near to a tuple."""
    for a, (kind, one) in enumerate(zip(stream.kinds, asked, strict=True)):
        sizes = [abs(row[1][a]) for key in stream.keys for row in key if row[1][a] != 0.0]
        for rel, floor in ((one.rel, one.floor), (one.drift_rel, one.drift_floor)):
            if kind == "linear" and rel > 0.0 and sizes:
                least = min([*sizes, floor / rel] if floor > 0.0 else sizes)
                if least < 1e-8 * max(sizes):
                    return True
    return False


def test_a_kink_right_after_a_tuple():
    stream = one_key([0.0, 0.0, 1e12], "linear", spacing=7_889_400 * SECOND)
    asked = [naive.Asked(0.01, 0.05)]
    t, fitted, _ = run_fit(stream, asked)
    assert problems(stream, asked, t, fitted, parts=(*PARTS, 1e-13)) == []


def assert_kept_or_reported(stream, asked, t, fitted, status):
    """A bound on the drift may ask for what no line can do; then the fit says so, and the certificate holds all the same."""
    assert status in (OK, BOUND_MISSED)
    assert (status == BOUND_MISSED) == fitted.missed.any()
    if status == BOUND_MISSED:
        asked = [naive.Asked() for _ in asked]
    assert problems(stream, asked, t, fitted, parts=PARTS) == []


@given(tuple_streams(), st.data(), st.sampled_from([1, fits.AUTO]), st.sampled_from([-1, SECOND * 3 // 2]))
def test_no_instant_lies_outside_a_bound_on_the_value(stream, data, degree, max_gap):
    asked = [data.draw(bounds(drift=False)) for _ in stream.kinds]
    assume(not dwarfs(stream, asked))
    t, fitted, status = run_fit(stream, asked, degree, max_gap)
    assert status == OK
    assert problems(stream, asked, t, fitted, max_gap, PARTS) == []


@given(tuple_streams(kinds=("step", "linear")), st.data(), st.sampled_from([1, fits.AUTO]))
def test_no_instant_lies_outside_a_bound_on_the_drift(stream, data, degree):
    asked = [data.draw(bounds(value=False)) for _ in stream.kinds]
    assume(not dwarfs(stream, asked))
    t, fitted, status = run_fit(stream, asked, degree)
    assert_kept_or_reported(stream, asked, t, fitted, status)


@given(tuple_streams(kinds=("step", "linear")), st.data(), st.sampled_from([1, fits.AUTO]))
def test_no_instant_lies_outside_both_bounds(stream, data, degree):
    asked = [data.draw(bounds()) for _ in stream.kinds]
    assume(not dwarfs(stream, asked))
    t, fitted, status = run_fit(stream, asked, degree)
    assert_kept_or_reported(stream, asked, t, fitted, status)


@given(tuple_streams(kinds=("step", "samples")), st.data())
def test_constants_on_steps(stream, data):
    asked = [data.draw(bounds(drift="samples" not in stream.kinds)) for _ in stream.kinds]
    assume(not dwarfs(stream, asked))
    t, fitted, status = run_fit(stream, asked, 0)
    assert fitted.coefficients.shape[2] == 1
    assert_kept_or_reported(stream, asked, t, fitted, status)


@given(tuple_streams(shapes=gentle_shapes()), st.data())
def test_constants_on_slopes(stream, data):
    pair = st.sampled_from([(0.0, 3.0), (0.3, 0.05)])  # tighter ones would take thousands of constants
    asked = [naive.Asked(*data.draw(pair)) for _ in stream.kinds]
    t, fitted, status = run_fit(stream, asked, 0)
    assert status == OK
    assert problems(stream, asked, t, fitted, parts=PARTS) == []


def test_constants_cannot_follow_a_slope_without_any_error():
    _, _, status = run_fit(one_key([1.0, 2.0], "linear"), [naive.Asked(0.0, 0.0)], 0)
    assert status == NOT_CONVERGED
    _, fitted, status = run_fit(one_key([1.0, 1.0, 1.0], "linear"), [naive.Asked(0.0, 0.0)], 0)
    assert (status, segments_in(fitted)) == (OK, 1)


# --- at the edges of floats ---


def assert_certified(stream, asked, degree=1):
    """The certificate holds in exact arithmetic, and what was asked on the integral does, or is reported to be missed."""
    t, fitted, status = run_fit(stream, asked, degree)
    assert_kept_or_reported(stream, asked, t, fitted, status)
    for a, one in enumerate(asked):
        if one.drift_rel == 0.0:
            over = ~(fitted.drift[:, a] <= one.drift_floor)
            assert not (over & (fitted.kind == fits.SEGMENT) & (fitted.missed == 0)).any()
    return fitted


@given(tuple_streams(shapes=extreme_shapes()), st.data(), st.sampled_from([1, fits.AUTO]))
def test_extreme_values_lie_within_a_bound_on_the_value(stream, data, degree):
    asked = [data.draw(bounds(drift=False)) for _ in stream.kinds]
    assume(not dwarfs(stream, asked))
    assert_certified(stream, asked, degree)


@given(tuple_streams(kinds=("step", "linear"), shapes=extreme_shapes()), st.data())
def test_extreme_values_lie_within_both_bounds_or_it_is_reported(stream, data):
    asked = [data.draw(bounds()) for _ in stream.kinds]
    assume(not dwarfs(stream, asked))
    assert_certified(stream, asked)


@given(tuple_streams(kinds=("step", "linear")), st.data())
def test_what_is_certified_of_the_integral_is_no_more_than_asked_unless_it_is_reported(stream, data):
    asked = [data.draw(bounds()) for _ in stream.kinds]
    assume(not dwarfs(stream, asked))
    assert_certified(stream, asked)


def test_subnormal_values_have_the_error_and_drift_that_rounding_leaves():
    """Below the smallest normal number rounding is an amount, not a share: 1e-16 of it is nothing."""
    for values in ([5e-324, 0.0], [-5e-324, 1e-323, 1e-300], [1e-310, 3e-310, 1e-310, 5e-324, 0.0]):
        for spacing in (1, 7, SECOND, 7_889_400 * SECOND):
            for asked in (naive.Asked(0.0, 0.0), naive.Asked(0.01, 0.05), naive.Asked(0.01, 0.0)):
                assert_certified(one_key(values, "linear", spacing), [asked])
                assert_certified(one_key(values, "step", spacing), [asked])


def test_values_near_1e300_are_fitted_where_no_drift_was_asked():
    """Their integrals may be beyond floats: then the drift is unknown, from there to the end of the run."""
    steady = one_key([1e300, 2e300, 1e300, 3e300], "linear", 7_889_400 * SECOND)
    fitted = assert_certified(steady, [naive.Asked(0.0, 1e298)])
    assert np.isfinite(fitted.coefficients).all()
    beyond = one_key([1e306, 1.05e306, 1e306, 1e306, 3e306], "step", 7_889_400 * SECOND)
    fitted = assert_certified(beyond, [naive.Asked(0.0, 1e305)])
    assert not np.isfinite(fitted.drift[-2])


def test_values_that_change_by_more_than_floats_hold_are_refused():
    _, _, status = run_fit(one_key([0.0, 1e306], "linear", 1), [naive.Asked(0.0, 0.1)])
    assert status == NOT_FINITE
    _, _, status = run_fit(one_key([0.0, 1e306, 1e306], "step", 1), [naive.Asked(0.0, 0.1)])
    assert status == OK


def test_a_constant_on_a_slope_below_the_last_place_is_not_exact():
    """Near 1e15 half of a step of an eighth is rounded away: a model that seems to be the truth is off by it."""
    stream = one_key([1e15, 1e15 + 0.125, 1e15], "linear")
    fitted = assert_certified(stream, [naive.Asked(0.0, 0.1)], fits.AUTO)
    assert (fitted.err[fitted.kind == fits.SEGMENT] > 0.0).all()
    fitted = assert_certified(stream, [naive.Asked(0.0, 0.2)], 0)
    assert (fitted.err[fitted.kind == fits.SEGMENT] >= 0.0625).all()
    level = run_fit(one_key([1e15, 1e15, 1e15], "linear"), [naive.Asked(0.0, 0.1)], 0)[1]
    assert not level.err.any()


def test_no_segment_ends_just_before_a_tuple():
    """What would be left of the interval is too short to be a range."""
    values = [-1e15, 0.1, -1e15, -1e15, -1e15, 1e15]
    for spacing in (SECOND, 7 * SECOND, 1000):
        _, fitted, _ = run_fit(one_key(values, "linear", spacing), [naive.Asked(0.3, 1e-6)])
        inner = fitted.kind == fits.SEGMENT
        assert (fitted.hi - fitted.lo)[inner].min() > 1e-9


# --- the fewest segments ---

TIE = Fraction(1, 10**6)  # the kernel aims a little inside the bound: exact ties may go either way


def segments_in(fitted):
    return int((fitted.kind == fits.SEGMENT).sum())


def assert_fewest(stream, asked, degree):
    """As few as the brute-force optimum, up to ties: between those at a hair more and a hair less."""
    t, fitted, status = run_fit(stream, asked, degree)
    assert status == OK
    assert problems(stream, asked, t, fitted) == []
    runs = naive.truth_runs(stream.keys[0], stream.kinds)
    least, most = (
        sum(
            naive.fewest_segments(run, stream.kinds, asked, degree, 1 + side * TIE)
            for run in runs
            if run.pieces
        )
        for side in (1, -1)
    )
    assert least <= segments_in(fitted) <= most


small_values = st.lists(
    st.one_of(st.integers(-8, 8).map(float), st.floats(-8, 8, allow_subnormal=False)), min_size=2, max_size=7
)
wide_bounds = st.sampled_from([(0.0, 0.5), (0.0, 1.7), (0.0, 4.0), (0.1, 0.0), (0.3, 0.5), (0.05, 1.0)])


@st.composite
def small_streams(draw, kinds, attributes=2):
    """One key, unevenly spaced, one or two attributes, now and then an unmodelled change."""
    mixture = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=attributes))
    values = [draw(small_values) for _ in mixture]
    n = min(len(x) for x in values)
    t = EPOCH + np.cumsum(draw(st.lists(st.integers(1, 5), min_size=n, max_size=n))) * SECOND
    change = draw(st.lists(st.sampled_from([0] * 9 + [1]), min_size=n, max_size=n))
    return TupleStream([[(int(t[i]), [x[i] for x in values], change[i]) for i in range(n)]], mixture)


@given(small_streams(("step", "samples")), st.data(), st.sampled_from([0, 1]))
def test_as_few_segments_as_any_way_to_cut_at_tuples(stream, data, degree):
    asked = [naive.Asked(*data.draw(wide_bounds)) for _ in stream.kinds]
    assert_fewest(stream, asked, degree)


@given(small_streams(("linear",)), st.data())
def test_as_few_segments_as_any_way_to_cut_at_any_instant(stream, data):
    asked = [naive.Asked(*data.draw(wide_bounds)) for _ in stream.kinds]
    assert_fewest(stream, asked, 1)


@given(small_streams(("linear",)), st.data())
def test_as_few_constants_as_can_follow_a_line(stream, data):
    asked = [naive.Asked(0.0, data.draw(st.sampled_from([0.5, 1.7, 4.0]))) for _ in stream.kinds]
    assert_fewest(stream, asked, 0)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_a_lossless_step_model_has_a_segment_per_change(values):
    stream = one_key(values)
    _, fitted, status = run_fit(stream, [naive.Asked(0.0, 0.0)], 0)
    assert status == OK
    inner = fitted.kind == fits.SEGMENT
    stretches = [len(list(equal)) for _, equal in itertools.groupby(values)]
    assert segments_in(fitted) == len(stretches) - (stretches[-1] == 1)  # one tuple at the end is a point
    assert not fitted.err[inner].any()
    assert not fitted.drift[inner].any()


# --- resuming ---


def same_model(parts, whole):
    """The same segments; drift and its delta may round differently only where the chunk's sums began anew."""
    assert [row[:4] for row in parts] == [row[:4] for row in whole]
    assert [row.err for row in parts] == [row.err for row in whole]
    assert np.allclose([row.drift for row in parts], [row.drift for row in whole], rtol=1e-9, atol=0)


@given(tuple_streams(max_keys=1), st.data(), st.sampled_from([0, 1, fits.AUTO]), st.integers(1, 6))
def test_chunks_give_what_one_pass_gives(stream, data, degree, size):
    asked = [data.draw(bounds(drift=False)) for _ in stream.kinds]
    assume(not dwarfs(stream, asked))
    if degree == 0:
        assume("linear" not in stream.kinds)
    t, fitted, status = run_fit(stream, asked, degree)
    assert status == OK
    parts = naive.fit_in_chunks(
        (truth_intervals, fits),
        lambda *x: fits.fit(*x, degree=degree),
        stream.keys[0],
        stream.kinds,
        asked,
        size,
    )
    same_model(parts, naive.fitted_rows(t, fitted))


@given(tuple_streams(kinds=("step", "linear"), max_keys=1), st.data(), st.integers(1, 6))
def test_chunks_carry_the_drift_on(stream, data, size):
    """With a bound on the drift a cut may choose another model: what was asked and certified holds across it."""
    asked = [data.draw(bounds()) for _ in stream.kinds]
    assume(not dwarfs(stream, asked))
    assume(run_fit(stream, asked)[2] == OK)  # the driver takes no other
    parts = naive.fit_in_chunks((truth_intervals, fits), fits.fit, stream.keys[0], stream.kinds, asked, size)
    runs = naive.truth_runs(stream.keys[0], stream.kinds)
    assert naive.fit_problems(parts, runs, stream.kinds, asked, PARTS) == []

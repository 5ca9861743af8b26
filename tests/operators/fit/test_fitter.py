"""The fitter: one pass whatever the chunks, state that is bounded and pickles, and nothing lost on the way."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import NullKeyError, UnknownColumnError
from pulse.kernels.fit.constraints import LONGEST
from pulse.operators.fit.fitter import FitError, Fitter
from pulse.operators.fit.spec import FitSpec
from tests import certificates
from tests.operators.fit.fitting import (
    EPOCH,
    cut,
    extreme_streams,
    fit_chunks,
    fit_units,
    replaced,
    small_streams,
    specs,
    stream,
    tuples,
)

STEP = FitSpec.of(stream(x="step"), error=0.5)
LINEAR = FitSpec.of(stream(x="linear"), error=0.5)
cuts = st.lists(st.integers(0, 40), max_size=4)


@given(small_streams(), specs(), cuts, st.sampled_from([1, 3, 1000]))
def test_chunks_make_no_difference(table: pa.Table, spec: FitSpec, at: list[int], rows: int) -> None:
    one, a = fit_chunks([table], spec, chunk_rows=1 << 20)
    many, b = fit_chunks(cut(table, at), spec, chunk_rows=rows)
    if all(bound is None for bound in spec.drift):
        assert one.to_arrow().equals(many.to_arrow())
    else:  # which of the models that even the integrals out is chosen may hang on the last digit; what is covered may not
        np.testing.assert_allclose(np.sum(one.hi - one.lo), np.sum(many.hi - many.lo), rtol=1e-12)
        assert one.is_point.sum() == many.is_point.sum()
    counted = [replace(fitter.counts, missed=0, changing={}) for fitter in (a, b)]
    assert counted[0] == counted[1]
    assert a.counts.superseded == replaced(table, spec)


@given(small_streams(), specs(), cuts)
def test_a_fitter_pickles_in_mid_stream(table: pa.Table, spec: FitSpec, at: list[int]) -> None:
    whole, a = fit_chunks(cut(table, at), spec)
    fitter, found = Fitter(spec, chunk_rows=1), []
    for chunk in cut(table, at):
        found.append(fitter.push(chunk))
        fitter = pickle.loads(pickle.dumps(fitter))
    found.append(fitter.finish())
    rows = [row for batch in found if batch is not None for row in batch.to_arrow().to_pylist()]
    assert sorted(rows, key=str) == sorted(whole.to_arrow().to_pylist(), key=str)
    assert fitter.counts == a.counts


@given(small_streams(late=False), specs())
def test_no_instant_lies_outside_its_certificate(table: pa.Table, spec: FitSpec) -> None:
    found, counts = fit_units([table], spec)
    wrong = certificates.problems(table, found.segments, spec)
    assert [text for text in wrong if "asked" not in text or not counts.missed] == []


@given(extreme_streams(), specs(), cuts)
def test_no_instant_lies_outside_its_certificate_at_the_edges_of_floats(
    table: pa.Table, spec: FitSpec, at: list[int]
) -> None:
    for units in ([table], cut(table, at)):
        found, counts = fit_units(units, spec)
        wrong = certificates.problems(table, found.segments, spec)
        missed = counts.missed + found.missed
        assert [text for text in wrong if "asked" not in text or not missed] == []


def test_values_near_1e300_whose_integral_is_beyond_floats_have_an_unknown_drift() -> None:
    table = tuples([0, 1e8, 2e8, 3e8], x=[3e300, 3.05e300, 3e300, 3.1e300])
    for truth in ("step", "linear"):
        for degree in (1, "auto", 2):
            spec = FitSpec.of(stream(x=truth), error=1e299, degree=degree)
            segments, fitter = fit_chunks([table], spec)
            assert fitter.counts.missed == 0
            assert np.isfinite(segments.err("x")).all()
            assert segments.drift("x").mask.any()
            assert certificates.problems(table, segments, spec) == []
    asked = FitSpec.of(stream(x="linear"), drift=1)
    _, fitter = fit_chunks([table], asked)
    assert fitter.counts.missed > 0


def test_values_that_change_by_more_than_floats_hold_name_key_and_instant() -> None:
    with pytest.raises(
        FitError, match=r"key \('a',\) at 2023-11-14T22:13:20.*values change by more than float64 can hold"
    ):
        fit_chunks([tuples([0, 1e-6], x=[0, 1e306])], LINEAR)


@given(small_streams(), specs())
def test_no_tuple_is_lost(table: pa.Table, spec: FitSpec) -> None:
    fitter = Fitter(spec)
    fitter.push(table)
    fitter.finish()
    aside = fitter.take_aside()
    reasons = [] if aside is None else aside.column("reason").to_pylist()
    assert fitter.counts.tuples == table.num_rows
    assert reasons.count("late") == fitter.counts.late
    assert reasons.count("not finite") == fitter.counts.not_finite
    assert fitter.take_aside() is None


def test_no_tuples() -> None:
    segments, fitter = fit_chunks([tuples([], x=[])], STEP)
    assert (len(segments), fitter.counts.tuples, list(fitter.ends.parts())) == (0, 0, [])
    assert len(Fitter(STEP).finish()) == 0


@pytest.mark.parametrize("spec", [STEP, LINEAR])
def test_one_tuple_is_a_point(spec: FitSpec) -> None:
    segments, _ = fit_chunks([tuples([3], x=[7])], spec)
    assert segments.is_point.tolist() == [True]
    assert (segments.ref[0], segments.lo[0], segments.coefficients("x")[0, 0]) == (
        EPOCH + 3_000_000,
        0.0,
        7.0,
    )
    assert (segments.err("x")[0], segments.drift("x")[0]) == (0.0, 0.0)


def test_interleaved_keys_are_fitted_as_if_alone() -> None:
    rng = np.random.default_rng(2)
    n = 3000
    k = rng.choice(list("abcdef"), n)
    x = np.cumsum(rng.integers(-2, 3, n)) / 4
    table = tuples(np.cumsum(rng.random(n)), k=k, x=x)
    together, _ = fit_chunks([table], LINEAR)
    for key in "abcdef":
        alone, _ = fit_chunks([table.filter(pa.array(k == key))], LINEAR)
        assert together.of_key(key).to_arrow().equals(alone.to_arrow())


def test_several_key_columns_and_none() -> None:
    table = tuples(
        [0, 0, 1, 1, 2, 2], k=["a", "b"] * 3, u=["p", "p", "p", "q", "p", "p"], x=[1, 2, 3, 4, 5, 6]
    )
    schema = stream().of(key={"k": "string", "u": "string"}, time="t", modelled={"x": "step"})
    both, _ = fit_chunks([table], FitSpec.of(schema, error=0))
    assert len(np.unique(both.key_ranks)) == 3
    none, fitter = fit_chunks([table], FitSpec.of(stream(key=False), error=0))
    assert "k" not in none.to_arrow().schema.names
    assert fitter.counts.superseded == replaced(table, FitSpec.of(stream(key=False), error=0)) == 3
    assert certificates.problems(table, none, FitSpec.of(stream(key=False), error=0)) == []


@pytest.mark.parametrize("rows", [1, 2, 5, 100])
@pytest.mark.parametrize("truth", ["step", "linear"])
def test_what_another_of_its_instant_follows_is_counted_once(truth: str, rows: int) -> None:
    table = tuples([0, 0, 0, 1, 1, 2, 3, 3, 3], x=[1, 1, 2, 2, 2, 2, 2, 5, 5])
    chunks = cut(table, list(range(rows, 9, rows)))
    _, fitter = fit_chunks(chunks, FitSpec.of(stream(x=truth), error=0.5))
    assert fitter.counts.superseded == 5


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_a_hole_in_between_changes_nothing_about_that(rows: int) -> None:
    table = tuples([0, 0, 0, 1, 2, 2], x=[1, None, 2, 2, None, 3])
    spec = FitSpec.of(stream(x="step"), error=0.5, nonfinite="hole")
    _, fitter = fit_chunks(cut(table, list(range(rows, 6, rows))), spec)
    assert (fitter.counts.superseded, fitter.counts.not_finite) == (1, 2)


def test_a_null_key_belongs_to_nobody() -> None:
    with pytest.raises(NullKeyError, match="key column 'k': 1 nulls"):
        fit_chunks([tuples([0, 1], k=["a", None], x=[1, 2])], STEP)


def test_a_missing_column() -> None:
    with pytest.raises(UnknownColumnError, match=r"there is no column 'x'; .*There are: 't', 'k', 'y'"):
        Fitter(STEP).push(tuples([0], y=[1]))


def test_values_that_are_no_numbers_are_set_aside_with_the_first_named() -> None:
    table = tuples([0, 1, 2, 3], k=["a", "b", "a", "a"], x=[1, float("inf"), None, 2])
    segments, fitter = fit_chunks([table], STEP)
    assert fitter.counts.not_finite == 2
    assert fitter.counts.first_not_finite == "x = inf of k 'b' at 2023-11-14T22:13:21.000000Z"
    aside = fitter.take_aside()
    assert aside is not None
    assert aside.column("t").to_pylist() == table.column("t").slice(1, 2).to_pylist()
    assert set(aside.column("reason").to_pylist()) == {"not finite"}
    assert segments.to_ppoly("x", key="a").runs[0].x.tolist() == [0.0, 3.0]


def test_values_that_are_no_numbers_make_holes_when_reported() -> None:
    spec = FitSpec.of(stream(x="step"), error=0.5, nonfinite="hole")
    segments, fitter = fit_chunks([tuples([0, 1, 2, 3], x=[1, 1, None, 2])], spec)
    assert segments.lo.tolist() == [0, 0]
    assert segments.hi.tolist() == [2.0, 0.0]  # what ruled holds until nobody knows; then a lone point
    assert fitter.counts.not_finite == 1


def test_late_tuples_are_set_aside() -> None:
    table = tuples([0, 5, 3, 6, 1], k=["a", "a", "a", "a", "b"], x=[1, 2, 3, 4, 5])
    segments, fitter = fit_chunks([table], STEP)
    assert fitter.counts.late == 1
    aside = fitter.take_aside()
    assert aside is not None
    assert aside.column("x").to_pylist() == [3.0]
    assert certificates.problems(table, segments, STEP) == []


def test_a_watermark_makes_tuples_late() -> None:
    segments, fitter = fit_chunks(
        [tuples([0, 1, 2], x=[1, 2, 3])], STEP, watermarks={("a",): EPOCH + 1_000_000}
    )
    assert fitter.counts.late == 1
    assert segments.ref.min() == EPOCH + 1_000_000


def test_an_unmodelled_change_ends_a_segment() -> None:
    spec = FitSpec.of(stream(keep=True, x="step"), error=0.5)
    segments, _ = fit_chunks([tuples([0, 1, 2, 3], u=["p", "p", "q", "q"], x=[1, 1, 1, 1])], spec)
    assert segments.column("u").to_pylist() == ["p", "q", "q"]
    assert segments.hi.tolist() == [2.0, 1.0, 0.0]


def test_a_tuple_set_aside_ends_no_segment() -> None:
    spec = FitSpec.of(stream(keep=True, x="step"), error=0.5)
    table = tuples([0, 1, 2, 3], u=["p", "p", "q", "p"], x=[1, 1, None, 1])
    segments, _ = fit_chunks([table], spec, chunk_rows=100)
    assert (~segments.is_point).sum() == 1


def test_finer_digits_are_counted_once() -> None:
    ns = pa.array(np.arange(6) * 1_000_000_000 + 1, pa.timestamp("ns"))
    table = pa.table({"t": ns, "k": ["a"] * 6, "x": np.arange(6.0)})
    for rows in (1, 1000):
        _, fitter = fit_chunks(cut(table, [2, 3, 4]), LINEAR, chunk_rows=rows)
        assert fitter.counts.truncated == 6


def test_repeats_are_not_kept() -> None:
    """A price that stands still must not fill the memory."""
    fitter = Fitter(STEP, chunk_rows=1000)
    for i in range(50):
        fitter.push(tuples(np.arange(1000) + 1000 * i, x=np.ones(1000)))
        assert fitter._kept is None or fitter._kept.num_rows <= 2
    segments = fitter.finish()
    assert (len(segments), segments.hi.max(), fitter.counts.tuples) == (2, 49_999.0, 50_000)


def test_what_is_kept_is_bounded() -> None:
    """One segment that never ends: a line without noise."""
    fitter = Fitter(LINEAR, chunk_rows=1 << 14)
    most, found = 0, []
    for i in range(16):
        t = np.arange(1 << 14) + (i << 14)
        found.append(fitter.push(tuples(t, x=t / 7)))
        most = max(most, fitter._kept.num_rows if fitter._kept is not None else 0)
    found.append(fitter.finish())
    segments = [b for b in found if b is not None and len(b)]
    assert most <= LONGEST + 2
    assert sum(len(b) for b in segments) <= 5


def test_constants_on_a_slope_name_key_and_instant() -> None:
    spec = FitSpec.of(stream(x="linear"), error=0, degree=0)
    with pytest.raises(
        FitError, match=r"key \('a',\) after 2023-11-14T22:13:2\d.*use lines \(degree 1, or auto\)"
    ):
        fit_chunks([tuples([0, 1, 2], x=[1, 1, 2])], spec)

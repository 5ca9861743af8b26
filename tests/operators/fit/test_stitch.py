"""Stitching: a cut adds boundaries and nothing else; every certificate holds; late units are found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.operators.fit.fitter import FitCounts
from pulse.operators.fit.key_boundaries import FIRST, LAST
from pulse.operators.fit.spec import FitSpec
from pulse.operators.fit.stitch import LateUnits, Stitched, _running_max_before, part_table, stitch
from tests import certificates
from tests.operators.fit.fitting import (
    EPOCH,
    cut,
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
cuts = st.lists(st.integers(0, 40), min_size=1, max_size=4)


@given(small_streams(late=False), specs(), cuts, st.sampled_from([1, 1000]))
def test_however_it_is_cut_the_certificate_holds(
    table: pa.Table, spec: FitSpec, at: list[int], rows: int
) -> None:
    found, counts = fit_units(cut(table, at), spec, chunk_rows=rows)
    missed = counts.missed + found.missed
    wrong = certificates.problems(table, found.segments, spec)
    assert [text for text in wrong if "asked" not in text or not missed] == []
    assert counts.superseded + found.superseded == replaced(table, spec)


@given(small_streams(), specs(nonfinite="reject"), cuts)
def test_late_tuples_are_the_same_however_it_is_cut(table: pa.Table, spec: FitSpec, at: list[int]) -> None:
    found, counts = fit_units(cut(table, at), spec)
    _, whole = fit_chunks([table], spec)
    assert (counts.tuples, counts.late, counts.not_finite) == (
        whole.counts.tuples,
        whole.counts.late,
        whole.counts.not_finite,
    )
    missed = counts.missed + found.missed
    wrong = certificates.problems(table, found.segments, spec)
    assert [text for text in wrong if "asked" not in text or not missed] == []
    assert counts.superseded + found.superseded == whole.counts.superseded == replaced(table, spec)


def walk(n: int, seed: int = 3) -> pa.Table:
    rng = np.random.default_rng(seed)
    return tuples(np.cumsum(rng.exponential(0.3, n)), x=100 + np.cumsum(rng.integers(-1, 2, n)) * 0.01)


@pytest.mark.parametrize("truth", ["step", "linear"])
@pytest.mark.parametrize(
    "asked", [{"error": "0.02%"}, {"drift": "0.01%"}, {"error": "0.05%", "drift": "0.02%"}]
)
def test_fifty_cuts(truth: str, asked: dict[str, str]) -> None:
    """A boundary or two per cut; and the drift, which is handed on, does not pile up."""
    table = walk(20_000)
    spec = FitSpec.of(stream(x=truth), **asked)
    whole, _ = fit_chunks([table], spec)
    at = sorted(np.random.default_rng(4).integers(0, 20_000, 50).tolist())
    found, counts = fit_units(cut(table, at), spec)
    assert certificates.problems(table, found.segments, spec) == []
    assert counts.missed + found.missed == 0
    assert len(whole) < len(found.segments) <= len(whole) + 4 * 51


def strictly_within(found: Stitched, counts: FitCounts, asked: float) -> bool:
    """Whether no drift is certified above what was asked, by whatever share; or it is reported that some are."""
    drift = found.segments.drift("x")
    assert not drift.mask.any()
    return not len(drift) or bool(drift.max() <= asked) or counts.missed + found.missed > 0


@pytest.mark.parametrize("truth", ["step", "linear"])
@pytest.mark.parametrize("error", [None, "0.02", "0.004"])
@pytest.mark.parametrize("drift", [0.01, 0.002])
def test_what_units_inherit_does_not_exceed_the_drift_that_was_asked(
    truth: str, error: str | None, drift: float
) -> None:
    """A millionth of the bound was handed on from unit to unit and added to what each of them used up."""
    table = walk(6_000)
    spec = FitSpec.of(stream(x=truth), error=error, drift=drift)
    found, counts = fit_units(cut(table, list(range(0, 6_000, 40))), spec)
    assert strictly_within(found, counts, drift)
    # A bound on the value may leave a difference of the integrals that the next unit cannot spare: then it is reported.
    assert error is not None or counts.missed + found.missed == 0
    wrong = certificates.problems(table, found.segments, spec)
    assert [text for text in wrong if "asked" not in text or not found.missed] == []


@given(small_streams(late=False), st.sampled_from(["step", "linear"]), st.sampled_from([0.5, 2.0]), cuts)
def test_the_drift_asked_is_kept_strictly_or_it_is_reported(
    table: pa.Table, truth: str, drift: float, at: list[int]
) -> None:
    spec = FitSpec.of(stream(x=truth), error=0.75, drift=drift)
    found, counts = fit_units(cut(table, at), spec)
    assert strictly_within(found, counts, drift)


def test_an_integral_beyond_floats_is_unknown_in_the_units_after_it() -> None:
    huge = tuples([0, 1e8, 2e8], x=[3e300, 3.05e300, 3e300])
    more = tuples([3e8, 4e8], x=[1.0, 2.0])
    spec = FitSpec.of(stream(x="step"), error=1e299)
    found, _ = fit_units([huge, more], spec)
    assert np.isfinite(found.segments.err("x")).all()
    assert found.segments.drift("x").mask.all()
    whole, _ = fit_chunks([pa.concat_tables([huge, more])], spec)
    assert whole.drift("x").mask.all()
    known, _ = fit_units([more], spec)
    assert not known.segments.drift("x").mask.any()


def test_a_step_holds_over_the_cut() -> None:
    found, _ = fit_units([tuples([0, 1], x=[1, 2]), tuples([5], x=[7])], STEP)
    assert found.segments.evaluate("x", [EPOCH + 4_999_999], key="a").tolist() == [2.0]
    assert found.segments.is_point.sum() == 1
    assert found.closing.sum() == 1


def test_a_hole_at_the_instant_where_a_unit_begins_replaces_nothing() -> None:
    spec = FitSpec.of(stream(x="step"), error=0.5, nonfinite="hole")
    units = [tuples([0, 1, 2], x=[1, 2, None]), tuples([2, 2], x=[None, None]), tuples([2, 3], x=[5, 6])]
    found, counts = fit_units(units, spec)
    assert counts.superseded + found.superseded == 0
    units[0] = tuples([0, 1, 2, 2], x=[1, 2, 3, None])
    found, counts = fit_units(units, spec)
    assert counts.superseded + found.superseded == 1


def test_a_line_goes_over_the_cut() -> None:
    found, _ = fit_units([tuples([0], x=[0]), tuples([10], x=[10])], LINEAR)
    assert found.segments.evaluate("x", [EPOCH + 5_000_000], key="a").tolist() == [
        pytest.approx(5.0, abs=0.5)
    ]
    assert not found.segments.is_point.any()


def test_a_line_ends_at_the_first_of_equal_timestamps() -> None:
    """The jump at 10 s lies in the second unit: the line from 0 goes to 10, not to 50."""
    table = tuples([0, 10, 10, 11], x=[0, 10, 50, 50])
    for at in ([1], [2], [3]):
        found, _ = fit_units(cut(table, at), LINEAR)
        assert certificates.problems(table, found.segments, LINEAR) == []


def test_equal_timestamps_at_the_cut() -> None:
    table = tuples([0, 1, 1, 2], x=[1, 2, 3, 4])
    for spec in (STEP, LINEAR):
        found, _ = fit_units(cut(table, [2]), spec)
        assert certificates.problems(table, found.segments, spec) == []


def test_a_silence_over_the_cut_is_a_hole() -> None:
    spec = FitSpec.of(stream(x="step"), error=0.5, max_gap=2_000_000)
    table = tuples([0, 1, 5, 6], x=[1, 1, 1, 1])
    found, _ = fit_units(cut(table, [2]), spec)
    assert certificates.problems(table, found.segments, spec) == []
    assert found.segments.is_point.sum() == 2


@pytest.mark.parametrize("truth", ["step", "linear"])
@pytest.mark.parametrize("at", [[1], [2], [3], [1, 2], [2, 3], [1, 2, 3]])
def test_holes_at_the_cut(truth: str, at: list[int]) -> None:
    """A value that is no number may end a unit, begin one, or be all there is of one."""
    spec = FitSpec.of(stream(x=truth), error=0.5, nonfinite="hole")
    table = tuples([0, 1, 2, 3, 4], x=[1, 5, None, 9, 3])
    found, counts = fit_units(cut(table, at), spec)
    assert counts.not_finite == 1
    assert certificates.problems(table, found.segments, spec) == []


def test_a_late_unit_after_a_hole_is_found() -> None:
    spec = FitSpec.of(stream(x="step"), error=0.5, nonfinite="hole")
    units = [tuples([100, 110], x=[1, None]), tuples([50, 105, 120], x=[2, 2, 3])]
    found, counts = fit_units(units, spec)
    assert counts.late == 2  # 1 holds until 110
    assert found.segments.ref.min() == EPOCH + 100_000_000


def test_a_hole_that_is_late_itself_is_none() -> None:
    spec = FitSpec.of(stream(x="step"), error=0.5, nonfinite="hole")
    units = [tuples([0, 100], x=[1, 2]), tuples([20, 101], x=[None, 3])]
    found, _ = fit_units(units, spec)
    assert found.segments.evaluate("x", [EPOCH + 100_500_000], key="a").tolist() == [2.0]


def test_integrals_start_anew_after_a_hole_without_length() -> None:
    """At 2 s the truth is unknown and known again: nothing is handed on over it."""
    spec = FitSpec.of(stream(x="step"), error=3, nonfinite="hole")
    table = tuples([0, 1, 2, 2, 3, 4], x=[0, 4, None, 0, 4, 0])
    for at in ([1], [5], [1, 5]):
        found, _ = fit_units(cut(table, at), spec)
        assert certificates.problems(table, found.segments, spec) == []


def test_overlapping_units_are_named_with_their_watermark() -> None:
    schema, parts = stream(x="step"), []
    for number, table in enumerate([tuples([0, 9], x=[1, 2]), tuples([3, 12], x=[3, 4])]):
        _, fitter = fit_chunks([table], STEP)
        parts += [part_table(batch, number, part) for batch, part in fitter.ends.parts()]
    late = stitch(pa.concat_tables(parts), STEP)
    assert isinstance(late, LateUnits)
    assert (late.keys.to_pylist(), late.unit.tolist()) == ([{"k": "a"}], [1])
    assert late.watermark.tolist() == [EPOCH + 9_000_000]
    assert schema.key_names == ("k",)


def test_the_ends_are_where_new_data_goes_on() -> None:
    found, _ = fit_units(
        [tuples([0, 1, 1], k=["a", "a", "b"], x=[1, 2, 3]), tuples([4], k=["a"], x=[5])], STEP
    )
    details = {row["k"]: (row["ref"], row["x"], row["_part"]) for row in found.ends.to_pylist()}
    assert {key: (x, part) for key, (_, x, part) in details.items()} == {
        "a": ([5.0], LAST),
        "b": ([3.0], LAST),
    }
    assert FIRST not in found.ends.column("_part").to_pylist()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), max_size=20))
def test_the_running_maximum(rows: list[tuple[int, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    key, value = np.array([r[0] for r in rows], dtype=int), np.array([r[1] for r in rows], dtype=int)
    nothing = np.iinfo(np.int64).min
    slow = [max([v for k, v in rows[:i] if k == rows[i][0]], default=nothing) for i in range(len(rows))]
    assert _running_max_before(value, key).tolist() == slow


def test_steps_near_the_largest_number_stitch_without_a_warning() -> None:
    """An open row has no length: its magnitude, beyond float64, counts for nothing."""
    values = np.where(np.arange(60) % 2, 1e308, -1e308)
    spec = FitSpec.of(stream(x="step"), error=0)
    found, _ = fit_units(cut(tuples(range(60), x=values), [20, 41]), spec)
    assert found.segments.coefficients("x")[:, 0].tolist() == values.tolist()
    assert found.segments.err("x").tolist() == [0.0] * 60

"""Values that are no numbers, as holes: beside numbers of the same instant, and wherever units and batches are cut."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse
from pulse.core.segment.batch import SegmentBatch
from pulse.operators.fit.spec import FitSpec
from tests import certificates, naive
from tests.operators.fit.fitting import (
    SECOND,
    cut,
    fit_chunks,
    fit_units,
    small_streams,
    specs,
    stream,
    tuples,
)

CUTS = st.lists(st.integers(0, 40), max_size=6) | st.just(list(range(40)))  # few units, or one a tuple
NAN = float("nan")
Range = tuple[str, int, int]


def covered(batch: SegmentBatch) -> list[Range]:
    """Where each key is known: ranges that meet as one, and points."""
    keys = batch.to_arrow().column("k").to_pylist()
    begin = batch.ref + np.round(batch.lo * 1e6).astype(np.int64)
    end = batch.ref + np.round(batch.hi * 1e6).astype(np.int64)
    return _merged(sorted(zip(keys, begin.tolist(), end.tolist(), strict=True)))


def _merged(ranges: list[Range]) -> list[Range]:
    out: list[Range] = []
    for key, begin, end in ranges:
        if out and out[-1][0] == key and begin <= out[-1][2]:
            out[-1] = (key, out[-1][1], max(end, out[-1][2]))
        else:
            out.append((key, begin, end))
    return out


def known(table: pa.Table, spec: FitSpec) -> list[Range]:
    """The same, from the tuples."""
    kinds = [truth.value for _, truth in spec.schema.modelled]
    found: list[Range] = []
    for key in sorted(set(table["k"].to_pylist())):
        times = table["t"].cast(pa.int64()).to_pylist()
        rows = [
            (t, [NAN if row[name] is None else row[name] for name in spec.schema.modelled_names], 0)
            for row, t in zip(table.to_pylist(), times, strict=True)
            if row["k"] == key
        ]
        gap = -1 if spec.max_gap is None else spec.max_gap
        for run in naive.truth_runs(rows, kinds, gap):
            found += [(key, piece.begin, piece.end) for piece in run.pieces]
            found += [(key, run.instant, run.instant)] if run.point is not None else []
    return _merged(sorted(found))


@given(small_streams(late=True, keep=False), specs(nonfinite="hole"), CUTS)
def test_what_is_known_is_the_same_for_every_cut(table: pa.Table, spec: FitSpec, cuts: list[int]) -> None:
    """Late tuples among values that are no numbers; units, batches and passes anywhere."""
    whole, fitter = fit_chunks([table], spec, chunk_rows=1 << 20)
    pieces = cut(table, cuts)
    in_passes, by_passes = fit_chunks(pieces, spec)
    in_units, by_units = fit_units(pieces, spec)
    expected = known(table, spec)
    assert covered(whole) == expected
    assert covered(in_passes) == expected
    assert covered(in_units.segments) == expected
    counts = [(one.late, one.not_finite, one.tuples) for one in (fitter.counts, by_passes.counts, by_units)]
    assert counts[0] == counts[1] == counts[2]
    assert (
        fitter.counts.superseded == by_passes.counts.superseded == by_units.superseded + in_units.superseded
    )


@given(small_streams(late=False), specs(nonfinite="hole"), CUTS)
def test_certificates_hold_beside_values_that_are_no_numbers(
    table: pa.Table, spec: FitSpec, cuts: list[int]
) -> None:
    """Drifts count from where a run begins, which it does not at a number that takes the place of what is none."""
    for segments in (fit_chunks(cut(table, cuts), spec)[0], fit_units(cut(table, cuts), spec)[0].segments):
        wrong = certificates.problems(table, segments, spec)
        # A bound that contradicts another is missed, and counted; a cut within an instant may show its value once more.
        assert [
            text for text in wrong if "asked" not in text and not text.startswith("a point too many")
        ] == []


def test_a_unit_that_begins_with_no_number_moves_time_on() -> None:
    """A tuple behind it is late, whatever the row groups."""
    table = tuples([0, 10, 5, 20, 30], x=[1, None, 2, 3, 4])
    spec = FitSpec.of(stream(x="step"), error=0, nonfinite="hole")
    for cuts in ([], [1], [2], [1, 2], [1, 3], [2, 4]):
        made, counts = fit_units(cut(table, cuts), spec)
        assert counts.late == 1, cuts
        assert covered(made.segments) == known(table, spec), cuts


@pytest.mark.parametrize("units", range(1, 5))
def test_of_several_units_without_a_number_the_first_ends_what_holds(units: int) -> None:
    table = tuples([0, *range(1, units + 1), 9], x=[5, *[None] * units, 7])
    spec = FitSpec.of(stream(x="step"), error=0, nonfinite="hole")
    made, _ = fit_units(cut(table, range(table.num_rows)), spec)
    assert covered(made.segments) == known(table, spec)


@pytest.mark.parametrize("kind", ["step", "linear"])
def test_an_average_over_a_number_beside_none_keeps_its_certificate(kind: str) -> None:
    """Windows across the instant: their error comes from drifts that go on over it."""
    rng = np.random.default_rng(3)
    seconds = np.repeat(np.arange(60), 3)
    x = np.cumsum(rng.normal(size=180)).round(2)
    x[1::3] = NAN  # a number, none, a number
    table = tuples(seconds.tolist(), x=x.tolist())
    model = pulse.Session(engine="local").fit(
        table, key="k", time="t", model={"x": kind}, error=3.0, drift=2.0, nonfinite="hole"
    )
    answer = pulse.Session(engine="local").sql(
        "select avg(x) as m from S [size 7 advance 1]", streams={"S": model}
    )
    found = answer.tuples()
    closings = (
        found["t"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() - model.read().ref[0]
    ) // SECOND
    assert closings.tolist() == list(range(7, 60))
    for row, closing in zip(found.to_pylist(), closings.tolist(), strict=True):
        exact = sum((_area(x, kind, second) for second in range(closing - 7, closing)), Fraction(0)) / 7
        assert row["certainty"] == "certain"
        assert abs(Fraction(row["m"]) - exact) <= Fraction(row["m_err"])


def _area(x: Any, kind: str, second: int) -> Fraction:
    """The integral of the truth over a second, exactly."""
    first = Fraction(float(x[3 * second + 2]))
    last = Fraction(float(x[3 * second + 3])) if kind == "linear" else first
    return (first + last) / 2

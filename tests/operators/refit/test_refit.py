"""Revised models against the corrected truth, for every truth, bound and kind of revision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.segment.batch import SegmentBatch
from pulse.operators.fit.key_boundaries import SEGMENTS
from pulse.operators.fit.spec import FitSpec
from pulse.operators.fit.stitch import Stitched, part_table, stitch
from pulse.operators.refit.api import correct, patches, refit, without_drift
from tests.operators.fit.fitting import EPOCH, SECOND, fit_chunks, fit_units, small_streams, stream
from tests.operators.refit.refitting import (
    Lean,
    as_rows,
    in_order,
    loads,
    model_of,
    revised,
    revisions_of,
    rows_of,
    wrong,
)


@st.composite
def revisable(draw: st.DrawFn) -> FitSpec:
    """Any truths, bounds and degrees that a model may have."""
    truths = draw(
        st.sampled_from([("step",), ("linear",), ("samples",), ("linear", "linear"), ("step", "linear")])
    )
    kind = draw(st.sampled_from(["error"] if "samples" in truths else ["error", "drift", "both"]))
    error = draw(st.sampled_from(["0.5", "2", "10% or 0.1", "20%", "0"])) if kind != "drift" else None
    drift = draw(st.sampled_from(["0.5", "2", "5% or 0.2"])) if kind != "error" else None
    flat = [0] if "linear" not in truths else []
    return FitSpec.of(
        stream(keep=True, **dict(zip("xy", truths, strict=False))),
        error=error,
        drift=drift,
        degree=draw(st.sampled_from([1, 1, "auto", *flat, *([2, 4] if drift is None else [])])),
        max_gap=draw(st.sampled_from([None, 3 * SECOND, 10 * SECOND])),
        nonfinite="reject",
    )


@given(st.data())
def test_a_revised_model_is_one_of_the_corrected_tuples(data: st.DataObject) -> None:
    """At rest, covering what a fit from scratch covers, every certificate true."""
    spec = data.draw(revisable())
    tuples = in_order(data.draw(small_streams(late=False, holes=False)))
    segments = model_of(tuples, spec)
    rows = data.draw(loads(tuples, spec))
    if not rows:
        return
    revisions = revisions_of(rows, spec)
    result = refit(spec, tuples, segments, revisions)
    after = correct(tuples, revisions).tuples
    found = wrong(after, revised(segments, result), spec, asked=not result.counts.missed)
    assert not found, found


@given(st.data())
def test_one_call_or_several(data: st.DataObject) -> None:
    """Revisions applied one by one give a model of the same truth."""
    spec = data.draw(revisable())
    tuples = in_order(data.draw(small_streams(late=False, holes=False)))
    model = model_of(tuples, spec)
    revisions = revisions_of(data.draw(loads(tuples, spec, most=6)), spec)
    missed = 0
    for element in range(len(revisions)):
        one = revisions.take(np.array([element]))
        result = refit(spec, tuples, model, one)
        model, tuples = revised(model, result), correct(tuples, one).tuples
        missed += result.counts.missed
    found = wrong(tuples, model, spec, asked=not missed)
    assert not found, found


@given(st.data())
def test_what_is_asked_for_is_enough(data: st.DataObject) -> None:
    """Sources that give no more than they are asked for lead to the same truth."""
    spec = data.draw(revisable())
    tuples = in_order(data.draw(small_streams(late=False, holes=False)))
    segments = model_of(tuples, spec)
    revisions = revisions_of(data.draw(loads(tuples, spec, most=6)), spec)
    lean = Lean(tuples, segments)
    result = refit(spec, lean.tuples, lean.meeting, revisions)
    after = correct(tuples, revisions)
    assert result.aside.equals(after.aside)
    found = wrong(after.tuples, revised(segments, result), spec, asked=not result.counts.missed)
    assert not found, found


@given(st.data())
def test_values_that_are_no_numbers_open_and_close_holes(data: st.DataObject) -> None:
    """Where they make holes, revisions bring and take them like any tuple."""
    spec = replace(data.draw(revisable()), nonfinite="hole")
    tuples = in_order(data.draw(small_streams(late=False)))
    segments = model_of(tuples, spec)
    rows = data.draw(loads(tuples, spec, most=6))
    for row in rows:
        if row["kind"] in ("+I", "+U") and data.draw(st.integers(0, 3)) == 0:
            row["x"] = None
    revisions = revisions_of(rows, spec)
    result = refit(spec, tuples, segments, revisions)
    after = correct(tuples, revisions, nonfinite="hole").tuples
    found = wrong(after, revised(segments, result), spec, asked=not result.counts.missed)
    assert not found, found


@given(st.data())
def test_only_what_is_touched_changes(data: st.DataObject) -> None:
    """Segments apart from every changed stretch stay as they are, but in runs that count their integrals from elsewhere."""
    spec = data.draw(revisable())
    tuples = in_order(data.draw(small_streams(late=False, holes=False)))
    segments = model_of(tuples, spec)
    revisions = revisions_of(data.draw(loads(tuples, spec, most=4)), spec)
    result = refit(spec, tuples, segments, revisions)
    if patches(spec) and result.counts.refitted:
        return
    t = tuples.column("t").cast(pa.int64()).to_numpy()
    keys = np.array(tuples.column("k").to_pylist(), dtype=object)
    zones = []
    moments = revisions.table.column("k").to_pylist(), revisions.times.tolist()
    for key, time in zip(*moments, strict=True):
        every = np.concatenate([t[keys == key], [x for k, x in zip(*moments, strict=True) if k == key]])
        quiet = np.setdiff1d(t[keys == key], [x for k, x in zip(*moments, strict=True) if k == key])
        before, after = quiet[quiet < time], quiet[quiet > time]
        zones.append((key, before.max(initial=every.min()), after.min(initial=every.max())))
    old = result.old
    for key, begin, end in zip(
        old.column("k").to_pylist(),
        (old.ref + old.lo * 1e6).tolist(),
        (old.ref + old.hi * 1e6).tolist(),
        strict=True,
    ):
        assert any(key == k and begin <= b + 1 and end >= a - 1 for k, a, b in zones), (
            key,
            begin,
            end,
            zones,
        )


def test_a_correction_within_the_bound_is_absorbed() -> None:
    """Nothing goes, nothing comes, and it is counted; the next one is measured against the truth as it was corrected."""
    spec = FitSpec.of(stream(x="linear"), error="0.5")
    tuples = in_order(pa.table({"t": times([0, 1, 2, 3, 4]), "k": ["a"] * 5, "x": [0.0, 1.0, 2.0, 3.0, 4.3]}))
    segments = model_of(tuples, spec)
    one = revisions_of([row("-U", 2, 2.0), row("+U", 2, 2.05)], spec)
    result = refit(spec, tuples, segments, one)
    assert (len(result.old), len(result.new)) == (0, 0)
    assert result.absorbed.tolist() == [True]
    assert (result.counts.absorbed, result.counts.refitted, result.counts.replaced) == (1, 0, 1)
    corrected = correct(tuples, one).tuples
    assert not wrong(corrected, segments, spec)
    far = refit(spec, corrected, segments, revisions_of([row("-U", 2, 2.05), row("+U", 2, 20.0)], spec))
    assert far.counts.refitted == 1
    assert len(far.old) == 1
    assert len(far.new) > 1


def test_a_patch_leaves_the_rest_of_the_integrals_as_they_are() -> None:
    """With a bound on the drift the model moves by what the truth moved by, and only there."""
    spec = FitSpec.of(stream(x="step"), drift="0.5", degree=0)
    tuples = in_order(pa.table({"t": times([0, 1, 2, 3, 4]), "k": ["a"] * 5, "x": [1.0, 1.1, 0.9, 1.0, 1.0]}))
    segments = model_of(tuples, spec)
    result = refit(spec, tuples, segments, revisions_of([row("-U", 2, 0.9), row("+U", 2, 7.0)], spec))
    assert (result.counts.patched, len(result.old), len(result.new)) == (1, 1, 3)
    left, middle, right = result.new.coefficients("x")[:, 0]
    assert left == right == segments.coefficients("x")[0, 0]
    assert np.isclose(middle - left, 7.0 - 0.9)
    assert (result.new.drift("x") <= segments.drift("x")[0] * (1 + 1e-12)).all()


@given(st.data())
def test_the_order_of_revisions_of_different_tuples_makes_no_difference_to_the_truth(
    data: st.DataObject,
) -> None:
    """Semantics 7.7: any order leads to the same corrected tuples, and to models of them."""
    spec = data.draw(revisable())
    tuples = in_order(data.draw(small_streams(late=False, holes=False, keep=False)))
    live = as_rows(tuples, spec)
    picked = data.draw(st.lists(st.sampled_from(range(len(live))), unique=True, max_size=6)) if live else []
    rows = []
    for place, i in enumerate(picked):
        if sum(live[i] == other for other in live) > 1:
            continue  # of several equal ones the last goes, whichever was meant
        new = dict(live[i], x=live[i]["x"] + 0.3 * place)
        rows.append(
            [dict(live[i], kind="-D")] if place % 2 else [dict(live[i], kind="-U"), dict(new, kind="+U")]
        )
    shuffled = data.draw(st.permutations(rows))
    models = []
    for order in (rows, shuffled):
        revisions = revisions_of([r for element in order for r in element], spec)
        result = refit(spec, tuples, model := model_of(tuples, spec), revisions)
        after = correct(tuples, revisions).tuples
        models.append(after)
        found = wrong(after, revised(model, result), spec, asked=not result.counts.missed)
        assert not found, found
    assert models[0].equals(models[1])


@given(st.data())
def test_a_later_fit_goes_on_from_a_revised_end(data: st.DataObject) -> None:
    """New tuples after a revision, stitched to the ends that it returned, make a model of all of them."""
    spec = data.draw(revisable())
    tuples = in_order(data.draw(small_streams(late=False, holes=False)))
    fitted, _ = fit_units([tuples], spec)
    if not len(fitted.segments):
        return
    model = without_drift(fitted.segments, spec)
    revisions = revisions_of(data.draw(loads(tuples, spec, most=4)), spec)
    result = refit(spec, tuples, model, revisions, ends=fitted.ends)
    after, model = correct(tuples, revisions).tuples, revised(model, result)
    assert result.ends is not None
    assert result.ended is not None
    gone = {*result.ends.column("k").to_pylist(), *result.ended.column("k").to_pylist()}
    kept = fitted.ends.filter(
        pa.array([k not in gone for k in fitted.ends.column("k").to_pylist()], pa.bool_())
    )
    ends = pa.concat_tables([kept, result.ends.cast(kept.schema)])
    newest = dict(
        zip(after.column("k").to_pylist(), after.column("t").cast(pa.int64()).to_pylist(), strict=True)
    )
    assert (
        dict(zip(ends.column("k").to_pylist(), ends.column("ref").cast(pa.int64()).to_pylist(), strict=True))
        == newest
    )
    more = [
        {
            "k": k,
            "t": t + data.draw(st.sampled_from([0, SECOND, 20 * SECOND])),
            "u": "p",
            "x": data.draw(st.sampled_from([1.0, 5.0])),
            "y": 1.0,
        }
        for k, t in newest.items()
    ]
    more += [dict(one, t=one["t"] + SECOND, x=2.0) for one in more]
    extra = (
        pa.Table.from_pylist(
            more, after.schema.set(after.schema.get_field_index("t"), pa.field("t", pa.int64()))
        )
        if more
        else after.slice(0, 0)
    )
    extra = in_order(
        extra.set_column(extra.schema.get_field_index("t"), "t", extra.column("t").cast(pa.timestamp("us")))
    )
    closing = model.filter(
        model.is_point
        & np.array(
            [
                newest.get(k) == t
                for k, t in zip(model.column("k").to_pylist(), model.ref.tolist(), strict=True)
            ],
            dtype=bool,
        )
    )
    parts = [
        part_table(closing, -1, SEGMENTS),
        ends.append_column("_unit", pa.repeat(pa.scalar(-1, pa.int64()), ends.num_rows)),
    ]
    found, fitter = fit_chunks([extra], spec)
    parts += [
        part_table(batch, 0, part) for batch, part in [(found, SEGMENTS), *fitter.ends.parts()] if len(batch)
    ]
    stitched = stitch(pa.concat_tables([p.select(parts[0].column_names) for p in parts]), spec)
    assert isinstance(stitched, Stitched)
    rest = model.filter(np.array([one not in set(rows_of(closing)) for one in rows_of(model)], dtype=bool))
    whole = SegmentBatch.concat([rest, without_drift(stitched.segments, spec)])
    everything = in_order(pa.concat_tables([after, extra.select(after.column_names)]))
    bad = wrong(everything, whole, spec, asked=False)
    assert not bad, bad


def times(seconds: list[float]) -> pa.Array:
    """Seconds after the epoch of the tests."""
    return pa.array([EPOCH + round(s * SECOND) for s in seconds]).cast(pa.timestamp("us"))


def row(kind: str, second: float, x: float, k: str = "a") -> dict[str, object]:
    """A row of revisions."""
    return {"kind": kind, "k": k, "t": EPOCH + round(second * SECOND), "x": x}

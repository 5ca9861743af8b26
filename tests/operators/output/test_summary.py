"""Figures of answers: segments against exact integrals and dense looks, samples against loops, parts against the whole."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.certainty import CERTAIN, LIKELY
from pulse.operators.output.sampling import sample
from pulse.operators.output.summary import (
    Figures,
    Summary,
    from_rows,
    merged,
    of_samples,
    of_segments,
    schema,
    to_batch,
)
from tests.strategies import relations

any_relation = relations(codes=(1, 2, 3))


def brute(relation):
    """Ranges, seconds, certain seconds and integrals, in fractions, one row after the other."""
    ranges, seconds, certain, integral = 0, Fraction(), Fraction(), {"x": Fraction(), "y": Fraction()}
    end = None
    for i in np.flatnonzero(relation.certainty >= LIKELY):
        lo, hi = Fraction(relation.lo[i]), Fraction(relation.hi[i])
        start = Fraction(int(relation.ref[i]), 10**6) + lo
        if end is None or end[0] != relation.group[i] or start - end[1] > Fraction(1, 10**6):
            ranges += 1
        end = relation.group[i], start + hi - lo
        seconds += hi - lo
        certain += (hi - lo) * int(relation.certainty[i] == CERTAIN)
        for name in integral:
            for k, c in enumerate(relation.models[name][i]):
                integral[name] += Fraction(c) * (hi ** (k + 1) - lo ** (k + 1)) / (k + 1)
    return ranges, seconds, certain, integral


@given(any_relation)
def test_of_segments(relation):
    found = of_segments(relation)
    ranges, seconds, certain, integral = brute(relation)
    assert found.ranges == ranges
    assert (found.seconds, found.certain) == (float(seconds), float(certain))
    for name, one in found.attributes.items():
        rows = np.flatnonzero(relation.certainty >= LIKELY)
        values = [
            np.polynomial.polynomial.polyval(
                np.linspace(relation.lo[i], relation.hi[i], 40), relation.models[name][i]
            )
            for i in rows
        ]
        size = max((float(np.abs(v).max()) for v in values), default=0.0)
        far = max((abs(float(relation.lo[i])) for i in rows), default=0.0)
        slack = 1e-6 * (1 + size) if far < 1e6 else 1e-3 * (1 + size)
        assert one.integral == pytest.approx(float(integral[name]), abs=slack * (1 + float(seconds)))
        if values:
            assert one.smallest <= min(v.min() for v in values) + slack
            assert one.largest >= max(v.max() for v in values) - slack
            assert one.smallest >= min(v.min() for v in values) - 0.02 * (1 + size) - slack
            assert one.largest <= max(v.max() for v in values) + 0.02 * (1 + size) + slack
        else:
            assert one == Figures()


@given(relations(codes=(1, 2, 3), points=False), st.sampled_from([250_000, 1_000_000]))
def test_of_samples(relation, every):
    samples = sample(relation, every)
    found = of_samples(samples)
    held = samples.certainty >= LIKELY
    assert found.seconds == held.sum() * every / 1e6
    assert found.certain == (samples.certainty == CERTAIN).sum() * every / 1e6
    runs = 0
    for s in range(len(samples.offsets) - 1):
        marks = held[samples.offsets[s] : samples.offsets[s + 1]].astype(int)
        runs += int((np.diff(marks, prepend=0) == 1).sum())
    assert found.ranges == runs
    for name, one in found.attributes.items():
        values = samples.values[name][held]
        assert one.integral == pytest.approx(values.sum() * every / 1e6, rel=1e-9, abs=1e-6)
        if len(values):
            assert (one.smallest, one.largest) == (values.min(), values.max())


@given(any_relation, st.data())
def test_groups_of_different_workers_add_up(relation, data):
    place = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=relation.groups, max_size=relation.groups)), int
    )
    parts = [of_segments(relation.select_groups(np.flatnonzero(place == i))) for i in range(3)]
    rows = [row for part in parts for row in to_batch(part, ("x", "y")).to_pylist()]
    for together in (merged(parts), from_rows(rows, ("x", "y"))):
        whole = of_segments(relation)
        assert (together.ranges, together.attributes.keys()) == (whole.ranges, whole.attributes.keys())
        assert together.seconds == pytest.approx(whole.seconds)
        assert together.certain == pytest.approx(whole.certain)
        for name, one in whole.attributes.items():
            assert together.attributes[name].integral == pytest.approx(one.integral, rel=1e-9, abs=1e-6)
            assert together.attributes[name].smallest == one.smallest
            assert together.attributes[name].largest == one.largest


def test_of_nothing():
    assert merged([]) == from_rows([], ("x",)) == Summary()
    batch = to_batch(Summary(attributes={"x": Figures()}), ("x",))
    assert batch.schema == schema(("x",))
    assert batch.to_pylist() == [
        {
            "ranges": 0,
            "seconds": 0.0,
            "certain": 0.0,
            "x_integral": 0.0,
            "x_smallest": np.inf,
            "x_largest": -np.inf,
        }
    ]

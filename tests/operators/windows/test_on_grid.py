from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError, OperatorError
from pulse.operators.windows.extremum import Extremum
from pulse.operators.windows.integral import Integral
from tests import naive
from tests.operators.sampling import SECOND, relation

OUT = Columns((("id", pa.string()),), ("w",))


@st.composite
def groups(draw):
    """Lines on whole seconds, with holes and points; whole numbers make ties likely."""
    found = {}
    for key in draw(st.lists(st.sampled_from("abc"), max_size=2, unique=True)):
        at, rows = draw(st.integers(-5, 5)), []
        for hole, length in draw(
            st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 300]), st.integers(0, 3)), max_size=6)
        ):
            at += hole
            if length == 0 and rows and rows[-1][1] == at == rows[-1][0]:
                continue
            c = [float(draw(st.integers(-3, 3))) for _ in range(2)]
            rows.append((at, at + length, c, draw(st.integers(0, 4)) / 4, draw(st.integers(1, 3))))
            at += length
        found[key] = rows
    return found


def integral_samples(relation, function, size, every):
    made = Integral(function, "x", "w", size).samples(relation, every)
    assert made.columns == OUT
    return made


def extremum_samples(relation, function, size, every):
    made = Extremum(function, "x", "w", size).samples(relation, every)
    assert made.columns == OUT
    return made


def closing_times(rows, size, every):
    """Whole seconds at which windows over rows without a hole close."""
    runs = []
    for begin, end, *_ in rows:
        if begin < end:
            if runs and runs[-1][1] == begin:
                runs[-1][1] = end
            else:
                runs.append([begin, end])
    return [t for begin, end in runs for t in range(begin + size, end + 1) if t % every == 0]


def by_key_and_time(made):
    keys = made.keys[0].to_pylist()
    kept = np.flatnonzero(made.certainty)
    return {(keys[made.of_group[i]], int(made.times[i]) // SECOND): int(i) for i in kept}


@given(groups(), st.integers(1, 5), st.integers(1, 3), st.sampled_from(["min", "max"]))
def test_extrema_equal_those_of_dense_samples(found, size, every, function):
    made = extremum_samples(relation(found), function, size * SECOND, every * SECOND)
    mine = by_key_and_time(made)
    assert set(mine) == {(key, t) for key, rows in found.items() for t in closing_times(rows, size, every)}
    best = min if function == "min" else max
    for (key, t), i in mine.items():
        values, errs, codes = [], [], []
        for begin, end, c, err, code in found[key]:
            a, b = max(begin, t - size), min(end, t)
            if a < b or (begin == end and t - size <= begin < t):
                values += [c[0] + c[1] * (u - begin) for u in (a, b)]
                errs.append(err)
                codes.append(code)
        assert made.values["w"][i] == best(values)
        assert made.err["w"][i] == max(errs)
        assert made.certainty[i] == min(codes)


@given(groups(), st.integers(1, 5), st.integers(1, 3), st.sampled_from(["sum", "avg"]))
def test_averages_and_sums_equal_exact_integrals(found, size, every, function):
    made = integral_samples(relation(found), function, size * SECOND, every * SECOND)
    mine = by_key_and_time(made)
    assert set(mine) == {(key, t) for key, rows in found.items() for t in closing_times(rows, size, every)}
    for (key, t), i in mine.items():
        pieces = [(begin * SECOND, 0.0, float(end - begin), c) for begin, end, c, *_ in found[key]]
        bounds = [(begin * SECOND, 0.0, float(end - begin), [err]) for begin, end, _, err, _ in found[key]]
        scale = size if function == "avg" else 1
        exact, bound = (
            naive.window_integral(x, Fraction(t), Fraction(size)) / scale for x in (pieces, bounds)
        )
        assert made.values["w"][i] == pytest.approx(float(exact), abs=1e-12)
        assert float(bound) <= made.err["w"][i] <= float(bound) + 1e-12
        touched = [row[4] for row in found[key] if row[0] < t and row[1] > t - size and row[0] < row[1]]
        assert made.certainty[i] == min(touched)


@given(groups(), st.lists(st.integers(1, 6), max_size=4), st.integers(1, 3))
def test_windows_of_several_sizes_are_those_of_each(found, sizes, every):
    windows = [Integral("avg", "x", f"w{i}", size * SECOND) for i, size in enumerate(sizes)]
    first = Integral("avg", "x", "w", SECOND)
    made = first.samples_together(relation(found), windows, every * SECOND)
    assert len(made) == len(sizes)
    for one, window in zip(made, windows, strict=True):
        name, alone = window.output, window.samples(relation(found), every * SECOND)
        assert one.columns == Columns(OUT.key, (name,))
        # Larger windows have the places of the smallest, absent until they are full.
        there = one.certainty > 0
        assert one.times[there].tolist() == alone.times.tolist()
        assert one.certainty[there].tolist() == alone.certainty.tolist()
        assert one.values[name][there].tolist() == alone.values[name].tolist()
        assert one.err[name][there].tolist() == alone.err[name].tolist()


def test_the_drift_bounds_an_average_better_than_the_error_does():
    rows = {"a": [(0, 4, [1.0], 1.0, 3), (4, 8, [1.0], 1.0, 3)]}
    made = integral_samples(relation(rows, drift=[0.1, 0.2]), "avg", 4 * SECOND, 2 * SECOND)
    np.testing.assert_allclose(made.err["w"], [0.05, 0.075, 0.075], rtol=1e-6)
    made = integral_samples(relation(rows, drift=[0.1, np.inf]), "sum", 2 * SECOND, 2 * SECOND)
    np.testing.assert_allclose(made.err["w"], [0.2, 0.2, 2.0, 2.0], rtol=1e-6)


def test_rows_marked_as_absent_are_holes():
    rows = {"a": [(0, 4, [1.0], 0.0, 3), (4, 5, [1.0], 0.0, 0), (5, 9, [2.0], 0.0, 3)]}
    for windows, function in ((integral_samples, "avg"), (extremum_samples, "min")):
        made = windows(relation(rows), function, 3 * SECOND, SECOND)
        assert sorted(t for _, t in by_key_and_time(made)) == [3, 4, 8, 9]


@pytest.mark.parametrize(("windows", "function"), [(integral_samples, "avg"), (extremum_samples, "max")])
def test_nothing_in_nothing_out(windows, function):
    columns = Columns((("id", pa.string()),), ("x",))
    made = windows(Relation.empty(columns), function, SECOND, SECOND)
    assert len(made) == 0
    assert made.offsets.tolist() == [0]
    made = windows(relation({"a": [(0, 4, [1.0], 0.0, 3)]}), function, 5 * SECOND, SECOND)
    assert len(made) == 0
    assert made.values["w"].tolist() == []


def test_errors_say_where():
    rows = {"a": [(0, 4, [1.0], 0.0, 3), (4, 9, [1e308], 0.0, 3)]}
    with pytest.raises(DomainError, match=r"sum\(x\) over 2 s: not finite for id='a' at 1970-01-01T00:00:06"):
        integral_samples(relation(rows), "sum", 2 * SECOND, SECOND)
    with pytest.raises(OperatorError, match="expected one of sum, avg, got 'min'"):
        integral_samples(relation(rows), "min", SECOND, SECOND)
    with pytest.raises(OperatorError, match="expected one of min, max, got 'avg'"):
        extremum_samples(relation(rows), "avg", SECOND, SECOND)

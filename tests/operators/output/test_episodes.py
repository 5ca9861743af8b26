"""Episodes: against stretches, integrals and extrema in fractions, row after row, and against truths within the bounds."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.certainty import CERTAIN, LIKELY, NAMES, POSSIBLE, UNBOUNDED
from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.output.episodes import STATISTICS, EpisodeError, schema, to_episodes
from tests.strategies import relations

any_relation = relations(codes=(1, 2, 3), max_rows=6)
SELECT = ("k", "n", "x", "y", "u")


def instant(relation, row, which):
    """A row's start or end, in seconds since the epoch, exactly."""
    return Fraction(int(relation.ref[row]), 10**6) + Fraction(float(getattr(relation, which)[row]))


def stretches(relation, rows):
    """Rows in lists, a list for each maximal stretch of rows that touch."""
    found: list[list[int]] = []
    for row in rows:
        last = found[-1][-1] if found else None
        if last is not None and relation.group[last] == relation.group[row]:
            gap = instant(relation, row, "lo") - instant(relation, last, "hi")
            if gap <= Fraction(2, 10**9):  # rows lie on whole seconds
                found[-1].append(row)
                continue
        found.append([row])
    return found


def exact(c, t):
    return sum((Fraction(float(v)) * t**i for i, v in enumerate(c)), Fraction())


def figures(relation, rows, name):
    """Exact values at both ends, extremes of (few) critical points, and the mean; with the extremes of bounds."""
    c, err = relation.models[name], relation.err[name]
    lows, highs, total, seconds = [], [], Fraction(), Fraction()
    for row in rows:
        lo, hi = Fraction(float(relation.lo[row])), Fraction(float(relation.hi[row]))
        at = [lo, hi]
        if len(c[row]) == 3 and c[row][2]:
            top = -Fraction(float(c[row][1])) / (2 * Fraction(float(c[row][2])))
            at += [top] if lo < top < hi else []
        values = [exact(c[row], t) for t in at]
        lows.append((min(values), Fraction(float(err[row]))))
        highs.append((max(values), Fraction(float(err[row]))))
        total += sum(
            (Fraction(float(v)) * (hi ** (i + 1) - lo ** (i + 1)) / (i + 1) for i, v in enumerate(c[row])),
            Fraction(),
        )
        seconds += hi - lo
    first, last = rows[0], rows[-1]
    end = exact(c[last], Fraction(float(relation.hi[last])))
    return {
        "start": (exact(c[first], Fraction(float(relation.lo[first]))), float(err[first])),
        "end": (end, float(err[last])),
        "min": (min(v for v, _ in lows), float(min(v for v, _ in lows) - min(v - e for v, e in lows))),
        "max": (max(v for v, _ in highs), float(max(v + e for v, e in highs) - max(v for v, _ in highs))),
        "mean": (total / seconds if seconds else end, None),
    }


@given(any_relation, st.booleans())
def test_episodes_are_the_maximal_stretches(relation, possible):
    found = to_episodes(relation, SELECT, possible=possible)
    assert found.schema == schema(relation.columns, SELECT)
    shown = np.flatnonzero(relation.certainty >= (POSSIBLE if possible else LIKELY))
    wanted = stretches(relation, shown)
    wide = stretches(relation, range(len(relation)))
    assert found.num_rows == len(wanted)
    for row, rows in zip(found.to_pylist(), wanted, strict=True):
        group = int(relation.group[rows[0]])
        assert (row["k"], row["n"]) == tuple(column[group].as_py() for column in relation.keys)
        assert row["u"] == relation.unmodelled["u"][rows[0]].as_py()
        start, end = instant(relation, rows[0], "lo"), instant(relation, rows[-1], "hi")
        around = next(one for one in wide if rows[0] in one)
        cores = stretches(relation, [one for one in rows if relation.certainty[one] == CERTAIN])
        assert seconds(row["start"]) == start
        assert seconds(row["end"]) == end
        assert row["duration"] == float(end - start)
        assert row["certainty"] == NAMES[min(relation.certainty[rows])]
        assert seconds(row["start_earliest"]) == instant(relation, around[0], "lo")
        assert seconds(row["end_latest"]) == instant(relation, around[-1], "hi")
        assert row["cores"] == len(cores)
        if cores:
            assert seconds(row["start_latest"]) == instant(relation, cores[0][0], "lo")
            assert seconds(row["end_earliest"]) == instant(relation, cores[-1][-1], "hi")
        else:
            assert (row["start_latest"], row["end_earliest"]) == (None, None)


def seconds(moment):
    return Fraction((moment - datetime(1970, 1, 1)) // timedelta(microseconds=1), 10**6)


@given(any_relation)
def test_figures_are_those_of_the_model(relation):
    found = to_episodes(relation, SELECT, possible=False)
    wanted = stretches(relation, np.flatnonzero(relation.certainty >= LIKELY))
    for row, rows in zip(found.to_pylist(), wanted, strict=True):
        for name in ("x", "y"):
            size = max(1.0, *(float(np.abs(relation.models[name][one]).max()) for one in rows))
            far = max(1.0, *(float(abs(relation.lo[one])) for one in rows))
            rounding = 1e-13 * size * far**2 if far < 1e6 else 1e-12 * size * far
            for what, (value, bound) in figures(relation, rows, name).items():
                assert abs(Fraction(row[f"{name}_{what}"]) - value) <= rounding, what
                if bound is not None:
                    assert bound * (1 - 1e-12) <= row[f"{name}_{what}_err"] <= bound + rounding + 1e-12, what


@given(any_relation, st.randoms(use_true_random=False))
def test_every_truth_within_the_bounds_keeps_to_the_figures(relation, random):
    """A truth that leaves the model by a constant share of the bound in each row, drifts included."""
    off = np.array([random.choice([-1, -0.5, 0, 1]) for _ in range(len(relation))])
    truth = {
        name: np.column_stack([c[:, 0] + off * relation.err[name], c[:, 1:]])
        for name, c in relation.models.items()
    }
    moved = replace(relation, models=truth)
    found = to_episodes(relation, SELECT, possible=False).to_pylist()
    wanted = stretches(relation, np.flatnonzero(relation.certainty >= LIKELY))
    for row, rows in zip(found, wanted, strict=True):
        for name in ("x", "y"):
            size = max(1.0, *(float(np.abs(relation.models[name][one]).max()) for one in rows))
            for what, (value, _) in figures(moved, rows, name).items():
                # The shift of the truth itself is rounded once, in floats of this size.
                off_by = abs(Fraction(row[f"{name}_{what}"]) - value) - Fraction(2.0**-52 * size)
                assert off_by <= Fraction(row[f"{name}_{what}_err"]), what


@given(any_relation, st.randoms(use_true_random=False))
def test_the_truth_reaches_its_extremes_within_their_instants(relation, random):
    off = np.array([random.choice([-1, -0.5, 0, 1]) for _ in range(len(relation))])
    found = to_episodes(relation, SELECT, possible=False).to_pylist()
    wanted = stretches(relation, np.flatnonzero(relation.certainty >= LIKELY))
    for row, rows in zip(found, wanted, strict=True):
        for name in ("x", "y"):
            size = max(1.0, *(float(np.abs(relation.models[name][one]).max()) for one in rows))
            for what, sign in (("min", 1), ("max", -1)):
                model, truth = [], []
                for one in rows:
                    c, lo, hi = (
                        relation.models[name][one],
                        *(Fraction(float(v[one])) for v in (relation.lo, relation.hi)),
                    )
                    at = {lo, hi, *(lo + (hi - lo) * j / 8 for j in range(9))}
                    top = -Fraction(float(c[1])) / (2 * Fraction(float(c[2]))) if c[2] else lo
                    at |= {top} if lo < top < hi else set()
                    base = Fraction(int(relation.ref[one]), 10**6)
                    shift = Fraction(float(off[one])) * Fraction(float(relation.err[name][one]))
                    model += [(sign * exact(c, t), base + t) for t in at]
                    truth += [(sign * (exact(c, t) + shift), base + t) for t in at]
                assert (
                    row[f"{name}_{what}_earliest"] <= row[f"{name}_{what}_at"] <= row[f"{name}_{what}_latest"]
                )
                reached = seconds(row[f"{name}_{what}_at"])
                near = min(
                    abs(t - reached) for value, t in model if value <= min(model)[0] + Fraction(1e-12 * size)
                )
                assert near <= Fraction(1, 10**6)
                first, last = (seconds(row[f"{name}_{what}_{one}"]) for one in ("earliest", "latest"))
                assert all(first <= t <= last for value, t in truth if value == min(truth)[0])


def test_an_instant_is_sharp_where_the_bound_is_small():
    relation = one_key([(0, 0.0, 10.0, [25.0, -10.0, 1.0], 0.01, CERTAIN)])  # (t - 5)^2
    (row,) = to_episodes(relation, ("k", "x"), possible=False).to_pylist()
    assert seconds(row["x_min_at"]) == 5
    assert abs(seconds(row["x_min_earliest"]) - 5 + Fraction(0.02**0.5)) < Fraction(1, 10**5)
    assert abs(seconds(row["x_min_latest"]) - 5 - Fraction(0.02**0.5)) < Fraction(1, 10**5)
    assert (seconds(row["x_max_at"]), seconds(row["x_max_earliest"]), seconds(row["x_max_latest"])) == (
        0,
        0,
        10,
    )


@given(any_relation, st.data())
def test_groups_may_be_split_among_workers(relation, data):
    place = np.array(
        data.draw(st.lists(st.integers(0, 1), min_size=relation.groups, max_size=relation.groups)), int
    )
    whole = to_episodes(relation, SELECT, possible=True).to_pylist()
    parts = [
        to_episodes(relation.select_groups(np.flatnonzero(place == i)), SELECT, possible=True).to_pylist()
        for i in range(2)
    ]
    assert sorted(parts[0] + parts[1], key=repr) == sorted(whole, key=repr)


def one_key(rows, modelled=("x",), drift=None):
    """Rows of one key: ref (seconds), lo, hi, coefficients, bound, certainty."""
    n = len(rows)
    return Relation(
        columns=Columns((("k", pa.string()),), modelled),
        keys=(pa.array(["a"]),),
        offsets=np.array([0, n]),
        ref=np.array([int(r[0] * 10**6) for r in rows], np.int64),
        lo=np.array([r[1] for r in rows], float),
        hi=np.array([r[2] for r in rows], float),
        models={"x": np.array([r[3] for r in rows], float).reshape(n, -1)},
        err={"x": np.array([r[4] for r in rows], float)},
        drift={} if drift is None else {"x": np.array(drift, float)},
        certainty=np.array([r[5] for r in rows], np.uint8),
    )


def test_slivers_and_rounded_ends_touch():
    third = 1 / 3
    relation = one_key(
        [
            (1.6e9, 0.0, third, [1.0], 0.1, CERTAIN),
            (1.6e9 + 1, third - 1, third - 1 + 1e-12, [1.0], 0.1, CERTAIN),
            (1.6e9, third + 2e-12, 1.0, [2.0], 0.2, CERTAIN),
            (1.6e9, 1.0, 1.0, [9.0], 0.0, CERTAIN),
            (1.6e9, 1.00001, 2.0, [2.0], 0.2, CERTAIN),
        ]
    )
    first, second = to_episodes(relation, ("k", "x"), possible=False).to_pylist()
    assert (first["duration"], second["duration"]) == (1.0, pytest.approx(0.99999))
    assert (first["x_max"], first["x_max_err"], first["x_end"]) == (9.0, 0.0, 9.0)
    assert first["x_mean"] == pytest.approx((third + 2 * (1 - third)), rel=1e-12)
    assert first["cores"] == 1


def test_instants_are_rounded_outwards():
    relation = one_key(
        [(0, 0.1 + 1e-7, 0.7 + 1e-7, [1.0], 0.1, LIKELY), (0, 0.7 + 1e-7, 0.9, [1.0], 0.1, CERTAIN)]
    )
    (row,) = to_episodes(relation, ("k", "x"), possible=False).to_pylist()
    micro = {name: row[name].microsecond for name in row if name.startswith(("start", "end"))}
    assert (micro["start_earliest"], micro["start"], micro["start_latest"]) == (100_000, 100_000, 700_001)
    assert (micro["end_earliest"], micro["end"], micro["end_latest"]) == (900_000, 900_000, 900_000)


def test_a_drift_bounds_the_mean():
    rows = [(0, 0.0, 5.0, [1.0], 0.5, CERTAIN), (0, 5.0, 10.0, [1.0], 0.5, CERTAIN)]
    loose, tight = (
        to_episodes(one_key(rows, drift=drift), ("k", "x"), possible=False).to_pylist()[0]
        for drift in (None, [0.1, 0.3])
    )
    assert loose["x_mean_err"] == pytest.approx(0.5)
    assert tight["x_mean_err"] == pytest.approx(0.04)
    assert to_episodes(one_key(rows, drift=[np.inf, 0.3]), ("k", "x"), possible=False).to_pylist() == [loose]


def test_of_nothing():
    empty = Relation.empty(Columns((("k", pa.string()),), ("x",)))
    assert to_episodes(empty, ("k", "x"), possible=False).num_rows == 0
    none_shown = one_key([(0, 0.0, 1.0, [1.0], 0.1, POSSIBLE)])
    assert to_episodes(none_shown, ("k", "x"), possible=False).num_rows == 0


def test_a_value_without_a_bound_leaves_figures_without_one():
    relation = one_key([(0, 0.0, 1.0, [2.0], 0.1, LIKELY), (0, 1.0, 2.0, [1.0], UNBOUNDED, LIKELY)])
    (row,) = to_episodes(relation, ("k", "x"), possible=False).to_pylist()
    assert row["x_start_err"] == 0.1
    assert min(row[f"x_{what}_err"] for what in STATISTICS if what != "start") >= UNBOUNDED / 2
    assert (seconds(row["x_max_at"]), seconds(row["x_max_latest"])) == (0, 2)


def test_names_that_collide_are_refused():
    columns = Columns((("k", pa.string()),), ("x", "duration_x"), (("start", pa.string()),))
    with pytest.raises(EpisodeError, match=r"two columns would be called 'start'.*AS"):
        schema(columns, ("k", "x", "start"))
    with pytest.raises(EpisodeError, match=r"'x_min'"):
        schema(replace(columns, unmodelled=(("x_min", pa.string()),)), ("k", "x", "x_min"))

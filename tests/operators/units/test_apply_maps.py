"""Alter on segments, samples and tuples against the accents themselves, applied row by row in fractions."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.schema import StreamSchema
from pulse.operators.output.sampling import sample, to_tuples
from pulse.operators.units.apply_maps import Alter
from pulse.stream.accents.accents import Accent, AlterData
from pulse.stream.descriptions.description import Description
from pulse.stream.units.affine import Affine
from pulse.stream.units.step_maps import Alteration, Steps
from tests.operators import contract
from tests.oracles.rows import altered as row_altered
from tests.strategies import EPOCH_US, relations

SECOND = 1_000_000

# Exact in doubles, so that nothing but the meaning is compared.
maps = st.builds(Affine, st.sampled_from([2, 4, "1/2", "1/4", 1]), st.sampled_from([0, 0, 1, -3, "1/2"]))
# No doubles, offsets beside which a value is nothing, and such as a value cancels with.
rounding = st.sampled_from(
    ["(y - 32) * 5/9", "y * 9/5 + 32", "y / 3", "y * 7/10 + 1e9", "y + 0.1", "y - 1e15", "y * 1e-9", "y * 1e12 / 7", "y / 4"]
).map(Affine.parse)  # fmt: skip
instants = st.integers(-1, 14).map(lambda half: EPOCH_US + half * SECOND // 2)
texts = st.sampled_from(
    ["true", "k = 'a'", "k != 'b'", "k in ('a', 'c', 'z')", "n = 1", "n > 0 and k = 'a'", "n >= 1/2",
     "n != 2 or k = 'b'", "u = 1", "u is null", "u > 1 and k != 'c'", "not (u = 1)"]
)  # fmt: skip


@st.composite
def descriptions(draw):
    """Of keys, an unmodelled attribute and, often enough, the time."""
    found = Description.parse(draw(texts))
    if draw(st.booleans()):
        since, until = sorted((draw(instants), draw(instants)))
        side = draw(st.sampled_from([f"t >= {since}", f"t < {until}", f"t > {since} and t <= {until}"]))
        found = found & Description.parse(side)
    return found


logs = st.lists(st.builds(Alteration, instants, descriptions(), maps), max_size=5)
rounded_logs = st.lists(st.builds(Alteration, instants, descriptions(), rounding), max_size=4)


def altered(log, row, value, at):
    """A value after all accents before or at an instant."""
    here = {**row, "t": at, "x": value}
    for one in sorted(log, key=lambda one: one.at):
        if at >= one.at:
            here = row_altered(Accent.of(one.description, AlterData("x", one.effect)), here)
    return Fraction(here["x"])


def instants_of(relation, row):
    """Exact instants in a row, in microseconds, whole and half seconds among them; not the end of a range."""
    ref, lo, hi = int(relation.ref[row]), relation.lo[row], relation.hi[row]
    begin, end = ref + round(lo * 1e6), ref + round(hi * 1e6)
    if begin == end:
        return [begin]
    return [begin, begin + 1, *range(begin + SECOND // 2, end, SECOND // 2), end - 1]


def row_at(relation, group, at, point):
    """The row of a group that speaks of an instant."""
    begin, end = (relation.ref + np.rint(x * 1e6).astype(np.int64) for x in (relation.lo, relation.hi))
    inside = (begin <= at) & ((at < end) | ((begin == end) & (at == begin)))
    rows = np.flatnonzero(inside & (relation.group == group) & (relation.is_point == point))
    assert len(rows) == 1
    return int(rows[0])


@given(relations(), logs | rounded_logs)
def test_segments_say_what_the_accents_make_of_every_value(relation, log):
    steps = Steps.of(log, time="t")
    out = Alter({"x": steps}).segments(relation)
    contract.check_valid(out, relation.columns)
    for row in range(len(relation)):
        for at in instants_of(relation, row):
            old = contract.row_values(relation, row, Fraction(at), {"x": Fraction(0), "y": Fraction(0)})
            mine = {name: old[name] for name in ("k", "n", "u")}
            expected = altered(log, mine, old["x"], at)
            there = row_at(out, int(relation.group[row]), at, bool(relation.is_point[row]))
            now = contract.row_values(out, there, Fraction(at), {"x": Fraction(0), "y": Fraction(0)})
            y, err = now["y"], Fraction(out.err["x"][there])
            assert y == old["y"]
            shift = altered(log, mine, 0, at)
            scale = altered(log, mine, 1, at) - shift
            before = scale * Fraction(relation.err["x"][row])
            # What is there beside the scaled bound is rounding, no less than was rounded: of the model itself, and as evaluated.
            assert abs(now["x"] - expected) <= err - before
            assert abs(Fraction(evaluated(out, there, at)) - expected) <= err - before + spare(
                relation, row, scale
            )
            assert err - before <= Fraction(1e-13) * (scale * size(relation, row) + abs(shift) + before)


def furthest(relation, name):
    """The largest sum of terms of a relation's rows, with room for the maps here."""
    far = np.maximum(np.abs(relation.lo), np.abs(relation.hi))
    sizes = sum(np.abs(c) * far**i for i, c in enumerate(relation.models[name].T)) + relation.err[name]
    return 4.0**5 * (sizes.max(initial=0.0) + 100.0)


def size(relation, row):
    """The sum of a row's terms, each as large as it gets."""
    far = Fraction(max(abs(relation.lo[row]), abs(relation.hi[row])))
    return sum(abs(Fraction(c)) * far**i for i, c in enumerate(relation.models["x"][row]))


def spare(relation, row, scale):
    """What evaluating a row may round, which its own bound is to have room for."""
    return (
        scale * size(relation, row) * Fraction(2) ** -49 if (relation.models["x"][row][1:] != 0).any() else 0
    )


def evaluated(relation, row, at):
    """A value as a user evaluates it: Horner's rule in doubles."""
    offset, value = (at - int(relation.ref[row])) / 1e6, 0.0
    for c in reversed(relation.models["x"][row].tolist()):
        value = value * offset + c
    return value


@given(relations(), logs)
def test_undone_it_is_what_it_was(relation, log):
    alter = Alter({"x": Steps.of(log, time="t")})
    back = alter.inverse().segments(alter.segments(relation))
    cut = Alter({"x": Steps.of([Alteration(one.at, one.description, Affine(1, 1)) for one in log], time="t")})
    shape = cut.segments(relation)
    assert len(back) >= len(relation)
    assert set(back.lo) >= set(relation.lo)
    assert len(shape) >= len(relation)
    row_of = np.searchsorted(
        [g * 10**18 + r for g, r in zip(relation.group, _starts(relation), strict=True)],
        [g * 10**18 + r for g, r in zip(back.group, _starts(back), strict=True)],
        "right",
    ) - 1  # fmt: skip
    assert np.allclose(back.models["x"], relation.models["x"][row_of], rtol=1e-12, atol=1e-9)
    assert (back.err["x"] >= relation.err["x"][row_of]).all()
    far = np.maximum(np.abs(relation.lo), np.abs(relation.hi))
    sizes = sum(np.abs(c) * far**i for i, c in enumerate(relation.models["x"].T)) + relation.err["x"] + 1000.0
    assert (back.err["x"] <= relation.err["x"][row_of] + 1e-13 * sizes[row_of]).all()
    assert (back.drift["x"] >= relation.drift["x"][row_of] - 1e-12).all()


def _starts(relation):
    point = relation.is_point.astype(int)  # a point may lie where a range starts; it stands first
    return (relation.ref - EPOCH_US) * 2 + np.rint(relation.lo * 2e6).astype(np.int64) + 1 - point


@given(relations(points=False), logs)
def test_samples_agree_with_segments(relation, log):
    alter = Alter({"x": Steps.of(log, time="t"), "y": Steps.of(log[:2], time="t")})
    after = sample(alter.segments(relation), SECOND // 2)
    before = alter.samples(sample(relation, SECOND // 2))
    assert np.array_equal(before.times, after.times)
    there = before.certainty > 0
    assert np.array_equal(there, after.certainty > 0)
    for name in ("x", "y"):
        assert np.allclose(before.values[name][there], after.values[name][there], rtol=1e-9, atol=1e-6)
        # A segment's bound is for all of it, and counts its terms: those about a far reference are large.
        assert (after.err[name][there] >= before.err[name][there] * (1 - 1e-12)).all()
        assert (after.err[name][there] <= before.err[name][there] + 1e-13 * furthest(relation, name)).all()


@given(relations(points=False), logs | rounded_logs)
def test_samples_and_tuples_have_room_for_rounding(relation, log):
    alter = Alter({"x": Steps.of(log, time="t")})
    plain = sample(relation, SECOND // 2)
    altered_samples, on_stretches = alter.samples(plain), alter.on_stretches(plain)
    there = np.flatnonzero(plain.certainty > 0)
    of_key = ["k", "n"]
    for i in there:
        group = int(plain.of_group[i])
        mine = {name: plain.keys[plain.columns.key_names.index(name)][group].as_py() for name in of_key}
        mine["u"] = plain.unmodelled["u"][int(i)].as_py()
        at = int(plain.times[i])
        value, shift = altered(log, mine, plain.values["x"][i], at), altered(log, mine, 0, at)
        scale = altered(log, mine, 1, at) - shift
        before = scale * Fraction(plain.err["x"][i])
        err = Fraction(altered_samples.err["x"][i])
        assert abs(Fraction(altered_samples.values["x"][i]) - value) <= err - before
        assert err - before <= Fraction(1e-13) * (
            scale * abs(Fraction(plain.values["x"][i])) + abs(shift) + before
        )
    if on_stretches is not None:
        table = to_tuples(plain, ("k", "n", "x"), possible=True, altered=on_stretches)
        assert table.column("x").to_pylist() == altered_samples.values["x"][there].tolist()
        assert table.column("x_err").to_pylist() == altered_samples.err["x"][there].tolist()


@given(logs, st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), instants), max_size=8))
def test_tuples_one_by_one(log, rows):
    rows = sorted(rows, key=lambda row: row[2])
    table = pa.table(
        {
            "k": pa.array([row[0] for row in rows], pa.string()),
            "n": pa.array([row[1] for row in rows], pa.int32()),
            "u": pa.array([1 if i % 3 else None for i in range(len(rows))], pa.int64()),
            "t": pa.array([row[2] for row in rows], pa.timestamp("us")),
            "x": pa.array([float(i) for i in range(len(rows))]),
        }
    )
    schema = StreamSchema.of(
        key={"k": "string", "n": "int32"}, time="t", modelled={"x": "step"}, unmodelled={"u": "int64"}
    )
    alter = Alter({"x": Steps.of(log, time="t")})
    coded = table.set_column(0, "k", table["k"].dictionary_encode())
    for given_ in (table, coded):
        for batch in given_.to_batches():
            out = alter.tuples(batch, schema)
            expected = [
                float(altered(log, {"k": k, "n": n, "u": 1 if i % 3 else None}, i, at))
                for i, (k, n, at) in enumerate(rows)
            ]
            assert out.column("x").to_pylist() == expected
            assert (
                alter.inverse().tuples(out, schema).column("x").to_pylist() == batch.column("x").to_pylist()
            )


def test_integers_and_nulls_of_tuples():
    steps = Steps.of([Alteration(5, Description.parse("true"), Affine.parse("y / 4"))], time="t")
    schema = StreamSchema.of(time="t", modelled={"x": "step"})
    batch = pa.record_batch(
        {"t": pa.array([4, 5, 6], pa.timestamp("ns")), "x": pa.array([3, 6, None], pa.int32())}
    )
    fine = batch.set_column(0, "t", pa.array([4000, 5000, 6000], pa.timestamp("ns")))
    assert Alter({"x": steps}).tuples(fine, schema).column("x").to_pylist() == [3.0, 1.5, None]


@given(relations(points=False, holes=False, bounds=(0.25, 1.0)), logs | rounded_logs)
def test_drift_bounds_the_integral_of_any_truth(relation, log):
    """The truth that lies at the bound everywhere has the largest integral of all; it is exact on the grid."""
    out = Alter({"x": Steps.of(log, time="t")}).segments(relation)
    for group in range(out.groups):
        total = 0.0
        for row in range(out.offsets[group], out.offsets[group + 1]):
            total += out.err["x"][row] * (out.hi[row] - out.lo[row])
            assert total <= out.drift["x"][row] * (1 + 1e-9) + 1e-6


def test_pickles_and_leaves_alone_what_it_does_not_concern():
    steps = Steps.of([Alteration(0, Description.parse("k = 'zzz'"), Affine(2))], time="t")
    alter = pickle.loads(pickle.dumps(Alter({"x": steps})))
    assert alter == Alter({"x": steps})
    assert not alter.is_empty
    assert Alter({"x": Steps.of([], time="t")}).is_empty


@given(relations())
def test_a_relation_that_is_not_concerned_comes_back_as_it_is(relation):
    steps = Steps.of([Alteration(0, Description.parse("k = 'zzz'"), Affine(2))], time="t")
    assert Alter({"x": steps}).segments(relation) is relation

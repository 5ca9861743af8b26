"""The validator: its contract on any tuples, however they are cut into batches, and what it does case by case."""

from __future__ import annotations

import itertools
import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import ColumnTypeError, UnknownColumnError
from pulse.core.expression import Arithmetic, Column, Constant, Elapsed
from pulse.core.schema import StreamSchema
from pulse.kernels.validate.validate import CHANGED, EXPIRED, EXTENDED, FIRST, REPAIR, VIOLATED
from pulse.operators.data.relation import Relation
from pulse.operators.fit.predictive_spec import PredictSpec, PredictSpecError
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.online.counts import ValidationCounts
from pulse.validation.online.validator import Pushed, Validator
from tests import naive
from tests.strategies import TupleStream, tuple_streams

EPOCH = 1_700_000_000_000_000
SECOND = 1_000_000
NAMES = ("x", "y")


def schema(*truths: str, **unmodelled: str) -> StreamSchema:
    return StreamSchema.of(
        key={"k": "string"}, time="t", modelled=dict(zip(NAMES, truths, strict=False)), unmodelled=unmodelled
    )


def tuples(t: Any, x: Any, *, k: Any = "a", **more: Any) -> pa.Table:
    """Tuples at ``t`` seconds after an epoch."""
    micro = [None if at is None else EPOCH + round(at * SECOND) for at in t]
    return pa.table(
        {
            "k": pa.array([k] * len(micro) if isinstance(k, str) else k, pa.string()),
            "t": pa.array(micro, pa.timestamp("us")),
            "x": pa.array([None if v is None else float(v) for v in x], pa.float64()),
            **more,
        }
    )


def validator(*truths: str, error: Any = 1.0, horizon: Any = 100, **options: Any) -> Validator:
    return Validator(PredictSpec.of(schema(*(truths or ("step",))), horizon=horizon, error=error, **options))


# -- any tuples -------------------------------------------------------------------------------------------


def interleaved(stream: TupleStream, random: Any) -> pa.Table:
    """All keys' tuples in one table, each key's in order, with an unmodelled attribute; some spoilt, some repeated late."""
    queues = [[(f"k{g}", *one) for one in key] for g, key in enumerate(stream.keys)]
    rows = []
    while any(queues):
        row = random.choice([queue for queue in queues if queue]).pop(0)
        rows.append(row)
        if random.random() < 0.1:
            rows.append(
                (row[0], row[1] - random.choice([0, 1, 5 * SECOND]), [math.nan] * len(row[2]), row[3])
            )
        if random.random() < 0.1:
            rows.append((row[0], row[1] - SECOND, row[2], row[3]))
    columns = {
        "k": pa.array([row[0] for row in rows], pa.string()),
        "t": pa.array([row[1] for row in rows], pa.timestamp("us")),
        "u": pa.array([row[3] for row in rows], pa.int64()),
    }
    for a, name in enumerate(NAMES[: len(stream.kinds)]):
        columns[name] = pa.array([float(row[2][a]) for row in rows], pa.float64())
    return pa.table(columns)


def moving(name: str, degree: int) -> Any:
    """``x = x + t / 4 - t^2 / 8 …``: of a degree."""
    formula: Any = Column(name)
    for power in range(1, degree + 1):
        term = Arithmetic(
            "*", Constant((-1) ** (power + 1) / 2 ** (power + 1)), Arithmetic("^", Elapsed(), Constant(power))
        )
        formula = Arithmetic("+", formula, term)
    return formula


@st.composite
def followers(draw) -> tuple[PredictSpec, pa.Table, list[int]]:
    """Tuples that mostly do what their model says, of any degree: bends, zeros that are crossed, bounds nearly met."""
    kind, degree = draw(st.sampled_from(["linear", "step", "samples"])), draw(st.integers(0, 3))
    n = draw(st.integers(2, 12))
    t = np.cumsum(draw(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=n, max_size=n)))
    base = draw(st.sampled_from([0.0, 1.0, -2.0, 100.0]))
    noise = np.array(draw(st.lists(st.integers(-8, 8), min_size=n, max_size=n))) / 16
    x = (
        base
        + noise
        + sum((-1) ** (j + 1) / 2 ** (j + 1) * (t - t[0]) ** float(j) for j in range(1, degree + 1))
    )
    formula = Arithmetic("+", moving("x", degree), Constant(draw(st.sampled_from([0.0, 0.375, 5.0]))))
    spec = PredictSpec.of(
        schema(kind, u="int64"),
        horizon=draw(st.sampled_from(["4 s", "1 h"])),
        error=draw(st.sampled_from(["0.5", "20%", "30% or 0.25", "1", "4"])),
        models={"x": formula},
    )
    cut = draw(st.integers(0, n))
    return spec, tuples(t.astype(float), x, k="a", u=pa.array([0] * n)), sorted({0, cut, n})


@st.composite
def cases(draw) -> tuple[PredictSpec, pa.Table, list[int]]:
    """A spec, tuples, and where to cut them."""
    stream = draw(tuple_streams())
    table = interleaved(stream, draw(st.randoms(use_true_random=False)))
    names = NAMES[: len(stream.kinds)]
    error = {name: draw(st.sampled_from(["0.5", "1%", "20%", "10% or 0.01", "0", "1e6"])) for name in names}
    degree = {name: draw(st.sampled_from([None, 1, 2, 3])) for name in names}
    horizon = draw(st.sampled_from(["1 us", "3 s", "1 h", "365 d"]))
    gaps = {"1 us": ["1 us", "2 s"], "3 s": ["3 s", "4 s", "1 h"]}.get(horizon, ["365 d"])
    spec = PredictSpec.of(
        schema(*stream.kinds, u="int64"),
        horizon=horizon,
        error=error,
        models={name: moving(name, one) for name, one in degree.items() if one is not None},
        policy=draw(st.sampled_from(["hold", "trend"])),
        memory=draw(st.sampled_from([2, 8])),
        max_gap=draw(st.sampled_from([None, *gaps])),
    )
    cuts = draw(st.lists(st.integers(0, table.num_rows), max_size=4))
    return spec, table, sorted({0, *cuts, table.num_rows})


def rows_of(relation: Relation) -> dict[str, list[tuple[int, int, Any]]]:
    """Rows ``(begin, end, (models and errors, unmodelled, what they are about))`` by key, in microseconds."""
    out: dict[str, list[tuple[int, int, Any]]] = {}
    table = relation.to_segments().to_pylist()
    begins, ends = (
        relation.ref + np.rint(one * SECOND).astype(np.int64) for one in (relation.lo, relation.hi)
    )
    for row, begin, end in zip(table, begins.tolist(), ends.tolist(), strict=True):
        assert end > begin
        about = int(np.datetime64(row["ref"], "us").astype(np.int64))
        what = tuple((tuple(row[name]), row[f"{name}_err"]) for name in relation.columns.modelled)
        void = row["certainty"] == "absent"
        out.setdefault(row["k"], []).append(
            (begin, end, None) if void else (begin, end, (what, row.get("u"), about))
        )
    return out


def ruling(pushes: list[Pushed]) -> dict[str, list[tuple[int, int, Any]]]:
    """What is in force by key after several pushes."""
    arrived: dict[str, list[tuple[int, int, Any]]] = {}
    for pushed in pushes:
        for key, rows in rows_of(pushed.updates).items():
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(rows))  # no overlaps within a push
            arrived.setdefault(key, []).extend(rows)
    held = {key: naive.in_force(rows) for key, rows in arrived.items()}
    return {key: [row for row in rows if row[2] is not None] for key, rows in held.items()}


def used(table: pa.Table, names: tuple[str, ...]) -> dict[str, list[tuple[int, list[float], int]]]:
    """The tuples that count, by key."""
    out: dict[str, list[tuple[int, list[float], int]]] = {}
    for row in table.to_pylist():
        at = int(np.datetime64(row["t"], "us").astype(np.int64))
        values = [row[name] for name in names]
        mine = out.setdefault(row["k"], [])
        if all(math.isfinite(v) for v in values) and not (mine and at < mine[-1][0]):
            mine.append((at, values, row["u"]))
    return out


def assert_near(spec: PredictSpec, a: int, truth: Fraction, at: Fraction, row: tuple[int, int, Any]) -> None:
    """That the model keeps its stated bound at an instant, and the stream's own, but for rounding."""
    coefficients, err = row[2][0][a]
    model = naive.piece_value(row[2][2], coefficients, at)
    seconds = abs(at - row[2][2]) / SECOND
    size = abs(truth) + sum((abs(Fraction(c)) * seconds**j for j, c in enumerate(coefficients)), Fraction(0))
    share, floor = spec.limits[a]
    allowed = min(Fraction(err), max(Fraction(share) * abs(truth), Fraction(floor)))
    assert abs(truth - model) <= allowed + size * Fraction(1, 10**12)


def assert_contract(spec: PredictSpec, table: pa.Table, pushes: list[Pushed]) -> None:
    """Between a key's first and newest tuple, but for holes, a model is in force and the truth is within its bound.

    Beyond that one reaches half a horizon or more, up to a horizon.
    """
    kinds = [truth.value for _, truth in spec.schema.modelled]
    rules = ruling(pushes)
    for key, mine in used(table, spec.schema.modelled_names).items():
        for (t0, old, code), (t1, new, _) in itertools.pairwise(mine):
            inside = {
                Fraction(t0),
                t0 + Fraction(1, 3),
                *(t0 + Fraction(t1 - t0) * s / 8 for s in range(1, 8)),
                Fraction(t1 - 1),
            }
            for at in sorted(one for one in inside if t0 <= one < t1):
                row = next((row for row in rules[key] if row[0] <= at < row[1]), None)
                hole = spec.max_gap is not None and t1 - t0 > spec.max_gap
                assert (row is None) == hole
                if row is None:
                    continue
                assert row[2][1] == code
                for a, kind in enumerate(kinds):
                    if kind == "step" or at == t0:
                        assert_near(spec, a, Fraction(old[a]), at, row)
                    elif kind == "linear":
                        line = Fraction(old[a]) + (Fraction(new[a]) - Fraction(old[a])) * (at - t0) / (
                            t1 - t0
                        )
                        assert_near(spec, a, line, at, row)
        if mine:
            at, values, code = mine[-1]
            row = next(row for row in rules[key] if row[0] <= at < row[1])
            assert 2 * (rules[key][-1][1] - at) >= spec.horizon >= rules[key][-1][1] - at
            assert row[2][1] == code
            for a, value in enumerate(values):
                assert_near(spec, a, Fraction(value), Fraction(at), row)


def push_all(
    spec: PredictSpec, table: pa.Table, cuts: list[int], *, pickled: bool = False
) -> tuple[list[Pushed], Validator]:
    mine, pushes = Validator(spec), []
    for begin, end in itertools.pairwise(cuts):
        pushes.append(mine.push(table.slice(begin, end - begin)))
        if pickled:
            mine = pickle.loads(pickle.dumps(mine))
    return pushes, mine


@given(cases() | followers())
def test_the_truth_stays_within_what_is_stated(case) -> None:
    spec, table, cuts = case
    mine, pushes = Validator(spec), []
    for begin, end in itertools.pairwise(cuts):
        pushes.append(mine.push(table.slice(begin, end - begin)))
        assert_contract(spec, table.slice(0, end), pushes)


@given(cases())
def test_batches_make_no_difference(case) -> None:
    spec, table, cuts = case
    every = list(range(table.num_rows + 1))
    runs = [
        push_all(spec, table, c, pickled=p)
        for c, p in (([0, table.num_rows], False), (cuts, True), (every, False))
    ]
    (whole, first), *others = runs
    total = ValidationCounts()
    for pushed in whole:
        total.add(pushed.counts)
    assert total.tuples == table.num_rows
    assert (
        total.tuples
        == total.validated
        + total.first
        + total.expired
        + total.violated
        + total.changed
        + total.extended
        + total.late
        + total.not_finite
    )
    for pushes, mine in others:
        assert ruling(pushes) == ruling(whole)
        again = ValidationCounts()
        for pushed in pushes:
            again.add(pushed.counts)
        assert again == total
        assert list(mine.state.ids) == list(first.state.ids)
        assert mine.state.carried.equals(first.state.carried)
        np.testing.assert_array_equal(mine.state.ints, first.state.ints)
        np.testing.assert_array_equal(mine.state.floats, first.state.floats)
        assert (
            sum(0 if p.aside is None else p.aside.num_rows for p in pushes) == total.late + total.not_finite
        )


@given(cases())
def test_keys_do_not_depend_on_each_other(case) -> None:
    spec, table, cuts = case
    whole, _ = push_all(spec, table, [0, table.num_rows])
    expected = ruling(whole)
    validators: dict[str, Validator] = {}
    pushes: dict[str, list[Pushed]] = {}
    for begin, end in itertools.pairwise(cuts):
        part = table.slice(begin, end - begin)
        for key in dict.fromkeys(part.column("k").to_pylist()):
            mine = pickle.loads(pickle.dumps(validators.get(key, Validator(spec))))
            pushes.setdefault(key, []).append(mine.push(part.filter(pa.compute.equal(part.column("k"), key))))
            validators[key] = mine
    for key, some in pushes.items():
        assert ruling(some).get(key) == expected.get(key)


# -- case by case -----------------------------------------------------------------------------------------


def test_updates_are_sorted_by_key_and_cut() -> None:
    mine = validator("linear")
    pushed = mine.push(tuples([0, 0, 1, 2, 3], [5, 1, 5.5, 9, 1], k=["b", "a", "b", "b", "a"]))
    assert pushed.updates.keys[0].to_pylist() == ["a", "b"]
    assert pushed.updates.offsets.tolist() == [0, 1, 4]
    assert pushed.kinds.tolist() == [FIRST, FIRST, REPAIR, VIOLATED]
    rows = rows_of(pushed.updates)
    assert [(begin - EPOCH, end - EPOCH) for begin, end, _ in rows["b"]] == [
        (0, SECOND),
        (SECOND, 2 * SECOND),
        (2 * SECOND, 102 * SECOND),
    ]
    assert pushed.counts == ValidationCounts(tuples=5, validated=2, first=2, violated=1, repaired=1)
    assert pushed.aside is None


def test_expiry() -> None:
    mine = validator(horizon=10)
    pushed = mine.push(tuples([0, 5, 10, 30], [1, 1, 1, 1]))
    assert pushed.kinds.tolist() == [FIRST, EXTENDED, EXTENDED, EXTENDED]
    assert [(b - EPOCH) // SECOND for b, _, _ in rows_of(pushed.updates)["a"]] == [0, 10, 15, 20]
    assert pushed.counts == ValidationCounts(tuples=4, first=1, extended=3)
    pushed = mine.push(tuples([50], [7]))
    assert pushed.kinds.tolist() == [REPAIR, EXPIRED]
    assert pushed.counts == ValidationCounts(tuples=1, expired=1, repaired=1)
    assert [(b - EPOCH) // SECOND for b, _, _ in rows_of(pushed.updates)["a"]] == [40, 50]


def test_what_no_tuple_confirmed_lapses() -> None:
    mine = validator("linear", horizon=10, error=1)
    mine.push(tuples([0, 3, 4], [1, 1, 2], k=["a", "a", "b"]))
    assert mine.lapse(EPOCH + 9 * SECOND).groups == 0
    gone = mine.lapse(EPOCH + 13 * SECOND)
    assert [(b - EPOCH, e - EPOCH) for b, e, _ in rows_of(gone)["a"]] == [(3 * SECOND, 10 * SECOND)]
    assert gone.keys[0].to_pylist() == ["a"]
    assert mine.lapse(EPOCH + 13 * SECOND).groups == 0
    # What the next tuple confirms is there again from the newest on; else the line between the two is.
    again = pickle.loads(pickle.dumps(mine)).push(tuples([20], [1.5]))
    assert again.kinds.tolist() == [EXTENDED]
    assert [(b - EPOCH, e - EPOCH) for b, e, _ in rows_of(again.updates)["a"]] == [(3 * SECOND, 30 * SECOND)]
    again = mine.push(tuples([20], [5]))
    assert again.kinds.tolist() == [REPAIR, EXPIRED]
    assert [(b - EPOCH) // SECOND for b, _, _ in rows_of(again.updates)["a"]] == [3, 20]


def test_a_max_gap_shorter_than_the_horizon_is_refused() -> None:
    with pytest.raises(PredictSpecError, match="max_gap: expected the horizon, 10 s, or more, got 9 s"):
        validator(horizon=10, max_gap=9)


def test_poison_never_stops_the_stream() -> None:
    mine = validator()
    table = tuples(
        [0, 1, None, 3, 2, 4, 5],
        [1, None, 1, math.inf, 1, 1, 1],
        k=["a", "a", "a", "a", "a", None, "a"],
    )
    pushed = mine.push(table)
    assert pushed.counts == ValidationCounts(tuples=7, validated=2, first=1, not_finite=2, misplaced=2)
    assert pushed.aside.column("reason").to_pylist() == ["no key", "no time", "not finite", "not finite"]
    late = mine.push(tuples([4], [1]))
    assert late.aside.column("reason").to_pylist() == ["late"]
    assert late.counts == ValidationCounts(tuples=1, late=1)
    assert mine.push(tuples([6], [9])).counts.violated == 1


@pytest.mark.parametrize(
    "type_", [pa.timestamp("us"), pa.timestamp("s"), pa.timestamp("ms"), pa.date32(), pa.date64()]
)
def test_a_time_beyond_all_reason_is_set_aside(type_: pa.DataType) -> None:
    width = pa.int32() if type_ == pa.date32() else pa.int64()
    far = 2**31 - 1 if type_ == pa.date32() else (2**62 // 86_400_000) * 86_400_000
    table = pa.table(
        {"k": ["a"] * 3, "t": pa.array([86_400_000, far, -far], width).view(type_), "x": [1.0] * 3}
    )
    if type_ == pa.date32():
        table = table.set_column(1, "t", pa.array([1, far, -far], width).view(type_))
    pushed = validator().push(table)
    assert pushed.counts == ValidationCounts(tuples=3, first=1, misplaced=2)
    assert pushed.aside.column("reason").to_pylist() == ["time out of range"] * 2


def test_columns_are_checked() -> None:
    with pytest.raises(UnknownColumnError, match="'x'"):
        validator().push(tuples([0], [1]).drop(["x"]))
    with pytest.raises(ColumnTypeError, match="'x'"):
        validator().push(tuples([0], [1]).set_column(2, "x", pa.array(["text"])))


def test_whole_numbers_dictionaries_and_batches() -> None:
    table = pa.table(
        {
            "k": pa.array(["unused", "b", "a", "b"]).dictionary_encode(),
            "t": pa.array([0, 0, 1, 2], pa.timestamp("ns")),
            "x": pa.array([1, 5, 2**60, 7], pa.int64()),
        }
    ).slice(1)
    mine = validator()
    pushed = mine.push(table.combine_chunks().to_batches()[0])
    assert list(mine.state.ids) == [("b",), ("a",)]
    assert pushed.counts == ValidationCounts(tuples=3, first=1, violated=1, not_finite=1)
    assert pushed.updates.models["x"].tolist() == [[7.0]]  # both at one microsecond


def test_no_tuples_and_no_key() -> None:
    mine = Validator(PredictSpec.of(StreamSchema.of(time="t", modelled={"x": "step"}), horizon=5, error=1))
    table = tuples([0, 1, 2], [1, 1, 5]).drop(["k"])
    assert len(mine.push(table.slice(0, 0)).updates) == 0
    pushed = mine.push(table)
    assert pushed.updates.keys == ()
    assert pushed.updates.offsets.tolist() == [0, 2]
    assert len(mine.push(table.slice(2)).updates) == 0
    mine.allot(Allotment("S", (), {"x": np.array([0.25])}, {}))
    assert mine.push(tuples([3], [5.5]).drop(["k"])).counts.violated == 1


def test_unmodelled_attributes_are_carried_and_end_models() -> None:
    mine = Validator(
        PredictSpec.of(
            schema("linear", v="float64", u="string"),
            horizon=100,
            error=1,
            models={"x": Arithmetic("+", Column("x"), Arithmetic("*", Column("v"), Elapsed()))},
        )
    )
    first = mine.push(tuples([0, 1], [0, 2], v=[2.0, 3.0], u=["p", "p"]))  # another v is no reason
    assert first.kinds.tolist() == [FIRST]
    second = mine.push(tuples([2], [9], v=[4.0], u=["p"]))
    assert second.kinds.tolist() == [REPAIR, VIOLATED]
    assert second.updates.unmodelled["v"].to_pylist() == [2.0, 4.0]  # the repair is of the model that ruled
    third = mine.push(tuples([3, 4], [13, 17], v=[4.0, 4.0], u=["p", None]))
    assert third.kinds.tolist() == [CHANGED]
    assert third.updates.unmodelled["u"].to_pylist() == [None]
    assert mine.push(tuples([5], [21], v=[4.0], u=pa.array([None], pa.string()))).counts.validated == 1


def test_what_is_allotted_replaces_the_streams_own() -> None:
    mine = validator(error=1.0)
    mine.push(tuples([0, 0], [5, 5], k=["a", "b"]))
    mine.allot(Allotment("S", (pa.array(["a"]),), {"x": np.array([0.25])}, {"x": 3.0}))
    pushed = mine.push(tuples([1, 1, 1], [5.5, 5.5, 0], k=["a", "b", "c"]))
    assert pushed.counts == ValidationCounts(tuples=3, validated=1, first=1, violated=1)
    assert pushed.updates.err["x"].tolist() == [0.25, 3.0]
    # b's model states 1, so 3 has to wait for its next one.
    pushed = mine.push(tuples([2, 3, 4], [6.5, 9, 9.6], k=["b", "b", "b"]))
    assert pushed.kinds.tolist() == [VIOLATED, VIOLATED]  # 6.5, and 9.6, but not 9
    assert pushed.updates.err["x"].tolist() == [3.0, 3.0]


def test_the_tighter_holds() -> None:
    mine = validator(error="10%")
    mine.allot(Allotment("S", (pa.array(["a"]),), {"x": np.array([2.0])}, {}))
    mine.tighten(Allotment("S", (pa.array(["a"]),), {"x": np.array([0.5])}, {"x": 0.75}))
    pushed = mine.push(tuples([0, 0], [100, 100], k=["a", "b"]))
    assert pushed.updates.err["x"].tolist() == [0.5, 0.75]
    mine.tighten(Allotment("S", (pa.array(["b"]),), {"x": np.array([0.125])}, {"x": 9.0}))
    assert mine.push(tuples([1, 1], [100.4, 100.4], k=["a", "b"])).counts == ValidationCounts(
        tuples=2, validated=1, violated=1
    )
    mine.allot(Allotment("S", (pa.array(["a"]),), {"x": np.array([2.0])}, {}))
    assert mine.push(tuples([2, 2], [110, 110], k=["a", "b"])).updates.err["x"].tolist() == [2.0, 11.0]


def test_an_infinite_share_leaves_the_streams_own_bound() -> None:
    mine = validator(error=1.0)
    mine.allot(Allotment("S", (pa.array(["a"]),), {"x": np.array([np.inf])}, {}))
    assert mine.push(tuples([0, 1, 2], [1, 1.5, 3])).updates.err["x"].tolist() == [1.0, 1.0]


def test_unconstrained_means_validated() -> None:
    pushed = validator(error=None).push(tuples([0, 1, 2], [1, 1e9, -1e9]))
    assert pushed.counts.validated == 2
    assert pushed.updates.err["x"].tolist() == [math.inf]


def test_forgetting() -> None:
    mine = validator(horizon=10, max_gap=10)
    mine.push(tuples([0, 5, 30], [1, 2, 3], k=["a", "b", "c"]))
    assert mine.forget(EPOCH + 12 * SECOND)[0].to_pylist() == ["a"]  # b's model reaches to 15 s
    assert mine.keys[0].to_pylist() == ["b", "c"]
    late = mine.push(tuples([11, 13], [1, 1], k=["a", "a"]))
    assert late.aside.column("reason").to_pylist() == ["late"]
    assert late.kinds.tolist() == [FIRST]
    assert mine.push(tuples([9, 31], [2, 3], k=["b", "c"])).counts.validated == 2
    assert len(mine.forget(EPOCH + 100 * SECOND)[0]) == 3
    assert len(mine.state.ints) == len(mine.state.floats) == len(mine.state.ids) == 0


def test_without_a_max_gap_no_key_is_forgotten() -> None:
    mine = validator("linear", horizon=10)
    mine.push(tuples([0], [1]))
    assert mine.forget(EPOCH + 1000 * SECOND)[0].to_pylist() == []
    assert mine.push(tuples([2000], [5])).kinds.tolist() == [REPAIR, EXPIRED]
    late = mine.push(tuples([999, 1000], [1, 1], k=["b", "b"]))  # of other keys
    assert late.kinds.tolist() == [FIRST]


def test_forgetting_keeps_the_others_attributes() -> None:
    mine = Validator(PredictSpec.of(schema("step", u="string"), horizon=10, error=1, max_gap=15))
    mine.push(tuples([0, 30], [1, 1], k=["a", "b"], u=["p", "q"]))
    assert mine.forget(EPOCH + 15 * SECOND)[0].to_pylist() == []
    assert mine.forget(EPOCH + 20 * SECOND)[0].to_pylist() == ["a"]
    assert mine.state.carried.column("u").to_pylist() == ["q"]
    assert mine.push(tuples([31], [1], k=["b"], u=["q"])).counts.validated == 1


def test_adopted_keys_get_what_is_allotted_now() -> None:
    old = validator(error=1.0)
    old.push(tuples([0], [5]))
    new = validator(error=1.0)
    new.allot(Allotment("S", (pa.array(["a"]),), {"x": np.array([0.25])}, {}))
    new.adopt(old, [("a",)])
    assert new.push(tuples([1], [5.5])).counts.violated == 1


def test_restlessness_by_key() -> None:
    mine = validator(error=1e9)
    rng = np.random.default_rng(1)
    for k, size in (("calm", 0.01), ("wild", 1.0)):
        mine.push(tuples(np.arange(200), np.cumsum(rng.normal(0, size, 200)), k=k))
    assert mine.keys[0].to_pylist() == ["calm", "wild"]
    calm, wild = mine.volatility()["x"]
    assert calm == pytest.approx(0.01, rel=0.3)
    assert wild == pytest.approx(1.0, rel=0.3)


def test_chunks_of_a_large_push(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    table = tuples(np.arange(300), np.cumsum(rng.normal(0, 1, 300)), k=rng.choice(["a", "b"], 300).tolist())
    whole = validator(error=2.0).push(table)
    monkeypatch.setattr("pulse.validation.online.validator._CHUNK", 7)
    parts = validator(error=2.0).push(table)
    assert parts.updates.to_segments().equals(whole.updates.to_segments())
    assert parts.counts == whole.counts
    np.testing.assert_array_equal(parts.kinds, whole.kinds)

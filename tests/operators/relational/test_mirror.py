"""Mirrored rows are the originals under exchanged names, and the originals are as they were."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given

from pulse.core.columns import Columns
from pulse.core.expression import Column, Comparison
from pulse.operators.data.relation import Relation
from pulse.operators.relational.mirror import MirrorOperator
from pulse.operators.relational.proximity_join import PairJoin
from tests.operators.contract import causes, check_contract, check_same, check_valid
from tests.operators.sampling import SECOND, samples
from tests.strategies import relations

BY_NAME = ("k", "n", "x", "y", "u")
SWAPS = tuple((f"R.{name}", f"T.{name}") for name in BY_NAME)


def pairs_of(relation: Relation, relation_name: str) -> Relation:
    """The pairs of a relation's keys that the comparison lets through."""
    left, right = relation.prefixed("R"), relation.prefixed("T")
    a, b = left.columns, right.columns
    columns = Columns((*a.key, *b.key), (*a.modelled, *b.modelled), (*a.unmodelled, *b.unmodelled), a.time)
    condition = Comparison(relation_name, Column("R.k"), Column("T.k"))
    return PairJoin(None, condition, columns).segments(left, right)


def about_starts(relation: Relation) -> Relation:
    """The same rows, each about its start: whole seconds, whole coefficients, without what rounding far references left."""
    starts = relation.ref + np.rint(relation.lo * 1e6).astype(np.int64)
    moved = relation.take(np.arange(len(relation)), ref=starts)
    return replace(
        moved,
        lo=np.zeros(len(relation)),
        hi=np.rint(relation.hi - relation.lo),
        models={name: np.rint(c) for name, c in moved.models.items()},
    )


@given(relations(codes=(1, 2, 3), max_keys=4, degree=1))
def test_half_of_the_pairs_mirrored_are_all_of_them(relation: Relation) -> None:
    """Whichever side's reference the join took."""
    made = about_starts(MirrorOperator(SWAPS).segments(pairs_of(relation, "<")).merged())
    wanted = about_starts(pairs_of(relation, "!=").merged())
    # A bound holds the rounding of the shift of a model by d to the other side's reference, and from there to the start of the
    # row: 4 u k M each (kernels/rounding), with M at times up to 2 d, and 3 d as the shifted coefficients hold d themselves.
    d = np.abs([relation.lo, relation.hi]).max(initial=0.0) + 20.0
    for name in made.columns.modelled:
        c = np.abs(relation.models[name[2:]])
        sizes = [(c * (far * d) ** np.arange(c.shape[1])).sum(axis=1).max(initial=0.0) for far in (2.0, 3.0)]
        assert (np.abs(made.err[name] - wanted.err[name]) <= 4 * 2 * 2.0**-53 * sum(sizes)).all()
    check_same(replace(made, err=wanted.err), wanted)


@given(relations(codes=(1, 2, 3), max_keys=4))
def test_the_contract(relation: Relation) -> None:
    half = pairs_of(relation, "<")
    made = check_contract(MirrorOperator(SWAPS), half, half.columns, per_key=False)
    parts = [MirrorOperator(SWAPS).segments(half.select_groups(np.array([g]))) for g in range(half.groups)]
    if parts:
        check_same(Relation.concat(parts).merged(), made.merged())


@given(relations(codes=(1, 2, 3)))
def test_twice_is_there_and_back(relation: Relation) -> None:
    """Columns of one relation: drift and causes go with the names; what is not named stays."""
    columns = replace(relation.columns, key=(*relation.columns.key, ("j", pa.string())))
    other = pa.array([f"{key}'" for key in relation.keys[0].to_pylist()], pa.string())
    given_ = replace(relation, columns=columns, keys=(*relation.keys, other))
    made = MirrorOperator((("k", "j"), ("x", "y"))).segments(given_)
    check_valid(made, columns)
    n, g = len(relation), relation.groups
    assert made.groups == 2 * g
    check_same(made.select_groups(np.arange(g)), given_)
    mirrored = made.select_groups(np.arange(g, 2 * g))
    assert mirrored.keys[0].equals(other)
    assert mirrored.keys[-1].equals(relation.keys[0])
    for a, b in (("x", "y"), ("y", "x")):
        assert np.array_equal(mirrored.models[a], relation.models[b])
        assert np.array_equal(mirrored.err[a], relation.err[b])
        assert np.array_equal(mirrored.drift[a], relation.drift[b])
    assert causes(mirrored) == causes(relation) == causes(made)[n:]
    again = MirrorOperator((("k", "j"), ("x", "y"))).segments(mirrored)
    check_same(again.select_groups(np.arange(g, 2 * g)), given_)


def test_samples() -> None:
    columns = Columns(
        (("i", pa.int64()), ("j", pa.int64())), ("d", "a", "b"), (("u", pa.string()), ("v", pa.string()))
    )
    given_ = samples(
        columns,
        (pa.array([1, 1]), pa.array([2, 3])),
        [(0, 0, 2), (0, 9 * SECOND, 1), (1, 0, 1)],
        {"d": [1, 2, 3, 4], "a": [5, 6, 7, 8], "b": [0, 0, 0, 1]},
        {"d": [0.1, 0.2, 0.3, 0.4], "a": [1, 1, 1, 1], "b": [2, 2, 2, 2]},
        [3, 0, 2, 1],
        unmodelled={"u": pa.array(list("pqrs")), "v": pa.array(["w", None, "y", "z"])},
    )
    operator = pickle.loads(pickle.dumps(MirrorOperator((("i", "j"), ("a", "b"), ("u", "v")))))
    made = operator.samples(given_)
    assert [column.to_pylist() for column in made.keys] == [[1, 1, 2, 3], [2, 3, 1, 1]]
    assert made.group.tolist() == [0, 0, 1, 2, 2, 3]
    assert made.times.tolist() == 2 * given_.times.tolist()
    assert made.of_group.tolist() == [0, 0, 0, 1, 2, 2, 2, 3]
    assert made.values["d"].tolist() == 2 * [1, 2, 3, 4]
    assert made.values["a"].tolist() == [5, 6, 7, 8, 0, 0, 0, 1]
    assert made.err["b"].tolist() == [2, 2, 2, 2, 1, 1, 1, 1]
    assert made.certainty.tolist() == 2 * [3, 0, 2, 1]
    assert made.unmodelled["v"].to_pylist() == ["w", None, "y", "z", *"pqrs"]
    assert made.columns == columns


def test_samples_of_nothing() -> None:
    columns = Columns((("i", pa.int64()), ("j", pa.int64())), ("d",))
    nothing = pa.array([], pa.int64())
    made = MirrorOperator((("i", "j"),)).samples(
        samples(columns, (nothing, nothing), [], {"d": []}, {"d": []}, [])
    )
    assert (len(made), made.groups, made.certainty.tolist()) == (0, 0, [])

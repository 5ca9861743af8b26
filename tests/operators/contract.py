"""What every operator on relations keeps, and how two relations are held against each other."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.columns import Columns
from pulse.core.segment.order import Ranges, find_overlap, is_in_order
from pulse.kernels.rounding import magnitudes
from pulse.operators.data.relation import Relation
from tests import naive

SHARES = [Fraction(s, 4) for s in (-4, -1, 0, 3, 4)]


def row_values(relation: Relation, row: int, at: Fraction, shares: dict[str, Fraction]) -> dict[str, Any]:
    """Everything a row says at an instant, of a truth at these shares of its bounds."""
    group = int(relation.group[row])
    values: dict[str, Any] = {
        name: naive.truth_at(relation, name, row, at, share) for name, share in shares.items()
    }
    for name, column in zip(relation.columns.key_names, relation.keys, strict=True):
        values[name] = column[group].as_py()
    for name, column in relation.unmodelled.items():
        values[name] = column[row].as_py()
    values[relation.columns.time] = at
    return {name: Fraction(v) if isinstance(v, int) else v for name, v in values.items()}


def truths(relation: Relation, row: int, at: Fraction) -> Iterator[dict[str, Any]]:
    """The row at an instant, for several truths within the bounds."""
    names = relation.columns.modelled
    for i in range(len(SHARES)):
        for j in range(len(SHARES)):
            yield row_values(relation, row, at, {name: SHARES[(i, j)[n % 2]] for n, name in enumerate(names)})


def check_valid(relation: Relation, columns: Columns) -> None:
    """A relation keeps its own rules: shapes, groups, order in time, finite numbers."""
    n = len(relation)
    assert relation.columns == columns
    assert set(relation.models) == set(relation.err) == set(columns.modelled)
    assert set(relation.drift) <= set(columns.modelled)
    assert set(relation.unmodelled) == set(columns.unmodelled_names)
    assert len(relation.keys) == len(columns.key)
    assert all(len(column) == relation.groups for column in relation.keys)
    assert relation.offsets[0] == 0
    assert relation.offsets[-1] == n
    assert all(len(x) == n for x in (relation.ref, relation.lo, relation.hi, relation.certainty))
    assert all(c.shape[0] == n and np.isfinite(c).all() for c in relation.models.values())
    assert all(len(e) == n and np.isfinite(e).all() and (e >= 0).all() for e in relation.err.values())
    assert (relation.lo <= relation.hi).all()
    assert np.isin(relation.certainty, (1, 2, 3)).all()
    ranges = Ranges(relation.group, relation.ref, relation.lo, relation.hi)
    assert is_in_order(ranges)
    assert find_overlap(ranges) is None
    assert relation.lineage is None or len(relation.lineage) == n
    assert relation.to_segments().num_rows == n


def check_same(a: Relation, b: Relation, *, rtol: float = 1e-12) -> None:
    """The same rows, whatever the padding of their coefficients."""
    assert a.columns == b.columns
    assert np.array_equal(a.offsets, b.offsets)
    assert [column.to_pylist() for column in a.keys] == [column.to_pylist() for column in b.keys]
    assert np.array_equal(a.ref, b.ref)
    assert np.array_equal(a.lo, b.lo)
    assert np.array_equal(a.hi, b.hi)
    assert np.array_equal(a.certainty, b.certainty)
    for name in a.columns.modelled:
        # Rounding is counted with the coefficients of the widest row of a batch, 4 u k M for each operation (kernels/rounding):
        # beside others a key may have larger bounds than alone. With up to 8 coefficients and operations that is 256 u M.
        size = magnitudes(a.models[name], a.lo, a.hi)
        largest = np.array([size[a.group == g].max(initial=0.0) for g in a.group])
        span = np.array([(a.hi - a.lo)[a.group == g].sum() for g in a.group])
        room = 2.0**-45 * largest
        x, y = a.models[name], b.models[name]
        k = max(x.shape[1], y.shape[1])
        x, y = (np.pad(c, ((0, 0), (0, k - c.shape[1]))) for c in (x, y))
        assert np.allclose(x, y, rtol=rtol, atol=1e-12)
        assert is_near(a.err[name], b.err[name], room + rtol * b.err[name])
        unknown = np.full(len(a), np.inf)
        drifts = a.drift.get(name, unknown), b.drift.get(name, unknown)
        assert is_near(*drifts, room * span + rtol * drifts[1])
    assert {n: c.to_pylist() for n, c in a.unmodelled.items()} == {
        n: c.to_pylist() for n, c in b.unmodelled.items()
    }
    assert (a.lineage is None) == (b.lineage is None)
    if a.lineage is not None:
        assert causes(a) == causes(b)


def is_near(a: FloatArray, b: FloatArray, room: FloatArray) -> bool:
    """Whether numbers differ by no more than this; infinite ones are equal."""
    known = np.isfinite(b)
    apart = np.abs(a[known] - b[known])
    return bool(np.array_equal(a[~known], b[~known]) and (apart <= room[known]).all())


def causes(relation: Relation) -> list[list[int]]:
    """The ids of each row's causes."""
    assert relation.lineage is not None
    return [[one["segment_id"] for one in row] for row in relation.lineage.to_arrow().to_pylist()]


def check_contract(operator: Any, relation: Relation, columns: Columns, *, per_key: bool = True) -> Relation:
    """Pickles; valid out; nothing in, nothing out; and the same whether keys come together or apart."""
    revived = pickle.loads(pickle.dumps(operator))
    assert revived == operator
    made: Relation = revived.segments(relation)
    check_valid(made, columns)
    nothing = operator.segments(Relation.empty(relation.columns))
    check_valid(nothing, columns)
    assert len(nothing) == 0
    if per_key and relation.groups:
        parts = [operator.segments(relation.select_groups(np.array([g]))) for g in range(relation.groups)]
        check_same(Relation.concat(parts), made)
    return made


def refusal(run: Callable[[], Any], error: type[Exception]) -> str:
    """The message of the error that a call must end with."""
    try:
        run()
    except error as e:
        return str(e)
    raise AssertionError(f"expected {error.__name__}")

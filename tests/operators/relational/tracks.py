"""Relations for the tests of joins: made from hypothesis' piecewise functions, and read back as exact pieces."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.core.schema import LINEAGE
from pulse.operators.data.lineage import Lineage
from pulse.operators.data.relation import Relation
from tests import naive
from tests.strategies import coefficients, functions

SECONDS = (1_000_000, 10**12)


def columns(alias: str, keyed: bool = True) -> Columns:
    key = ((f"{alias}.id", pa.string()),) if keyed else ()
    return Columns(key, (f"{alias}.x", f"{alias}.y"), ((f"{alias}.flag", pa.int64()),), f"{alias}.t")


def side_by_side(a: Columns, b: Columns) -> Columns:
    return Columns((*a.key, *b.key), (*a.modelled, *b.modelled), (*a.unmodelled, *b.unmodelled), a.time)


def relation(
    alias: str,
    groups: list[Any],
    models: list[tuple[np.ndarray, np.ndarray]],
    *,
    err: Any = 0.0,
    names: list[str] | None = None,
    certainty: Any = 3,
) -> Relation:
    """``groups`` are functions (``ref``, ``lo``, ``hi``), ``models`` their (x, y) coefficients; lineage ids count the rows."""
    sizes = [len(one.ref) for one in groups]
    n = sum(sizes)

    def flat(parts: list[np.ndarray], dtype: Any = np.float64) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)

    width = max([1, *(c.shape[1] for pair in models for c in pair)])
    padded = [[np.pad(pair[a], ((0, 0), (0, width - pair[a].shape[1]))) for pair in models] for a in range(2)]
    keyed = names is None or len(names) > 0
    ref = flat([one.ref for one in groups], np.int64)
    lo, hi = flat([one.lo for one in groups]), flat([one.hi for one in groups])
    causes = [
        [{"segment_id": i, "key": alias, "ref": int(ref[i]), "lo": float(lo[i]), "hi": float(hi[i])}]
        for i in range(n)
    ]
    both = columns(alias, keyed)
    xy = [np.concatenate([np.zeros((0, width)), *part]) for part in padded]
    errors = np.broadcast_to(np.asarray(err, np.float64), n).copy()
    return Relation(
        columns=both,
        keys=(pa.array(names or [f"{alias}{i}" for i in range(len(groups))], pa.string()),) if keyed else (),
        offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        ref=ref,
        lo=lo,
        hi=hi,
        models=dict(zip(both.modelled, xy, strict=True)),
        err={name: errors * (1 + a) for a, name in enumerate(both.modelled)},
        drift={name: np.ones(n) for name in both.modelled},
        certainty=np.broadcast_to(np.asarray(certainty, np.uint8), n).copy(),
        unmodelled={f"{alias}.flag": pa.array(np.arange(n))},
        lineage=Lineage.of(pa.array(causes, LINEAGE)),
    )


@st.composite
def relations(
    draw: Any, alias: str, *, max_groups: int = 4, scale: Any = SECONDS, points: bool = True
) -> Any:
    """Groups with holes, points, none or single pieces, models of up to degree 2, errors of 0 or quarters."""
    if draw(st.integers(0, 5)) == 0:
        groups, names = [draw(functions(scale, points=points))], []
    else:
        groups, names = draw(st.lists(functions(scale, points=points), max_size=max_groups)), None
    models = []
    for one in groups:
        k = draw(st.integers(1, 3))
        models.append((draw(coefficients(one, scale, k)), draw(coefficients(one, scale, k))))
    n = sum(len(one.ref) for one in groups)
    err = np.array(draw(st.lists(st.sampled_from([0.0, 0.0, 0.25, 1.0]), min_size=n, max_size=n)), np.float64)
    certainty = draw(st.lists(st.sampled_from([1, 2, 3, 3]), min_size=n, max_size=n))
    return relation(alias, groups, models, err=err, names=names, certainty=certainty)


def exact_rows(relation: Relation, group: int) -> list[tuple[Fraction, Fraction, int]]:
    """Begin and end of a group's rows in exact microseconds, and the row."""
    rows = range(relation.offsets[group], relation.offsets[group + 1])
    return [
        (
            naive.instant(relation.ref[i], relation.lo[i]),
            naive.instant(relation.ref[i], relation.hi[i]),
            int(i),
        )
        for i in rows
    ]


def key_of(relation: Relation, group: int) -> tuple[Any, ...]:
    return tuple(column[group].as_py() for column in relation.keys)

"""Sums and means across keys, against those of truths within the bounds."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.certainty import CERTAIN, LIKELY
from pulse.core.columns import Columns
from pulse.operators.across.total import Total
from pulse.operators.data.grouping import columns_by
from pulse.operators.data.relation import Relation
from tests import naive
from tests.operators.across.test_envelope import GROUPINGS, SHARES, choices, code_of, moments, present
from tests.operators.contract import causes, check_contract
from tests.strategies import EPOCH_US, relations


def most_rounded(relation: Relation, rows: list[int]) -> float:
    """What the sum of these rows may round: with three coefficients 12 u M for the shift of each, u M for its addition and 12 u M
    for the evaluation of the sum (kernels/rounding), and 16 u of the bounds; ``M`` as far as rows lie from a reference."""
    c = np.abs(relation.models["x"][rows])
    reach = 2.0 * np.maximum(np.abs(relation.lo), np.abs(relation.hi))[rows] + 20.0
    size = (c * reach[:, None] ** np.arange(c.shape[1])).sum() + relation.err["x"][rows].sum()
    return float(2.0**-48 * size)


@given(relations(codes=(1, 2, 3, 3, 3), max_rows=3), st.sampled_from(["sum", "avg"]), GROUPINGS, st.data())
def test_totals_keep_every_truth(
    relation: Relation, function: str, by: tuple[str, ...], data: st.DataObject
) -> None:
    operator = Total(function, "x", "s", by)
    made = check_contract(
        operator, relation, columns_by(relation.columns, by, ("s",)), per_key=by == ("k", "n")
    )
    share = data.draw(st.lists(st.sampled_from(SHARES), min_size=len(relation), max_size=len(relation)))
    ids = causes(made)
    for group in range(made.groups):
        for at in moments(relation):
            rows = present(relation, group, by, made, at)
            found = naive.rows_at(made, group, at)
            assert bool(rows) == bool(found)
            if not rows:
                continue
            assert made.certainty[found[0]] == code_of(relation, rows)
            model = [row for row in rows if relation.certainty[row] >= LIKELY] or rows
            got = naive.piece_value(made.ref[found[0]], made.models["s"][found[0]], at)
            for chosen in choices(relation, rows):
                want = sum(
                    (naive.truth_at(relation, "x", row, at, share[row]) for row in chosen), Fraction(0)
                )
                number = len(chosen) if function == "avg" else 1
                assert abs(got - want / number) <= Fraction(made.err["s"][found[0]] * (1 + 1e-9)) + Fraction(
                    1e-12
                )
            if all(relation.certainty[row] == CERTAIN for row in rows):
                bound = sum(relation.err["x"][row] for row in rows) / (len(rows) if function == "avg" else 1)
                assert 0.0 <= made.err["s"][found[0]] - bound <= most_rounded(relation, rows)
            assert set(model) <= set(ids[found[0]]) <= set(rows)


@given(relations(codes=(1, 2, 3, 3), max_rows=3), st.sampled_from(["sum", "avg"]), st.sampled_from(SHARES))
def test_parts_merge_into_the_whole(relation: Relation, function: str, share: Fraction) -> None:
    whole = Total(function, "x", "s", ()).segments(relation)
    partial = Total(function, "x", "s", (), "partial")
    parts = [partial.segments(relation.select_groups(np.array([g]))) for g in range(relation.groups)]
    if not parts:
        return
    assert parts[0].columns.modelled == (("s", "s#count") if function == "avg" else ("s",))
    merged = Total(function, "x", "s", (), "merge").segments(Relation.concat(parts))
    assert merged.columns == whole.columns
    for at in moments(relation):
        a, b = naive.rows_at(whole, 0, at), naive.rows_at(merged, 0, at)
        assert bool(a) == bool(b)
        if a:
            x, y = (
                naive.piece_value(r.ref[i], r.models["s"][i], at) for r, i in ((whole, a[0]), (merged, b[0]))
            )
            assert abs(x - y) <= 1e-4 * (1 + abs(x))
            assert whole.certainty[a[0]] == merged.certainty[b[0]]
            rows = present(relation, 0, (), merged, at)
            for chosen in choices(relation, rows):
                want = sum((naive.truth_at(relation, "x", row, at, share) for row in chosen), Fraction(0))
                number = len(chosen) if function == "avg" else 1
                assert abs(y - want / number) <= merged.err["s"][b[0]] * (1 + 1e-9) + 1e-4 * (1 + abs(x))


def many(keys: int, rows: int) -> Relation:
    rng = np.random.default_rng(1)
    length = rng.integers(500_000, 1_500_000, (keys, rows))
    ends = np.cumsum(length, axis=1)
    n = keys * rows
    return Relation(
        Columns((("k", pa.int64()),), ("x",)),
        (pa.array(np.arange(keys)),),
        np.arange(keys + 1) * rows,
        (EPOCH_US + ends - length).ravel(),
        np.zeros(n),
        (length / 1e6).ravel(),
        {"x": rng.normal(size=(n, 2))},
        {"x": np.full(n, 0.5)},
        {},
        np.full(n, CERTAIN, np.uint8),
    )


def test_many_keys_take_time_in_proportion_to_their_rows() -> None:
    Total("sum", "x", "s", ()).segments(many(4, 4))  # compiled
    seconds = []
    for keys in (16, 64):
        relation = many(keys, 100)
        begin = time.thread_time()  # not what others do at the time
        made = Total("sum", "x", "s", ()).segments(relation)
        seconds.append(time.thread_time() - begin)
        assert len(made) >= len(relation)
        row = len(made) // 2
        at = naive.instants_of(made, row)[1]
        want = sum(
            naive.piece_value(relation.ref[i], relation.models["x"][i], at)
            for g in range(keys)
            for i in naive.rows_at(relation, g, at)
        )
        assert abs(naive.piece_value(made.ref[row], made.models["s"][row], at) - want) < 1e-9
    assert seconds[1] < 4 * 8 * seconds[0] + 0.5

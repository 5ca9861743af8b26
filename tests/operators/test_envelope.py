"""Envelopes across keys, against the extremes of truths within the bounds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE
from pulse.operators.envelope import Envelope
from pulse.operators.regroup import columns_by
from pulse.operators.relation import Relation
from tests import naive
from tests.operators.contract import causes, check_contract
from tests.operators.test_filter import one_row, spans
from tests.strategies import relations


def present(relation: Relation, group: int, by: tuple[str, ...], made: Relation, at: Fraction) -> list[int]:
    """The rows of all keys of an output group at an instant; a point stands for its key alone there."""
    found = []
    for g in range(relation.groups):
        names = relation.columns.key_names
        if all(
            relation.keys[names.index(n)][g] == made.keys[i][group]
            for i, n in enumerate(made.columns.key_names)
        ):
            found += naive.rows_at(relation, g, at)[:1]
    return found


def code_of(relation: Relation, rows: list[int]) -> int:
    """Certain iff all are; likely where the model has any; possible where it has none."""
    codes = [int(relation.certainty[row]) for row in rows]
    return CERTAIN if min(codes) == CERTAIN else LIKELY if max(codes) >= LIKELY else POSSIBLE


def moments(relation: Relation) -> list[Fraction]:
    return sorted({at for row in range(len(relation)) for at in naive.instants_of(relation, row)[1:3]})[:12]


GROUPINGS = st.sampled_from([(), ("n",), ("k", "n")])


@given(relations(codes=(1, 2, 3, 3, 3), max_rows=3), st.sampled_from(["min", "max"]), GROUPINGS, st.data())
def test_the_envelope_keeps_every_truth(
    relation: Relation, function: str, by: tuple[str, ...], data: st.DataObject
) -> None:
    operator = Envelope(function, "x", "e", by)
    made = check_contract(
        operator, relation, columns_by(relation.columns, by, ("e",)), per_key=by == ("k", "n")
    )
    share = data.draw(st.lists(st.sampled_from(SHARES), min_size=len(relation), max_size=len(relation)))
    extreme = min if function == "min" else max
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
            want = extreme(naive.truth_at(relation, "x", row, at, share[row]) for row in model)
            best = extreme(naive.truth_at(relation, "x", row, at, Fraction(0)) for row in model)
            got = naive.piece_value(made.ref[found[0]], made.models["e"][found[0]], at)
            far = 1e-5 * bool(np.any(np.abs(relation.lo) > 1e6)) + 1e-9
            assert abs(got - best) <= far
            assert abs(got - want) <= made.err["e"][found[0]] * (1 + 1e-9) + far
            assert made.err["e"][found[0]] <= max(relation.err["x"]) * (1 + 1e-9) + far
            assert any(
                abs(naive.truth_at(relation, "x", row, at, Fraction(0)) - got) <= far
                for row in ids[found[0]]
                if row in rows
            )


SHARES = [Fraction(s, 2) for s in (-2, -1, 0, 2)]


@given(relations(max_rows=3), st.sampled_from(["min", "max"]))
def test_parts_merge_into_the_whole(relation: Relation, function: str) -> None:
    whole = Envelope(function, "x", "e", ()).segments(relation)
    parts = [
        Envelope(function, "x", "e", (), "partial").segments(relation.select_groups(np.array([g])))
        for g in range(relation.groups)
    ]
    if not parts:
        return
    together = Relation.concat(parts)
    merged = Envelope(function, "x", "e", (), "merge").segments(together)
    assert merged.columns == whole.columns
    for at in moments(relation):
        a, b = naive.rows_at(whole, 0, at), naive.rows_at(merged, 0, at)
        assert bool(a) == bool(b)
        if a:
            x, y = (
                naive.piece_value(r.ref[i], r.models["e"][i], at) for r, i in ((whole, a[0]), (merged, b[0]))
            )
            assert abs(x - y) <= 1e-5
            assert whole.certainty[a[0]] == merged.certainty[b[0]]


def beside(*rows: Relation) -> Relation:
    """Rows without a key as functions of an envelope."""
    return Relation.concat(list(rows))


def test_equal_models_tie_quietly() -> None:
    made = Envelope("min", "x", "e", ()).segments(beside(one_row([1.0, 2.0]), one_row([1.0, 2.0])))
    assert spans(made) == [(0.0, 4.0, CERTAIN)]


def test_the_bound_lies_between_the_inputs_bounds() -> None:
    # A sure one far below: the doubtful one above it does not matter.
    made = Envelope("min", "x", "e", ()).segments(beside(one_row([0.0], 0.1), one_row([9.0], 1.0)))
    assert made.err["e"] == pytest.approx([0.1])
    # Near it, it does: the truth may be as low as 0.5 - 1.
    made = Envelope("min", "x", "e", ()).segments(beside(one_row([0.0], 0.1), one_row([0.5], 1.0)))
    assert made.err["e"] == pytest.approx([0.5])


def test_doubt_is_confined_to_its_time() -> None:
    doubtful = replace(one_row([9.0], lo=1.0, hi=2.0), certainty=np.array([POSSIBLE], np.uint8))
    made = Envelope("min", "x", "e", ()).segments(beside(one_row([0.0]), doubtful))
    assert spans(made) == [(0.0, 1.0, CERTAIN), (1.0, 2.0, LIKELY), (2.0, 4.0, CERTAIN)]
    alone = replace(one_row([9.0], lo=3.0, hi=6.0), certainty=np.array([POSSIBLE], np.uint8))
    made = Envelope("min", "x", "e", ()).segments(beside(one_row([0.0]), alone))
    assert spans(made) == [(0.0, 3.0, CERTAIN), (3.0, 4.0, LIKELY), (4.0, 6.0, POSSIBLE)]

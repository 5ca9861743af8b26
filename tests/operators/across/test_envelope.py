"""Envelopes across keys, against the extremes of truths within the bounds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE
from pulse.operators.across.envelope import Envelope
from pulse.operators.data.grouping import columns_by
from pulse.operators.data.relation import Relation
from tests import naive
from tests.operators.contract import causes, check_contract
from tests.operators.relational.test_filter import one_row, spans
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
    """Certain where one is; likely where the model has any; possible where it has none."""
    return max(int(relation.certainty[row]) for row in rows)


def choices(relation: Relation, rows: list[int]) -> list[list[int]]:
    """Every set of rows that a truth may have: all certain ones, and any of the others, at least one in all."""
    sure = [row for row in rows if relation.certainty[row] == CERTAIN]
    others = [row for row in rows if relation.certainty[row] < CERTAIN]
    some = [list(chosen) for n in range(len(others) + 1) for chosen in combinations(others, n)]
    return [sure + chosen for chosen in some if sure or chosen]


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
            best = extreme(naive.truth_at(relation, "x", row, at, Fraction(0)) for row in model)
            got = naive.piece_value(made.ref[found[0]], made.models["e"][found[0]], at)
            far = 1e-5 * bool(np.any(np.abs(relation.lo) > 1e6)) + 1e-9
            assert abs(got - best) <= far
            for chosen in choices(relation, rows):
                want = extreme(naive.truth_at(relation, "x", row, at, share[row]) for row in chosen)
                assert abs(got - want) <= made.err["e"][found[0]] * (1 + 1e-9) + far
            if all(relation.certainty == CERTAIN):
                assert made.err["e"][found[0]] <= max(relation.err["x"]) * (1 + 1e-9) + 10 * far
            assert any(
                abs(naive.truth_at(relation, "x", row, at, Fraction(0)) - got) <= far
                for row in ids[found[0]]
                if row in rows
            )


SHARES = [Fraction(s, 2) for s in (-2, -1, 0, 2)]


@given(relations(codes=(1, 2, 3, 3), max_rows=3), st.sampled_from(["min", "max"]), st.sampled_from(SHARES))
def test_parts_merge_into_the_whole(relation: Relation, function: str, share: Fraction) -> None:
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
            assert whole.certainty[a[0]] == merged.certainty[b[0]]
            assert abs(x - y) <= 1e-5 or whole.certainty[a[0]] == POSSIBLE  # then it is any of them
            extreme = min if function == "min" else max
            for chosen in choices(relation, present(relation, 0, (), merged, at)):
                want = extreme(naive.truth_at(relation, "x", row, at, share) for row in chosen)
                assert abs(y - want) <= merged.err["e"][b[0]] * (1 + 1e-9) + 1e-5


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


@pytest.mark.parametrize("function", ["min", "max"])
@pytest.mark.parametrize("code", [CERTAIN, LIKELY, POSSIBLE])
@pytest.mark.parametrize("value", [8.3, -1e9 / 3, 0.1, 1e15 + 0.125])
def test_a_bound_below_the_last_place_of_its_value_is_not_lost(
    function: str, code: int, value: float
) -> None:
    # Half a unit in the last place, as the rounding of a sum is: added to the value it is rounded away.
    tiny = 0.49 * float(np.spacing(abs(value)))
    other = value + 5.0 if function == "min" else value - 5.0
    rows = beside(one_row([value], tiny), one_row([other], 0.0))
    rows = replace(rows, certainty=np.array([CERTAIN, code], np.uint8))
    made = Envelope(function, "x", "e", ()).segments(rows)
    assert made.models["e"][:, 0].tolist() == [value]
    assert (made.err["e"] >= tiny).all()
    assert (made.err["e"] <= 4 * np.spacing(abs(value))).all()


@pytest.mark.parametrize("function", ["min", "max"])
def test_distances_of_constants_are_rounded_outwards(function: str) -> None:
    sign = 1.0 if function == "max" else -1.0
    near, far, err = 0.1, -sign * 1e-17, sign * 0.3
    rows = beside(one_row([near], 0.0), one_row([far], abs(err)))
    made = Envelope(function, "x", "e", ()).segments(rows)
    # One truth has the second row as far out as its bound lets it.
    reach = Fraction(far) + Fraction(err)
    assert abs(reach - Fraction(float(made.models["e"][0, 0]))) <= Fraction(float(made.err["e"][0]))


def test_doubt_is_confined_to_its_time() -> None:
    doubtful = replace(one_row([9.0], lo=1.0, hi=2.0), certainty=np.array([POSSIBLE], np.uint8))
    made = Envelope("min", "x", "e", ()).segments(beside(one_row([0.0]), doubtful))
    # It is above: whether it takes part or not, the smallest is the other.
    assert spans(made) == [(0.0, 4.0, CERTAIN)]
    assert made.err["e"].tolist() == [0.0]
    made = Envelope("max", "x", "e", ()).segments(beside(one_row([0.0]), doubtful))
    assert spans(made) == [(0.0, 1.0, CERTAIN), (1.0, 2.0, CERTAIN), (2.0, 4.0, CERTAIN)]
    assert made.err["e"].tolist() == [0.0, 9.0, 0.0]
    alone = replace(one_row([9.0], lo=3.0, hi=6.0), certainty=np.array([POSSIBLE], np.uint8))
    made = Envelope("min", "x", "e", ()).segments(beside(one_row([0.0]), alone))
    assert spans(made) == [(0.0, 4.0, CERTAIN), (4.0, 6.0, POSSIBLE)]

"""Which rows lie together: where groups are whole, where pairs meet, and what an exchange keeps in place."""

from __future__ import annotations

import pytest

from pulse.operators.placement import ON_A_GRID, Placement, Placing

BOTH = Placement("S", (frozenset({"S.venue"}), frozenset({"S.symbol", "R.symbol"})))


@pytest.mark.parametrize(
    ("by", "held"),
    [
        (("S.venue", "S.symbol"), True),
        (("R.symbol", "S.venue", "S.size"), True),
        (("S.venue",), False),
        ((), False),
    ],
)
def test_a_group_is_whole_if_it_names_every_part(by: tuple[str, ...], held: bool) -> None:
    assert BOTH.holds(by) is held


def test_nothing_but_pairs_is_whole_on_a_grid() -> None:
    assert not ON_A_GRID.holds(("S.venue",))
    assert ON_A_GRID.joined(ON_A_GRID, (("a", "b"),)) is None
    assert ON_A_GRID.matching((("a", "b"),)) is None
    assert ON_A_GRID.positions(("a",)) is None


def test_pairs_meet_where_every_part_is_compared() -> None:
    left, right = Placement("S", (frozenset({"a"}),)), Placement("S", (frozenset({"b"}),))
    assert left.joined(right, (("a", "b"),)) == Placement("S", (frozenset({"a", "b"}),))
    assert left.joined(right, (("a", "c"),)) is None
    assert left.joined(Placement("R", right.parts), (("a", "b"),)) is None
    assert left.joined(Placement("S", (*(right.parts or ()), frozenset({"c"}))), (("a", "b"),)) is None


def test_only_exchanged_rows_are_matched_by_the_other_side() -> None:
    equal = (("a", "x"), ("b", "y"))
    assert Placement.exchanged(("b", "a")).matching(equal) == (("b", "y"), ("a", "x"))
    assert Placement.exchanged(("b", "c")).matching(equal) is None
    assert Placement.exchanged(()).matching(equal) is None
    assert Placement("S", (frozenset({"a"}),)).matching(equal) is None


def test_parts_are_compared_by_the_places_of_their_columns() -> None:
    assert BOTH.positions(("R.symbol", "S.venue", "S.symbol")) == (frozenset({1}), frozenset({0, 2}))


def test_streams_lie_by_their_own_keys_unless_all_are_partitioned_alike() -> None:
    assert Placing().layout("S", " as of version 2", ("k",)) == ("S as of version 2", ("k",))
    alike = Placing({"S": ("k",), "R": ("j",)})
    assert alike.layout("S", "", ("k", "l"))[0] == alike.layout("R", "", ("j",))[0]
    assert alike.layout("S", "", ("k", "l"))[1] == ("k",)

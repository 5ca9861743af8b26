from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.elements import ControlElement, Deletion, ElementKind, Insertion, Replacement, read_changelog
from pulse.core.errors import ElementError

values = st.integers()
changes = st.one_of(
    st.builds(lambda v: Insertion(position=0, new=v), values),
    st.builds(lambda v: Deletion(position=0, old=v), values),
    st.builds(lambda a, b: Replacement(position=0, old=a, new=b), values, values),
)


def test_codes_and_weights():
    assert {kind.value: kind.weight for kind in ElementKind} == {"+I": 1, "-D": -1, "-U": -1, "+U": 1}
    with pytest.raises(ElementError, match=r"expected one of \+I, -D, -U, \+U, got 'I'"):
        ElementKind.parse("I")


@given(st.lists(changes))
def test_a_changelog_round_trips(elements):
    rows = [(kind.value, value) for element in elements for kind, value in element.changes()]
    back = list(read_changelog(rows, start=5))
    assert [type(e)(**{**vars(e), "position": 0}) for e in back] == elements
    assert [e.position for e in back] == list(range(5, 5 + len(elements)))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("+I", 1), ("+U", 2)], "row 1: .U without"),
        ([("-U", 1), ("-U", 2)], "row 1: expected .U.*got -U"),
        ([("-U", 1), ("+I", 2)], "row 1: expected .U"),
        ([("-U", 1)], "ends after -U"),
        ([("-U", None), ("-D", None)], "row 1"),
        ([("?", 1)], "got '.'"),
    ],
)
def test_broken_changelogs_name_the_row(rows, message):
    with pytest.raises(ElementError, match=message):
        list(read_changelog(rows))


def test_control_comes_before_data_of_its_position():
    data = [Insertion(position=1, new="a"), Insertion(position=2, new="b"), Deletion(position=2, old="a")]
    control = ControlElement(position=2)
    assert sorted([*data, control], key=lambda e: e.order) == [data[0], control, data[1], data[2]]


def test_elements_are_immutable():
    with pytest.raises(AttributeError):
        Insertion(position=0, new=1).new = 2

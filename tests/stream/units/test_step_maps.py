"""Absences as step functions of time: the last accent in force decides."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.stream.accents.accents import Accent
from pulse.stream.descriptions.description import Description
from pulse.stream.units.step_maps import Absences, Alteration, absences_of

AT = np.array([0, 1, 4, 5, 9], np.int64)


def accents(*lines: tuple[int, str]) -> list[Accent]:
    return [Accent.parse(text, position=at) for at, text in lines]


def test_an_attribute_that_was_added_first_ends_with_its_drop() -> None:
    found = absences_of(accents((1, "[[true, add(x)]]"), (5, "[[true, drop(x)]]")), "t")
    assert found["x"].mask({}, AT).tolist() == [False, False, False, True, True]


def test_a_second_drop_needs_no_second_add() -> None:
    some = accents((1, "[[true, drop(x)]]"), (4, "[[true, drop(x)]]"), (5, "[[true, add(x)]]"))
    assert absences_of(some, "t")["x"].mask({}, AT).tolist() == [False, True, True, False, False]


def test_rows_and_times_of_a_description_limit_an_absence() -> None:
    where = Description.parse("s = 'a' and n < 3 and t < 5")
    found = Absences.of([Alteration(1, where, True)], time="t")
    columns = {"s": pa.array(["a", "a", "a", "a", "b"]), "n": pa.array([1, 1, 2, 1, 1])}
    assert found.mask(columns, AT).tolist() == [False, True, True, False, False]
    columns["n"] = pa.array([1, 3, None, 1, 1])
    assert found.mask(columns, AT).tolist() == [False] * 5

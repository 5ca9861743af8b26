"""Raw tuples undone: against rows that exact accents made one after the other."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.schema import StreamSchema
from pulse.operators.units.to_base_units import ToBaseUnits
from pulse.stream.accents.accents import Accent, AccentError, AlterData
from pulse.stream.accents.admissibility import UnsupportedAccentError
from pulse.stream.accents.log import AccentLog
from pulse.stream.units.affine import Affine
from pulse.stream.units.recorded_units import units_of_log
from tests.oracles.rows import altered

SCHEMA = StreamSchema.of(
    key={"k": "int64"},
    time="t",
    modelled={"a": "step", "b": "step"},
    unmodelled={"n": "int64", "v": "string"},
)
OTHER = ["venue"]
EARLY = 1_000_000


def table(rows):
    columns = {
        "k": pa.int64(), "t": pa.timestamp("us"), "a": pa.float64(), "b": pa.float64(), "n": pa.int64(),
        "v": pa.string(), "venue": pa.string(),
    }  # fmt: skip
    return pa.RecordBatch.from_arrays(
        [pa.array([row.get(name) for row in rows], type_) for name, type_ in columns.items()], list(columns)
    )


def undone(log, rows):
    left = []
    found = ToBaseUnits(units_of_log(log, SCHEMA), SCHEMA).by_time(
        table(rows), lambda rows, why, keep: left.append((rows.num_rows, why, keep))
    )
    return found.to_pylist(), left


def checked(*accents):
    return AccentLog.of(accents).checked(SCHEMA, OTHER, raw=True)


MAPS = st.sampled_from([Affine(2), Affine("1/4"), Affine(1, 3), Affine(4, -8), Affine(1, "-1/2")])
WHOLE = st.sampled_from([Affine(2), Affine(1, 3), Affine(4, -8)])
REPORTED = {
    "a": st.sampled_from(["a < 5", "a >= 2 and a < 9", "a != 3"]),
    "b": st.sampled_from(["b < 4", "b > 1"]),
    "n": st.sampled_from(["n >= 2", "n = 1"]),
    "k": st.sampled_from(["k = 1", "k > 1"]),
    "venue": st.sampled_from(["venue = 'N'", "venue != 'N'"]),
    "v": st.sampled_from(["v = 'x'", "v is null"]),
}


@st.composite
def accents(draw):
    found = []
    for i in range(draw(st.integers(0, 5))):
        name = draw(st.sampled_from(["a", "b", "n", "k"]))
        about = draw(st.lists(st.sampled_from(sorted(set(REPORTED) - {name})), max_size=2, unique=True))
        reported = " and ".join(draw(REPORTED[one]) for one in about) or "true"
        map = draw(WHOLE if name in ("n", "k") else MAPS)
        found.append(Accent.of(reported, AlterData(name, map), position=(i + 1) * EARLY))
    return found


ROWS = st.fixed_dictionaries(
    {
        "t": st.integers(0, 6 * EARLY),
        "k": st.integers(1, 3),
        "a": st.integers(-8, 40).map(lambda n: n / 4),
        "b": st.integers(-8, 40).map(lambda n: n / 4),
        "n": st.integers(0, 4),
        "v": st.sampled_from(["x", "y", None]),
        "venue": st.sampled_from(["N", "Q"]),
    }
)


def recorded(row, some):
    """What a row of first units is recorded as: each accent before it in turn."""
    now = {name: value for name, value in row.items() if value is not None}
    for one in some:
        if one.position <= row["t"]:
            now = altered(one, now)
    return {name: float(v) if isinstance(v, Fraction) and name in "ab" else int(v) if isinstance(v, Fraction) else v
            for name, v in now.items()}  # fmt: skip


@given(accents(), st.lists(ROWS, min_size=1, max_size=6))
def test_every_tuple_is_undone_by_its_own_values_in_the_units_in_force(some, rows):
    log = checked(*some)
    found, left = undone(log, [recorded(row, some) for row in rows])
    assert not left
    for row, back in zip(rows, found, strict=True):
        assert [back[name] for name in ("k", "a", "b", "n", "v")] == [
            row[name] for name in ("k", "a", "b", "n", "v")
        ]


def test_a_threshold_is_compared_exactly_in_recorded_units():
    """a < 1/3 at first, a then thrice that: recorded values are compared with 1, not thirds of them with 1/3."""
    some = [
        Accent.of("a < 1/3", AlterData("b", Affine(2)), position=EARLY),
        Accent.of("true", AlterData("a", Affine(3)), position=2 * EARLY),
    ]
    below = float(np.nextafter(1.0, 0.0))
    rows = [{"t": 3 * EARLY, "k": 1, "n": 0, "a": a, "b": 8.0} for a in (1.0, below)]
    assert [row["b"] for row in undone(checked(*some), rows)[0]] == [8.0, 4.0]


def test_times_are_undone_first_and_instants_of_the_log_are_of_the_start():
    later = Accent.parse("[[k = 1, alter(t, y + 10000000)]]", position=EARLY)
    split = Accent.parse("[[true, alter(a, y / 4)]]", position=2 * EARLY)
    rows = [
        {"t": EARLY - 1, "k": 1, "n": 0, "a": 4.0, "b": 0.0},
        {"t": 11 * EARLY, "k": 1, "n": 0, "a": 4.0, "b": 0.0},
        {"t": 12 * EARLY, "k": 1, "n": 0, "a": 1.0, "b": 0.0},
        {"t": 2 * EARLY, "k": 2, "n": 0, "a": 1.0, "b": 0.0},
        {"t": 5 * EARLY, "k": 1, "n": 0, "a": 1.0, "b": 0.0},
    ]
    found, left = undone(checked(later, split), rows)
    assert [pa.scalar(row["t"], pa.timestamp("us")).value for row in found] == [
        EARLY - 1,
        EARLY,
        2 * EARLY,
        2 * EARLY,
    ]
    assert [row["a"] for row in found] == [4.0] * 4
    assert left == [(1, "no instant maps to this time", True)]


def test_times_that_two_epochs_recorded_are_refused():
    back = Accent.parse("[[true, alter(t, y - 3600000000)]]", position=EARLY)
    with pytest.raises(AccentError, match="may be of before and after it"):
        units_of_log(checked(back), SCHEMA)


def test_times_altered_by_what_is_altered_are_refused():
    some = [
        Accent.parse("[[true, alter(n, y + 1)]]", position=EARLY),
        Accent.parse("[[n = 2, alter(t, y + 1)]]", position=EARLY),
    ]
    with pytest.raises(UnsupportedAccentError, match="refers to 'n', which is altered as well"):
        units_of_log(checked(*some), SCHEMA)


def test_tuples_without_a_key_or_the_time_are_left_out_and_those_without_a_modelled_attribute_counted():
    some = [
        Accent.parse("[[true, add(b)]]", position=EARLY),
        Accent.parse("[[v = 'x', drop(k)]]", position=2 * EARLY),
        Accent.parse("[[true, drop(t)]]", position=4 * EARLY),
    ]
    rows = [
        {"t": 0, "k": 1, "a": 1.0, "n": 0},
        {"t": EARLY, "k": 1, "a": 1.0, "b": 2.0, "n": 0},
        {"t": 2 * EARLY, "a": 1.0, "b": 2.0, "n": 0, "v": "x"},
        {"t": 3 * EARLY, "k": 1, "a": 1.0, "b": 2.0, "n": 0, "v": "y"},
        {"k": 1, "a": 1.0, "b": 2.0, "n": 0},
    ]
    found, left = undone(checked(*some), rows)
    assert [row["t"].second for row in found] == [1, 3]
    assert sorted(left) == [
        (1, "without 'b', by accents", False), (1, "without 'k', by accents", True), (1, "without 't', by accents", True),
    ]  # fmt: skip


def test_a_whole_number_that_undoes_to_none_is_left_out():
    found, left = undone(
        checked(Accent.parse("[[true, alter(k, y * 2)]]", position=EARLY)),
        [{"t": EARLY, "k": k, "a": 1.0, "b": 2.0, "n": 0} for k in (3, 4)],
    )
    assert [row["k"] for row in found] == [2]
    assert left == [(1, "not a whole number in base units", True)]


def test_only_numbers_can_be_altered():
    with pytest.raises(AccentError, match="'v' is an unmodelled attribute, string; expected numbers"):
        checked(Accent.parse("[[true, alter(v, y + 1)]]"))


@given(accents(), ROWS)
def test_what_segments_tell_is_in_a_unit_that_the_row_has_been_in(some, row):
    """A scan passes what keys, times and unmodelled attributes of the start can say; what it holds stays in older units."""
    now = {name: value for name, value in row.items() if value is not None}
    shown, been = dict(now), {name: {now[name]} for name in "ab"}
    for one in some:
        now = altered(one, now)
        been = {name: been[name] | {now[name]} for name in "ab"}
    details = checked(*some).for_segments(SCHEMA)
    for one in details.accents:
        assert one.attribute in "ab"
        assert one.description.attributes <= {"k", "n", "v", "t"}
        shown = altered(one, shown)
    assert all(shown[name] in been[name] for name in "ab")
    if not checked(*some).needs_tuples(SCHEMA):
        assert {name: shown[name] for name in "ab"} == {name: now[name] for name in "ab"}

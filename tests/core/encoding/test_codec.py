"""State as data: what is written is read back equal, of expected types only; whatever else the bytes hold is refused in words."""

from __future__ import annotations

import datetime
import json
import math
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.encoding.codec import StateEncodingError, decode, encode
from pulse.core.encoding.types import Registered, form_of
from tests.core.encoding.encoded import comparable, parts_of, put_together
from tests.fuzz.harness import answer


@dataclass(frozen=True)
class Name:
    text: str


@dataclass
class Seen:
    name: Name
    times: tuple[int, ...]
    kind: Literal["a", "b"] = "a"
    cached: int = field(default=3)

    def __post_init__(self) -> None:
        if len(self.times) > 3:
            raise ValueError("more than three times")


class Pair(NamedTuple):
    left: Seen | Name | None
    right: dict[str, float]


def unfolded(one: Any) -> Any:
    return one.replace(fold=0)


def table_of(rows: list[tuple[int, str | None]]) -> pa.Table:
    return pa.table(
        {"a": pa.array([a for a, _ in rows], pa.int64()), "b": pa.array([b for _, b in rows], pa.string())}
    )


REGISTRY = (
    Registered("name", Name, shared=True),
    Registered("seen", Seen, without=("cached",)),
    Registered("pair", Pair),
)
SMALL = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=5)
RANGES = st.tuples(SMALL, SMALL)
KEYS = (
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(max_size=4)
    | st.fractions() | st.decimals(allow_nan=False) | st.dates() | st.timedeltas() | st.times().map(unfolded)
    | st.datetimes().map(unfolded) | st.datetimes(timezones=st.just(ZoneInfo("UTC"))).map(unfolded)
    | st.integers(0, 2**60).map(lambda ns: pd.Timestamp(ns, unit="ns"))
    | st.integers(0, 2**60).map(lambda ns: pd.Timestamp(ns, unit="ns", tz="Europe/Athens"))
    | st.integers(0, 2**60).map(lambda ns: pd.Timedelta(ns, unit="ns"))
)  # fmt: skip
SEEN = st.builds(Seen, st.builds(Name, TEXTS), st.lists(SMALL, max_size=3).map(tuple), st.sampled_from("ab"))
CASES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, SMALL),
    (list[int], st.lists(SMALL, min_size=60, max_size=70)),
    (list[float], st.lists(st.floats(), max_size=70)),
    (list[bool], st.lists(st.booleans())),
    (bytes, st.binary()),
    (tuple[int | Fraction, ...], st.lists(st.integers() | st.fractions().filter(lambda x: x.denominator > 1)).map(tuple)),
    (frozenset[str | bool], st.frozensets(TEXTS | st.booleans())),
    (set[int], st.sets(SMALL)),
    (tuple[object, ...], st.lists(KEYS).map(tuple)),
    (dict[tuple[object, ...], list[tuple[int, int]]], st.dictionaries(st.tuples(TEXTS, SMALL), st.lists(RANGES))),
    (dict[str, dict[str, int | None]], st.dictionaries(TEXTS, st.dictionaries(TEXTS, st.none() | SMALL))),
    (list[Seen], st.lists(SEEN)),
    (list[Pair], st.lists(st.builds(Pair, st.none() | SEEN | st.builds(Name, TEXTS), st.dictionaries(TEXTS, st.floats())))),
    (list[FloatArray], st.lists(st.lists(st.floats(), max_size=4).map(np.array).map(lambda x: x.astype(float)))),
    (IntArray, st.lists(st.tuples(SMALL, SMALL), min_size=1).map(lambda x: np.array(x, np.int64))),
    (BoolArray, st.lists(st.booleans()).map(lambda x: np.array(x, bool))),
    (list[pa.Array], st.lists(st.lists(st.none() | TEXTS).map(lambda x: pa.array(x, pa.string())))),
    (pa.Table, st.lists(st.tuples(SMALL, st.none() | TEXTS)).map(lambda rows: table_of(rows))),
]  # fmt: skip
FORMS = [form_of(str(hint), hint, REGISTRY) for hint, _ in CASES]


@pytest.mark.parametrize("case", range(len(CASES)), ids=[str(hint) for hint, _ in CASES])
@given(data=st.data())
def test_what_is_written_is_read_back(case: int, data: st.DataObject) -> None:
    value = data.draw(CASES[case][1])
    again = decode(FORMS[case], encode(FORMS[case], value))
    assert comparable(again) == comparable(value)
    assert encode(FORMS[case], again) == encode(FORMS[case], value)


def test_shared_values_are_written_once_and_are_one_again() -> None:
    form = form_of("names", list[Seen], REGISTRY)
    name = Name("x" * 1000)
    data = encode(form, [Seen(name, (i,)) for i in range(100)])
    assert len(data) < 10_000
    again = decode(form, data)
    assert all(one.name is again[0].name for one in again)


def test_one_arrow_array_is_written_once_and_arrays_are_read_only() -> None:
    form = form_of("arrays", tuple[list[pa.Array], FloatArray], ())
    array = pa.array(range(1000))
    data = encode(form, ([array] * 10, np.arange(3.0)))
    assert len(data) < 20_000
    arrays, numbers = decode(form, data)
    assert all(one is arrays[0] for one in arrays)
    with pytest.raises(ValueError, match="read-only"):
        numbers[0] = 1.0


def test_a_slice_is_written_without_the_rest() -> None:
    form = form_of("array", pa.Array, ())
    data = encode(form, pa.array(range(100_000)).slice(5, 3))
    assert decode(form, data).to_pylist() == [5, 6, 7]
    assert len(data) < 2_000


def test_values_that_keys_do_not_have_are_an_error_where_they_are_written() -> None:
    with pytest.raises(TypeError, match="expected a plain value"):
        encode(form_of("key", tuple[object, ...], ()), (object(),))
    with pytest.raises(TypeError, match="64 bits"):
        encode(form_of("number", int, ()), 1 << 63)
    with pytest.raises(TypeError, match="array of int64"):
        encode(form_of("numbers", IntArray, ()), np.array([0.5]))


def test_only_registered_classes_have_a_form() -> None:
    for hint in (Seen, list[Any], dict[str, Exception], type, Decimal | None):
        with pytest.raises(TypeError, match="not registered"):
            form_of("x", hint, ())


# -- what is refused ------------------------------------------------------------------------------------------

SOUND = form_of("pairs", list[Pair], REGISTRY)
STATE = [Pair(Seen(Name("a"), (1, 2)), {"x": 0.5}), Pair(Name("b"), {}), Pair(None, {"y": math.inf})]


def changed(path: tuple[Any, ...], value: Any) -> bytes:
    """The state's bytes with one entry of their tree exchanged."""
    details, buffers = parts_of(encode(SOUND, STATE))
    at = details
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return put_together(details, buffers)


def paths(tree: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    own = (
        list(tree.items())
        if isinstance(tree, dict)
        else list(enumerate(tree))
        if isinstance(tree, list)
        else []
    )
    return [path for step, one in own for path in [(*before, step), *paths(one, (*before, step))]]


PATHS = paths(parts_of(encode(SOUND, STATE))[0])
ODD = [None, True, -1, 0, 7, 1 << 70, 0.5, "", "a", [], [[]], {}, {"a": 1}, [None, None, None], "os.system"]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_no_entry_of_the_tree_can_be_anything(value: Any) -> None:
    """Each place in turn: what comes of it is a value of the form, or a refusal that names the place and what to do."""
    for path in PATHS:
        found = answer(decode, SOUND, changed(path, value))
        if isinstance(found, StateEncodingError):
            assert "checkpoint" in str(found)
            continue
        assert all(type(one) is Pair and type(one.left) in (Seen, Name, type(None)) for one in found)
        assert encode(SOUND, found)


def test_refusals_name_the_place_and_what_was_expected() -> None:
    form = form_of("seen", Seen, REGISTRY)
    details, buffers = parts_of(encode(form, Seen(Name("a"), (1, 2))))
    good = json.dumps(details)
    for old, new, reported in [
        ('"state": [[0], [2, null, [1, 2]]', '"state": [[1], [2, null, [1, 2]]', r"at seen\.name: expected one of 1 of name"),
        ("[1, 2]", '[1, "2"]', r"at seen\.times\[\]: expected int, got '2'"),
        ("[2, null, [1, 2]]", "[3, null, [1, 2]]", r"at seen\.times\[\]: expected 3 entries, got 2"),
        ("[2, null, [1, 2]]", "[4, null, [1, 2, 3, 4]]", r"consistent fields of seen 1, got 'more than three times'"),
        ('["a"]]}', '["c"]]}', r"at seen\.kind: expected one of 'a', 'b', got 'c'"),
    ]:  # fmt: skip
        assert old in good, (old, good)
        with pytest.raises(StateEncodingError, match=reported):
            decode(form, put_together(json.loads(good.replace(old, new)), buffers))


@given(data=st.data())
def test_bytes_that_were_changed_are_values_or_refused(data: st.DataObject) -> None:
    form = form_of("all", tuple[list[Pair], pa.Table, FloatArray, dict[tuple[object, ...], int]], REGISTRY)
    table = pa.table(
        {"a": pa.array([1, None]), "b": pa.array(["x", "yy"]), "c": pa.array(["p", "p"]).dictionary_encode()}
    )
    good = bytearray(encode(form, (STATE, table, np.ones((2, 3)), {("a", 1): 2, (None, 3): 4})))  # fmt: skip
    for _ in range(data.draw(st.integers(1, 8))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    found = answer(decode, form, bytes(good))
    if not isinstance(found, StateEncodingError):
        found[1].validate(full=True)
        assert found[2].dtype == np.float64


@pytest.mark.parametrize("span", [datetime.timedelta.min, datetime.timedelta.max, datetime.timedelta(0)])
def test_the_longest_spans_of_time_are_keys(span: datetime.timedelta) -> None:
    form = form_of("spans", tuple[object, ...], REGISTRY)
    assert decode(form, encode(form, (span,))) == (span,)

"""Small texts that users write: durations, bounds, instants, types, options, accents and what they describe."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.commands import options
from pulse.core.arrow_types import parse_type
from pulse.core.bounds import ErrorBound
from pulse.core.schema import StreamSchema
from pulse.core.time import parse_duration, parse_instant
from pulse.datasets.splits import split_ratio
from pulse.stream.accents.accents import Accent, control_from_json
from pulse.stream.accents.log import AccentLog
from pulse.stream.accents.policy import Policy
from pulse.stream.descriptions.json import description_from_json
from pulse.stream.descriptions.text import parse_description
from pulse.stream.units.affine import Affine
from tests.fuzz.harness import NASTY, answer, damaged_text, damaged_tree, json_values

DURATIONS = ("10", "5 min", "1.5 h", "250 ms", "1e3 us", ".5s")
BOUNDS = ("0.01", "0.05%", "0.05% or 0.001", "1e-3 % OR 2")
INSTANTS = ("2013-10-07", "2013-10-07 10:00", "2013-10-07T10:00:00.5+02:00", "20131007T100000Z")
TYPES = (
    "int64",
    "timestamp[us, tz=UTC]",
    "decimal128(10, 2)",
    "dictionary<values=string, indices=int32>",
    "list<item: double>",
)
RATIOS = ("4:1", "1 for 10", "3/2", "1.5")
MAPS = ("y / 4", "y * 9/5 + 32", "(y - 32) * 5/9", "-y", "2 * (y + 1)")
DESCRIPTIONS = (
    "symbol = 'AIG' and t >= '2013-10-08'",
    "not (s in (1, 2, 5/9) or x between 1 and 2) and y is not null",
    "a.b != 'it''s' ∨ ¬(\"odd name\" <= 1e3)",
)
ACCENTS = (
    "[[symbol = 'AIG', alter(price, y / 4, y * 4)]]",
    "[[true, add(size)]]",
    "[[t < '2013-10-08', drop(price)]]",
    "[[symbol = 'AIG']]",
)
LINES = (
    "2013-10-08 [[symbol = 'AIG', alter(price, y / 4)]]\n# remark\n2013-10-09 [[true, drop(price)]]",
    '{"at": "2013-10-08", "description": "symbol = \'AIG\'", "primitive": "alter", "attribute": "price", "alpha": "y / 4"}',
)
READERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "duration": (parse_duration, DURATIONS),
    "bound": (ErrorBound.parse, BOUNDS),
    "instant": (parse_instant, INSTANTS),
    "type": (parse_type, TYPES),
    "ratio": (split_ratio, RATIOS),
    "map": (Affine.parse, MAPS),
    "description": (parse_description, DESCRIPTIONS),
    "accent": (Accent.parse, ACCENTS),
    "policy": (Policy.of, ("evolve", "alter=ignore,add=exception")),
}
SCHEMA = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step", "size": "step"})


@pytest.mark.parametrize("what", READERS)
@given(data=st.data())
def test_a_text_is_read_or_refused(what: str, data: st.DataObject) -> None:
    reader, good = READERS[what]
    answer(reader, data.draw(st.one_of(damaged_text(*good), st.text(max_size=30))))


@pytest.mark.parametrize("what", READERS)
def test_what_nobody_expects_is_read_or_refused(what: str) -> None:
    reader, good = READERS[what]
    for nasty in NASTY:
        answer(reader, nasty)
        for text in good:
            middle = len(text) // 2
            answer(reader, text + nasty)
            answer(reader, nasty + text)
            answer(reader, text[:middle] + nasty + text[middle:])


@given(damaged_text(*LINES))
def test_a_log_of_accents_is_read_or_refused(text: str) -> None:
    log = answer(AccentLog.parse, text.splitlines(), times=["t"])
    if isinstance(log, AccentLog):
        checked = answer(log.checked, SCHEMA)
        if isinstance(checked, AccentLog):
            answer(AccentLog.from_json, json.loads(json.dumps(checked.to_json())))


@given(damaged_tree(AccentLog.parse(LINES[0].splitlines()).to_json()))
def test_a_log_of_accents_in_json_is_read_or_refused(tree: Any) -> None:
    answer(AccentLog.from_json, tree)


@given(json_values)
def test_json_that_is_no_accent_is_refused(tree: Any) -> None:
    answer(control_from_json, tree)
    answer(description_from_json, tree)
    answer(AccentLog.from_json, tree)
    answer(Policy.of, tree)


@given(
    damaged_tree(
        [{"symbol": {"strings": ["AIG"]}, "t": {"numbers": [[None, False, 5, False]], "null": True}}]
    )
)
def test_a_description_in_json_is_read_or_refused(tree: Any) -> None:
    answer(description_from_json, tree)


OPTIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "models": (options.models, ("x:linear,y:linear", "price:step")),
    "knobs": (options.knobs, ("symbols=300", "rate=1e3")),
    "streams": (options.streams, ("S=prices",)),
    "since": (options.since, ("3", "S=3", "2013-10-07")),
    "accents": (options.accents, ("S=splits.log",)),
    "policies": (options.policies, ("alter=ignore", "S=alter=ignore")),
    "parameters": (options.parameters, ("short=10", "at='2013-10-07'")),
    "axes": (options.axes, ("short=5,10", "long=0.1:0.3:0.1", "x=30:300:30")),
}


@pytest.mark.parametrize("what", OPTIONS)
@given(data=st.data())
def test_an_option_is_read_or_refused(what: str, data: st.DataObject) -> None:
    reader, good = OPTIONS[what]
    answer(reader, [data.draw(damaged_text(*good))])


@pytest.mark.parametrize("what", OPTIONS)
def test_an_option_that_nobody_expects_is_read_or_refused(what: str) -> None:
    reader, good = OPTIONS[what]
    for nasty in NASTY:
        answer(reader, [nasty])
        for text in good:
            answer(reader, [text + nasty])
            answer(reader, [text.replace("1", nasty).replace("3", nasty)])

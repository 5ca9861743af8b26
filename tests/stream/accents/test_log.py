"""Accent logs: what is read, and what is refused with line, expectation and what came."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from pulse.core.schema import StreamSchema
from pulse.core.time import parse_instant
from pulse.stream.accents.accents import AccentError, Punctuation
from pulse.stream.accents.admissibility import UnsupportedAccentError
from pulse.stream.accents.log import AccentLog
from pulse.stream.accents.policy import Policy

SCHEMA = StreamSchema.of(
    key={"symbol": "string", "n": pa.int64()},
    time="t",
    modelled={"price": "step", "size": "step"},
    unmodelled={"venue": "string"},
)
SPLIT = "2013-10-08 [[symbol = 'AIG', alter(price, y / 4, y * 4)]]"


def read(*lines):
    return AccentLog.parse(lines, times=["t"])


def test_lines_of_text_and_of_json_say_the_same(tmp_path):
    reported = {
        "at": "2013-10-08",
        "description": "symbol = 'AIG'",
        "primitive": "alter",
        "attribute": "price",
        "alpha": "y / 4",
    }
    file = tmp_path / "log.jsonl"
    file.write_text(f"# splits\n\n{json.dumps(reported)}\n", encoding="utf-8")
    assert AccentLog.read(file, times=["t"]) == read(SPLIT)
    file.write_text(file.read_text(encoding="utf-8"), encoding="utf-8-sig")  # as some editors save it
    assert AccentLog.read(file, times=["t"]) == read(SPLIT)


def test_order_is_by_instant_and_among_equal_ones_by_line():
    log = read(
        "2013-10-09 [[true, drop(venue)]]",
        "2013-10-08T09:30 [[n = 1, add(p)]]",
        "2013-10-08T09:30 [n = 2]",
        SPLIT,
    )
    assert [line.rpartition(" ")[2] for line in log.lines] == ["4", "2", "3", "1"]
    assert isinstance(log.controls[2], Punctuation)


def test_json_holds_all_of_it(tmp_path):
    log = read(SPLIT, "2013-10-09 [[n >= 1/3 and venue is null, alter(size, y * 3/2)]]").checked(
        SCHEMA, ["extra"]
    )
    back = AccentLog.from_json(json.loads(json.dumps(log.to_json())))
    assert back == log
    (tmp_path / "a.json").write_text(json.dumps(log.to_json()), encoding="utf-8")
    assert AccentLog.read(tmp_path / "a.json") == log


def test_what_the_instant_says_of_the_time_is_left_out():
    log = read("2013-10-08 [[t >= '2013-10-08' and symbol = 'AIG', alter(price, y / 4)]]").checked(SCHEMA)
    assert log.accents[0] == read(SPLIT).accents[0]
    later = read("2013-10-08 [[t >= '2013-10-09', alter(price, y / 4)]]").checked(SCHEMA)
    assert later.accents[0].description.attributes == {"t"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("symbol = 'AIG'", "accents, line 1: expected an instant and an accent"),
        ("[[true, drop(p)]]", "expected an instant and an accent"),
        ("tomorrow [[true, drop(p)]]", "expected an instant such as 2013-10-08T09:30:00, got 'tomorrow'"),
        ("2013-10-08 [[true]]", "expected a description, a comma and a primitive"),
        ("2013-10-08 [[true, alter(price, y * y)]]", "expected an expression affine in y"),
        ("2013-10-08 [[true, alter(price, -y)]]", "expected an increasing one"),
        ("2013-10-08 [[true, alter(price, y * 4, y * 4)]]", "expected beta to be the inverse"),
        ("2013-10-08 [[price > 3, alter(price, y * 4)]]", "does not mention 'price'"),
        ('{"at": "2013-10-08"', "expected an object of JSON"),
        ('{"description": "true"}', "expected an object with the instant 'at'"),
        (
            '{"at": "2013-10-08", "primitive": "halve"}',
            "expected a text or an object with 'primitive' one of",
        ),
    ],
)
def test_malformed_lines_are_named(line, words):
    with pytest.raises(AccentError, match="line 1: ") as caught:
        read(line)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["2013-10-08 [[true, alter(prize, y * 4)]]"], "line 1: .*got 'prize', which is not an attribute of the stream"),
        (["2013-10-08 [[sym = 'A', alter(price, y * 4)]]"], "line 1: .*refers to 'sym', which is not an"),
        (["2013-10-08 [[symbol = 'A', add(size2)]]", "2013-10-09 [[true, add(size2)]]"], "line 2: .*already exists"),
        (["2013-10-08 [[symbol = 5, alter(price, y * 4)]]"], "'symbol' is string, expected a string, got a number"),
        (["2013-10-08 [[n = 'x', alter(price, y * 4)]]"], "'n' is int64, expected a number, got a string"),
        ([SPLIT, SPLIT], "line 2: .*is the same as accents, line 1"),
        ([SPLIT, "2013-10-08 [[symbol in ('AIG', 'B'), alter(price, y / 2)]]"], "line 2: .*contradicts accents, line 1"),
        ([SPLIT, "2013-10-08 [[true, alter(price, y / 2)]]"], "line 2: .*contradicts accents, line 1"),
        (["2013-10-08 [[true, alter(price, y / 2)]]", SPLIT], "line 2: .*contradicts accents, line 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_stream_is_named(lines, words):
    with pytest.raises(AccentError, match=words):
        read(*lines).checked(SCHEMA)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "2013-10-08 [[size > 5, alter(price, y * 4)]]",
            "refers to 'size', which is modelled.*fit --accents",
        ),
        ("2013-10-08 [[true, alter(n, y * 4)]]", "'n' is a key; in segments only modelled .*fit --accents"),
        ("2013-10-08 [[true, drop(symbol)]]", "'symbol' is a key of the model"),
        (
            "2013-10-08 [[true, alter(price, y + 5, y - 5, per size)]]",
            "expected a map of 'price' alone, got one per 'size'",
        ),
    ],
)
def test_what_segments_cannot_follow_is_reported(line, words):
    with pytest.raises(UnsupportedAccentError, match=f"line 1: .*{words}"):
        read(line).checked(SCHEMA)


def test_attributes_of_the_data_that_the_model_lacks_are_no_error():
    log = read("2013-10-08 [[true, alter(bid, y / 2)]]")
    assert log.checked(SCHEMA, ["bid"]).attributes[-1] == "bid"
    with pytest.raises(AccentError, match="got 'bid'"):
        log.checked(SCHEMA)


def test_other_instants_and_other_rows_are_no_contradiction():
    others = [SPLIT.replace(*one) for one in (("AIG", "IBM"), ("10-08", "10-09"), ("price", "size"))]
    assert len(read(SPLIT, *others).checked(SCHEMA)) == 4


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(AccentError, match="no such accent file"):
        AccentLog.read(tmp_path / "none")
    (tmp_path / "x.json").write_text("{", encoding="utf-8")
    with pytest.raises(AccentError, match="expected JSON"):
        AccentLog.read(tmp_path / "x.json")
    (tmp_path / "y").write_bytes(b"\xff\xfe")
    with pytest.raises(AccentError, match="expected a text file"):
        AccentLog.read(tmp_path / "y")


def test_steps_by_attribute():
    steps = read(SPLIT, SPLIT.replace("price, y / 4, y * 4", "size, y * 4")).checked(SCHEMA).steps("t")
    assert set(steps) == {"price", "size"}
    assert steps["price"].alterations[0].at == parse_instant("2013-10-08")


def test_policies():
    log = read(SPLIT, "2013-10-09 [[true, add(p)]]")
    policy = Policy.of({"alter": "ignore"})
    assert len(log.evolving(policy)) == len(log.ignored(policy)) == 1
    assert Policy.of("exception") == Policy("exception", "exception", "exception")
    assert Policy.of(None) == Policy() == Policy.of(Policy())
    for bad in ("often", "alter=often", "halve=ignore"):
        with pytest.raises(AccentError, match="policy: expected one of"):
            Policy.of(bad)

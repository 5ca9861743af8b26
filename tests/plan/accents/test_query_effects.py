"""What queries do with accents, before any data: passed, held, absorbed, aborted, operator by operator."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.expression import Arithmetic, Column, Constant, Function, Negative
from pulse.core.schema import StreamSchema
from pulse.core.time import parse_instant
from pulse.kernels.pieces.step_maps import apply_steps
from pulse.language import parse
from pulse.operators.accent_handling import SlidingHandling
from pulse.operators.expressions.affine_image import affine_image
from pulse.plan.accents.query_effects import accented
from pulse.stream.accents.log import AccentLog
from pulse.stream.accents.policy import Policy
from pulse.stream.descriptions.description import Domain
from pulse.stream.descriptions.value_sets import DEFINED, ValueSet
from pulse.stream.units.affine import Affine
from pulse.stream.units.step_maps import Steps
from tests.effort import examples

SCHEMA = StreamSchema.of(
    key={"symbol": "string"},
    time="t",
    modelled={"price": "step", "size": "step"},
    unmodelled={"venue": "string"},
)
POINTS = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "samples"}, points=True)
SPLIT = "2013-10-08 [[symbol = 'A', alter(price, y / 4)]]"
CELSIUS = "2013-10-08 [[true, alter(price, (y - 32) * 5/9)]]"


def run(query, *lines, schema=SCHEMA, other=(), **asked):
    streams = {"S": schema, "R": SCHEMA}
    plan = parse(query, streams, ()).bind({}).plan
    logs = {"S": AccentLog.parse(lines, times=["t"]).checked(schema)}
    if other:
        logs["R"] = AccentLog.parse(other, times=["t"]).checked(SCHEMA)
    return accented(plan, logs, trace=True, **asked)


def reported(found):
    return [str(one) for one in found.passed]


@pytest.mark.parametrize(
    ("query", "line", "out"),
    [
        ("select * from S where price > 100", SPLIT, ["[[symbol = 'A', alter(price, y / 4, y * 4)]]"]),
        ("select symbol, price * 2 + 1 as p from S", SPLIT, ["[[symbol = 'A', alter(p, (y + 3) / 4, y * 4 - 3)]]"]),
        ("select symbol, price * size as cost from S", SPLIT, ["[[symbol = 'A', alter(cost, y / 4, y * 4)]]"]),
        ("select symbol, price as p, size as s from S", SPLIT, ["[[symbol = 'A', alter(p, y / 4, y * 4)]]"]),
        ("select symbol, size from S", SPLIT, []),
        ("select symbol, price * price as p from S", CELSIUS, []),
        ("select symbol, sum(price) as s from S[size 60 advance 10]", CELSIUS,
         ["[[true, alter(s, (y - 1920) * 5/9, y * 9/5 + 1920)]]"]),
        ("select symbol, max(price) as s from S[size 60 advance 10]", CELSIUS,
         ["[[true, alter(s, (y - 32) * 5/9, y * 9/5 + 32)]]"]),
        ("select max(price) as s from S", CELSIUS, ["[[true, alter(s, (y - 32) * 5/9, y * 9/5 + 32)]]"]),
        ("select sum(price) as s from S", CELSIUS, []),
        ("select sum(price) as s from S", "2013-10-08 [[true, alter(price, y / 4)]]", ["[[true, alter(s, y / 4, y * 4)]]"]),
        ("select symbol, price from S", "2013-10-08 [[true, add(bid)]]", []),
        ("select symbol, price from S", "2013-10-08 [[symbol = 'A', drop(price)]]", ["[[symbol = 'A', drop(price)]]"]),
        ("select symbol, price from S", "2013-10-08 [[venue = 'N', alter(price, y / 4)]]", []),
        ("select symbol, venue as v, price from S", "2013-10-08 [[venue = 'N', alter(price, y / 4)]]",
         ["[[v = 'N', alter(price, y / 4, y * 4)]]"]),
    ],
)  # fmt: skip
def test_one_accent_through_a_query(query, line, out):
    otherwise = "is left out" if query == "select symbol, size from S" or "add(bid)" in line else "is held"
    found = run(query, line)
    assert reported(found) == out
    assert found.aborted_at is None
    assert found.traces[0].outcome == ("passes" if out else otherwise)


def test_sums_and_counts_of_tuples():
    windowed = "select symbol, {}(price) as s from S[size 60 advance 10]"
    split = "2013-10-08 [[symbol = 'A', alter(price, y / 4)]]"
    assert reported(run(windowed.format("sum"), split, schema=POINTS)) == [
        "[[symbol = 'A', alter(s, y / 4, y * 4)]]"
    ]
    assert reported(run(windowed.format("sum"), CELSIUS, schema=POINTS)) == []
    assert reported(run(windowed.format("count"), split, schema=POINTS)) == []
    assert reported(run(windowed.format("avg"), CELSIUS, schema=POINTS)) != []


def test_a_split_of_prices_and_sizes_leaves_the_cost_alone():
    both = "2013-10-08 [[symbol = 'A', alter(size, y * 4)]]"
    found = run("select symbol, price * size as cost from S", SPLIT, both)
    assert reported(found) == [
        "[[symbol = 'A', alter(cost, y / 4, y * 4)]]",
        "[[symbol = 'A', alter(cost, y * 4, y / 4)]]",
    ]


def test_a_difference_waits_until_both_sides_have_one_scale():
    query = "select S.symbol, S.price - R.price as d from S join R on (S.symbol = R.symbol)"
    found = run(query, SPLIT)
    assert reported(found) == []
    assert "several scales at once" in str(found.traces[0].verdicts[-1])
    later = "2013-10-09 [[symbol in ('A', 'B'), alter(price, y / 4)]]"
    found = run(query, SPLIT, other=[later])
    assert reported(found) == ["[[symbol = 'A', alter(d, y / 4, y * 4)]]"]
    assert found.passed[0].position == parse_instant("2013-10-09")


def test_a_union_waits_for_all_its_members():
    query = "select symbol, price from S union all select symbol, price from R"
    assert reported(run(query, SPLIT)) == []
    found = run(query, SPLIT, other=["2013-10-09 [[true, alter(price, y / 4)]]"])
    assert reported(found) == ["[[symbol = 'A', alter(price, y / 4, y * 4)]]"]


def test_a_lost_key_is_waited_for_or_aborts():
    query = "select max(price) as m from S"
    domains = {"S": Domain.of(symbol={"A", "B"})}
    other = "2013-10-09 [[symbol = 'B', alter(price, y / 4)]]"
    assert reported(run(query, SPLIT, domains=domains)) == []
    found = run(query, SPLIT, other, domains=domains)
    assert reported(found) == ["[[true, alter(m, y / 4, y * 4)]]"]
    assert found.passed[0].position == parse_instant("2013-10-09")
    aborted = run(query, SPLIT, other, domains=domains, mode="abort")
    assert aborted.aborted_at == parse_instant("2013-10-08")
    assert "its description refers to S.symbol, which the output lacks" in aborted.reason
    assert "Across" in aborted.reason


def test_a_drop_of_what_a_predicate_needs_aborts_and_says_who_and_why():
    found = run(
        "select symbol, size from S where price > 3", SPLIT, "2013-10-09 [[symbol = 'A', drop(price)]]"
    )
    assert found.aborted_at == parse_instant("2013-10-09")
    for words in (
        "2013-10-09",
        "Filter S.price > 3",
        "drop(S.price)",
        "cannot do without 'S.price'",
        "stays",
    ):
        assert words in found.reason
    assert found.traces[-1].outcome == "aborts"
    assert reported(run("select symbol, size from S", "2013-10-09 [[true, drop(price)]]")) == []


def test_policies_per_stream_and_primitive():
    query = "select symbol, price from S"
    stopped = run(query, SPLIT, policies={"S": Policy.of("alter=exception")})
    assert stopped.aborted_at == parse_instant("2013-10-08")
    assert "stream S: the policy is to stop at" in stopped.reason
    assert run(query, SPLIT, policies={"S": Policy.of("ignore")}).is_empty
    assert not run(query, SPLIT, policies={"S": Policy.of("add=exception")}).is_empty


def test_a_description_on_the_time_moves_to_windows_that_lie_in_it():
    line = "2013-10-08 [[t >= '2013-10-09', alter(price, y / 4)]]"
    found = run("select symbol, avg(price) as a from S[size 60 advance 10]", line)
    day, minute = parse_instant("2013-10-09"), 60_000_000
    assert [one.description.matches({"t": day + minute + d}) for one in found.passed for d in (-1, 0, 1)] == [
        False,
        True,
        True,
    ]
    between = "2013-10-08 [[t >= '2013-10-09' and t < '2013-10-10', alter(price, y / 4)]]"
    found = run("select symbol, avg(price) as a from S[size 60 advance 10]", between)
    end = parse_instant("2013-10-10")
    assert [found.passed[0].description.matches({"t": end + d}) for d in (-1, 0, 1)] == [True, True, False]


def test_sliding_windows_touch_and_cover():
    window = SlidingHandling("t", "t", 5)
    assert window.touched(ValueSet.between(10, 20)) == ValueSet.compare(">", 10).intersection(
        ValueSet.compare("<", 25)
    )
    assert window.times(ValueSet.between(10, 20)) == ValueSet.between(5, 20)
    assert window.touched(DEFINED) == DEFINED == window.times(DEFINED)


def test_model_clauses_are_expressions():
    found = run("select symbol, price from S model S.price = S.price + S.size * t", SPLIT)
    assert reported(found) == []
    both = run(
        "select symbol, price from S model S.price = S.price + S.size * t",
        SPLIT,
        "2013-10-09 [[symbol = 'A', alter(size, y / 4)]]",
    )
    assert reported(both) == ["[[symbol = 'A', alter(price, y / 4, y * 4)]]"]


def test_lines_say_what_every_operator_does():
    text = "\n".join(run("select symbol, size from S where price > 3", SPLIT).lines())
    assert (
        "S at 2013-10-08T00:00:00.000000Z: [[symbol = 'A', alter(price, y / 4, y * 4)]] is left out" in text
    )
    assert "leaves it out: its output has no such attribute" in text


X, Y = Column("x"), Column("y")


@pytest.mark.parametrize(
    ("expression", "maps", "out"),
    [
        (Arithmetic("-", X, Y), {"x": (4, 1), "y": (4, 3)}, (4, -2)),
        (Arithmetic("-", X, Y), {"x": (4, 1), "y": (2, 1)}, None),
        (Arithmetic("+", X, Constant(3)), {"x": (4, 1)}, (4, -8)),
        (Arithmetic("-", Constant(3), X), {"x": (4, 1)}, (4, -10)),
        (Arithmetic("*", X, Y), {"x": (4, 0), "y": (2, 0)}, (8, 0)),
        (Arithmetic("*", X, Y), {"x": (4, 1)}, None),
        (Arithmetic("/", X, Y), {"x": (4, 0), "y": (2, 0)}, (2, 0)),
        (Arithmetic("/", X, Constant(2)), {"x": (4, 1)}, (4, 0.5)),
        (Arithmetic("/", Constant(2), X), {"x": (4, 0)}, (0.25, 0)),
        (Arithmetic("^", X, Constant(2)), {"x": (4, 0)}, (16, 0)),
        (Arithmetic("^", X, Constant(2)), {"x": (4, 1)}, None),
        (Negative(X), {"x": (4, 1)}, (4, -1)),
        (Function("abs", (X,)), {"x": (4, 0)}, (4, 0)),
        (Function("sqrt", (X,)), {"x": (4, 0)}, (2, 0)),
        (Function("sqrt", (X,)), {"x": (2, 0)}, None),
        (Function("exp", (X,)), {"x": (2, 0)}, None),
        (Function("exp", (X,)), {"y": (2, 0)}, (1, 0)),
        (Function("distance", (X, Y, X, Y)), {"x": (2, 1), "y": (2, 7)}, (2, 0)),
        (Function("distance2", (X, Y, X, Y)), {"x": (2, 1), "y": (2, 7)}, (4, 0)),
        (Function("distance", (X, Y, Y, X)), {"x": (2, 1), "y": (2, 7)}, None),
    ],
)  # fmt: skip
def test_expressions_move_as_their_values_do(expression, maps, out):
    found = affine_image(expression, {name: Affine(*map) for name, map in maps.items()})
    assert found == (None if out is None else Affine(*out))


def test_the_schema_is_one_of_arrow_types():
    assert dict(SCHEMA.key)["symbol"] == pa.string()


@pytest.mark.parametrize(
    "query",
    [
        "select symbol, price from S where price > 100",
        "select symbol, price * 2 + size as p, size from S",
        "select symbol, price * size as cost, price - 32 as q from S",
        "select symbol, sum(price) as s from S[size 60 advance 10]",
        "select S.symbol, S.price - R.price as d from S join S as R on (S.symbol = R.symbol)",
        "select S.symbol, S.ap - R.ap as d from (select symbol, avg(price) as ap from S[size 5 advance 1]) as S "
        "join (select symbol, avg(price) as ap from S[size 9 advance 1]) as R on (S.symbol = R.symbol)",
        "select max(price) as m from S",
        "select symbol, price from S union all select symbol, price from R",
    ],
)
@examples(25)
@given(st.data())
def test_the_short_way_and_the_long_way_agree(query, data):
    """Alter data of one kind goes one route: what comes out is what the operators pass, accent by accent."""
    texts = st.sampled_from(
        ["symbol = 'A'", "symbol in ('A', 'B')", "symbol != 'C'", "true", "t >= '2013-10-20'", "venue = 'N'"]
    )
    maps = st.sampled_from(["y / 4", "y * 2", "y + 3", "(y - 32) * 5/9"])
    names = st.sampled_from(["price", "price", "size"])
    some = data.draw(st.lists(st.tuples(texts, names, maps), max_size=5))
    lines = [
        f"2013-10-{i:02d} [[{text}, alter({name}, {map})]]" for i, (text, name, map) in enumerate(some, 1)
    ]
    plan = parse(query, {"S": SCHEMA, "R": SCHEMA}, ()).bind({}).plan
    logs = {"S": AccentLog.parse(lines, times=["t"]).checked(SCHEMA)}
    short, long = accented(plan, logs), accented(plan, logs, trace=True)
    assert short.is_empty == long.is_empty
    one, two = short.steps(), long.steps()
    keys = {name: pa.array(["A", "B", "C", "D"]) for name in plan.columns.key_names}
    times = np.arange(parse_instant("2013-09-30"), parse_instant("2013-10-30"), 43_200_000_000)
    for name in {*one, *two}:
        values = []
        for steps in (one.get(name, Steps.of([], time="t")), two.get(name, Steps.of([], time="t"))):
            found = steps.located({**keys, "venue": pa.array(["N"] * 4)}, 4)
            cell = np.repeat(found.cell, len(times))
            at = np.tile(times, 4)
            values.append(apply_steps(np.full(len(at), 7.0), cell, at, found.steps, found.maps))
        assert np.allclose(*values, rtol=1e-12)

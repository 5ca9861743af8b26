"""Queries: grammar-derived ones, good ones that were damaged, and what nests without end."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.language import LanguageError, parse
from pulse.plan.explain import explain
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from tests.fuzz.harness import NASTY, answer, damaged_text

STREAMS = {
    "S": StreamSchema.of(
        key={"id": "int64", "name": "string"},
        time="t",
        modelled={"x": "linear", "y": "step"},
        unmodelled={"flag": "bool", "size": "int32"},
    ),
    "U": StreamSchema.of(key={"id": "int64"}, time="ts", modelled={"x": "linear"}),
}
GOOD = (
    "select id, avg(x) as a from S[size 10 s advance 2] where y between 1 and 2 group by id having avg(x) > 3 "
    "error within 1% on a",
    "select A.id, A.x - B.x as d from S as A join U as B on (A.id = B.id) where abs(A.x - B.x) < 5 sample every 250 ms",
    "with A as (select id, x from S where x < :c), B as (select id, x from U) "
    "select A.id from A join B on (A.id = B.id and A.x < B.x)",
    "select id, x from S MODEL S.x = S.x + S.y * t where t > '2013-10-07' and name <> 'it''s' with possible",
    "select id, x from U as of version 3 union all select id, x from U as of '2018-01-03 10:00'",
    "select id, sqrt(pow(x, 2) + y ^ 2) as r, distance(x, y, 1, 2) from S where not (x = 1 or flag = true)",
    "select min(a) as b from (select id, max(x) as a from S[size 1 h] group by id)[size 1 d]",
)


def check(text: str) -> None:
    """The text is a query that can also be planned, or an error that points at a place within it."""
    found = answer(parse, text, STREAMS, parameters=("c",))
    if isinstance(found, LanguageError):
        assert text[found.start : found.end] == found.highlight
        assert found.problem
    if isinstance(found, Query):
        planned = answer(found.bind, {"c": 5.0})
        if isinstance(planned, Query):
            answer(optimise, planned.plan)
            answer(explain, planned)


# -- from the grammar -----------------------------------------------------------------------------------------

_names = st.sampled_from(
    ["x", "y", "id", "S.x", "A.x", "U.x", "t", "flag", "name", '"odd name"', "S.t", ":c", "c"]
)
_numbers = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(["1e400", "9" * 400, "0.1", "5", ".5", "1.", "1e-400"]),
)
_texts = st.one_of(
    st.sampled_from(["'2013-10-07'", "'a'", "'5 min'", "''"]), st.text(max_size=5).map(lambda one: f"'{one}'")
)
_expressions = st.recursive(
    st.one_of(_names, _numbers, _texts),
    lambda inside: st.one_of(
        st.tuples(inside, st.sampled_from(["+", "-", "*", "/", "^", "%", "||"]), inside).map(" ".join),
        inside.map(lambda one: f"({one})"),
        inside.map(lambda one: f"-{one}"),
        st.tuples(
            st.sampled_from(["avg", "min", "max", "sum", "count", "abs", "sqrt", "pow", "exp", "nope"]),
            inside,
        ).map(lambda one: f"{one[0]}({one[1]})"),
    ),
    max_leaves=8,
)
_predicates = st.recursive(
    st.tuples(_expressions, st.sampled_from(["<", "<=", "=", "<>", ">", ">=", "!="]), _expressions).map(
        " ".join
    ),
    lambda inside: st.one_of(
        st.tuples(inside, st.sampled_from(["and", "or"]), inside).map(" ".join),
        inside.map(lambda one: f"not ({one})"),
        st.tuples(_expressions, inside).map(lambda one: f"{one[0]} between {one[1]}"),
    ),
    max_leaves=4,
)
_amounts = st.sampled_from(
    ["10", "10 s", "5 min", "0", "-1", "1e99 d", ":c", "1 us", "0.0000001", "1%", "1% or 0"]
)


@st.composite
def queries(draw: st.DrawFn, depth: int = 0) -> str:
    """Queries as the grammar has them, of names and numbers that mostly make no sense together."""
    source = draw(st.sampled_from(["S", "U", "S as A", "nope"]))
    if depth < 2 and draw(st.booleans()):
        source = f"({draw(queries(depth + 1))})"
    if draw(st.booleans()):
        source += f"[size {draw(_amounts)} advance {draw(_amounts)}]"
    parts = ["select", ", ".join(draw(st.lists(_expressions, min_size=1, max_size=3))), "from", source]
    if draw(st.booleans()):
        parts += ["join U as B on", f"({draw(_predicates)})"]
    if draw(st.booleans()):
        parts += ["where", draw(_predicates)]
    if draw(st.booleans()):
        parts += ["group by", draw(_names)]
    if draw(st.booleans()):
        parts += ["having", draw(_predicates)]
    if depth == 0 and draw(st.booleans()):
        parts += ["error within", draw(_amounts)]
    if depth == 0 and draw(st.booleans()):
        parts += ["sample every", draw(_amounts)]
    return " ".join(parts)


@given(queries())
def test_what_the_grammar_has_is_a_query_or_an_error(text: str) -> None:
    check(text)


@given(damaged_text(*GOOD))
def test_a_damaged_query_is_a_query_or_an_error(text: str) -> None:
    check(text)


def test_the_good_ones_are_queries() -> None:
    for text in GOOD:
        assert not isinstance(answer(parse, text, STREAMS, parameters=("c",)), LanguageError), text


@pytest.mark.parametrize("query", GOOD)
def test_what_nobody_expects_within_a_query(query: str) -> None:
    words = query.split(" ")
    for nasty, at in zip(NASTY, itertools.cycle(range(len(words))), strict=False):
        check(" ".join([*words[:at], nasty, *words[at:]]))
        check(" ".join([*words[:at], nasty, *words[at + 1 :]]))


@pytest.mark.parametrize("depth", [10, 100, 1000, 5000])
def test_what_nests_or_goes_on_without_end(depth: int) -> None:
    for text in (
        f"select {'(' * depth}x{')' * depth} from S",
        f"select {'-' * depth}x from S",
        f"select {'- ' * depth}x from S",
        f"select {'abs(' * depth}x{')' * depth} from S",
        f"select x from S where {'not ' * depth}x < 1",
        f"select x from {'(select x from ' * depth}S{')' * depth}",
        f"select x from S where {' and '.join(['x < 1'] * depth)}",
        f"select {' + '.join(['x'] * depth)} from S",
        f"select {' ^ '.join(['x'] * depth)} from S",
        f"select {', '.join(['x'] * depth)} from S",
        f"select x from S where x in ({', '.join(map(str, range(depth)))})",
        " union all ".join(["select x from S"] * min(depth, 1000)),
        f"with {', '.join(f'A{i} as (select x from S)' for i in range(min(depth, 1000)))} select x from A0",
        f"select x from S {'join U on (S.id = U.id) ' * min(depth, 100)}",
        f"select x as {'a' * depth} from S",
        f"select '{'a' * depth}' from S",
        f"select x from S where x < {'9' * depth}",
        f"select x from S[size {'9' * depth}]",
        f"select x from S sample every {'9' * depth} s",
        f"select x from S as of version {'9' * depth}",
        f"select x from S error within {'9' * depth}%",
        f"select x {'/*' * depth} from S",
        f"select {'`' * depth} from S",
        f"select {'S.' * depth}x from S",
    ):
        check(text)


def test_errors_are_of_pulse() -> None:
    assert issubclass(LanguageError, PulseError)

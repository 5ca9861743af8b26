"""Whatever the text, what comes out is a query or an error that points at a place in it."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.language import LanguageError, parse
from pulse.operators.node import walk
from pulse.plan.query import Query

STREAMS = {
    "S": StreamSchema.of(
        key={"id": "int64", "name": "string"},
        time="t",
        modelled={"x": "linear", "y": "step"},
        unmodelled={"flag": "bool", "size": "int32"},
    ),
    "U": StreamSchema.of(time="ts", modelled={"x": "linear"}),
}
VOCABULARY = r"""
    select from where join on group by having union all as and or not between in model error within sample every with
    possible stream size advance order limit left inner cross distinct case timestamp true false
    S U A B id name x y flag t ts xt xt2 c min max sum avg count abs sqrt pow distance exp s min h ms S.x S.id A.x U.x S.t
    ( ) ( ) [ ] , , . * + - / ^ = <> != < <= > >= : % ; 1 2 10 0.5 1e400 1e-3 '5min' '2013-10-07' 'a' ' " ` -- /* */ :p
    (select [size advance MODEL ünï \ @ # ? {{ }} || ::
"""
WORDS = VOCABULARY.split()
PIECES = (
    "select x from S",
    "select id, avg(x) from S[size 10 advance 2]",
    "(select id, x from S)[size 5] as A",
    "from S as A join S as B on (A.id = B.id)",
    "where S.x < 5 and t > '2013-10-07'",
    "group by id having avg(x) < 3",
    "MODEL S.x = S.x + S.yt",
    "error within 1% on x",
    "sample every 2 s",
    "with A as (select id, x from S)",
    "union all select x from S",
)

GOOD = """
    select S.id , avg ( S.x ) - min ( y ) as d from ( select id , x , y from S where x < 5 ) [ size 10 s advance 2 ] as S
    where y between 1 and 2 group by id having avg ( x ) > 3 error within 1 % on d sample every 2 s
"""


def check(text: str) -> None:
    answer = answered(text)
    if isinstance(answer, Query):
        assert_sound(answer)
    elif isinstance(answer, LanguageError):
        assert text[answer.start : answer.end] == answer.highlight
        assert answer.problem
        assert min(answer.line, answer.column) >= 1
        assert str(pickle.loads(pickle.dumps(answer))) == str(answer)


def answered(text: str) -> Query | PulseError:
    try:
        return parse(text, STREAMS, parameters=("c",))
    except PulseError as e:
        return e


def assert_sound(query: Query) -> None:
    """That every node's columns can be worked out, have names of their own, and that the query's select are among them."""
    for node in walk(query.plan):
        names = (*node.columns.names, node.columns.time)
        assert len(set(names)) == len(names), (query.text, names)
    assert set(query.select) <= set(query.plan.columns.names)


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_token_soup_is_a_query_or_an_error_with_a_place(words: list[str]) -> None:
    check(" ".join(words))


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.sampled_from(WORDS)), max_size=12))
def test_soup_of_clauses_is_a_query_or_an_error_with_a_place(pieces: list[str]) -> None:
    check(" ".join(pieces))


@given(st.text(max_size=60))
def test_any_text_is_a_query_or_an_error_with_a_place(text: str) -> None:
    check(text)
    check(f"select {text} from S")
    check(f"select x from S where {text}")


@given(st.data())
def test_a_query_with_one_token_changed(data: st.DataObject) -> None:
    good = GOOD.split()
    at = data.draw(st.integers(0, len(good) - 1))
    change = data.draw(st.sampled_from(["drop", "double", "swap", "replace"]))
    words = list(good)
    if change == "drop":
        del words[at]
    elif change == "double":
        words.insert(at, words[at])
    elif change == "swap":
        words[at - 1], words[at] = words[at], words[at - 1]
    else:
        words[at] = data.draw(st.sampled_from(WORDS))
    check(" ".join(words))

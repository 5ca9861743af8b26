"""Members of UNION ALL and INTERSECT whose joins carry a key twice: what is matched are the columns that they show."""

from __future__ import annotations

import pytest

from pulse.language import parse
from pulse.plan.query import Query
from tests.language.printing import STREAMS
from tests.truth.small import ask, fitted, samples

PLAIN = "select 'plain' as source, symbol, price as a, price as b from S"
JOIN = "from S L join S R on (L.symbol = R.symbol)"
MEMBERS = {
    "two aggregates": "select 'w' as source, symbol, avg(price) as a, max(price) as b from S[size 10 advance 2]",
    "three aggregates": "select 'w' as source, symbol, avg(price) - min(price) as a, max(price) as b from S[size 10 advance 2]",
    "a join on equal keys": f"select 'j' as source, L.symbol, L.price as a, R.price as b {JOIN}",
    "its other key": f"select 'j' as source, R.symbol, L.price as a, R.price as b {JOIN}",
    "aggregates of a join": "select 'x' as source, L.symbol, avg(L.price) as a, avg(R.price) as b "
    "from S[size 10] L join S[size 10] R on (L.symbol = R.symbol)",
}


def bound(text: str) -> Query:
    """The query over the streams of the golden pairs."""
    return parse(text, STREAMS)


@pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS.keys())
@pytest.mark.parametrize("together", ["union all", "intersect"])
def test_a_key_that_equals_a_selected_one_is_not_appended(member: str, together: str) -> None:
    for text in (f"{PLAIN} {together} {member}", f"{member} {together} {PLAIN}"):
        query = bound(text)
        assert query.select == ("source", "symbol", "a", "b")
        assert query.plan.columns.key_names == ("source", "symbol")


def test_members_as_a_stream_have_no_key_that_nobody_wrote() -> None:
    query = bound(
        f"select source, symbol, max(a) as m from ({PLAIN} union all {MEMBERS['two aggregates']})[size 4] as U"
    )
    assert query.plan.columns.key_names == ("source", "symbol")


def test_rows_of_members_with_two_aggregates_and_of_a_join() -> None:
    """By hand: a steps from 1 to 3 at 4 s; its mean over 2 s at 5 s is 2, its largest value 3."""
    S = fitted([("a", 0, 1.0), ("a", 4, 3.0), ("a", 8, 3.0)], "symbol t price", truth="step")
    text = (
        f"{MEMBERS['two aggregates'].replace('size 10 advance 2', 'size 2 advance 1')} union all "
        f"{MEMBERS['a join on equal keys']} union all {PLAIN} sample every 1 s"
    )
    found = samples(ask(text, S=S), "source", "symbol", "a", "b")
    assert [row for row in found if row[0] == 5] == [
        (5, "j", "a", 3.0, 3.0),
        (5, "plain", "a", 3.0, 3.0),
        (5, "w", "a", 2.0, 3.0),
    ]

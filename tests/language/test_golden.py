"""Golden pairs: the text of a query, and the plan it is bound to. In ``golden.txt``, blocks apart by a line of ``====``::

# what it shows
text
=>
plan
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pulse.core.schema import StreamSchema
from pulse.language import LanguageError, parse
from tests.language.printing import STREAMS, printed
from tests.test_paper_queries import FOLLOWING as PRINTED

BLOCKS = (Path(__file__).parent / "golden.txt").read_text(encoding="utf-8").split("\n====\n")
PARAMETERS = ("c", "limit_price", "who")


@pytest.mark.parametrize("block", BLOCKS, ids=[block.partition("\n")[0].lstrip("# ") for block in BLOCKS])
def test_golden_pair(block: str) -> None:
    _, _, pair = block.partition("\n")
    text, _, expected = pair.partition("\n=>\n")
    assert printed(parse(text, STREAMS, PARAMETERS)) == expected.rstrip("\n")


ALIAS_JOIN = """select a, b as x, d from R join S
where R.a = S.a and R.a < S.d"""

FOLLOWING = PRINTED.replace("\nfrom\n(select", "\n\n(select")  # the paper omits the word


def test_the_alias_join_as_printed_with_a_modelled() -> None:
    streams = {
        "R": StreamSchema.of(time="t", modelled={"a": "linear", "b": "linear"}),
        "S": StreamSchema.of(time="t", modelled={"a": "linear", "d": "linear"}),
    }
    assert printed(parse(ALIAS_JOIN, streams)).splitlines() == [
        "select a, x, d",
        "project a = R.a, x = R.b, d = S.d at t",
        "  filter (R.a = S.a and R.a < S.d)",
        "    join",
        "      scan R as R",
        "      scan S as S",
    ]


def test_the_alias_join_as_printed_with_a_as_key() -> None:
    streams = {
        "R": StreamSchema.of(key={"a": "int64"}, time="t", modelled={"b": "linear"}),
        "S": StreamSchema.of(key={"a": "int64"}, time="t", modelled={"d": "linear"}),
    }
    assert printed(parse(ALIAS_JOIN, streams)).splitlines() == [
        "select a, x, d",
        "project a = R.a, x = R.b, d = S.d, S_a = S.a at t",
        "  filter R.a < S.d",
        "    join R.a == S.a",
        "      scan R as R",
        "      scan S as S",
    ]


def test_following_as_printed_is_following_with_from() -> None:
    streams = {"S": STREAMS["objects"]}
    mended = FOLLOWING.replace("avg(dist)\n", "avg(dist) from\n", 1)
    assert mended != FOLLOWING
    assert parse(FOLLOWING, streams).plan == parse(mended, streams).plan


def test_equal_texts_give_equal_plans() -> None:
    """Plans compare by structure, which is what lets parts be shared."""
    a = parse("select symbol, avg(price) as a from S[size 10 s]", STREAMS)
    b = parse("SELECT Symbol, AVG( s.PRICE ) AS a FROM stream S [SIZE '10' ADVANCE 10]", STREAMS)
    assert a.plan == b.plan


def test_columns_may_be_given_instead_of_a_schema() -> None:
    from pulse.core.columns import Columns

    columns = {name: Columns.of(schema) for name, schema in STREAMS.items()}
    text = "select symbol, max(price) from S[size 10]"
    assert parse(text, columns) == parse(text, STREAMS)


def test_a_rate_is_the_outermost_advance() -> None:
    assert parse("select symbol, avg(price) from S[size 10 advance 2]", STREAMS).rate == 2_000_000
    assert parse("select symbol, price from S", STREAMS).rate is None


def test_a_text_asked_again_is_read_once_and_streams_and_parameters_count() -> None:
    S = StreamSchema.of(key={"k": "string"}, time="t", modelled={"x": "step"})
    other = StreamSchema.of(key={"k": "int64"}, time="t", modelled={"x": "step"})
    text = "select k, x from S where x > c"
    first = parse(text, {"S": S}, ("c",))
    assert parse(text, {"S": S}, ("c",)) is first
    assert parse(text, {"S": S}, ["c"]) == first
    assert parse(text, {"S": other}, ("c",)).plan.columns != first.plan.columns
    for _ in range(2):
        with pytest.raises(LanguageError):
            parse(text, {"S": S})

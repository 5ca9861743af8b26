"""What explain says of the paper's queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulse.core.bounds import Absolute
from pulse.core.expression import Parameter
from pulse.language import parse
from pulse.plan.exchanges import place_exchanges
from pulse.plan.explain import explain
from pulse.plan.fragments import fragments
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from tests.language.printing import STREAMS
from tests.plan.reading import read_plan

MACD = """
Project symbol = S.symbol, diff = (S.ap - L.ap); time t
  Filter S.ap > L.ap
    Join on S.symbol = L.symbol
      Window S.ap = avg(S.price) over :short every 2 s
        Scan S as S
      Window L.ap = avg(L.price) over :long every 3 s
        Scan S as L
"""

FOLLOWING = """
Filter a < 1000
  Window a = avg(dist) over 10 min every 10 s
    Project id1 = R.id, id2 = T.id, dist = sqrt((((R.x - T.x) ^ 2) + ((R.y - T.y) ^ 2))); time t
      Join where R.id != T.id
        Scan objects as R
        Scan objects as T
"""


def sections(query: Query) -> dict[str, str]:
    blocks: dict[str, str] = {}
    title = ""
    for line in explain(query).splitlines():
        if line and not line.startswith(" "):
            title = line
            blocks[title] = ""
        else:
            blocks[title] += line[2:] + "\n"
    return {title: text.strip("\n") for title, text in blocks.items()}


def test_macd_with_open_parameters() -> None:
    query = Query(
        read_plan(MACD),
        ("symbol", "diff"),
        errors=(("diff", Absolute(0.01)), (None, Parameter("e"))),
        possible=True,
    )
    reported = sections(query)
    assert list(reported) == [
        "logical plan",
        "rewritten plan",
        "equation systems",
        "fragments and exchanges",
        "revisions",
        "answer",
    ]
    assert reported["logical plan"] == MACD.strip()
    assert "Join on S.symbol = L.symbol where S.ap > L.ap" in reported["rewritten plan"]
    assert "Σ (S.ap[i] - L.ap[i])·tⁱ > 0" in reported["equation systems"]
    assert reported["fragments and exchanges"].startswith("1: reads S; no exchange\n")
    assert reported["answer"].splitlines() == [
        "columns: symbol, diff",
        "tuples: every 6 s, as its windows advance",
        "parameters: :short, :long, :e",
        "error within 0.01 on diff",
        "error within :e on every modelled column",
        "possible ranges are given as well",
    ]


def test_following_tells_what_is_shuffled() -> None:
    reported = sections(Query(read_plan(FOLLOWING), ("id1", "id2", "a")))
    assert reported["fragments and exchanges"].splitlines()[:5] == [
        "1: reads objects",
        "  Scan objects as R",
        "2: reads objects",
        "  Scan objects as T",
        "3: takes shuffled input: 1 by time and (R.x, R.y) in buckets of 30 min after 10 min, reach 1000; "
        "2 by time and (T.x, T.y) in buckets of 30 min after 10 min, reach 1000",
    ]
    assert reported["answer"].splitlines()[1] == "tuples: every 10 s, as its windows advance"


def test_rates() -> None:
    scan = read_plan("Scan S as S")
    assert "none without a rate" in sections(Query(scan, ("S.price",)))["answer"]
    assert "every :d (SAMPLE EVERY)" in sections(Query(scan, ("S.price",), every=Parameter("d")))["answer"]
    window = read_plan("Window a = avg(S.price) over 10 s every :step\n  Scan S as S")
    assert "at common multiples of :step" in sections(Query(window, ("a",)))["answer"]


def test_a_plan_that_solves_nothing() -> None:
    reported = sections(Query(read_plan("Scan S as S"), ("S.price",)))
    assert reported["equation systems"] == "none: nothing is solved or aggregated"
    assert reported["rewritten plan"] == "the same"


GOLDEN = [
    block.partition("\n=>\n")[0].partition("\n")
    for block in (Path(__file__).parents[1] / "language" / "golden.txt").read_text("utf-8").split("\n====\n")
]


@pytest.mark.parametrize("text", [text for _, _, text in GOLDEN], ids=[title for title, _, _ in GOLDEN])
def test_every_query_that_can_be_written_can_be_explained(text: str) -> None:
    query = parse(text, STREAMS, ("c", "limit_price", "who"))
    rewritten = optimise(query.plan)
    assert rewritten.columns == query.plan.columns
    assert optimise(rewritten) == rewritten
    reported = sections(query)
    assert f"columns: {', '.join(query.select)}" in reported["answer"]
    assert len(fragments(place_exchanges(rewritten))) == sum(
        line[0].isdigit() for line in reported["fragments and exchanges"].splitlines()
    )

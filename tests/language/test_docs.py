"""The page on the language: every query on it is bound, and its error is the one that is given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pulse.language import LanguageError, parse
from pulse.language.expressions import FUNCTIONS
from pulse.operators.relational.scan import scans
from tests.language.printing import FLOWS, POINTS
from tests.language.printing import STREAMS as OTHERS

STREAMS = OTHERS | POINTS | FLOWS
PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_of_the_page_is_bound(text: str) -> None:
    query = parse(text, STREAMS)
    assert query.select
    assert all(scan.stream in STREAMS for scan in scans(query.plan))


def test_the_page_has_examples_of_every_section() -> None:
    assert len(QUERIES) >= 10


def test_the_streams_of_the_page_are_those_of_the_tests() -> None:
    for name, schema in STREAMS.items():
        row = re.search(rf"^\| `{name}` \|(.*)\|(.*)\|(.*)\|(.*)\|$", PAGE, flags=re.MULTILINE)
        if row is None:
            continue
        listed = [re.findall(r"`(\w+)`", cell) for cell in row.groups()]
        assert [*map(tuple, listed)] == [
            schema.key_names,
            schema.modelled_names,
            schema.unmodelled_names,
            (schema.time,),
        ]


def test_the_error_of_the_page_is_given() -> None:
    with pytest.raises(LanguageError) as raised:
        parse("select price from S\nwhere prise > 100", STREAMS)
    assert f"```\n{raised.value}\n```" in PAGE


def test_every_function_is_on_the_page() -> None:
    for name in FUNCTIONS:
        assert re.search(rf"\b{name}\b", PAGE), name

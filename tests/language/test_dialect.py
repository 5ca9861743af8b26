"""The dialect as sqlglot sees it, and the syntax trees of what SQL lacks."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from pulse.language import LanguageError, Pulse, read
from pulse.language.errors import span
from pulse.language.syntax import Amount, SourceClause, Statement


def test_sqlglot_knows_the_dialect_by_name() -> None:
    tree = sqlglot.parse_one("select x from S[size 10 s advance :a] sample every 2", dialect="pulse")
    assert isinstance(tree, Statement)
    assert sorted(one.this for one in tree.find_all(Amount)) == ["10 s", "2"]
    assert [one.name for one in tree.find_all(exp.Placeholder)] == ["a"]
    assert isinstance(sqlglot.Dialect.get_or_raise("pulse"), Pulse)


def test_every_node_of_an_expression_knows_its_place() -> None:
    text = "select a + b * pow(c, 2) as z from S where not (x between 1 and 2 or y in (1, 'u'))"
    for node in read(text).find_all(
        exp.Column, exp.Binary, exp.Anonymous, exp.Literal, exp.Between, exp.In, exp.Not
    ):
        start, end = span(node)
        assert 0 <= start < end <= len(text), node
        if isinstance(node, (exp.Column, exp.Anonymous)):
            assert text[start:end].startswith(node.name)
    found = {text[slice(*span(node))] for node in read(text).find_all(exp.Binary)}
    assert {"a + b * pow(c, 2)", "b * pow(c, 2)"} <= found


@pytest.mark.parametrize(
    "order", ["[size 5] as q model x = v", "as q [size 5] model x = v", "model x = v q[size 5]"]
)
def test_alias_window_and_model_come_in_any_order(order: str) -> None:
    source = read(f"select * from A {order} join B on 1 < 2").find(SourceClause)
    assert source is not None
    assert source.args["alias"].name == "q"
    assert source.args["window"] is not None
    assert len(source.args["models"]) == 1


def test_words_of_clauses_are_names_where_no_clause_can_stand() -> None:
    tree = read(
        "select size, error, sample, model, t, advance, stream.every from stream as stream, error sample"
    )
    assert {one.this.name for one in tree.find_all(SourceClause)} == {"stream", "error"}


def test_a_template_or_hint_is_no_special_text() -> None:
    for text in ("select {{ x }} from S", "select /*+ hint */ x from S where {% if %}"):
        with pytest.raises(LanguageError):
            read(text)
    assert isinstance(read("select /*+ hint */ x from S"), Statement)

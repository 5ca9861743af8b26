"""The dialect: SQL with windows on streams, MODEL, ERROR WITHIN and SAMPLE EVERY (semantics 3.1)."""

from __future__ import annotations

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError

from pulse.language.clauses import Clauses, statements
from pulse.language.cursor import Tokenizer
from pulse.language.errors import LanguageError, from_token_error
from pulse.language.syntax import Statement


class Pulse(Dialect):
    """sqlglot knows it as ``pulse`` once this module is imported."""

    Tokenizer = Tokenizer
    Parser = Clauses


def read(text: str) -> Statement:
    """The syntax tree of a query.

    >>> read("select price from S sample every 2 s").args["every"].this
    '2 s'
    """
    dialect = Pulse()
    try:
        tokens = dialect.tokenize(text)
    except TokenError as e:
        raise from_token_error(e, text) from None
    first, second = statements(tokens)
    if not first:
        raise LanguageError("the query is empty; it reads select … from …", text, 0, len(text))
    if second is not None:
        raise LanguageError("one query at a time; this begins a second", text, second.start, second.end + 1)
    tree = dialect.parser().parse(first, text)[0]
    assert isinstance(tree, Statement)
    return tree

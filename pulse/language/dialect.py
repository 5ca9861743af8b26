"""The dialect: SQL with windows on streams, MODEL, ERROR WITHIN and SAMPLE EVERY (semantics 3.1)."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError

from pulse.language.clauses import Clauses, statements
from pulse.language.cursor import Tokenizer
from pulse.language.errors import LanguageError, from_token_error, wrong
from pulse.language.syntax import Statement

MAX_NESTING = 150
"""The maximum nesting of operators: binding takes three frames of Python's thousand for each."""


class Pulse(Dialect):
    """The dialect that sqlglot registers as ``pulse`` once this module is imported."""

    Tokenizer = Tokenizer
    Parser = Clauses


def read(text: str) -> Statement:
    """Parse a query to its syntax tree.

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
    check_depth(tree)
    return tree


def check_depth(tree: exp.Expr) -> None:
    """Check that no expression is nested too deep for recursion."""
    stack: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_NESTING:
            raise wrong(
                f"this is nested in more than {MAX_NESTING} operators; put parts of it in a subquery",
                node,
            )
        below = 0 if isinstance(node, exp.Select) else depth + 1
        stack.extend((one, below) for one in node.iter_expressions())

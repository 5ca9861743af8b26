"""Parse SQL to logical plans: a sqlglot dialect with windows on streams, MODEL, ERROR WITHIN, SAMPLE EVERY (semantics 3.1).

text --dialect.read--> syntax tree --bind_statement--> Query
                       (clauses, terms)   (scope, sources, models, expressions, aggregates, outputs)
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import lru_cache

from pulse.core.columns import Columns
from pulse.core.plane import Plane
from pulse.core.schema import StreamClock, StreamSchema
from pulse.language.bind import bind_statement
from pulse.language.dialect import Pulse, read
from pulse.language.errors import LanguageError
from pulse.language.scope import Context
from pulse.plan.query import Query

__all__ = ["LanguageError", "Pulse", "parse", "read"]


def parse(text: str, streams: Mapping[str, StreamSchema | Columns], parameters: Container[str] = ()) -> Query:
    """Parse a query, given the streams it may name.

    ``parameters`` are names that may stand without a colon where there is no column of that name, like ``c`` in the paper's
    collision query. An error in the text raises a :class:`LanguageError` that points at it.

    >>> S = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
    >>> query = parse("select symbol, avg(price) from S[size 10 advance 2]", {"S": S})
    >>> query.select, query.rate
    (('symbol', 'avg_price'), 2000000)
    """
    if not isinstance(text, str):
        raise LanguageError(f"expected the text of a query, select … from …, got {type(text).__name__}")
    columns = {
        name: Columns.of(schema) if isinstance(schema, StreamSchema) else schema
        for name, schema in streams.items()
    }
    if isinstance(parameters, tuple):
        # Equal columns may be in different planes, and have different clocks.
        others = tuple((one.plane, one.clock) for one in columns.values())
        return _parsed(text, tuple(columns.items()), others, parameters)
    return bind_statement(read(text), Context(text, columns, parameters))


@lru_cache(256)
def _parsed(
    text: str,
    columns: tuple[tuple[str, Columns], ...],
    _: tuple[tuple[Plane | None, StreamClock], ...],
    parameters: tuple[str, ...],
) -> Query:
    """Cache queries, which are immutable, so that repeated ones, as of a dashboard, are not parsed again."""
    return bind_statement(read(text), Context(text, dict(columns), parameters))

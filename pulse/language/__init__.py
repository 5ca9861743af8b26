"""SQL text to logical plans: a sqlglot dialect with windows on streams, MODEL, ERROR WITHIN and SAMPLE EVERY (semantics 3.1).

text --dialect.read--> syntax tree --bind_statement--> Query
                       (clauses, terms)   (scope, sources, models, expressions, aggregates, outputs)
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import lru_cache

from pulse.core.columns import Columns
from pulse.core.plane import Plane
from pulse.core.schema import StreamSchema
from pulse.language.bind import bind_statement
from pulse.language.dialect import Pulse, read
from pulse.language.errors import LanguageError
from pulse.language.scope import Context
from pulse.plan.query import Query

__all__ = ["LanguageError", "Pulse", "parse", "read"]


def parse(text: str, streams: Mapping[str, StreamSchema | Columns], parameters: Container[str] = ()) -> Query:
    """The query that a text means, given the streams it may name.

    ``parameters`` are names that may stand without a colon where there is no column of that name, as ``c`` does in the
    paper's collision query. What is wrong with a text is a :class:`LanguageError` that points at it.

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
        planes = tuple(one.plane for one in columns.values())  # equal columns may be in different ones
        return _parsed(text, tuple(columns.items()), planes, parameters)
    return bind_statement(read(text), Context(text, columns, parameters))


@lru_cache(256)
def _parsed(
    text: str,
    columns: tuple[tuple[str, Columns], ...],
    _: tuple[Plane | None, ...],
    parameters: tuple[str, ...],
) -> Query:
    """Queries never change, so that one that is asked again, as a dashboard does, needs no second reading."""
    return bind_statement(read(text), Context(text, dict(columns), parameters))

"""Syntax tree nodes that SQL lacks: windows on streams, MODEL rules, and the clauses at a query's end.

All others are sqlglot's own nodes. Every node has its position in the text in its ``meta``.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp


class StreamWindow(exp.Expression):
    """``[size 10 advance 2]``, whose sizes are :class:`Amount` or placeholders; or a period of a calendar.

    ``period`` is ``session``, ``day`` or ``start``, ``of`` the literal with its code or zone; ``since``: a running window.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "size": False,
        "advance": False,
        "period": False,
        "of": False,
        "since": False,
    }


class Amount(exp.Expression):
    """A duration or an error bound, as written: ``5 min``, ``0.05% or 0.001``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class SourceClause(exp.Expression):
    """A source in FROM: a stream's name or a query, with alias, window, MODEL rules and AS OF clause."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "alias": False,
        "window": False,
        "models": False,
        "at": False,
    }


class AsOfClause(exp.Expression):
    """``AS OF '2018-01-03 10:00'`` or ``AS OF VERSION 3``: a literal or placeholder, as ``time`` or ``version``."""

    arg_types: ClassVar[dict[str, bool]] = {"time": False, "version": False}


class ModelRule(exp.Expression):
    """``A.x = A.x + A.vt``: the attribute, and its value as a function of time."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class ErrorWithin(exp.Expression):
    """One bound of ERROR WITHIN: an :class:`Amount` or placeholder, and the attributes, none for all."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}


class Statement(exp.Expression):
    """A whole query: ``this`` is a Select or Union, ``with_`` the named queries before it, the rest the clauses after it."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "with_": False,
        "errors": False,
        "every": False,
        "possible": False,
        "at": False,
        "top": False,
    }


class TopClause(exp.Expression):
    """``TOP 10 BY change`` or ``BOTTOM 10 BY change``: the number as text, an output column, whether the smallest."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "smallest": False}


class InSession(exp.Expression):
    """``t IN SESSION 'code'``: the time is within the trading hours of an exchange, by default the stream's own."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": False}

"""Say what to write instead of functions, symbols and clauses that other databases have, or that were begun wrongly."""

from __future__ import annotations

from sqlglot import exp

FUNCTIONS_ELSEWHERE = {
    "ceil": "write -floor(-x)",
    "ceiling": "write -floor(-x)",
    "if": "write case when x > 5 then 1 else 0 end",
    "iif": "write case when x > 5 then 1 else 0 end",
    "ifnull": "write coalesce(A.x, B.x) over a join",
    "ln": "log(x) is the natural logarithm",
    "log10": "write log(x) / 2.302585092994046",
    "log2": "write log(x) / 0.6931471805599453",
    "mean": "write avg(x)",
    "median": "a model has no order of values over a window; there are avg, min, max and stddev",
    "mod": "write x - 5 * floor(x / 5)",
    "now": "give a moment as a parameter, t > :now",
    "nvl": "write coalesce(A.x, B.x) over a join",
    "round": "write floor(x + 0.5)",
    "square": "write pow(x, 2)",
    "std": "write stddev(x)",
    "stdev": "write stddev(x)",
    "tan": "write sin(x) / cos(x)",
    "top": "write top 10 by x behind the query",
    "var": "write variance(x)",
}
"""Functions of other databases, and what is there for them."""

SYMBOLS_ELSEWHERE = {
    "%": "there is no remainder; write x - 5 * floor(x / 5)",
    "||": "texts cannot be joined: models are numbers, and keys and texts stay as they are stored",
    "&": "write and",
    "|": "write or",
    "!": "write not",
    "~": "patterns are not part of the language; compare with = or in ('…', '…')",
}
"""Symbols of other languages where an operator may stand."""

CLAUSES_BEGUN = {
    "SAMPLE": "a rate of tuples reads sample every 1 s",
    "ERROR": "a bound reads error within 1%",
    "SIZE": "a window stands in brackets: from S[size 10 advance 2]",
    "EACH": "a window stands in brackets: from S[each session 'XNYS']",
    "SINCE": "a window stands in brackets: from S[since session start 'XNYS']",
    "TOP": "the largest are chosen by top 10 by change",
    "BOTTOM": "the smallest are chosen by bottom 10 by change",
    "MODEL": "a model reads model x = x + v * t, with a name on the left",
    "OF": "a moment reads as of '2018-01-03 10:00', or as of version 3",
}
"""Words that were read as an alias, but begin a clause."""


def usage(name: str, values: int, last: str = "") -> str:
    """Write a call of a function of some values.

    >>> usage("distance", 4), usage("lag", 1, "60 s")
    ('distance(x1, y1, x2, y2)', 'lag(x, 60 s)')
    """
    letters = ("x1", "y1", "x2", "y2") if values == 4 else ("x", "y", "z")[:values]
    return f"{name}({', '.join((*letters, *((last,) if last else ())))})"


def elsewhere(name: str) -> str:
    """Return what is there for a function of another database, as the end of a sentence; an empty text for others."""
    found = FUNCTIONS_ELSEWHERE.get(name)
    return "" if found is None else f": {found}"


def for_name(node: exp.Column) -> str:
    """Return what a name that is no column may have been meant as, as the end of a sentence."""
    if node.name.upper() == "NULL":
        return ". There are no nulls in a model: where a value is undefined there is no segment"
    if node.this.args.get("quoted"):
        return f". A text stands in single quotes: '{node.name}'"
    return f". A parameter is written :{node.name} and its value given as a keyword ({node.name}=…)"

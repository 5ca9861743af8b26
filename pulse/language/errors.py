"""Errors in a query's text: the position, what was expected, and what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from sqlglot import exp
from sqlglot.errors import TokenError

from pulse.core.errors import PulseError

_LISTED = 40  # names at most; of more only the nearest are listed
_WIDTH = 100  # of the displayed line; a longer one would wrap and misplace the carets


class LanguageError(PulseError, ValueError):
    """A query that cannot be parsed or bound.

    ``line`` and ``column`` count from one, ``highlight`` is the wrong text; ``start`` and ``end`` are its offsets in the query.

    >>> print(LanguageError("there is no column 'prise'", "select prise from S", 7, 12))
    query, line 1, column 8: there is no column 'prise'
      select prise from S
             ^^^^^
    """

    what = "query"

    def __init__(self, problem: str, text: str = "", start: int = 0, end: int = 0) -> None:
        self.problem, self.text = problem, text
        self.start = min(max(start, 0), len(text))
        self.end = min(max(end, self.start), len(text))
        self.line = text.count("\n", 0, self.start) + 1
        self.column = self.start - (text.rfind("\n", 0, self.start) + 1) + 1
        self.highlight = text[self.start : self.end]
        super().__init__(
            f"{self.what}, line {self.line}, column {self.column}: {problem}\n{_shown(text, self.start, self.end)}"
        )

    def __reduce__(self) -> tuple[type[LanguageError], tuple[str, str, int, int]]:
        return type(self), (self.problem, self.text, self.start, self.end)


class FilterError(LanguageError):
    """A filter of rows that cannot be parsed or bound."""

    what = "where"


def _shown(text: str, start: int, end: int) -> str:
    """Return the line of the error, cut to width, with carets below."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    line = text[first : len(text) if last < 0 else last]
    at, length = start - first, max(min(end, first + len(line)) - start, 1)
    cut = max(0, at - _WIDTH // 2)
    shown = re.sub(r"[^\S ]|[\x00-\x1f]", " ", line[cut : cut + _WIDTH])  # a tab has no fixed width
    return f"  {shown}\n  {' ' * (at - cut)}{'^' * min(length, max(_WIDTH - (at - cut), 1))}"


def mark(node: exp.Expr, text: str, start: int, end: int) -> None:
    """Record the query of a node, and its position there: offsets, the end exclusive."""
    node.meta.update(text=text, start=start, end=end)


def span(node: exp.Expr) -> tuple[int, int]:
    """Return the position of a node; the dialect's parser marks all nodes."""
    return node.meta.get("start", 0), node.meta.get("end", 0)


def source_text(node: exp.Expr) -> str:
    """Return the node as the user wrote it."""
    start, end = span(node)
    return str(node.meta.get("text", ""))[start:end]


def wrong(problem: str, node: exp.Expr) -> LanguageError:
    """Return an error that points at a node."""
    return LanguageError(problem, node.meta.get("text", ""), *span(node))


def from_token_error(error: TokenError, text: str) -> LanguageError:
    """Convert the tokenizer's error about an unterminated quote or comment; only its text contains the offset."""
    cause = error.__cause__ if isinstance(error.__cause__, TokenError) else error
    match = re.search(r"Missing (.+) from \d+:(\d+)$", str(cause))
    if match is None:
        return LanguageError(
            "this cannot be read as words, numbers and quoted text", text, error.start or 0, error.end or 0
        )
    what = "name" if match[1] in '"`' else "text"
    return LanguageError(
        f"the quoted {what} that begins here has no closing {match[1]}", text, int(match[2]), len(text)
    )


def known(name: str, names: Iterable[str]) -> str:
    """List the existing names, with the nearest one suggested: the second half of an error about an unknown name.

    >>> known("prise", ["symbol", "price"])
    "did you mean 'price'? There are: 'symbol', 'price'"
    """
    names = list(names)
    folded = {other.casefold(): other for other in names}
    near = [folded[one] for one in difflib.get_close_matches(name.casefold(), list(folded), n=5)]
    hint = f"did you mean '{near[0]}'? " if near else ""
    few = len(names) <= _LISTED
    listed = ", ".join(repr(other) for other in (names if few else near or names[:5])) or "none"
    return f"{hint}There are{'' if few else f' {len(names)}, among them'}: {listed}"

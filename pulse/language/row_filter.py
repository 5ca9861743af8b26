"""Parse the condition of ``fit --where``: the grammar of WHERE, over any columns of a source, with IS [NOT] NULL."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import TokenError

from pulse.datasets.filters.row_filter import (
    AND,
    COLUMN,
    INSTANT,
    NEGATIVE,
    NOT,
    NULL,
    NUMBER,
    OR,
    SESSION,
    TEXT,
    TRUTH,
    RowFilter,
    Tree,
)
from pulse.language.calendar import session_code
from pulse.language.dialect import Pulse, check_depth
from pulse.language.errors import FilterError, LanguageError, from_token_error, known, source_text, wrong
from pulse.language.expressions import OPERATORS, RELATIONS, bare, flat, kind_of
from pulse.language.literals import instant, number
from pulse.language.syntax import InSession
from pulse.language.terms import Terms

_TIME = "time"
_MOST = 2**63 - 1
_LITERAL_KINDS = {NUMBER: "number", TEXT: "text", TRUTH: "truth value"}


def parse_filter(text: str, columns: pa.Schema) -> RowFilter:
    """Parse a condition on the rows of a source with these columns.

    >>> schema = pa.schema([("venue", pa.string()), ("size", pa.int64())])
    >>> parse_filter("venue = 'N' and size > 0", schema).columns
    ('venue', 'size')
    """
    if not str(text).strip():
        raise FilterError(f"expected a condition such as venue = 'N' and size > 0, got {text!r}")
    try:
        tree = _read(text)
        return RowFilter(text.strip(), _Filter(columns).condition(tree))
    except LanguageError as e:
        raise FilterError(e.problem, e.text, e.start, e.end) from None


def _read(text: str) -> exp.Expr:
    try:
        tokens = Pulse().tokenize(text)
    except TokenError as e:
        raise from_token_error(e, text) from None
    tree, *more = _Condition(dialect=Pulse()).parse(tokens, text)
    assert tree is not None
    if more:
        raise wrong("one condition at a time; join them with and", tree)
    check_depth(tree)
    return tree


class _Condition(Terms):
    """The grammar: a single condition, with IS [NOT] NULL, as rows of a source have nulls."""

    nulls = True

    def _parse_statement(self) -> exp.Expr | None:
        """Parse one text between semicolons; called by sqlglot."""
        made = self.any()
        if self._curr:
            raise self.error(f"expected and, or, or the end of the condition, got {self.here()}")
        return made

    def here(self) -> str:
        """Return the current token as text."""
        return super().here() if self._curr else "the end of the condition"


def _whole(node: exp.Literal) -> float | int:
    """Return a number, whole ones exactly: identifiers have up to 64 bits."""
    written = str(node.this)
    return int(written) if written.isdigit() and int(written) <= _MOST else number(node)


class _Filter:
    """A binder of conditions to columns of a source."""

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns

    def condition(self, node: exp.Expr) -> Tree:
        """Bind a condition."""
        node = bare(node)
        for kind, word in ((exp.And, AND), (exp.Or, OR)):
            if isinstance(node, kind):
                return (word, *(self.condition(one) for one in flat(node, kind)))
        if isinstance(node, exp.Not):
            return NOT, self.condition(node.this)
        if type(node) in RELATIONS:
            return self._compared(RELATIONS[type(node)], node.this, node.expression, node)
        if isinstance(node, exp.Between):
            low = self._compared(">=", node.this, node.args["low"], node)
            return AND, low, self._compared("<=", node.this, node.args["high"], node)
        if isinstance(node, exp.In):
            return self._any_of([self._compared("=", node.this, one, node) for one in node.expressions])
        if isinstance(node, exp.Is):
            return NULL, self._value(node.this)[0]
        if isinstance(node, InSession):
            value, kind_ = self._value(node.this)
            if kind_ != _TIME or node.args.get("expression") is None:
                raise wrong("expected a column of times and an exchange: t in session 'XNYS'", node)
            return SESSION, value, (TEXT, session_code(node.expression))
        value, kind_ = self._value(node)
        if kind_ != _LITERAL_KINDS[TRUTH]:
            raise wrong(f"expected a condition such as x < 5, got '{source_text(node)}'", node)
        return "=", value, (TRUTH, True)

    def _any_of(self, conditions: Sequence[Tree]) -> Tree:
        return conditions[0] if len(conditions) == 1 else (OR, *conditions)

    def _compared(self, relation: str, a: exp.Expr, b: exp.Expr, whole: exp.Expr) -> Tree:
        (left, kind), (right, other) = self._value(a), self._value(b)
        if kind == _TIME and right[0] == TEXT:
            right, other = self._instant(b), _TIME
        if other == _TIME and left[0] == TEXT:
            left, kind = self._instant(a), _TIME
        if kind != other:
            raise wrong(
                f"'{source_text(a)}' is a {kind} and '{source_text(b)}' a {other}: they cannot be compared",
                whole,
            )
        if kind == _LITERAL_KINDS[TRUTH] and relation not in ("=", "!="):
            raise wrong("truth values can be compared with = and <> only", whole)
        return relation, left, right

    def _instant(self, node: exp.Expr) -> Tree:
        node = bare(node)
        return INSTANT, instant(node.this if isinstance(node, exp.Cast) else node)

    def _value(self, node: exp.Expr) -> tuple[Tree, str]:
        node = bare(node)
        if isinstance(node, exp.Literal):
            if node.is_string:
                return (TEXT, str(node.this)), _LITERAL_KINDS[TEXT]
            return (NUMBER, _whole(node)), _LITERAL_KINDS[NUMBER]
        if isinstance(node, exp.Boolean):
            return (TRUTH, bool(node.this)), _LITERAL_KINDS[TRUTH]
        if isinstance(node, exp.Cast):
            return self._instant(node), _TIME
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Neg):
            return (NEGATIVE, self._number(node.this)), _LITERAL_KINDS[NUMBER]
        if type(node) in OPERATORS:
            operands = self._number(node.this), self._number(node.expression)
            return (OPERATORS[type(node)], *operands), _LITERAL_KINDS[NUMBER]
        if isinstance(node, exp.Pow):
            return ("^", self._number(node.this), self._number(node.expression)), _LITERAL_KINDS[NUMBER]
        if isinstance(node, exp.Placeholder):
            raise wrong("a filter has no parameters; write the value itself", node)
        raise wrong(
            f"expected a column, a number, a 'text' or arithmetic, got '{source_text(node)}'; rows are filtered one by one, "
            "without functions: ask queries for those",
            node,
        )

    def _number(self, node: exp.Expr) -> Tree:
        value, kind = self._value(node)
        if kind != _LITERAL_KINDS[NUMBER]:
            raise wrong(f"expected a number, got '{source_text(node)}', a {kind}", node)
        return value

    def _column(self, node: exp.Column) -> tuple[Tree, str]:
        names = self._columns.names
        if node.args.get("table") is not None:
            raise wrong(
                f"expected a column of the source, got '{source_text(node)}'; write its name alone", node
            )
        exact = [name for name in names if name == node.name]
        found = exact or [name for name in names if name.casefold() == node.name.casefold()]
        if not found:
            raise wrong(f"there is no column '{node.name}'; {known(node.name, names)}", node)
        if len(found) > 1:
            raise wrong(
                f"'{node.name}' is ambiguous: the source has {', '.join(found)}; write one of them", node
            )
        type_ = self._columns.field(found[0]).type
        if pa.types.is_dictionary(type_):
            type_ = type_.value_type
        if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            return (COLUMN, found[0]), _TIME
        if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
            type_ = pa.string()
        return (COLUMN, found[0]), kind_of(type_)

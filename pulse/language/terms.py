"""The grammar of expressions, loosest binding first::

any      := all (OR all)*                all     := negated (AND negated)*
negated  := NOT negated | related        related := sum [relation sum | [NOT] BETWEEN sum AND sum | [NOT] IN members]
members  := (sum, …) | SESSION 'text'
sum      := product (+|- product)*       product := signed (*|/ signed)*
signed   := (-|+) signed | power         power   := atom [^ signed]
atom     := number | 'text' | TIMESTAMP 'text' | :name | TRUE | FALSE | (any) | function(any, …) | case | [name .] name
case     := CASE WHEN any THEN any [WHEN …] ELSE any END | CASE any WHEN sum THEN any [WHEN …] ELSE any END
duration := number [unit] | 'text' | :name

A function of time takes a duration behind its values: ``lag(price, 60 s)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import TokenType, exp

from pulse.core.time import is_unit
from pulse.language.cursor import Cursor
from pulse.language.errors import mark, span
from pulse.language.hints import usage
from pulse.language.syntax import Amount, InSession
from pulse.operators.functions.of_time import OF_TIME

_RELATIONS: dict[TokenType, type[exp.Binary]] = {
    TokenType.LT: exp.LT,
    TokenType.LTE: exp.LTE,
    TokenType.EQ: exp.EQ,
    TokenType.NEQ: exp.NEQ,
    TokenType.GTE: exp.GTE,
    TokenType.GT: exp.GT,
}
_SUMS: dict[TokenType, type[exp.Binary]] = {TokenType.PLUS: exp.Add, TokenType.DASH: exp.Sub}
_PRODUCTS: dict[TokenType, type[exp.Binary]] = {TokenType.STAR: exp.Mul, TokenType.SLASH: exp.Div}
_ELSEWHERE = {
    "LIKE": "patterns are not part of the language; compare with = or IN ('…', '…')",
    "ILIKE": "patterns are not part of the language; compare with = or IN ('…', '…')",
    "IS": "there are no nulls in a model: where a value is undefined there is no segment; compare with = or <>",
    "OVER": "there are no window functions; write the window on the stream: from S[size 60 advance 2]",
}
_UNSUPPORTED = {
    "CAST": "CAST is not part of the language; all arithmetic is in floating point",
    "EXISTS": "EXISTS is not part of the language; join the streams instead",
    "SELECT": "a query here must stand in FROM: from (select …) as name",
}
_ENDS = frozenset(("ERROR", "SAMPLE", "WITH", "ON", "OR", "TOP", "BOTTOM"))
MAX_CASES = 60
"""The maximum number of conditions of one CASE: each is a case within the one before, which is walked recursively."""
MAX_CHAIN = 120
"""The maximum number of operands of one sum or product: the tree is as deep as the chain, and is walked recursively."""


class Terms(Cursor):
    """A parser of expressions to sqlglot's nodes, each marked with its position."""

    nulls = False
    """Whether conditions may ask IS [NOT] NULL: rows of a source have nulls, models have none."""

    def any(self) -> exp.Expr:
        """Parse an expression: conditions and values are distinguished when they are bound."""
        return self._chain("OR", self._all, exp.Or)

    def _all(self) -> exp.Expr:
        return self._chain("AND", self._negated, exp.And)

    def _chain(self, word: str, part: Callable[[], exp.Expr], kind: type[exp.Connector]) -> exp.Expr:
        parts = [part()]
        while self.take_word(word):
            parts.append(part())
        return _balanced(parts, kind)

    def _negated(self) -> exp.Expr:
        signs = []
        while self.word() == "NOT":
            signs.append(self._start())
            self._advance()
        made = self._related()
        for start in reversed(signs[-2:] if len(signs) % 2 == 0 else signs[-1:]):
            made = self.since(exp.Not(this=made), start)
        return made

    def _related(self) -> exp.Expr:
        start = self._start()
        left = self.sum()
        if self._curr.token_type in _RELATIONS:
            kind = _RELATIONS[self._curr.token_type]
            self._advance()
            if kind is exp.EQ and self._curr.token_type in (TokenType.GT, TokenType.LT):
                raise self.error(f"the sign reads {self._curr.text}=, not ={self._curr.text}")
            made: exp.Expr = self.since(kind(this=left, expression=self.sum()), start)
            if self._curr.token_type in _RELATIONS:
                raise self.error("comparisons do not chain; write a < b and b < c")
            return made
        negate = self.word() == "NOT" and self.word(1) in ("BETWEEN", "IN", "LIKE", "ILIKE")
        if negate:
            self._advance()
        if self.take_word("BETWEEN"):
            low = self.sum()
            self.expect_word("AND", "between the two ends of BETWEEN")
            made = self.since(exp.Between(this=left, low=low, high=self.sum()), start)
        elif self.take_word("IN"):
            made = self._in(left, start)
        elif self.nulls and self.take_word("IS"):
            negate = self.take_word("NOT")
            self.expect_word("NULL", "after IS")
            made = self.since(exp.Is(this=left, expression=exp.Null()), start)
        elif self.word() in _ELSEWHERE:
            raise self.error(_ELSEWHERE[self.word()])
        else:
            return left
        return self.since(exp.Not(this=made), start) if negate else made

    def _in(self, left: exp.Expr, start: int) -> exp.Expr:
        if self.take_word("SESSION"):
            code = None
            if self._match(TokenType.STRING):
                code = self.since(exp.Literal(this=self._prev.text, is_string=True), self._prev.start)
            return self.since(InSession(this=left, expression=code), start)
        self.expect(TokenType.L_PAREN, "(", "after IN")
        if self.word() == "SELECT":
            raise self.error("IN takes a list of values, not a query; join the streams instead")
        values = self._parse_csv(self.sum)
        self.expect(TokenType.R_PAREN, ")", "after the values of IN")
        return self.since(exp.In(this=left, expressions=values), start)

    def sum(self) -> exp.Expr:
        """Parse a value: either side of a comparison."""
        return self._operators(_SUMS, self._product)

    def _product(self) -> exp.Expr:
        return self._operators(_PRODUCTS, self._signed)

    def _operators(self, kinds: dict[TokenType, type[exp.Binary]], part: Callable[[], exp.Expr]) -> exp.Expr:
        start, length = self._start(), 1
        made = part()
        while self._curr.token_type in kinds:
            kind = kinds[self._curr.token_type]
            length += 1
            if length > MAX_CHAIN:
                raise self.error(f"more than {MAX_CHAIN} operands in a row; put parts of them in a subquery")
            self._advance()
            if kind is exp.Mul and self.is_type(TokenType.STAR):
                raise self.error("a power reads x ^ 2, or pow(x, 2)")
            made = self.since(kind(this=made, expression=part()), start)
        return made

    def _signed(self) -> exp.Expr:
        signs = []
        while self._curr.token_type in (TokenType.DASH, TokenType.PLUS):
            if self._curr.token_type == TokenType.DASH:
                signs.append(self._start())
            self._advance()
        made = self._power()
        return self.since(exp.Neg(this=made), signs[0]) if len(signs) % 2 else made

    def _power(self) -> exp.Expr:
        start = self._start()
        base = self._atom()
        if not self._match(TokenType.CARET):
            return base
        exponent_start = self._start()
        negative = self._match(TokenType.DASH)
        exponent = self._atom()
        if negative:
            exponent = self.since(exp.Neg(this=exponent), exponent_start)
        if self._curr.token_type == TokenType.CARET:
            raise self.error("powers do not chain; write (x^2)^3 with parentheses")
        return self.since(exp.Pow(this=base, expression=exponent), start)

    def _atom(self) -> exp.Expr:
        token, start = self._curr, self._start()
        if self._match(TokenType.NUMBER):
            return self.since(exp.Literal(this=token.text, is_string=False), start)
        if self._match_pair(TokenType.DOT, TokenType.NUMBER):
            return self.since(exp.Literal(this=f".{self._prev.text}", is_string=False), start)
        if self._match(TokenType.STRING):
            return self.since(exp.Literal(this=token.text, is_string=True), start)
        if self.is_type(TokenType.COLON):
            return self.parameter()
        if self._match(TokenType.L_PAREN):
            return self._parenthesis(start)
        word = self.word()
        if word == "TIMESTAMP" and self.is_type(TokenType.STRING, 1):
            self._advance(2)
            literal = self.since(exp.Literal(this=self._prev.text, is_string=True), start)
            return self.since(exp.Cast(this=literal, to=exp.DataType.build("timestamp")), start)
        if word in ("TRUE", "FALSE") and not self.is_type(TokenType.DOT, 1):
            self._advance()
            return self.since(exp.Boolean(this=word == "TRUE"), start)
        if word == "CASE" and not self.is_type(TokenType.DOT, 1):
            return self._case(start)
        if word in _UNSUPPORTED:
            raise self.error(_UNSUPPORTED[word])
        if word and self.is_name() and self.is_type(TokenType.L_PAREN, 1) and self.word(2) != "SELECT":
            return self._function(start)
        return self.column()

    def _case(self, start: int) -> exp.Expr:
        self._advance()
        self.deeper()
        of = None if self.word() == "WHEN" else self.any()
        ifs = []
        while True:
            at = self._start()
            self.expect_word("WHEN", "in CASE")
            condition = self.any() if of is None else self.sum()
            self.expect_word("THEN", "after the condition of CASE")
            ifs.append(self.since(exp.If(this=condition, true=self.any()), at))
            if len(ifs) > MAX_CASES:
                raise self.error(f"more than {MAX_CASES} conditions in one CASE")
            if self.word() != "WHEN":
                break
        if not self.take_word("ELSE"):
            raise self.error(
                f"expected WHEN or ELSE in CASE, got {self.here()}; a model has no nulls, so the value of other times must be "
                "given, or those times filtered away with where"
            )
        default = self.any()
        self.expect_word("END", "after CASE")
        self.depth -= 1
        return self.since(exp.Case(this=of, ifs=ifs, default=default), start)

    def _parenthesis(self, start: int) -> exp.Expr:
        self.deeper()
        if self.word() == "SELECT":
            raise self.error(_UNSUPPORTED["SELECT"])
        inner = self.any()
        self.expect(TokenType.R_PAREN, ")", "to close the parenthesis")
        self.depth -= 1
        return self.since(exp.Paren(this=inner), start)

    def _function(self, start: int) -> exp.Expr:
        name = self._curr.text
        self._advance(2)
        self.deeper()
        if self.word() == "DISTINCT":
            raise self.error("DISTINCT is not part of the language: a model has one value at each instant")
        arguments: list[exp.Expr] = []
        values = OF_TIME[name.lower()].arity if name.lower() in OF_TIME else None
        if not self.is_type(TokenType.R_PAREN):
            arguments.append(self._argument())
            self._refuse_duration(name, values)
            while self._match(TokenType.COMMA):
                after_values = len(arguments) == values
                arguments.append(self._duration(f"in {name}") if after_values else self._argument())
                self._refuse_duration(name, values)
        self.expect(TokenType.R_PAREN, ", or )", f"after the arguments of {name}")
        self.depth -= 1
        if self.word() == "OVER":
            raise self.error(_ELSEWHERE["OVER"])
        return self.since(exp.Anonymous(this=name.lower(), expressions=arguments), start)

    def _refuse_duration(self, name: str, values: int | None) -> None:
        """Raise an error where a duration stands that the function does not take there."""
        unit = self.word()
        if self._prev.token_type != TokenType.NUMBER or not is_unit(unit.lower()):
            return
        takes = "takes no duration" if values is None else f"is written {usage(name.lower(), values, '60 s')}"
        raise self.error(f"'{self._prev.text} {self._curr.text}' is a duration; {name} {takes}", self._prev)

    def _argument(self) -> exp.Expr:
        if self.is_type(TokenType.STAR):
            start = self._start()
            self._advance()
            return self.since(exp.Star(), start)
        return self.any()

    def _duration(self, where: str) -> exp.Expr:
        """Parse ``10``, ``10 s``, ``'5 min'`` or ``:name``."""
        if self.is_type(TokenType.COLON):
            return self.parameter()
        start = self._start()
        if self._match(TokenType.STRING):
            return self.since(Amount(this=self._prev.text), start)
        amount = self._number(f"a duration such as 10 s {where}")
        unit = self.word()
        if unit and unit not in _ENDS and unit != "ADVANCE" and self.is_name():
            self._advance()
            amount += f" {self._prev.text}"
        return self.since(Amount(this=amount), start)

    def _number(self, what: str) -> str:
        """Return a number's text, with its sign: the code that converts it rejects a negative one."""
        sign = "-" if self._match(TokenType.DASH) else ""
        point = "." if self._match(TokenType.DOT) else ""
        if not self._match(TokenType.NUMBER):
            raise self.error(f"expected {what}, got {self.here()}")
        return f"{sign}{point}{self._prev.text}"

    def column(self) -> exp.Column:
        """Parse ``name`` or ``alias.name``."""
        start = self._start()
        first = self.name("a value or a column")
        if not self._match(TokenType.DOT):
            return self.since(exp.Column(this=first), start)
        made = exp.Column(this=self.name(f"a column after '{first.name}.'"), table=first)
        if self.is_type(TokenType.DOT):
            raise self.error("a column is written alias.name; it cannot be qualified further")
        return self.since(made, start)

    def parameter(self) -> exp.Placeholder:
        """Parse ``:name``."""
        start = self._start()
        colon = self.expect(TokenType.COLON, ":", "before a parameter")
        token = self._curr
        if token.token_type != TokenType.VAR or not token.text.isidentifier() or token.start > colon.end + 1:
            raise self.error(f"expected a parameter's name after ':', got {self.here()}")
        self._advance()
        return self.since(exp.Placeholder(this=token.text), start)

    def _start(self) -> int:
        return self._curr.start if self._curr else len(self.sql)


def _balanced(parts: list[exp.Expr], kind: type[Any]) -> exp.Expr:
    """Combine the parts, in order, into a balanced tree of binary nodes: a thousand alternatives are ten deep, not a thousand."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    left, right = _balanced(parts[:half], kind), _balanced(parts[half:], kind)
    made: exp.Expr = kind(this=left, expression=right)
    mark(made, left.meta["text"], span(left)[0], span(right)[1])
    return made

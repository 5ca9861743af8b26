"""The grammar of queries::

    statement := [WITH name AS (query), …] query (top | ERROR WITHIN … | SAMPLE EVERY … | WITH POSSIBLE | moment)*
    top       := (TOP | BOTTOM) number BY column
    query     := meeting (UNION ALL meeting)*
    meeting   := select (INTERSECT select)*
    select    := SELECT [items] FROM source (JOIN source [ON any])* [WHERE any] [GROUP BY column, …] [HAVING any]
    source    := ([STREAM] name | (query)) ([AS] alias | window | MODEL rule, … | moment)*
    rule      := column = sum

Windows, moments and bounds are in :mod:`pulse.language.amounts`. Alias, window, MODEL and AS OF come in any order. Words match
in any case.
"""

from __future__ import annotations

from sqlglot import Token, TokenType, exp

from pulse.language.amounts import Amounts
from pulse.language.hints import CLAUSES_BEGUN, SYMBOLS_ELSEWHERE
from pulse.language.syntax import ErrorWithin, ModelRule, SourceClause, Statement, TopClause

_NOT_HERE = {
    "ORDER": "ORDER BY is not part of the language: results are tables and Spark DataFrames, order them there",
    "LIMIT": "LIMIT is not part of the language: results are tables and Spark DataFrames, cut them there",
    "OFFSET": "OFFSET is not part of the language: results are tables and Spark DataFrames, cut them there",
    "FETCH": "FETCH is not part of the language: results are tables and Spark DataFrames, cut them there",
    "WINDOW": "there is no WINDOW clause; write the window on the stream: from S[size 60 advance 2]",
    "QUALIFY": "there is no QUALIFY; filter an aggregate with HAVING",
    "EXCEPT": "EXCEPT is not part of the language; exclude rows with NOT",
    "LATERAL": "LATERAL and CROSS APPLY are not part of the language; join the streams",
    "USING": "USING is not part of the language; write on (A.key = B.key)",
}
_OUTER = frozenset(("LEFT", "RIGHT", "FULL", "OUTER", "NATURAL", "SEMI", "ANTI", "ASOF"))
_FULL = (("FULL", "JOIN"), ("FULL", "OUTER", "JOIN"))


class Clauses(Amounts):
    """A parser of statements to a :class:`~pulse.language.syntax.Statement`."""

    def _parse_statement(self) -> exp.Expr | None:
        """Parse one text between semicolons; called by sqlglot."""
        if not self._curr:
            return None
        start = self._start()
        named = self._named_queries()
        query = self._query()
        errors: list[ErrorWithin] = []
        every: exp.Expr | None = None
        possible, at, top = False, None, None
        while self._curr:
            token = self._curr
            if self.take_word("ERROR", "WITHIN"):
                errors += self._errors()
            elif self.take_word("SAMPLE", "EVERY"):
                if every is not None:
                    raise self.error("there are two SAMPLE EVERY clauses; write one", token)
                every = self._duration("after SAMPLE EVERY")
            elif self.take_word("WITH", "POSSIBLE"):
                possible = True
            elif self._top_ahead():
                if top is not None:
                    raise self.error("there are two TOP clauses; write one", token)
                top = self._top()
            elif self._as_of_ahead():
                if at is not None:
                    raise self.error("there are two AS OF clauses for the whole query; write one", token)
                at = self._as_of()
            else:
                raise self._unexpected()
        made = Statement(
            this=query, with_=named, errors=errors, every=every, possible=possible, at=at, top=top
        )
        return self.since(made, start)

    def _top_ahead(self, by: int = 0) -> bool:
        """Check whether TOP or BOTTOM with a number begins here; before anything else it is a name."""
        return self.word(by) in ("TOP", "BOTTOM") and self.is_type(TokenType.NUMBER, by + 1)

    def _top(self) -> TopClause:
        start, smallest = self._start(), self.word() == "BOTTOM"
        self._advance()
        number = self._curr
        self._advance()
        if not number.text.isdecimal() or int(number.text) == 0:
            raise self.error(f"expected a whole number above 0, got {number.text}", number)
        self.expect_word("BY", "after the number of keys")
        by = self.name("an output column to rank by")
        return self.since(TopClause(this=number.text, expression=by, smallest=smallest), start)

    def _unexpected(self, instead: str = "") -> Exception:
        word = self.word()
        if word in _NOT_HERE:
            return self.error(_NOT_HERE[word])
        if self._curr and self._curr.text in SYMBOLS_ELSEWHERE:
            return self.error(SYMBOLS_ELSEWHERE[self._curr.text])
        if self._prev and self._prev.text.upper() in CLAUSES_BEGUN:
            return self.error(CLAUSES_BEGUN[self._prev.text.upper()], self._prev)
        if self.is_type(TokenType.R_PAREN):
            return self.error("this parenthesis closes nothing")
        if self.is_type(TokenType.L_BRACKET):
            return self.error(
                "a window stands behind a stream or a subquery in FROM: from S[size 10 advance 2]"
            )
        if instead:
            return self.error(f"{instead} {self.here()}")
        clauses = (
            "join, where, group by, having, union all, intersect, top 10 by, error within, sample every, "
        )
        clauses += "with possible, as of"
        return self.error(f"did not expect {self.here()} here; expected one of: {clauses}")

    # -- queries --------------------------------------------------------------------------------------------

    def _named_queries(self) -> list[exp.CTE]:
        named: list[exp.CTE] = []
        if self.word() != "WITH":
            return named
        self._advance()
        if self.word() == "RECURSIVE":
            raise self.error("recursive queries are not part of the language")
        while True:
            start = self._start()
            alias = self.name("a name for the query")
            self.expect_word("AS", "after the name of the query")
            self.expect(TokenType.L_PAREN, "(", "before the query")
            query = self._inner_query()
            named.append(self.since(exp.CTE(this=query, alias=exp.TableAlias(this=alias)), start))
            if not self._match(TokenType.COMMA):
                return named

    def _inner_query(self) -> exp.Expr:
        """Parse a query up to and including its closing parenthesis."""
        self.deeper()
        query = self._query()
        if (self.word(), self.word(1)) in (("ERROR", "WITHIN"), ("SAMPLE", "EVERY"), ("WITH", "POSSIBLE")):
            clause = f"{self.word()} {self.word(1)}"
            raise self.error(
                f"{clause} applies to the whole answer; write it at the end of the outermost query"
            )
        if self._top_ahead():
            raise self.error(
                f"{self.word()} applies to the whole answer; write it at the end of the outermost query"
            )
        if self._as_of_ahead():
            raise self.error(
                "AS OF of a query in parentheses is written behind them: (select …) as of '2018-01-03' as name"
            )
        if not self.is_type(TokenType.R_PAREN) and self._curr:
            raise self._unexpected()
        self.expect(TokenType.R_PAREN, ")", "to close the query")
        self.depth -= 1
        return query

    def _query(self) -> exp.Expr:
        start = self._start()
        made = self._intersection()
        while self.word() == "UNION":
            token = self._curr
            self._advance()
            if not self.take_word("ALL"):
                raise self.error("UNION without ALL would compare rows; write union all", token)
            made = self.since(exp.Union(this=made, expression=self._intersection(), distinct=False), start)
        return made

    def _intersection(self) -> exp.Expr:
        """Parse selects combined by INTERSECT, which binds tighter than UNION."""
        start = self._start()
        made: exp.Expr = self._select()
        while self.word() == "INTERSECT":
            self._advance()
            if self.word() in ("ALL", "DISTINCT"):
                raise self.error(
                    f"INTERSECT {self.word()}: a model has one value at each instant, so there is nothing to count; "
                    "write intersect"
                )
            made = self.since(exp.Intersect(this=made, expression=self._select(), distinct=True), start)
        return made

    def _select(self) -> exp.Expr:
        start = self._start()
        if self._match(TokenType.L_PAREN):
            return self._inner_query()
        if not self.take_word("SELECT"):
            raise self.error(f"expected select, got {self.here()}: a query reads select … from …")
        if self.word() == "DISTINCT":
            raise self.error("DISTINCT is not part of the language: a model has one value at each instant")
        self.take_word("ALL")
        items = self._items()
        if not self._misses_from() and not self.take_word("FROM"):
            raise self._unexpected("expected from after the columns, got")
        made = exp.Select(expressions=items, from_=exp.From(this=self._source()), joins=self._joins())
        if self.take_word("WHERE"):
            made.set("where", exp.Where(this=self.any()))
        if self.word() == "GROUP":
            made.set("group", self._group())
        if self.word() == "HAVING":
            token = self._curr
            self._advance()
            made.set("having", self.since(exp.Having(this=self.any()), token.start))
        return self.since(made, start)

    def _misses_from(self) -> bool:
        """Check whether a subquery directly follows the columns, as printed in the paper's following query."""
        return self.is_type(TokenType.L_PAREN) and self.word(1) == "SELECT"

    def _items(self) -> list[exp.Expr]:
        if self.word() == "FROM":  # all columns, as the collision query is printed
            made = exp.Star()
            return [self.since(made, self._prev.start)]
        return self._parse_csv(self._item)

    def _item(self) -> exp.Expr:
        start = self._start()
        if self._match(TokenType.STAR):
            return self.since(exp.Star(), start)
        if self.is_name() and self.is_type(TokenType.DOT, 1) and self.is_type(TokenType.STAR, 2):
            table = self.name("an alias")
            self._advance(2)
            return self.since(exp.Column(this=exp.Star(), table=table), start)
        value = self.any()
        if self.take_word("AS") or self.is_name():
            value = self.since(exp.Alias(this=value, alias=self.name("a name after AS")), start)
        return value

    def _group(self) -> exp.Group:
        start = self._start()
        self._advance()
        self.expect_word("BY", "after GROUP")
        return self.since(exp.Group(expressions=self._parse_csv(self.column)), start)

    # -- sources in FROM ------------------------------------------------------------------------------------

    def _joins(self) -> list[exp.Join]:
        joins: list[exp.Join] = []
        while True:
            start = self._start()
            if self._match(TokenType.COMMA):
                joins.append(self.since(exp.Join(this=self._source()), start))
                continue
            full = any(all(self.word(i) == one for i, one in enumerate(words)) for words in _FULL)
            if full:
                self._advance(2 if self.word(1) == "OUTER" else 1)
            elif self.word() in _OUTER:
                raise self.error(
                    "only inner and full joins are part of the language: where one side has no segment there is no value to "
                    "give; write join, or full join with columns such as coalesce(A.price, B.price)"
                )
            if self.word() in ("INNER", "CROSS") and self.word(1) == "JOIN":
                self._advance()
            if self.word() in ("CROSS", "LATERAL"):
                raise self.error(_NOT_HERE["LATERAL"])
            if not self.take_word("JOIN"):
                return joins
            made = exp.Join(this=self._source(), side="FULL" if full else None)
            if self.take_word("ON"):
                made.set("on", self.any())
            elif self.word() == "USING":
                raise self.error(_NOT_HERE["USING"])
            joins.append(self.since(made, start))

    def _source(self) -> SourceClause:
        start = self._start()
        if self._match(TokenType.L_PAREN):
            this: exp.Expr = self._inner_query()
        else:
            if self.word() == "STREAM" and self.is_name(1) and not self._clause_ahead(1):
                self._advance()
            this = self.name("a stream or a subquery in parentheses")
            if self.is_type(TokenType.L_PAREN):
                raise self.error("there are no table functions; name a stream")
            if self.is_type(TokenType.DOT):
                raise self.error("a stream has a name of one part; it is bound with --stream NAME=DIR")
        made = SourceClause(this=this)
        while True:
            if self.is_type(TokenType.L_BRACKET):
                self._once(made, "window")
                made.set("window", self._window())
            elif self._as_of_ahead():
                self._once(made, "at")
                made.set("at", self._as_of())
            elif self._model_ahead():
                self._once(made, "models")
                made.set("models", self._models())
            elif self.word() == "AS" or (self.is_name() and not self._clause_ahead()):
                self.take_word("AS")
                self._once(made, "alias")
                made.set("alias", self.name("an alias"))
            else:
                return self.since(made, start)

    def _once(self, source: SourceClause, part: str) -> None:
        if source.args.get(part) is not None:
            what = {"window": "a window", "models": "a MODEL clause", "alias": "an alias", "at": "an AS OF"}[
                part
            ]
            if part == "alias" and self._prev.text.upper() in CLAUSES_BEGUN:
                raise self.error(CLAUSES_BEGUN[self._prev.text.upper()], self._prev)
            raise self.error(f"this stream has {what} already")

    def _clause_ahead(self, by: int = 0) -> bool:
        """Check whether the name here is not an alias but begins a clause."""
        pair = self.word(by), self.word(by + 1)
        return (
            self._top_ahead(by)
            or pair in (("ERROR", "WITHIN"), ("SAMPLE", "EVERY"))
            or (pair[0] in _OUTER and pair[1] in ("JOIN", "OUTER"))
            or self._model_ahead(by)
        )

    def _model_ahead(self, by: int = 0) -> bool:
        return self.word(by) == "MODEL" and self._rule_ahead(by + 1)

    def _rule_ahead(self, by: int) -> bool:
        """Check whether ``name =`` or ``alias.name =`` follows."""
        dotted = self.is_type(TokenType.DOT, by + 1)
        return self.is_name(by) and self.is_type(TokenType.EQ, by + (3 if dotted else 1))

    def _models(self) -> list[ModelRule]:
        self._advance()
        rules: list[ModelRule] = []
        while True:
            start = self._start()
            attribute = self.column()
            self.expect(TokenType.EQ, "=", "after the modelled attribute")
            rules.append(self.since(ModelRule(this=attribute, expression=self.sum()), start))
            if not (self.is_type(TokenType.COMMA) and self._rule_ahead(1)):
                return rules
            self._advance()


def statements(tokens: list[Token]) -> tuple[list[Token], Token | None]:
    """Return the tokens of the first statement, and the first token of a second one, if any."""
    for i, token in enumerate(tokens):
        if token.token_type == TokenType.SEMICOLON:
            rest = [other for other in tokens[i:] if other.token_type != TokenType.SEMICOLON]
            return tokens[:i], rest[0] if rest else None
    return tokens, None

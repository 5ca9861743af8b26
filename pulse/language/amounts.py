"""The grammar of windows, bounds and moments::

    window := [ SIZE duration [ADVANCE duration] ]
    bound  := number [%] [OR number]
    moment := AS OF ([TIMESTAMP] text | VERSION number)

Durations are part of expressions (:mod:`pulse.language.terms`). Each may be a parameter, ``:name``.
"""

from __future__ import annotations

import re

from sqlglot import TokenType, exp

from pulse.language.syntax import Amount, AsOfClause, ErrorWithin, StreamWindow
from pulse.language.terms import Terms

_VERSION = re.compile(r"0{0,18}[1-9][0-9]{0,17}")


class Amounts(Terms):
    """A parser of windows, bounds and moments to the nodes of :mod:`pulse.language.syntax`."""

    # -- versions -------------------------------------------------------------------------------------------

    def _as_of_ahead(self) -> bool:
        """Check whether AS OF begins here; ``as of`` before anything else is an alias."""
        if (self.word(), self.word(1)) != ("AS", "OF"):
            return False
        named = self.word(2) in ("VERSION", "TIMESTAMP") and not self.is_type(TokenType.DOT, 3)
        kinds = TokenType.STRING, TokenType.COLON, TokenType.NUMBER
        return named or any(self.is_type(kind, 2) for kind in kinds)

    def _as_of(self) -> AsOfClause:
        start = self._start()
        self._advance(2)
        if self.take_word("VERSION"):
            return self.since(AsOfClause(version=self._version()), start)
        self.take_word("TIMESTAMP")
        if self.is_type(TokenType.COLON):
            return self.since(AsOfClause(time=self.parameter()), start)
        begin = self._start()
        if not self._match(TokenType.STRING):
            raise self.error(
                f"expected a time such as '2018-01-03 10:00', or version 3, after AS OF, got {self.here()}"
            )
        text = self._prev.text
        time = self.since(exp.Literal(this=text, is_string=True), begin)
        return self.since(AsOfClause(time=time), start)

    def _version(self) -> exp.Expr:
        if self.is_type(TokenType.COLON):
            return self.parameter()
        start = self._start()
        if not (self.is_type(TokenType.NUMBER) and _VERSION.fullmatch(self._curr.text)):
            raise self.error(
                f"expected the number of a version, from 1 on, after AS OF VERSION, got {self.here()}"
            )
        self._advance()
        text = self._prev.text
        return self.since(exp.Literal(this=text, is_string=False), start)

    # -- windows, bounds -------------------------------------------------------------------------

    def _window(self) -> StreamWindow:
        start = self._start()
        self._advance()
        for word in ("EACH", "SINCE"):
            if self.take_word(word):
                made = self._periods(word)
                self.expect(TokenType.R_BRACKET, "]", f"to close the window [{word.lower()} …]")
                return self.since(made, start)
        if not self.take_word("SIZE"):
            raise self.error(
                f"expected size, each or since, got {self.here()}: a window reads [size 10 advance 2], [each session 'XNYS'], "
                "[each day in 'America/New_York'] or [since session start 'XNYS']"
            )
        made = StreamWindow(size=self._duration("after SIZE"))
        self._match(TokenType.COMMA)
        if self.take_word("ADVANCE"):
            made.set("advance", self._duration("after ADVANCE"))
        self.expect(TokenType.R_BRACKET, "]", "to close the window [size … advance …]")
        return self.since(made, start)

    def _periods(self, word: str) -> StreamWindow:
        """Parse ``SESSION ['code']`` or ``DAY [IN 'zone']``; after SINCE with START behind either, or START alone."""
        since = word == "SINCE"
        if since and self.take_word("START"):
            return StreamWindow(period="start", since=True)
        period = next((one for one in ("session", "day") if self.take_word(one.upper())), None)
        if period is None:
            choice = "session start, day start or start" if since else "session or day"
            raise self.error(f"expected {choice} after {word}, got {self.here()}")
        if since and not self.take_word("START"):
            raise self.error(f"expected start after SINCE {period.upper()}, got {self.here()}")
        made = StreamWindow(period=period, since=since)
        if period == "session":
            if not self.is_type(TokenType.R_BRACKET):
                made.set("of", self._quoted(f"the code of an exchange, such as 'XNYS', after {word} SESSION"))
        elif self.take_word("IN"):
            made.set("of", self._quoted(f"a time zone, such as 'America/New_York', after {word} DAY … IN"))
        return made

    def _quoted(self, what: str) -> exp.Expr:
        start = self._start()
        if not self._match(TokenType.STRING):
            raise self.error(f"expected {what}, got {self.here()}")
        return self.since(exp.Literal(this=self._prev.text, is_string=True), start)

    def _errors(self) -> list[ErrorWithin]:
        errors: list[ErrorWithin] = []
        while True:
            start = self._start()
            bound = self._bound()
            names: list[exp.Expr] = []
            if self.take_word("ON"):
                names.append(self.name("an output column"))
                while self.is_type(TokenType.COMMA) and self.is_name(1):
                    self._advance()
                    names.append(self.name("an output column"))
            errors.append(self.since(ErrorWithin(this=bound, expressions=names), start))
            if not self._match(TokenType.COMMA):
                return errors

    def _bound(self) -> exp.Expr:
        """Parse ``0.5``, ``1%``, ``0.05% OR 0.001``, the same as text, or ``:name``."""
        if self.is_type(TokenType.COLON):
            return self.parameter()
        start = self._start()
        if self._match(TokenType.STRING):
            return self.since(Amount(this=self._prev.text), start)
        amount = self._number("a bound such as 1% or 0.5 after ERROR WITHIN")
        if self._match(TokenType.MOD):
            amount += "%"
        if self.take_word("OR"):
            amount += f" or {self._number('an absolute bound after OR')}"
        return self.since(Amount(this=amount), start)

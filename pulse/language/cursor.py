"""Move through the tokens of a query. The tokenizer has no keywords: the position of a word decides its meaning."""

from __future__ import annotations

from typing import ClassVar, NoReturn, TypeVar

from sqlglot import Token, TokenType, exp, tokens
from sqlglot.parser import Parser

from pulse.language.errors import LanguageError, mark

_RESERVED = """
    SELECT FROM WHERE JOIN ON GROUP HAVING UNION AND OR NOT BETWEEN IN AS ORDER LIMIT OFFSET FETCH INTERSECT EXCEPT
    INNER LEFT RIGHT FULL OUTER CROSS NATURAL USING WITH WINDOW QUALIFY DISTINCT CASE CAST EXISTS LIKE ILIKE IS OVER
"""
RESERVED = frozenset(_RESERVED.split())
"""Words that are names only when quoted."""

MAX_DEPTH = 40
"""The maximum nesting of parentheses and queries: each costs some ten frames of Python's thousand."""

N = TypeVar("N", bound=exp.Expr)


class Tokenizer(tokens.Tokenizer):
    """A tokenizer of symbols, numbers, quoted text, and words, without SQL's five hundred keywords, templates and hints."""

    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        symbol: type_
        for symbol, type_ in tokens.Tokenizer.KEYWORDS.items()
        if symbol in ("<=", ">=", "<>", "!=", "==", "::", "||")
    }
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]


class Cursor(Parser):
    """A parser on sqlglot's cursor with words instead of keywords, and errors that point at the token."""

    depth = 0

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise an error; sqlglot's own methods call this as well."""
        raise self.error(message, token)

    def error(self, message: str, token: Token | None = None) -> LanguageError:
        """Return an error at a token, else at the current one, else behind the last."""
        at = token or self._curr
        if at:
            return LanguageError(message, self.sql, at.start, at.end + 1)
        last = self._prev
        end = last.end + 1 if last else len(self.sql)
        return LanguageError(message, self.sql, end, end)

    def word(self, ahead: int = 0) -> str:
        """Return the unquoted word here (or further on) in capitals, else an empty text."""
        token = self.ahead(ahead)
        return token.text.upper() if token is not None and token.token_type == TokenType.VAR else ""

    def ahead(self, by: int) -> Token | None:
        """Return the token so many places ahead."""
        index = self._index + by
        return self._tokens[index] if 0 <= index < len(self._tokens) else None

    def is_type(self, type_: TokenType, ahead: int = 0) -> bool:
        """Check whether the token here (or further on) is of this type."""
        token = self.ahead(ahead)
        return token is not None and token.token_type == type_

    def is_name(self, ahead: int = 0) -> bool:
        """Check whether the token here is a name: quoted, or a word that is not reserved."""
        if self.is_type(TokenType.IDENTIFIER, ahead):
            return True
        word = self.word(ahead)
        return bool(word) and word not in RESERVED and (word[0].isalpha() or word[0] == "_")

    def take_word(self, *words: str) -> bool:
        """Consume these words if they come next, in order."""
        if any(self.word(i) != word for i, word in enumerate(words)):
            return False
        self._advance(len(words))
        return True

    def expect_word(self, word: str, why: str) -> None:
        """Consume a required word."""
        if not self.take_word(word):
            raise self.error(f"expected {word.lower()} {why}, got {self.here()}")

    def expect(self, type_: TokenType, symbol: str, why: str) -> Token:
        """Consume a required symbol."""
        if not self._match(type_):
            raise self.error(f"expected {symbol} {why}, got {self.here()}")
        return self._prev

    def here(self) -> str:
        """Return the current token as text."""
        if not self._curr:
            return "the end of the query"
        return f"'{self.sql[self._curr.start : self._curr.end + 1]}'"

    def name(self, what: str) -> exp.Identifier:
        """Consume a required name."""
        if not self.is_name():
            quoting = (
                f'; the word is reserved: quote it, "{self._curr.text}"' if self.word() in RESERVED else ""
            )
            if quoting and self._prev and self._prev.token_type == TokenType.COMMA:
                quoting = (
                    f'; leave out the comma before it, or quote a column of that name, "{self._curr.text}"'
                )
            raise self.error(f"expected {what}, got {self.here()}{quoting}")
        token = self._curr
        if not token.text.strip():
            raise self.error(f"expected {what}, got an empty name")
        self._advance()
        made = exp.Identifier(this=token.text, quoted=token.token_type == TokenType.IDENTIFIER)
        mark(made, self.sql, token.start, token.end + 1)
        return made

    def since(self, node: N, start: int) -> N:
        """Mark the node with its position, from an offset to the last consumed token."""
        mark(node, self.sql, start, self._prev.end + 1)
        return node

    def deeper(self) -> None:
        """Count the nesting of parentheses and queries."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(
                f"more than {MAX_DEPTH} parentheses within each other; name parts with WITH … AS (…)"
            )

"""Parse and format descriptions: ``symbol = 'AIG' and t >= '2013-10-08'``.

The grammar has ``= == != <> < <= > >=`` (also ``≠ ≤ ≥``), ``and or not`` (also ``∧ ∨ ¬``), parentheses, ``between``, ``in``,
``not in``, ``is null``, ``is not null``, ``true``, ``false``. A value is a number (``5/9`` and ``1.8`` are exact), a quoted
string, ``true`` or ``false``. A string that is ordered, that is compared with an attribute among ``times``, or that follows
``timestamp`` is an instant, to the microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from pulse.core.errors import TimestampError
from pulse.core.time import format_instant, parse_instant
from pulse.stream.descriptions.boxes import Box
from pulse.stream.descriptions.description import FALSE, TRUE, Description
from pulse.stream.descriptions.value_sets import DEFINED, UNDEFINED, Cut, DescriptionError, ValueSet, scalar
from pulse.stream.units.affine import AffineError, exact

_TOKEN = re.compile(
    r"\s*(?:(?P<op><=|>=|<>|!=|==|[=<>≠≤≥(),¬∧∨])"
    r"|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?:\s*/\s*\d+)?)"
    r"|(?P<quoted>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")"
    r"|(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*))"
)
_SIGNS = {"==": "=", "<>": "!=", "≠": "!=", "≤": "<=", "≥": ">=", "∧": "and", "∨": "or", "¬": "not"}
_COMPARATORS = {"=", "!=", "<", "<=", ">", ">="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
WORDS = {"and", "or", "not", "in", "is", "null", "true", "false", "between", "timestamp"}
_DEEPEST = 50


def parse_description(text: str, *, times: Collection[str] = ()) -> Description:
    """Parse the text of a description.

    >>> str(parse_description("s=1 ∧ t<5"))
    's = 1 and t < 5'
    """
    parser = _Parser(text, times)
    found = parser.either()
    parser.expect("", "the end")
    return found


def format_description(description: Description, *, times: Collection[str] = ()) -> str:
    """Format a description so that it parses back to an equivalent one; numbers of attributes among ``times`` become instants.

    >>> format_description(parse_description("t >= '2013-10-08'"), times=["t"])
    "t >= '2013-10-08T00:00:00.000000Z'"
    """
    if description.is_empty:
        return "false"
    return " or ".join(_format_box(box, times) for box in description.cover())


class _Parser:
    """A recursive descent parser over the tokens of a text."""

    def __init__(self, text: str, times: Collection[str]) -> None:
        self.text, self.times, self.depth = text, frozenset(times), 0
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise DescriptionError(f"description {text!r}: cannot parse {text[at:].strip()[:20]!r}")
            kind = str(match.lastgroup)
            word = _SIGNS.get(match[kind], match[kind])
            if kind == "name" and word.lower() in WORDS:
                word = word.lower()
            self.tokens.append((kind, word, match.start(kind)))
            at = match.end()
        self.tokens.append(("", "", len(text)))
        self.next = 0

    def fail(self, expected: str) -> DescriptionError:
        kind, word, at = self.tokens[self.next]
        came = repr(word) if kind else "the end"
        return DescriptionError(
            f"description {self.text!r}, column {at + 1}: expected {expected}, got {came}"
        )

    def take(self, *words: str) -> str | None:
        kind, word, _ = self.tokens[self.next]
        if kind != "quoted" and word in words:
            self.next += 1
            return word
        return None

    def expect(self, word: str, what: str) -> None:
        if self.take(word) is None:
            raise self.fail(what)

    def either(self) -> Description:
        found = self.both()
        while self.take("or"):
            found = found | self.both()
        return found

    def both(self) -> Description:
        found = self.one()
        while self.take("and"):
            found = found & self.one()
        return found

    def one(self) -> Description:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.fail(f"no more than {_DEEPEST} levels of parentheses")
        try:
            if self.take("not"):
                return ~self.one()
            if self.take("("):
                found = self.either()
                self.expect(")", "')'")
                return found
            return self.comparison()
        finally:
            self.depth -= 1

    def comparison(self) -> Description:
        kind, word, _ = self.tokens[self.next]
        if word in ("true", "false") and self.tokens[self.next + 1][1] not in _COMPARATORS:
            self.next += 1
            return TRUE if word == "true" else FALSE
        turned = (
            kind == "number"
            or word in ("true", "false", "timestamp")
            or (kind == "quoted" and word[0] == "'")
        )
        if turned:
            at, value = self.next, self.literal("", "=")
            comparator = self.comparator()
            name = self.attribute()
            if isinstance(value, str):
                self.next, end = at, self.next
                value, self.next = self.literal(name, comparator), end
            return _where(name, ValueSet.compare(_TURNED.get(comparator, comparator), value))
        name = self.attribute()
        if self.take("is"):
            negated = self.take("not")
            self.expect("null", "null")
            return _where(name, DEFINED if negated else UNDEFINED)
        if self.take("between"):
            low = ValueSet.compare(">=", self.literal(name, ">="))
            self.expect("and", "and")
            return _where(name, low.intersection(ValueSet.compare("<=", self.literal(name, "<="))))
        negated = self.take("not")
        if self.take("in"):
            values = self.listed(name)
            return _where(name, DEFINED.minus(values) if negated else values)
        if negated:
            raise self.fail("in")
        comparator = self.comparator()
        return _where(name, ValueSet.compare(comparator, self.literal(name, comparator)))

    def listed(self, name: str) -> ValueSet:
        self.expect("(", "'('")
        values = ValueSet.of(self.literal(name, "="))
        while self.take(","):
            values = values.union(ValueSet.of(self.literal(name, "=")))
        self.expect(")", "',' or ')'")
        return values

    def comparator(self) -> str:
        found = self.take(*_COMPARATORS)
        if found is None:
            raise self.fail("a comparison, is null, between or in")
        return found

    def attribute(self) -> str:
        kind, word, _ = self.tokens[self.next]
        if kind == "quoted" and word[0] == '"':
            self.next += 1
            return word[1:-1].replace('""', '"')
        if kind != "name" or word in WORDS:
            raise self.fail("an attribute")
        self.next += 1
        return word

    def literal(self, name: str, comparator: str) -> Any:
        stamped = self.take("timestamp") is not None
        kind, word, _ = self.tokens[self.next]
        if kind == "quoted":
            text = word[1:-1].replace(word[0] * 2, word[0])
            if stamped or name in self.times or comparator not in ("=", "!="):
                try:
                    value: Any = parse_instant(text)
                except TimestampError as e:
                    raise DescriptionError(f"description {self.text!r}: {e}") from None
            else:
                value = text
        elif kind == "number" and not stamped:
            try:
                value = scalar(exact(re.sub(r"\s", "", word), f"description {self.text!r}"))
            except AffineError as e:
                raise DescriptionError(str(e)) from None
        elif word in ("true", "false") and not stamped:
            value = word == "true"
        else:
            raise self.fail("a quoted instant" if stamped else "a number, a quoted string, true or false")
        self.next += 1
        return value


def _where(name: str, values: ValueSet) -> Description:
    return FALSE if values.is_empty else Description((((name, values),),))


def _format_box(box: Box, times: Collection[str]) -> str:
    parts = [
        _format_set(_quoted(name), values, timed=name in times, alone=len(box) == 1) for name, values in box
    ]
    return " and ".join(parts) or "true"


def _quoted(name: str) -> str:
    plain = re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name) and name.lower() not in WORDS
    return name if plain else '"' + name.replace('"', '""') + '"'


def _format_set(name: str, values: ValueSet, *, timed: bool, alone: bool) -> str:
    """Format one attribute's constraint; alternatives in parentheses unless they stand alone."""
    if values.null:
        defined = values.intersection(DEFINED)
        if defined.is_empty:
            return f"{name} is null"
        parts = [*_alternatives(name, defined, timed), f"{name} is null"]
    elif values == DEFINED:
        return f"{name} is not null"
    else:
        parts = _alternatives(name, values, timed)
    text = " or ".join(parts)
    return text if alone or len(parts) == 1 else f"({text})"


def _alternatives(name: str, values: ValueSet, timed: bool) -> list[str]:
    if values.kind != "number":
        return [_listed(name, [_text(one, False) for one in sorted(values.members, key=str)], values.rest)]
    for some, outside in ((DEFINED.minus(values), True), (values, False)):
        if numbers := some.listed:
            return [_listed(name, [_text(one, timed) for one in numbers], outside)]
    return [_interval(name, low, high, timed) for low, high in values.intervals()]


def _listed(name: str, values: list[str], outside: bool) -> str:
    """Format that an attribute has one of some values, or with ``outside`` none of them."""
    if len(values) == 1:
        return f"{name} {'!=' if outside else '='} {values[0]}"
    return f"{name} {'not in' if outside else 'in'} ({', '.join(values)})"


def _interval(name: str, low: Cut | None, high: Cut | None, timed: bool) -> str:
    if low is not None and high is not None and low[0] == high[0]:
        return f"{name} = {_text(low[0], timed)}"
    parts = []
    if low is not None:
        parts.append(f"{name} {'>' if low[1] else '>='} {_text(low[0], timed)}")
    if high is not None:
        parts.append(f"{name} {'<=' if high[1] else '<'} {_text(high[0], timed)}")
    return " and ".join(parts)


def _text(value: Any, timed: bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"'{format_instant(value)}'" if timed and isinstance(value, int) else str(value)

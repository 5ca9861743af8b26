"""Parse accents and punctuation: ``[[s = 2, alter(t, (y - 32) * 5/9, y * 9/5 + 32)]]``, ``[[true, add(p)]]``, ``[a <= 1]``.

The primitives may also be written as in the paper: ``+(p)``, ``−(p)``, ``≀(t, y → y / 4, y → y × 4)``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from pulse.core.errors import PulseError
from pulse.stream.accents.accents import (
    Accent,
    AccentError,
    AddAttribute,
    AlterData,
    Control,
    DropAttribute,
    Primitive,
    Punctuation,
)
from pulse.stream.descriptions.description import Description, rows_with_values
from pulse.stream.descriptions.text import WORDS
from pulse.stream.descriptions.value_sets import DescriptionError
from pulse.stream.units.affine import Affine, AffineError

_NAMES = {
    "add": "add",
    "+": "add",
    "drop": "drop",
    "-": "drop",
    "−": "drop",
    "alter": "alter",
    "≀": "alter",
    "~": "alter",
}
_PRIMITIVE = re.compile(r"(add|drop|alter|[-+−≀~])\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
_OF_ONE_VALUE = re.compile(r"\s*\[\[\s*([A-Za-z_]\w*)\s*=\s*'([^'\\]*)'\s*,([^\[\]]*)\]\]\s*")
_FORM = (
    "write [[s = 2, alter(t, (y - 32) * 5/9, y * 9/5 + 32)]], [[true, add(p)]], [[d, drop(p)]] or, "
    "for punctuation, [a <= 1]"
)


def parse_control(text: str, *, position: int = 0, times: Collection[str] = ()) -> Control:
    """Parse an accent, or a punctuation in single brackets.

    >>> parse_control("[a <= 1]", position=7)
    Punctuation(position=7, description=Description('a <= 1'))
    """
    body = text.strip()
    if body.startswith("[["):
        return parse_accent(text, position=position, times=times)
    if not (body.startswith("[") and body.endswith("]")):
        raise AccentError(f"accent: cannot read {text!r}; {_FORM}")
    try:
        described = Description.parse(body[1:-1], times=times)
    except DescriptionError as e:
        raise AccentError(f"punctuation {text!r}: {e}") from None
    return Punctuation(position=position, description=described)


def parse_accent(text: str, *, position: int = 0, times: Collection[str] = ()) -> Accent:
    """Parse an accent; an :class:`AccentError` quotes the text if it is none."""
    found = _parse_common(text, times)
    if found is not None:
        return Accent(position=position, description=found[0], primitive=found[1])
    body = text.strip()
    if not (body.startswith("[[") and body.endswith("]]")):
        raise AccentError(f"accent: cannot read {text!r}; {_FORM}")
    parts = _split(body[2:-2])
    # The description may hold commas (s in (1, 2)) only inside parentheses, so the first bare comma ends it.
    if len(parts) < 2:
        raise AccentError(f"accent {text!r}: expected a description, a comma and a primitive; {_FORM}")
    try:
        described = Description.parse(parts[0], times=times)
        primitive = _parse_primitive(",".join(parts[1:]).strip())
        return Accent(position=position, description=described, primitive=primitive)
    except (AccentError, AffineError, DescriptionError) as e:
        raise AccentError(f"accent {text!r}: {e}") from None


def _parse_common(text: str, times: Collection[str]) -> tuple[Description, Primitive] | None:
    """Fast path: parse a valid accent on the rows with one text in a column, as most accents of a feed are; else None."""
    match = _OF_ONE_VALUE.fullmatch(text)
    if match is None or match[1] in times or match[1].lower() in WORDS:
        return None
    primitive = _known_primitive(match[3].strip())
    if primitive is None or primitive.attribute == match[1]:
        return None
    return rows_with_values(match[1], (match[2],)), primitive


@lru_cache(maxsize=1024)
def _known_primitive(text: str) -> Primitive | None:
    """Parse a primitive; None if it is invalid."""
    try:
        return _parse_primitive(text)
    except PulseError:
        return None


def _parse_primitive(text: str) -> Primitive:
    match = _PRIMITIVE.fullmatch(text)
    if match is None:
        raise AccentError(f"expected add(…), drop(…) or alter(…), got {text!r}")
    name = _NAMES[match[1].lower()]
    attribute, *rest = (part.strip() for part in _split(match[2]))
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", attribute):
        raise AccentError(f"{name}: expected the name of an attribute, got {attribute!r}")
    if name == "add":
        if len(rest) > 1:
            raise AccentError(f"add({attribute}): expected at most a type besides, got {', '.join(rest)}")
        return AddAttribute(attribute, rest[0] if rest else "")
    if name == "drop":
        if rest:
            raise AccentError(f"drop({attribute}): expected nothing besides, got {', '.join(rest)}")
        return DropAttribute(attribute)
    weight = ""
    if rest and rest[-1].startswith("per "):
        weight = rest.pop()[4:].strip()
    if len(rest) not in (1, 2):
        raise AccentError(f"alter({attribute}): expected alpha and beta, got {len(rest)} maps")
    return AlterData(attribute, *(Affine.parse(part) for part in rest), weight=weight)


def _split(text: str) -> list[str]:
    """Split at commas outside of quotes and parentheses."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter == "(") - (letter == ")")
            if letter == "," and depth == 0:
                parts.append("")
                continue
        parts[-1] += letter
    return parts

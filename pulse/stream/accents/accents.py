"""Accents and punctuation: control elements that describe the data after them (semantics 8.1, 8.7; paper §3).

An accent ``[[d, e]]`` states that from here on, for elements that match ``d``, ``e`` has happened. ``e`` is one of

* ``add(X)``: the attribute X may be defined,
* ``drop(X)``: it no longer is,
* ``alter(X, alpha, beta)``: its values are ``alpha`` of what they would have been; ``beta`` is the inverse.

``d`` may not mention X. So altering X does not change which rows match ``d``, and undoing it needs no state: a row after the
accent matches ``d`` exactly if the unaltered row does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias, TypeGuard

from pulse.core.elements import ControlElement
from pulse.core.errors import PulseError
from pulse.core.time import LIMIT
from pulse.stream.descriptions.description import Description
from pulse.stream.descriptions.value_sets import DescriptionError
from pulse.stream.units.affine import Affine


class AccentError(PulseError, ValueError):
    """An accent or punctuation that is malformed or does not fit its stream."""


@dataclass(frozen=True)
class AddAttribute:
    """``+(X)``. ``type`` is the schema entry for X (a truth such as ``step``, or a type); empty if unspecified."""

    attribute: str
    type: str = ""

    def __str__(self) -> str:
        return f"add({self.attribute}, {self.type})" if self.type else f"add({self.attribute})"


@dataclass(frozen=True)
class DropAttribute:
    """``−(X)``."""

    attribute: str

    def __str__(self) -> str:
        return f"drop({self.attribute})"


@dataclass(frozen=True)
class AlterData:
    """``≀(X, alpha, beta)``. ``beta`` defaults to the inverse of ``alpha``; any other map is rejected.

    ``weight`` names the attribute that counts how often the shift enters a value: a sum over ``n`` values goes from ``x`` to
    ``a*x + b*n``. Without it the shift counts once.

    >>> str(AlterData("t", Affine.parse("(y - 32) * 5/9")))
    'alter(t, (y - 32) * 5/9, y * 9/5 + 32)'
    """

    attribute: str
    alpha: Affine
    beta: Affine
    _: KW_ONLY
    weight: str = ""

    def __init__(
        self, attribute: str, alpha: Affine, beta: Affine | None = None, *, weight: str = ""
    ) -> None:
        inverse = alpha.inverse()
        if beta is not None and beta != inverse:
            raise AccentError(
                f"alter({attribute}): expected beta to be the inverse of alpha {alpha}, which is {inverse}, got {beta}"
            )
        for name, value in (
            ("attribute", attribute),
            ("alpha", alpha),
            ("beta", inverse),
            ("weight", weight),
        ):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        weight = f", per {self.weight}" if self.weight else ""
        return f"alter({self.attribute}, {self.alpha}, {self.beta}{weight})"


Primitive: TypeAlias = AddAttribute | DropAttribute | AlterData
NAMES: dict[type[Any], str] = {AddAttribute: "add", DropAttribute: "drop", AlterData: "alter"}


@dataclass(frozen=True, kw_only=True)
class Accent(ControlElement):
    """``[[description, primitive]]`` at its position in the stream.

    >>> accent = Accent.parse("[[s = 2, alter(t, (y - 32) * 5/9, y * 9/5 + 32)]]")
    >>> str(accent.description), accent.attribute
    ('s = 2', 't')
    """

    description: Description
    primitive: Primitive

    def __post_init__(self) -> None:
        free = self.description.free_of(self.attribute)
        if free is None:
            raise AccentError(
                f"{self}: expected a description that does not mention '{self.attribute}', which the accent changes"
            )
        object.__setattr__(self, "description", free)

    @classmethod
    def of(cls, description: Description | str, primitive: Primitive, *, position: int = 0) -> Accent:
        """Build an accent from a description or its text."""
        parsed = Description.parse(description) if isinstance(description, str) else description
        return cls(position=position, description=parsed, primitive=primitive)

    @property
    def attribute(self) -> str:
        """Return the attribute that the primitive changes."""
        return self.primitive.attribute

    @classmethod
    def parse(cls, text: str, *, position: int = 0, times: Collection[str] = ()) -> Accent:
        """Parse the text of an accent; see :func:`pulse.stream.accents.text.parse_accent`."""
        from pulse.stream.accents.text import parse_accent

        return parse_accent(text, position=position, times=times)

    def __str__(self) -> str:
        return f"[[{self.description}, {self.primitive}]]"

    def carried(self, description: Description) -> Description:
        """Translate a description from before the accent to after it: it matches exactly the altered forms of the rows matched
        before.

        >>> accent = Accent.of("s = 2", AlterData("t", Affine(2)))
        >>> str(accent.carried(Description.parse("t < 5")))
        's = 2 and t < 10 or t < 5'
        """
        primitive = self.primitive
        if not isinstance(primitive, AlterData) or primitive.attribute not in description.attributes:
            return description
        if primitive.weight:
            raise AccentError(
                f"{self}: a description refers to '{primitive.attribute}', whose shift depends on "
                f"'{primitive.weight}'; no description can express that"
            )
        inside = (description & self.description).rewritten(primitive.attribute, primitive.alpha)
        return (description - self.description) | inside

    def to_json(self) -> dict[str, Any]:
        """Return position, description and primitive as JSON; numbers are exact."""
        primitive = self.primitive
        found: dict[str, Any] = {
            "position": self.position,
            "description": self.description.to_json(),
            "primitive": NAMES[type(primitive)],
            "attribute": primitive.attribute,
        }
        if isinstance(primitive, AddAttribute) and primitive.type:
            found["type"] = primitive.type
        if isinstance(primitive, AlterData):
            found |= {"alpha": primitive.alpha.to_json(), "beta": primitive.beta.to_json()}
            found |= {"weight": primitive.weight} if primitive.weight else {}
        return found


@dataclass(frozen=True, kw_only=True)
class Punctuation(ControlElement):
    """A promise that no further element matches the description (8.7).

    >>> str(Punctuation(position=3, description=Description.parse("a <= 1")))
    '[a <= 1]'
    """

    description: Description

    def __str__(self) -> str:
        return f"[{self.description}]"

    def to_json(self) -> dict[str, Any]:
        """Return position and description as JSON."""
        return {
            "position": self.position,
            "description": self.description.to_json(),
            "primitive": "punctuation",
        }


Control: TypeAlias = Accent | Punctuation
_FIELDS = {
    "add": {"type"},
    "drop": set[str](),
    "alter": {"alpha", "beta", "weight"},
    "punctuation": set[str](),
}


def is_alteration(control: Control) -> TypeGuard[Accent]:
    """Check whether a control is an accent that alters data."""
    return isinstance(control, Accent) and isinstance(control.primitive, AlterData)


def control_from_json(value: Any, *, position: int = 0, times: Collection[str] = ()) -> Control:
    """Read the output of ``to_json``, a mapping with texts for description and maps, or the text of an accent.

    ``position`` applies where the value has none.

    >>> str(control_from_json({"description": "s = 2", "primitive": "alter", "attribute": "t", "alpha": "y / 4"}))
    '[[s = 2, alter(t, y / 4, y * 4)]]'
    """
    if isinstance(value, str):
        from pulse.stream.accents.text import parse_control

        return parse_control(value, position=position, times=times)
    name = value.get("primitive") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in _FIELDS:
        raise AccentError(
            f"accent: expected a text or an object with 'primitive' one of {', '.join(_FIELDS)}, got {value!r}"
        )
    where = f"accent {value!r}"
    fields = {"position", "description", "primitive", *_FIELDS[name]}
    fields |= {"attribute"} if name != "punctuation" else set()
    if unknown := value.keys() - fields:
        raise AccentError(
            f"{where}: expected only {', '.join(sorted(fields))}, got {', '.join(sorted(unknown))}"
        )
    at = value.get("position", position)
    if not isinstance(at, int) or isinstance(at, bool) or abs(at) > LIMIT:
        raise AccentError(f"{where}: expected a whole number up to 10**18 as position, got {at!r}")
    try:
        given = value.get("description", "true")
        described = (
            Description.parse(given, times=times) if isinstance(given, str) else Description.from_json(given)
        )
        if name == "punctuation":
            return Punctuation(position=at, description=described)
        return Accent(position=at, description=described, primitive=_primitive(name, value))
    except (AccentError, DescriptionError, ValueError) as e:
        raise AccentError(f"{where}: {e}") from None


def _primitive(name: str, value: dict[str, Any]) -> Primitive:
    attribute = value.get("attribute")
    if not isinstance(attribute, str) or not attribute:
        raise AccentError(f"expected the name of an attribute, got {attribute!r}")
    if name == "add":
        return AddAttribute(attribute, str(value.get("type", "")))
    if name == "drop":
        return DropAttribute(attribute)
    if "alpha" not in value:
        raise AccentError("expected alpha, the map that the data is altered by, got none")
    beta = Affine.from_json(value["beta"]) if "beta" in value else None
    return AlterData(attribute, Affine.from_json(value["alpha"]), beta, weight=str(value.get("weight", "")))

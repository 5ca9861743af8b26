"""Evolution policy: how a stream's reader reacts to an accent, per primitive, as in tools for change data capture.

``evolve`` follows the accent (semantics 8.2); ``exception`` ends the query there (8.5); ``ignore`` reads on without it: values
then stay as they are in the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pulse.stream.accents.accents import NAMES, Accent, AccentError

CHOICES = ("evolve", "exception", "ignore")


@dataclass(frozen=True)
class Policy:
    """A choice for each primitive.

    >>> Policy.of("alter=exception, add=ignore")
    Policy(add='ignore', drop='evolve', alter='exception')
    """

    add: str = "evolve"
    drop: str = "evolve"
    alter: str = "evolve"

    @classmethod
    def of(cls, given: Policy | str | Mapping[str, str] | None) -> Policy:
        """Build a policy from one choice, a mapping of primitives to choices, or text: ``alter=exception,add=ignore``."""
        if given is None or isinstance(given, Policy):
            return given or cls()
        if isinstance(given, str) and "=" not in given:
            return cls(*[_choice(given)] * 3)
        if isinstance(given, str):
            parts = (part.partition("=") for part in given.split(","))
            given = {name.strip(): choice.strip() for name, _, choice in parts}
        if not isinstance(given, Mapping):
            raise AccentError(
                f"policy: expected one of {', '.join(CHOICES)}, or a mapping of add, drop and alter to them, got {given!r}"
            )
        found: dict[str, Any] = {}
        for name, choice in given.items():
            if name not in asdict(cls()):
                raise AccentError(f"policy: expected one of {', '.join(asdict(cls()))}, got {name!r}")
            found[name] = _choice(choice)
        return replace(cls(), **found)

    def choice(self, accent: Accent) -> str:
        """Return the choice for an accent."""
        return str(getattr(self, NAMES[type(accent.primitive)]))


def _choice(text: Any) -> str:
    if text not in CHOICES:
        raise AccentError(f"policy: expected one of {', '.join(CHOICES)}, got {text!r}")
    return str(text)

"""Options as they are written on the command line, read into what the library takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pulse.core.errors import PulseError


class OptionError(PulseError, ValueError):
    """An option that does not read as what it stands for."""


def names(given: Iterable[str] | None) -> list[str]:
    """Names, each option one or several with commas between."""
    return [name.strip() for option in given or () for name in option.split(",") if name.strip()]


def models(given: Iterable[str]) -> dict[str, str]:
    """``price:step`` or ``x:linear,y:linear``."""
    found: dict[str, str] = {}
    for one in names(given):
        name, colon, truth = one.rpartition(":")
        if not colon or not name or not truth:
            raise OptionError(
                f"--model {one}: expected ATTRIBUTE:TRUTH, such as price:step; truths are linear, step, samples"
            )
        if name in found:
            raise OptionError(f"--model: '{name}' is named twice")
        found[name] = truth
    return found


def bounds(given: str | None, option: str) -> str | dict[str, str] | None:
    """One bound for all attributes, ``0.05%``, or one each, ``x=10,y=20``."""
    if given is None or "=" not in given:
        return given
    found: dict[str, str] = {}
    for one in names([given]):
        name, equals, bound = one.partition("=")
        if not equals or not name.strip() or not bound.strip():
            raise OptionError(f"{option} {given}: expected one bound, or ATTRIBUTE=BOUND with commas between")
        found[name.strip()] = bound.strip()
    return found


def knobs(given: Iterable[str] | None) -> dict[str, Any]:
    """``NAME=VALUE``, numbers read as such."""
    found: dict[str, Any] = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise OptionError(f"--knob {one}: expected NAME=VALUE, such as symbols=300")
        found[name.strip()] = _number(value.strip())
    return found


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

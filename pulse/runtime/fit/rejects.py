"""Report tuples that a fit could not model, and refuse a fit with too many of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pulse.core.errors import PulseError, SessionError
from pulse.core.schema import StreamSchema

if TYPE_CHECKING:
    from pulse.operators.fit.spec import FitSpec

REFUSE, ASIDE = "refuse", "aside"
POLICIES = (REFUSE, ASIDE)
MOST_LATE = 0.01
"""Share of late tuples above which a fit is refused: then the data is out of order, not a few tuples."""


class LateTuplesError(PulseError, ValueError):
    """More tuples are late than in a stream read in arrival order."""


class SetAsideWarning(UserWarning):
    """Some tuples were set aside and are not in the model."""


def check_policy(late: str) -> str:
    """Check the policy for late tuples, and return it."""
    if late not in POLICIES:
        raise SessionError(f"fit, late: expected {' or '.join(map(repr, POLICIES))}, got {late!r}")
    return late


def check_late(counts: Mapping[str, Any], late: str) -> None:
    """Raise if more than :data:`MOST_LATE` of a fit's tuples are late and the user has not allowed it."""
    if late == ASIDE or counts["late"] <= MOST_LATE * counts["tuples"]:
        return
    raise LateTuplesError(
        f"fit: {_share(counts, 'late')} are late, that is earlier than another tuple of their key that was read before them"
        f"{_first(counts, 'late')}; expected at most {MOST_LATE:.0%}. Files are read in the order in which they are given, from "
        "top to bottom, and what is appended comes after all that the model holds: give the files in the order of time, sort "
        "them, or fit a table or frame, which is sorted by key and time. To model the rest without them use late='aside' "
        "(--late aside). Nothing was written"
    )


def warn_of(counts: Mapping[str, Any], spec: FitSpec) -> None:
    """Warn about tuples that were set aside: how many, what share, the first of them, and what to do."""
    texts = [
        f"{_share(counts, what)} {text}{_first(counts, what)}"
        for what, text in (("late", "are late"), ("not_finite", "have a value that is no number"))
        if counts.get(what)
    ]
    if texts:
        lacks = f"; {lacking(counts)}" if lacking(counts) else ""
        advice = advice_for(counts, spec.schema, spec.nonfinite)
        warnings.warn(
            f"fit: {'; '.join(texts)}{lacks}. They were set aside, with their reason: see Model.aside()"
            f"{f'. {advice}' if advice else ''}",
            SetAsideWarning,
            stacklevel=7,  # where Session.fit was called
        )


def lacking(counts: Mapping[str, Any]) -> str:
    """List the modelled attributes that are null or not finite, in how many tuples; empty if there are none or nothing was
    counted.

    >>> lacking({"lacking": {"x": 1, "cog": 2000}})
    'cog is null or not finite in 2,000, x in 1'
    """
    found = sorted((counts.get("lacking") or {}).items(), key=lambda one: (-one[1], one[0]))
    texts = [f"{name} {'' if i else 'is null or not finite '}in {n:,}" for i, (name, n) in enumerate(found)]
    return ", ".join(texts)


def advice_for(counts: Mapping[str, Any], schema: StreamSchema, nonfinite: str) -> str:
    """Advise how to keep a tuple that lacks one attribute for the others, or as a hole; empty if no attribute is lacking."""
    found: Mapping[str, int] = counts.get("lacking") or {}
    if not found:
        return ""
    worst = [name for name in schema.modelled_names if found.get(name) == max(found.values())]
    rest = [name for name in schema.modelled_names if name not in worst]
    ways = []
    if rest:
        ways.append(
            f"model {', '.join(worst)} in a model of its own (--model {_options(schema, worst)}), and here the others alone "
            f"(--model {_options(schema, rest)})"
        )
    if nonfinite != "hole":
        ways.append("let such tuples be holes (nonfinite='hole', --nonfinite hole)")
    why = "A tuple is modelled with all its attributes or not at all: " if rest else "To have it otherwise, "
    return f"{why}{', or '.join(ways)}" if ways else ""


def _options(schema: StreamSchema, names: list[str]) -> str:
    return ",".join(f"{name}:{truth}" for name, truth in schema.modelled if name in names)


def share(count: int, whole: int) -> str:
    """Format a part of a whole, never rounded to nothing or to all.

    >>> share(1, 3), share(1, 10_000_000), share(9_999_999, 10_000_000)
    ('33.33 %', '< 0.01 %', '> 99.99 %')
    """
    per = 100 * count / whole if whole else 0.0
    if 0 < per < 0.01:
        return "< 0.01 %"
    return "> 99.99 %" if 99.99 < per < 100 else f"{per:.4g} %"


def _share(counts: Mapping[str, Any], what: str) -> str:
    return f"{counts[what]:,} of {counts['tuples']:,} tuples ({share(counts[what], counts['tuples'])})"


def _first(counts: Mapping[str, Any], what: str) -> str:
    first = counts.get(f"first_{what}")
    return "" if first is None else f" (the first: {first})"

"""Write notes on the limits of an answer, to go beside its rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from pulse.core.errors import UnitsWarning
from pulse.core.expression import Column, Expression, Function, walk
from pulse.core.time import format_instant
from pulse.operators.functions.registry import rules_of
from pulse.operators.node import Node
from pulse.operators.node import walk as walk_plan
from pulse.operators.relational.scan import scans
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.execution.bound_plan import at_versions
from pulse.store.model_ref import ModelRef

_OF_DEGREES = ("lat", "lon", "lng")


def notes_of(query: Query, paths: Mapping[str, str | ModelRef]) -> tuple[str, ...]:
    """Return the notes on a bound query's answer: for each stream read as of a time, what counts as known then; for distances
    written out by hand, whether they are in degrees.
    """
    plan = query.plan
    at, found = at_versions(query, paths)
    named = {scan.stream: scan.stream for scan in scans(plan) if scan.at is None}
    named |= {f"{scan.stream} {scan.at}": scan.stream for scan in scans(plan) if scan.at is not None}
    dated = {
        (named[scan.stream], instant)
        for scan in scans(at.plan)
        if (instant := found[scan.stream].as_of) is not None
    }
    return (*(as_of_note(stream, instant) for stream, instant in sorted(dated)), *cautions(plan))


def as_of_note(stream: str, instant: int) -> str:
    """Describe an answer as of a time: tuples count as known at their own times, since arrival times are not stored."""
    return (
        f"{stream} as of {format_instant(instant)}: only revisions are held back until they were known; the tuples of the fit "
        "count as known at their own times, since their arrival times are not stored. Where tuples arrive with a delay, the "
        "answer uses the newest ones that much too early: query as of that much earlier"
    )


def warn_of_units(plan: Node) -> None:
    """Warn about functions of positions that are degrees by their names."""
    named = (name.rpartition(".")[2] for scan in scans(plan) for name in scan.columns.modelled)
    if any(part in name.casefold() for name in named for part in _OF_DEGREES):
        for caution in cautions(plan):
            warnings.warn(f"query: {caution}", UnitsWarning, stacklevel=3)  # where Session.sql was called


def cautions(plan: Node) -> tuple[str, ...]:
    """Return what functions have to say on their arguments, such as a distance of columns named latitude and longitude."""
    calls = (
        one
        for node in walk_plan(optimise(plan))
        for expression in _expressions(tuple(getattr(node, field.name) for field in fields(node)))
        for one in walk(expression)
        if isinstance(one, Function)
    )
    found = ((one, rules_of(one).caution(_names(one.arguments))) for one in calls)
    texts: dict[tuple[Any, str], str] = {}
    for one, caution in found:
        if caution is not None and (rules_of(one).public or (one.arguments, caution) not in texts):
            # Rewriting makes functions that no query can write: their arguments are what a user knows.
            written = str(one) if rules_of(one).public else f"({', '.join(map(str, one.arguments))})"
            texts[one.arguments, caution] = f"{written}: {caution}"
    return tuple(texts.values())


def _expressions(value: Any) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _expressions(one)


def _names(arguments: tuple[Expression, ...]) -> list[str]:
    return [one.name.rpartition(".")[2] if isinstance(one, Column) else "" for one in arguments]

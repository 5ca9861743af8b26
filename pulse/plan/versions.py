"""Set the state at which a query reads its streams, where it is given beside its text (semantics 7; AS OF)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pulse.core.time import parse_instant
from pulse.operators.node import PlanError
from pulse.operators.relational.scan import AsOf, Scan, as_of, change_scans, scans
from pulse.plan.query import Query


def read_as_of(query: Query, time: Any, version: int | Mapping[str, int] | None) -> Query:
    """Read the query's streams as of a time, or of a version for all of them or by stream.

    Streams with their own AS OF clause stay as they are. A time is a text, a datetime or microseconds since the epoch.

    >>> from pulse.core.columns import Columns
    >>> query = Query(Scan("S", "S", Columns((), ("x",))), ("x",))
    >>> read_as_of(query, None, {"S": 2}).plan.at
    AsOf(version=2, time=None)
    """
    if time is None and version is None:
        return query
    if time is not None and version is not None:
        raise PlanError("query: got both a time and a version to read as of; give one of them")
    if time is not None:
        instant = time if isinstance(time, int) and not isinstance(time, bool) else parse_instant(time)
        return replace(query, plan=as_of(query.plan, AsOf(time=instant)))
    if isinstance(version, Mapping):
        known = {scan.stream for scan in scans(query.plan)}
        for name, one in version.items():
            if name not in known:
                raise PlanError(
                    f"query: version of '{name}': it reads {', '.join(sorted(known))}; name one of these"
                )
            checked(one)
        return replace(query, plan=change_scans(query.plan, lambda scan: _at(scan, version)))
    return replace(query, plan=as_of(query.plan, AsOf(version=checked(version))))


def checked(version: Any) -> int:
    """Check and return the number of a version."""
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise PlanError(f"query: expected the number of a version, from 1 on, got {version!r}")
    return version


def _at(scan: Scan, version: Mapping[str, int]) -> Scan:
    if scan.at is None and scan.stream in version:
        return replace(scan, at=AsOf(version=version[scan.stream]))
    return scan

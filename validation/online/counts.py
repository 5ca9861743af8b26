"""Count tuples by what validation makes of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pulse.core.arrays import IntArray
from pulse.kernels.validate import validate as checks

_KINDS = {
    "validated": checks.VALIDATED,
    "first": checks.FIRST,
    "expired": checks.EXPIRED,
    "violated": checks.VIOLATED,
    "changed": checks.CHANGED,
    "extended": checks.EXTENDED,
    "late": checks.LATE,
    "not_finite": checks.NOT_FINITE,
    "repaired": checks.REPAIR,
}


@dataclass
class ValidationCounts:
    """Counters of tuples by outcome: each tuple counts once; ``repaired`` counts intervals that were repaired.

    ``extended`` tuples stayed within their key's model and extended it.
    """

    tuples: int = 0
    validated: int = 0
    first: int = 0
    expired: int = 0
    violated: int = 0
    changed: int = 0
    extended: int = 0
    late: int = 0
    not_finite: int = 0
    misplaced: int = 0  # no key, no time, or a time out of range
    repaired: int = 0

    @classmethod
    def of(cls, by_kind: IntArray) -> ValidationCounts:
        """Return the counts of a batch, from those of its events by kind."""
        return cls(**{name: int(by_kind[kind]) for name, kind in _KINDS.items()})

    def add(self, other: ValidationCounts) -> None:
        """Add another's counts."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

"""Define the fit of a stored attribute that a bound on a query's output requires."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fit:
    """Sufficient bounds: either ``error`` on the values, or ``drift`` on the integral (value·seconds).

    None: no such bound can be derived, or none helps.
    """

    error: float | None
    drift: float | None = None

    def scaled(self, factor: float) -> Fit:
        """Multiply both bounds by a factor."""
        return Fit(
            None if self.error is None else self.error * factor,
            None if self.drift is None else self.drift * factor,
        )

    def tighter(self, other: Fit) -> Fit:
        """Return the fit that satisfies both. A bound that one of them cannot use is dropped."""
        return Fit(_smaller(self.error, other.error), _smaller(self.drift, other.drift))


UNKNOWN = Fit(None)


def _smaller(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else min(a, b)

"""What a fit is asked for: the stream, the bounds, the degree, and what counts as a hole (semantics 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pulse.core import ErrorBound, StreamSchema, Truth, format_duration
from pulse.core.bounds import Absolute, Relative, RelativeWithFloor
from pulse.core.errors import BoundError, PulseError, unknown_column
from pulse.kernels.fit.constraints import NOT_ASKED
from pulse.kernels.fit.greedy_lines import AUTO
from pulse.kernels.fit.truth_intervals import TRUTHS

HIGHEST_DEGREE = 5


class FitSpecError(PulseError, ValueError):
    """A fit was asked for that cannot be made."""


@dataclass(frozen=True)
class FitSpec:
    """How to model a stream. ``error`` and ``drift`` hold one bound or None per modelled attribute, in the schema's order."""

    schema: StreamSchema
    error: tuple[ErrorBound | None, ...]
    drift: tuple[ErrorBound | None, ...]
    degree: int = 1
    max_gap: int | None = None
    nonfinite: str = "reject"

    @classmethod
    def of(
        cls,
        schema: StreamSchema,
        *,
        error: Any = None,
        drift: Any = None,
        degree: int | str | None = None,
        max_gap: int | None = None,
        nonfinite: str = "reject",
    ) -> FitSpec:
        """A spec from bounds as users write them: one for all attributes, or a mapping by attribute.

        Without a ``degree`` bounds on integrals are met by constants or lines per segment (``auto``): while nothing happens a
        constant stays one, so that averages over it differ by nothing. Everything else is lines, and so is a ``linear`` truth
        with bounds on both: a constant on a slope may leave a difference of integrals that the next segment cannot lose within
        the bound on the value.

        >>> trades = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
        >>> FitSpec.of(trades, error="0.05%").error
        (Relative(percent=0.05),)
        """
        if schema.points:
            return cls._of_points(schema, (error, drift, degree, max_gap), nonfinite)
        errors, drifts = _per_attribute(error, schema, "error"), _per_attribute(drift, schema, "drift")
        if degree is None:
            degree = _default_degree(schema, errors, drifts)
        return cls(
            schema=schema,
            error=errors,
            drift=drifts,
            degree=_degree(degree),
            max_gap=max_gap,
            nonfinite=nonfinite,
        )

    @classmethod
    def _of_points(cls, schema: StreamSchema, asked: tuple[Any, ...], nonfinite: str) -> FitSpec:
        """Tuples as they are: exact, so nothing can be asked for."""
        if any(one is not None for one in asked):
            raise FitSpecError(
                "fit: points are the tuples themselves, exact and with silence between them; leave out error, drift, degree "
                "and max_gap, or model the samples within a bound without points"
            )
        exact, none = (Absolute(0.0),) * len(schema.modelled), (None,) * len(schema.modelled)
        return cls(schema=schema, error=exact, drift=none, degree=0, nonfinite=nonfinite)

    def __post_init__(self) -> None:
        if self.nonfinite not in ("reject", "hole"):
            raise FitSpecError(f"nonfinite: expected 'reject' or 'hole', got {self.nonfinite!r}")
        for (name, truth), error, drift in zip(self.schema.modelled, self.error, self.drift, strict=True):
            if error is None and drift is None:
                raise FitSpecError(
                    f"fit: '{name}' has no bound; ask for one on its value (an error such as 0.05%), "
                    "on its integral (a drift such as 0.005%), or both"
                )
            if drift is not None and truth is Truth.SAMPLES:
                raise FitSpecError(
                    f"fit: '{name}' is defined only at its samples, so it has no integral to bound; give an error"
                )
            if drift is not None and self.degree > 1:
                raise FitSpecError(
                    f"fit: a bound on the integral of '{name}' needs degree 0, 1 or auto, got {self.degree}"
                )

    @property
    def truth(self) -> npt.NDArray[np.int64]:
        """The attributes' truths as the kernels know them."""
        return np.array([TRUTHS[truth.value] for _, truth in self.schema.modelled], dtype=np.int64)

    @property
    def bounds(self) -> npt.NDArray[np.float64]:
        """The asked bounds as the kernels know them: ``[A, 4]``."""
        rows = [(*_pair(error), *_pair(drift)) for error, drift in zip(self.error, self.drift, strict=True)]
        return np.array(rows, dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        """For a manifest."""
        names = self.schema.modelled_names
        return {
            "error": {name: None if b is None else str(b) for name, b in zip(names, self.error, strict=True)},
            "drift": {name: None if b is None else str(b) for name, b in zip(names, self.drift, strict=True)},
            "degree": "auto" if self.degree == AUTO else self.degree,
            "max_gap": None if self.max_gap is None else format_duration(self.max_gap),
            "nonfinite": self.nonfinite,
        }


def _default_degree(
    schema: StreamSchema, errors: tuple[ErrorBound | None, ...], drifts: tuple[ErrorBound | None, ...]
) -> int | str:
    """The degree where none is asked for."""
    if all(drift is None for drift in drifts):
        return 1
    both = (
        truth is Truth.LINEAR and error is not None and drift is not None
        for (_, truth), error, drift in zip(schema.modelled, errors, drifts, strict=True)
    )
    return 1 if any(both) else "auto"


def _pair(bound: ErrorBound | None) -> tuple[float, float]:
    """Share of the truth and floor."""
    match bound:
        case None:
            return NOT_ASKED, NOT_ASKED
        case Absolute(value):
            return 0.0, value
        case Relative(percent):
            return percent / 100.0, 0.0
        case RelativeWithFloor(percent, floor):
            return percent / 100.0, floor
    raise BoundError(f"error bound: {bound!r} is of no known kind")


def _per_attribute(given: Any, schema: StreamSchema, what: str) -> tuple[ErrorBound | None, ...]:
    names = schema.modelled_names
    if given is None:
        return (None,) * len(names)
    if not isinstance(given, Mapping):
        return (ErrorBound.parse(given),) * len(names)
    for name in given:
        if name not in names:
            raise unknown_column(name, names, what)
    return tuple(ErrorBound.parse(given[name]) if given.get(name) is not None else None for name in names)


def _degree(degree: int | str) -> int:
    if degree == "auto":
        return AUTO
    text = "" if isinstance(degree, bool) else str(degree)  # True is no degree
    if not (text.isascii() and text.isdigit() and int(text) <= HIGHEST_DEGREE):
        raise FitSpecError(f"degree: expected 0 to {HIGHEST_DEGREE} or 'auto', got {degree!r}")
    return int(text)

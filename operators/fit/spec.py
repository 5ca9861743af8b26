"""Specify a fit: the stream, the bounds, the degree and the definition of a hole (semantics 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pulse.core.bounds import Absolute, ErrorBound
from pulse.core.errors import PulseError, unknown_column
from pulse.core.schema import StreamSchema, Truth
from pulse.core.time import format_duration
from pulse.kernels.fit.constraints import NOT_ASKED
from pulse.kernels.fit.greedy_lines import AUTO
from pulse.kernels.fit.truth_intervals import TRUTHS
from pulse.operators.fit.speed_limit import SpeedLimit

HIGHEST_DEGREE = 5


class FitSpecError(PulseError, ValueError):
    """An error for a fit specification that cannot be satisfied."""


@dataclass(frozen=True)
class FitSpec:
    """A specification of how to model a stream.

    ``error`` and ``drift`` hold one bound or None per modelled attribute, in the schema's order.
    """

    schema: StreamSchema
    error: tuple[ErrorBound | None, ...]
    drift: tuple[ErrorBound | None, ...]
    degree: int = 1
    max_gap: int | None = None
    nonfinite: str = "reject"
    speed_limit: SpeedLimit | None = None

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
        max_speed: str | None = None,
    ) -> FitSpec:
        """Build a spec from bounds as users write them.

        Without a ``degree``, bounds on integrals are met by constants or lines per segment (``auto``): a flat stretch stays a
        constant, so averages over it do not change. Everything else uses lines. So does a ``linear`` truth with bounds on both
        value and integral: a constant on a slope can leave a difference of integrals that the next segment cannot compensate
        within the bound on the value.

        Parameters
        ----------
        schema : the stream's schema
        error : bound on the value, one for all attributes or a mapping by attribute, default None
        drift : bound on the integral, in the same form, default None
        degree : 0 to 5 or ``auto``, default as above
        max_gap : longest silence that is not a hole, microseconds, default None (no silence is a hole)
        nonfinite : ``reject`` (default) or ``hole``: how non-finite values are treated
        max_speed : speed beyond which positions are set aside, such as ``60 kn``, default None

        >>> trades = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
        >>> FitSpec.of(trades, error="0.05%").error
        (Relative(percent=0.05),)
        """
        if schema.points:
            return cls._of_points(schema, (error, drift, degree, max_gap, max_speed), nonfinite)
        errors = bounds_by_attribute(error, schema, "error")
        drifts = bounds_by_attribute(drift, schema, "drift")
        if degree is None:
            degree = _default_degree(schema, errors, drifts)
        return cls(
            schema=schema,
            error=errors,
            drift=drifts,
            degree=_degree(degree),
            max_gap=max_gap,
            nonfinite=nonfinite,
            speed_limit=None if max_speed is None else SpeedLimit.of(max_speed, schema),
        )

    @classmethod
    def _of_points(cls, schema: StreamSchema, options: tuple[Any, ...], nonfinite: str) -> FitSpec:
        """Build the spec of a stream of points, which are exact and take no options."""
        if any(one is not None for one in options):
            raise FitSpecError(
                "fit: points are the tuples themselves, exact and with silence between them; leave out error, drift, degree, "
                "max_gap and max_speed, or model the samples within a bound without points"
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
            if truth is Truth.FLOW:
                self._check_flow(name, error, drift)
            if drift is not None and self.degree > 1:
                raise FitSpecError(
                    f"fit: a bound on the integral of '{name}' needs degree 0, 1 or auto, got {self.degree}"
                )

    def _check_flow(self, name: str, error: ErrorBound | None, drift: ErrorBound | None) -> None:
        """Check the bounds and options that a flow allows."""
        if drift is not None or error is None:
            raise FitSpecError(
                f"fit: '{name}' is a flow: a bound is on its running total, not on an integral; write --error {name}=100 "
                f"(error={{'{name}': 100}}) and give the drift to the other attributes by name"
            )
        if not isinstance(error, Absolute):
            raise FitSpecError(
                f"fit: '{name}' is a flow, whose running total grows, so that a share of it ({error}) means less and less: "
                f"bound the total by an amount, --error {name}=100; a sum over any window then errs by at most twice that"
            )
        if self.nonfinite == "hole":
            raise FitSpecError(
                f"fit: '{name}' is a flow: a missing value adds nothing, it makes no hole; leave out nonfinite, or fit "
                "the other attributes into a model of their own"
            )
        if self.degree > 1:
            raise FitSpecError(
                f"fit: the running total of '{name}' needs degree 0, 1 or auto, got {self.degree}"
            )

    @property
    def adds(self) -> npt.NDArray[np.bool_]:
        """Return which attributes are flows, whose running totals are modelled."""
        return np.array([truth is Truth.FLOW for _, truth in self.schema.modelled], dtype=np.bool_)

    @property
    def truth(self) -> npt.NDArray[np.int64]:
        """Return the attributes' truths as kernel codes."""
        return np.array([TRUTHS[truth.value] for _, truth in self.schema.modelled], dtype=np.int64)

    @property
    def bounds(self) -> npt.NDArray[np.float64]:
        """Return the requested bounds as a kernel array ``[A, 4]``."""
        rows = [(*_pair(error), *_pair(drift)) for error, drift in zip(self.error, self.drift, strict=True)]
        return np.array(rows, dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        """Encode the spec for a manifest."""
        names = self.schema.modelled_names
        return {
            "error": {name: None if b is None else str(b) for name, b in zip(names, self.error, strict=True)},
            "drift": {name: None if b is None else str(b) for name, b in zip(names, self.drift, strict=True)},
            "degree": "auto" if self.degree == AUTO else self.degree,
            "max_gap": None if self.max_gap is None else format_duration(self.max_gap),
            "nonfinite": self.nonfinite,
            **({} if self.speed_limit is None else {"max_speed": self.speed_limit.text}),
        }


def _default_degree(
    schema: StreamSchema, errors: tuple[ErrorBound | None, ...], drifts: tuple[ErrorBound | None, ...]
) -> int | str:
    """Choose the degree where the user gives none."""
    if all(drift is None for drift in drifts):
        return 1
    both = (
        truth is Truth.LINEAR and error is not None and drift is not None
        for (_, truth), error, drift in zip(schema.modelled, errors, drifts, strict=True)
    )
    return 1 if any(both) else "auto"


def _pair(bound: ErrorBound | None) -> tuple[float, float]:
    """Return the bound as (share of the truth, floor)."""
    return (NOT_ASKED, NOT_ASKED) if bound is None else bound.share_and_floor


def bounds_by_attribute(given: Any, schema: StreamSchema, what: str) -> tuple[ErrorBound | None, ...]:
    """Parse one bound for all attributes, or a mapping by attribute; errors name ``what`` the bounds are."""
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
    text = "" if isinstance(degree, bool) else str(degree)  # True is not a degree
    if not (text.isascii() and text.isdigit() and int(text) <= HIGHEST_DEGREE):
        raise FitSpecError(f"degree: expected 0 to {HIGHEST_DEGREE} or 'auto', got {degree!r}")
    return int(text)

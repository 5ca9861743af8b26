"""Helpers of the generators: checks of knobs, random streams, and autoregressive processes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.errors import TimestampError
from pulse.core.time import parse_instant
from pulse.datasets.errors import DatasetError


def positive(name: str, value: Any) -> None:
    """Check for a finite number above zero."""
    if not _is_finite(value) or value <= 0:
        raise DatasetError(f"{name}: expected a number above zero, got {value!r}")


def not_negative(name: str, value: Any) -> None:
    """Check for a finite number that is not below zero."""
    if not _is_finite(value) or value < 0:
        raise DatasetError(f"{name}: expected a number of at least zero, got {value!r}")


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def share(name: str, value: Any) -> None:
    """Check for a number from 0 to 1."""
    not_negative(name, value)
    if value > 1:
        raise DatasetError(f"{name}: expected a share from 0 to 1, got {value!r}")


def count(name: str, value: Any, *, least: int = 1, most: int = 10**6) -> None:
    """Check for a whole number within limits."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise DatasetError(f"{name}: expected a whole number from {least:,} to {most:,}, got {value!r}")


def start_microseconds(start: str) -> int:
    """Return the microseconds since 1970 of an ISO 8601 date or date and time, taken as UTC if it has no zone."""
    try:
        return parse_instant(start)
    except TimestampError:
        raise DatasetError(
            f"start: expected a date such as 2024-01-02 or 2024-01-02T09:30, got {start!r}"
        ) from None


def streams(seed: int, names: int) -> list[np.random.Generator]:
    """Return independent generators, one per purpose: draws from one do not affect the others."""
    count("seed", seed, least=0, most=2**63 - 1)
    return [
        np.random.Generator(np.random.SFC64(child)) for child in np.random.SeedSequence(seed).spawn(names)
    ]


def autoregressive(noise: FloatArray, memory: float, last: Any) -> FloatArray:
    """Compute ``y[i] = memory·y[i − 1] + noise[i]`` along the first axis, with ``y[−1] = last``."""
    from scipy.signal import lfilter  # takes a second to import, which readers on workers do not need

    values: FloatArray = lfilter([1.0], [1.0, -memory], noise, axis=0, zi=np.asarray(memory * last)[None])[0]
    return values

"""Define the error of plots."""

from __future__ import annotations

from pulse.core.errors import PulseError


class PlotError(PulseError, ValueError):
    """A picture cannot be drawn."""

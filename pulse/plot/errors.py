"""What can be wrong with a picture."""

from __future__ import annotations

from pulse.core.errors import PulseError


class PlotError(PulseError, ValueError):
    """A picture that cannot be drawn."""

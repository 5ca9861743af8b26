"""What can go wrong with a stored model."""

from __future__ import annotations

from pulse.core.errors import PulseError


class StoreError(PulseError, ValueError):
    """A directory that is no model, or not one this version can read."""


class ModelExistsError(StoreError, FileExistsError):
    """The output is there already."""


class ModelNotFoundError(StoreError, FileNotFoundError):
    """There is no such model."""


class WriteError(StoreError, OSError):
    """The model could not be written: no space, no permission."""

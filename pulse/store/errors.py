"""Errors of stored models."""

from __future__ import annotations

from pulse.core.errors import PulseError


class StoreError(PulseError, ValueError):
    """A directory that is no model, or not one this version can read."""


class ModelExistsError(StoreError, FileExistsError):
    """The output exists already."""


class ModelNotFoundError(StoreError, FileNotFoundError):
    """There is no such model."""


class MissingFileError(StoreError, FileNotFoundError):
    """A file that a model's manifest names does not exist."""


class DamagedModelError(StoreError):
    """A file of a model that cannot be read, or whose checksum does not match."""


class LinkedFileError(StoreError):
    """A link, in a model or in a folder of a job, to something outside it."""


class WriteError(StoreError, OSError):
    """The model could not be written: no space, no permission."""


class VersionGoneError(StoreError, LookupError):
    """A version that is not kept, or never existed."""


class HistoryGoneError(StoreError, LookupError):
    """Tuples, or an earlier state, that are not kept: the message states what was needed and what is available."""


class SourceChangedError(HistoryGoneError):
    """A source file has changed since it was modelled."""


class HeldAlreadyError(StoreError):
    """Files to append that the model already contains: all of them, if ``whole``."""

    def __init__(self, message: str, *, whole: bool) -> None:
        super().__init__(message)
        self.whole = whole


class ConflictError(StoreError):
    """Another process has committed meanwhile: ``between`` has the reasons of its commits, oldest first."""

    def __init__(self, message: str, between: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.between = between

"""What can go wrong with a stored model."""

from __future__ import annotations

from pulse.core.errors import PulseError


class StoreError(PulseError, ValueError):
    """A directory that is no model, or not one this version can read."""


class ModelExistsError(StoreError, FileExistsError):
    """The output is there already."""


class ModelNotFoundError(StoreError, FileNotFoundError):
    """There is no such model."""


class MissingFileError(StoreError, FileNotFoundError):
    """A file that a model's manifest names is not there."""


class DamagedModelError(StoreError):
    """A file of a model that cannot be read, or whose bytes are not those that were written."""


class LinkedFileError(StoreError):
    """A link in a model, or in a folder of a job, that leads to what is not its own."""


class WriteError(StoreError, OSError):
    """The model could not be written: no space, no permission."""


class VersionGoneError(StoreError, LookupError):
    """A version that is not kept, or never was."""


class HistoryGoneError(StoreError, LookupError):
    """Tuples, or an earlier state, that are not kept: the message says how much was needed and how much there is."""


class SourceChangedError(HistoryGoneError):
    """A source file is no longer what was modelled."""


class HeldAlreadyError(StoreError):
    """Files to append that the model is of already: all of them, if ``whole``."""

    def __init__(self, message: str, *, whole: bool) -> None:
        super().__init__(message)
        self.whole = whole


class RevisionUnderWayError(StoreError, BlockingIOError):
    """Somebody else is changing the model: ``holder`` says who, as far as that is known."""

    holder = "just now"

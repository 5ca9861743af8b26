"""Which model, and as of when: all it takes to open it, in any process."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse.store.model import Model


@dataclass(frozen=True)
class ModelRef:
    """A model's folder, the version to read (None: the newest), and the instant as of which (microseconds; None: now)."""

    path: str
    version: int | None = None
    as_of: int | None = None

    @classmethod
    def of(cls, given: str | os.PathLike[str] | ModelRef | Model) -> ModelRef:
        """From a path, or from a model as it was opened.

        >>> ModelRef.of("prices")
        Stored(path='prices', version=None, as_of=None)
        """
        if isinstance(given, ModelRef):
            return given
        if isinstance(given, (str, os.PathLike)):
            return cls(os.fspath(given))
        return given.stored

    def open(self) -> Model:
        """The model."""
        from pulse.store.model import Model

        return Model(self)

    def pinned(self) -> ModelRef:
        """The same with the version that answers now, so that all who read it read the same."""
        return self if self.version is not None else replace(self, version=self.open().version)

"""A reference to a stored model: all that is needed to open it, in any process."""

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
        """Build a reference from a path, or from an open model.

        >>> ModelRef.of("prices")
        ModelRef(path='prices', version=None, as_of=None)
        """
        if isinstance(given, ModelRef):
            return given
        if isinstance(given, (str, os.PathLike)):
            return cls(os.fspath(given))
        return given.stored

    def open(self) -> Model:
        """Open the model."""
        from pulse.store.model import Model

        return Model(self)

    def pinned(self) -> ModelRef:
        """Return the reference with the current version, so that all readers see the same one."""
        return self if self.version is not None else replace(self, version=self.open().version)

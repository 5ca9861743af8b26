"""A reference to a stored model: all that is needed to open it, in any process."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse.store.model import Model


@dataclass(frozen=True)
class ModelRef:
    """A model's folder, the version to read (None: the newest), and the instant as of which (microseconds; None: now).

    ``commit`` is that of the log to read, whatever others commit meanwhile.
    """

    path: str
    version: int | None = None
    as_of: int | None = None
    commit: int | None = field(default=None, repr=False)

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
        """Return the reference with the current commit, so that all readers see the same one."""
        if self.commit is not None:
            return self
        manifest = self.open().manifest
        return replace(self, version=manifest.version, commit=manifest.commit or None)

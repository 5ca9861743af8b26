"""Define the result of inversion for a stream's validators: an absolute bound per key and attribute (semantics 4.3, 6.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray
from pulse.core.errors import PulseError
from pulse.core.keys import key_ranks
from pulse.operators.inversion.needs import gather, positions


class AllotmentError(PulseError, ValueError):
    """An error for invalid bounds."""


@dataclass(frozen=True, eq=False)
class Allotment:
    """The bounds of a stream's keys.

    ``keys`` has a column per key attribute, one entry per key. ``bounds`` has an array per modelled attribute, aligned with the
    keys: how far the truth may lie from the model, infinite where nothing depends on it. ``default`` holds for unlisted keys. An
    attribute in neither is unconstrained. A stream without a key has no key columns and one entry.
    """

    stream: str
    keys: tuple[pa.Array, ...]
    bounds: Mapping[str, FloatArray]
    default: Mapping[str, float]

    def __post_init__(self) -> None:
        n = len(self)
        for name, values in self.bounds.items():
            if len(values) != n or not (values >= 0.0).all():
                raise AllotmentError(
                    f"allotment of {self.stream}: expected {n} bounds of '{name}', 0 or more, got {values}"
                )
        for name, value in self.default.items():
            if not value >= 0.0:
                raise AllotmentError(
                    f"allotment of {self.stream}: expected a default of '{name}', 0 or more, got {value}"
                )

    def __len__(self) -> int:
        """Return the number of listed keys."""
        if self.keys:
            return len(self.keys[0])
        return len(next(iter(self.bounds.values()), ()))

    @property
    def attributes(self) -> tuple[str, ...]:
        """Return the attributes that have bounds or defaults, in order."""
        return tuple(dict.fromkeys((*self.bounds, *self.default)))

    def of(self, keys: tuple[pa.Array, ...], n: int = 1) -> dict[str, FloatArray]:
        """Return the bounds of these keys, listed or not; ``n`` is their number if the stream has no key columns.

        >>> mine = Allotment("S", (pa.array(["a"]),), {"x": np.array([0.5])}, {"x": 2.0})
        >>> mine.of((pa.array(["a", "b"]),))
        {'x': array([0.5, 2. ])}
        """
        n = len(keys[0]) if keys else n
        at = positions(keys, self.keys, n, len(self))
        out = {}
        for name in self.attributes:
            default = self.default.get(name, np.inf)
            own = gather(np.asarray(self.bounds.get(name, np.full(len(self), np.inf)), float), at)
            out[name] = np.where(at >= 0, own, default)
        return out

    def tighter(self, other: Allotment) -> Allotment:
        """Combine two allotments: the smaller bound for every key of either, and the smaller default."""
        if self.stream != other.stream:
            raise AllotmentError(
                f"expected two allotments of one stream, got {self.stream} and {other.stream}"
            )
        keys = tuple(
            pa.concat_arrays([a, b.cast(a.type)]) for a, b in zip(self.keys, other.keys, strict=True)
        )
        n = len(self) + len(other)
        _, first = np.unique(key_ranks(list(keys), n), return_index=True)
        first.sort()
        keys = tuple(column.take(pa.array(first)) for column in keys)
        mine, others = self.of(keys, len(first)), other.of(keys, len(first))
        names = tuple(dict.fromkeys((*mine, *others)))
        free: Any = np.full(len(first), np.inf)
        return Allotment(
            self.stream,
            keys,
            {name: np.minimum(mine.get(name, free), others.get(name, free)) for name in names},
            {name: min(self.default.get(name, np.inf), other.default.get(name, np.inf)) for name in names},
        )

    def renewed(self, new: Allotment) -> Allotment:
        """Replace the bounds of the keys that ``new`` lists, keep the others, and take the smaller default.

        >>> old = Allotment("S", (pa.array(["a", "b"]),), {"x": np.array([0.5, 0.25])}, {"x": 2.0})
        >>> old.renewed(Allotment("S", (pa.array(["a"]),), {"x": np.array([0.75])}, {})).of((pa.array(["a", "b", "c"]),))
        {'x': array([0.75, 0.25, 2.  ])}
        """
        kept = positions(self.keys, new.keys, len(self), len(new)) < 0
        keys = tuple(
            pa.concat_arrays([a.filter(pa.array(kept)), b.cast(a.type)])
            for a, b in zip(self.keys, new.keys, strict=True)
        )
        free: Any = np.full(len(self), np.inf)
        bounds = {
            name: np.concatenate([self.bounds.get(name, free)[kept], values])
            for name, values in new.bounds.items()
        }
        default = {
            name: min(value, new.default.get(name, np.inf))
            for name, value in {**new.default, **self.default}.items()
        }
        return Allotment(new.stream, keys, bounds, default)

"""Values at regular instants on an arc of a plan, from which tuples are made (semantics 3.8).

Instants are multiples of ``every`` since the epoch. A **stretch** is a run of consecutive instants of one key; a key with long
holes has several, so that holes cost nothing. Within a stretch every instant has a slot, even without a value
(certainty ABSENT), so that slicing joins two relations on time::

    key A   |. . v v v v . v v|            |v v v v|        two stretches; "." is ABSENT
            first[0]                       first[1]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.certainty import CertaintyArray
from pulse.core.columns import Columns
from pulse.core.time import format_instant


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples in stretches: stretch ``s`` of key ``group[s]`` (ascending) has the samples ``offsets[s]:offsets[s + 1]``.

    Sample ``i`` of a stretch lies at ``first[s] + i * every``. ``keys`` are per group; ``values``, ``err``, ``unmodelled`` and
    ``certainty`` are per sample. Where certainty is ABSENT the others are meaningless (but values are finite). Stretches of one
    key ascend in time and do not overlap.
    """

    columns: Columns
    keys: tuple[pa.Array, ...]
    group: IntArray
    first: IntArray
    offsets: IntArray
    every: int
    values: Mapping[str, FloatArray]
    err: Mapping[str, FloatArray]
    certainty: CertaintyArray
    unmodelled: Mapping[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def groups(self) -> int:
        """Count the keys; without key columns there is one."""
        return len(self.keys[0]) if self.keys else 1

    @cached_property
    def of_group(self) -> IntArray:
        """Return the group of every sample."""
        return np.repeat(self.group, np.diff(self.offsets))

    @cached_property
    def times(self) -> IntArray:
        """Return the instant of every sample, microseconds since the epoch."""
        counts = np.diff(self.offsets)
        starts = self.first - self.every * self.offsets[:-1]
        times: IntArray = np.repeat(starts, counts) + self.every * np.arange(len(self))
        return times

    def where(self, sample: int) -> str:
        """Describe a sample for errors: its key and instant."""
        stretch = int(np.searchsorted(self.offsets, sample, "right")) - 1
        group = int(self.group[stretch])
        instant = int(self.first[stretch]) + self.every * (sample - int(self.offsets[stretch]))
        return f"{self.columns.key_text(self.keys, group)} at {format_instant(instant)}"

"""Read Danish AIS: ``# Timestamp,Type of mobile,MMSI,Latitude,Longitude,…``; times ``31/12/2015 23:59:59``, UTC.

Besides vessels there are base stations, buoys, aircraft; ``classes`` selects the senders to keep. A latitude of 91 means no
position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pulse.datasets.ais.common import AisText
from pulse.datasets.counts import Sieve
from pulse.datasets.errors import UnknownFormatError


@dataclass(frozen=True, kw_only=True)
class AisDanish(AisText):
    """Danish AIS. ``classes``: the values of "Type of mobile" to keep; None keeps all. See also
    :mod:`pulse.datasets.ais.common`.
    """

    name = "ais-danish"
    time_formats = ("%d/%m/%Y %H:%M:%S",)
    aliases: ClassVar[Mapping[str, str]] = {
        "# timestamp": "t",
        "timestamp": "t",
        "mmsi": "mmsi",
        "latitude": "lat",
        "longitude": "lon",
        "draught": "draft",
        "callsign": "call_sign",
        "name": "vessel_name",
    }

    classes: tuple[str, ...] | None = ("Class A", "Class B")

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.classes
        if given is not None:
            kinds = (given,) if isinstance(given, str) else tuple(given)
            if not all(isinstance(kind, str) for kind in kinds):
                raise UnknownFormatError(f"classes: expected texts such as 'Class A', or None, got {given!r}")
            object.__setattr__(self, "classes", kinds)

    def statements(self) -> list[str]:
        """Describe what all AIS formats do, and the classes."""
        kept = [f"kept: type of mobile {', '.join(self.classes)}"] if self.classes is not None else []
        return super().statements() + kept

    def filtered_by(self) -> tuple[str, ...]:
        """Return the column of the sender's kind, unless all are kept."""
        return () if self.classes is None else ("type_of_mobile",)

    def sift(self, table: pa.Table, sieve: Sieve) -> None:
        """Remove senders of other kinds."""
        if self.classes is None:
            return
        kinds = table.column("type_of_mobile").combine_chunks()
        known = [text.strip() in self.classes for text in kinds.dictionary.to_pylist()]
        kept = np.array([*known, False], dtype=np.bool_)
        sieve.remove(
            ~kept[kinds.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)],
            "not of the classes kept",
        )
